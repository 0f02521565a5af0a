# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False
"""Whether all decoders find the same values in a message, which may arrive in pieces.

A list or a map states how many bytes and how many elements it has. Some decoders go by the bytes, others by the
elements: where the two disagree, they read different messages. The same is true of sections that are out of order or
there twice.

This module is compiled if it can be (`structure.pxd`), as it looks at each value.

Source: AMQP 1.0 part 1, 1.6 (encodings); part 3, 3.2 (message format).
"""

from __future__ import annotations

from isthmus_router.message.sections import (
    MOST_SECTIONS,
    SectionError,
    check_order,
)

BYTES_OF_A_SECTION = 1024
"""A message may have one section more for each such number of bytes: large ones are often sent as many sections."""
MOST_DEPTH = 32
"""Of lists, maps and arrays within each other."""
_LONGEST_START = 10
"""Of a section's descriptor, or of a value up to the content of its own."""
_LISTS, _MAPS, _BINARIES = b"\x45\xc0\xd0", b"\xc1\xd1", b"\xa0\xb0"
_TYPES = {
    0x70: _LISTS,
    0x71: _MAPS,
    0x72: _MAPS,
    0x73: _LISTS,
    0x74: _MAPS,
    0x75: _BINARIES,
    0x76: _LISTS,
    0x78: _MAPS,
}
"""Constructors that the value of a section may have, by its code."""


class Structure:
    """Follows the values of one message; the state of a machine that is given pieces of it."""

    __slots__ = (
        "_bytes",
        "_code",
        "_count",
        "_depth",
        "_element",
        "_end",
        "_last",
        "_left",
        "_outer",
        "_sections",
        "_start",
    )

    def __init__(self) -> None:
        self._left = 0
        """Bytes of the present value that are still to come and need not be looked at."""
        self._start = b""
        """The beginning of what comes next, of which more is needed."""
        self._bytes = 0
        """Of the pieces before the present one."""
        self._sections = 0
        self._last = 0
        """The code of the present section."""
        self._code = 0
        """The same, until the constructor of its value has come."""
        self._count = 0
        """Values that are still to come in the present list, map or array, or else in the section."""
        self._end = 0
        """Where that ends, in bytes of the message."""
        self._element = 0
        """The constructor of its elements, in an array."""
        self._depth = 0
        self._outer: list[tuple[int, int, int]] = []
        """`_count`, `_end` and `_element` of those around it."""

    def check(self, data: bytes | memoryview, size: int) -> None:
        """The next `size` bytes of the message are at the start of `data`. Raises SectionError if they may not come."""
        at = 0
        if self._start:
            kept = len(self._start)
            piece = self._start + bytes(data[: min(size, _LONGEST_START - kept)])
            at = self._next(piece, 0, len(piece), self._bytes - kept)
            if at < 0:
                self._start = piece
                self._bytes += size
                return
            at -= kept
            self._start = b""
        while True:
            if self._left:
                passed = min(self._left, size - at)
                self._left -= passed
                at += passed
            if at >= size:
                break
            behind = self._next(data, at, size, self._bytes)
            if behind < 0:
                self._start = bytes(data[at:size])
                break
            at = behind
        self._bytes += size

    def check_first(self, data: bytes | memoryview, most: int) -> int:
        """Check the first `most` values of a whole message, sections included, in place of `check` and `check_end`.

        Return the offset behind them: the size of the message if it has no more. Raises SectionError.
        """
        size = len(data)
        at = 0
        while at < size:
            if not most:
                return at
            most -= 1
            at = self._next(data, at, size, 0)
            if at < 0:
                break
            at += self._left
            self._left = 0
        if at != size:
            raise SectionError("invalid message format: truncated")
        self._bytes = size
        self.check_end()
        return size

    def passes(self, size: int) -> bool:
        """Whether the next `size` bytes need not be looked at, as they are in the middle of a value; they are next."""
        if self._left < size:
            return False
        self._left -= size
        self._bytes += size
        return True

    def check_end(self) -> None:
        """The message ends here. Raises SectionError if it may not."""
        if not self._left and not self._start:
            self._close(self._bytes)
        if self._left or self._start or self._count or self._depth:
            raise SectionError("invalid message format: truncated")

    def _close(self, position: int) -> None:
        """End lists, maps and arrays of which all elements have come."""
        while self._depth and not self._count:
            if position != self._end:
                raise SectionError("invalid message format: a list or map has another size than its elements")
            self._depth -= 1
            self._count, self._end, self._element = self._outer.pop()

    def _next(self, data: bytes | memoryview, at: int, size: int, base: int) -> int:
        """Deal with what is at `at`, and `base` bytes further in the message, up to the content of a value.

        Where that ends; -1 if more is needed.
        """
        self._close(base + at)
        if not self._count:
            return self._section(data, at, size)
        code = self._element
        if not code:
            code = data[at]
            if self._code:
                types = _TYPES.get(self._code)
                if types is not None and code not in types:
                    raise SectionError("invalid message format: a section has a value of another type")
            if code == 0:  # a descriptor follows, then a value
                self._code = 0
                self._count += 1
                return at + 1
            at += 1
        kind = code >> 4
        if kind < 0x4:
            raise SectionError("invalid message format: unknown type constructor")
        if kind < 0xA:
            self._left = _width(kind)
        elif kind in {0xA, 0xB}:
            start = at + (1 if kind == 0xA else 4)
            if start > size:
                return -1
            self._left = _number(data, at, start)
            at = start
        else:
            return self._compound(code, data, at, size, base)
        self._code = 0
        self._count -= 1
        return at

    def _section(self, data: bytes | memoryview, at: int, size: int) -> int:
        if at + 3 > size:
            return -1
        if data[at] or data[at + 1] not in {0x53, 0x80}:
            raise SectionError("invalid message format: described section expected")
        code, end = data[at + 2], at + 3
        if data[at + 1] == 0x80:
            end = at + 10
            if end > size:
                return -1
            code = min(_number(data, at + 2, end), 0xFF)
        if code != self._last or code not in {0x75, 0x76}:  # as in `check_order`, for bodies of many sections
            check_order(self._last, code)
        self._sections += 1
        most = MOST_SECTIONS + self._bytes // BYTES_OF_A_SECTION
        if self._sections > most:
            raise SectionError(f"more than {most} sections, of which all must be looked at")
        self._last = self._code = code
        self._count = 1
        return end

    def _compound(self, code: int, data: bytes | memoryview, at: int, size: int, base: int) -> int:
        """The start of a list, a map or an array whose size is at `at`."""
        wide = code >> 4 in {0xD, 0xF}
        width = 4 if wide else 1
        array = code >= 0xE0
        start = at + 2 * width
        if start > size:
            return -1
        end = at + width + _number(data, at, at + width)
        count = _number(data, at + width, start)
        element = 0
        if array and not (count == 0 and end == start):
            if start + 1 > size:
                return -1
            element = data[start]
            start += 1
            kind = element >> 4
            if kind < 0x4 or kind > 0xB:
                raise SectionError("invalid message format: an array of values that are not simple")
            if kind < 0xA:
                self._left = count * _width(kind)
                count = 0
                if start + self._left != end:
                    raise SectionError("invalid message format: an array has another size than its elements")
        elif code in {0xC1, 0xD1} and count % 2:
            raise SectionError("invalid message format: a map has a key without a value")
        elif not array and code not in {0xC0, 0xC1, 0xD0, 0xD1}:
            raise SectionError("invalid message format: unknown type constructor")
        self._code = 0
        self._count -= 1
        if array and not count:
            if element >= 0xA0 and start != end:
                raise SectionError("invalid message format: an array has another size than its elements")
            return start
        if self._depth == MOST_DEPTH:
            raise SectionError(f"invalid message format: more than {MOST_DEPTH} lists within each other")
        self._outer.append((self._count, self._end, self._element))
        self._depth += 1
        self._count, self._end, self._element = count, base + end, element
        return start


def elements_without(
    data: bytes | memoryview, at: int, end: int, count: int, prefix: bytes
) -> list[tuple[int, int, int]]:
    """Find the elements of a map of `count` keys and values, between `at` and `end`, whose keys do not begin with
    `prefix`.

    Return runs of them: where each begins and ends, and the number of its keys and values. Raises SectionError if the
    map ends elsewhere, or has a key without a value.
    """
    runs: list[tuple[int, int, int]] = []
    start = at
    length = 0
    for _ in range(count // 2):
        behind = _behind(data, _behind(data, at, end), end)
        # Some take a string for a symbol. Behind the type are 4 bytes of length, or 1.
        if _begins_with(data, at + (5 if data[at] >= 0xB0 else 2), end, prefix, len(prefix)):
            if length:
                runs.append((start, at, length))
            start = behind
            length = 0
        else:
            length += 2
        at = behind
    if at != end or count % 2:
        raise SectionError("invalid message format: a map has another size than its elements")
    if length:
        runs.append((start, at, length))
    return runs


def _behind(data: bytes | memoryview, at: int, end: int) -> int:
    """Offset behind the value at `at`, which may be described, and ends at `end` at the latest."""
    values = 1
    while values:
        if at >= end:
            raise SectionError("invalid message format: annotation beyond its section")
        code = data[at]
        kind = code >> 4
        at += 1
        if code == 0:  # a descriptor follows, then a value
            values += 1
            continue
        values -= 1
        if kind < 0x4:
            raise SectionError("invalid message format: unknown type constructor")
        if kind < 0xA:
            at += _width(kind)
        elif kind in {0xA, 0xC, 0xE}:
            at += 1 + (data[at] if at < end else 0)
        else:
            at += 4 + (_number(data, at, at + 4) if at + 4 <= end else 0)
    if at > end:
        raise SectionError("invalid message format: annotation beyond its section")
    return at


def _begins_with(data: bytes | memoryview, at: int, end: int, prefix: bytes, length: int) -> bool:
    if end - at < length:
        return False
    place = 0
    while place < length and data[at + place] == prefix[place]:
        place += 1
    return place == length


def _width(kind: int) -> int:
    """Of a value whose constructor has 4 to 9 in its first half: 0, 1, 2, 4, 8 or 16 bytes."""
    return (1 << (kind - 4)) >> 1


def _number(data: bytes | memoryview, at: int, end: int) -> int:
    number = 0
    for place in range(at, end):
        number = (number << 8) | data[place]
    return number
