"""Sessions that are begun twice: the connection is closed before the engine frees one that it goes on using."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import AMPLE, ByHand, begin_frame, open_frame, receive_from
from tests.integration.support.raw import ATTACH, BEGIN, CLOSE, END, frame
from tests.integration.support.routers import Router, Routers
from tests.security.support.canary import Canary

from isthmus_router.message.types import UInt, UShort


@pytest.fixture(scope="module")
def attacked(either_kernel: Callable[[], Routers]) -> Router:
    """A router with a listener for clients."""
    return either_kernel().add("A").start()


def begin_as_answer(channel: int, to: int) -> bytes:
    """A begin that says that it answers the one of the router on channel `to`."""
    return frame(BEGIN, [UShort(to), UInt(0), AMPLE, AMPLE], channel=channel)


def end(channel: int) -> bytes:
    """The end of a session."""
    return frame(END, [], channel=channel)


def test_the_answer_to_an_own_session_is_begun_again(attacked: Router) -> None:
    with Canary(attacked) as canary:
        for channel in (0, 1):
            for rest in (
                end(0) + receive_from("any") + receive_from("any", 1, channel=1),
                receive_from("any", channel=1) + end(1) + receive_from("any", 1) + end(0) + end(1),
                end(channel) * 2 + begin_frame() + receive_from("any"),
            ):
                for together in (True, False):
                    with ByHand(attacked.port) as peer:
                        again = begin_as_answer(channel, 0)
                        if together:
                            peer.send(again + rest)
                        else:
                            peer.send(again)
                        peer.expect_error(CLOSE, "amqp:not-allowed")
                        if not together:
                            peer.send(rest)
    canary.report.check()


def test_a_channel_is_begun_again(attacked: Router) -> None:
    """The engine forgets what it had on the channel until the connection is closed."""
    with Canary(attacked) as canary:
        for _ in range(5):
            with ByHand(attacked.port) as peer:
                peer.attach(receive_from("any"))
                peer.send(begin_frame(), receive_from("any"), end(0), begin_frame(), receive_from("any", 1))
                peer.settled_by_close()
    canary.report.check()


def test_a_session_is_begun_again_after_its_end(attacked: Router) -> None:
    """The peer names the session that it has ended, before the router's end has been written, and attaches to it."""
    again = end(0) + begin_as_answer(0, 0) + receive_from("any", 1) + receive_from("any", 2)
    with Canary(attacked) as canary:
        for rest in (b"", end(0), end(0) + begin_as_answer(0, 0) + receive_from("any", 3) + end(0)):
            for _ in range(5):
                with ByHand(attacked.port) as peer:
                    peer.attach(receive_from("any"))
                    peer.send(again + rest)
                    peer.expect_error(CLOSE, "amqp:not-allowed")
    canary.report.check()


def test_a_channel_is_used_again_at_once(attacked: Router) -> None:
    """As a peer may: its next session is a new one, whether or not the router's end has arrived."""
    with Canary(attacked) as canary, ByHand(attacked.port) as peer:
        peer.attach(receive_from("any"))
        for together in (True, False) * 20:
            if together:
                peer.send(end(0) + begin_frame() + receive_from("any"))
            else:
                peer.send(end(0))
                peer.expect(END)
                peer.send(begin_frame() + receive_from("any"))
            assert peer.expect(ATTACH)[0].field(0) == "from any 0"
        peer.send(frame(CLOSE, []))
        assert peer.expect(CLOSE)[0].field(0) is None
    canary.report.check()


def with_channels(router: Router, channels: int) -> ByHand:
    """A peer that allows so many channels, and has begun a session on the first one."""
    return ByHand(router.port, opened=open_frame(None, None, None, UShort(channels - 1)))


def test_each_channel_is_used_again_at_once(attacked: Router) -> None:
    """The engine would write the begins before the ends, and so find no channel, and write nothing any more."""
    with Canary(attacked) as canary:
        for channels in (1, 2, 5):
            for times in (1, 2, 7):
                with with_channels(attacked, channels) as peer:
                    others = range(1, channels)
                    peer.send(b"".join(map(begin_frame, others)))
                    for _ in others:
                        peer.expect(BEGIN)
                    everywhere = b"".join(end(channel) + begin_frame(channel) for channel in range(channels))
                    peer.send(everywhere * times + receive_from("any"))
                    for _ in range(channels * times):
                        peer.expect(END)
                    assert peer.expect(ATTACH)[0].field(0) == "from any 0"
                    peer.send(frame(CLOSE, []))
                    assert peer.expect(CLOSE)[0].field(0) is None
    canary.report.check()
