"""Whole messages that the router itself writes or reads: routing protocol, management, address tracking.

AMQP 1.0 part 3 (messaging), 3.2. Bare in, bare out: a router annotation section in front of a message read
here is skipped, and none is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from .types import (
    MOST_VALUES,
    Allowance,
    Buffer,
    DecodeError,
    Described,
    EncodeError,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    decode_within,
    encode_into,
)

_ROUTER_ANNOTATIONS = int.from_bytes(b"SKPR--RA")

_HEADER, _DELIVERY_ANNOTATIONS, _MESSAGE_ANNOTATIONS, _PROPERTIES, _APPLICATION_PROPERTIES = range(0x70, 0x75)
_DATA, _SEQUENCE, _VALUE, _FOOTER = range(0x75, 0x79)

_SECTION_NAMES: dict[str, int] = {
    "amqp:header:list": _HEADER,
    "amqp:delivery-annotations:map": _DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": _MESSAGE_ANNOTATIONS,
    "amqp:properties:list": _PROPERTIES,
    "amqp:application-properties:map": _APPLICATION_PROPERTIES,
    "amqp:data:binary": _DATA,
    "amqp:amqp-sequence:list": _SEQUENCE,
    "amqp:amqp-value:*": _VALUE,
    "amqp:footer:map": _FOOTER,
}


class BodyKind(Enum):
    """Which sections make up the body."""

    NONE = "none"
    VALUE = "amqp-value"
    SEQUENCE = "amqp-sequence"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class Header:
    """The header section; None is an absent field, for which AMQP defines the default."""

    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    """Milliseconds."""
    first_acquirer: bool | None = None
    delivery_count: int | None = None


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties section, in its field order.

    Message and correlation id keep the AMQP type they came with. Illegal ones (a long, say, which some peers
    send) are accepted: they only have to be echoed.
    """

    message_id: object = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: object = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    """Milliseconds since the epoch."""
    creation_time: int | None = None
    """Milliseconds since the epoch."""
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message; a None or empty section is not written.

    ``body`` is the value, the elements of all sequence sections as one list, or the bytes of all data
    sections, according to ``body_kind``.
    """

    header: Header | None = None
    delivery_annotations: Mapping[object, object] = field(default_factory=dict)
    message_annotations: Mapping[object, object] = field(default_factory=dict)
    properties: Properties = Properties()
    application_properties: Mapping[str, object] = field(default_factory=dict)
    body: object = None
    body_kind: BodyKind = BodyKind.VALUE
    footer: Mapping[object, object] = field(default_factory=dict)


_MAP_SECTIONS: dict[object, str] = {
    _DELIVERY_ANNOTATIONS: "delivery_annotations",
    _MESSAGE_ANNOTATIONS: "message_annotations",
    _APPLICATION_PROPERTIES: "application_properties",
    _FOOTER: "footer",
}
_BODY_CODES: dict[BodyKind, int] = {
    BodyKind.VALUE: _VALUE,
    BodyKind.SEQUENCE: _SEQUENCE,
    BodyKind.DATA: _DATA,
}
_BODY_SECTIONS: dict[object, BodyKind] = {code: kind for kind, code in _BODY_CODES.items()}

_Layout: TypeAlias = Mapping[str, tuple[type | None, type | None]]
"""Per field of a list section: the Python type accepted (None: any), the wrapper written (None: as it is)."""

_HEADER_FIELDS: _Layout = {
    "durable": (bool, None),
    "priority": (int, UByte),
    "ttl": (int, UInt),
    "first_acquirer": (bool, None),
    "delivery_count": (int, UInt),
}
_PROPERTY_FIELDS: _Layout = {
    "message_id": (None, None),
    "user_id": (bytes, None),
    "to": (str, None),
    "subject": (str, None),
    "reply_to": (str, None),
    "correlation_id": (None, None),
    "content_type": (str, Symbol),
    "content_encoding": (str, Symbol),
    "absolute_expiry_time": (int, Timestamp),
    "creation_time": (int, Timestamp),
    "group_id": (str, None),
    "group_sequence": (int, UInt),
    "reply_to_group_id": (str, None),
}


def encode_message(message: Message) -> bytes:
    """Encode all sections in AMQP order. Raises EncodeError (ValueError) for a value AMQP cannot carry."""
    out = bytearray()
    if message.header is not None:
        _write_section(out, _HEADER, _field_list(message.header, _HEADER_FIELDS))
    _write_map_section(out, _DELIVERY_ANNOTATIONS, message.delivery_annotations)
    _write_map_section(out, _MESSAGE_ANNOTATIONS, message.message_annotations)
    properties = _field_list(message.properties, _PROPERTY_FIELDS)
    if properties:
        _write_section(out, _PROPERTIES, properties)
    _write_map_section(out, _APPLICATION_PROPERTIES, message.application_properties)
    if message.body_kind is not BodyKind.NONE:
        _write_section(out, _BODY_CODES[message.body_kind], message.body)
    _write_map_section(out, _FOOTER, message.footer)
    return bytes(out)


def _write_section(out: bytearray, code: int, value: object) -> None:
    out += bytes((0x00, 0x53, code))
    encode_into(out, value)


def _write_map_section(out: bytearray, code: int, value: Mapping[Any, object]) -> None:
    if value:
        _write_section(out, code, value)


def _field_list(section: Header | Properties, layout: _Layout) -> list[object]:
    """The section's fields, without trailing absent ones."""
    values: list[object] = []
    for name, (_, wrapper) in layout.items():
        value = getattr(section, name)
        try:
            values.append(value if wrapper is None or value is None else wrapper(value))
        except ValueError as error:
            raise EncodeError(f"{name.replace('_', '-')}: {error}") from error
    while values and values[-1] is None:
        values.pop()
    return values


def decode_message(data: Buffer, *, most: int = MOST_VALUES) -> Message:
    """Decode a complete message. Raises DecodeError (ValueError) for anything that is not one.

    All its sections together may have ``most`` values.
    """
    buffer = bytes(data)
    allowance = Allowance(most)
    parts: dict[str, Any] = {}
    offset = 0
    while offset < len(buffer):
        start = offset
        section, offset = decode_within(buffer, offset, allowance)
        if not isinstance(section, Described):
            raise DecodeError("not a message section", start)
        code = _section_code(section.descriptor)
        value = section.value
        if code == _ROUTER_ANNOTATIONS and start == 0:
            continue
        if code == _HEADER:
            parts["header"] = Header(**_parse_fields(value, _HEADER_FIELDS, start))
        elif code == _PROPERTIES:
            parts["properties"] = Properties(**_parse_fields(value, _PROPERTY_FIELDS, start))
        elif code in _MAP_SECTIONS:
            parts[_MAP_SECTIONS[code]] = _parse_map(code, value, start)
        elif code in _BODY_SECTIONS:
            _parse_body(parts, _BODY_SECTIONS[code], value, start)
        else:
            raise DecodeError(f"unknown message section {section.descriptor!r}", start)
    if parts.get("body_kind") is BodyKind.DATA:
        parts["body"] = b"".join(parts["body"])
    return Message(**{"body_kind": BodyKind.NONE, **parts})


def _section_code(descriptor: object) -> int | None:
    """None for a descriptor that is of no section; it may be of any type, a list for example."""
    if isinstance(descriptor, str):
        return _SECTION_NAMES.get(descriptor)
    return int(descriptor) if isinstance(descriptor, int) else None


def _parse_fields(value: object, layout: _Layout, start: int) -> dict[str, Any]:
    """The fields that are present and not null."""
    if not isinstance(value, list) or len(value) > len(layout):
        raise DecodeError("message section is not a list of its fields", start)
    present: dict[str, Any] = {}
    for (name, (kind, _)), item in zip(layout.items(), value, strict=False):
        if item is None:
            continue
        if kind is not None and not isinstance(item, kind):
            raise DecodeError(f"{name.replace('_', '-')} of wrong type", start)
        present[name] = item
    return present


def _parse_map(code: object, value: object, start: int) -> dict[object, object]:
    if not isinstance(value, dict):
        raise DecodeError("message section is not a map", start)
    if code == _APPLICATION_PROPERTIES and not all(isinstance(key, str) for key in value):
        raise DecodeError("application property key is not a string", start)
    return value


def _parse_body(parts: dict[str, Any], kind: BodyKind, value: object, start: int) -> None:
    """Store the body; data and sequence sections may repeat."""
    previous = parts.setdefault("body_kind", kind)
    if previous is not kind or (kind is BodyKind.VALUE and "body" in parts):
        raise DecodeError("more than one body", start)
    if kind is BodyKind.VALUE:
        parts["body"] = value
    elif kind is BodyKind.DATA and isinstance(value, bytes):
        parts.setdefault("body", []).append(value)
    elif kind is BodyKind.SEQUENCE and isinstance(value, list):
        parts.setdefault("body", []).extend(value)
    else:
        raise DecodeError(f"{kind.value} section of wrong type", start)
