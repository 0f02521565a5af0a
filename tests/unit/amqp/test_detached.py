"""Sessions in which deliveries were cut short get their room back, and other links cost next to nothing meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from cproton_ffi import lib
from tests.integration.support.raw import ATTACH, FLOW, TRANSFER, frame
from tests.unit.amqp.raw_peer import RawPeer
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import performatives

from isthmus_router.core.model import Link
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Condition
from isthmus_router.message.types import Described, UInt, ULong

IDLE_LINKS = 1000
SESSIONS = 8
FIRST = 2
"""The first channel with a delivery that is cut short."""
PIECE = 16_000
PIECES = 6
"""Enough for a message that passes on before all of it is here."""
LATE_PIECES = 3
"""What still arrives after the router has cut the link off."""
CUT, WAITING = 0, 1
"""Handles."""
FORCED = Condition("amqp:link:detach-forced", "test")
SMALL = b"\x00\x53\x77\xa1\x01x"
MOST_CALLS_PER_SESSION = 40


class Calls:
    """The engine, with the number of calls."""

    def __init__(self) -> None:
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        self.count += 1
        return getattr(lib, name)


@contextmanager
def counted() -> Iterator[Calls]:
    """The calls for detached links in the meantime."""
    calls = Calls()
    with patch("isthmus_router.amqp.detached.lib", calls):
        yield calls


def work(rig: Rig) -> None:
    """Carry out the long pieces of work that the loop would."""
    while rig.driver._jobs:
        rig.driver._work()


def second_passes(rig: Rig) -> None:
    rig.driver._second_passed()
    work(rig)


def transfer(peer: RawPeer, channel: int, handle: int, number: int, payload: bytes, *, more: bool) -> None:
    fields = [UInt(handle), UInt(number), str(number).encode(), UInt(0), False, more]
    peer.say(frame(TRANSFER, fields, payload, channel=channel))


def attach(peer: RawPeer, channel: int, handle: int, name: str, address: str, *, receiver: bool) -> None:
    source = Described(ULong(0x28), [address if receiver else None])
    target = Described(ULong(0x29), [None if receiver else address])
    fields = [name, UInt(handle), receiver, None, None, source, target, None, None, UInt(0)]
    peer.say(frame(ATTACH, fields, channel=channel))


def raw_peer(rig: Rig, name: str) -> RawPeer:
    peer = RawPeer(rig, name, Role.NORMAL)
    rig.peers.append(peer)  # type: ignore[arg-type]
    rig.settle_down()
    return peer


def link_named(peer: RawPeer, name: str) -> Link:
    return next(link for link in peer.router_side.links.values() if link.name == name)


def cut_short(rig: Rig, channels: range, *, waiting: int, idle: int = 0) -> RawPeer:
    """A peer with a link in each session that the router has cut off in the middle of a message.

    Another one in each session is not read, and `waiting` messages have come on it. `idle` others are in a session of
    their own.
    """
    consumer, peer = raw_peer(rig, "consumer"), raw_peer(rig, "peer")
    for number in range(SESSIONS):
        consumer.attach(0, number, True, f"closest/{number}", None)
        consumer.flow(0, number, 10, False, 0)
    for handle in range(10, 10 + idle):
        peer.attach(1, handle, True, "closest/idle", None)
    rig.settle_down()
    for channel in channels:
        if channel >= FIRST:
            peer.begin(channel)
        attach(peer, channel, CUT, f"cut/{channel}", f"closest/{channel - channels[0]}", receiver=False)
        attach(peer, channel, WAITING, f"waiting/{channel}", "closest/0", receiver=False)
    rig.settle_down()
    head = b"\x00\x53\x77\xb0" + ((PIECES + LATE_PIECES) * PIECE * 2).to_bytes(4)
    for channel in channels:
        link_named(peer, f"waiting/{channel}").paused = True
        for piece in range(PIECES):
            transfer(peer, channel, CUT, 0, (b"" if piece else head) + bytes(PIECE), more=True)
    rig.settle_down()
    for channel in channels:
        link = link_named(peer, f"cut/{channel}")
        assert link.stream is not None
        rig.driver.detach_link(link, FORCED)
    rig.driver.flush()
    rig.settle_down()
    for channel in channels:
        for _ in range(LATE_PIECES):
            transfer(peer, channel, CUT, 0, bytes(PIECE), more=True)
        for number in range(waiting):
            transfer(peer, channel, WAITING, 1 + number, SMALL, more=False)
    rig.settle_down()
    return peer


def room(peer: RawPeer, channel: int) -> int:
    """Bytes that the session of a channel has room for, as the engine counts."""
    session = link_named(peer, f"waiting/{channel}").session
    capacity = lib.pn_session_get_incoming_capacity(session)
    return int(capacity) - int(lib.pn_session_incoming_bytes(session))


def capacity(peer: RawPeer, channel: int) -> int:
    return int(lib.pn_session_get_incoming_capacity(link_named(peer, f"waiting/{channel}").session))


def test_other_links_cost_nothing(rig: Rig) -> None:
    """The detaches of links that were cut off, and each second while messages wait in their sessions."""
    channels = range(FIRST, FIRST + SESSIONS)
    peer = cut_short(rig, channels, waiting=2, idle=IDLE_LINKS)
    with counted() as calls:
        for channel in channels:
            peer.detach(channel, CUT, True)
        rig.settle_down()
        assert calls.count < MOST_CALLS_PER_SESSION * SESSIONS
        calls.count = 0
        second_passes(rig)
        assert calls.count < MOST_CALLS_PER_SESSION * SESSIONS


def test_links_of_the_session_are_walked_once_a_second_at_most(rig: Rig) -> None:
    """In a session with thousands of senders, which are cut off and detached one after the other."""
    peer = cut_short(rig, range(1), waiting=0)
    others = range(10, 10 + IDLE_LINKS)
    for handle in others:
        attach(peer, 0, handle, f"other/{handle}", "closest/0", receiver=False)
    rig.settle_down()
    session = link_named(peer, "waiting/0").session
    with counted() as calls:
        peer.detach(0, CUT, True)
        rig.settle_down()
        for handle in others[:100]:
            link = link_named(peer, f"other/{handle}")
            peer.router_side.detached.cut_short(link.io)
            peer.detach(0, handle, True)
            rig.settle_down()
        assert calls.count < 101 * MOST_CALLS_PER_SESSION
        calls.count = 0
        second_passes(rig)
        assert IDLE_LINKS - 100 < calls.count < 4 * IDLE_LINKS
        calls.count = 0
        second_passes(rig)
        assert calls.count < MOST_CALLS_PER_SESSION
    assert lib.pn_session_incoming_bytes(session) >= LATE_PIECES * PIECE


def test_the_room_comes_back_with_the_detach(rig: Rig) -> None:
    peer = cut_short(rig, range(FIRST, FIRST + 1), waiting=1)
    before = capacity(peer, FIRST)
    assert room(peer, FIRST) < before - LATE_PIECES * PIECE
    peer.detach(FIRST, CUT, True)
    rig.settle_down()
    assert room(peer, FIRST) == before - len(SMALL)
    handles = {fields[4] for fields in performatives(bytes(peer.heard), FLOW) if len(fields) > 4}
    assert handles <= {None, UInt(CUT), UInt(WAITING)}, "the window is announced on a link that is there"


def test_the_room_comes_back_when_messages_are_read_that_hid_it(rig: Rig) -> None:
    peer = cut_short(rig, range(FIRST, FIRST + 1), waiting=2)
    before = capacity(peer, FIRST)
    peer.detach(FIRST, CUT, True)
    rig.settle_down()
    second_passes(rig)
    assert capacity(peer, FIRST) == before
    link = link_named(peer, f"waiting/{FIRST}")
    link.paused = False
    rig.driver.forwarder.go_on(link)
    rig.driver.flush()
    second_passes(rig)
    assert room(peer, FIRST) == before


def test_the_room_comes_back_when_the_link_ends_that_hid_it(rig: Rig) -> None:
    """The engine frees the link: nothing may look at it afterwards."""
    peer = cut_short(rig, range(FIRST, FIRST + 1), waiting=2)
    attach(peer, FIRST, 2, "third", "closest/0", receiver=False)
    rig.settle_down()
    session = link_named(peer, "third").session
    before = lib.pn_session_get_incoming_capacity(session)
    peer.detach(FIRST, CUT, True)
    peer.detach(FIRST, WAITING, True)
    rig.settle_down()
    second_passes(rig)
    found = lib.pn_session_get_incoming_capacity(session) - lib.pn_session_incoming_bytes(session)
    assert found == before


def test_nothing_is_left_of_a_session(rig: Rig) -> None:
    """That ends in slices, while deliveries wait in it."""
    peer = cut_short(rig, range(FIRST, FIRST + 1), waiting=2)
    for handle in range(10, 210):
        attach(peer, FIRST, handle, f"other/{handle}", "closest/0", receiver=False)
    rig.settle_down()
    peer.detach(FIRST, CUT, True)
    rig.settle_down()
    side = peer.router_side
    rig.driver.turn_seconds = 0.0
    peer.end(FIRST)
    while peer.turn():
        second_passes(rig)
    rig.settle_down()
    assert not side.closed
    assert not side.detached.has_cramped_sessions
    assert not side.detached._sessions
    assert not any(link.name.startswith("other") for link in side.links.values())
