"""The Python forms of AMQP 1.0 values; :mod:`.types` says which stands for what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self, TypeAlias

MAX_NESTING = 32
"""Deepest accepted nesting of compound and described values, both when encoding and when decoding."""

MOST_VALUES = 1000
"""Values accepted when a value is decoded, those within it included, where the caller allows no other number."""

Buffer: TypeAlias = bytes | bytearray | memoryview


class DecodeError(ValueError):
    """The bytes are not a valid AMQP encoding. ``offset`` is where in the decoded buffer, in bytes."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} at offset {offset}")
        self.reason = reason
        self.offset = offset


class EncodeError(ValueError):
    """The Python value has no AMQP encoding: unknown type, out of range, nested too deeply."""


class Encoded(bytes):
    """A value that is encoded already, constructor included; only for encoding."""


class _SizedInt(int):
    """An integer of one AMQP width; construction raises ValueError outside ``minimum..maximum``."""

    minimum: ClassVar[int]
    maximum: ClassVar[int]

    def __new__(cls, value: int = 0) -> Self:
        if not cls.minimum <= value <= cls.maximum:
            raise ValueError(f"{value} is out of range for {cls.__name__}")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    __str__ = int.__repr__


class UByte(_SizedInt):
    minimum, maximum = 0, 2**8 - 1


class UShort(_SizedInt):
    minimum, maximum = 0, 2**16 - 1


class UInt(_SizedInt):
    minimum, maximum = 0, 2**32 - 1


class ULong(_SizedInt):
    minimum, maximum = 0, 2**64 - 1


class Byte(_SizedInt):
    minimum, maximum = -(2**7), 2**7 - 1


class Short(_SizedInt):
    minimum, maximum = -(2**15), 2**15 - 1


class Int(_SizedInt):
    minimum, maximum = -(2**31), 2**31 - 1


class Timestamp(_SizedInt):
    """Milliseconds since the Unix epoch, UTC."""

    minimum, maximum = -(2**63), 2**63 - 1


class Float(float):
    """A 32-bit float; the value is rounded to that precision when encoded."""

    def __repr__(self) -> str:
        return f"Float({float(self)!r})"


class Symbol(str):
    """An ASCII name from a constrained domain. Equal to, and hashing like, the same ``str``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Symbol({str(self)!r})"


class Char(str):
    """One Unicode character."""

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        if len(value) != 1:
            raise ValueError("a Char is exactly one character")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"Char({str(self)!r})"


class Decimal(bytes):
    """A decimal floating point number in its IEEE 754 encoding, not interpreted."""

    width: ClassVar[int]

    def __new__(cls, value: bytes) -> Self:
        if len(value) != cls.width:
            raise ValueError(f"a {cls.__name__} is {cls.width} bytes")
        return super().__new__(cls, value)


class Decimal32(Decimal):
    width = 4


class Decimal64(Decimal):
    width = 8


class Decimal128(Decimal):
    width = 16


@dataclass(frozen=True, slots=True)
class Described:
    """A value annotated with a descriptor (a symbol or an unsigned long, by convention)."""

    descriptor: object
    value: object


@dataclass(frozen=True, slots=True)
class Array:
    """A sequence of elements of one type.

    ``element_type`` is the Python type that stands for the AMQP type (``NoneType`` for null).
    ``descriptor``, if not None, describes every element.
    """

    element_type: type
    elements: tuple[object, ...]
    descriptor: object = None
