"""One origin's state: what of it is missing."""

from __future__ import annotations

from isthmus_router.groups.batch import Batch, GroupMessage, make_batch
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.streams.positions import Places
from isthmus_router.groups.streams.stream import Stream

ORIGIN = MemberId(b"o" * 16)


def batch(number: int) -> Batch:
    return make_batch(ORIGIN, number, number - 1, "nyc", None, [GroupMessage("a", b"x")])


def test_what_is_to_be_fetched_back_ends_where_it_is_here() -> None:
    stream = Stream(ORIGIN, "nyc", 1, 0, Places())
    for number in range(1, 9):
        stream.log.append(batch(number))
    stream.log.trim(3)
    stream.fill = (1, 5)
    assert stream.fill_hole(0) == (1, 3)
    assert stream.fill_hole(2) == (3, 3)
    for number in (3, 2, 1):
        stream.log.insert(batch(number))
    assert stream.fill_hole(0) is None


def test_what_is_to_be_fetched_back_may_lie_between_what_is_here() -> None:
    stream = Stream(ORIGIN, "nyc", 1, 0, Places())
    for number in (1, 2, 6, 8):
        stream.log.append(batch(number))
    stream.fill = (1, 4)
    assert stream.fill_hole(0) == (3, 4)
    stream.fill = (1, 7)
    assert stream.fill_hole(0) == (3, 5)
    stream.fill = (7, 7)
    assert stream.fill_hole(0) == (7, 7)
    assert stream.fill_hole(7) is None
