"""The order of the sections of a message that arrives in pieces, which are looked at one after the other.

Source: AMQP 1.0 part 3, 3.2 (message format).
"""

from __future__ import annotations

from isthmus_router.message.sections import (
    MOST_SECTIONS,
    Buffer,
    IncompleteError,
    SectionError,
    check_descriptors,
    check_order,
    section_at,
    skip_value,
)

BYTES_OF_A_SECTION = 1024
"""A message may have one section more for each such number of bytes: large ones are often sent as many sections."""
_LONGEST_START = 10
"""Of a section's descriptor, or of a value's constructor and size."""


class SectionOrder:
    """Sections must be in order and, but for those of the body, there once, as a receiver may read any of them."""

    __slots__ = ("_bytes", "_code", "_descriptors", "_sections", "_start", "_values", "left")

    def __init__(self) -> None:
        self.left = 0
        """Bytes of the present value that are still to come."""
        self._start = b""
        """The beginning of what comes next, of which more is needed."""
        self._values = 0
        """Values of the present section that are still to come, descriptors included."""
        self._code = 0
        """Of the present section."""
        self._descriptors = 0
        """In the value of the present section."""
        self._sections = 0
        self._bytes = 0

    def check(self, data: Buffer, size: int) -> None:
        """The next `size` bytes are at the start of `data`. Raises SectionError if they may not come next."""
        self._bytes += size
        at = 0
        while True:
            passed = min(self.left, size - at)
            self.left -= passed
            at += passed
            if at == size:
                return
            piece = self._start + bytes(data[at : min(at + _LONGEST_START, size)])
            try:
                end = self._next(piece)
            except IncompleteError:
                self._start = piece
                return
            at += end - len(self._start)
            self._start = b""

    def check_end(self) -> None:
        """The message ends here. Raises SectionError if it may not."""
        if self.left or self._start or self._values:
            raise SectionError("invalid message format: truncated")

    def _next(self, piece: bytes) -> int:
        """Where the descriptor of a section, or the start of a value, ends in `piece`; sets what is left of that."""
        if not self._values:
            code, end = section_at(piece, 0, len(piece))
            check_order(self._code, code)
            self._sections += 1
            most = MOST_SECTIONS + self._bytes // BYTES_OF_A_SECTION
            if self._sections > most:
                raise SectionError(f"more than {most} sections, of which all must be looked at")
            self._code, self._values, self._descriptors = code, 1, 0
            return end
        if piece[0] == 0:  # a descriptor follows, then a value
            self._descriptors += 1
            check_descriptors(self._descriptors)
            self._values += 1
            return 1
        end = skip_value(piece, 0, len(piece))
        self._values -= 1
        self.left = max(end - len(piece), 0)
        return min(end, len(piece))
