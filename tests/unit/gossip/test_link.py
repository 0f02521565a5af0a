"""Connections of a gossip router that hold bytes for too long, or too many of them."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from unittest.mock import Mock, patch

import pytest

from isthmus_router.gossip.link import ServerLink
from isthmus_router.gossip.messages import (
    VERSION,
    Heartbeat,
    Hello,
    Register,
    Suspect,
    Unregister,
    encode_control,
    encode_message,
)
from isthmus_router.gossip.queues import LEAST_COST
from isthmus_router.gossip.server import Bounds, GossipServer
from isthmus_router.groups.identity import MemberInfo, member_id
from isthmus_router.room import Room
from isthmus_router.write_turns import PIECE_BYTES, TURN_BYTES

MIB = 1 << 20
GROUP = b"group"


SENT = socket.socket()
"""The socket of all connections: the system has sent everything that it was given."""


class Peer(asyncio.Transport):
    """A connection to the router in memory, which takes what it is told to."""

    def __init__(self, server: GossipServer, name: str) -> None:
        super().__init__()
        self._name = name
        self._buffered = 0
        self.broken = False
        self.ended = asyncio.Event()
        self.socket: socket.socket | None = SENT
        self.link = ServerLink(server, server._bounds.most_queued, name)
        server._links[self.link] = None
        self.link.connection_made(self)

    def says(self, data: bytes) -> None:
        self.link.data_received(data)

    def takes(self, size: int) -> None:
        """So many bytes more of those that were written."""
        while size > 0 and self._buffered:
            part = min(size, self._buffered)
            self._buffered -= part
            size -= part
            if not self._buffered:
                self.link.resume_writing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": (self._name, 1), "socket": self.socket}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or 0

    def get_write_buffer_size(self) -> int:
        return self._buffered

    def write(self, data: Any) -> None:
        self._buffered += len(data)
        if self._buffered > self._high:
            self.link.pause_writing()

    def pause_reading(self) -> None:
        """The test sees `held_back`."""

    def resume_reading(self) -> None:
        """The test sees `held_back`."""

    def is_closing(self) -> bool:
        return self.broken

    def abort(self) -> None:
        if not self.broken:
            self.broken = True
            self.ended.set()
            self.link.connection_lost(None)

    close = abort


@pytest.fixture
async def server() -> AsyncIterator[GossipServer]:
    """One with the default bounds, that nobody can reach."""
    listening = socket.create_server(("127.0.0.1", 0))
    yield GossipServer(listening, bounds=Bounds())
    listening.close()


Join = Callable[[str], Awaitable[Peer]]


@pytest.fixture
def join(server: GossipServer) -> Join:
    """A peer that has said HELLO, and has read the answer."""

    async def join(name: str) -> Peer:
        peer = Peer(server, name)
        peer.says(encode_control(Hello(VERSION)))
        await turn()
        peer.takes(MIB)
        return peer

    return join


async def turn() -> None:
    """What the router does at the end of a turn."""
    for _ in range(3):
        await asyncio.sleep(0)


def long_frame(size: int) -> bytes:
    """The beginning of a message of so many bytes."""
    return size.to_bytes(4, "big") + b"\x06" + bytes(10_000)


@pytest.mark.parametrize(
    ("waiting", "crowded", "seconds"), [(4 * MIB, False, 10.0), (4 * MIB, True, 3.0), (9 * MIB, False, 3.0)]
)
@pytest.mark.parametrize("reads", [0, 32 * 1024 - 1, 32 * 1024])
async def test_a_receiver_that_takes_less_than_32_kib_is_cut_off(
    server: GossipServer, join: Join, waiting: int, crowded: bool, seconds: float, reads: int
) -> None:
    """Within 10 s; within 3 s where 8 MiB wait for it, or others wait for room."""
    sender, receiver = await join("sender"), await join("receiver")
    sender.link.carry(GROUP, bytes(waiting), [receiver.link])
    await turn()
    if crowded:
        server.room.charge("others", b"others", 250 * MIB)
        (await join("third")).says(long_frame(8 * MIB))
        assert server.crowded()
    begun = asyncio.get_running_loop().time() + 1
    receiver.takes(64 * 1024)
    receiver.link.check_progress(begun)
    receiver.takes(reads)
    receiver.link.check_progress(begun + seconds - 0.01)
    assert not receiver.broken
    receiver.link.check_progress(begun + seconds)
    assert receiver.broken is (reads < 32 * 1024)
    assert server.slow == receiver.broken


@pytest.mark.parametrize("lost", ["with TLS", "without TLS"])
async def test_a_connection_that_is_lost_and_has_not_ended_yet(
    server: GossipServer, join: Join, lost: str
) -> None:
    """uvloop tells the end of a connection later than it takes the socket away, or closes it without TLS."""
    peer = await join("peer")
    closed = socket.socket()
    closed.close()
    peer.socket = None if lost == "with TLS" else closed
    peer.link.check_progress(asyncio.get_running_loop().time() + 1)
    assert not peer.broken


async def test_a_fault_of_one_connection_ends_no_other(
    server: GossipServer, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    others, faulty = await join("others"), await join("faulty")

    def fail(_: float) -> None:
        raise RuntimeError("a fault")

    with patch.object(ServerLink, "check_progress", lambda link, now: link is faulty.link and fail(now)):
        keeping = asyncio.create_task(server._keep_time())
        await asyncio.wait_for(faulty.ended.wait(), 60)
        assert not keeping.done()
        keeping.cancel()
    assert not others.broken
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == ["internal error"]


async def test_a_connection_waits_for_room_for_30_seconds(server: GossipServer, join: Join) -> None:
    server.room.charge("others", b"others", 250 * MIB)
    peer = await join("peer")
    peer.says(long_frame(8 * MIB))
    await turn()
    assert peer.link.wanted
    begun = asyncio.get_running_loop().time()
    peer.link.check_progress(begun + 29.9)
    assert not peer.broken
    peer.link.check_progress(begun + 30)
    assert peer.broken


@pytest.mark.parametrize(("others", "cut_off"), [(300 * MIB, False), (321 * MIB, True)])
async def test_beyond_320_mib_the_connection_with_most_that_is_incomplete_ends(
    server: GossipServer, join: Join, others: int, cut_off: bool
) -> None:
    """Of the identity that holds most, and not that of the connection that asks for room."""
    little, much, modest = await join("greedy"), await join("greedy"), await join("modest")
    other = await join("other")
    other.says(long_frame(12 * MIB))
    little.says(long_frame(2 * MIB))
    much.says(long_frame(6 * MIB) + bytes(4 * MIB))
    server.room.charge("address greedy", GROUP, others - server.room.held)
    modest.says(long_frame(2 * MIB))
    await turn()
    assert (little.broken, much.broken) == (False, cut_off)
    assert not other.broken
    assert not modest.broken


@pytest.mark.parametrize(
    ("identity", "others", "taken"), [(190, 0, True), (192, 0, False), (0, 318, True), (0, 320, False)]
)
async def test_messages_beyond_the_room_are_dropped(
    server: GossipServer, join: Join, identity: int, others: int, taken: bool
) -> None:
    """Those of an identity that holds 192 MiB, and all where 320 MiB are held."""
    sender, receiver = await join("sender"), await join("receiver")
    server.room.charge("address sender", b"else", identity * MIB)
    server.room.charge("others", b"others", others * MIB)
    sender.link.carry(GROUP, bytes(MIB), [receiver.link])
    assert server.dropped == (not taken)


def test_the_room_is_of_256_mib() -> None:
    room = Room(Bounds().most_held)
    assert (room.most, room.hard) == (256 * MIB, 320 * MIB)


def register(member: MemberInfo) -> bytes:
    return encode_control(Register(GROUP.decode(), member))


@pytest.fixture
def no_budget(server: GossipServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections wait for their turns, however little they have received."""

    def add(link: ServerLink) -> None:
        server.turns.add(link)

    monkeypatch.setattr(server, "ready", add)


@pytest.mark.usefixtures("no_budget")
async def test_what_arrived_before_the_peer_closed_is_worked_off_before_the_end(
    server: GossipServer, join: Join
) -> None:
    """A member that leaves and closes is suspected by nobody."""
    member = MemberInfo(member_id(bytes(15) + b"\1"), "member", ())
    peer, other = await join("peer"), await join("other")
    other.says(register(MemberInfo(member_id(bytes(15) + b"\2"), "other", ())))
    peer.says(register(member))
    await turn()
    assert server.table.members == 2
    peer.says(encode_control(Unregister(GROUP.decode(), member.id)))
    peer.abort()
    assert server.table.members == 2
    assert server.table.connections == 2
    await turn()
    assert server.table.members == 1
    assert server.table.connections == 1
    assert server.table.counters.suspected == 0
    assert peer.link not in server._links


async def test_a_connection_whose_frame_cannot_be_dealt_with_ends(
    server: GossipServer, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, other = await join("peer"), await join("other")
    monkeypatch.setattr(server.table, "received", Mock(side_effect=RuntimeError))
    with pytest.raises(RuntimeError):
        peer.says(encode_control(Heartbeat()))
    await turn()
    assert peer.broken
    assert list(server._links) == [other.link]


@pytest.mark.usefixtures("no_budget")
async def test_a_connection_is_not_read_while_it_waits_for_its_turn(join: Join) -> None:
    peer = await join("peer")
    peer.says(encode_control(Heartbeat()))
    assert peer.link.held_back
    await turn()
    assert not peer.link.held_back


@pytest.mark.usefixtures("no_budget")
async def test_a_connection_that_the_router_ends_after_its_loss_is_gone(
    server: GossipServer, join: Join
) -> None:
    """What had arrived is malformed."""
    peer = await join("peer")
    peer.says(b"\0\0\0\0")
    peer.abort()
    await turn()
    assert server.table.connections == 0
    assert peer.link not in server._links


async def test_what_the_router_itself_says_counts_with_the_memory_that_it_takes(join: Join) -> None:
    """Frames of 6 bytes to a peer that takes none."""
    peer = await join("silent")
    peer.link._most_queued = 2 * MIB
    frame = encode_control(Heartbeat())
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        while not peer.broken:
            peer.link.send(bytes(bytearray(frame)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most - before < peer.link._most_queued


async def test_what_waits_is_written_in_pieces_also_before_the_connection_is_closed(join: Join) -> None:
    """Though the peer reads all that it is sent."""
    sender, receiver = await join("sender"), await join("receiver")
    receiver._high = 100 * MIB
    sender.link.carry(GROUP, bytes(5 * PIECE_BYTES // 2), [receiver.link])
    sender.link.carry(GROUP, bytes(PIECE_BYTES), [receiver.link])
    receiver.link.flush()
    assert receiver.get_write_buffer_size() == PIECE_BYTES
    await asyncio.sleep(0)
    assert receiver.get_write_buffer_size() == 2 * PIECE_BYTES
    closed: list[int] = []
    receiver.close = lambda: closed.append(receiver.get_write_buffer_size())  # type: ignore[method-assign]
    receiver.link.finish()
    sender.link.carry(GROUP, b"too late", [receiver.link])
    receiver.link.finish()
    assert not closed
    await turn()
    assert closed == [7 * PIECE_BYTES // 2]
    assert sender.link.held == 0
    receiver.abort()


async def test_copies_for_many_receivers_are_written_in_turns(join: Join) -> None:
    sender = await join("sender")
    receivers = [await join(f"receiver {number}") for number in range(100)]
    for receiver in receivers:
        receiver._high = 100 * MIB
    sender.link.carry(GROUP, bytes(PIECE_BYTES // 4), [receiver.link for receiver in receivers])
    for receiver in receivers:
        receiver.link.flush()
    written, rounds = 0, 0
    while written < 100 * PIECE_BYTES // 4:
        before, written = written, sum(receiver.get_write_buffer_size() for receiver in receivers)
        assert written - before <= TURN_BYTES + PIECE_BYTES
        rounds += 1
        await asyncio.sleep(0)
    assert rounds > 100 * PIECE_BYTES // 4 // TURN_BYTES


def message(number: int, size: int = 70) -> bytes:
    """A message of a member to another one, by their numbers."""
    return encode_message(GROUP.decode(), MEMBERS[0].id, MEMBERS[number].id, bytes(size))


MEMBERS = [MemberInfo(member_id(bytes(15) + bytes([number])), "member", ()) for number in range(1, 5)]
"""The first one receives."""


@pytest.fixture
async def receiver(join: Join) -> Peer:
    """A member that has read all answers so far, and takes nothing more."""
    peer = await join("receiver")
    peer.says(register(MEMBERS[0]))
    return peer


async def test_connections_of_one_identity_are_read_until_much_of_them_waits_for_a_receiver(
    join: Join, receiver: Peer
) -> None:
    """Those of another identity are read on, and theirs too when the receiver has taken some."""
    first, second, other = await join("flood"), await join("flood"), await join("other")
    for number, peer in enumerate((first, second, other), 1):
        peer.says(register(MEMBERS[number]))
    written = 2 * MIB // 16 // len(message(1)) + 1
    most = 16 * MIB // LEAST_COST
    for _ in range((most + written) // 50):
        first.says(message(1) * 50)
        await turn()
    first.says(message(1) * 100)
    await turn()
    second.says(message(2) * 100)
    other.says(message(3) * 100)
    await turn()
    assert first.link.held_back
    assert second.link.held_back
    assert not other.link.held_back
    queued = receiver.link._queued
    first.says(message(1))
    await turn()
    assert receiver.link._queued == queued
    receiver.takes(MIB)
    await turn()
    assert not first.link.held_back
    assert not second.link.held_back


async def test_what_a_lost_connection_had_sent_is_passed_on_though_much_waits(
    join: Join, receiver: Peer
) -> None:
    sender = await join("flood")
    sender.says(register(MEMBERS[1]))
    for _ in range(3):
        sender.says(message(1, 9 * MIB))
        await turn()
    queued = receiver.link._queued
    sender.says(message(1) * 3)
    await turn()
    assert receiver.link._queued == queued
    sender.abort()
    await turn()
    told = len(encode_control(Suspect(GROUP.decode(), MEMBERS[1].id)))
    assert receiver.link._queued == queued + 3 * len(message(1)) + told
    assert sender.link not in sender.link._owner._links  # type: ignore[attr-defined]


async def test_a_receiver_that_is_lost_holds_nobody(join: Join, receiver: Peer) -> None:
    sender = await join("flood")
    sender.says(register(MEMBERS[1]))
    for _ in range(3):
        sender.says(message(1, 9 * MIB))
        await turn()
    sender.says(message(1))
    await turn()
    assert sender.link._stuck
    assert sender.link.held_back
    receiver.abort()
    await turn()
    assert not sender.link.held_back


async def test_answers_are_written_before_messages_and_after_the_frame_that_has_begun(
    join: Join, receiver: Peer
) -> None:
    sender = await join("sender")
    sender.says(register(MEMBERS[1]))
    receiver._high = 100
    written: list[bytes] = []
    write = receiver.write
    receiver.write = lambda data: (written.append(bytes(data)), write(data))[1]  # type: ignore[method-assign, func-returns-value]
    long, short = message(1, 100_000), message(1)
    sender.says(long + short)
    await turn()
    receiver.says(encode_control(Heartbeat()))
    for _ in range(5):
        await turn()
        receiver.takes(MIB)
    assert b"".join(written) == long + encode_control(Heartbeat()) + short
