"""A container that leaves the router no session for its links costs nobody else a connection."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import ByHand, open_frame, receive_from
from tests.integration.support.ports import free_port
from tests.integration.support.raw import ATTACH, DETACH
from tests.integration.support.routers import Routers, listener

from isthmus_router.message.types import UInt, UShort


@pytest.mark.parametrize("begins", [True, False], ids=["session of its own", "no session"])
def test_client_whose_link_is_routed_to_it(either_kernel: Callable[[], Routers], *, begins: bool) -> None:
    """The client's link ends, or waits; its connection and its other links go on."""
    port = free_port()
    route = ("linkRoute", {"prefix": "q", "direction": "both", "containerId": "broker"})
    brokers = listener(port, "route-container", name="brokers")
    # A container that begins no session is given up when it is silent for too long, and the client waits for that.
    router = either_kernel().start("A", brokers, route, idleTimeoutSeconds=0)
    only_channel = open_frame("broker", None, UInt(65536), UShort(0))
    with (
        ByHand(port, opened=only_channel, begun=None if begins else b"") as container,
        ByHand(router.port) as client,
    ):
        client.attach(receive_from("own", 0))
        client.send(receive_from("q/x", 1))
        if begins:
            container.expect(ATTACH)
        else:
            client.expect(DETACH)
        client.round_trip()
        assert not client.ended
