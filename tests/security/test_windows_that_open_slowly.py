"""A receiver has thousands of links with messages that wait, and lets in one frame after the other."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import body
from tests.integration.support.raw import FLOW, TRANSFER, frame
from tests.integration.support.routers import Routers, address, eventually
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, opening

from isthmus_router.message.types import UInt

pytestmark = pytest.mark.timeout(600)

CLIENTS, LINKS, FLOWS = 4, 6000, 200
MESSAGES = 3
MOST_CPU_SECONDS = 0.05
"""For anything while a message of the canary is on its way, on a slow machine."""


def window(frames: int, seen: int, handle: int | None = None) -> bytes:
    """A flow of one that has seen so many frames; with credit if it is for a link."""
    fields = [UInt(seen), UInt(frames), UInt(0), UInt(1000)]
    return frame(FLOW, fields if handle is None else [*fields, UInt(handle), UInt(0), UInt(10)])


def test_windows_that_open_for_one_frame_at_a_time(compiled_kernel: Callable[[], Routers]) -> None:
    router = compiled_kernel().start("A", address("multicast", "multicast"), idleTimeoutSeconds=0)
    clients = [Flood(router.port) for _ in range(CLIENTS)]
    for client in clients:
        client.send(opening(), frame(0x11, [None, UInt(0), UInt(1), UInt(1000)]))
        for number in range(LINKS):
            client.send(attach(number, f"r{number}", "multicast/x", receiver=True), window(1, 0, number))
    eventually(lambda: router.metric("links") >= CLIENTS * LINKS, "all links are there", 300)
    with Flood(router.port) as sender:
        sender.send(opening(), begin(), attach(0, "s", "multicast/x"))
        time.sleep(1)  # until it has credit
        for number in range(MESSAGES):
            fields = [UInt(0), UInt(number), number.to_bytes(4), UInt(0), True]
            sender.send(frame(TRANSFER, fields, body("x" * 50)))
        eventually(
            lambda: router.metric("deliveries_total", "out") > CLIENTS * 4000, "as much waits as may", 60
        )
        with Canary(router) as canary:
            for seen in range(1, FLOWS):
                for client in clients:
                    client.send(window(1, seen))
                time.sleep(0.02)
    for client in clients:
        assert not client.closed.is_set()
        client.leave()
    canary.report.check()
    assert canary.report.cpu_p99 < MOST_CPU_SECONDS, canary.report
