"""Frames of the gossip router: there and back, in any pieces, and nothing but FrameError for anything else."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.gossip.strategies import CONTROLS, IDS, NAMES

from isthmus_router.gossip.binding import Binding
from isthmus_router.gossip.messages import (
    MOST_BYTES,
    MOST_CONTROL_BYTES,
    MOST_INFOS,
    MOST_OTHER_VALUES,
    Control,
    FrameReader,
    Hello,
    Members,
    Register,
    Type,
    decode_control,
    encode_control,
    encode_message,
    is_message,
    payload_of,
    route_of,
)
from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import (
    LONGEST_NAME_BYTES,
    MOST_PHYSICAL_ADDRESSES,
    NOBODY,
    MemberId,
    MemberInfo,
    PhysicalAddress,
)
from isthmus_router.message.types import encode

A, B = MemberId(b"a" * 16), MemberId(b"b" * 16)


def control_frame(kind: int, body: bytes) -> bytes:
    return struct.pack(">IB", 1 + len(body), kind) + body


@given(CONTROLS)
def test_control_there_and_back(message: Control) -> None:
    frame = encode_control(message)
    assert decode_control(frame) == message
    assert not is_message(frame)


@given(NAMES, IDS, IDS, st.binary(max_size=300))
def test_message_there_and_back(group: str, destination: MemberId, sender: MemberId, payload: bytes) -> None:
    frame = encode_message(group, destination, sender, payload)
    assert is_message(frame)
    assert route_of(frame) == (group.encode(), destination, sender)
    assert payload_of(frame) == payload


@given(st.lists(CONTROLS.map(encode_control), max_size=6), st.data())
def test_frames_in_any_pieces(frames: list[bytes], data: st.DataObject) -> None:
    """However they arrive, and however many are cut before more arrives."""
    stream = b"".join(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader = FrameReader(MOST_BYTES)
    found: list[bytes] = []
    for start, end in pairwise([0, *cuts, len(stream)]):
        reader.feed(stream[start:end])
        for _ in range(data.draw(st.integers(0, 4))):
            some = reader.cut(data.draw(st.integers(1, 8)), data.draw(st.integers(1, 300)))
            found += some
    while reader.whole:
        found += reader.cut(8, 300)
    assert found == frames
    assert reader.held == 0


@pytest.mark.parametrize("length", [0, 101, 0xFFFFFFFF])
def test_length_that_is_not_allowed(length: int) -> None:
    reader = FrameReader(100)
    reader.feed(struct.pack(">I", length))
    assert reader.whole
    with pytest.raises(FrameError, match=str(length)):
        reader.cut(8, 1000)


def test_an_incomplete_frame_is_held() -> None:
    reader = FrameReader(100)
    reader.feed(struct.pack(">I", 100) + bytes(99))
    assert not reader.whole
    assert reader.cut(8, 1000) == []
    assert (reader.held, reader.pending) == (103, 104)
    reader.feed(bytes(1 + 50))  # a frame, and the length 0
    assert reader.cut(8, 1000) == [struct.pack(">I", 100) + bytes(100)]
    with pytest.raises(FrameError):
        reader.cut(8, 1000)


def test_frames_are_cut_up_to_a_number_of_bytes() -> None:
    reader = FrameReader(100)
    reader.feed(b"\0\0\0\x06abcdef" * 8)
    assert [len(reader.cut(5, 11)), len(reader.cut(5, 10)), len(reader.cut(5, 100))] == [2, 1, 5]


def test_a_longer_frame_can_be_cut_once_it_is_allowed() -> None:
    reader = FrameReader(10)
    long = struct.pack(">I", 20) + bytes(20)
    reader.feed(b"\0\0\0\1a" + long)
    assert reader.cut(8, 1000) == [b"\0\0\0\1a"]
    reader.most_bytes = 20
    assert reader.cut(8, 1000) == [long]


def test_a_long_frame_that_has_been_cut_is_dropped_although_others_follow() -> None:
    reader = FrameReader(MOST_BYTES)
    long = struct.pack(">I", 1 << 20) + bytes(1 << 20)
    reader.feed(long[:-1])
    reader.feed(long[-1:] + b"\0\0\0\1a" * 2)
    assert reader.cut(1, 1000) == [long]
    assert reader.whole
    assert reader.held == 10


@given(st.integers(0, 12), st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_frame_error(kind: int, body: bytes) -> None:
    frame = control_frame(kind, body)
    with contextlib.suppress(FrameError):
        route_of(frame)
    with contextlib.suppress(FrameError):
        decode_control(frame)


@given(CONTROLS.map(encode_control), st.data())
def test_a_flipped_byte_is_a_message_or_a_frame_error(frame: bytes, data: st.DataObject) -> None:
    spoilt = bytearray(frame)
    spoilt[data.draw(st.integers(5, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(FrameError):
        decode_control(bytes(spoilt))


def info(addresses: int = 1, name: str = "name", member: bytes = A) -> list[object]:
    return [bytes(member), name, [["host", 1, False]] * addresses]


@pytest.mark.parametrize(
    "fields",
    [
        [],
        ["group"],
        ["group", info(name="x" * (LONGEST_NAME_BYTES + 1))],
        ["group", info(addresses=MOST_PHYSICAL_ADDRESSES + 1)],
        ["group", info(member=NOBODY)],
        ["group", info(member=b"short")],
        ["group", [A, "name", [["host", 65_536, False]]]],
        ["group", [A, "name", [["host", "port", False]]]],
        ["group", [A, "name", "addresses"]],
        ["g" * (LONGEST_NAME_BYTES + 1), info()],
        [1, info()],
    ],
)
def test_registration_that_makes_no_sense(fields: list[object]) -> None:
    with pytest.raises(FrameError):
        decode_control(control_frame(2, encode(fields)))


def test_fields_of_later_versions_are_ignored() -> None:
    frame = control_frame(2, encode(["group", [*info(), "more"], "one,*.two", True, "more"]))
    assert decode_control(frame) == Register(
        "group",
        MemberInfo(A, "name", (PhysicalAddress("host", 1, False),)),
        Binding(("one", "*.two"), bind_names=True),
    )


def test_registration_without_a_rule_for_certificates() -> None:
    frame = control_frame(2, encode(["group", info()]))
    assert decode_control(frame) == Register(
        "group", MemberInfo(A, "name", (PhysicalAddress("host", 1, False),))
    )
    with pytest.raises(FrameError):
        decode_control(control_frame(2, encode(["group", info(), "one"])))


def test_greeting_of_another_version_may_have_any_fields() -> None:
    assert decode_control(control_frame(1, encode([2, "new", "fields"]))) == Hello(2)


def test_group_longer_than_its_frame() -> None:
    frame = encode_message("group", B, A, b"")
    with pytest.raises(FrameError):
        route_of(frame[:-1])


def test_most_members_fit_a_control_frame() -> None:
    long = "n" * LONGEST_NAME_BYTES
    addresses = (PhysicalAddress(long, 65_535, True),) * MOST_PHYSICAL_ADDRESSES
    frame = encode_control(Members(long, (MemberInfo(A, long, addresses),) * MOST_INFOS, True))
    assert len(frame) <= MOST_CONTROL_BYTES
    assert decode_control(frame)


def test_control_frame_that_is_too_long_is_not_decoded() -> None:
    body = encode([b"x"] * MOST_CONTROL_BYTES)
    frame = control_frame(5, body)
    tracemalloc.start()
    with pytest.raises(FrameError):
        decode_control(frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_only_lists_of_members_have_many_values() -> None:
    for kind in Type:
        if kind in (Type.MESSAGE, Type.MEMBERS):
            continue
        with pytest.raises(FrameError, match=f"more than {MOST_OTHER_VALUES} values"):
            decode_control(control_frame(kind, encode([None] * MOST_OTHER_VALUES)))
    addresses = (PhysicalAddress("host", 1, True),) * MOST_PHYSICAL_ADDRESSES
    registration = Register("group", MemberInfo(A, "name", addresses))
    assert decode_control(encode_control(registration)) == registration
