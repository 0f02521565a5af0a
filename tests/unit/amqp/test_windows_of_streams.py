"""What the sessions of another router may hold unread: streams wait in them, each in one of its own."""

from __future__ import annotations

from typing import Any

import pytest
from cproton_ffi import lib
from tests.unit.amqp.rig import Peer, Rig

from isthmus_router.amqp.sessions import (
    FEW_ROUTER_SESSIONS,
    LEAST_ROUTER_SESSION_BYTES,
    LEAST_STREAM_BYTES,
    ROUTER_SESSION_BYTES,
    STREAMS_BYTES,
)
from isthmus_router.core.roles import Role

MANY = 300


@pytest.fixture
def peer(rig: Rig) -> Peer:
    """Another router, which has begun as many sessions as it needs for other things than streams."""
    peer = Peer(rig, "other", Role.EDGE, max_sessions=1000)
    rig.peers.append(peer)
    for _ in range(FEW_ROUTER_SESSIONS):
        peer.connection.session().open()
    rig.settle_down()
    return peer


def sender(peer: Peer, name: str, address: str | None = None, session: Any = None) -> Any:
    """A link on which the other router sends, in a session of its own."""
    if session is None:
        session = peer.connection.session()
        session.open()
    link = session.sender(name)
    link.target.address = address
    link.open()
    return link


def windows(peer: Peer) -> dict[str, int]:
    """What each session may hold, by the name of a link in it."""
    found = {}
    link = lib.pn_link_head(peer.router_side.pn, 0)
    while link:
        session = lib.pn_link_session(link)
        capacity = lib.pn_session_get_incoming_capacity(session)
        found[peer.rig.driver.connections[peer.router_side.id].links[link].name] = int(capacity)
        link = lib.pn_link_next(link, 0)
    return found


def test_all_streams_together_have_a_bound(rig: Rig, peer: Peer) -> None:
    for number in range(MANY):
        sender(peer, f"stream/{number}")
    rig.settle_down()
    found = list(windows(peer).values())
    assert len(found) == MANY
    assert found[0] >= LEAST_ROUTER_SESSION_BYTES
    assert min(found) == LEAST_STREAM_BYTES
    assert sum(found) <= STREAMS_BYTES + MANY * LEAST_STREAM_BYTES


def test_what_is_no_stream_has_its_share(rig: Rig, peer: Peer) -> None:
    """Also where receivers or the begin alone come first, and behind many streams."""
    session = peer.connection.session()
    session.open()
    rig.settle_down()
    receiver = session.receiver("first")
    receiver.source.address = "x"
    receiver.open()
    rig.settle_down()
    for number in range(MANY):
        sender(peer, f"stream/{number}")
    sender(peer, "late", "x", session)
    sender(peer, "last", "x")
    rig.settle_down()
    found = windows(peer)
    assert found["late"] == ROUTER_SESSION_BYTES // (FEW_ROUTER_SESSIONS + 2)
    assert found["last"] == LEAST_ROUTER_SESSION_BYTES


def test_streams_that_end_make_room(rig: Rig, peer: Peer) -> None:
    links = [sender(peer, f"stream/{number}") for number in range(MANY)]
    rig.settle_down()
    first = max(windows(peer).values())
    for link in links:
        link.session.close()
    rig.settle_down()
    sender(peer, "next")
    rig.settle_down()
    assert windows(peer) == {"next": first}
