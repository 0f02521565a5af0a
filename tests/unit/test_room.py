"""Shares in the room of a gossip router."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from isthmus_router.room import Room, Waiting

MIB = 1 << 20
MOST = 256 * MIB
LONGEST = 16 * MIB


@dataclass(frozen=True)
class Holder:
    identity: str
    group: bytes
    number: int = 0


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


class Queue:
    """Connections that wait, and those that were admitted; what they wait for is reserved then."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.waiting = Waiting[Holder](room)
        self.admitted: list[Holder] = []
        self._sizes: dict[Holder, int] = {}

    def wait(self, *holders: Holder, size: int = LONGEST) -> None:
        for holder in holders:
            self._sizes[holder] = size
            self.waiting.add(holder, size)

    def _admit(self, holder: Holder) -> None:
        self.admitted.append(holder)
        reserved(self.room, holder, self._sizes[holder])

    def serve(self, most: int = 16) -> list[Holder]:
        self.admitted = []
        while self.waiting.serve(self._admit, most) and len(self.admitted) < most:
            pass
        return self.admitted


def reserved(room: Room, holder: Holder, size: int) -> None:
    """Room for a frame of which nothing has arrived."""
    room.charge(holder.identity, holder.group, size)
    room.reserve(holder.identity, holder.group, size)


def test_those_that_hold_least_come_first() -> None:
    room = Room(MOST)
    much, little, none = (Holder(name, name.encode()) for name in ("much", "little", "none"))
    room.charge("much", b"much", 2)
    room.charge("little", b"little", 1)
    queue = Queue(room)
    queue.wait(much, little, none)
    assert queue.serve(1) == [none]
    assert queue.serve(1) == [little]
    assert queue.serve(1) == [much]
    assert not len(queue.waiting)


def test_those_of_one_identity_and_group_have_turns_in_their_order() -> None:
    queue = Queue(Room(MOST))
    holders = [Holder("one", b"group", number) for number in range(5)]
    queue.wait(*holders, size=1)
    queue.waiting.discard(holders[1])
    assert queue.serve() == [holders[0], *holders[2:]]


def test_an_identity_reserves_a_small_part_for_bytes_that_have_not_arrived() -> None:
    queue = Queue(Room(MOST))
    queue.wait(*(Holder("greedy", b"%d" % number, number) for number in range(64)))
    assert len(queue.serve(64)) == MOST // 8 // LONGEST
    assert queue.waiting.hindered().by(Holder("greedy", b"another"))
    assert not queue.waiting.hindered().by(Holder("other", b"another"))


def test_a_group_reserves_a_small_part_for_bytes_that_have_not_arrived() -> None:
    queue = Queue(Room(MOST))
    queue.wait(*(Holder(f"greedy{number}", b"own") for number in range(64)))
    assert len(queue.serve(64)) == MOST // 4 // LONGEST
    assert queue.waiting.hindered().by(Holder("other", b"own"))
    assert not queue.waiting.hindered().by(Holder("other", b"another"))


def test_bytes_that_have_arrived_are_not_reserved() -> None:
    room = Room(MOST)
    holder = Holder("one", b"group")
    for _ in range(2):
        reserved(room, holder, LONGEST)
    assert not room.fits(holder, LONGEST)
    room.reserve("one", b"group", -LONGEST)
    assert room.fits(holder, LONGEST)


def test_a_frame_longer_than_the_part_for_reservations_has_its_turn() -> None:
    room = Room(2 * LONGEST)
    holder = Holder("one", b"group")
    assert room.fits(holder, LONGEST)
    reserved(room, holder, 1)
    assert not room.fits(holder, LONGEST)
    assert room.fits(holder, 0)


def test_what_one_group_has_holds_back_no_other() -> None:
    """Of identities that hold less."""
    room = Room(MOST)
    for number in range(4):
        reserved(room, Holder(f"greedy{number}", b"evil"), LONGEST)
    room.charge("honest", b"good", LONGEST)
    queue = Queue(room)
    honest = [Holder("honest", b"good", number) for number in range(3)]
    queue.wait(Holder("evil", b"evil"), *honest, size=MIB)
    assert queue.serve() == honest
    assert len(queue.waiting) == 1


def test_what_one_identity_has_holds_back_no_other() -> None:
    room = Room(MOST)
    room.charge("honest", b"good", MOST // 4)
    for number in range(2):
        reserved(room, Holder("evil", b"%d" % number), LONGEST)
    queue = Queue(room)
    honest = Holder("honest", b"good")
    queue.wait(*(Holder("evil", b"%d" % number, number) for number in range(4)), honest)
    assert queue.serve() == [honest]


def test_a_smaller_frame_of_the_same_identity_does_not_go_first() -> None:
    """Where the group of the larger one holds less: it would never have its turn."""
    room = Room(MOST)
    reserved(room, Holder("one", b"busy"), MOST // 8 - MIB)
    queue = Queue(room)
    queue.wait(Holder("one", b"quiet"), size=LONGEST)
    queue.wait(Holder("one", b"busy"), size=MIB)
    assert queue.serve() == []
    room.reserve("one", b"busy", MIB - MOST // 8)
    assert queue.serve() == [Holder("one", b"quiet"), Holder("one", b"busy")]


def test_others_go_on_with_half_of_the_room_while_a_frame_fits_nowhere() -> None:
    """And the frame has its turn when they give some back, however many go on."""
    room = Room(MOST)
    for number in range(31):
        room.charge(f"{number}", b"%d" % number, 8 * MIB)
    queue = Queue(room)
    large = Holder("large", b"large")
    queue.wait(large)
    assert queue.waiting.hindered().by(Holder("any", b"any"))
    small = [Holder(f"new{number}", b"new%d" % number) for number in range(64)]
    queue.wait(*small, size=MIB)
    got = queue.serve(64)
    assert large not in got
    assert 0 < len(got) <= 7
    for number in range(3):
        room.charge(f"{number}", b"%d" % number, -8 * MIB)
    assert queue.serve(1) == [large]


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
