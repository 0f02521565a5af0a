"""One connection between its owner and a transport that records."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from unittest.mock import Mock

import pytest

from isthmus_router.groups.frames import Kind
from isthmus_router.transport.connection import CLOSED, CONTROL_BYTES, FrameConnection
from isthmus_router.transport.framing import PREFIX
from isthmus_router.write_turns import PIECE_BYTES

SLICE_SECONDS = 0.004


def work(made: FrameConnection) -> bool:
    return made.work(time.monotonic() + SLICE_SECONDS)


def connection(*, room: int = 10_000, encrypted: bool = False) -> tuple[FrameConnection, Mock, Mock]:
    """One that is connected, and begins to work when it is ready; its owner and its transport."""
    owner = Mock(credentials=None)
    turn = Mock()
    turn.ready.side_effect = work
    made = FrameConnection(owner, turn, 1000, room)
    transport = Mock(spec=asyncio.Transport)
    transport.get_extra_info.side_effect = lambda name: Mock() if encrypted and name == "ssl_object" else None
    transport.get_write_buffer_size.return_value = 0
    transport.is_closing.return_value = False
    made.connection_made(transport)
    return made, owner, transport


def arrive(made: FrameConnection, frame: bytes) -> None:
    data = PREFIX.pack(len(frame)) + frame
    made.get_buffer(-1)[: len(data)] = data
    made.buffer_updated(len(data))


async def test_what_comes_after_the_end_is_not_looked_at() -> None:
    made, owner, transport = connection()
    arrive(made, b"a")
    owner.arrived.assert_called_once_with(made, [b"a"])
    made.close("done")
    transport.close.assert_called_once_with()
    arrive(made, b"b")
    owner.arrived.assert_called_once()
    made.connection_lost(None)
    owner.ended.assert_called_once_with(made, "done")
    assert made.over.is_set()


@pytest.mark.parametrize("lost_before", [False, True])
async def test_a_connection_whose_frame_cannot_be_dealt_with_ends(lost_before: bool) -> None:
    made, owner, transport = connection()
    turn: Any = made._turn
    turn.ready.side_effect = None
    owner.arrived.side_effect = RuntimeError
    arrive(made, b"a")
    if lost_before:
        made.connection_lost(None)
    with pytest.raises(RuntimeError):
        work(made)
    made.break_off()
    transport.abort.assert_called_once_with()
    if not lost_before:
        made.connection_lost(None)
    owner.ended.assert_called_once_with(made, "internal error")


async def test_small_frames_are_one_piece_and_long_ones_are_not_copied() -> None:
    made, _, transport = connection()
    for frame in (b"a", b"bc"):
        made.send(frame)
    made.write()
    transport.write.assert_called_once_with(b"\0\0\0\1a\0\0\0\2bc")
    long = bytes(5000)
    made.send(long)
    made.write()
    (pieces,) = transport.writelines.call_args.args
    assert pieces[1] is long
    made.write()
    transport.write.assert_called_once()
    transport.writelines.assert_called_once()


async def test_touched_once_a_turn() -> None:
    made, _, _ = connection()
    turn: Any = made._turn
    made.send(b"a")
    made.send(b"b")
    turn.touch.assert_called_once_with(made)
    made.write()
    made.send(b"c")
    assert turn.touch.call_count == 2


async def test_what_waits_while_the_system_takes_no_more() -> None:
    made, owner, transport = connection()
    made.pause_writing()
    made.send(b"a")
    made.write()
    transport.write.assert_not_called()
    transport.get_write_buffer_size.return_value = 7
    assert made.backlog == 5 + 7
    made.resume_writing()
    transport.write.assert_called_once_with(b"\0\0\0\1a")
    owner.drained.assert_called_once_with(made)


MUCH = [bytes((Kind.BATCH, number)) * size for number, size in enumerate((100_000, 200_000, 7, 450_000, 3))]
"""Frames that are written in several pieces."""


class Written:
    """What a transport was given."""

    def __init__(self, transport: Mock) -> None:
        self.pieces: list[bytes] = []
        self.data = b""
        transport.write.side_effect = self.write
        transport.writelines.side_effect = lambda pieces: self.write(b"".join(pieces))

    def write(self, data: bytes) -> None:
        self.pieces.append(bytes(data))
        self.data += data

    @property
    def frames(self) -> list[bytes]:
        found, at = [], 0
        while at < len(self.data):
            (length,) = PREFIX.unpack_from(self.data, at)
            at += PREFIX.size + length
            found.append(self.data[at - length : at])
        return found


async def iterations(count: int = 10) -> None:
    """Of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


def much(*, encrypted: bool = True) -> tuple[FrameConnection, Mock, Mock, Written]:
    """A connection on which much waits."""
    made, owner, transport = connection(room=10_000_000, encrypted=encrypted)
    for frame in MUCH:
        made.send(frame)
    return made, owner, transport, Written(transport)


@pytest.mark.parametrize("encrypted", [False, True])
async def test_what_waits_is_written_in_pieces_one_in_an_iteration(encrypted: bool) -> None:
    made, owner, _, written = much(encrypted=encrypted)
    total = made.backlog
    made.write()
    for pieces in range(1, total // PIECE_BYTES + 1):
        made.write()
        assert len(written.data) <= pieces * PIECE_BYTES
        assert made.backlog == total - len(written.data)
        assert made.full
        owner.drained.assert_not_called()
        await asyncio.sleep(0)
    await iterations()
    assert written.frames == MUCH
    assert max(map(len, written.pieces)) <= PIECE_BYTES
    assert len(written.pieces) == total // PIECE_BYTES + 1
    owner.drained.assert_called_once_with(made)
    assert not made.full


@pytest.mark.parametrize("room", range(7))
async def test_all_is_written_wherever_a_frame_is_cut(room: int) -> None:
    """Also where there is room for a part of its length only."""
    made, _, _ = connection(room=10_000_000)
    frames = [bytes(PIECE_BYTES - PREFIX.size - room), bytes(10), bytes(PIECE_BYTES), bytes(3)]
    transport: Any = made.transport
    written = Written(transport)
    for frame in frames:
        made.send(frame)
    made.write()
    await iterations()
    assert made.backlog == 0
    assert written.frames == frames


async def test_what_the_system_does_not_take_waits_for_it_also_between_pieces() -> None:
    made, owner, _, written = much()
    made.write()
    made.pause_writing()
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(written.pieces) == 1
    made.resume_writing()
    assert len(written.pieces) == 2
    owner.drained.assert_not_called()
    await iterations()
    owner.drained.assert_called_once_with(made)
    assert written.frames == MUCH


@pytest.mark.parametrize("paused", [False, True])
async def test_a_connection_is_closed_when_what_waits_is_written(paused: bool) -> None:
    made, _, transport, written = much()
    made.write()
    if paused:
        made.pause_writing()
    made.close("done")
    made.close("done twice")
    made.send(b"too late")
    transport.close.assert_not_called()
    if paused:
        made.resume_writing()
    await iterations()
    assert written.frames == MUCH
    transport.close.assert_called_once_with()


async def test_a_frame_that_is_said_comes_after_the_one_that_is_written_in_part() -> None:
    made, _, _, written = much()
    made.write()
    made.say(b"said")
    await iterations()
    assert written.frames == [*MUCH[:2], b"said", *MUCH[2:]]


async def test_frames_that_are_not_written_yet_can_be_taken_back() -> None:
    """The rest of the one that is written in part stays."""
    made, _, _, written = much()
    made.write()
    assert made.take_queue() == MUCH[2:]
    made.send(b"last")
    await iterations()
    assert written.frames == [*MUCH[:2], b"last"]


async def test_nothing_is_written_after_the_connection_was_aborted_or_lost() -> None:
    made, _, transport, written = much()
    made.write()
    transport.is_closing.return_value = True
    made.abort("others need its place")
    await iterations()
    assert len(written.pieces) == 1
    made.connection_lost(None)
    assert made.take_queue() == MUCH[2:]


async def test_a_connection_that_comes_too_late() -> None:
    """It was given up while it was made."""
    owner = Mock(credentials=None)
    made = FrameConnection(owner, Mock(), 1000, 10_000)
    made.send(b"a")
    made.close("given up")
    owner.ended.assert_not_called()
    await made.over.wait()
    owner.ended.assert_called_once_with(made, "given up")
    transport = Mock(spec=asyncio.Transport)
    made.connection_made(transport)
    transport.abort.assert_called_once_with()
    owner.connected.assert_not_called()
    assert made.take_queue() == [b"a"]


def read(made: FrameConnection, count: int) -> None:
    """So many frames come by one read."""
    data = b"".join(PREFIX.pack(2) + number.to_bytes(2) for number in range(count))
    made.get_buffer(-1)[: len(data)] = data
    made.buffer_updated(len(data))


def slow(owner: Mock, handed_on: list[bytes]) -> None:
    """Each frame takes its owner a millisecond."""

    def arrived(_: FrameConnection, frames: list[bytes]) -> None:
        handed_on.extend(frames)
        end = time.monotonic() + len(frames) / 1000
        while time.monotonic() < end:
            pass

    owner.arrived.side_effect = arrived


async def test_many_frames_are_handed_on_in_slices() -> None:
    made, owner, transport = connection()
    turn: Any = made._turn
    handed_on: list[bytes] = []
    slow(owner, handed_on)
    read(made, 200)
    assert 0 < len(handed_on) < 50
    transport.pause_reading.assert_called_once_with()
    turn.ready.assert_called_once_with(made)
    slices = 1
    while work(made):
        slices += 1
        transport.resume_reading.assert_not_called()
    assert slices > 4
    assert handed_on == [number.to_bytes(2) for number in range(200)]
    transport.resume_reading.assert_called_once_with()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionResetError("reset"), "reset"),
        (ConnectionResetError(), "ConnectionResetError"),
        (None, CLOSED),
    ],
    ids=["reset", "nameless", "closed"],
)
async def test_a_connection_that_is_lost_ends_after_its_frames(error: Exception | None, reason: str) -> None:
    made, owner, _ = connection()
    handed_on: list[bytes] = []
    slow(owner, handed_on)
    read(made, 100)
    if error is None:
        made.eof_received()
    made.connection_lost(error)
    owner.ended.assert_not_called()
    while work(made):
        pass
    assert len(handed_on) == 100
    owner.ended.assert_called_once_with(made, reason)


async def test_nothing_is_read_and_cut_until_it_is_the_connections_turn() -> None:
    made, owner, transport = connection()
    turn: Any = made._turn
    turn.ready.side_effect = None
    read(made, 10)
    read(made, 10)  # TLS had decrypted that before it was paused
    transport.pause_reading.assert_called_once_with()
    owner.arrived.assert_not_called()
    turn.ready.assert_called_once_with(made)
    assert not made.work(time.monotonic() + 60)
    assert [len(call.args[1]) for call in owner.arrived.call_args_list] == [8, 8, 4]
    transport.resume_reading.assert_called_once_with()


async def test_frames_that_wait_are_dropped_when_the_owner_ends_the_connection() -> None:
    made, owner, transport = connection()
    handed_on: list[bytes] = []
    slow(owner, handed_on)
    read(made, 100)
    before = len(handed_on)
    made.abort("others need its place")
    transport.abort.assert_called_once_with()
    assert not work(made)
    made.connection_lost(None)
    assert len(handed_on) == before
    owner.ended.assert_called_once_with(made, "others need its place")


async def test_reading_goes_on_when_both_reasons_to_pause_are_over() -> None:
    made, owner, transport = connection()
    slow(owner, [])
    read(made, 100)
    made.pause_reading(True)
    while work(made):
        pass
    transport.pause_reading.assert_called_once_with()
    transport.resume_reading.assert_not_called()
    made.pause_reading(False)
    transport.resume_reading.assert_called_once_with()


async def test_a_frame_longer_than_the_queue_ends_no_connection_of_a_peer_that_reads_slowly() -> None:
    """Frames behind it that its source does not repeat have the usual room; what is repeated is dropped."""
    made, _, transport = connection()
    made.send(bytes((Kind.BATCH,)) + bytes(6 << 20))
    for _ in range(100):
        made.send(bytes((Kind.HEARTBEAT,)) + bytes(1000))
        made.send(bytes((Kind.FORWARD,)) + bytes(1000))
    assert (len(made.queue), made.dropped) == (101, 100)
    transport.abort.assert_not_called()
    for _ in range(CONTROL_BYTES // 1000):
        made.send(bytes((Kind.HEARTBEAT,)) + bytes(1000))
    transport.abort.assert_called()
