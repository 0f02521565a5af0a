"""Bytes to AMQP 1.0 values (part 1, 1.2 to 1.6): every constructor is accepted, garbage is refused.

Work and memory are bounded: counts are checked against sizes before anything is built, and the number of values and
their nesting are limited.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any, TypeAlias

from .values import (
    MAX_NESTING,
    MOST_VALUES,
    Array,
    Buffer,
    Byte,
    Char,
    Decimal,
    Decimal32,
    Decimal64,
    Decimal128,
    DecodeError,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

MOST_WEAK_KEYS = 16
"""In a map, of types for which a sender can find any number of values with the same hash."""
_LIST_WIDTHS = {0xC0: 1, 0xD0: 4}
"""By the constructor of a list, the bytes of its size and of its count."""
_WEAKLY_HASHED = frozenset((uuid.UUID, float, Float, Array, Described))

_Reader: TypeAlias = Callable[[bytes, int, int, int, "Allowance"], tuple[object, int]]
"""(buffer, position after the constructor, end of the enclosing value, depth, allowance) -> (value, next position)."""


class Allowance:
    """How many values may still be decoded, those within others included.

    A byte can be a value, and an array can have any number of elements that take no bytes: what a peer sends must not
    decide how long decoding takes, nor how much memory.
    """

    __slots__ = ("left", "most", "readers")

    def __init__(self, most: int, *, plain: bool = False) -> None:
        """`plain`: of lists, strings, bytes, longs, booleans and nulls only, as others take up to six times as long."""
        self.most = self.left = most
        self.readers = _PLAIN_READERS if plain else _READERS

    def take(self, values: int, position: int) -> None:
        """Raises DecodeError if there are fewer than so many left."""
        self.left -= values
        if self.left < 0:
            raise DecodeError(f"more than {self.most} values", position)


def decode(data: Buffer, offset: int = 0, *, most: int = MOST_VALUES) -> tuple[object, int]:
    """Decode the value that starts at ``offset``: (value, offset behind it).

    Raises DecodeError, also for more than ``most`` values: an array counts as two and its elements.
    """
    buffer = data if isinstance(data, bytes) else bytes(data)
    return _read(buffer, offset, len(buffer), 0, Allowance(most))


def decode_within(buffer: bytes, offset: int, allowance: Allowance) -> tuple[object, int]:
    """As ``decode``, for one of several values that have an allowance together."""
    return _read(buffer, offset, len(buffer), 0, allowance)


def decode_all(data: Buffer, *, most: int = MOST_VALUES, plain: bool = False) -> object:
    """Decode the one value that ``data`` holds. Raises DecodeError as ``decode`` does, also for bytes left over.

    ``plain``: values of other types than list, str, bytes, int, bool and None are refused.
    """
    buffer = data if isinstance(data, bytes) else bytes(data)
    value, end = _read(buffer, 0, len(buffer), 0, Allowance(most, plain=plain))
    if end != len(buffer):
        raise DecodeError("bytes left over", end)
    return value


def decode_first(data: Buffer, count: int, *, most: int = MOST_VALUES) -> list[object]:
    """Decode the first ``count`` items of the list that ``data`` begins with, and none of those behind them.

    Raises DecodeError as ``decode`` does, and for fewer items. The rest may be malformed.
    """
    buffer = data if isinstance(data, bytes) else bytes(data)
    width = _LIST_WIDTHS.get(buffer[0]) if buffer else None
    if width is None:
        raise DecodeError("list expected", 0)
    found, position, stop = _compound_bounds(buffer, 1, len(buffer), width, 0)
    if found < count:
        raise DecodeError(f"{found} items in place of {count}", position)
    items, allowance = [], Allowance(most)
    for _ in range(count):
        item, position = _read(buffer, position, stop, 1, allowance)
        items.append(item)
    return items


def _read(buffer: bytes, position: int, end: int, depth: int, allowance: Allowance) -> tuple[object, int]:
    if position >= end:
        raise DecodeError("value expected, data ends", position)
    allowance.left -= 1
    if allowance.left < 0:
        raise DecodeError(f"more than {allowance.most} values", position)
    reader = allowance.readers[buffer[position]]
    if reader is None:
        raise DecodeError(f"unknown type code 0x{buffer[position]:02x}", position)
    return reader(buffer, position + 1, end, depth, allowance)


def _too_short(position: int, width: int, end: int) -> DecodeError:
    return DecodeError(f"{width} bytes needed, {end - position} left", position)


def _need(position: int, width: int, end: int) -> int:
    stop = position + width
    if stop > end:
        raise _too_short(position, width, end)
    return stop


def _constant_reader(value: object) -> _Reader:
    def read(
        _buffer: bytes, position: int, _end: int, _depth: int, _allowance: Allowance
    ) -> tuple[object, int]:
        return value, position

    return read


def _read_boolean(
    buffer: bytes, position: int, end: int, _depth: int, _allowance: Allowance
) -> tuple[object, int]:
    stop = _need(position, 1, end)
    if buffer[position] > 1:
        raise DecodeError("boolean is neither 0 nor 1", position)
    return buffer[position] == 1, stop


def _fixed_reader(layout: str, kind: type[int] | type[float] | None = None) -> _Reader:
    """Reads the struct ``layout``; the number becomes a ``kind``, or stays the plain one struct gives."""
    unpack = struct.Struct(">" + layout).unpack_from
    width = struct.calcsize(">" + layout)

    def read(
        buffer: bytes, position: int, end: int, _depth: int, _allowance: Allowance
    ) -> tuple[object, int]:
        stop = position + width
        if stop > end:
            raise _too_short(position, width, end)
        return unpack(buffer, position)[0], stop

    def read_as(
        buffer: bytes, position: int, end: int, _depth: int, _allowance: Allowance
    ) -> tuple[object, int]:
        stop = position + width
        if stop > end:
            raise _too_short(position, width, end)
        return new(kind, unpack(buffer, position)[0]), stop

    # The width already bounds the value: the range check of the wrapper's constructor is bypassed.
    new: Any = int.__new__ if kind is not None and issubclass(kind, int) else float.__new__
    return read if kind is None else read_as


def _decimal_reader(kind: type[Decimal]) -> _Reader:
    def read(
        buffer: bytes, position: int, end: int, _depth: int, _allowance: Allowance
    ) -> tuple[object, int]:
        stop = _need(position, kind.width, end)
        return kind(buffer[position:stop]), stop

    return read


def _read_char(
    buffer: bytes, position: int, end: int, _depth: int, _allowance: Allowance
) -> tuple[object, int]:
    stop = _need(position, 4, end)
    code = int.from_bytes(buffer[position:stop])
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise DecodeError("char beyond Unicode", position)
    return Char(chr(code)), stop


def _read_uuid(
    buffer: bytes, position: int, end: int, _depth: int, _allowance: Allowance
) -> tuple[object, int]:
    stop = _need(position, 16, end)
    return uuid.UUID(bytes=buffer[position:stop]), stop


def _size(buffer: bytes, position: int, end: int, width: int) -> int:
    stop = _need(position, width, end)
    return buffer[position] if width == 1 else int.from_bytes(buffer[position:stop])


def _variable_reader(size_width: int, convert: Callable[[bytes], object]) -> _Reader:
    def read(
        buffer: bytes, position: int, end: int, _depth: int, _allowance: Allowance
    ) -> tuple[object, int]:
        start = position + size_width
        if start > end:
            raise _too_short(position, size_width, end)
        stop = start + (buffer[position] if size_width == 1 else int.from_bytes(buffer[position:start]))
        if stop > end:
            raise _too_short(start, stop - start, end)
        try:
            return convert(buffer[start:stop]), stop
        except UnicodeDecodeError as error:
            raise DecodeError(f"not valid {error.encoding}", start + error.start) from error

    return read


def _symbol(data: bytes) -> Symbol:
    return Symbol(data.decode("ascii"))


def _compound_bounds(buffer: bytes, position: int, end: int, width: int, depth: int) -> tuple[int, int, int]:
    """Read size and count; returns (count, position of the content, end of the content)."""
    if depth >= MAX_NESTING:
        raise DecodeError(f"nested deeper than {MAX_NESTING}", position)
    size = _size(buffer, position, end, width)
    stop = _need(position + width, size, end)
    if size < width:
        raise DecodeError("size does not cover the count", position)
    return _size(buffer, position + width, stop, width), position + 2 * width, stop


def _list_reader(width: int) -> _Reader:
    def read(buffer: bytes, position: int, end: int, depth: int, allowance: Allowance) -> tuple[object, int]:
        count, position, stop = _compound_bounds(buffer, position, end, width, depth)
        return _items(buffer, position, stop, count, depth, allowance), stop

    return read


def _items(
    buffer: bytes, position: int, stop: int, count: int, depth: int, allowance: Allowance
) -> list[object]:
    """``count`` values that must fill ``position..stop`` exactly."""
    start = position
    if count > stop - position:
        raise DecodeError(f"{count} elements in {stop - position} bytes", position)
    items: list[object] = []
    depth += 1
    for _ in range(count):
        item, position = _read(buffer, position, stop, depth, allowance)
        items.append(item)
    if position != stop:
        raise DecodeError(f"{count} elements do not fill the size", start)
    return items


def _map_reader(width: int) -> _Reader:
    def read(buffer: bytes, position: int, end: int, depth: int, allowance: Allowance) -> tuple[object, int]:
        count, position, stop = _compound_bounds(buffer, position, end, width, depth)
        if count % 2:
            raise DecodeError("map with an odd number of elements", position)
        items = _items(buffer, position, stop, count, depth, allowance)
        keys = items[::2]
        if sum(type(key) in _WEAKLY_HASHED for key in keys) > MOST_WEAK_KEYS:
            raise DecodeError(f"map with more than {MOST_WEAK_KEYS} keys of unusual types", position)
        try:
            return dict(zip(keys, items[1::2], strict=True)), stop
        except TypeError as error:
            raise DecodeError("compound value as map key", position) from error

    return read


def _array_reader(width: int) -> _Reader:
    def read(buffer: bytes, position: int, end: int, depth: int, allowance: Allowance) -> tuple[object, int]:
        count, position, stop = _compound_bounds(buffer, position, end, width, depth)
        _need(position, 1, stop)
        descriptor: object = None
        if buffer[position] == 0x00:
            descriptor, position = _read(buffer, position + 1, stop, depth + 1, allowance)
            _need(position, 1, stop)
        code = buffer[position]
        kind, reader = _ELEMENT_TYPES.get(code), _READERS[code]
        if kind is None or reader is None:
            raise DecodeError(f"type code 0x{code:02x} cannot be an array element", position)
        position += 1
        if count > stop - position and code & 0xF0 != 0x40:
            raise DecodeError(f"{count} elements in {stop - position} bytes", position)
        allowance.take(1 + count, position)
        elements = []
        for _ in range(count):
            element, position = reader(buffer, position, stop, depth + 1, allowance)
            elements.append(element)
        if position != stop:
            raise DecodeError(f"{count} elements do not fill the size", position)
        return Array(kind, tuple(elements), descriptor), stop

    return read


def _read_described(
    buffer: bytes, position: int, end: int, depth: int, allowance: Allowance
) -> tuple[object, int]:
    if depth >= MAX_NESTING:
        raise DecodeError(f"nested deeper than {MAX_NESTING}", position)
    descriptor, position = _read(buffer, position, end, depth + 1, allowance)
    value, position = _read(buffer, position, end, depth + 1, allowance)
    return Described(descriptor, value), position


_TYPES: dict[int, tuple[type, _Reader]] = {
    0x40: (type(None), _constant_reader(None)),
    0x41: (bool, _constant_reader(True)),
    0x42: (bool, _constant_reader(False)),
    0x43: (UInt, _constant_reader(UInt(0))),
    0x44: (ULong, _constant_reader(ULong(0))),
    0x45: (list, lambda _buffer, position, _end, _depth, _allowance: ([], position)),
    0x50: (UByte, _fixed_reader("B", UByte)),
    0x51: (Byte, _fixed_reader("b", Byte)),
    0x52: (UInt, _fixed_reader("B", UInt)),
    0x53: (ULong, _fixed_reader("B", ULong)),
    0x54: (Int, _fixed_reader("b", Int)),
    0x55: (int, _fixed_reader("b")),
    0x56: (bool, _read_boolean),
    0x60: (UShort, _fixed_reader("H", UShort)),
    0x61: (Short, _fixed_reader("h", Short)),
    0x70: (UInt, _fixed_reader("I", UInt)),
    0x71: (Int, _fixed_reader("i", Int)),
    0x72: (Float, _fixed_reader("f", Float)),
    0x73: (Char, _read_char),
    0x74: (Decimal32, _decimal_reader(Decimal32)),
    0x80: (ULong, _fixed_reader("Q", ULong)),
    0x81: (int, _fixed_reader("q")),
    0x82: (float, _fixed_reader("d")),
    0x83: (Timestamp, _fixed_reader("q", Timestamp)),
    0x84: (Decimal64, _decimal_reader(Decimal64)),
    0x94: (Decimal128, _decimal_reader(Decimal128)),
    0x98: (uuid.UUID, _read_uuid),
    0xA0: (bytes, _variable_reader(1, bytes)),
    0xA1: (str, _variable_reader(1, bytes.decode)),
    0xA3: (Symbol, _variable_reader(1, _symbol)),
    0xB0: (bytes, _variable_reader(4, bytes)),
    0xB1: (str, _variable_reader(4, bytes.decode)),
    0xB3: (Symbol, _variable_reader(4, _symbol)),
    0xC0: (list, _list_reader(_LIST_WIDTHS[0xC0])),
    0xC1: (dict, _map_reader(1)),
    0xD0: (list, _list_reader(_LIST_WIDTHS[0xD0])),
    0xD1: (dict, _map_reader(4)),
    0xE0: (Array, _array_reader(1)),
    0xF0: (Array, _array_reader(4)),
}

_ELEMENT_TYPES = {code: kind for code, (kind, _) in _TYPES.items()}
_READERS: list[_Reader | None] = [_TYPES[code][1] if code in _TYPES else None for code in range(256)]
_READERS[0x00] = _read_described
_PLAIN_READERS = [
    reader if code in _TYPES and _TYPES[code][0] in (list, str, bytes, int, bool, type(None)) else None
    for code, reader in enumerate(_READERS)
]
