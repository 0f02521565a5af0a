"""Numbers that no frame has."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from isthmus_router.groups import frames
from isthmus_router.groups.announcements import (
    MOST_WANTED,
    Discover,
    Found,
    IHave,
    Invalidate,
    WhoHas,
)
from isthmus_router.groups.frames import (
    MOST_NUMBER,
    FrameError,
    Kind,
    decode_body,
    encode_body,
    encode_frame,
    encode_info,
)
from isthmus_router.groups.identity import (
    LONGEST_NAME_BYTES,
    MOST_PHYSICAL_ADDRESSES,
    NOBODY,
    GroupName,
    MemberId,
    MemberInfo,
    PhysicalAddress,
)
from isthmus_router.groups.membership.messages import (
    NotAMember,
    decode_join,
    decode_not_a_member,
    decode_suspect,
    encode_not_a_member,
)
from isthmus_router.groups.streams import wire
from isthmus_router.groups.views import ViewId
from isthmus_router.message.types import Array, Symbol, encode
from isthmus_router.relay import messages
from isthmus_router.relay.messages import BridgeKind, pack, pack_numbers, unpack_numbers, unpack_range

ORIGIN = MemberId(b"o" * 16)
TOO_MUCH = MOST_NUMBER + 1


def frame_of(kind: Kind, body: bytes) -> bytes:
    return encode_frame(kind, ORIGIN, NOBODY, body)


@pytest.mark.parametrize("number", [TOO_MUCH, (1 << 64) - 1])
def test_numbers_of_packed_frames_have_a_bound(number: int) -> None:
    for encoded, decode in (
        (wire.encode_repair(wire.Repair(ORIGIN, 0, number)), wire.decode_repair),
        (wire.encode_missing(wire.Missing(ORIGIN, 1, 2, 3, number)), wire.decode_missing),
        (wire.encode_start(wire.Start(ORIGIN, number, 0, "nyc")), wire.decode_start),
        (wire.encode_gap(wire.Gap(ORIGIN, 1, 2, number, "nyc")), wire.decode_gap),
        (wire.encode_positions([(ORIGIN, number)]), lambda body: list(wire.decode_positions(body))),
        (
            wire.encode_stable([wire.Stable(ORIGIN, 0, number, ORIGIN)]),
            lambda body: list(wire.decode_stable(body)),
        ),
        (pack_numbers(BridgeKind.ACK, [(ORIGIN, number)]), unpack_numbers),
    ):
        with pytest.raises(FrameError, match="out of range"):
            decode(encoded)


@pytest.mark.parametrize("number", [-1, TOO_MUCH])
def test_numbers_in_lists_have_a_bound(number: int) -> None:
    with pytest.raises(FrameError, match="out of range"):
        unpack_range(pack(BridgeKind.GAP, ORIGIN, 1, 2, number))


def test_lists_are_not_looked_at_if_they_are_long() -> None:
    """Each byte of one may become a list of its own, which takes 70 bytes and half a microsecond."""
    for most, decode in (
        (frames.MOST_LIST_BYTES, lambda frame: decode_body(frame, fields=0)),
        (messages.MOST_LIST_BYTES, lambda frame: messages.unpack(frame, 0)),
    ):
        with pytest.raises(FrameError, match=f"list of {most + 1} bytes; {most} at most"):
            decode(bytes(most + 1))


@pytest.mark.parametrize(
    ("most", "decode"),
    [
        (frames.MOST_LIST_VALUES, lambda body: decode_body(frame_of(Kind.SITES, body), fields=0)),
        (frames.MOST_VIEW_VALUES, lambda body: decode_body(frame_of(Kind.PROPOSE, body), fields=0)),
        (frames.MOST_VIEW_VALUES, lambda body: decode_body(frame_of(Kind.AGREE, body), fields=0)),
        (frames.MOST_VIEW_VALUES, lambda body: decode_body(frame_of(Kind.INSTALL, body), fields=0)),
        (frames.MOST_VIEW_VALUES, lambda body: decode_body(frame_of(Kind.MERGE, body), fields=0)),
        (frames.MOST_VIEW_VALUES, lambda body: decode_body(frame_of(Kind.MERGE_AGREE, body), fields=0)),
        (frames.MOST_MEMBER_VALUES, lambda body: decode_body(frame_of(Kind.I_HAVE, body), fields=0)),
        (frames.MOST_ID_VALUES, lambda body: decode_body(frame_of(Kind.SUSPECT, body), fields=0)),
        (frames.MOST_VALUES, lambda body: decode_body(frame_of(Kind.HEARTBEAT, body), fields=0)),
        (messages.MOST_LIST_VALUES, lambda body: messages.unpack(b"\1" + body, 0)),
    ],
)
def test_lists_of_many_values_are_refused_before_they_are_decoded(
    most: int, decode: Callable[[bytes], object]
) -> None:
    """Lists within lists count, too: 16 of them have a sixteenth each."""
    inner: list[object] = [None] * (most // 16)
    with pytest.raises(FrameError, match=f"more than {most} values"):
        decode(encode([inner] * 16))
    assert decode(encode([inner] * 15))


@pytest.mark.parametrize("value", [UUID(int=1), {"a": 1}, {}, Symbol("a"), 1.0, Array(int, (1,))])
def test_values_of_types_that_take_long_are_refused(value: object) -> None:
    """No frame has them. A list of UUIDs or of empty maps takes three to six times as long as one of strings."""
    with pytest.raises(FrameError, match="unknown type code"):
        decode_body(frame_of(Kind.MERGE, encode_body(value)), fields=0)
    with pytest.raises(FrameError, match="unknown type code"):
        messages.unpack(pack(BridgeKind.VIEW, value), 0)


def test_what_the_protocol_says_fits() -> None:
    """With the longest names, as many addresses as there may be, and as many members as fit one frame."""
    long = "n" * LONGEST_NAME_BYTES
    group = GroupName(long, long, long)
    address = PhysicalAddress(long, 65_535, True)
    info = MemberInfo(ORIGIN, long, (address,) * MOST_PHYSICAL_ADDRESSES)
    view = ViewId(MOST_NUMBER, ORIGIN)
    for kind, message in (
        (Kind.DISCOVER, Discover(group, info, True, view)),
        (Kind.FOUND, Found(group, info, view, info)),
        (Kind.WHO_HAS, WhoHas(group, info, (ORIGIN,) * MOST_WANTED)),
        (Kind.I_HAVE, IHave(group, (info,) * MOST_WANTED)),
        (Kind.INVALIDATE, Invalidate(group, ORIGIN)),
    ):
        assert type(message).decode(frame_of(kind, message.encode())) == message
    assert decode_join(frame_of(Kind.JOIN, encode_body(encode_info(info)))) == info
    site = tuple(MemberId(b"m" * 12 + number.to_bytes(4)) for number in range(10_000))
    assert decode_suspect(frame_of(Kind.SUSPECT, encode_body(list(site)))) == site
    stranger = NotAMember(ViewId(1, ORIGIN), site)
    assert decode_not_a_member(frame_of(Kind.NOT_A_MEMBER, encode_not_a_member(stranger))) == stranger


def test_the_greatest_number_is_one() -> None:
    body = wire.encode_repair(wire.Repair(ORIGIN, 0, MOST_NUMBER))
    assert wire.decode_repair(body).last == MOST_NUMBER
