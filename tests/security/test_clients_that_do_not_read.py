"""Clients that go on to ask and read no answers: the router reads them no further, and others are not affected."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import ByHand, begin_frame, receive_from
from tests.integration.support.raw import DETACH, END, TIMEOUT_SECONDS, frame
from tests.integration.support.routers import Router, Routers, eventually
from tests.security.support.canary import Canary

from isthmus_router.message.types import UInt

AT_ONCE = 500
MOST_PAIRS = 60_000
"""The sockets of both ends can hold as many frames, so that all may have been sent though few have been read."""
FULL_SECONDS = 3.0
MEBIBYTE = 1 << 20
ENDED = b"\x00\x53\x17"
"""In every end frame."""
PAIRS = {
    "sessions": begin_frame(1) + frame(END, [], channel=1),
    "links": receive_from("any", 1) + frame(DETACH, [UInt(1), True]),
}


@pytest.fixture(scope="module")
def attacked(either_kernel: Callable[[], Routers]) -> Router:
    """A router with a listener for clients."""
    return either_kernel().add("A").start()


def send_until_full(sock: socket.socket, pair: bytes) -> int:
    """Send pairs of frames until the router takes no more; how many."""
    sock.setblocking(False)
    data = pair * AT_ONCE
    sent = 0
    while sent < MOST_PAIRS * len(pair) and select.select([], [sock], [], FULL_SECONDS)[1]:
        sent += sock.send(data[sent % len(pair) :])
    return sent // len(pair)


@pytest.mark.parametrize("what", PAIRS)
def test_what_ends_without_its_answers_being_read(attacked: Router, what: str) -> None:
    """The engine keeps each session and each link until it has written the answer."""
    before = attacked.memory()
    with Canary(attacked) as canary:
        with ByHand(attacked.port) as peer:
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sent = send_until_full(peer.socket, PAIRS[what])
            grown = attacked.memory() - before
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        eventually(lambda: attacked.status()["counters"]["connectionCount"] == 2, "the attacker is gone")
    canary.report.check()
    assert grown < 64 * MEBIBYTE, f"{grown / MEBIBYTE:.0f} MiB for {sent} {what}"


def test_answers_are_read_late(attacked: Router) -> None:
    """The router goes on with a client that reads again: every session is ended."""
    with ByHand(attacked.port) as peer:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sent = send_until_full(peer.socket, PAIRS["sessions"])
        assert sent > 10 * AT_ONCE
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MEBIBYTE)
        peer.socket.settimeout(TIMEOUT_SECONDS)
        answers, last = 0, b""
        while answers < sent:
            last = last[1 - len(ENDED) :] + peer.socket.recv(MEBIBYTE)
            answers += last.count(ENDED)
