"""Messages for the router itself that begin on many links and do not end are collected in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import ByHand, send_to, transfer_frame
from tests.integration.support.raw import DISPOSITION
from tests.integration.support.routers import Router, Routers
from tests.security.support.canary import Canary

from isthmus_router.message.types import Described, ULong

LINKS, ROUNDS = 32, 130
PIECE = b"x" * 15_000
"""In a frame; 62 MB in all."""
MEBIBYTE = 1 << 20
MOST_GROWN = 40 * MEBIBYTE
"""Of which 16 MiB may be collected."""


@pytest.fixture
def attacked(either_kernel: Callable[[], Routers]) -> Router:
    """Another router for each test, since memory is not given back."""
    return either_kernel().add("A").start()


def test_endless_requests_to_management(attacked: Router) -> None:
    """Those beyond the bound are rejected when they end."""
    with Canary(attacked) as canary, ByHand(attacked.port) as client:
        for handle in range(LINKS):
            client.attach(send_to("$management", handle))
            client.await_credit()
        before = attacked.memory()
        head = b"\x00\x53\x75\xb0\x7f\x00\x00\x00"
        client.send(*(transfer_frame(n, head + PIECE, handle=n, more=True) for n in range(LINKS)))
        for _ in range(ROUNDS):
            client.send(*(transfer_frame(None, PIECE, handle=n, more=True) for n in range(LINKS)))
            client.round_trip()
        grown = attacked.memory() - before
        client.send(*(transfer_frame(None, b"", handle=n) for n in range(LINKS)))
        client.round_trip()
        states = [arrived.field(4) for arrived in client.settled_by_close() if arrived.code == DISPOSITION]
    canary.report.check()
    assert grown < MOST_GROWN, f"{grown / MEBIBYTE:.0f} MiB"
    assert any(refused(state) for state in states), states


def refused(state: Described) -> bool:
    """Whether it is a rejection because of the bound."""
    return state.descriptor == ULong(0x25) and str(state.value[0].value[0]) == "amqp:resource-limit-exceeded"
