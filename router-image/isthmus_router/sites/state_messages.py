"""What members say to each other when an application asks for the state of others.

Messages to one member (`SitePort.send_to`) for the address `STATE`, which no client can send to:

```
 who asks                                           who may have it
 ASK   request, positions of the asking member  -->
                                                <-- PART  request, last, positions, message   (any number)
                                                <-- NO    request, why
```
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import MemberId
from isthmus_router.message.types import DecodeError, decode_all, encode

STATE = "$state"
ANSWERS = f"{STATE}/"
"""Behind this follows the name of a request: where the application's answer goes at the member that asked it."""
REQUEST_BYTES = 8
Positions = Mapping[MemberId, int]
"""Per origin, the number up to which its batches are delivered."""
_ASK, _NO, _PART = 1, 2, 3
_MOST_VALUES = 64
MOST_POSITIONS = 10_000
"""There are fewer streams (`groups.streams.user`)."""
MOST_PART_BYTES = 16 * 1024 * 1024
"""Of the application's message; a whole state has no more."""
_POSITION = struct.Struct(">16sQ")


class Ask(NamedTuple):
    """Give the state, when at least so much is delivered there."""

    request: bytes
    positions: Positions


class No(NamedTuple):
    """It cannot be had there."""

    request: bytes
    reason: str


class Part(NamedTuple):
    """A message of the application."""

    request: bytes
    last: bool
    positions: Positions
    """What the state contains; of the last one."""
    payload: bytes


def encode_state(message: Ask | No | Part) -> bytes:
    """The payload of a message for `STATE`."""
    match message:
        case Ask(request, positions):
            return encode([_ASK, request, _pack(positions)])
        case No(request, reason):
            return encode([_NO, request, reason])
        case Part(request, last, positions, payload):
            return encode([_PART, request, last, _pack(positions), payload])


def decode_state(payload: bytes) -> Ask | No | Part:
    """Raises FrameError."""
    if len(payload) > MOST_PART_BYTES + 2 * MOST_POSITIONS * _POSITION.size:
        raise FrameError(f"message about the state of {len(payload)} bytes")
    try:
        found = decode_all(payload, most=_MOST_VALUES)
    except DecodeError as error:
        raise FrameError(str(error)) from error
    match found:
        case [1, bytes(request), bytes(positions), *_]:
            return Ask(request, _unpack(positions))
        case [2, bytes(request), str(reason), *_]:
            return No(request, reason[:200])
        case [3, bytes(request), bool(last), bytes(positions), bytes(message), *_]:
            return Part(request, last, _unpack(positions), message)
    raise FrameError("no message about the state")


def _pack(positions: Positions) -> bytes:
    return b"".join(_POSITION.pack(origin, number) for origin, number in positions.items())


def _unpack(data: bytes) -> Positions:
    if len(data) % _POSITION.size or len(data) > MOST_POSITIONS * _POSITION.size:
        raise FrameError(f"positions of {len(data)} bytes")
    return {MemberId(origin): number for origin, number in _POSITION.iter_unpack(data)}
