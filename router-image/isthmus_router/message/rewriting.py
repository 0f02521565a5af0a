"""Change what a message says on its way without touching its body: add a message annotation, lengthen its reply-to.

Everything else stays byte for byte as it was sent. Source: AMQP 1.0 part 3, 3.2 (sections of a message).
"""

from __future__ import annotations

from isthmus_router.message.sections import (
    IncompleteError,
    SectionError,
    section_at,
    skip_value,
    value_bounds,
)
from isthmus_router.message.structure import Structure, elements_without
from isthmus_router.message.types import Symbol, encode

_HEADER, _DELIVERY_ANNOTATIONS, _MESSAGE_ANNOTATIONS, _PROPERTIES = 0x70, 0x71, 0x72, 0x73
_REPLY_TO = 4
_NULL = 0x40
MOST_ANNOTATIONS = 1000
"""Message annotations of a relayed message, each of which is looked at by every member that has a receiver."""
MOST_VALUES = 32_768
"""Values of a relayed message that are checked, sections included."""
RESERVED = b"x-opt-isthmus."
"""How the names of annotations begin that only routers make: from senders they are not passed on."""


class Annotation:
    """A message annotation; `value` is anything that `encode` takes."""

    __slots__ = ("_alone", "_encoded")

    def __init__(self, key: str, value: object) -> None:
        self._encoded = encode(Symbol(key)) + encode(value)
        self._alone = _annotations(self._encoded, 2)

    @property
    def section(self) -> bytes:
        """A section that has nothing else."""
        return self._alone

    def among(self, payload: bytes, value: int) -> tuple[bytes, int]:
        """The section whose map is at `value`, with this annotation in it in place of all that are
        reserved; where the section ended."""
        element, count, end = value_bounds(payload, value, len(payload))
        if end > len(payload):
            raise IncompleteError
        if count > 2 * MOST_ANNOTATIONS:
            raise SectionError(f"more than {MOST_ANNOTATIONS} message annotations", "amqp:invalid-field")
        if payload.find(RESERVED, element, end) < 0:
            return _annotations(self._encoded + payload[element:end], count + 2), end
        kept, left = [self._encoded], 2
        for start, behind, elements in elements_without(payload, element, end, count, RESERVED):
            kept.append(payload[start:behind])
            left += elements
        return _annotations(b"".join(kept), left), end


def _annotations(elements: bytes, count: int) -> bytes:
    return b"\x00\x53\x72\xd1" + (len(elements) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + elements


def annotated(payload: bytes, annotation: Annotation, reply_prefix: str | None) -> bytes:
    """The message with the annotation in place of any that is reserved, and `reply_prefix` in front of its reply-to.

    Without a prefix, or a reply-to, that stays. Raises SectionError on what does not follow the section format, or what
    receivers could read in another way. The body of a message with more values than `MOST_VALUES` is not checked to its
    end. SectionError too if they come before the body, and it has a reserved name.
    """
    try:
        return _annotated(payload, annotation, reply_prefix, Structure().check_first(payload, MOST_VALUES))
    except IncompleteError:
        raise SectionError("invalid message format: truncated") from None


def _annotated(payload: bytes, annotation: Annotation, reply_prefix: str | None, checked: int) -> bytes:
    """`checked`: bytes of the message that all decoders read in the same way."""
    size = len(payload)
    at = 0
    code = 0
    while at < size:
        code, value = section_at(payload, at, size)
        if code not in {_HEADER, _DELIVERY_ANNOTATIONS}:
            break
        _, _, at = value_bounds(payload, value, size)
    if at > size:
        raise IncompleteError
    head, section, rest = payload[:at], annotation.section, at
    if at < size and code == _MESSAGE_ANNOTATIONS:
        section, rest = annotation.among(payload, value)
    if rest > checked and RESERVED in payload:
        raise SectionError(f"more than {MOST_VALUES} values, of which all must be looked at")
    if reply_prefix is not None and rest < size:
        code, value = section_at(payload, rest, size)
        if code == _PROPERTIES:
            return head + section + _answered_elsewhere(payload, rest, value, reply_prefix)
    return head + section + payload[rest:]


def _answered_elsewhere(payload: bytes, start: int, value: int, prefix: str) -> bytes:
    """From the properties on, at `start` with their list at `value`, with the prefix in front of a reply-to."""
    element, count, end = value_bounds(payload, value, len(payload))
    if end > len(payload):
        raise IncompleteError
    if count <= _REPLY_TO:
        return payload[start:]
    first = element
    for _ in range(_REPLY_TO):
        element = skip_value(payload, element, end)
    behind = skip_value(payload, element, end)
    if behind > end:
        raise IncompleteError
    if payload[element] == _NULL:
        return payload[start:]
    if payload[element] not in {0xA1, 0xB1}:
        raise SectionError("invalid message format: reply-to must be a string")
    text = payload[element + (2 if payload[element] == 0xA1 else 5) : behind]
    address = prefix.encode() + text
    fields = (
        payload[first:element] + b"\xb1" + len(address).to_bytes(4, "big") + address + payload[behind:end]
    )
    return (
        b"\x00\x53\x73\xd0"
        + (len(fields) + 4).to_bytes(4, "big")
        + count.to_bytes(4, "big")
        + fields
        + payload[end:]
    )
