"""Very many connections of one client end at the same time: others have their turns while their links are forgotten."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from tests.integration.support.by_hand import ByHand, attach_frame, body, transfer_frame
from tests.integration.support.routers import Routers, eventually
from tests.security.support.canary import Canary

pytestmark = pytest.mark.timeout(600)

CONNECTIONS, LINKS = 150, 9
MOST_CPU_SECONDS = 0.05


def test_connections_that_end_together(either_kernel: Callable[[], Routers]) -> None:
    router = either_kernel().start("A", idleTimeoutSeconds=0)
    attaches = [attach_frame(f"s{link}", link, receiver=False, target="q") for link in range(LINKS)]
    transfers = [transfer_frame(link, body("x"), handle=link) for link in range(LINKS)]
    with Canary(router) as canary:
        with ExitStack() as connections:
            receiver = connections.enter_context(ByHand(router.port))
            receiver.attach(attach_frame("r", 0, receiver=True, source="q"))
            for _ in range(CONNECTIONS):
                sender = connections.enter_context(ByHand(router.port))
                sender.send(*attaches)
                sender.round_trip()
                sender.send(*transfers)
                sender.round_trip()
        eventually(lambda: router.metric("links", 'type="endpoint"') <= 2, "the links of the canary are left")
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
