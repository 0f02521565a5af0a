"""Dispositions that would have the engine copy too much, which do not get to it.

The engine copies the state of a disposition to each delivery that it names before the router sees the first event.

Source: AMQP 1.0 part 2, 2.3.1 (frame layout), 2.7.6 (disposition); `core/transport.c` of qpid-proton.
"""

from __future__ import annotations

from typing import Final

from isthmus_router.core.terms import Condition

MOST_COPIED_BYTES: Final = 16 * 1024 * 1024
"""The bytes of one disposition times the deliveries that it names."""
SHORT_BYTES: Final = 64
"""A disposition that is not longer has no state of a size that matters."""
COPIES_TOO_MUCH: Final = Condition(
    "amqp:resource-limit-exceeded",
    "a disposition names too many deliveries for the size of its state: name fewer, or leave out the details",
)

_DISPOSITION = 0x15
_ALL = 1 << 32
_LIST_HEADS = {0xC0: 3, 0xD0: 9}
_ROLES = {0x40: 1, 0x41: 1, 0x42: 1, 0x56: 2}
_NUMBERS = {0x40: 0, 0x43: 0, 0x52: 1, 0x70: 4}


def copies_too_much(data: bytes | memoryview, deliveries: int) -> bool:
    """Tell whether one of the frames that `data` begins with has the engine copy too much.

    Args:
        data: input of the engine, which begins with a frame. An incomplete frame at its end is not examined, since the
            engine gets it again.
        deliveries: how many the connection has unsettled, or more.
    """
    start = 0
    while len(data) - start > SHORT_BYTES:
        size = int.from_bytes(data[start : start + 4])
        if not 8 <= size <= len(data) - start:
            return False  # incomplete, or malformed
        body = data[start + 4 * data[start + 4] : start + size]
        if len(body) > SHORT_BYTES and len(body) * min(deliveries, _named(body)) > MOST_COPIED_BYTES:
            return True
        start += size
    return False


def _named(body: bytes | memoryview) -> int:
    """How many deliveries a frame names if it is a disposition, and 0 otherwise; more if it is in no valid form."""
    if body[0] != 0:
        return 0
    if body[1] == 0x53:
        code, at = body[2], 3
    elif body[1] == 0x80:
        code, at = int.from_bytes(body[2:10]), 10
    else:
        return 0
    if code != _DISPOSITION:
        return 0
    if body[at] not in _LIST_HEADS:
        return _ALL
    at += _LIST_HEADS[body[at]]
    if body[at] not in _ROLES:
        return _ALL
    at += _ROLES[body[at]]
    if body[at] not in _NUMBERS:
        return _ALL
    size = _NUMBERS[body[at]]
    first = int.from_bytes(body[at + 1 : at + 1 + size])
    at += 1 + size
    if body[at] not in _NUMBERS:
        return _ALL
    if body[at] == 0x40:
        return 1
    last = int.from_bytes(body[at + 1 : at + 1 + _NUMBERS[body[at]]])
    return (last - first) % _ALL + 1
