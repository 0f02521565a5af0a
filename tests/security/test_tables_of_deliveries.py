"""A client has had many unsettled deliveries: the engine's table of them stays large, and dispositions walk over it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.raw import DISPOSITION, frame
from tests.integration.support.routers import Routers, eventually
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, flow, opening
from tests.security.test_dispositions_multiply import ACCEPTED, transfer
from tests.security.test_fairness_of_copies import at_least

from isthmus_router.message.types import UInt

pytestmark = pytest.mark.timeout(600)

DELIVERIES = 100_000
AT_ONCE = 400
"""The window of the session is 512 frames."""
FRAMES = 10_000
FAR = UInt(2**31 - 1)
MOST_CPU_SECONDS = 0.12
"""Of a turn. A walk over the table takes 0.1 ms, and one read has up to 2,400 dispositions."""


def name_range(*, by_receiver: bool) -> bytes:
    """A disposition of more deliveries than there are, so that the engine looks at the whole table."""
    return frame(DISPOSITION, [by_receiver, UInt(0), FAR, True, ACCEPTED])


@pytest.mark.parametrize("by_receiver", [True, False], ids=["receiver", "sender"])
def test_dispositions_after_many_deliveries(
    either_kernel: Callable[[], Routers], *, by_receiver: bool
) -> None:
    router = either_kernel().add("A", linkCapacity=DELIVERIES).start()
    with Flood(router.port) as flood:
        flood.send(opening(), begin(), attach(0, "rx", "fill", receiver=True), flow(0, DELIVERIES))
        flood.send(attach(1, "tx", "fill"))
        eventually(at_least(router, "links", 'type="endpoint"', 2), "the links", 60)
        for first in range(0, DELIVERIES, AT_ONCE):
            flood.send(*(transfer(1, number) for number in range(first, first + AT_ONCE)))
            came = at_least(router, "deliveries_total", 'direction="in"', first + AT_ONCE)
            eventually(came, "the deliveries", 60)
        flood.send(name_range(by_receiver=True), name_range(by_receiver=False))
        settled = at_least(router, "delivery_outcomes_total", 'outcome="accepted"', DELIVERIES)
        eventually(settled, "the outcomes", 60)
        with Canary(router) as canary:
            flood.send(name_range(by_receiver=by_receiver) * FRAMES)
            # The router has read all of it when it answers an attach.
            flood.send(attach(2, "end", "end"))
            eventually(at_least(router, "links", 'type="endpoint"', 5), "the last frame is read", 240)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
