"""Frames on a stream of bytes: each has its length before it, 4 bytes, in network order."""

from __future__ import annotations

import struct

from isthmus_router.groups.frames import FrameError

PREFIX = struct.Struct(">I")
FIRST_BYTES = 4 * 1024
"""Of room for what arrives, so that many who say nothing cost little; who fills it gets more, up to `BULK_BYTES`."""
BULK_BYTES = 256 * 1024
_SMALL_BYTES = 64 * 1024
"""That are left of what came in bulk when the room for a long frame is given back, and that have room behind one."""


class FrameBuffer:
    """What has arrived of a stream. The socket reads into it; a whole frame is copied out of it once, on demand.

    Room grows with what has arrived, never with what a length claims.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._data = bytearray(FIRST_BYTES)
        self._at = 0
        """Bytes of it that have been cut."""
        self._end = 0
        self.whole = False
        """The next frame is complete, or longer than is allowed."""
        self.pending = 0
        """Bytes of the next frame, its length included, if it is not complete and its length has arrived; else 0."""

    @property
    def longest(self) -> int:
        """Bytes of the longest frame that is accepted."""
        return self._longest

    @longest.setter
    def longest(self, size: int) -> None:
        self._longest = size
        self.whole = self._is_whole()

    @property
    def held(self) -> int:
        """Bytes that have arrived and were not cut."""
        return self._end - self._at

    def space(self) -> memoryview:
        """Where to read into; never empty."""
        size = len(self._data)
        if self._end == size:  # frames wait, and TLS had decrypted more
            self._move(size if 2 * self._at >= size else 2 * size)
        return memoryview(self._data)[self._end :]

    def filled(self, count: int) -> None:
        """So many bytes were read into `space`."""
        self._end += count
        if not self.whole:
            self.whole = self._is_whole()
            if not self.whole:
                self._settle()

    def cut(self, most_frames: int, most_bytes: int) -> list[bytes]:
        """Take the next whole frames: up to `most_frames`, and none beyond one with which they have `most_bytes`.

        Raises FrameError if the first one is longer than `longest`.
        """
        data, at, end, longest = self._data, self._at, self._end, self._longest
        view = memoryview(data)
        last, stop = end - PREFIX.size, at + most_bytes
        frames: list[bytes] = []
        for _ in range(most_frames):
            if at > last or at >= stop:
                break
            (length,) = PREFIX.unpack_from(data, at)
            if at + length > last or length > longest:
                break
            begin = at + PREFIX.size
            at = begin + length
            frames.append(bytes(view[begin:at]))
        self._at = at
        self.whole = at != end and self._is_whole()
        if not self.whole:
            self._settle()
        elif not frames:
            (length,) = PREFIX.unpack_from(data, at)
            raise FrameError(f"frame of {length} bytes; {longest} at most")
        return frames

    def clear(self) -> None:
        """Drop what has arrived."""
        self._at = self._end
        self.whole = False
        self.pending = 0
        self._settle()

    def _is_whole(self) -> bool:
        self.pending = 0
        if self._end - self._at < PREFIX.size:
            return False
        length = int(PREFIX.unpack_from(self._data, self._at)[0])
        if length > self._longest or self._at + PREFIX.size + length <= self._end:
            return True
        self.pending = PREFIX.size + length
        return False

    def _settle(self) -> None:
        """Give the rest, which is no whole frame, the room that fits how much arrives."""
        size, rest = len(self._data), self._end - self._at
        if not rest and self._end < size <= BULK_BYTES:
            self._at = self._end = 0
            return
        if self._end == size and (size < BULK_BYTES or rest == size):
            size = min(2 * size, max(BULK_BYTES, self.pending + _SMALL_BYTES))
        elif size > BULK_BYTES and rest < _SMALL_BYTES:
            size = BULK_BYTES
        if self._at or size != len(self._data):
            self._move(size)

    def _move(self, size: int) -> None:
        """Have what was not cut at the beginning of a buffer of so many bytes."""
        rest = memoryview(self._data)[self._at : self._end]
        if size != len(self._data):
            self._data = bytearray(size)
        self._data[: len(rest)] = rest
        self._at, self._end = 0, len(rest)
