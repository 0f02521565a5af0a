"""Messages that came from another router and wait for receivers: its link is read on, and their number is bounded."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Delivery
from tests.unit.amqp.rig import Peer, Rig

from isthmus_router.amqp.kernel import parking, stream
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import CAPABILITY_STREAMING_LINKS

WHOLE = b"\x00\x53\x77\xb0\x00\x00\x0f\xa0" + bytes(4000)
PLACE = len(WHOLE) + parking.PLACE_BYTES


def link_of(peer: Peer, address: str, *, receiver: bool) -> Any:
    link = peer.session.receiver(f"from {address}") if receiver else peer.session.sender(f"to {address}")
    (link.source if receiver else link.target).address = address
    link.open()
    peer.rig.settle_down()
    return link


def send(rig: Rig, link: Any, count: int) -> list[Delivery]:
    sent = []
    for number in range(count):
        sent.append(link.delivery(f"{number}"))
        link.send(WHOLE)
        link.advance()
    rig.settle_down()
    return sent


def released(sent: list[Delivery]) -> int:
    assert {delivery.remote_state for delivery in sent} <= {0, Delivery.RELEASED}
    return sum(delivery.remote_state == Delivery.RELEASED for delivery in sent)


@pytest.fixture(autouse=True)
def much(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many messages of a router may wait."""
    monkeypatch.setattr(parking, "PARKED_BYTES_HIGH", 3 * PLACE)
    monkeypatch.setattr(parking, "ROUTER_PARKED_HIGH", 20 * PLACE - 1)
    return 20


def test_the_link_of_another_router_is_read_on(rig: Rig, much: int) -> None:
    consumers = rig.connect(Role.NORMAL)
    for address in ("slow", "other"):
        link_of(consumers, address, receiver=True)
    edge = rig.connect(Role.EDGE)
    slow, other = (link_of(edge, address, receiver=False) for address in ("slow", "other"))
    sent = send(rig, slow, much - 1)
    assert released(sent) == 0
    more = send(rig, other, 1)
    assert released(more) == 0
    assert not any(link.paused for one in rig.core.connections.values() for link in one.links)


def test_more_is_released(rig: Rig, much: int) -> None:
    consumers = rig.connect(Role.NORMAL)
    slow, *others = (
        link_of(consumers, address, receiver=True) for address in ("slow", *(f"other/{n}" for n in range(3)))
    )
    edge = rig.connect(Role.EDGE)
    assert released(send(rig, link_of(edge, "slow", receiver=False), much + 5)) == 5
    # Each of the others may have some, up to twice as much in all.
    room = [parking.LEAST_WAITING, much - parking.LEAST_WAITING, 0]
    for other, most in zip(others, room, strict=True):
        sent = send(rig, link_of(edge, other.source.address, receiver=False), parking.LEAST_WAITING + 2)
        assert len(sent) - released(sent) == most
    slow.flow(much)
    rig.settle_down()
    assert len(consumers.deliveries[slow.name]) == much
    for other, most in zip(others, room, strict=True):
        other.flow(100)
        rig.settle_down()
        assert len(consumers.deliveries.get(other.name, ())) == most
    assert all(one.waiting_bytes == 0 for one in rig.core.connections.values())


def test_a_client_is_held_back(rig: Rig, much: int) -> None:
    consumers = rig.connect(Role.NORMAL)
    link_of(consumers, "slow", receiver=True)
    sent = send(rig, link_of(rig.connect(Role.NORMAL), "slow", receiver=False), much)
    assert released(sent) == 0
    assert any(link.paused for one in rig.core.connections.values() for link in one.links)


def test_nothing_of_a_lost_router_counts(rig: Rig, much: int) -> None:
    link_of(rig.connect(Role.NORMAL), "slow", receiver=True)
    edge = rig.connect(Role.EDGE)
    send(rig, link_of(edge, "slow", receiver=False), much)
    (connection,) = [one for one in rig.core.connections.values() if one.role is Role.EDGE]
    assert connection.waiting_bytes == much * PLACE
    edge.drop()
    rig.loop_goes_round()
    assert connection.waiting_bytes == 0


def test_a_message_that_is_larger_than_the_window_holds_up_nobody_else(rig: Rig) -> None:
    consumers = rig.connect(Role.NORMAL)
    slow, other = (link_of(consumers, address, receiver=True) for address in ("slow", "other"))
    other.flow(1)
    edge = Peer(rig, "edge", Role.EDGE, max_session_frames=2, max_frame_size=512)
    rig.peers.append(edge)
    links = [link_of(edge, address, receiver=False) for address in ("slow", "other")]
    for link in links:
        assert released(send(rig, link, 1)) == 0
    assert len(consumers.deliveries[other.name]) == 1
    slow.flow(1)
    rig.settle_down()
    assert len(consumers.deliveries[slow.name]) == 1


def test_a_message_that_is_larger_than_the_window_is_aborted(rig: Rig) -> None:
    consumers = rig.connect(Role.NORMAL)
    slow = link_of(consumers, "slow", receiver=True)
    edge = Peer(rig, "edge", Role.EDGE, max_session_frames=2, max_frame_size=512)
    rig.peers.append(edge)
    link = link_of(edge, "slow", receiver=False)
    begun = link.delivery("begun")
    link.send(WHOLE[:2000])
    rig.settle_down()
    begun.abort()
    assert released(send(rig, link, 1)) == 0
    slow.flow(2)
    rig.settle_down()
    assert len(consumers.deliveries[slow.name]) == 1


@pytest.mark.parametrize("unsettled", [4, 5])
def test_links_with_unsettled_streams_have_a_bounded_number(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, unsettled: int
) -> None:
    monkeypatch.setattr(stream, "MOST_UNSETTLED_LINKS", 4)
    monkeypatch.setattr(stream, "is_shut_session", lambda _: False)  # the peer begins no session for them
    edge = rig.connect(Role.EDGE)
    link_of(edge, "other", receiver=True)
    (connection,) = [one for one in rig.core.connections.values() if one.role is Role.EDGE]
    connection.offered_capabilities = frozenset((CAPABILITY_STREAMING_LINKS,))
    (sink,) = connection.links
    streams = rig.driver.forwarder.streams
    for number in range(unsettled):
        link = streams._out_link(sink, f"address {number}", sink)
        assert link is not None
        link.unsettled[number] = None  # type: ignore[assignment,index]
    for link in tuple(connection.links - {sink}):
        connection.idle_streams.append(link)
    oldest = connection.idle_streams[0]
    assert (streams._out_link(sink, "another", sink) is oldest) is (unsettled > 4)
    for link in connection.links:
        link.unsettled.clear()


def test_streams_of_different_clients_share_no_session(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "is_shut_session", lambda _: False)  # the peer begins no session for them
    edge = rig.connect(Role.EDGE)
    link_of(edge, "other", receiver=True)
    (connection,) = [one for one in rig.core.connections.values() if one.role is Role.EDGE]
    connection.offered_capabilities = frozenset((CAPABILITY_STREAMING_LINKS,))
    (sink,) = connection.links
    origins = []
    for _ in range(3):
        link_of(rig.connect(Role.NORMAL), "other", receiver=False)
        origins += [link for one in rig.core.connections.values() for link in one.links if link.incoming]
    greedy, other, late = dict.fromkeys(origins)
    for number, origin in enumerate((greedy, other, late)):
        origin.connection.client = f"user {number}"
    streams = rig.driver.forwarder.streams
    many = [streams._out_link(sink, f"address {number}", greedy) for number in range(300)]
    sessions = [link.session for link in many if link is not None]
    assert len(sessions) == 300
    assert len(set(sessions)) < 50
    found = streams._out_link(sink, "another", other)
    assert found is not None
    assert found.session not in sessions
    idle = connection.idle_streams
    idle.extend(link for link in many[-100:] if link is not None)
    again = streams._out_link(sink, "another", late)
    assert again is not None
    assert again.session not in (*sessions, found.session)
    idle.append(found)
    while idle[0] is not found:
        idle.rotate()
    assert streams._out_link(sink, "another", late) is found
    assert streams._out_link(sink, "another", greedy) in many
