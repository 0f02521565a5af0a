"""A client sends on many routed links to a container that settles nothing: bounded for the client, on all links.

Nothing is lost: the links of this client wait. Links of another client to the same container go on.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import ByHand, body, open_frame, send_to, transfer_frame
from tests.integration.support.ports import free_port
from tests.integration.support.raw import DETACH
from tests.integration.support.routers import Routers, listener
from tests.security.support.canary import Canary
from tests.security.support.small_container import SmallContainer

pytestmark = pytest.mark.timeout(600)

MOST = 100_000
LINKS = 3
"""Of each, fewer deliveries than a link may have unsettled."""
AT_ONCE = 240
"""Frames that fit into any window of the router's."""
WAITING = 60
MOST_GROWTH = 300 << 20


def test_a_container_that_settles_nothing(compiled_kernel: Callable[[], Routers]) -> None:
    port = free_port()
    route = ("linkRoute", {"prefix": "q", "direction": "in", "containerId": "broker"})
    brokers = listener(port, "route-container", name="brokers", idleTimeoutSeconds=0)
    router = compiled_kernel().start("A", brokers, route, idleTimeoutSeconds=0)
    with (
        SmallContainer(port, handle_max=100, channel_max=100, credit=1_000_000) as container,
        Canary(router, rate=50) as canary,
        ByHand(router.port) as client,
        ByHand(router.port, opened=open_frame("other"), address="127.0.0.2") as other,
    ):
        for handle in range(LINKS):
            client.attach(send_to(f"q/{handle}", handle))
        other.attach(send_to("q/other"))
        before = router.memory()
        number = 0
        while number < MOST:
            these = range(number, min(number + AT_ONCE, MOST))
            client.send(*(transfer_frame(one, body("x"), handle=one % LINKS) for one in these))
            number = these.stop
            container.wait(lambda number=number: len(container.payloads) == number)
        grown = router.memory() - before
        client.send(*(transfer_frame(MOST + at, body("y"), handle=at % LINKS) for at in range(WAITING)))
        client.round_trip()
        other.send(*(transfer_frame(at, body("z"), settled=False) for at in range(WAITING)))
        container.wait(lambda: len(container.payloads) >= MOST + WAITING)
        client.round_trip()
        assert container.payloads[MOST:] == [body("z")] * WAITING
        assert not [one for one in client.rest() if one.code == DETACH]

        channel = next(channel for channel, count in container.received.items() if count > WAITING)
        container.settle(channel, 0, WAITING - 1)
        container.wait(lambda: len(container.payloads) == MOST + 2 * WAITING)
        assert container.payloads[MOST + WAITING :] == [body("y")] * WAITING
    canary.report.check(at_least=5)
    assert grown < MOST_GROWTH, f"{grown >> 20} MiB"
