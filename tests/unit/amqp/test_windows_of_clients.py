"""What is announced of a session's window when links in it end: its other links go on, even if nothing else happens."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from cproton_ffi import lib
from tests.integration.support.raw import END, FLOW
from tests.unit.amqp.raw_peer import RawPeer
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import LINK_ROUTE, OwnEnd, performatives
from tests.unit.amqp.test_detached import FORCED, attach, link_named, raw_peer, second_passes, transfer

from isthmus_router.core.roles import Role
from isthmus_router.linkroute.routing import LinkRouting
from isthmus_router.message.types import UInt

FRAMES = 4
"""Window of each session; the engine announces it again when less than half of it is left."""
LEAVING, STAYING = 0, 1
"""Handles."""
SMALL = b"\x00\x53\x77\xa1\x01x"
PIECE = 16_000
BEGINNING = b"\x00\x53\x77\xb0\x00\x01\x00\x00"
"""Of a message of 64 KiB."""


class Sender:
    """A peer with two links in one session, which counts the frames that it may still send there.

    One of them ends, which is a routed link if it leads to a `container`.
    """

    def __init__(self, rig: Rig, container: OwnEnd | None) -> None:
        self.rig = rig
        self.container = container
        consumer = raw_peer(rig, "consumer")
        self.peer = RawPeer(rig, "peer", Role.NORMAL, max_session_frames=FRAMES)
        rig.peers.append(self.peer)  # type: ignore[arg-type]
        rig.settle_down()
        for handle, address in ((LEAVING, "closest/a"), (STAYING, "closest/b")):
            consumer.attach(0, handle, True, address, None)
            consumer.flow(0, handle, 10, False, 0)
        rig.settle_down()
        address = "closest/a" if container is None else "b2.a"
        attach(self.peer, 0, LEAVING, "leaving", address, receiver=False)
        attach(self.peer, 0, STAYING, "staying", "closest/b", receiver=False)
        rig.settle_down()
        if container is not None:
            container.attached[-1].flow(100)
            rig.settle_down()
        self.frames = 0
        """Sent so far."""

    @property
    def window(self) -> int:
        """Frames that it may still send."""
        *_, fields = performatives(bytes(self.peer.heard), FLOW)
        assert fields[4:5] in ([], [None], [UInt(LEAVING)], [UInt(STAYING)])
        return int(fields[0] + fields[1]) - self.frames

    @property
    def unread(self) -> int:
        """Bytes that the engine of the router has for the router."""
        session = link_named(self.peer, "staying").session
        return int(lib.pn_session_incoming_bytes(session))

    def send(self, handle: int, number: int, payload: bytes, *, more: bool) -> None:
        assert self.window > 0
        self.frames += 1
        transfer(self.peer, 0, handle, number, payload, more=more)

    def close_leaving(self) -> None:
        """By the router, which has been told to if the link is routed."""
        if self.container is not None:
            self.container.attached[-1].close()
            self.rig.settle_down()
            return
        self.rig.driver.detach_link(link_named(self.peer, "leaving"), FORCED)
        self.rig.driver.flush()

    def is_not_held_up(self, number: int) -> bool:
        """Whether a message on the other link can be sent, frame by frame, though nobody settles anything."""
        self.rig.settle_down()
        for piece in range(2 * FRAMES):
            if self.window <= 0:
                return False
            payload = bytes(PIECE // 4) if piece else BEGINNING
            self.send(STAYING, number, payload, more=True)
            self.rig.settle_down()
            second_passes(self.rig)
            self.rig.settle_down()
        return True


@pytest.fixture(params=["forwarded", "routed"])
def sender(request: pytest.FixtureRequest, rig: Rig) -> Sender:
    if request.param == "forwarded":
        return Sender(rig, None)
    LinkRouting(rig.core, lambda: 0.0, lambda *_: None).configure([LINK_ROUTE])
    container = OwnEnd(rig, "shelf", Role.ROUTE_CONTAINER)
    rig.peers.append(container)
    rig.settle_down()
    return Sender(rig, container)


def test_messages_that_wait_when_the_link_is_closed(rig: Rig, sender: Sender) -> None:
    """The peer does not answer the detach, and another link needs the window."""
    link = link_named(sender.peer, "leaving")
    if sender.container is None:
        link.paused = True
    else:
        link.allowance.most = 0
    for number in range(FRAMES):
        sender.send(LEAVING, number, SMALL + bytes(PIECE), more=False)
    rig.settle_down()
    assert sender.unread
    sender.close_leaving()
    assert sender.is_not_held_up(FRAMES)


def test_messages_that_come_on_a_closed_link(rig: Rig, sender: Sender) -> None:
    """They are discarded, so that the peer can use its other links though it has not answered the detach."""
    sender.close_leaving()
    for turn in range(3):
        for number in range(FRAMES):
            sender.send(LEAVING, turn * FRAMES + number, SMALL + bytes(PIECE), more=False)
        rig.settle_down()
        assert sender.window == FRAMES
    assert not sender.unread
    assert sender.is_not_held_up(3 * FRAMES)


def test_a_large_message_that_begins_on_a_closed_link(rig: Rig, sender: Sender) -> None:
    sender.close_leaving()
    for piece in range(3 * FRAMES):
        sender.send(LEAVING, 0, bytes(PIECE) if piece else BEGINNING, more=True)
        rig.settle_down()
    assert sender.window > FRAMES // 2
    assert not sender.unread
    assert sender.is_not_held_up(1)


def test_the_peer_answers_after_messages_on_a_closed_link(rig: Rig, sender: Sender) -> None:
    sender.close_leaving()
    for number in range(FRAMES):
        sender.send(LEAVING, number, SMALL + bytes(PIECE), more=False)
    sender.peer.detach(0, LEAVING, True)
    assert sender.is_not_held_up(FRAMES)


def test_what_the_peer_settles_after_its_detach(rig: Rig, sender: Sender) -> None:
    """The engine frees the link with the event of the disposition: nothing may be discarded on it."""
    sender.close_leaving()
    for number in range(FRAMES - 1):
        sender.send(LEAVING, number, SMALL, more=False)
    sender.peer.detach(0, LEAVING, True)
    sender.peer.disposition(0, False, 0, FRAMES - 2, True, None)
    with patch("isthmus_router.amqp.detached._discard") as discard:
        rig.settle_down()
    discard.assert_not_called()
    detached = sender.peer.router_side.detached
    assert not detached._undiscarded
    assert not detached._total
    assert sender.is_not_held_up(FRAMES - 1)


def test_a_link_that_the_peer_closes_at_once(rig: Rig, sender: Sender) -> None:
    """Its messages use the window up, and the detach comes before the engine writes."""
    for number in range(FRAMES - 1):
        sender.send(LEAVING, number, SMALL, more=False)
    sender.peer.detach(0, LEAVING, True)
    assert sender.is_not_held_up(FRAMES - 1)


def test_a_message_that_the_peer_leaves_unfinished(rig: Rig, sender: Sender) -> None:
    for _ in range(FRAMES - 1):
        sender.send(LEAVING, 0, SMALL, more=True)
    sender.peer.detach(0, LEAVING, True)
    assert sender.is_not_held_up(1)


def test_a_link_that_is_closed_before_the_engine_writes(rig: Rig, sender: Sender) -> None:
    """The peer does not answer."""
    for _ in range(FRAMES - 1):
        sender.send(LEAVING, 0, SMALL, more=True)
    sender.peer._say()
    assert rig.driver.poller.read()
    sender.close_leaving()
    assert sender.is_not_held_up(1)


def test_the_rest_of_a_message_for_which_the_peer_has_no_answer(rig: Rig, sender: Sender) -> None:
    """What still comes of it is discarded. A peer may answer only when it has sent what waits for the window."""
    for _ in range(FRAMES):
        sender.send(LEAVING, 0, BEGINNING + bytes(PIECE), more=True)
        rig.settle_down()
    assert link_named(sender.peer, "leaving").stream is not None
    sender.close_leaving()
    while sender.window > 0:
        sender.send(LEAVING, 0, bytes(PIECE), more=True)
    rig.settle_down()
    second_passes(rig)
    assert sender.is_not_held_up(1)


def test_a_session_that_ends_with_messages_on_a_closed_link(rig: Rig, sender: Sender) -> None:
    """The peer ends the session instead of an answer to the detach."""
    sender.close_leaving()
    for number in range(FRAMES - 1):
        sender.send(LEAVING, number, SMALL + bytes(PIECE), more=False)
    rig.settle_down()
    sender.peer.end(0)
    rig.settle_down()
    heard = bytes(sender.peer.heard)
    handles = {fields[4] for fields in performatives(heard, FLOW) if len(fields) > 4}
    assert handles <= {None, UInt(LEAVING), UInt(STAYING)}
    assert len(list(performatives(heard, END))) == 1
    assert not sender.peer.router_side.closed
    assert not sender.peer.router_side.detached._ending
