"""The window of an analysis: which hours it is in, which it is compared with, and how people write it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus_flows.log import Window, parse_duration, parse_moment
from isthmus_flows.log.window import hour_of, number_of

NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def of(*hours: int) -> list[int]:
    """Hours of that day (and of others), counted from the epoch."""
    return [number_of(NINE) - 9 + hour for hour in hours]


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [
        (NINE, NINE + HOUR, of(9)),
        (NINE, NINE + HOUR + SECOND, of(9, 10)),
        (NINE + 59 * 60 * SECOND, NINE + HOUR, of(9)),
        (NINE - SECOND, NINE + 3 * HOUR, of(8, 9, 10, 11)),
    ],
)
def test_the_hours_that_some_of_it_is_in(start: datetime, end: datetime, hours: list[int]) -> None:
    assert list(Window(start, end).hours) == hours


def test_it_ends_after_it_begins() -> None:
    with pytest.raises(ValueError, match="before it begins"):
        Window(NINE, NINE)


def test_earlier_days_are_the_same_hours_of_these_and_before_the_window() -> None:
    assert Window(NINE, NINE + 2 * HOUR).earlier(2) == of(9 - 48, 10 - 48, 9 - 24, 10 - 24)
    assert Window(NINE, NINE + 2 * HOUR).earlier(0) == []
    # Of a window that begins within an hour, what is before it in that hour is of the day before, too.
    half = NINE + 30 * 60 * SECOND
    assert Window(half, half + 24 * HOUR).earlier(1) == of(*range(9 - 24, 10))
    # Of a window of two days the second day has the first one before it.
    assert Window(NINE, NINE + 48 * HOUR).earlier(1) == of(*range(9 - 24, 9))


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(0, 5))
def test_earlier_hours_are_before_the_window(start: int, length: int, days: int) -> None:
    window = Window(NINE + start * SECOND, NINE + (start + length) * SECOND).in_whole_hours()
    earlier = window.earlier(days)
    assert not set(earlier) & set(window.hours)
    assert all(any(hour + 24 * day in window.hours for day in range(1, days + 1)) for hour in earlier)
    assert hour_of(window.hours[0]) == window.start


@pytest.mark.parametrize(
    ("text", "length"),
    [("90s", 90 * SECOND), ("15m", 900 * SECOND), ("24h", 24 * HOUR), ("7d", 168 * HOUR)],
)
def test_durations(text: str, length: timedelta) -> None:
    assert parse_duration(text) == length


@pytest.mark.parametrize("text", ["", "0h", "24", "h", "1.5h", "-1h", "1w", "24 h", "99999999h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="as in 24h"):
        parse_duration(text)


def test_moments_have_a_zone() -> None:
    assert parse_moment("2026-11-20T10:00:00+01:00") == parse_moment("2026-11-20T09:00:00z") == NINE
    for text in ("2026-11-20T09:00:00", "2026-11-20", "yesterday", ""):
        with pytest.raises(ValueError, match="2026-11-23T08:00:00Z"):
            parse_moment(text)
