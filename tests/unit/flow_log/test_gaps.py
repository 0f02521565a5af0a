"""Missing numbers are found whatever order the others come in; late ones are no gap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus_flowlog.collector.gaps import MOST_AWAITED, Gaps

SLACK = 100


@given(st.sets(st.integers(0, 60), min_size=1), st.randoms(use_true_random=False), st.integers(1, 5))
def test_what_has_not_come_is_missed_and_nothing_else(heard: set[int], random: object, copies: int) -> None:
    first = min(heard)
    order = [number for number in heard - {first} for _ in range(copies)]
    random.shuffle(order)  # type: ignore[attr-defined]
    gaps = Gaps(SLACK)
    for at, number in enumerate([first, *order]):
        gaps.heard(number, min(at, SLACK - 1))
    missing = set(range(first, max(heard))) - heard
    assert gaps.overdue(SLACK - 1) == 0
    assert gaps.open == bool(missing)
    assert gaps.overdue(2 * SLACK) == len(missing)
    assert not gaps.open
    assert gaps.overdue(3 * SLACK) == len(missing)


def test_before_the_first_number_nothing_is_missing() -> None:
    gaps = Gaps(SLACK)
    gaps.heard(1000, 0)
    gaps.heard(999, 0)
    assert gaps.overdue(10 * SLACK) == 0


def test_a_jump_is_counted_without_being_kept() -> None:
    gaps = Gaps(SLACK)
    gaps.heard(0, 0)
    gaps.heard(10**12, 0)
    assert len(gaps._awaited) == MOST_AWAITED
    assert gaps.overdue(SLACK) == 10**12 - 1
