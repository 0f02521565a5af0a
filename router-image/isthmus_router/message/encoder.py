"""AMQP 1.0 values to bytes (part 1, 1.2 to 1.6), each in its most compact constructor."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from .values import (
    MAX_NESTING,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Encoded,
    EncodeError,
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

_Writer: TypeAlias = Callable[[bytearray, Any, int], None]
"""(output, value, depth): appends the value."""


def encode(value: Any) -> bytes:
    """Encode one value, constructor included, in its most compact form. Raises EncodeError."""
    out = bytearray()
    encode_into(out, value)
    return bytes(out)


def encode_into(out: bytearray, value: Any) -> None:
    """As :func:`encode`, appended to ``out``; ``out`` holds garbage at its end if EncodeError is raised."""
    try:
        _write(out, value, 0)
    except (struct.error, OverflowError, TypeError, UnicodeEncodeError) as error:
        raise EncodeError(f"cannot encode: {error}") from error


def _write(out: bytearray, value: Any, depth: int) -> None:
    writer = _WRITERS.get(type(value))
    if writer is None:
        writer = _inherited_writer(type(value))
    writer(out, value, depth)


def _inherited_writer(kind: type) -> _Writer:
    for base in kind.__mro__[1:]:
        writer = _WRITERS.get(base)
        if writer is not None:
            return writer
    if issubclass(kind, Mapping):
        return _write_map
    raise EncodeError(f"no AMQP type for {kind.__name__}")


def _check_depth(depth: int) -> None:
    if depth >= MAX_NESTING:
        raise EncodeError(f"nested deeper than {MAX_NESTING}")


def _write_null(out: bytearray, _value: Any, _depth: int) -> None:
    out.append(0x40)


def _write_bool(out: bytearray, value: Any, _depth: int) -> None:
    out.append(0x41 if value else 0x42)


def _write_uint(out: bytearray, value: Any, _depth: int) -> None:
    if value == 0:
        out.append(0x43)
    elif value <= 255:
        out += bytes((0x52, value))
    else:
        out += struct.pack(">BI", 0x70, value)


def _write_ulong(out: bytearray, value: Any, _depth: int) -> None:
    if value == 0:
        out.append(0x44)
    elif value <= 255:
        out += bytes((0x53, value))
    else:
        out += struct.pack(">BQ", 0x80, value)


def _write_int(out: bytearray, value: Any, _depth: int) -> None:
    small = -128 <= value <= 127
    out += struct.pack(">Bb", 0x54, value) if small else struct.pack(">Bi", 0x71, value)


def _write_long(out: bytearray, value: Any, _depth: int) -> None:
    small = -128 <= value <= 127
    out += struct.pack(">Bb", 0x55, value) if small else struct.pack(">Bq", 0x81, value)


def _fixed_writer(code: int, layout: str) -> _Writer:
    pack = struct.Struct(">B" + layout).pack

    def write(out: bytearray, value: Any, _depth: int) -> None:
        out += pack(code, value)

    return write


def _raw_writer(code: int) -> _Writer:
    def write(out: bytearray, value: Any, _depth: int) -> None:
        out.append(code)
        out += value

    return write


def _write_encoded(out: bytearray, value: Any, _depth: int) -> None:
    out += value


def _write_char(out: bytearray, value: Any, _depth: int) -> None:
    out += struct.pack(">BI", 0x73, ord(value))


def _write_uuid(out: bytearray, value: Any, _depth: int) -> None:
    out.append(0x98)
    out += value.bytes


def _write_sized(out: bytearray, small_code: int, data: bytes) -> None:
    """The variable-width forms: one length byte (0xAx), else four (0xBx)."""
    if len(data) <= 255:
        out += bytes((small_code, len(data)))
    else:
        out += struct.pack(">BI", small_code | 0x10, len(data))
    out += data


def _write_binary(out: bytearray, value: Any, _depth: int) -> None:
    _write_sized(out, 0xA0, value)


def _write_string(out: bytearray, value: Any, _depth: int) -> None:
    _write_sized(out, 0xA1, value.encode())


def _write_symbol(out: bytearray, value: Any, _depth: int) -> None:
    _write_sized(out, 0xA3, value.encode("ascii"))


def _write_compound(out: bytearray, small_code: int, count: int, content: bytearray) -> None:
    if len(content) < 255 and count <= 255:
        out += bytes((small_code, len(content) + 1, count))
    else:
        out += struct.pack(">BII", small_code | 0x10, len(content) + 4, count)
    out += content


def _write_list(out: bytearray, value: Any, depth: int) -> None:
    items: list[object] = value
    if not items:
        out.append(0x45)
        return
    _check_depth(depth)
    content = bytearray()
    for item in items:
        _write(content, item, depth + 1)
    _write_compound(out, 0xC0, len(items), content)


def _write_map(out: bytearray, value: Any, depth: int) -> None:
    items: Mapping[object, object] = value
    _check_depth(depth)
    content = bytearray()
    for key, item in items.items():
        _write(content, key, depth + 1)
        _write(content, item, depth + 1)
    _write_compound(out, 0xC1, 2 * len(items), content)


def _write_described(out: bytearray, value: Any, depth: int) -> None:
    assert isinstance(value, Described)
    _check_depth(depth)
    out.append(0x00)
    _write(out, value.descriptor, depth + 1)
    _write(out, value.value, depth + 1)


def _write_array(out: bytearray, value: Any, depth: int) -> None:
    assert isinstance(value, Array)
    _check_depth(depth)
    if value.element_type not in _ARRAY_ELEMENTS:
        raise EncodeError(f"no array of {value.element_type.__name__}")
    code, write_element = _ARRAY_ELEMENTS[value.element_type]
    content = bytearray()
    if value.descriptor is not None:
        content.append(0x00)
        _write(content, value.descriptor, depth + 1)
    content.append(code)
    for element in value.elements:
        write_element(content, element, depth + 1)
    _write_compound(out, 0xE0, len(value.elements), content)


_WRITERS: dict[type, _Writer] = {
    type(None): _write_null,
    bool: _write_bool,
    int: _write_long,
    UByte: _fixed_writer(0x50, "B"),
    UShort: _fixed_writer(0x60, "H"),
    UInt: _write_uint,
    ULong: _write_ulong,
    Byte: _fixed_writer(0x51, "b"),
    Short: _fixed_writer(0x61, "h"),
    Int: _write_int,
    float: _fixed_writer(0x82, "d"),
    Float: _fixed_writer(0x72, "f"),
    Decimal32: _raw_writer(0x74),
    Decimal64: _raw_writer(0x84),
    Decimal128: _raw_writer(0x94),
    Char: _write_char,
    Timestamp: _fixed_writer(0x83, "q"),
    uuid.UUID: _write_uuid,
    Encoded: _write_encoded,
    bytes: _write_binary,
    bytearray: _write_binary,
    memoryview: _write_binary,
    str: _write_string,
    Symbol: _write_symbol,
    list: _write_list,
    tuple: _write_list,
    dict: _write_map,
    Array: _write_array,
    Described: _write_described,
}


def _element_packer(layout: str) -> _Writer:
    pack = struct.Struct(">" + layout).pack

    def write(out: bytearray, value: Any, _depth: int) -> None:
        out += pack(value)

    return write


def _element_sized(to_bytes: Callable[[Any], bytes]) -> _Writer:
    def write(out: bytearray, value: Any, _depth: int) -> None:
        data = to_bytes(value)
        out += struct.pack(">I", len(data))
        out += data

    return write


def _write_list_element(out: bytearray, value: Any, depth: int) -> None:
    items: list[object] = value
    _check_depth(depth)
    content = bytearray()
    for item in items:
        _write(content, item, depth + 1)
    out += struct.pack(">II", len(content) + 4, len(items))
    out += content


def _write_map_element(out: bytearray, value: Any, depth: int) -> None:
    items: Mapping[object, object] = value
    _write_list_element(out, [part for pair in items.items() for part in pair], depth)


def _write_array_element(out: bytearray, value: Any, depth: int) -> None:
    whole = bytearray()
    _write_array(whole, value, depth)
    if whole[0] == 0xF0:
        out += whole[1:]
    else:
        out += struct.pack(">II", whole[1] + 3, whole[2])
        out += whole[3:]


_ARRAY_ELEMENTS: dict[type, tuple[int, _Writer]] = {
    type(None): (0x40, lambda _out, _value, _depth: None),
    bool: (0x56, _element_packer("?")),
    int: (0x81, _element_packer("q")),
    UByte: (0x50, _element_packer("B")),
    UShort: (0x60, _element_packer("H")),
    UInt: (0x70, _element_packer("I")),
    ULong: (0x80, _element_packer("Q")),
    Byte: (0x51, _element_packer("b")),
    Short: (0x61, _element_packer("h")),
    Int: (0x71, _element_packer("i")),
    float: (0x82, _element_packer("d")),
    Float: (0x72, _element_packer("f")),
    Decimal32: (0x74, _element_packer("4s")),
    Decimal64: (0x84, _element_packer("8s")),
    Decimal128: (0x94, _element_packer("16s")),
    Char: (0x73, lambda out, value, _depth: out.extend(struct.pack(">I", ord(value)))),
    Timestamp: (0x83, _element_packer("q")),
    uuid.UUID: (0x98, lambda out, value, _depth: out.extend(value.bytes)),
    bytes: (0xB0, _element_sized(lambda value: value)),
    str: (0xB1, _element_sized(lambda value: value.encode())),
    Symbol: (0xB3, _element_sized(lambda value: value.encode("ascii"))),
    list: (0xD0, _write_list_element),
    dict: (0xD1, _write_map_element),
    Array: (0xF0, _write_array_element),
}
