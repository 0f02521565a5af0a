"""Connections of very many members, as one peer may have."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any, cast
from unittest.mock import Mock

from isthmus_router.groups.identity import GroupName, MemberInfo, PhysicalAddress, member_id
from isthmus_router.transport.connection import FrameConnection
from isthmus_router.transport.hello import Hello, encode_hello
from isthmus_router.transport.members import MOST_NAMES, MemberConnection, MemberConnections
from isthmus_router.transport.settings import TransportSettings

COUNT, ADDRESSES = 1_000, 16
MOST_SECONDS = 0.15
"""Of CPU, for all. Walks over the addresses of all members took 0.5 s."""
GROUP = GroupName("trades", "nyc", "tests")


def member(number: int) -> Hello:
    addresses = (PhysicalAddress(f"10.0.{number}", port) for port in range(1, ADDRESSES + 1))
    return Hello(
        GROUP, MemberInfo(member_id(number.to_bytes(4) + bytes(12), "nyc"), f"m{number}", tuple(addresses))
    )


def established(owner: MemberConnections, peer: Hello) -> MemberConnection:
    turn: Any = Mock()
    made = MemberConnection(owner, turn, TransportSettings(), None)
    made.transport = Mock()
    owner._all[made] = None
    owner._incoming += 1
    owner.arrived(made, [encode_hello(peer)])
    assert made.peer is not None
    return made


async def test_names_of_long_certificates_are_remembered_by_a_digest() -> None:
    events: Any = Mock()
    owner = MemberConnections(member(COUNT), TransportSettings(), None, Mock(), events, Mock(), Mock())
    certificate = {"subjectAltName": [("DNS", f"{number:060d}.example") for number in range(300)]}
    other = {"subjectAltName": [*certificate["subjectAltName"][:-1], ("DNS", "z.example")]}
    identities = set()
    tracemalloc.start()
    try:
        for number in range(MOST_NAMES):
            connection: Any = Mock(spec=MemberConnection, remote="")
            connection.certificate = other if number % 2 else certificate
            connection.identity = cast(Any, FrameConnection.identity).fget(connection)
            identities.add(connection.identity)
            assert not owner._imposture(connection, member(number).member)
            del connection
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(identities) == 2
    assert taken < 8_000_000


async def test_the_end_of_a_connection_costs_as_much_as_it_has_addresses() -> None:
    events: Any = Mock()
    owner = MemberConnections(
        member(COUNT), TransportSettings(), None, Mock(), events, time.monotonic, Mock()
    )
    first = [established(owner, member(number)) for number in range(COUNT)]
    replaced = time.thread_time()
    second = [established(owner, member(number)) for number in range(COUNT)]
    replaced = time.thread_time() - replaced
    assert len(owner._by_address) == COUNT * ADDRESSES
    ended = time.thread_time()
    for connection in first + second:
        owner.ended(connection, "closed")
    ended = time.thread_time() - ended
    assert not owner._by_address
    assert events.member_lost.call_count == COUNT
    assert ended < MOST_SECONDS
    assert replaced < 10 * MOST_SECONDS
