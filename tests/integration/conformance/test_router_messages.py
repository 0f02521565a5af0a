"""What other routers may send: annotation sections by hand, as the routers of the family read them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.support.by_hand import (
    ByHand,
    attach_frame,
    body,
    open_frame,
    receive_from,
    transfer_frame,
)
from tests.integration.support.ports import free_port
from tests.integration.support.raw import DISPOSITION, TRANSFER, Neighbour
from tests.integration.support.routers import Router, Routers, listener

from isthmus_router.message.sections import ANNOTATION_DESCRIPTOR, encode_annotations
from isthmus_router.message.types import encode

HANDLE = 50
"""Beyond those of the control and data links."""


@pytest.fixture
def interior(routers: Routers) -> Router:
    """A router that others may join."""
    port = free_port()
    return routers.start("A", listener(port, "inter-router", name="routers"), mode="interior")


@pytest.fixture
def neighbour(interior: Router) -> Iterator[Neighbour]:
    """Another router, with a link to an address beside its own."""
    port = next(body["port"] for _, body in interior.sections if body.get("name") == "routers")
    with Neighbour(port, "X", "A") as neighbour:
        neighbour.send(attach_frame("named", HANDLE, receiver=False, target="named"))
        yield neighbour


def test_a_message_without_a_destination_goes_where_its_link_does(
    interior: Router, neighbour: Neighbour
) -> None:
    with ByHand(interior.port, opened=open_frame()) as peer:
        peer.attach(receive_from("named", credit=1))
        section = encode_annotations(0, None, None, ())
        neighbour.send(transfer_frame(0, section + body("straight"), handle=HANDLE))
        assert peer.expect(TRANSFER)[0].payload == body("straight")


@pytest.mark.parametrize(
    ("section", "condition"),
    [
        (ANNOTATION_DESCRIPTOR + encode({"not": "a list"}), "amqp:decode-error"),
        (ANNOTATION_DESCRIPTOR + encode([0, "named"]), "amqp:invalid-field"),
        (ANNOTATION_DESCRIPTOR + encode(["flags", "named", None, []]), "amqp:invalid-field"),
    ],
    ids=["a map", "too short", "flags of text"],
)
def test_a_section_that_cannot_be_read_is_rejected(
    neighbour: Neighbour, section: bytes, condition: str
) -> None:
    neighbour.send(transfer_frame(0, section + body("lost"), handle=HANDLE))
    (update,) = neighbour.expect(DISPOSITION)
    assert update.field(4).descriptor == 0x25
    assert update.field(4).value[0].value[0] == condition
