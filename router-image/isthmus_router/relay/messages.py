"""Frames of the bridge between sites: one byte of kind, then a body.

BATCH and ACK, the frequent ones, are packed; the others are AMQP lists, to which later versions may append.

```
 who dials                                    who is dialled
 HELLO ------------------------------------->
 <------ HELLO_ACK (what is here) | REFUSED (why) | NOT_RELAY (who is)
 VIEW -------------------------------------->
 START, BATCH, GAP ------------------------->
 <-------------------------- VIEW, ACK, NAK
 UNICAST, UNICAST_LOST, PING, PONG, GOODBYE  both ways
```
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum, unique
from typing import NamedTuple, TypeVar

from isthmus_router.groups.frames import FrameError, Kind, check_numbers
from isthmus_router.groups.identity import ID_BYTES, LONGEST_NAME_BYTES, MemberId, MemberInfo
from isthmus_router.groups.views import MOST_MEMBERS, View, ViewId
from isthmus_router.message.types import DecodeError, decode_all, decode_first, encode
from isthmus_router.relay.settings import Endpoint

T = TypeVar("T")
MOST_ORIGINS = 10_000
MOST_ENDPOINTS = 64
MOST_NUMBERS = 1_024
"""Origins in a frame of ACK or PING."""
MOST_LIST_BYTES = 1 << 20
"""Of a frame whose body is a list."""
MOST_LIST_VALUES = 1 << 16
"""In such a list, those in lists within it included: HELLO with the most members and origins stays below."""
_POSITION = struct.Struct(">16sQ")
_UNICAST = struct.Struct(">BB16s16s")


@unique
class BridgeKind(IntEnum):
    """What a frame of the bridge is."""

    HELLO = 1
    HELLO_ACK = 2
    REFUSED = 3
    NOT_RELAY = 4
    VIEW = 5
    START = 6
    BATCH = 7
    GAP = 8
    NAK = 9
    ACK = 10
    UNICAST = 11
    UNICAST_LOST = 12
    PING = 13
    PONG = 14
    GOODBYE = 15


class Position(NamedTuple):
    """How far the stream of an origin is known."""

    origin: MemberId
    next: int
    messages: int
    """In batches before `next`."""


class Hello(NamedTuple):
    """HELLO, and what is common to HELLO_ACK: who speaks, and what it has of the other site."""

    version: int
    group: str
    site: str
    domain: str
    to_site: str
    relay: MemberId
    endpoints: tuple[Endpoint, ...]
    """Of the relays of the site that speaks, itself first."""
    view: View
    """Of the site that speaks; its id is the epoch."""
    positions: tuple[Position, ...]
    through: bool = False
    """The relays cannot be reached: whoever gets this may pass the session on to one of them."""
    via: bytes = b""
    """The member of the dialled site that passed it on."""


class Names(NamedTuple):
    """The beginning of HELLO and HELLO_ACK: who speaks to whom."""

    version: int
    group: str
    site: str
    domain: str
    to_site: str
    relay: MemberId


class Range(NamedTuple):
    """Batches of an origin, both ends included: of NAK and GAP."""

    origin: MemberId
    from_number: int
    to_number: int
    messages: int
    """NAK: of the origin, before them. GAP: in them, lost for the site that it goes to."""


class Unicast(NamedTuple):
    """A frame from a member to a member of another site."""

    kind: Kind
    hops: int
    source: MemberId
    destination: MemberId
    body: bytes


def pack(kind: BridgeKind, *fields: object) -> bytes:
    """A frame whose body is an AMQP list."""
    return bytes((kind,)) + encode(list(fields))


def kind_of(frame: bytes) -> BridgeKind:
    """Raises FrameError."""
    try:
        return BridgeKind(frame[0])
    except (IndexError, ValueError):
        raise FrameError(f"no kind of bridge frame: {frame[:1].hex() or 'empty'}") from None


def unpack(frame: bytes, fields: int) -> list[object]:
    """The list that is a frame's body. Raises FrameError."""
    return as_list(_decode(frame), fields)


def _decode(frame: bytes) -> object:
    _check_length(frame)
    try:
        return decode_all(memoryview(frame)[1:], most=MOST_LIST_VALUES, plain=True)
    except DecodeError as error:
        raise FrameError(str(error)) from error


def _first(frame: bytes, fields: int) -> list[object]:
    _check_length(frame)
    try:
        return decode_first(memoryview(frame)[1:], fields, most=MOST_LIST_VALUES)
    except DecodeError as error:
        raise FrameError(str(error)) from error


def _check_length(frame: bytes) -> None:
    if len(frame) > MOST_LIST_BYTES:
        raise FrameError(f"list of {len(frame)} bytes; {MOST_LIST_BYTES} at most")


def as_list(value: object, fields: int = 0, most: int = 1 << 20) -> list[object]:
    """A list of so many fields at least. Raises FrameError."""
    if not isinstance(value, list) or not fields <= len(value) <= most:
        raise FrameError(f"not a list of {fields} to {most} fields")
    return value


def a(kind: type[T], value: object) -> T:
    """The value, if it is of that type. Raises FrameError."""
    if (kind is int and isinstance(value, bool)) or not isinstance(value, kind):
        raise FrameError(f"{kind.__name__} expected, not {type(value).__name__}")
    return value


def as_id(value: object) -> MemberId:
    """Raises FrameError."""
    data = bytes(a(bytes, value))
    if len(data) != ID_BYTES:
        raise FrameError(f"UUID of {len(data)} bytes")
    return MemberId(data)


def as_number(value: object) -> int:
    """Of batches, messages or a view. Raises FrameError."""
    number = a(int, value)
    check_numbers(number)
    return number


def as_name(value: object) -> str:
    """A name of bounded length. Raises FrameError."""
    name = a(str, value)
    if not 0 < len(name.encode()) <= LONGEST_NAME_BYTES:
        raise FrameError(f"name of {len(name)} characters")
    return name


def view_fields(view: View) -> list[object]:
    """For a body: identities and names; addresses are of no use to another site."""
    return [
        view.id.number,
        bytes(view.id.coordinator),
        [[bytes(member.id), member.name] for member in view.members],
    ]


def as_view(value: object) -> View:
    """Raises FrameError."""
    number, coordinator, members = as_list(value, 3)[:3]
    infos: list[MemberInfo] = []
    for member in as_list(members, 1, MOST_MEMBERS):
        identity, name = as_list(member, 2)[:2]
        infos.append(MemberInfo(as_id(identity), as_name(name), ()))
    return View(ViewId(as_number(number), as_id(coordinator)), tuple(infos))


def endpoint_fields(endpoints: Iterable[Endpoint]) -> list[object]:
    """For a body."""
    return [[endpoint.host, endpoint.port] for endpoint in endpoints]


def as_endpoints(value: object) -> tuple[Endpoint, ...]:
    """Raises FrameError."""
    pairs = [as_list(pair, 2)[:2] for pair in as_list(value, 0, MOST_ENDPOINTS)]
    endpoints = tuple(Endpoint(as_name(host), a(int, port)) for host, port in pairs)
    if any(not 0 <= endpoint.port <= 65_535 for endpoint in endpoints):
        raise FrameError("endpoint whose port there is not")
    return endpoints


def pack_hello(kind: BridgeKind, hello: Hello) -> bytes:
    """HELLO or HELLO_ACK."""
    return pack(
        kind,
        *hello[:5],
        bytes(hello.relay),
        endpoint_fields(hello.endpoints),
        view_fields(hello.view),
        [[bytes(position.origin), position.next, position.messages] for position in hello.positions],
        hello.through,
        hello.via,
    )


def unpack_version(frame: bytes) -> int:
    """Of a HELLO or HELLO_ACK, of any version. Raises FrameError."""
    return a(int, _first(frame, 1)[0])


def unpack_names(frame: bytes) -> Names:
    """The beginning of a HELLO or HELLO_ACK of this version; what follows is not decoded. Raises FrameError."""
    version, group, site, domain, to_site, relay = _first(frame, 6)
    return Names(
        a(int, version), as_name(group), as_name(site), as_name(domain), as_name(to_site), as_id(relay)
    )


def unpack_hello(frame: bytes) -> Hello:
    """HELLO or HELLO_ACK of this version. Raises FrameError."""
    version, group, site, domain, to_site, relay, endpoints, view, positions, through, via = unpack(
        frame, 11
    )[:11]
    known = [as_list(position, 3)[:3] for position in as_list(positions, 0, MOST_ORIGINS)]
    return Hello(
        a(int, version),
        as_name(group),
        as_name(site),
        as_name(domain),
        as_name(to_site),
        as_id(relay),
        as_endpoints(endpoints),
        as_view(view),
        tuple(Position(as_id(origin), as_number(n), as_number(messages)) for origin, n, messages in known),
        a(bool, through),
        bytes(a(bytes, via)),
    )


def unpack_range(frame: bytes) -> Range:
    """GAP or NAK. Raises FrameError."""
    origin, from_number, to_number, messages = unpack(frame, 4)[:4]
    return Range(as_id(origin), as_number(from_number), as_number(to_number), as_number(messages))


def unpack_position(frame: bytes) -> Position:
    """START. Raises FrameError."""
    origin, number, messages = unpack(frame, 3)[:3]
    return Position(as_id(origin), as_number(number), as_number(messages))


def pack_numbers(kind: BridgeKind, numbers: Iterable[tuple[MemberId, int]]) -> bytes:
    """ACK and PING: per origin a number, for `MOST_NUMBERS` origins at most."""
    return bytes((kind,)) + b"".join(_POSITION.pack(origin, number) for origin, number in numbers)


def unpack_numbers(frame: bytes) -> list[tuple[MemberId, int]]:
    """ACK and PING. Raises FrameError."""
    if (len(frame) - 1) % _POSITION.size:
        raise FrameError(f"numbers of {len(frame)} bytes")
    if len(frame) > 1 + MOST_NUMBERS * _POSITION.size:
        raise FrameError(f"more than {MOST_NUMBERS} numbers")
    numbers = [(MemberId(origin), number) for origin, number in _POSITION.iter_unpack(memoryview(frame)[1:])]
    check_numbers(*(number for _, number in numbers))
    return numbers


def pack_unicast(unicast: Unicast) -> bytes:
    """The body of a FORWARD frame in a site, and of UNICAST on the bridge."""
    return _UNICAST.pack(unicast.kind, unicast.hops, unicast.source, unicast.destination) + unicast.body


def unpack_unicast(body: bytes) -> Unicast:
    """Raises FrameError."""
    try:
        kind, hops, source, destination = _UNICAST.unpack_from(body)
        unicast = Unicast(Kind(kind), hops, MemberId(source), MemberId(destination), body[_UNICAST.size :])
    except (struct.error, ValueError) as error:
        raise FrameError(f"malformed unicast: {error}") from None
    if unicast.kind not in (Kind.UNICAST, Kind.UNICAST_ACK, Kind.UNICAST_LOST):
        raise FrameError(f"{unicast.kind.name} as a message to one member")
    return unicast
