"""Frames cut out of a stream, however it arrives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus_router.groups.frames import FrameError
from isthmus_router.transport.framing import BULK_BYTES, FIRST_BYTES, PREFIX, FrameBuffer

LONGEST = 3 * BULK_BYTES


def feed(
    buffer: FrameBuffer, data: bytes, piece: int, most: int = 8, most_bytes: int = 1000, each: int = 1
) -> list[bytes]:
    """As a socket would, with reads of up to `piece` bytes; frames are cut after `each` reads, and at the end."""
    frames: list[bytes] = []
    at = reads = 0
    while at < len(data):
        space = buffer.space()
        size = min(piece, len(space), len(data) - at)
        assert size > 0
        space[:size] = data[at : at + size]
        buffer.filled(size)
        at += size
        reads += 1
        while buffer.whole and (not reads % each or at == len(data)):
            some = buffer.cut(most, most_bytes)
            assert 0 < len(some) <= most
            assert sum(map(len, some[:-1])) < most_bytes
            frames += some
    return frames


def stream(frames: list[bytes]) -> bytes:
    return b"".join(PREFIX.pack(len(frame)) + frame for frame in frames)


@given(
    st.lists(st.integers(0, 200) | st.integers(0, LONGEST), max_size=12),
    st.integers(1, 50) | st.integers(1000, LONGEST),
    st.integers(1, 8),
    st.integers(1, 1000),
    st.integers(1, 6),
)
def test_any_pieces(sizes: list[int], piece: int, most: int, most_bytes: int, each: int) -> None:
    if sum(sizes) > 5000:
        piece = max(piece, 1000)
    frames = [bytes((number % 251,)) * size for number, size in enumerate(sizes)]
    assert feed(FrameBuffer(LONGEST), stream(frames), piece, most, most_bytes, each) == frames


@given(st.lists(st.binary(max_size=40), max_size=5), st.integers(LONGEST + 1, 2**32 - 1), st.integers(1, 100))
def test_too_long(frames: list[bytes], claimed: int, piece: int) -> None:
    buffer = FrameBuffer(LONGEST)
    with pytest.raises(FrameError, match=f"frame of {claimed} bytes"):
        feed(buffer, stream(frames) + PREFIX.pack(claimed) + b"x", piece)


@given(st.binary(max_size=300), st.integers(1, 300))
def test_garbage(data: bytes, piece: int) -> None:
    """Whatever comes: frames, or FrameError; room is what was there before."""
    buffer = FrameBuffer(1000)
    try:
        frames = feed(buffer, data, piece)
    except FrameError:
        return
    assert data.startswith(stream(frames))
    assert len(buffer.space()) >= FIRST_BYTES - len(data)


def test_room_follows_what_arrives_not_what_is_claimed() -> None:
    buffer = FrameBuffer(1 << 30)
    feed(buffer, PREFIX.pack(1 << 30), 4)
    assert len(buffer.space()) == FIRST_BYTES - 4
    feed(buffer, bytes(FIRST_BYTES - 4), FIRST_BYTES)
    assert len(buffer.space()) == FIRST_BYTES


def test_room_of_a_long_frame_is_given_back() -> None:
    buffer = FrameBuffer(8 * BULK_BYTES)
    frame = stream([bytes(7 * BULK_BYTES)])
    assert feed(buffer, frame[:-1], BULK_BYTES) == []
    held = 7 * BULK_BYTES + PREFIX.size - 1
    assert held + len(buffer.space()) == 7 * BULK_BYTES + PREFIX.size + 64 * 1024
    assert feed(buffer, frame[-1:], 1) == [frame[PREFIX.size :]]
    assert len(buffer.space()) == BULK_BYTES


def test_frames_before_one_that_is_too_long_are_cut() -> None:
    buffer = FrameBuffer(10)
    data = stream([b"a", b"b"]) + PREFIX.pack(11)
    buffer.space()[: len(data)] = data
    buffer.filled(len(data))
    assert buffer.cut(8, 1000) == [b"a", b"b"]
    assert buffer.whole
    with pytest.raises(FrameError, match="frame of 11 bytes"):
        buffer.cut(8, 1000)


def test_a_longer_frame_can_be_cut_once_it_is_allowed() -> None:
    buffer = FrameBuffer(10)
    data = stream([b"a", bytes(20)])
    buffer.space()[: len(data)] = data
    buffer.filled(len(data))
    assert buffer.cut(8, 1000) == [b"a"]
    buffer.longest = 20
    assert buffer.cut(8, 1000) == [bytes(20)]
    assert not buffer.whole
