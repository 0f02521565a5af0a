"""One disposition with a large state names thousands of deliveries: what it costs is done in slices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import body, transfer_frame
from tests.integration.support.raw import DISPOSITION, frame
from tests.integration.support.routers import Router, Routers, eventually
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, flow, opening
from tests.security.test_fairness_of_links import MOST_CPU_SECONDS

from isthmus_router.message.types import Described, Symbol, UInt, ULong

SENDERS, EACH = 8, 250
VALUES = 125
"""Pairs of a map, as many as a field may have."""


def rejected() -> Described:
    """With an error whose map of information has many values."""
    info = {Symbol(f"k{number}"): UInt(number) for number in range(VALUES)}
    return Described(ULong(0x25), [Described(ULong(0x1D), [Symbol("a:b"), "no", info])])


def modified() -> Described:
    """With many annotations."""
    return Described(ULong(0x27), [True, False, {Symbol(f"k{number}"): UInt(0) for number in range(VALUES)}])


def sent_on(router: Router) -> float:
    """Deliveries that went out, those of a canary included."""
    return router.metric("deliveries_total", 'direction="out"')


def refused(router: Router) -> float:
    """Deliveries with one of the two outcomes."""
    return sum(
        router.metric("delivery_outcomes_total", f'outcome="{name}"') for name in ("rejected", "modified")
    )


@pytest.fixture
def attacked(either_kernel: Callable[[], Routers]) -> Router:
    return either_kernel().add("A").start()


@pytest.mark.parametrize("state", [rejected(), modified()], ids=["rejected", "modified"])
def test_one_disposition_for_thousands_of_deliveries(attacked: Router, state: Described) -> None:
    count = SENDERS * EACH
    with Canary(attacked) as canary, Flood(attacked.port) as receiver, Flood(attacked.port) as sender:
        receiver.send(opening(), begin(), attach(0, "r", "many", receiver=True), flow(0, 2 * count))
        sender.send(opening(), begin(), *(attach(n, f"s{n}", "many") for n in range(SENDERS)))
        eventually(lambda: attacked.metric("links", 'type="endpoint"') >= SENDERS + 3, "the links")
        for first in range(0, count, EACH):  # the window of the session is 512 frames
            before, numbers = sent_on(attacked), range(first, first + EACH)
            sender.send(*(transfer_frame(n, body("x"), handle=n // EACH) for n in numbers))
            eventually(lambda before=before: sent_on(attacked) >= before + EACH, "the deliveries")
        receiver.send(frame(DISPOSITION, [True, UInt(0), UInt(count - 1), True, state]))
        eventually(lambda: refused(attacked) >= count, "the outcomes", 120)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
