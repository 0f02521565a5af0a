"""A client with very many unsettled deliveries on routed links ends its session, or its connection.

Others have their turns while the router frees what it has of these deliveries. They count for the client until then.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import ByHand, body, send_to, transfer_frame
from tests.integration.support.ports import free_port
from tests.integration.support.raw import END, FLOW, frame
from tests.integration.support.routers import Router, Routers, listener
from tests.security.support.canary import Canary, memory
from tests.security.support.small_container import SmallContainer

pytestmark = pytest.mark.timeout(600)

LINKS, OF_LINK = 2, 25_000
"""A link may have twice as many unsettled, and so may a client."""
MORE = 400
"""The client may send them when the others have been freed."""
AT_ONCE = 240
"""Frames that fit into any window of the router's."""
MOST_CPU_SECONDS = 0.05
MOST_BYTES_OF_A_DELIVERY = 2000
"""Of which the router retains most for the next ones."""
ENDS: dict[str, Callable[[ByHand], None]] = {
    "end": lambda client: client.send(frame(END, [])),
    "socket": lambda client: client.socket.close(),
}


def send(router: Router, container: SmallContainer, deliveries: int) -> ByHand:
    """A client that has sent unsettled deliveries on links to a container, with the credit that it has."""
    client = ByHand(router.port)
    for handle in range(LINKS):
        client.attach(send_to(f"q/{handle}", handle))
    before = len(container.payloads)
    most = dict.fromkeys(range(LINKS), 0)
    for first in range(0, deliveries, AT_ONCE):
        these = range(first, min(first + AT_ONCE, deliveries))
        while min(most.values()) * LINKS < these.stop:
            (credit,) = client.expect(FLOW)
            if credit.field(4) is not None:
                most[int(credit.field(4))] = int(credit.field(5) or 0) + int(credit.field(6) or 0)
        client.send(*(transfer_frame(one, body("x"), handle=one % LINKS) for one in these))
        container.wait(lambda sent=before + these.stop: len(container.payloads) == sent)
    return client


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_the_end_of_a_sender_on_routed_links(
    compiled_kernel: Callable[[], Routers], end: Callable[[ByHand], None]
) -> None:
    port = free_port()
    brokers = listener(port, "route-container", name="brokers", idleTimeoutSeconds=0)
    route = ("linkRoute", {"prefix": "q", "direction": "in", "containerId": "broker"})
    router = compiled_kernel().start("A", brokers, route, idleTimeoutSeconds=0)
    with SmallContainer(port, handle_max=100, channel_max=100, credit=1_000_000) as container:
        before = memory(router.pid)
        client = send(router, container, LINKS * OF_LINK)
        grown = memory(router.pid) - before
        with Canary(router) as canary:
            end(client)
            container.wait(lambda: not container.links)
            send(router, container, MORE).socket.close()
        client.socket.close()
        left = memory(router.pid) - before
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
    most = LINKS * OF_LINK * MOST_BYTES_OF_A_DELIVERY
    assert left < most, f"{left} bytes"
    assert grown < most, f"{grown} bytes"
