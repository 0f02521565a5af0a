"""Scan an encoded AMQP message just far enough to route it.

The forwarding path never decodes a message. It needs the router annotation section at the very start, the
`priority` of the header and the `to` of the properties; everything else passes through byte for byte.

Source: AMQP 1.0 part 3 (message format) for the sections; the router annotation section is the one routers
of the skupper-router family exchange (annotations version 2): a described list
`[flags, to-override, ingress router, trace, ingress mesh id?]` before every other section.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from isthmus_router.message.types import DecodeError, UInt, decode, encode

ANNOTATION_DESCRIPTOR = b"\x00\x80SKPR--RA"
_DESCRIPTOR_LENGTH = len(ANNOTATION_DESCRIPTOR)

FLAG_STREAMING = 1
"""In the flags: the delivery is passed on as it arrives, however small."""
FLAG_RESEND_RELEASED = 2
"""In the flags: a released delivery is sent to another receiver, wherever there is one."""

LONGEST_ADDRESS_BYTES = 4096
"""Of an address that a client or a message names: each of them is compared with patterns."""
MOST_SECTIONS = 1000
"""Of a message that is looked through to its end, those of its body included."""
MOST_ANNOTATION_VALUES = 300
"""In the annotation section: a trace has at most 128 routers."""

DEFAULT_PRIORITY = 4
MAX_PRIORITY = 9

_HEADER, _DELIVERY_ANNOTATIONS, _MESSAGE_ANNOTATIONS, _PROPERTIES = 0x70, 0x71, 0x72, 0x73
_DATA, _SEQUENCE, _VALUE, _FOOTER = 0x75, 0x76, 0x77, 0x78

Buffer = bytes | memoryview


class SectionError(ValueError):
    """The message does not follow the AMQP section format; `condition` is the AMQP error to answer with."""

    def __init__(self, description: str, condition: str = "amqp:decode-error") -> None:
        super().__init__(description)
        self.condition = condition

    def without_frames(self) -> Self:
        """The same, without references to the calls in which it was raised. If a variable of such a call has the error,
        both are in a cycle, and what the call has waits for a collection of garbage."""
        self.__context__ = self.__cause__ = None
        return self.with_traceback(None)


class IncompleteError(Exception):
    """The buffer ends before the wanted part; more of the message has to arrive first."""


@dataclass(frozen=True, slots=True)
class RouterAnnotations:
    """The router annotation section, decoded.

    `ingress` and `trace` hold full router names (`0/<router id>`).
    """

    flags: int = 0
    to_override: str | None = None
    ingress: str | None = None
    trace: tuple[str, ...] = ()
    mesh_id: str | None = None


def encode_annotations(
    flags: int,
    to_override: str | None,
    ingress: str | None,
    trace: Sequence[str],
    mesh_id: str | None = None,
) -> bytes:
    """The encoded section; an absent mesh id is left out, as peers refuse a null there."""
    elements: list[object] = [UInt(flags), to_override, ingress, list(trace)]
    if mesh_id is not None:
        elements.append(mesh_id)
    return ANNOTATION_DESCRIPTOR + encode(elements)


def annotations_length(data: Buffer, available: int) -> int:
    """Length in bytes of the annotation section at the start of `data`, 0 if there is none.

    Raises IncompleteError when the section has started but does not end within `available` bytes, and
    SectionError when its value is not a list.
    """
    if available < 12 or data[1] != 0x80 or data[0] != 0:
        return 0
    if data[:_DESCRIPTOR_LENGTH] != ANNOTATION_DESCRIPTOR:
        return 0
    code = data[_DESCRIPTOR_LENGTH]
    if code == 0xC0:
        end = _DESCRIPTOR_LENGTH + 2 + data[_DESCRIPTOR_LENGTH + 1]
    elif code == 0xD0:
        if available < _DESCRIPTOR_LENGTH + 5:
            raise IncompleteError
        start = _DESCRIPTOR_LENGTH + 1
        end = start + 4 + int.from_bytes(data[start : start + 4], "big")
    else:
        raise SectionError("invalid message format: the router annotations section is not a list")
    if end > available:
        raise IncompleteError
    return end


def decode_annotations(section: bytes) -> RouterAnnotations:
    """Decode a whole section as `annotations_length` delimited it.

    Raises SectionError (`amqp:invalid-field`) when elements are missing or of the wrong type.
    """

    def invalid(what: str) -> SectionError:
        return SectionError(f"Invalid router annotations section: {what}", "amqp:invalid-field")

    try:
        value, _ = decode(section, _DESCRIPTOR_LENGTH, most=MOST_ANNOTATION_VALUES)
    except DecodeError as error:
        raise invalid(str(error)) from error
    if not isinstance(value, list) or len(value) < 4:
        raise invalid("four elements expected")
    flags, to_override, ingress, trace = value[:4]
    if not isinstance(flags, int) or isinstance(flags, bool):
        raise invalid("flags must be a uint")
    for name, element in (("to-override", to_override), ("ingress", ingress)):
        if element is not None and type(element) is not str:
            raise invalid(f"{name} must be a string or null")
    if not isinstance(trace, list) or any(type(router) is not str for router in trace):
        raise invalid("trace must be a list of strings")
    mesh_id = None
    if len(value) > 4:
        mesh_id = value[4]
        if type(mesh_id) is not str:
            raise invalid("mesh id must be a string")
    return RouterAnnotations(flags, to_override, ingress, tuple(trace), mesh_id)


def section_at(data: Buffer, offset: int, available: int) -> tuple[int, int]:
    """(section code, offset of its value), or (0, offset) when there is no further known section."""
    if offset + 3 > available:
        raise IncompleteError
    if data[offset] != 0:
        raise SectionError("invalid message format: described section expected")
    constructor = data[offset + 1]
    if constructor == 0x53:
        return data[offset + 2], offset + 3
    if constructor == 0x80:
        if offset + 10 > available:
            raise IncompleteError
        code = int.from_bytes(data[offset + 2 : offset + 10], "big")
        return (code if code < 256 else 0), offset + 10
    raise SectionError("invalid message format: section descriptor must be a ulong")


def value_bounds(data: Buffer, offset: int, available: int) -> tuple[int, int, int]:
    """(first element, element count, end) of the list or map at `offset`."""
    if offset >= available:
        raise IncompleteError
    code = data[offset]
    if code == 0x45:
        return offset + 1, 0, offset + 1
    if code in {0xC0, 0xC1}:
        if offset + 3 > available:
            raise IncompleteError
        return offset + 3, data[offset + 2], offset + 2 + data[offset + 1]
    if code in {0xD0, 0xD1}:
        if offset + 9 > available:
            raise IncompleteError
        size = int.from_bytes(data[offset + 1 : offset + 5], "big")
        return offset + 9, int.from_bytes(data[offset + 5 : offset + 9], "big"), offset + 5 + size
    raise SectionError("invalid message format: list or map expected")


_FIXED_WIDTH = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}


def skip_value(data: Buffer, offset: int, available: int) -> int:
    """Offset behind the primitive value at `offset` (AMQP 1.0 part 1, 1.2: the subcategory gives the width)."""
    if offset >= available:
        raise IncompleteError
    code = data[offset]
    subcategory = code >> 4
    if subcategory in _FIXED_WIDTH:
        return offset + 1 + _FIXED_WIDTH[subcategory]
    if subcategory in {0xA, 0xC, 0xE}:
        if offset + 2 > available:
            raise IncompleteError
        return offset + 2 + data[offset + 1]
    if subcategory in {0xB, 0xD, 0xF}:
        if offset + 5 > available:
            raise IncompleteError
        return offset + 5 + int.from_bytes(data[offset + 1 : offset + 5], "big")
    raise SectionError("invalid message format: unknown type constructor")


def header_priority(data: Buffer, offset: int, available: int) -> int:
    """The header's priority (0..9) of the message that starts at `offset`, or the default of 4."""
    if available < offset + 6 or (data[offset + 1] == 0x53 and data[offset + 2] != _HEADER):
        return DEFAULT_PRIORITY
    if data[offset + 3] == 0xC0 and data[offset + 5] < 2:
        return DEFAULT_PRIORITY
    try:
        code, value = section_at(data, offset, available)
        if code != _HEADER:
            return DEFAULT_PRIORITY
        element, count, _ = value_bounds(data, value, available)
        if count < 2:
            return DEFAULT_PRIORITY
        element = skip_value(data, element, available)
        if element + 1 < available and data[element] == 0x50:
            return min(data[element + 1], MAX_PRIORITY)
    except (IncompleteError, SectionError):
        pass
    return DEFAULT_PRIORITY


def find_to(data: Buffer, offset: int, available: int) -> bytes | None:
    """The raw bytes of the properties' `to` field, or None when the message has none.

    Raises IncompleteError when more of the message is needed to tell, SectionError on a malformed one.
    """
    last = 0
    while True:
        if offset == available:
            return None
        code, value = section_at(data, offset, available)
        if code == _PROPERTIES:
            to = _property(data, value, available, 2, (0xA1, 0xB1, 0xA3, 0xB3), "to must be a string")
            if to is not None and len(to) > LONGEST_ADDRESS_BYTES:
                raise SectionError(
                    f"to has {len(to)} bytes: at most {LONGEST_ADDRESS_BYTES}", "amqp:invalid-field"
                )
            return to
        if code not in {_HEADER, _DELIVERY_ANNOTATIONS, _MESSAGE_ANNOTATIONS}:
            return None
        if code <= last:
            raise SectionError("invalid message format: sections out of order")
        last = code
        _, _, offset = value_bounds(data, value, available)
        if offset > available:
            raise IncompleteError


def find_user_id(data: Buffer, offset: int, available: int, *, complete: bool) -> bytes | None:
    """The properties' `user-id` field, or None when the message has none.

    `complete`: there is no more of the message than `available`. That no other decoder finds another one is what
    `structure.Structure` is for. Raises as `find_to` does.
    """
    while True:
        if offset == available:
            if complete:
                return None
            raise IncompleteError
        code, value = section_at(data, offset, available)
        if code == _PROPERTIES:
            return _property(data, value, available, 1, (0xA0, 0xB0), "user-id must be binary")
        if code > _PROPERTIES:
            return None
        _, _, offset = value_bounds(data, value, available)
        if offset > available:
            raise IncompleteError


def check_order(last: int, code: int) -> None:
    """Whether a section with this code may come behind one with the code `last` (0: the first). Raises SectionError."""
    if code < last or (code == last and code not in {_DATA, _SEQUENCE}) or not _HEADER <= code <= _FOOTER:
        raise SectionError("invalid message format: sections out of order")


def skip_any(data: Buffer, offset: int, available: int) -> int:
    """Offset behind the value at `offset`, which may be described."""
    values = 1
    while values:
        if offset >= available:
            raise IncompleteError
        if data[offset] == 0:  # a descriptor follows, then a value
            offset += 1
            values += 1
        else:
            offset = skip_value(data, offset, available)
            values -= 1
    return offset


def _property(
    data: Buffer, value: int, available: int, position: int, codes: tuple[int, ...], otherwise: str
) -> bytes | None:
    """The bytes of the field at `position` of the properties, of a variable-width type with one of `codes`."""
    element, count, end = value_bounds(data, value, available)
    if count <= position:
        return None
    if end > available:
        raise IncompleteError
    for _ in range(position):
        element = skip_value(data, element, available)
    return _bytes_at(data, element, available, codes, otherwise)


def _bytes_at(
    data: Buffer, offset: int, available: int, codes: tuple[int, ...], otherwise: str
) -> bytes | None:
    if offset >= available:
        raise IncompleteError
    code = data[offset]
    if code == 0x40:
        return None
    end = skip_value(data, offset, available)
    if end > available:
        raise IncompleteError
    if code not in codes:
        raise SectionError(f"invalid message format: {otherwise}")
    return bytes(data[offset + (2 if code < 0xB0 else 5) : end])
