"""Frames on a stream of bytes: each has its length before it, 4 bytes, in network order."""

from __future__ import annotations

import struct

from isthmus_router.groups.frames import FrameError

PREFIX = struct.Struct(">I")
FIRST_BYTES = 4 * 1024
"""Of room for what arrives, so that many who say nothing cost little; who fills it gets more, up to `BULK_BYTES`."""
BULK_BYTES = 256 * 1024
_SMALL_BYTES = 64 * 1024
"""That are left of what came in bulk, when the room for a long frame is given back."""


class FrameBuffer:
    """What has arrived of a stream. The socket reads into it; a whole frame is copied out of it, once.

    Room grows with what has arrived, never with what a length claims.
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest
        """Bytes of the longest frame that is taken."""
        self._data = bytearray(FIRST_BYTES)
        self._end = 0

    def space(self) -> memoryview:
        """Where to read into; never empty."""
        return memoryview(self._data)[self._end :]

    def filled(self, count: int) -> list[bytes]:
        """So many bytes were read into `space`. Returns the frames that are whole now.

        Raises FrameError where one is longer than `longest`; those before it are lost then.
        """
        data = self._data
        end = self._end + count
        full = end == len(data)
        view = memoryview(data)
        frames: list[bytes] = []
        at = 0
        while end - at >= PREFIX.size:
            (length,) = PREFIX.unpack_from(data, at)
            after = at + PREFIX.size + length
            if length > self.longest:
                raise FrameError(f"frame of {length} bytes; {self.longest} at most")
            if after > end:
                break
            frames.append(bytes(view[at + PREFIX.size : after]))
            at = after
        rest = end - at
        size = len(data)
        if full and (size < BULK_BYTES or rest == size):
            size *= 2
        elif size > BULK_BYTES and rest < _SMALL_BYTES:
            size = BULK_BYTES
        if size != len(data):
            self._data = bytearray(size)
        if at or size != len(data):
            self._data[:rest] = view[at:end]
        self._end = rest
        return frames
