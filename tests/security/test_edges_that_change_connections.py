"""An edge attaches its consumer on one connection and on the other, in turns, while very many messages wait for it.

Each link takes over what waits from the one before it. Others do not wait for that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import ByHand, body, send_to, transfer_frame
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, eventually, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import attach, flow
from tests.security.test_edges_with_many_receivers import await_answer
from tests.security.test_links_of_edges import KEY, Edge

pytestmark = pytest.mark.timeout(600)

CLIENTS, LINKS, OF_LINK = 2, 256, 240
"""Of each client, nearly as much as may wait: 122,880 messages together."""
AT_ONCE = 240
"""Frames that fit into any window of the router's."""
CHANGES = 20
MOST_CPU_SECONDS = 0.02
"""To go from message to message took 0.05 seconds with half as many again."""
TEXT = "waits"


def send(port: int) -> ByHand:
    """A client that has used up the credit of its links."""
    client = ByHand(port)
    for handle in range(LINKS):
        client.attach(send_to("queue", handle))
    client.round_trip()
    for first in range(0, LINKS * OF_LINK, AT_ONCE):
        these = range(first, min(first + AT_ONCE, LINKS * OF_LINK))
        client.send(*(transfer_frame(one, body(TEXT), handle=one % LINKS) for one in these))
        client.round_trip()
    return client


def test_a_consumer_for_which_very_many_messages_wait(compiled_kernel: Callable[[], Routers]) -> None:
    port = free_port()
    edges = listener(port, "edge", name="edges", idleTimeoutSeconds=0)
    router = compiled_kernel().start("A", edges, mode="interior", idleTimeoutSeconds=0)
    with contextlib.ExitStack() as stack:
        ways = [stack.enter_context(Edge(port, KEY)) for _ in range(2)]
        ways[0].send(attach(0, "first", "queue", receiver=True))
        await_answer(ways[0], "first")
        clients = [send(router.port) for _ in range(CLIENTS)]
        with Canary(router) as canary:
            for number in range(1, CHANGES):
                ways[number % 2].send(attach(number, f"consumer{number}", "queue", receiver=True))
                await_answer(ways[number % 2], f"consumer{number}")
        last = ways[(CHANGES - 1) % 2]
        last.send(flow(CHANGES - 1, 10))
        eventually(lambda: TEXT.encode() in last.tail, "what waits comes on the last link", 60)
        for client in clients:
            client.socket.close()
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
