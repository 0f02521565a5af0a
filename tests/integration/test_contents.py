"""What a message is made of arrives as it was sent, wherever it has been."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from proton import Message, symbol, ulong
from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, connector, listener
from tests.integration.support.topology import Network

from isthmus_router.message.sections import encode_annotations

_numbers = itertools.count()


@pytest.fixture(scope="module")
def ends(either_kernel: Callable[[], Routers]) -> tuple[Router, Router]:
    """Edges at either end of two interior routers."""
    network = Network(either_kernel())
    network.line("A", "B")
    network.edge("E1", "A")
    network.edge("E2", "B")
    network.start()
    return network["E1"], network["E2"]


FOOTER = b"\0Sx\xc1\x0d\x02\xa3\x03crc\xa0\x04\x01\x02\x03\x04"
DURABLE = b"\0Sp\xc0\x0b\x05\x41\x50\x07\x70\x00\x00\x27\x10\x41\x43"
"""durable, priority 7, ttl 10000, first-acquirer, delivery-count 0"""
LARGE_HEADER = b"\0Sp\xd0\0\0\0\x0d\0\0\0\x05\x41\x50\x07\x52\x05\x42\x52\x03"
DELIVERY_ANNOTATIONS = b"\0Sq\xc1\x0c\x02\xa3\x07x-opt-d\x54\x07"
MESSAGE_ANNOTATIONS = b"\0Sr\xc1\x0c\x02\xa3\x07x-opt-m\x54\x08"
OLD_ANNOTATIONS = b"\0Sr\xc1\x13\x02\xa3\x0ex-opt-qd.trace\x54\x08"
PROPERTIES = b"\0Ss\xc0\x05\x02\xa1\x02id\x40"
APPLICATION_PROPERTIES = b"\0St\xc1\x06\x02\xa1\x01a\x54\x01"
BODIES = {
    "data": b"\0Su\xa0\x03abc",
    "two data sections": b"\0Su\xa0\x01a\0Su\xa0\x01b",
    "sequence": b"\0Sv\xc0\x03\x02\x41\x42",
    "value": b"\0Sw\xa1\x01x",
    "described value": b"\0Sw\0\xa3\x01d\xa1\x01x",
}


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("header", [b"", DURABLE, LARGE_HEADER])
def test_every_section(
    clients: Clients, ends: tuple[Router, Router], header: bytes, body: str, settled: bool
) -> None:
    """Byte for byte: no field of the header is counted down or up, no section added or taken away."""
    # Of the case before, a receiver may not be known to be gone; what is settled would go to it.
    address = f"contents/{next(_numbers)}"
    receiver = clients.connect(ends[1].port).receiver(address, credit=10, accept=True)
    sender = clients.connect(ends[0].port).sender(address).await_credit()
    annotations = DELIVERY_ANNOTATIONS + MESSAGE_ANNOTATIONS
    for data in (
        header + annotations + PROPERTIES + APPLICATION_PROPERTIES + BODIES[body] + FOOTER,
        header + OLD_ANNOTATIONS + BODIES[body],
        header + BODIES[body],
    ):
        sender.send(data, settled=settled)
        clients.until(receiver.arrived, "it arrives")
        assert bytes(receiver.next().data) == data


def test_what_a_client_library_makes_of_it(clients: Clients, ends: tuple[Router, Router]) -> None:
    receiver = clients.connect(ends[1].port).receiver("library", credit=10, accept=True)
    sender = clients.connect(ends[0].port).sender("library").await_credit()
    message = Message(
        body={"a": [1, 2.5, None]},
        durable=True,
        priority=6,
        ttl=0.001,
        first_acquirer=True,
        delivery_count=3,
        user_id=b"alice",
        subject="s",
        reply_to="here",
        correlation_id=ulong(7),
        content_type="application/json",
        content_encoding="gzip",
        group_id="g",
        group_sequence=4,
        reply_to_group_id="rg",
        properties={"p": "q"},
        annotations={symbol("x-opt-a"): 1},
    )
    assert sender.deliver(message) == "accepted", "a router does not look at the time to live"
    received = receiver.arrived()[0]
    assert bytes(received.data) == message.encode()
    assert (received.message.delivery_count, received.message.first_acquirer) == (3, True)
    assert received.message.ttl == 0.001


@pytest.mark.parametrize(("strips", "seen"), [("both", False), ("out", False), ("in", True), ("no", True)])
def test_annotations_of_routers_for_clients(
    clients: Clients, routers: Routers, strips: str, seen: bool
) -> None:
    """Clients see them only where they are asked not to be removed; those of clients count only there."""
    router = routers.start("A", stripAnnotations=strips)
    receiver = clients.connect(router.port).receiver("annotated", credit=10, accept=True)
    other = clients.connect(router.port).receiver("overridden", credit=10, accept=True)
    client = clients.connect(router.port)
    data = APPLICATION_PROPERTIES + BODIES["value"]
    assert client.sender("annotated").deliver(data) == "accepted"
    section = encode_annotations(0, "annotated", "0/A", ("0/A",))
    assert bytes(receiver.next().data) == (section if seen else b"") + data
    to = b"\0Ss\xc0\x0e\x03\x40\x40\xa1\x09annotated"
    claim = encode_annotations(0, "overridden", None, ())
    assert client.sender(None).deliver(claim + to + data) == "accepted"
    heeded = strips in ("no", "out")
    found = (other if heeded else receiver).next()
    assert bytes(found.data).endswith(to + data)
    assert bytes(found.data).startswith(b"\0\x80SKPR--RA") is seen


def test_a_clients_annotations_that_name_no_destination(clients: Clients, routers: Routers) -> None:
    """What the target of the sender's link says is told to the routers on the way."""
    port = free_port()
    first = routers.add(
        "A", listener(port, "inter-router", name="routers"), mode="interior", stripAnnotations="no"
    )
    second = routers.add("B", connector(port), mode="interior", stripAnnotations="no")
    routers.start_all()
    receiver = clients.connect(second.port).receiver("far/away", credit=1, accept=True)
    sender = clients.connect(first.port).sender("far/away").await_credit()
    data = APPLICATION_PROPERTIES + BODIES["value"]
    assert sender.deliver(encode_annotations(0, None, None, ()) + data) == "accepted"
    assert bytes(receiver.next().data) == encode_annotations(0, "far/away", "0/A", ("0/A", "0/B")) + data
