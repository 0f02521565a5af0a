"""Thrift's compact protocol, as far as Parquet files of collectors use it; anything else is refused."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from isthmus_flowlog.arrow import UnfitError

_DEEPEST = 12
_LONGEST_VARINT = 10


class ThriftError(UnfitError):
    """This is not what a collector writes."""


class Type(IntEnum):
    """Of a value."""

    TRUE, FALSE, I8, I16, I32, I64 = range(1, 7)
    BINARY, LIST = 8, 9
    STRUCT = 12


Value: TypeAlias = "int | bytes | list[Value] | Struct | None"


class Struct:
    """Its fields, by their numbers; those that are asked for have the type that is asked for."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields: dict[int, tuple[int, Value]] = {}

    def put(self, number: int, kind: int, value: Value) -> None:
        """ThriftError if it is there already: readers differ in what they take then."""
        if number in self._fields:
            raise ThriftError("a field is there twice")
        self._fields[number] = (kind, value)

    def _get(self, number: int, kind: Type) -> Value:
        found, value = self._fields.get(number, (kind, None))
        if found != kind:
            raise ThriftError(f"field {number} has type {found}, not {kind}")
        return value

    def number(self, field: int, kind: Type = Type.I64) -> int:
        """A number that is there, and not negative."""
        value = self._get(field, kind)
        if not isinstance(value, int) or value < 0:
            raise ThriftError(f"number {field} is negative, or absent")
        return value

    def optional(self, field: int) -> int | None:
        """A number that may be absent."""
        return None if self._get(field, Type.I64) is None else self.number(field)

    def binary(self, field: int) -> bytes:
        """Empty if it is absent."""
        value = self._get(field, Type.BINARY)
        return value if isinstance(value, bytes) else b""

    def struct(self, field: int) -> Struct | None:
        """None if it is absent."""
        value = self._get(field, Type.STRUCT)
        return value if isinstance(value, Struct) else None

    def structs(self, field: int) -> list[Struct]:
        """A list, empty if it is absent."""
        return [value for value in self._list(field) if isinstance(value, Struct)]

    def binaries(self, field: int) -> list[bytes]:
        """A list, empty if it is absent."""
        return [value for value in self._list(field) if isinstance(value, bytes)]

    def _list(self, field: int) -> list[Value]:
        value = self._get(field, Type.LIST)
        return value if isinstance(value, list) else []


class Reader:
    """Reads structs from bytes, so many values of them at most."""

    def __init__(self, data: memoryview, most_values: int) -> None:
        self.at = 0
        self._data = data
        self._left = most_values

    def struct(self, depth: int = 0) -> Struct:
        """The struct that begins here. Raises ThriftError."""
        found = Struct()
        number = 0
        if depth > _DEEPEST:
            raise ThriftError("structs are too deep")
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            kind = head & 0x0F
            found.put(number, kind, self._value(kind, depth, in_list=False))
        return found

    def _value(self, kind: int, depth: int, *, in_list: bool) -> Value:
        self._left -= 1
        if self._left < 0:
            raise ThriftError("there are too many values")
        if kind in (Type.TRUE, Type.FALSE):
            return self._byte() if in_list else None
        if kind == Type.I8:
            return self._byte()
        if kind in (Type.I16, Type.I32, Type.I64):
            return self._zigzag()
        if kind == Type.BINARY:
            return self._bytes(self._varint())
        if kind == Type.STRUCT:
            return self.struct(depth + 1)
        if kind == Type.LIST:
            head = self._byte()
            count = head >> 4 if head >> 4 != 15 else self._varint()
            if count > self._left:
                raise ThriftError("there are too many values")
            return [self._value(head & 0x0F, depth + 1, in_list=True) for _ in range(count)]
        raise ThriftError(f"there is a value of type {kind}")

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise ThriftError("it is cut off")
        value = self._data[self.at]
        self.at += 1
        return value

    def _bytes(self, count: int) -> bytes:
        found = bytes(self._data[self.at : self.at + count])
        if len(found) < count:
            raise ThriftError("it is cut off")
        self.at += count
        return found

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = 0
        for index in range(_LONGEST_VARINT):
            byte = self._byte()
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise ThriftError("a number is too long")
