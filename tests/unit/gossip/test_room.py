"""Shares in the room of a gossip router."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from isthmus_router.gossip.room import Room

MIB = 1 << 20
MOST = 256 * MIB
LONGEST = 16 * MIB


@dataclass(frozen=True)
class Holder:
    identity: str
    group: bytes


def filled(room: Room, holder: Holder) -> int:
    """Bytes that the holder gets if it takes all that it may."""
    got = 0
    while room.fits(holder, LONGEST):
        room.charge(holder.identity, holder.group, LONGEST)
        got += LONGEST
    return got


def test_nobody_takes_more_than_half() -> None:
    room = Room(MOST)
    assert filled(room, Holder("greedy", b"own")) <= MOST // 2
    assert room.fits(Holder("other", b"another"), LONGEST)


def test_an_identity_gets_no_more_with_further_groups() -> None:
    room = Room(MOST)
    got = sum(filled(room, Holder("greedy", b"%d" % number)) for number in range(64))
    assert got <= MOST // 2
    assert room.fits(Holder("other", b"another"), LONGEST)


def test_a_group_gets_no_more_than_its_share_with_further_identities() -> None:
    room = Room(MOST)
    got = sum(filled(room, Holder(f"greedy{number}", b"own")) for number in range(64))
    assert got <= MOST * 2 // 5
    assert room.fits(Holder("other", b"another"), LONGEST)


def test_those_that_hold_least_come_first() -> None:
    room = Room(MOST)
    much, little, none = (Holder(name, name.encode()) for name in ("much", "little", "none"))
    room.charge("much", b"much", 2)
    room.charge("little", b"little", 1)
    assert room.next([much, little, none]) == none
    assert room.next([much, little]) == little


def test_a_frame_longer_than_the_room_has_its_turn() -> None:
    room = Room(MIB)
    assert room.fits(Holder("one", b"group"), LONGEST)
    assert room.takes(Holder("one", b"group"), LONGEST)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 1 << 24))))
def test_nothing_remains_of_what_was_given_back(taken: list[tuple[int, int, int]]) -> None:
    room = Room(MOST)
    for identity, group, size in taken:
        room.charge(str(identity), b"%d" % group, size)
    for identity, group, size in reversed(taken):
        room.charge(str(identity), b"%d" % group, -size)
    assert room.held == 0
    assert all(room.of_identity(str(identity)) == 0 for identity in range(4))
    assert filled(room, Holder("0", b"0")) == filled(Room(MOST), Holder("0", b"0"))
