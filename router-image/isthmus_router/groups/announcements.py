"""What members say about where they are: bodies of the frames of discovery and address resolution.

=============  ===========================================================================================
DISCOVER       group, who asks, whether to join (or to look for other views), its view
FOUND          group, who answers, its view, its coordinator (null twice: not a member of any)
WHO_HAS        group, who asks, list of the wanted ids
I_HAVE         group, list of members
INVALIDATE     group, id of who is gone
=============  ===========================================================================================

Each starts with the protocol's version, and the group as a list of group, site and domain.
Source: the logical address design (discovery request and response, WHO-HAS, I-HAVE, INVALIDATE).
"""

from __future__ import annotations

from typing import NamedTuple, Self

from isthmus_router.groups.frames import (
    PROTOCOL_VERSION,
    FrameError,
    check_numbers,
    decode_body,
    decode_id,
    decode_info,
    encode_body,
    encode_info,
)
from isthmus_router.groups.identity import GroupName, MemberId, MemberInfo
from isthmus_router.groups.views import ViewId

MOST_WANTED = 500
"""Ids in one WHO_HAS, and members in one I_HAVE."""


class VersionMismatchError(FrameError):
    """The peer speaks another version of the protocol."""

    def __init__(self, version: int) -> None:
        super().__init__(f"version {version} of the protocol; this is {PROTOCOL_VERSION}")
        self.version = version


class Discover(NamedTuple):
    """Who is there?"""

    group: GroupName
    asker: MemberInfo
    initial: bool
    """To join; else to look for other views of the group, and those of the asker's own need not answer."""
    view: ViewId | None

    def encode(self) -> bytes:
        """As a body."""
        return _encode(self.group, encode_info(self.asker), self.initial, _encode_view_id(self.view))

    @classmethod
    def decode(cls, frame: bytes) -> Self:
        """From a frame. Raises FrameError."""
        group, (asker, initial, view) = _decode(frame, 3)
        return cls(group, decode_info(asker), bool(initial), _decode_view_id(view))


class Found(NamedTuple):
    """I am."""

    group: GroupName
    info: MemberInfo
    view: ViewId | None
    coordinator: MemberInfo | None

    def encode(self) -> bytes:
        """As a body."""
        return _encode(
            self.group,
            encode_info(self.info),
            _encode_view_id(self.view),
            None if self.coordinator is None else encode_info(self.coordinator),
        )

    @classmethod
    def decode(cls, frame: bytes) -> Self:
        """From a frame. Raises FrameError."""
        group, (info, view, coordinator) = _decode(frame, 3)
        if (view is None) is not (coordinator is None):
            raise FrameError("view without a coordinator, or a coordinator without a view")
        return cls(
            group,
            decode_info(info),
            _decode_view_id(view),
            None if coordinator is None else decode_info(coordinator),
        )


class WhoHas(NamedTuple):
    """Where are these?"""

    group: GroupName
    asker: MemberInfo
    wanted: tuple[MemberId, ...]

    def encode(self) -> bytes:
        """As a body."""
        return _encode(self.group, encode_info(self.asker), list(self.wanted))

    @classmethod
    def decode(cls, frame: bytes) -> Self:
        """From a frame. Raises FrameError."""
        group, (asker, wanted) = _decode(frame, 2)
        return cls(group, decode_info(asker), tuple(map(decode_id, _at_most(wanted))))


class IHave(NamedTuple):
    """They are there."""

    group: GroupName
    members: tuple[MemberInfo, ...]

    def encode(self) -> bytes:
        """As a body."""
        return _encode(self.group, list(map(encode_info, self.members)))

    @classmethod
    def decode(cls, frame: bytes) -> Self:
        """From a frame. Raises FrameError."""
        group, (members,) = _decode(frame, 1)
        return cls(group, tuple(map(decode_info, _at_most(members))))


class Invalidate(NamedTuple):
    """That one is gone."""

    group: GroupName
    gone: MemberId

    def encode(self) -> bytes:
        """As a body."""
        return _encode(self.group, self.gone)

    @classmethod
    def decode(cls, frame: bytes) -> Self:
        """From a frame. Raises FrameError."""
        group, (gone,) = _decode(frame, 1)
        return cls(group, decode_id(gone))


def _encode(group: GroupName, *fields: object) -> bytes:
    return encode_body(PROTOCOL_VERSION, list(group), *fields)


def _decode(frame: bytes, count: int) -> tuple[GroupName, list[object]]:
    version, *rest = decode_body(frame, fields=1)
    if not isinstance(version, int):
        raise FrameError("version is not a number")
    if version != PROTOCOL_VERSION:
        raise VersionMismatchError(version)
    match rest:
        case [[str(group), str(site), str(domain), *_], *fields] if len(fields) >= count:
            return GroupName(group, site, domain), fields[:count]
    raise FrameError(f"body is not a group and {count} fields")


def _at_most(field: object) -> list[object]:
    if not isinstance(field, list) or len(field) > MOST_WANTED:
        raise FrameError(f"field is not a list of at most {MOST_WANTED}")
    return field


def _encode_view_id(view: ViewId | None) -> list[object] | None:
    return None if view is None else list(view)


def _decode_view_id(field: object) -> ViewId | None:
    match field:
        case None:
            return None
        case [int(number), coordinator, *_]:
            check_numbers(number)
            return ViewId(number, decode_id(coordinator))
    raise FrameError("field is not the id of a view")
