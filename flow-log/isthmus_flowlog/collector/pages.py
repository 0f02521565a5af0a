"""The heads of the pages of a Parquet file, which say how large each page becomes: the footer may say anything.

Thrift's compact protocol, as far as Parquet uses it for these heads; anything else is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

Fields = dict[int, "int | Fields | None"]
_DEEPEST = 3
_LONGEST_VARINT = 10


class PageError(ValueError):
    """These are no heads of pages as a collector writes them."""


class _Type(IntEnum):
    TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY = range(1, 9)
    STRUCT = 12


@dataclass(frozen=True, slots=True)
class Page:
    """What the head of a page says."""

    size: int
    """Bytes, uncompressed."""
    values: int
    is_dictionary: bool


def pages(data: memoryview) -> Iterator[Page]:
    """The pages of a column chunk, which fill it. Raises PageError."""
    at = 0
    while at < len(data):
        fields, at = _struct(data, at, 0)
        size, compressed = _number(fields, 2), _number(fields, 3)
        # The heads of data pages (of both versions) and of dictionaries begin with the number of values.
        kinds = [head for head in map(fields.get, (5, 7, 8)) if isinstance(head, dict)]
        if len(kinds) != 1:
            raise PageError("a page is neither data nor a dictionary")
        yield Page(size, _number(kinds[0], 1), 7 in fields)
        at += compressed
    if at != len(data):
        raise PageError("the last page is cut off")


def _number(fields: Fields, name: int) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or not 0 <= value < 2**31:
        raise PageError("the head of a page has a number that cannot be")
    return value


def _struct(data: memoryview, at: int, depth: int) -> tuple[Fields, int]:
    """Fields by their numbers, and where the next thing is. None for what is no number and has none in it."""
    found: Fields = {}
    name = 0
    try:
        while head := data[at]:
            at += 1
            if head >> 4:
                name += head >> 4
            else:
                name, at = _zigzag(data, at)
            if name in found:
                raise PageError("the head of a page has a field twice")
            found[name], at = _value(data, at, head & 0x0F, depth)
    except IndexError:
        raise PageError("the head of a page is cut off") from None
    return found, at + 1


def _value(data: memoryview, at: int, kind: int, depth: int) -> tuple[int | Fields | None, int]:
    if kind in (_Type.TRUE, _Type.FALSE):
        return None, at
    if kind == _Type.I32:
        return _zigzag(data, at)
    if kind in (_Type.I16, _Type.I64):
        return None, _zigzag(data, at)[1]
    if kind == _Type.BINARY:
        length, at = _varint(data, at)
        return None, at + length
    if kind == _Type.STRUCT and depth < _DEEPEST:
        return _struct(data, at, depth + 1)
    raise PageError(f"the head of a page has a field of type {kind}")


def _zigzag(data: memoryview, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_LONGEST_VARINT):
        value |= (data[at + index] & 0x7F) << (7 * index)
        if data[at + index] < 0x80:
            return value, at + index + 1
    raise PageError("the head of a page has a number that is too long")
