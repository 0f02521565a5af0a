"""The end of one receiver, or its credit, concerns tens of thousands of messages: it is dealt with in steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import transfer_frame
from tests.integration.support.routers import Router, Routers, eventually
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, detach, flow, opening

SENDERS, EACH = 160, 250
COUNT = SENDERS * EACH
BODY = b"\x00\x53\x77\xa1\x01x"
MOST_CPU_SECONDS = 0.1
"""Of a turn, with room for a collection of garbage. In one go the messages take 0.13 to 0.25 s."""


@pytest.fixture
def attacked(compiled_kernel: Callable[[], Routers]) -> Router:
    return compiled_kernel().add("A", idleTimeoutSeconds=0).start()  # they send no heartbeats


@pytest.mark.timeout(400)
@pytest.mark.parametrize("event", ["detach while they wait", "detach unsettled", "credit for all"])
def test_messages_of_one_receiver(attacked: Router, event: str) -> None:
    with Canary(attacked) as canary, Flood(attacked.port) as receiver, Flood(attacked.port) as sender:
        credit = flow(0, 2 * COUNT)
        receiver.send(opening(), begin(), attach(0, "r", "many", receiver=True))
        if event == "detach unsettled":
            receiver.send(credit)
        sender.send(opening(), begin(), *(attach(n, f"s{n}", "many") for n in range(SENDERS)))
        eventually(lambda: attacked.metric("links", 'type="endpoint"') >= SENDERS + 3, "the links")
        for link in range(SENDERS):  # the window of the session is 512 frames
            before, numbers = taken(attacked), range(link * EACH, (link + 1) * EACH)
            sender.send(*(transfer_frame(n, BODY, handle=link) for n in numbers))
            eventually(lambda before=before: taken(attacked) >= before + EACH, "the messages")
        if event == "credit for all":
            before = sent_on(attacked)
            receiver.send(credit)
            eventually(lambda: sent_on(attacked) >= before + COUNT, "all are sent", 120)
        else:
            name = "released" if event == "detach while they wait" else "modified"
            receiver.send(detach(0))
            eventually(lambda: outcomes(attacked, name) >= COUNT, "all have come back", 120)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


def taken(router: Router) -> float:
    """Deliveries that came in, those of the canary included."""
    return router.metric("deliveries_total", 'direction="in"')


def sent_on(router: Router) -> float:
    """Deliveries that went out."""
    return router.metric("deliveries_total", 'direction="out"')


def outcomes(router: Router, name: str) -> float:
    """Deliveries with one outcome."""
    return router.metric("delivery_outcomes_total", f'outcome="{name}"')
