"""Sessions that a peer has ended: held until the engine is done with them, and no longer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import patch

import pytest
from cproton_ffi import lib
from tests.integration.support.raw import ATTACH, BEGIN, CLOSE, END, FLOW, TRANSFER, frame
from tests.unit.amqp.raw_peer import RawPeer
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import LINK_ROUTE, performatives

from isthmus_router.amqp import sessions as amqp_sessions
from isthmus_router.amqp.sessions import MOST_LATE_ANSWERS
from isthmus_router.core.roles import Role
from isthmus_router.linkroute.routing import LinkRouting
from isthmus_router.message.types import UInt, UShort

MANY = UInt(1000)
OWN = 2
"""The channel on which the router begins its first session with a `RawPeer`."""
CONNECTIONS = 1000
LEAST_LOST = 4 * 1024
"""Bytes for each connection that the engine would keep with a session that is never given back."""


def memory() -> int:
    """Resident set size of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def end(channel: int) -> bytes:
    return frame(END, [], channel=channel)


def answer(channel: int, to: int = OWN) -> bytes:
    """A begin that answers the one of the router's on channel `to`."""
    return frame(BEGIN, [UShort(to), UInt(0), MANY, MANY], channel=channel)


def asked_container(rig: Rig) -> RawPeer:
    """A container with which the router has begun a session, for a link that a client has attached."""
    routing = LinkRouting(rig.core, lambda: 0.0, lambda *_: None)
    routing.configure([LINK_ROUTE])
    container = RawPeer(rig, "shelf", Role.ROUTE_CONTAINER)
    client = RawPeer(rig, "client", Role.NORMAL)
    rig.peers += [container, client]  # type: ignore[list-item]
    rig.settle_down()
    client.attach(0, 0, True, "b2.x", None)
    rig.settle_down()
    assert [begin[0] for begin in performatives(container.heard, BEGIN)] == [0, 1, None]
    return container


def test_a_session_counts_until_its_end_is_written(rig: Rig) -> None:
    peer = RawPeer(rig, "raw", Role.NORMAL)
    rig.peers.append(peer)  # type: ignore[arg-type]
    rig.settle_down()
    sessions = peer.router_side.sessions
    assert sessions.count == 2
    for pipelined in (True, False) * 20:
        for handle in range(3):
            peer.attach(0, handle, bool(handle % 2), "balanced/a", None)
        if not pipelined:
            rig.settle_down()
        peer.say(end(0))
        if not pipelined:
            rig.settle_down()
            assert sessions.count == 1
        peer.begin(0)
        peer.say(end(0))
        peer.begin(0)
    rig.settle_down()
    assert sessions.count == 2
    peer.say(end(0) + end(1))
    rig.settle_down()
    assert sessions.count == 0
    assert not list(performatives(peer.heard, CLOSE))


def test_an_own_session_counts_until_its_end_is_written(rig: Rig) -> None:
    container = asked_container(rig)
    assert container.router_side.sessions.count == 3
    container.say(answer(2))
    rig.settle_down()
    container.say(end(2))
    rig.settle_down()
    assert container.router_side.sessions.count == 2
    assert not list(performatives(container.heard, CLOSE))


def test_a_channel_that_is_left_of_two_leads_to_a_session_that_is_there(rig: Rig) -> None:
    """The engine reports two answers as one, and forgets one channel at the end."""
    container = asked_container(rig)
    container.say(answer(2) + answer(3))
    rig.settle_down()
    container.say(end(3))
    rig.settle_down()
    assert container.router_side.sessions.count == 3
    container.attach(2, 0, True, "balanced/a", None)
    rig.settle_down()
    ((error,),) = performatives(container.heard, CLOSE)
    assert str(error.value[0]) == "amqp:not-allowed"


def test_a_session_that_is_begun_again_after_its_end_is_not_freed_again(rig: Rig) -> None:
    """If the router took it for a new one, it would free it twice, and the engine would end the process."""
    for again in (end(0), end(0) + answer(0, 0), b""):
        peer = RawPeer(rig, "raw", Role.NORMAL)
        rig.peers.append(peer)  # type: ignore[arg-type]
        for handle in (0, 1):
            peer.attach(0, handle, True, "balanced/a", None)
        rig.settle_down()
        peer.say(end(0) + answer(0, 0))
        for handle in (0, 1):
            peer.attach(0, handle, bool(handle), "balanced/a", None)
        peer.say(again)
        rig.settle_down()
        ((error,),) = performatives(peer.heard, CLOSE)
        assert str(error.value[0]) == "amqp:not-allowed"
        assert peer.router_side.closed


def test_nothing_is_kept_of_a_connection_with_a_session_that_is_begun_again(rig: Rig) -> None:
    before = 0
    for connection in range(CONNECTIONS + 100):
        if connection == 100:
            before = memory()
        peer = RawPeer(rig, "raw", Role.NORMAL)
        rig.peers[:] = [peer]  # type: ignore[list-item]
        rig.settle_down()
        peer.say(end(0) + answer(0, 0))
        rig.settle_down()
        peer.drop()
        rig.loop.run_until_complete(asyncio.sleep(0))  # frees what the engine has
    assert memory() - before < CONNECTIONS * LEAST_LOST


def test_a_session_is_held_until_the_last_event_of_its_links_is_dealt_with(rig: Rig) -> None:
    """The engine would finalize the session with this event, and the link twice, and end the process."""
    peer = RawPeer(rig, "raw", Role.NORMAL)
    rig.peers.append(peer)  # type: ignore[arg-type]
    peer.attach(0, 0, False, "multicast/d", None)  # first: its message is aborted before the receiver is gone
    peer.attach(0, 1, True, "multicast/d", None)
    peer.say(frame(FLOW, [UInt(0), UInt(1), UInt(0), MANY, UInt(1), UInt(0), UInt(10)]))
    rig.settle_down()
    for _ in range(6):
        peer.transfer(0, 0, "multicast/d", 15_000, settled=False, more=True, aborted=False, skew=0)
    rig.settle_down()
    assert len(list(performatives(peer.heard, TRANSFER))) == 1  # the rest waits for the window
    peer.say(end(0))
    rig.settle_down()
    assert peer.router_side.sessions.count == 1
    assert not list(performatives(peer.heard, CLOSE))


def with_sessions(rig: Rig, count: int) -> RawPeer:
    """A peer that has begun so many of the 11 that it allows."""
    peer = RawPeer(rig, "raw", Role.NORMAL)
    rig.peers.append(peer)  # type: ignore[arg-type]
    for channel in range(2, count):
        peer.begin(channel)
    rig.settle_down()
    return peer


@pytest.mark.parametrize("times", [1, 3])
def test_all_channels_are_used_again_at_once(rig: Rig, times: int) -> None:
    """The engine would write the begins before the ends, find no channel, and write nothing any more."""
    peer = with_sessions(rig, 11)
    for channel in [*range(11)] * times:
        peer.say(end(channel))
        peer.begin(channel)
    peer.attach(0, 0, True, "balanced/a", None)
    rig.settle_down()
    assert len(list(performatives(peer.heard, END))) == 11 * times
    assert len(list(performatives(peer.heard, BEGIN))) == 11 * (1 + times)
    assert len(list(performatives(peer.heard, ATTACH))) == 1
    assert peer.router_side.sessions.count == 11


def test_an_ended_session_is_named_while_the_engine_writes_nothing(rig: Rig) -> None:
    """The engine has found no channel for the last session, and keeps the one that has ended without an answer."""
    peer = with_sessions(rig, 9)
    side = peer.router_side
    with patch.object(side.sessions, "lacks_channel", lambda: False):
        for channel in (0, 0):
            peer.say(end(channel))
            peer.begin(channel)
        peer.begin(9)
        rig.settle_down()
        peer.say(answer(9, 9))
        rig.settle_down()
    assert side.close_reason == "amqp:not-allowed: a session was begun or ended twice"


def test_a_connection_ends_whose_engine_has_stopped(rig: Rig) -> None:
    """It has found no channel for a session."""
    peer = with_sessions(rig, 11)
    side = peer.router_side
    with patch.object(side.sessions, "lacks_channel", lambda: False):
        peer.say(end(0))
        peer.begin(0)
        rig.settle_down()
    assert not side.closed
    rig.driver._second_passed()
    assert side.closed
    assert side.close_reason == "the engine has stopped"


def test_a_connection_stays_whose_engine_has_only_remarks(rig: Rig) -> None:
    peer = with_sessions(rig, 2)
    rig.driver._second_passed()
    assert not peer.router_side.closed


def test_begins_without_a_channel_are_not_answered_without_end(rig: Rig) -> None:
    """The peer takes them for those of other sessions, and answers them as the router does."""
    peer = RawPeer(rig, "raw", Role.NORMAL)
    rig.peers.append(peer)  # type: ignore[arg-type]
    rig.settle_down()
    peer.begin(2)
    peer.say(end(2))
    answered = 0
    for _ in range(2 * MOST_LATE_ANSWERS):
        rig.settle_down()
        ends = len(list(performatives(peer.heard, END)))
        if ends == answered or peer.router_side.closed:
            break
        answered = ends
        peer.begin(2)
        peer.say(end(2))
    assert answered == MOST_LATE_ANSWERS
    peer.router_side.sessions.second_passed()
    peer.begin(3)
    peer.say(end(3))
    rig.settle_down()
    assert len(list(performatives(peer.heard, END))) == answered + 1
    assert peer.router_side.sessions.count == 2
    peer.begin(2)
    rig.settle_down()
    assert [begin[0] for begin in performatives(peer.heard, BEGIN)][-1] == 2
    assert not list(performatives(peer.heard, CLOSE))


def test_many_sessions_that_are_begun_and_ended_at_once_are_all_answered(rig: Rig) -> None:
    peer = RawPeer(rig, "raw", Role.NORMAL)
    rig.peers.append(peer)  # type: ignore[arg-type]
    rig.settle_down()
    for _ in range(3 * MOST_LATE_ANSWERS):
        peer.begin(2)
        peer.say(end(2))
    rig.settle_down()
    assert len(list(performatives(peer.heard, END))) == 3 * MOST_LATE_ANSWERS


def test_links_in_a_session_that_is_not_answered(rig: Rig) -> None:
    peer = RawPeer(rig, "raw", Role.NORMAL)
    rig.peers.append(peer)  # type: ignore[arg-type]
    rig.settle_down()
    side = peer.router_side
    side.sessions._late_answers = MOST_LATE_ANSWERS
    for _ in range(3):
        peer.begin(2)
        for handle in range(3):
            peer.attach(2, handle, bool(handle % 2), "balanced/a", None)
            peer.flow(2, handle, 10, False, 0)
        peer.detach(2, 0, True)
        peer.say(end(2))
    rig.settle_down()
    rig.work_off()
    assert side.sessions.count == 2
    assert not side.links
    assert not side.sessions._links_of_peer
    assert not list(performatives(peer.heard, END))
    assert not list(performatives(peer.heard, ATTACH))
    peer.begin(2)
    peer.attach(2, 0, False, "balanced/a", None)
    peer.transfer(2, 0, "balanced/a", 10, False, False, False, 0)
    peer.say(end(2))
    rig.settle_down()
    ((error,),) = performatives(peer.heard, CLOSE)
    assert str(error.value[0]) == "amqp:session:window-violation"


def test_sessions_that_the_router_ends_together_end_in_turns_beside_many_links(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine walks over all links of the connection for each end that it writes: 200 routed links that a client
    detached together, beside 60,000 of a container, held all others for half a second."""
    monkeypatch.setattr(amqp_sessions, "MOST_WALKED", 0)
    peer = asked_container(rig)
    sessions = peer.router_side.sessions
    made = [sessions.begin_another() for _ in range(6)]
    rig.driver.flush()
    rig.settle_down()
    assert len(list(performatives(peer.heard, BEGIN))) == 3 + 6
    for session in made:
        assert session is not None
        sessions._end_soon(session)
    assert sum(bool(lib.pn_session_state(session) & lib.PN_LOCAL_CLOSED) for session in made) == 1
    rig.driver.flush()
    rig.work_off()
    assert len(list(performatives(peer.heard, END))) == 6
    assert not sessions._to_end
    assert sessions.may_end()
