"""Long frames of many connections: what they hold together, and what becomes of those that hardly arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.transport.test_connection import connection

from isthmus_router.groups.batch import (
    BATCH_BYTES,
    MOST_ADDRESS_BYTES,
    MOST_MESSAGE_BYTES,
    GroupMessage,
    encode_message,
    make_batch,
)
from isthmus_router.groups.frames import HEADER_BYTES
from isthmus_router.groups.identity import MemberId
from isthmus_router.sites.state_messages import MOST_PART_BYTES, MOST_POSITIONS, STATE, Part, encode_state
from isthmus_router.transport import arrivals as module
from isthmus_router.transport.arrivals import HINDERING_SECONDS, PROGRESS_BYTES, PROGRESS_SECONDS, Arrivals
from isthmus_router.transport.connection import FrameConnection
from isthmus_router.transport.framing import PREFIX, FrameBuffer
from isthmus_router.transport.settings import LONGEST_FRAME_BYTES, TransportSettings

MIB = 1 << 20
MOST = 32 * MIB
FRAME = 4 * MIB
OF_HEADERS = 1024
"""More than the headers of frames within frames."""


class Peer:
    """A connection of which the test sends part of a frame."""

    def __init__(self) -> None:
        self.reading = True
        self.aborted = ""
        self.shown = 0

    def wait_for_room(self, waits: bool) -> None:
        self.reading = not waits

    def still_there(self) -> None:
        self.shown += 1

    def abort(self, reason: str) -> None:
        self.aborted = reason


class Clock:
    """A loop whose time the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self._soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, what: Callable[[], None]) -> object:
        self._timers.append((self.now + seconds, what))
        return object()

    def call_soon(self, what: Callable[[], None]) -> None:
        self._soon.append(what)

    def run(self, seconds: float = 0.0) -> None:
        end = self.now + seconds
        while True:
            while self._soon:
                self._soon.pop(0)()
            due = [timer for timer in self._timers if timer[0] <= end]
            if not due:
                break
            first = min(due, key=lambda timer: timer[0])
            self._timers.remove(first)
            self.now = first[0]
            first[1]()
        self.now = end


def made() -> tuple[Clock, Arrivals]:
    clock: Any = Clock()
    return clock, Arrivals(clock, MOST)


def test_one_identity_holds_at_most_half_and_others_get_room() -> None:
    clock, arrivals = made()
    hostile = [Peer() for _ in range(64)]
    for peer in hostile:
        arrivals.update(peer, "hostile", FRAME, 4096)
        if peer.reading:
            arrivals.update(peer, "hostile", FRAME, FRAME - 1)
    clock.run()
    assert 0 < sum(peer.reading for peer in hostile) <= MOST // 2 // FRAME
    honest = Peer()
    arrivals.update(honest, "honest", FRAME, 4096)
    clock.run()
    assert honest.reading
    assert arrivals.room.held <= MOST


def test_those_that_wait_are_read_when_there_is_room() -> None:
    clock, arrivals = made()
    peers = [Peer() for _ in range(10)]
    for peer in peers:
        arrivals.update(peer, "site", FRAME, 4096)
    served = 0
    while arrivals.room.held:
        reading = [peer for peer in peers if peer.reading]
        assert reading
        for peer in reading:
            arrivals.update(peer, "site", FRAME, FRAME - 1)
            arrivals.update(peer, "site", 0, FRAME)
            assert not arrivals.update(peer, "site", 0, 0)
            peers.remove(peer)
            served += 1
        clock.run()
    assert (served, peers) == (10, [])


def test_a_frame_that_hardly_arrives_ends_its_connection() -> None:
    clock, arrivals = made()
    trickling, slow = Peer(), Peer()
    for second in range(int(2 * PROGRESS_SECONDS)):
        arrivals.update(trickling, "a", FRAME, MIB + second)
        arrivals.update(slow, "b", FRAME, MIB + second * PROGRESS_BYTES // 5)
        clock.run(1)
    assert "a frame" in trickling.aborted
    assert not slow.aborted


def test_a_frame_that_hardly_arrives_ends_its_connection_soon_while_others_wait() -> None:
    clock, arrivals = made()
    trickling = [Peer() for _ in range(6)]
    for peer in trickling:
        arrivals.update(peer, "a", FRAME, 4096)
    reading = [peer for peer in trickling if peer.reading]
    assert len(reading) < len(trickling)
    clock.run(HINDERING_SECONDS + 2)
    assert all("a frame" in peer.aborted for peer in reading)


def test_a_frame_that_is_not_read_is_not_slow() -> None:
    clock, arrivals = made()
    peer = Peer()
    arrivals.update(peer, "a", FRAME, MIB)
    peer.reading = False
    clock.run(3 * PROGRESS_SECONDS)
    assert not peer.aborted


def test_a_slow_frame_gives_its_room_to_others_that_wait() -> None:
    clock, arrivals = made()
    slow = [Peer() for _ in range(4)]
    for peer in slow:
        arrivals.update(peer, "a", FRAME, 200_000)
    late = Peer()
    arrivals.update(late, "a", FRAME, 4096)
    reading = [peer for peer in slow if peer.reading]
    assert reading
    assert not late.reading
    for second in range(int(HINDERING_SECONDS) + 2):
        for peer in reading:
            arrivals.update(peer, "a", FRAME, 200_000 + second * PROGRESS_BYTES // 2)
        clock.run(1)
    assert late.reading or any(peer.reading for peer in slow if peer not in reading)
    assert not any(peer.aborted for peer in slow)


def test_who_waits_is_there_until_it_has_waited_for_long() -> None:
    clock, arrivals = made()
    for number in range(40):
        peer = Peer()
        arrivals.update(peer, str(number), FRAME, 4096)
        arrivals.update(peer, str(number), FRAME, FRAME - 1)
        peer.reading = False
    late = Peer()
    arrivals.update(late, "late", FRAME, 4096)
    clock.run(10)
    assert not late.reading
    assert late.shown >= 10
    assert not late.aborted
    clock.run(module.ROOM_SECONDS)
    assert "no room" in late.aborted


async def test_a_connection_is_not_read_while_there_is_no_room() -> None:
    found: tuple[FrameConnection, Any, Any] = connection()
    receiver, _, transport = found
    turn: Any = receiver._turn
    turn.arrivals = Arrivals(asyncio.get_running_loop(), FRAME)
    receiver.longest = 2 * FRAME
    turn.arrivals.room.charge("others", None, FRAME)
    receiver.get_buffer(-1)[: PREFIX.size] = PREFIX.pack(FRAME)
    receiver.buffer_updated(PREFIX.size)
    transport.pause_reading.assert_called_once_with()
    turn.arrivals.room.charge("others", None, -FRAME)
    turn.arrivals._serve_soon()
    await asyncio.sleep(0)
    transport.resume_reading.assert_called_once_with()
    assert turn.arrivals.room.held == FRAME + PREFIX.size
    receiver.connection_lost(None)
    assert turn.arrivals.room.held == 0


def test_the_longest_frame_is_as_long_as_the_longest_batch_and_state() -> None:
    member = MemberId(bytes(16))
    address = "\U0001f600" * 16_000
    messages = [GroupMessage(f"{number:0>1000}", b"") for number in range(60)]
    messages.append(GroupMessage(address, bytes(MOST_MESSAGE_BYTES)))
    batch = make_batch(member, 1, 0, "s" * 255, ("t" * 255,) * 254, messages)
    # Members count characters of addresses, up to `BATCH_BYTES` in a batch.
    longest_batch = len(batch.encoded) + MOST_ADDRESS_BYTES + BATCH_BYTES + 6 * 1_500
    positions = {MemberId(number.to_bytes(16)): 1 for number in range(MOST_POSITIONS)}
    part = encode_message(
        GroupMessage(STATE, encode_state(Part(bytes(8), True, positions, bytes(MOST_PART_BYTES))))
    )
    assert max(longest_batch, len(part)) + HEADER_BYTES + OF_HEADERS <= LONGEST_FRAME_BYTES
    assert TransportSettings().longest_frame == LONGEST_FRAME_BYTES < 2 * MOST_MESSAGE_BYTES


@pytest.mark.parametrize("length", [300_000, 1_100_000, 16 * MIB])
def test_a_buffer_is_hardly_longer_than_its_frame(length: int) -> None:
    buffer = FrameBuffer(17 * MIB)
    rest = PREFIX.pack(length) + bytes(length)
    while rest:
        space = buffer.space()
        count = min(len(space), len(rest))
        space[:count], rest = rest[:count], rest[count:]
        buffer.filled(count)
        assert len(buffer._data) <= max(256 * 1024, length + 128 * 1024)
    assert buffer.whole
    (frame,) = buffer.cut(8, 1 << 30)
    assert len(frame) == length
