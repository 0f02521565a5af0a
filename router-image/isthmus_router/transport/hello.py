"""What two members say on a connection before and between the frames of their group.

Each end sends HELLO first: an AMQP list as body, behind a byte for the kind. REFUSED says why the connection is
closed; RETIRED, that nothing more comes from that end, as it sends over another connection now.
"""

from __future__ import annotations

from typing import NamedTuple

from isthmus_router.groups.frames import PROTOCOL_VERSION, FrameError, decode_info, encode_info
from isthmus_router.groups.identity import GroupName, MemberInfo, can_be_of
from isthmus_router.message.types import DecodeError, decode_all, encode

HELLO = 1
REFUSED = 2
RETIRED = b"\x03"
LONGEST_HELLO_BYTES = 8 * 1024
_LONGEST_REASON_BYTES = 1024


class Hello(NamedTuple):
    """Who is at one end of a connection."""

    group: GroupName
    member: MemberInfo
    generation: int = 0
    """Of whom has dialled: one more than that of the connection which this one is to replace."""
    version: int = PROTOCOL_VERSION

    def objection(self, peer: Hello) -> str | None:
        """Why a connection with that peer is no good; None if it is."""
        for what, own, other in zip(GroupName._fields, self.group, peer.group, strict=True):
            if own != other:
                return f"{what} {other!r}; this member is of {own!r}"
        if not can_be_of(peer.member.id, peer.group.site):
            return "the id of the member is of another site"
        return "this is the member itself" if peer.member.id == self.member.id else None


def encode_hello(hello: Hello) -> bytes:
    """The frame."""
    body = [hello.version, *hello.group, encode_info(hello.member), hello.generation]
    return bytes((HELLO,)) + encode(body)


def encode_refused(reason: str) -> bytes:
    """The frame."""
    return bytes((REFUSED,)) + encode(reason.encode()[:_LONGEST_REASON_BYTES].decode(errors="ignore"))


def decode_hello(frame: bytes) -> Hello:
    """The peer's first frame. Raises FrameError: another version, or `peer refused: ...` if it is REFUSED."""
    if not frame or frame[0] not in (HELLO, REFUSED):
        raise FrameError("the peer does not begin with HELLO")
    if len(frame) > LONGEST_HELLO_BYTES:
        raise FrameError(f"malformed HELLO: {len(frame)} bytes; {LONGEST_HELLO_BYTES} at most")
    try:
        body = decode_all(memoryview(frame)[1:])
    except DecodeError as error:
        raise FrameError(f"malformed HELLO: {error}") from error
    if frame[0] == REFUSED:
        raise FrameError(f"peer refused: {str(body)[:_LONGEST_REASON_BYTES] or 'it gave no reason'}")
    match body:
        case [int(version), *_] if version != PROTOCOL_VERSION:
            raise FrameError(f"protocol version {version}; this member speaks {PROTOCOL_VERSION}")
        case [int(version), str(group), str(site), str(domain), member, int(generation), *_]:
            info = decode_info(member)
            if not info.addresses:
                raise FrameError("malformed HELLO: no addresses")
            return Hello(GroupName(group, site, domain), info, generation, version)
    raise FrameError("malformed HELLO: not a list of the right fields")
