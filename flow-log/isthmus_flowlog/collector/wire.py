"""What sources say, read from encoded messages: beacons, heartbeats, records.

Of routers of this project and of the skupper-router family: message ids are ulong or long, keys strings or symbols.
Records are nearly all there is to decode, so their maps are read by a loop that knows which encodings they have, four
times as fast as value by value; everything else is left to the general decoder.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from struct import unpack_from
from typing import Any, TypeAlias

from isthmus_flowlog.collector.columns import ATTRIBUTES
from isthmus_flowlog.schema import LARGEST, LARGEST_BUCKET, LARGEST_COUNT, Kind
from isthmus_router.flows.messages import commands_address, records_address
from isthmus_router.flows.records import LONGEST_STRING, Attr
from isthmus_router.message.control import decode_message
from isthmus_router.message.sections import IncompleteError, SectionError, section_at, skip_any
from isthmus_router.message.types import DecodeError, decode

_PROPERTIES, _VALUE = 0x73, 0x77
_MESSAGE_ID, _SUBJECT = 0, 3
_COMPOUND = 0xC0
"""The least type code of lists, maps and arrays, but for the empty list."""
MOST_RECORDS = 1000
"""In a message; routers send 50."""

MOST_VALUES = 200
"""In a record, known or not."""
LONGEST_RECORD = 16 * 1024
"""Bytes."""
LONGEST_IDENTITY = 128
"""Characters, of a record or its parent."""
_SOURCE = re.compile(r"(?!all\Z)[A-Za-z0-9_:-]{1,64}\Z")
"""Ids of sources. None has a dot, so no address of one source is an address of another."""

_TYPES: dict[int, type] = {
    int(attribute): {Kind.STRING: str, Kind.SKETCH: list}.get(kind, int)
    for attribute, kind in ATTRIBUTES.items()
}
_TYPE, _IDENTITY, _PARENT = int(Attr.TYPE), int(Attr.IDENTITY), int(Attr.PARENT)

Attributes: TypeAlias = dict[int, Any]
"""Of a record: numbers, strings, and sketches as lists of (bucket, count)."""


class MalformedError(ValueError):
    """The message is none that a source sends."""


class ForgedError(MalformedError):
    """A beacon names a source that cannot be, or addresses that are not those of its source."""


@dataclass(frozen=True, slots=True)
class Beacon:
    """A source says that it is there."""

    number: int
    source: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A source is alive."""

    number: int


@dataclass(frozen=True, slots=True)
class Records:
    """What has changed about some records."""

    number: int
    records: list[Attributes]


def read(payload: bytes) -> Beacon | Heartbeat | Records | None:
    """The message; None for one of another subject. Raises MalformedError."""
    try:
        return _read(payload)
    except MalformedError:
        raise
    except (
        DecodeError,
        SectionError,
        IncompleteError,
        IndexError,
        struct.error,
        ValueError,
        TypeError,
    ) as error:
        raise MalformedError(f"{type(error).__name__}: {error}") from error


def _read(payload: bytes) -> Beacon | Heartbeat | Records | None:
    number, subject, position = 0, None, 0
    end = len(payload)
    while position < end:
        code, value = section_at(payload, position, end)
        if code == _VALUE and subject == "RECORD":
            return Records(number, _records(payload, value))
        position = skip_any(payload, value, end)
        if code == _PROPERTIES:
            properties, _ = decode(payload, value)
            if not isinstance(properties, list) or len(properties) <= _SUBJECT:
                raise MalformedError("no subject")
            number, subject = properties[_MESSAGE_ID], properties[_SUBJECT]
            if not isinstance(number, int) or number < 0:
                raise MalformedError("a message id that does not count")
            number = int(number)
            if subject in {"BEACON", "HEARTBEAT"}:
                return _presence(payload, number, subject)
    return None


def _presence(payload: bytes, number: int, subject: str) -> Beacon | Heartbeat:
    if subject == "HEARTBEAT":
        return Heartbeat(number)
    properties: Mapping[str, object] = decode_message(payload).application_properties
    source, address, direct = (properties.get(key) for key in ("id", "address", "direct"))
    if not (isinstance(address, str) and isinstance(direct, str)):
        raise MalformedError("a beacon without addresses")
    name = str(source) if source else direct.removeprefix("sfe.")
    if not _SOURCE.match(name):
        raise ForgedError("the id of a source has other characters, or more, than it may have")
    # What a message names is never attached to: any address of the network could be named.
    if address != records_address(name) or direct != commands_address(name):
        raise ForgedError(f"a beacon of {name} with addresses of another")
    return Beacon(number, name)


def _records(data: bytes, position: int) -> list[Attributes]:
    code = data[position]
    if code == 0x45:
        return []
    count, position, end = _compound(data, position, (0xC0, 0xD0))
    if count > MOST_RECORDS:
        raise MalformedError(f"{count} records")
    found = []
    for _ in range(count):
        record, position = _map(data, position)
        found.append(record)
    if position != end:
        raise MalformedError("records do not fill their list")
    return found


def _compound(data: bytes, position: int, codes: tuple[int, int]) -> tuple[int, int, int]:
    """(count, where the content begins, where it ends) of the list or map at `position`."""
    code = data[position]
    if code == codes[0]:
        count, begin, end = data[position + 2], position + 3, position + 2 + data[position + 1]
    elif code == codes[1]:
        size, count = unpack_from(">II", data, position + 1)
        begin, end = position + 9, position + 5 + size
    else:
        raise MalformedError(f"type code 0x{code:02x}")
    if end > len(data):
        raise MalformedError("cut off")
    return count, begin, end


def _map(data: bytes, position: int) -> tuple[Attributes, int]:
    """A record. Lengths are not checked value by value: one that is wrong does not end where the map ends."""
    count, position, end = _compound(data, position, (0xC1, 0xD1))
    if count > 2 * MOST_VALUES or end - position > LONGEST_RECORD:
        raise MalformedError("a record that is too large")
    found: Attributes = {}
    value: Any
    while position < end:
        code = data[position]
        if code == 0x52:  # smalluint
            key = data[position + 1]
            position += 2
        elif code == 0x70:  # uint
            (key,) = unpack_from(">I", data, position + 1)
            position += 5
        elif code == 0x43:  # uint0
            key = 0
            position += 1
        else:
            other, position = decode(data, position, most=1)
            if not isinstance(other, int):
                raise MalformedError("the key of an attribute is no number")
            key = int(other)
        if key not in _TYPES:
            position = skip_any(data, position, end)
            continue
        code = data[position]
        if code in {0x53, 0x52}:  # smallulong, smalluint
            value = data[position + 1]
            position += 2
        elif code in {0x44, 0x43}:  # ulong0, uint0
            value = 0
            position += 1
        elif code == 0x80:  # ulong
            value = min(unpack_from(">Q", data, position + 1)[0], LARGEST)
            position += 9
        elif code == 0x70:  # uint
            (value,) = unpack_from(">I", data, position + 1)
            position += 5
        elif code == 0xA1:  # str8
            begin = position + 2
            position = begin + data[position + 1]
            value = data[begin:position].decode()
        elif code in {0xC1, 0xD1}:
            value, position = _sketch(data, position)
        else:
            value, position = _other(data, position)
        found[key] = value
    if position != end:
        raise MalformedError("attributes do not fill their map")
    return _checked(found), position


def _checked(found: Attributes) -> Attributes:
    """The record, if each attribute is of its type. Raises MalformedError."""
    for attribute, value in found.items():
        if type(value) is not _TYPES[attribute]:
            raise MalformedError(f"attribute {attribute} is a {type(value).__name__}")
    if _TYPE not in found or _IDENTITY not in found:
        raise MalformedError("a record without type or identity")
    if not 0 < len(found[_IDENTITY]) <= LONGEST_IDENTITY or len(found.get(_PARENT, "")) > LONGEST_IDENTITY:
        raise MalformedError("an identity that is empty or too long")
    return found


def _other(data: bytes, position: int) -> tuple[object, int]:
    """A value in another encoding, as a plain number or string; no attribute is a list, a map or an array."""
    if data[position] >= _COMPOUND or data[position] in {0x00, 0x45}:
        return (), skip_any(data, position, len(data))
    value, position = decode(data, position, most=1)
    if isinstance(value, int):
        if value < 0:
            raise MalformedError("a number below 0")
        return min(int(value), LARGEST), position
    return (str(value)[:LONGEST_STRING] if isinstance(value, str) else value), position


def _sketch(data: bytes, position: int) -> tuple[list[tuple[int, int]], int]:
    _, position, end = _compound(data, position, (0xC1, 0xD1))
    found = []
    while position < end:
        if data[position] == 0x52:
            bucket = data[position + 1]
            position += 2
        else:
            bucket, position = _number(data, position)
        code = data[position]
        if code == 0x53:
            found.append((bucket, data[position + 1]))
            position += 2
        elif code == 0x80:
            found.append((bucket, min(unpack_from(">Q", data, position + 1)[0], LARGEST_COUNT)))
            position += 9
        else:
            count, position = _number(data, position)
            found.append((bucket, min(count, LARGEST_COUNT)))
        if bucket > LARGEST_BUCKET or len(found) > LARGEST_BUCKET + 1:
            raise MalformedError("a sketch has no such bucket")
    if position != end:
        raise MalformedError("counts do not fill their sketch")
    if len({bucket for bucket, _ in found}) != len(found):
        raise MalformedError("a sketch has a bucket twice")
    return found, position


def _number(data: bytes, position: int) -> tuple[int, int]:
    value, position = decode(data, position, most=1)
    if not isinstance(value, int) or value < 0:
        raise MalformedError("a sketch counts by number")
    return int(value), position
