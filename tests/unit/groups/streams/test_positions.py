"""How far other members have a stream: what is said of them, across views, and how much memory that takes."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.streams.positions import Places, Positions
from isthmus_router.groups.streams.search import Search
from isthmus_router.groups.streams.stream import MOST_ASKED, Stream
from isthmus_router.groups.streams.wire import Missing
from isthmus_router.groups.views import MOST_MEMBERS

ORIGIN = MemberId(b"o" * 16)
MEMBERS = [MemberId(number.to_bytes(16)) for number in range(1, MOST_MEMBERS + 1)]


@pytest.mark.parametrize("seed", range(20))
def test_positions_are_those_of_a_dictionary_with_the_members_of_the_view(seed: int) -> None:
    rng = random.Random(seed)
    places = Places()
    streams = [Positions(places) for _ in range(4)]
    said: list[dict[MemberId, int]] = [{} for _ in streams]
    for _ in range(100):
        if rng.random() < 0.2:
            others = tuple(rng.sample(MEMBERS[:20], rng.randrange(8)))
            move = places.view_installed(others)
            for positions, numbers in zip(streams, said, strict=True):
                positions.move(move)
                for member in set(numbers) - set(others):
                    del numbers[member]
        for positions, numbers in zip(streams, said, strict=True):
            member = rng.choice(MEMBERS[:20])  # those of the next view may say theirs before it is installed
            number = rng.choice([1, 5, 256, 1 << 40, 1 << 62])
            positions.note(member, number)
            numbers[member] = max(numbers.get(member, 0), number)
            assert [positions.of(member) for member in MEMBERS[:20]] == [
                numbers.get(member, 0) for member in MEMBERS[:20]
            ]
            of_view = [numbers.get(member, 0) for member in places.others]
            assert positions.lowest() == min(of_view, default=None)
            best = max(of_view, default=0)
            who = places.others[of_view.index(best)] if best else None
            assert positions.highest() == (best, who)


def test_positions_of_thousands_of_streams_take_eight_bytes_for_each_member() -> None:
    places = Places()
    places.view_installed(tuple(MEMBERS))
    tracemalloc.start()
    try:
        streams = [Positions(places) for _ in range(200)]
        for number, member in enumerate(MEMBERS, 1 << 40):
            for positions in streams:
                positions.note(member, number)
        assert tracemalloc.get_traced_memory()[0] < 200 * MOST_MEMBERS * 10
        move = places.view_installed(tuple(MEMBERS[:1]))
        for positions in streams:
            positions.move(move)
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()


def test_a_search_remembers_a_bit_of_each_member_that_has_not_got_it() -> None:
    places = Places()
    places.view_installed(tuple(MEMBERS))
    tracemalloc.start()
    try:
        search = Search(0.0, 0.0, 1.0)
        for place, last in enumerate(range(1_000, 1_000 + len(MEMBERS))):
            search.lacks(place, Missing(ORIGIN, 1, last, last + 7, last + 9))
        assert tracemalloc.get_traced_memory()[0] < 2_000
    finally:
        tracemalloc.stop()
    assert search.left(MEMBERS, places) == []
    assert search.lacked == (1_000, 1_000 + len(MEMBERS) + 6, 1_009)
    search.forget_answers()
    assert search.left(MEMBERS, places) == MEMBERS
    search.lacks(3, Missing(ORIGIN, 1, 5, 7, 9))
    search.lacks(3, Missing(ORIGIN, 1, 5, 6, 10))
    assert search.left(MEMBERS, places) == MEMBERS[:3] + MEMBERS[4:]
    assert search.lacked == (5, 7, 10)


def test_answers_of_the_members_that_were_asked_last_are_awaited() -> None:
    stream = Stream(ORIGIN, "nyc", 1, 0, Places())
    for member in MEMBERS[: MOST_ASKED + 1]:
        stream.ask(member, 3, 4)
    stream.ask(MEMBERS[MOST_ASKED], 1, 1)
    assert list(stream.asked) == MEMBERS[1 : MOST_ASKED + 1]
    assert stream.asked[MEMBERS[MOST_ASKED]] == (1, 4)
