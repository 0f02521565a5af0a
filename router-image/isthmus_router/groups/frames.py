"""Frames between members of a group: a kind, who sent it, who it is for, and a body that depends on the kind.

```
 0        1                 17                33
 +--------+-----------------+-----------------+----------
 | kind   | sender (UUID)   | destination     | body ...
 +--------+-----------------+-----------------+----------
```
The destination keeps what was meant for the former owner of a physical address from its new owner; it is zero
where whoever gets the frame is meant (discovery, batches, which their receivers check by view). Bodies are AMQP lists
(`message.types`) but for those of the hot path, which say what they are in their own files.
"""

from __future__ import annotations

import struct
from enum import IntEnum, unique

from isthmus_router.groups.identity import (
    ID_BYTES,
    LONGEST_NAME_BYTES,
    MOST_PHYSICAL_ADDRESSES,
    NOBODY,
    MemberId,
    MemberInfo,
    PhysicalAddress,
)
from isthmus_router.message.types import DecodeError, decode_all, encode

PROTOCOL_VERSION = 1
"""Of frames between members and of the bridge between sites. Raised when an older peer could not go on."""

MOST_NUMBER = 1 << 62
"""Of batches, messages and views: sums of two of them still are numbers of AMQP."""

MOST_LIST_BYTES = 4 << 20
"""Of a frame whose body is a list."""

MOST_LIST_VALUES = 1 << 17
"""In such a list, those in lists within it included: what takes memory and time. A list of them is decoded in some
hundredths of a second; views of all sites stay below."""

_HEADER = struct.Struct(">B16s16s")
HEADER_BYTES = _HEADER.size


@unique
class Kind(IntEnum):
    """What a frame is."""

    # Who is where (discovery, resolver)
    DISCOVER = 10
    FOUND = 11
    WHO_HAS = 12
    I_HAVE = 13
    INVALIDATE = 14
    # Who belongs to it (membership)
    JOIN = 20
    LEAVE = 21
    PROPOSE = 22
    AGREE = 23
    INSTALL = 24
    HEARTBEAT = 25
    SUSPECT = 26
    ARE_YOU_ALIVE = 27
    ALIVE = 28
    MERGE = 29
    MERGE_AGREE = 30
    NOT_A_MEMBER = 31
    # Messages to all (streams)
    BATCH = 40
    REPAIR = 41
    MISSING = 42
    POSITIONS = 43
    STABLE = 44
    START = 45
    # Messages to one (unicast)
    UNICAST = 50
    UNICAST_ACK = 51
    UNICAST_LOST = 52
    # Relay, inside a site
    SITES = 60
    SITE_ACKS = 61
    GAP = 62
    FORWARD = 63
    BEHIND = 64


MOST_VIEW_VALUES = 1 << 15
"""In a frame with views of the site, which takes up to 0.03 seconds. The longest view with six addresses of each member
fits; of several views, a frame has the last ones that fit."""

MOST_ID_VALUES = 1 << 14
"""In a list of ids of members of the site: there are fewer in the longest view."""

MOST_MEMBER_VALUES = 40_000
"""In a list of the members that WHO_HAS asks for: 500 at most, each with as many addresses as there may be."""

MOST_VALUES = 1 << 8
"""In the frames that name the group, a view's id or one or two members; with room for fields of later versions."""

_MOST_VALUES: dict[int, int] = {
    **dict.fromkeys(
        (
            Kind.DISCOVER,
            Kind.FOUND,
            Kind.INVALIDATE,
            Kind.JOIN,
            Kind.LEAVE,
            Kind.HEARTBEAT,
            Kind.ARE_YOU_ALIVE,
            Kind.ALIVE,
        ),
        MOST_VALUES,
    ),
    **dict.fromkeys(
        (Kind.PROPOSE, Kind.AGREE, Kind.INSTALL, Kind.MERGE, Kind.MERGE_AGREE),
        MOST_VIEW_VALUES,
    ),
    Kind.WHO_HAS: MOST_ID_VALUES,
    Kind.I_HAVE: MOST_MEMBER_VALUES,
    Kind.SUSPECT: MOST_ID_VALUES,
    Kind.NOT_A_MEMBER: MOST_ID_VALUES,
}
"""Others have views of other sites, and `MOST_LIST_VALUES`."""


class FrameError(ValueError):
    """What a peer sent is no frame of this protocol."""


def check_numbers(*numbers: int) -> None:
    """Raises FrameError for one that cannot be, as 0 to MOST_NUMBER can."""
    for number in numbers:
        if not 0 <= number <= MOST_NUMBER:
            raise FrameError(f"number {number} is out of range")


def encode_frame(kind: Kind, sender: MemberId, destination: MemberId, body: bytes) -> bytes:
    """One frame."""
    return _HEADER.pack(kind, sender, destination) + body


def decode_header(frame: bytes) -> tuple[Kind, MemberId, MemberId]:
    """Kind, sender and destination; the body starts at `HEADER_BYTES`. Raises FrameError."""
    if len(frame) < HEADER_BYTES:
        raise FrameError(f"frame of {len(frame)} bytes; {HEADER_BYTES} at least")
    kind, sender, destination = _HEADER.unpack_from(frame)
    if sender == NOBODY:
        raise FrameError("frame without a sender")
    try:
        return Kind(kind), MemberId(sender), MemberId(destination)
    except ValueError:
        raise FrameError(f"unknown kind of frame {kind}") from None


def encode_body(*fields: object) -> bytes:
    """A body that is an AMQP list; lists, str, bytes, int, bool and None within."""
    return encode(list(fields))


def decode_body(frame: bytes, *, fields: int) -> list[object]:
    """The list that is the frame's body, of at least so many fields; a later version may add some.

    Raises FrameError.
    """
    if len(frame) > MOST_LIST_BYTES:
        raise FrameError(f"list of {len(frame)} bytes; {MOST_LIST_BYTES} at most")
    try:
        most = _MOST_VALUES.get(frame[0], MOST_LIST_VALUES)
        body = decode_all(memoryview(frame)[HEADER_BYTES:], most=most, plain=True)
    except DecodeError as error:
        raise FrameError(str(error)) from error
    if not isinstance(body, list) or len(body) < fields:
        raise FrameError(f"body is not a list of {fields} fields")
    return body


def encode_info(info: MemberInfo) -> list[object]:
    """A member within a body."""
    return [info.id, info.name, [list(address) for address in info.addresses]]


def decode_info(field: object) -> MemberInfo:
    """The member that a field of a body describes. Raises FrameError."""
    match field:
        case [bytes(), str(name), list(addresses), *_]:
            if len(name.encode()) > LONGEST_NAME_BYTES or len(addresses) > MOST_PHYSICAL_ADDRESSES:
                raise FrameError("member with too long a name or too many addresses")
            return MemberInfo(decode_id(field[0]), name, tuple(map(_decode_address, addresses)))
        case _:
            raise FrameError("field is not a member")


def decode_id(field: object) -> MemberId:
    """The member's id that a field of a body is. Raises FrameError."""
    if not isinstance(field, bytes) or len(field) != ID_BYTES or field == NOBODY:
        raise FrameError("field is not the id of a member")
    return MemberId(field)


def _decode_address(field: object) -> PhysicalAddress:
    match field:
        case [str(host), int(port), bool(tunnelled), *_] if 0 < len(host) <= LONGEST_NAME_BYTES:
            if 0 <= port <= 65_535:
                return PhysicalAddress(host, port, tunnelled)
    raise FrameError("field is not a physical address")
