"""Messages for the router itself that begin on many links and do not end are collected in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import ByHand, send_to, transfer_frame
from tests.integration.support.raw import DISPOSITION
from tests.integration.support.routers import Router, Routers
from tests.security.support.canary import Canary

from isthmus_router.message.types import Described, ULong

PIECE = b"x" * 15_000
"""In a frame."""
MEBIBYTE = 1 << 20
MOST_GROWN = 40 * MEBIBYTE
"""Of which 16 MiB may be collected."""
MOST_CPU_SECONDS = 0.05
"""For anything while a message of the canary is on its way."""


@pytest.fixture
def attacked(either_kernel: Callable[[], Routers]) -> Router:
    """Another router for each test, since memory is not given back."""
    return either_kernel().add("A").start()


@pytest.mark.parametrize(
    ("links", "rounds", "condition"),
    [
        (32, 130, "amqp:link:message-size-exceeded"),
        (200, 15, "amqp:resource-limit-exceeded"),
    ],
    ids=["each too long", "too much together"],
)
def test_endless_requests_to_management(attacked: Router, links: int, rounds: int, condition: str) -> None:
    """Those beyond a bound are rejected when they end; 62 and 48 MB in all."""
    with Canary(attacked) as canary, ByHand(attacked.port) as client:
        for handle in range(links):
            client.attach(send_to("$management", handle))
            client.await_credit()
        before = attacked.memory()
        head = b"\x00\x53\x75\xb0\x7f\x00\x00\x00"
        client.send(*(transfer_frame(n, head + PIECE, handle=n, more=True) for n in range(links)))
        for _ in range(rounds):
            client.send(*(transfer_frame(None, PIECE, handle=n, more=True) for n in range(links)))
            client.round_trip()
        grown = attacked.memory() - before
        client.send(*(transfer_frame(None, b"", handle=n) for n in range(links)))
        client.round_trip()
        states = [arrived.field(4) for arrived in client.settled_by_close() if arrived.code == DISPOSITION]
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
    assert grown < MOST_GROWN, f"{grown / MEBIBYTE:.0f} MiB"
    assert condition in [rejected(state) for state in states], states


def rejected(state: Described) -> str | None:
    """The condition of a rejection."""
    return str(state.value[0].value[0]) if state.descriptor == ULong(0x25) else None
