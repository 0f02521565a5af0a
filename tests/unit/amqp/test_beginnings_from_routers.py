"""The first bytes of messages from another router, which the router stores until it can pass them on: they are counted
and bounded for all links of a connection, however many links there are."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Delivery
from tests.unit.amqp.rig import Peer, Rig

from isthmus_router.amqp.kernel import parking
from isthmus_router.amqp.kernel.buffers import MOST_RETAINED, RETAINED_BYTES, capacity
from isthmus_router.amqp.kernel.delivery import CHUNK_BYTES, Stream
from isthmus_router.amqp.kernel.stream import MANY_RECEIVERS
from isthmus_router.core.model import Connection
from isthmus_router.core.roles import Role
from isthmus_router.message.control import Message, Properties, encode_message

MUCH = 20
"""Beginnings that may wait."""
BEGINNING = CHUNK_BYTES + parking.PLACE_BYTES
"""What each counts, at most: a little goes to the router's annotations."""
UNCLEAR = b"\x00\x53\x71\xd1\x00\xff\xff\xff\x00\x00\x00\x02\xa3\x01a\xb0\x00\xff\xff\x00" + bytes(40_000)
"""Delivery annotations without an end: the address may come behind them."""


@pytest.fixture(autouse=True)
def much(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much of a router may wait."""
    monkeypatch.setattr(parking, "ROUTER_PARKED_HIGH", MUCH * BEGINNING)


def to(address: str) -> bytes:
    """A message with more than the router reads of it before it decides."""
    return encode_message(
        Message(properties=Properties(to=address), application_properties={}, body=bytes(CHUNK_BYTES + 3000))
    )


def receiver(peer: Peer, address: str) -> Any:
    link = peer.session.receiver(f"from {address}")
    link.source.address = address
    link.open()
    peer.rig.settle_down()
    return link


def begin(peer: Peer, data: bytes, count: int) -> list[tuple[Any, Delivery]]:
    """Begin as many messages, each on a link for any address, and do not end them."""
    begun = []
    for _ in range(count):
        session = peer.connection.session()
        session.open()
        link = session.sender(f"{len(peer.rig.core.connections)}/{id(session)}")
        link.open()
        peer.rig.settle_down()
        begun.append((link, link.delivery("0")))
        link.send(data)
        peer.rig.settle_down()
    return begun


def end(rig: Rig, begun: list[tuple[Any, Delivery]]) -> list[Any]:
    """Finish the messages, and return the outcome of each."""
    for link, _ in begun:
        link.advance()
    rig.settle_down()
    return [delivery.remote_state for _, delivery in begun]


def other_router(rig: Rig) -> tuple[Peer, Connection]:
    peer = rig.connect(Role.EDGE)
    rig.settle_down()
    (connection,) = [one for one in rig.core.connections.values() if one.role is Role.EDGE]
    return peer, connection


def streams(connection: Connection) -> list[Stream]:
    return [link.stream for link in connection.links if link.incoming and link.stream is not None]


def stored(connection: Connection) -> int:
    """Bytes of beginnings."""
    return sum(len(stream.head) for stream in streams(connection))


def test_streams_without_credit_have_a_bound(rig: Rig) -> None:
    slow = receiver(rig.connect(Role.NORMAL), "slow")
    peer, connection = other_router(rig)
    begun = begin(peer, to("slow")[:-100], 2 * MUCH)
    assert stored(connection) <= MUCH * CHUNK_BYTES
    assert connection.waiting_bytes <= MUCH * BEGINNING
    for link, _ in begun:
        link.send(bytes(100))
    assert end(rig, begun)[MUCH:] == [Delivery.RELEASED] * MUCH
    slow.flow(2 * MUCH)
    rig.work_off()
    assert len(rig.peers[0].deliveries[slow.name]) == MUCH  # type: ignore[attr-defined]
    assert connection.waiting_bytes == 0


def test_a_receiver_that_takes_messages_gets_them_meanwhile(rig: Rig) -> None:
    consumers = rig.connect(Role.NORMAL)
    receiver(consumers, "slow")
    ready = receiver(consumers, "ready")
    ready.flow(1)
    peer, connection = other_router(rig)
    begin(peer, to("slow")[:-100], MUCH + 1)
    assert len([one for one in streams(connection) if one.kept]) == MUCH
    begin(peer, to("ready")[:-100], 1)[0][0].send(bytes(100))
    (stream,) = [one for one in streams(connection) if one.branches and not one.kept]
    assert stream.branches[0].link.name == ready.name
    assert stream.branches[0].pn is not None


def test_receivers_with_few_waiting_streams_get_up_to_twice_as_much(rig: Rig) -> None:
    consumers = rig.connect(Role.NORMAL)
    for number in range(3 * MUCH):
        receiver(consumers, f"slow/{number}")
    peer, connection = other_router(rig)
    for number in range(3 * MUCH):
        begin(peer, to(f"slow/{number}")[:-100], 1)
    assert len([one for one in streams(connection) if one.kept]) == 2 * MUCH


def test_beginnings_without_an_address_have_a_bound(rig: Rig) -> None:
    peer, connection = other_router(rig)
    begun = begin(peer, UNCLEAR, 3 * MUCH)
    assert connection.waiting_bytes == stored(connection) + parking.PLACE_BYTES * sum(
        bool(stream.head) for stream in streams(connection)
    )
    assert stored(connection) <= MUCH * BEGINNING + len(UNCLEAR)
    assert end(rig, begun[-1:]) == [Delivery.RELEASED]
    peer.drop()
    rig.loop_goes_round()
    assert connection.waiting_bytes == 0


def test_multicast_streams_have_a_bound(rig: Rig) -> None:
    consumers = rig.connect(Role.NORMAL)
    for number in range(MANY_RECEIVERS + 1):
        link = consumers.session.receiver(f"wide {number}")
        link.source.address = "multicast/wide"
        link.open()
    rig.settle_down()
    peer, connection = other_router(rig)
    begun = begin(peer, to("multicast/wide")[:-100], 3 * MUCH)
    rig.work_off()
    assert stored(connection) <= 2 * MUCH * BEGINNING + CHUNK_BYTES
    for link, _ in begun:
        link.send(bytes(100))
    assert end(rig, begun[-1:]) == [Delivery.RELEASED]


def test_a_stream_that_has_begun_stores_no_beginning(rig: Rig) -> None:
    for role in (Role.EDGE, Role.NORMAL):
        receiver(rig.connect(Role.NORMAL), f"to/{role}").flow(1)
        begin(rig.connect(role), to(f"to/{role}")[:-100], 1)
    for connection in rig.core.connections.values():
        assert stored(connection) == 0
        assert connection.waiting_bytes == 0


@pytest.mark.parametrize("role", [Role.EDGE, Role.NORMAL])
def test_few_streams_that_wait_have_large_buffers_for_little(rig: Rig, role: Role) -> None:
    receiver(rig.connect(Role.NORMAL), "slow")
    for _ in range(MOST_RETAINED // MUCH + 1):
        begin(rig.connect(role), to("slow")[:-100], MUCH)
    waiting = [one for connection in rig.core.connections.values() for one in streams(connection)]
    assert len([one for one in waiting if one.head]) > MOST_RETAINED
    assert len([one for one in waiting if capacity(one.pn) > RETAINED_BYTES]) <= MOST_RETAINED
