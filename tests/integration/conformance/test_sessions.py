"""Sessions: AMQP 1.0 sections 2.5, 2.7.2 and 2.7.4."""

from __future__ import annotations

from tests.integration.support.by_hand import (
    ByHand,
    attach_frame,
    begin_frame,
    body,
    credit_frame,
    receive_from,
    send_to,
    transfer_frame,
)
from tests.integration.support.raw import ATTACH, BEGIN, CLOSE, END, TRANSFER, frame
from tests.integration.support.routers import Router

LAST_HANDLE = 2**32 - 1


def test_a_begin_is_answered_with_the_channel_it_came_on(router: Router) -> None:
    with ByHand(router.port, begun=begin_frame(channel=7)) as peer:
        assert peer.begun.field(0) == 7
        peer.send(receive_from("x", channel=7))
        assert peer.expect(ATTACH)[0].channel == peer.begun.channel


def test_a_channel_is_free_again_after_its_end(router: Router) -> None:
    with ByHand(router.port, begun=b"") as peer:
        for _ in range(50):
            peer.send(begin_frame(3), receive_from("again", channel=3))
            assert peer.expect(BEGIN)[0].field(0) == 3
            peer.send(frame(END, [], channel=3))
            peer.expect(END)


def test_frames_on_a_channel_that_nobody_began(router: Router) -> None:
    with ByHand(router.port) as peer:
        peer.send(receive_from("x", channel=9))
        (close,) = peer.expect(CLOSE)
        assert close.field(0) is not None


def test_a_handle_beyond_handle_max(router: Router) -> None:
    """2.7.2: framing-error, on the connection."""
    with ByHand(router.port) as peer:
        handle_max = peer.begun.field(4)
        assert handle_max is not None
        if handle_max < LAST_HANDLE:
            peer.send(receive_from("x", handle_max + 1))
            peer.expect_error(CLOSE, "amqp:connection:framing-error")


def test_links_of_two_sessions_are_kept_apart(router: Router) -> None:
    """Handles count within a session."""
    with ByHand(router.port) as peer:
        peer.send(begin_frame(1))
        peer.expect(BEGIN)
        for channel in (0, 1):
            name = f"in session {channel}"
            peer.send(attach_frame(name, 0, receiver=True, source=name, channel=channel))
        answers = {one.field(0): one for one in peer.expect(ATTACH, 2)}
        assert set(answers) == {"in session 0", "in session 1"}
        peer.send(frame(END, []))
        peer.expect(END)
        peer.send(credit_frame(0, 1, channel=1))
        with ByHand(router.port) as sender:
            sender.attach(send_to("in session 1"))
            sender.await_credit()
            sender.send(transfer_frame(0, body("kept")))
            assert peer.expect(TRANSFER)[0].payload.endswith(b"kept")
