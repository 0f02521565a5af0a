"""A client attaches many receivers and gives no credit: what nobody answers for waits in bounded memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import ByHand, send_to, transfer_frame
from tests.integration.support.client import Clients
from tests.integration.support.routers import Router, Routers, address, eventually
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, opening
from tests.security.test_dispositions_multiply import SHOWN_SECONDS

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
            eventually(lambda: attacked.metric("links", 'type="endpoint"') >= RECEIVERS, "the links")
            before = attacked.memory()
            for _ in range(SENDERS):
                with ByHand(attacked.port) as sender:
                    sender.attach(send_to("multicast/all"))
                    sender.await_credit()
                    sender.send(*(transfer_frame(n, BODY, settled=settled) for n in range(2)))
                    sender.round_trip()
            grown = attacked.memory() - before
            flood.leave()
        eventually(lambda: attacked.metric("links", 'type="endpoint"') <= 2, "the attacker is gone", 180)
    canary.report.check()
    assert grown < MOST_GROWN, f"{grown / MEBIBYTE:.0f} MiB"


def test_senders_that_stay(attacked: Router) -> None:
    """All copies of a message share its bytes."""
    with Canary(attacked) as canary, contextlib.ExitStack() as senders, Flood(attacked.port) as flood:
        flood.send(opening(), begin())
        flood.send(*(attach(n, f"r{n}", "multicast/all", receiver=True) for n in range(RECEIVERS)))
        eventually(lambda: attacked.metric("links", 'type="endpoint"') >= RECEIVERS, "the links")
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


SOURCES, BEGUN_BYTES = 1_000, 64 * 1024
"""Links with the beginning of a message, which the router takes to find where it goes. What it leaves unread would
close the window of the session."""


def test_beginnings_of_messages_that_wait(attacked: Router, clients: Clients) -> None:
    """Each on a link of its own, for a receiver without credit."""
    head = (b"\x00\x53\x75\xb0" + (1_000_000).to_bytes(4)).ljust(BEGUN_BYTES, b"x")
    with Canary(attacked) as canary:
        client = clients.connect(attacked.port)
        receiver = client.receiver("begun", credit=0)
        senders = [client.sender("begun").await_credit() for _ in range(SOURCES)]
        before = most = attacked.memory()
        for sender in senders:
            sender.link.delivery("begun")
            sender.link.send(head)
        end = time.monotonic() + SHOWN_SECONDS
        while time.monotonic() < end and most - before < MOST_GROWN:
            clients.step(0.0)
            if (now := attacked.memory()) > most:
                most, end = now, time.monotonic() + SHOWN_SECONDS
        assert most - before < MOST_GROWN, f"{(most - before) / MEBIBYTE:.0f} MiB"
        for sender in senders[SOURCES // 2 :]:
            sender.link.close()
        receiver.grant(10)
        clients.until(
            lambda: receiver.received and receiver.received[0].data, "the first one begins to arrive"
        )
        client.drop()
    canary.report.check()
