"""Random encodings of AMQP values. Most parts are valid: a decoder goes astray behind what it has understood.

Source: AMQP 1.0 part 1, 1.2 (type encodings).
"""

from __future__ import annotations

import random

FIXED = (
    *(0x40, 0x41, 0x42, 0x43, 0x44, 0x45),  # nothing
    *(0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56),  # a byte
    *(0x60, 0x61),  # 2 bytes
    *(0x70, 0x71, 0x72, 0x73, 0x74),  # 4 bytes
    *(0x80, 0x81, 0x82, 0x83, 0x84),  # 8 bytes
    *(0x94, 0x98),  # 16 bytes
)
VARIABLE = (0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3)
LISTS, MAPS, ARRAYS = (0xC0, 0xD0), (0xC1, 0xD1), (0xE0, 0xF0)
DESCRIBED = 0x00
CODES = (*FIXED, *VARIABLE, *LISTS, *MAPS, *ARRAYS, *(DESCRIBED,) * 3)
DEEPEST = 5
WIDTHS = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
"""Bytes of a value of fixed width, by the first half of its code."""

WRONG_SIZE, WRONG_COUNT, WRONG_ELEMENT, WRONG_BYTE = 0.05, 0.1, 0.1, 0.2


def encoding(chance: random.Random, depth: int = 0) -> bytes:
    """One value, `depth` values deep in another one."""
    begun = _constructor(chance, depth)
    return begun + _content(chance, begun[-1], depth)


def mutated_encoding(chance: random.Random) -> bytes:
    """One value, of which a byte may be any other."""
    whole = bytearray(encoding(chance))
    if chance.random() < WRONG_BYTE:
        whole[chance.randrange(len(whole))] = chance.randrange(256)
    return bytes(whole)


def _constructor(chance: random.Random, depth: int) -> bytes:
    """A code, with descriptors in front of it or not."""
    code = chance.choice(CODES if depth < DEEPEST else FIXED)
    if code != DESCRIBED:
        return bytes((code,))
    if chance.random() < WRONG_ELEMENT:
        return b"\0" + encoding(chance, depth + 1) + bytes((chance.choice(CODES),))
    return b"\0" + encoding(chance, depth + 1) + _constructor(chance, depth + 1)


def _content(chance: random.Random, code: int, depth: int) -> bytes:
    """What is behind the code."""
    if code in FIXED:
        return chance.randbytes(WIDTHS[code >> 4])
    width = 1 if code in (*VARIABLE[:3], LISTS[0], MAPS[0], ARRAYS[0]) else 4
    if code in VARIABLE:
        size = chance.randrange(20)
        return size.to_bytes(width) + chance.choice((b"a" * size, chance.randbytes(size)))
    count = chance.randrange(5) * (2 if code in MAPS else 1)
    if code in ARRAYS:
        items = _constructor(chance, depth + 1)
        element = items[-1]
        for _ in range(count):
            wrong = chance.random() < WRONG_ELEMENT
            items += encoding(chance, depth + 1) if wrong else _content(chance, element, depth + 1)
    elif code in (*LISTS, *MAPS):
        items = b"".join(encoding(chance, depth + 1) for _ in range(count))
    else:  # what descriptors are in front of, if that is no value
        return b""
    if chance.random() < WRONG_COUNT:
        count = chance.choice((chance.randrange(256), 65_535, 2**32 - 1))
    size = len(items) + width
    if chance.random() < WRONG_SIZE:
        size += chance.choice((-2, -1, 1, 2, 100))
    most = 256**width - 1
    return min(max(size, 0), most).to_bytes(width) + min(count, most).to_bytes(width) + items
