"""A client lets messages wait in many sessions: bounded memory, and its other sessions still get theirs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from tests.integration.support.by_hand import (
    ByHand,
    begin_frame,
    body,
    credit_frame,
    receive_from,
    send_to,
    transfer_frame,
)
from tests.integration.support.raw import BEGIN, DETACH, END, FLOW, TRANSFER, frame
from tests.integration.support.routers import Router, Routers, address, eventually
from tests.security.support.canary import Canary
from tests.security.support.frames import attach, detach
from tests.security.test_fairness_of_copies import at_least

from isthmus_router.message.types import UInt

SESSIONS = 300
CREDIT = 10_000
MEBIBYTE = 1 << 20
MOST_GROWN = 64 * MEBIBYTE
LARGE = UInt(2**31 - 1)
MESSAGES = {
    "large": (b"\x00\x53\x75\xb0" + (15_000).to_bytes(4) + b"x" * 15_000, 80),
    "small": (body("x"), 3000),
}
"""Each kind of message, and how many: 343 MiB for all receivers, in bytes or in what the engine needs for each."""


@pytest.fixture
def attacked(either_kernel: Callable[[], Routers]) -> Router:
    """A router with a listener for clients; another one for each test, since memory is not given back."""
    return either_kernel().add("A", address("multicast", "multicast"), idleTimeoutSeconds=0).start()


def send_all(sender: ByHand, messages: list[bytes]) -> None:
    """Send pre-settled messages as credit allows, and wait until the last one has used it up or been dealt with."""
    allowed = 0
    for number, message in enumerate(messages):
        while number == allowed:
            (flow,) = sender.expect(FLOW)
            if flow.field(6):
                allowed = flow.field(5) + flow.field(6)
        sender.send(transfer_frame(number, message, settled=True))
    sender.round_trip()


@pytest.mark.parametrize("kind", MESSAGES)
def test_sessions_with_closed_windows(attacked: Router, kind: str) -> None:
    """The peer gives credit on each link, and lets no frame of its session come."""
    message, count = MESSAGES[kind]
    with Canary(attacked) as canary:
        with ByHand(attacked.port) as peer:
            for channel in range(1, SESSIONS + 1):
                closed = frame(BEGIN, [None, UInt(0), UInt(0), LARGE], channel=channel)
                peer.send(closed, attach(0, f"r{channel}", "multicast/all", receiver=True, channel=channel))
                flow = [UInt(0), UInt(0), UInt(0), LARGE, UInt(0), UInt(0), UInt(CREDIT)]
                peer.send(frame(FLOW, flow, channel=channel))
            eventually(lambda: attacked.metric("links", 'type="endpoint"') >= SESSIONS, "the links")
            peer.round_trip()
            before = attacked.memory()
            with ByHand(attacked.port) as sender:
                sender.attach(send_to("multicast/all"))
                send_all(sender, [message] * count)
            grown = attacked.memory() - before
            # A session of the same connection that is read gets messages, though the others hold all that they may.
            peer.attach(receive_from("closest/one", 7, credit=10))
            with ByHand(attacked.port) as sender:
                sender.attach(send_to("closest/one"))
                sender.await_credit()
                large = b"\x00\x53\x75\xb0" + (200_000).to_bytes(4) + b"y" * 200_000
                for at in range(3):
                    pieces = [large[start : start + 15_000] for start in range(0, len(large), 15_000)]
                    for number, piece in enumerate(pieces):
                        first = at if number == 0 else None
                        sender.send(transfer_frame(first, piece, settled=True, more=number < len(pieces) - 1))
                got = 0
                while got < 3 * len(large):
                    (arrived,) = peer.expect(TRANSFER)
                    got += len(arrived.payload)
        eventually(lambda: attacked.metric("links", 'type="endpoint"') <= 2, "the attacker is gone", 180)
    canary.report.check()
    assert grown < MOST_GROWN, f"{grown / MEBIBYTE:.0f} MiB"


def test_a_session_after_links_that_were_not_read(attacked: Router) -> None:
    """The engine goes on counting what a link had to send when it was detached: other links of the session go on."""
    large = b"\x00\x53\x75\xb0" + (15_000).to_bytes(4) + b"x" * 15_000
    with ByHand(attacked.port, begun=begin_frame(incoming=0)) as peer, ByHand(attacked.port) as sender:
        peer.attach(attach(0, "first", "closest/first", receiver=True))
        peer.send(credit_frame(0, CREDIT, incoming=0))
        sender.attach(send_to("closest/first"))
        sender.await_credit()
        for number in range(100):
            sender.send(transfer_frame(number, large, settled=True))
        sender.round_trip()
        peer.send(detach(0))
        peer.expect(DETACH)
        peer.attach(attach(1, "second", "closest/second", receiver=True))
        peer.send(credit_frame(1, CREDIT))
        sender.attach(send_to("closest/second", 1))
        sender.await_credit()
        for number in range(100, 105):
            sender.send(transfer_frame(number, body("two"), handle=1, settled=True))
        assert [arrived.payload for arrived in peer.expect(TRANSFER, 5)] == [body("two")] * 5


CONNECTIONS, OF_EACH, WAITING = 10, 16, 1700
MOST_CPU_SECONDS = 0.03
"""Of one turn. It took 0.06 s when the engine walked over all of them for each write of each connection."""


def test_the_engine_walks_over_few_messages(attacked: Router) -> None:
    """Clients close the windows of their sessions, let small messages wait, and make the router write all the time."""
    with ExitStack() as stack:
        peers = [stack.enter_context(ByHand(attacked.port)) for _ in range(CONNECTIONS)]
        for peer in peers:
            for channel in range(1, OF_EACH + 1):
                peer.send(
                    begin_frame(channel, incoming=0),
                    receive_from("multicast/shut", credit=0, channel=channel),
                    credit_frame(0, CREDIT, incoming=0, channel=channel),
                )
            peer.round_trip()
        sender = stack.enter_context(ByHand(attacked.port))
        sender.attach(send_to("multicast/shut"))
        send_all(sender, [body("x")] * WAITING)
        came = at_least(attacked, "deliveries_total", 'direction="in"', WAITING)
        eventually(came, "the messages", 120)
        with Canary(attacked) as canary:
            for _ in range(100):
                for peer in peers:
                    peer.send(begin_frame(99), frame(END, [], channel=99))
                for peer in peers:
                    peer.expect(END)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
