"""A client ends its session in the middle of a message to itself, while the window of the session is closed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import (
    ByHand,
    begin_frame,
    credit_frame,
    receive_from,
    send_to,
    transfer_frame,
)
from tests.integration.support.raw import CLOSE, END, TRANSFER, frame
from tests.integration.support.routers import Router, Routers
from tests.security.support.canary import Canary

HEAD = b"\x00\x53\x75\xb0\x7f\xff\xff\xff"
FRAMES = 6
SESSIONS = 20


@pytest.fixture(scope="module")
def attacked(either_kernel: Callable[[], Routers]) -> Router:
    """A router with a listener for clients."""
    return either_kernel().add("A").start()


def test_a_session_ends_in_the_middle_of_a_message(attacked: Router) -> None:
    """The engine reports a flow for the aborted message when it has finished the session."""
    pieces = [transfer_frame(0, HEAD + bytes(15_000), more=True)]
    pieces += [transfer_frame(None, bytes(15_000), more=True)] * (FRAMES - 1)
    with Canary(attacked) as canary, ByHand(attacked.port, begun=b"") as peer:
        for _ in range(SESSIONS):
            peer.send(begin_frame(), send_to("multicast/own"))
            peer.send(receive_from("multicast/own", 1), credit_frame(1, 10, incoming=1))
            peer.await_credit()
            peer.send(*pieces)
            peer.expect(TRANSFER)
            peer.send(frame(END, []))
            peer.expect(END)
        peer.send(frame(CLOSE, []))
        assert peer.expect(CLOSE)[0].field(0) is None
    canary.report.check()
