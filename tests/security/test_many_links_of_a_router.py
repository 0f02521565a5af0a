"""A router attaches very many links and leaves, or attaches links for streams that nobody needs: they end in steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.ports import free_port
from tests.integration.support.raw import CLOSE, frame
from tests.integration.support.routers import Router, Routers, eventually, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, opening

pytestmark = pytest.mark.timeout(600)

LINKS, LINKS_FOR_STREAMS, OF_A_SESSION = 20_000, 60_000, 200
MOST_CPU_SECONDS = 0.05
PATIENCE = 120
CONTROL = attach(0, "in", None, capability="qd.router") + attach(
    1, "out", None, receiver=True, capability="qd.router"
)
"""By which the peer becomes a router."""


def interior(routers: Routers) -> tuple[Router, int]:
    port = free_port()
    return routers.start("A", listener(port, "inter-router", name="routers"), mode="interior"), port


def receivers(count: int, *, capability: str | None = None) -> bytes:
    """Links on which the router sends: of as many addresses, or those for messages between routers."""
    frames = []
    for number in range(count):
        channel, handle = divmod(number, OF_A_SESSION)
        if not handle:
            frames.append(begin(channel + 1))
        name = f"many/{number}"
        address = name if capability is None else None
        frames.append(
            attach(handle, name, address, receiver=True, channel=channel + 1, capability=capability)
        )
    return b"".join(frames)


@pytest.mark.parametrize("end", [b"", frame(CLOSE, [])], ids=["socket closed", "close"])
def test_end_of_a_connection(compiled_kernel: Callable[[], Routers], end: bytes) -> None:
    router, port = interior(compiled_kernel())
    with Flood(port) as flood:
        flood.send(opening(), begin(), CONTROL, receivers(LINKS))
        eventually(lambda: router.metric("links") >= LINKS, "all links are attached", PATIENCE)
        with Canary(router) as canary:
            if end:
                flood.send(end)
            else:
                flood.leave()
            eventually(lambda: router.metric("links") < 100, "all links are removed", PATIENCE)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


def test_links_for_streams_that_nobody_needs(compiled_kernel: Callable[[], Routers]) -> None:
    router, port = interior(compiled_kernel())
    with Canary(router) as canary, Flood(port) as flood:
        flood.send(opening(), begin(), CONTROL, receivers(LINKS_FOR_STREAMS, capability="qd.router-data"))
        eventually(
            lambda: b"last" in flood.tail or router.metric("links") > 100, "links are attached", PATIENCE
        )
        flood.send(begin(400), attach(0, "last", "last", channel=400))
        eventually(lambda: router.metric("addresses") >= 3, "all links are attached", PATIENCE)
        eventually(lambda: router.metric("links") < 100, "all but some are closed", PATIENCE)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
