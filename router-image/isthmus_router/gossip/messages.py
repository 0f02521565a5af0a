"""Frames between members and gossip routers. Everywhere in this package a frame is bytes with its length in front.

```
 0                4        5
 +----------------+--------+----------
 | bytes after it | type   | fields: an AMQP list (`message.types`)
 +----------------+--------+----------
```
A MESSAGE, of which there are many, has its fields packed; a router passes it on as it is:
```
 destination (16), zero: everybody else | sender (16) | length of group (1) | group | payload
```
Lists may have more fields in later versions; readers ignore them. Who connects says HELLO first, and so does who is
connected to; before that nothing else is said.
"""

from __future__ import annotations

import struct
from enum import IntEnum, unique
from typing import NamedTuple, TypeAlias, TypeVar

from isthmus_router.gossip.binding import Binding
from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import (
    ID_BYTES,
    LONGEST_NAME_BYTES,
    MOST_PHYSICAL_ADDRESSES,
    NOBODY,
    MemberId,
    MemberInfo,
    PhysicalAddress,
)
from isthmus_router.message.types import DecodeError, Encoded, decode_all, encode

VERSION = 1

LENGTH_BYTES = 4
HEAD_BYTES = LENGTH_BYTES + 1
MOST_CONTROL_BYTES = 1 << 18
"""Of any frame that is not a MESSAGE."""
LONGEST_HELLO_BYTES = 1 << 12
"""Of any frame of a client that has not said HELLO."""
MOST_CONTROL_VALUES = 1 << 13
"""In a MEMBERS, those in lists within others included."""
MOST_OTHER_VALUES = 1 << 8
"""In any other one: the addresses of one member, and room for fields of later versions."""
MOST_BYTES = 1 << 24
"""Of any frame, if nothing else is set."""
MOST_INFOS = 50
"""In one MEMBERS; the longest there are do not fill a control frame."""

_LARGE_BYTES = 1 << 16
"""Of frames that have been cut, which are dropped although others follow that have arrived."""

_LENGTH = struct.Struct(">I")
_HEAD = struct.Struct(">IB")
_ROUTE = struct.Struct(">16s16sB")
_GROUP_AT = HEAD_BYTES + _ROUTE.size


@unique
class Type(IntEnum):
    """What a frame is."""

    HELLO = 1
    REGISTER = 2
    UNREGISTER = 3
    GET_MEMBERS = 4
    MEMBERS = 5
    MESSAGE = 6
    HEARTBEAT = 7
    SUSPECT = 8
    NOT_HERE = 9
    REFUSED = 10


class Hello(NamedTuple):
    """The first frame both ways."""

    version: int
    router: bytes = b""
    """Random bytes, of the process; from a router only, as what follows."""
    expiry_seconds: float = 0.0
    """Who is silent for longer is cut off."""
    most_bytes: int = 0
    """Of a frame without its length; who sends more is cut off."""


class Register(NamedTuple):
    """The member is in the group and reached by this connection. Renewed when its addresses change."""

    group: str
    info: MemberInfo
    binding: Binding = Binding()
    """Which certificates members of the group have; its digest is in the name of the group."""


class Unregister(NamedTuple):
    """The member leaves; nobody is to suspect it."""

    group: str
    member: MemberId


class GetMembers(NamedTuple):
    """Who is registered?"""

    group: str


class Members(NamedTuple):
    """Answer to GET_MEMBERS; the last part of it, or there is more to come."""

    group: str
    infos: tuple[MemberInfo, ...]
    last: bool


class Heartbeat(NamedTuple):
    """Answered with another by the router."""


class Suspect(NamedTuple):
    """The router has lost the connection of a member that had not unregistered."""

    group: str
    member: MemberId


class NotHere(NamedTuple):
    """A message to that member could not be passed on: this router does not have it."""

    group: str
    member: MemberId


class Refused(NamedTuple):
    """Why the router closes this connection."""

    reason: str


Control: TypeAlias = (
    Hello | Register | Unregister | GetMembers | Members | Heartbeat | Suspect | NotHere | Refused
)

_TYPES: dict[type, Type] = {
    Hello: Type.HELLO,
    Register: Type.REGISTER,
    Unregister: Type.UNREGISTER,
    GetMembers: Type.GET_MEMBERS,
    Members: Type.MEMBERS,
    Heartbeat: Type.HEARTBEAT,
    Suspect: Type.SUSPECT,
    NotHere: Type.NOT_HERE,
    Refused: Type.REFUSED,
}


def encode_control(message: Control) -> bytes:
    """A frame of any type but MESSAGE."""
    fields: list[object] = list(message)
    if isinstance(message, Register):
        fields[1] = _info_fields(message.info)
        fields[2:] = [",".join(message.binding.peer_names), message.binding.bind_names]
    elif isinstance(message, Members):
        fields[1] = [_info_fields(info) for info in message.infos]
    return _control_frame(_TYPES[type(message)], fields)


def encode_info(info: MemberInfo) -> Encoded:
    """A member, for `encode_members`."""
    return Encoded(encode(_info_fields(info)))


def encode_members(group: str, infos: list[Encoded], *, last: bool) -> bytes:
    """The frame of a `Members`."""
    return _control_frame(Type.MEMBERS, [group, infos, last])


def _control_frame(kind: Type, fields: list[object]) -> bytes:
    body = encode(fields)
    return _HEAD.pack(1 + len(body), kind) + body


def decode_control(frame: bytes) -> Control:
    """What `encode_control` encoded. Raises FrameError."""
    if not HEAD_BYTES <= len(frame) <= MOST_CONTROL_BYTES:
        raise FrameError(f"control frame of {len(frame)} bytes")
    most = MOST_CONTROL_VALUES if frame[LENGTH_BYTES] == Type.MEMBERS else MOST_OTHER_VALUES
    try:
        fields = decode_all(memoryview(frame)[HEAD_BYTES:], most=most)
    except DecodeError as error:
        raise FrameError(str(error)) from error
    if not isinstance(fields, list):
        raise FrameError("control frame without a list of fields")
    try:
        return _control(frame[LENGTH_BYTES], fields)
    except IndexError:
        raise FrameError(f"frame of type {frame[LENGTH_BYTES]} with {len(fields)} fields") from None


def _control(kind: int, fields: list[object]) -> Control:
    match kind:
        case Type.HELLO:
            version = _of(int, fields[0])
            if version != VERSION or len(fields) == 1:
                return Hello(version)
            return Hello(version, _of(bytes, fields[1]), _of(float, fields[2]), _of(int, fields[3]))
        case Type.REGISTER:
            return Register(_name(fields[0]), _info(fields[1]), _binding(fields[2:4]))
        case Type.UNREGISTER:
            return Unregister(_name(fields[0]), _id(fields[1]))
        case Type.GET_MEMBERS:
            return GetMembers(_name(fields[0]))
        case Type.MEMBERS:
            infos = tuple(map(_info, _of(list, fields[1])))
            return Members(_name(fields[0]), infos, _of(bool, fields[2]))
        case Type.HEARTBEAT:
            return Heartbeat()
        case Type.SUSPECT:
            return Suspect(_name(fields[0]), _id(fields[1]))
        case Type.NOT_HERE:
            return NotHere(_name(fields[0]), _id(fields[1]))
        case Type.REFUSED:
            return Refused(_of(str, fields[0]))
    raise FrameError(f"unknown type of frame {kind}")


_T = TypeVar("_T")


def _of(kind: type[_T], value: object) -> _T:
    if not isinstance(value, kind):
        raise FrameError(f"{type(value).__name__} where {kind.__name__} is expected")
    return value


def _name(value: object) -> str:
    name = _of(str, value)
    if len(name.encode()) > LONGEST_NAME_BYTES:
        raise FrameError(f"name of more than {LONGEST_NAME_BYTES} bytes")
    return name


def _id(value: object) -> MemberId:
    member = _of(bytes, value)
    if len(member) != ID_BYTES or member == NOBODY:
        raise FrameError("no id of a member")
    return MemberId(member)


def _binding(fields: list[object]) -> Binding:
    """Of a member that states one."""
    if not fields:
        return Binding()
    return Binding(tuple(filter(None, _of(str, fields[0]).split(","))), _of(bool, fields[1]))


def _info_fields(info: MemberInfo) -> list[object]:
    return [info.id, info.name, [list(address) for address in info.addresses]]


def _info(value: object) -> MemberInfo:
    fields = _of(list, value)
    addresses = _of(list, fields[2])
    if len(addresses) > MOST_PHYSICAL_ADDRESSES:
        raise FrameError(f"{len(addresses)} physical addresses")
    return MemberInfo(_id(fields[0]), _name(fields[1]), tuple(map(_address, addresses)))


def _address(value: object) -> PhysicalAddress:
    fields = _of(list, value)
    port = _of(int, fields[1])
    if not 0 <= port <= 65_535:
        raise FrameError(f"port {port}")
    return PhysicalAddress(_name(fields[0]), port, _of(bool, fields[2]))


def encode_message(group: str, destination: MemberId, sender: MemberId, payload: bytes) -> bytes:
    """A MESSAGE; to everybody else in the group if the destination is NOBODY."""
    name = group.encode()
    size = 1 + _ROUTE.size + len(name) + len(payload)
    return b"".join(
        (
            _HEAD.pack(size, Type.MESSAGE),
            _ROUTE.pack(destination, sender, len(name)),
            name,
            payload,
        )
    )


def is_message(frame: bytes) -> bool:
    """Whether it is a MESSAGE; everything else is for `decode_control`."""
    return frame[LENGTH_BYTES] == Type.MESSAGE


def route_of(frame: bytes) -> tuple[bytes, MemberId, MemberId]:
    """Group, destination and sender of a MESSAGE. Raises FrameError."""
    try:
        destination, sender, length = _ROUTE.unpack_from(frame, HEAD_BYTES)
    except struct.error as error:
        raise FrameError(str(error)) from error
    if _GROUP_AT + length > len(frame):
        raise FrameError("the group's name is longer than the frame")
    return frame[_GROUP_AT : _GROUP_AT + length], destination, sender


def payload_of(frame: bytes) -> bytes:
    """What a MESSAGE carries, of which `route_of` has been asked before."""
    return frame[_GROUP_AT + frame[_GROUP_AT - 1] :]


class FrameReader:
    """Retains what a connection has received, and cuts frames out of it on demand."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes`: of a frame without its length."""
        self._most_bytes = most_bytes
        self._data: bytes | bytearray = b""
        self._at = 0
        """Bytes of it that have been cut."""
        self.whole = False
        """The next frame is complete, or has a length that is not allowed."""

    @property
    def most_bytes(self) -> int:
        """Of a frame without its length."""
        return self._most_bytes

    @most_bytes.setter
    def most_bytes(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.whole = self._is_whole()

    @property
    def pending(self) -> int:
        """Bytes of the next frame, of which a part has arrived; 0 if that is not known."""
        if len(self._data) - self._at < LENGTH_BYTES:
            return 0
        return LENGTH_BYTES + int(_LENGTH.unpack_from(self._data, self._at)[0])

    @property
    def held(self) -> int:
        """Bytes that are retained. Those of frames that have been cut are dropped with the last one."""
        return len(self._data)

    def feed(self, data: bytes) -> None:
        """These bytes have arrived."""
        if not self._data:
            self._data = data
        else:
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += data
        if not self.whole:
            self.whole = self._is_whole()

    def _is_whole(self) -> bool:
        size = len(self._data) - self._at - LENGTH_BYTES
        if size < 0:
            return False
        length = int(_LENGTH.unpack_from(self._data, self._at)[0])
        return length <= size or length > self._most_bytes

    def cut(self, most_frames: int, most_bytes: int) -> list[bytes]:
        """Take the next frames, each with its length in front: up to `most_frames`, and none beyond one with which
        they have `most_bytes`.

        Raises FrameError if the first one is too long or empty.
        """
        data, at, longest = self._data, self._at, self._most_bytes
        size = len(data)
        last, stop = size - LENGTH_BYTES, at + most_bytes
        frames: list[bytes] = []
        for _ in range(most_frames):
            if at > last or at >= stop:
                break
            (length,) = _LENGTH.unpack_from(data, at)
            if length + at > last or not 1 <= length <= longest:
                break
            end = at + LENGTH_BYTES + length
            frames.append(bytes(data[at:end]))
            at = end
        if at == size:
            self._data, self._at, self.whole = b"", 0, False
            return frames
        self._at = at
        self.whole = self._is_whole()
        if self.whole and not frames:
            raise FrameError(f"frame of {self.pending - LENGTH_BYTES} bytes; 1 to {longest} are allowed")
        if at and (not self.whole or (at >= _LARGE_BYTES and isinstance(data, bytearray))):
            self._drop(at)
        return frames

    def _drop(self, size: int) -> None:
        if isinstance(self._data, bytearray):
            del self._data[:size]
        else:
            self._data = self._data[size:]
        self._at = 0
