"""Bodies of the frames of streams, struct-packed: they travel with every turn.

```
 POSITIONS     n x (origin (16) | highest contiguous number (8))
 STABLE        n x (origin (16) | lowest of all members (8) | highest (8) | who has the highest (16))
 REPAIR        origin (16) | from (8) | to (8)                             from 0: where does it start?
 MISSING       origin (16) | from (8) | to (8) | next of the sender (8) | messages before to + 1 (8), 0: unknown
 START         origin (16) | number (8) | messages before (8) | site
 GAP           origin (16) | from (8) | to (8) | messages lost (8) | site
 baseline      n x (START, after its length (2))
```
BATCH is in `batch.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from isthmus_router.groups.frames import FrameError, check_numbers
from isthmus_router.groups.identity import MemberId

_POSITION = struct.Struct(">16sQ")
_STABLE = struct.Struct(">16sQQ16s")
_REPAIR = struct.Struct(">16sQQ")
_MISSING = struct.Struct(">16sQQQQ")
_GAP = struct.Struct(">16sQQQ")


class Stable(NamedTuple):
    """What the coordinator says of one origin."""

    origin: MemberId
    lowest: int
    highest: int
    who: MemberId


class Repair(NamedTuple):
    """Batches that somebody lacks."""

    origin: MemberId
    first: int
    last: int


class Missing(NamedTuple):
    """Batches that were asked for and are not here."""

    origin: MemberId
    first: int
    last: int
    next: int
    """Of who says so: beyond `last` if it had them once, or knows that nobody has."""
    messages: int
    """Of the origin, before the first after `last`; 0 if unknown."""


class Start(NamedTuple):
    """Where a stream begins, or goes on."""

    origin: MemberId
    number: int
    messages: int
    """Of the origin, before."""
    site: str


class Gap(NamedTuple):
    """Batches that are gone."""

    origin: MemberId
    first: int
    last: int
    messages: int
    """In them."""
    site: str


def encode_positions(positions: Iterable[tuple[MemberId, int]]) -> bytes:
    """Body of POSITIONS."""
    return b"".join([_POSITION.pack(origin, number) for origin, number in positions])


def decode_positions(body: bytes | memoryview) -> Iterator[tuple[MemberId, int]]:
    """Raises FrameError."""
    if len(body) % _POSITION.size:
        raise FrameError(f"positions of {len(body)} bytes")
    for origin, number in _POSITION.iter_unpack(body):
        check_numbers(number)
        yield MemberId(origin), number


def encode_stable(entries: Iterable[Stable]) -> bytes:
    """Body of STABLE."""
    return b"".join([_STABLE.pack(*entry) for entry in entries])


def decode_stable(body: bytes | memoryview) -> Iterator[Stable]:
    """Raises FrameError."""
    if len(body) % _STABLE.size:
        raise FrameError(f"what is stable in {len(body)} bytes")
    for entry in map(Stable._make, _STABLE.iter_unpack(body)):
        check_numbers(entry.lowest, entry.highest)
        yield entry


def encode_repair(repair: Repair) -> bytes:
    """Body of REPAIR."""
    return _REPAIR.pack(*repair)


def decode_repair(body: bytes | memoryview) -> Repair:
    """Raises FrameError."""
    try:
        repair = Repair(*_REPAIR.unpack(body))
    except struct.error as error:
        raise FrameError(f"malformed request for repair: {error}") from error
    check_numbers(*repair[1:])
    return repair


def encode_missing(missing: Missing) -> bytes:
    """Body of MISSING."""
    return _MISSING.pack(*missing)


def decode_missing(body: bytes | memoryview) -> Missing:
    """Raises FrameError."""
    try:
        missing = Missing(*_MISSING.unpack(body))
    except struct.error as error:
        raise FrameError(f"malformed answer that batches are missing: {error}") from error
    check_numbers(*missing[1:])
    return missing


def encode_start(start: Start) -> bytes:
    """Body of START."""
    return _REPAIR.pack(*start[:3]) + start.site.encode()


def decode_start(body: bytes | memoryview) -> Start:
    """Raises FrameError."""
    try:
        origin, number, messages = _REPAIR.unpack_from(body)
        start = Start(origin, number, messages, str(body[_REPAIR.size :], "utf-8"))
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"malformed start of a stream: {error}") from error
    check_numbers(number, messages)
    return start


def encode_gap(gap: Gap) -> bytes:
    """Body of GAP."""
    return _GAP.pack(*gap[:4]) + gap.site.encode()


def decode_gap(body: bytes | memoryview) -> Gap:
    """Raises FrameError."""
    try:
        origin, first, last, messages = _GAP.unpack_from(body)
        gap = Gap(origin, first, last, messages, str(body[_GAP.size :], "utf-8"))
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"malformed gap: {error}") from error
    check_numbers(first, last, messages)
    return gap


def encode_baseline(starts: Iterable[Start]) -> bytes:
    """Where streams begin at a joiner."""
    bodies = [encode_start(start) for start in starts]
    return b"".join([len(body).to_bytes(2, "big") + body for body in bodies])


def decode_baseline(data: bytes) -> Iterator[Start]:
    """Raises FrameError."""
    at = 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if end > len(data):
            raise FrameError("baseline is cut off")
        yield decode_start(data[at + 2 : end])
        at = end
