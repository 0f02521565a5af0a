"""Numbers as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from isthmus_flows import formats


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (999.6, "1 k"),
        (12_345, "12.3 k"),
        (4_560_000, "4.6 M"),
        (0.25, "0.25"),
    ],
)
def test_numbers(value: float | None, shown: str) -> None:
    assert formats.number(value) == shown


def test_units() -> None:
    assert formats.rate(12_345) == "12.3 k/s"
    assert formats.rate(3) == "3/s"
    assert formats.size(512) == "512 B"
    assert formats.size(4_500_000) == "4.5 MB"
    assert formats.throughput(1e9) == "1 GB/s"


@pytest.mark.parametrize(
    ("microseconds", "shown"),
    [
        (None, "–"),
        (0, "0 µs"),
        (850, "850 µs"),
        (999.6, "1 ms"),
        (2_100, "2.1 ms"),
        (3_200_000, "3.2 s"),
        (59_900_000, "59.9 s"),
        (245_000_000, "4 min 5 s"),
        (7_380_000_000, "2 h 3 min"),
        (3_600_000_000, "1 h"),
        (273_600_000_000, "3 d 4 h"),
    ],
)
def test_durations(microseconds: float | None, shown: str) -> None:
    assert formats.duration(microseconds) == shown


def test_seconds() -> None:
    assert [formats.seconds(value) for value in (None, 0, 0.0021, 75)] == ["–", "0 s", "2.1 ms", "1 min 15 s"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0, "0 %"), (0.0004, "< 0.1 %"), (0.003, "0.3 %"), (0.12, "12 %"), (1, "100 %")],
)
def test_shares(value: float | None, shown: str) -> None:
    assert formats.share(value) == shown


def test_times_are_utc() -> None:
    there = datetime(2026, 11, 23, 10, 15, 30, tzinfo=timezone(timedelta(hours=2)))
    assert formats.moment(there) == "23 Nov 08:15:30"
    assert formats.moment("2026-11-03T08:15:30Z") == "3 Nov 08:15:30"
    assert formats.moment(datetime(2026, 11, 3, tzinfo=UTC)) == "3 Nov 00:00:00"
    assert formats.moment(None) == "–"


def test_other_values() -> None:
    assert [formats.text(value) for value in (None, "", True, False, 3, "x")] == [
        "–",
        "–",
        "yes",
        "no",
        "3",
        "x",
    ]
