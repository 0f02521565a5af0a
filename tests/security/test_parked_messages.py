"""A client attaches many receivers and gives no credit: what nobody answers for waits in bounded memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import ByHand, send_to, transfer_frame
from tests.integration.support.routers import Router, Routers, address, eventually
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, opening

RECEIVERS, SENDERS, STAYING_SENDERS = 150, 40, 70
BODY = b"\x00\x53\x75\xb0" + (15_000).to_bytes(4) + b"x" * 15_000
MEBIBYTE = 1 << 20
MOST_GROWN = 48 * MEBIBYTE
"""Of 86 MiB of copies and more, no more than 16 MiB may wait."""


@pytest.fixture
def attacked(either_kernel: Callable[[], Routers]) -> Router:
    """A router with a listener for clients; another one for each test, since memory is not given back."""
    return either_kernel().add("A", address("multicast", "multicast")).start()


@pytest.mark.parametrize("settled", [True, False], ids=["presettled", "orphaned"])
def test_receivers_without_credit(attacked: Router, *, settled: bool) -> None:
    """What a sender that is gone has sent unsettled waits like what was sent pre-settled."""
    with Canary(attacked) as canary:
        with Flood(attacked.port) as flood:
            flood.send(opening(), begin())
            flood.send(*(attach(n, f"r{n}", "multicast/all", receiver=True) for n in range(RECEIVERS)))
            eventually(lambda: attacked.metric("links", 'type="endpoint"') >= RECEIVERS, "the links", 60)
            before = attacked.memory()
            for _ in range(SENDERS):
                with ByHand(attacked.port) as sender:
                    sender.attach(send_to("multicast/all"))
                    sender.await_credit()
                    sender.send(*(transfer_frame(n, BODY, settled=settled) for n in range(2)))
                    sender.round_trip()
            grown = attacked.memory() - before
            flood.leave()
        eventually(lambda: attacked.status()["counters"]["connectionCount"] == 2, "the attacker is gone", 180)
    canary.report.check()
    assert grown < MOST_GROWN, f"{grown / MEBIBYTE:.0f} MiB"


def test_senders_that_stay(attacked: Router) -> None:
    """All copies of a message share its bytes."""
    with Canary(attacked) as canary, contextlib.ExitStack() as senders, Flood(attacked.port) as flood:
        flood.send(opening(), begin())
        flood.send(*(attach(n, f"r{n}", "multicast/all", receiver=True) for n in range(RECEIVERS)))
        eventually(lambda: attacked.metric("links", 'type="endpoint"') >= RECEIVERS, "the links", 60)
        before = attacked.memory()
        for _ in range(STAYING_SENDERS):
            sender = senders.enter_context(ByHand(attacked.port))
            sender.attach(send_to("multicast/all"))
            sender.await_credit()
            sender.send(*(transfer_frame(n, BODY) for n in range(2)))
            sender.round_trip()
        grown = attacked.memory() - before
        flood.leave()
    canary.report.check()
    assert grown < MOST_GROWN, f"{grown / MEBIBYTE:.0f} MiB"
