"""A client or an edge router has had many unsettled deliveries: the engine's table of them stays large.

Dispositions walk over it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.ports import free_port
from tests.integration.support.raw import DISPOSITION, frame
from tests.integration.support.routers import Routers, eventually, listener
from tests.security.support.canary import Canary, memory
from tests.security.support.frames import Flood, attach, begin, flow, opening
from tests.security.test_dispositions_multiply import ACCEPTED, transfer
from tests.security.test_fairness_of_copies import at_least

from isthmus_router.message.types import UInt

pytestmark = pytest.mark.timeout(600)

DELIVERIES = 100_000
AT_ONCE = 400
"""The window of the session is 512 frames."""
MOST_BYTES_OF_A_DELIVERY = 2000
"""Of which the router retains most for the next ones."""
FRAMES = 10_000
FAR = UInt(2**31 - 1)
MOST_CPU_SECONDS = 0.12
"""Of a turn. A walk over the table takes 0.1 ms, and one read has up to 2,400 dispositions."""


def name_range(*, by_receiver: bool) -> bytes:
    """A disposition of more deliveries than there are, so that the engine looks at the whole table."""
    return frame(DISPOSITION, [by_receiver, UInt(0), FAR, True, ACCEPTED])


@pytest.mark.parametrize(
    ("role", "by_receiver"), [("normal", True), ("edge", False)], ids=["receiver-normal", "sender-edge"]
)
def test_dispositions_after_many_deliveries(
    compiled_kernel: Callable[[], Routers], role: str, *, by_receiver: bool
) -> None:
    port = free_port()
    attacked = listener(port, role, name="attacked", linkCapacity=DELIVERIES, idleTimeoutSeconds=0)
    router = compiled_kernel().add(
        "A", attacked, mode="interior", linkCapacity=DELIVERIES, idleTimeoutSeconds=0
    )
    router.start()
    with Flood(port) as flood, Flood(router.port) as helper:
        receiver, sender = (flood, helper) if by_receiver else (helper, flood)
        receiver.send(opening(), begin(), attach(0, "rx", "fill", receiver=True), flow(0, DELIVERIES))
        eventually(at_least(router, "links", 'type="endpoint"', 1), "the receiver")
        sender.send(opening(), begin(), attach(0, "tx", "fill"))
        eventually(at_least(router, "links", 'type="endpoint"', 2), "the links")
        before = memory(router.pid)
        for first in range(0, DELIVERIES, AT_ONCE):
            sender.send(*(transfer(0, number) for number in range(first, first + AT_ONCE)))
            came = at_least(router, "deliveries_total", 'direction="out"', first + AT_ONCE)
            eventually(came, "the deliveries")
        receiver.send(name_range(by_receiver=True))
        settled = at_least(router, "delivery_outcomes_total", 'outcome="accepted"', DELIVERIES)
        eventually(settled, "the outcomes")
        sender.send(name_range(by_receiver=False))
        with Canary(router) as canary:
            flood.send(name_range(by_receiver=by_receiver) * FRAMES)
            # The router has read all of it when it answers an attach.
            flood.send(attach(2, "end", "end"))
            eventually(at_least(router, "links", 'type="endpoint"', 5), "the last frame is read", 240)
        grown = memory(router.pid) - before
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
    assert grown < DELIVERIES * MOST_BYTES_OF_A_DELIVERY, f"{grown} bytes"
