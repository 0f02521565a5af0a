"""Random AMQP values of every type, valid ones and others."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

from tests.integration.support.invalid import INVALID, SWALLOWED
from tests.security.fuzz.encodings import mutated_encoding

from isthmus_router.message.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Encoded,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    encode,
)

SIZES = (0, 1, 8, 31, 32, 33, 255, 256, 1000)
EDGES = (0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)
DESCRIPTORS = (*range(0x10, 0x19), 0x1D, *range(0x23, 0x36), *range(0x40, 0x45), *range(0x70, 0x79), 0, 2**40)
BROKEN = tuple(Encoded(value) for value in (INVALID | SWALLOWED).values())


def _text(chance: random.Random) -> str:
    return "".join(chance.choice("aä/.$\0_") for _ in range(chance.choice(SIZES)))


_SCALARS: tuple[Callable[[random.Random], Any], ...] = (
    lambda _: None,
    lambda chance: chance.random() < 0.5,
    lambda chance: UByte(chance.randrange(256)),
    lambda chance: UShort(chance.choice(EDGES[:9])),
    lambda chance: UInt(chance.choice(EDGES)),
    lambda chance: ULong(chance.choice((*EDGES, 2**64 - 1))),
    lambda chance: Byte(chance.randrange(-128, 128)),
    lambda chance: Short(chance.randrange(-(2**15), 2**15)),
    lambda chance: Int(chance.randrange(-(2**31), 2**31)),
    lambda chance: chance.choice((-1, 0, 2**63 - 1, -(2**63))),
    lambda chance: Float(chance.random()),
    lambda chance: chance.choice((0.0, float("nan"), float("inf"))),
    lambda chance: Decimal32(chance.randbytes(4)),
    lambda chance: Decimal64(chance.randbytes(8)),
    lambda chance: Decimal128(chance.randbytes(16)),
    lambda _: Char("ä"),
    lambda chance: Timestamp(chance.choice((0, -1, 2**62))),
    lambda chance: uuid.UUID(bytes=chance.randbytes(16)),
    lambda chance: chance.randbytes(chance.choice(SIZES)),
    _text,
    lambda chance: Symbol("s" * chance.choice(SIZES)),
    lambda chance: chance.choice(BROKEN),
    lambda chance: Encoded(chance.randbytes(chance.choice((1, 2, 5, 20)))),
    lambda chance: Encoded(mutated_encoding(chance)),
)


def value(chance: random.Random, depth: int = 3) -> Any:
    """One of any type."""
    kind = chance.random()
    if depth == 0 or kind < 0.7:
        return chance.choice(_SCALARS)(chance)
    if kind < 0.8:
        return Encoded(mutated_encoding(chance))
    if kind < 0.85:
        return {chance.choice(("a", Symbol("b"), ULong(3))): value(chance, depth - 1)}
    if kind < 0.9:
        return Array(Symbol, tuple(Symbol("s") for _ in range(chance.choice((0, 1, 2, 300)))))
    if kind < 0.95:
        return [value(chance, depth - 1) for _ in range(chance.randrange(5))]
    return Described(ULong(chance.choice(DESCRIPTORS)), value(chance, depth - 1))


def encoded(chance: random.Random, depth: int = 3) -> bytes:
    """One as bytes."""
    return encode(value(chance, max(0, depth)))


def spoil(chance: random.Random, whole: Any) -> Any:
    """A value in which a part is another one, or all of it is."""
    if isinstance(whole, Described) and chance.random() < 0.9:
        if chance.random() < 0.1:
            return Described(value(chance, 0), whole.value)
        return Described(whole.descriptor, spoil(chance, whole.value))
    if isinstance(whole, list) and whole and chance.random() < 0.95:
        parts = list(whole)
        at = chance.randrange(len(parts))
        what = chance.random()
        if what < 0.8:
            parts[at] = spoil(chance, parts[at])
        elif what < 0.9:
            del parts[at:]
        else:
            parts.insert(at, value(chance))
        return parts
    return value(chance)
