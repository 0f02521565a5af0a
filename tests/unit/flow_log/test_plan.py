"""When rows become files, which files become one, which are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.flow_log.samples import HOUR

from isthmus_flowlog.collector.journal import Segment
from isthmus_flowlog.collector.plan import (
    MOST_SEGMENT_BYTES,
    Delete,
    File,
    Merge,
    begins,
    compaction,
    retention,
    rotation_due,
)
from isthmus_flowlog.collector.settings import Compaction, Rotate

FOLDER = "deliveries/date=2026-11-23/hour=08"
SETTINGS = Compaction(targetBytes=100, afterSeconds=900, graceSeconds=600)
OVER = HOUR + 3600 + 900


def files(**sizes: int) -> list[File]:
    return [File(f"{FOLDER}/{name.replace('_', '-')}.parquet", size, OVER) for name, size in sizes.items()]


def no_parts(path: str) -> Sequence[str]:
    return ()


@pytest.mark.parametrize(
    ("rows", "size", "age", "due"),
    [
        (99, 5, 299, False),
        (100, 5, 0, True),
        (1, 5, 300, True),
        (1, MOST_SEGMENT_BYTES, 0, True),
        (1, 5, -1, True),
    ],
)
def test_rotation(rows: int, size: int, age: float, due: bool) -> None:
    segment = Segment(Path("x"), HOUR, rows, size, oldest=HOUR)
    assert rotation_due(segment, Rotate(seconds=300, rows=100), HOUR + age) is due


def test_nothing_is_no_reason_to_rotate() -> None:
    assert not rotation_due(None, Rotate(), HOUR)
    assert not rotation_due(Segment(Path("x"), 0.0), Rotate(), HOUR)


def test_partitions() -> None:
    assert begins(FOLDER) == HOUR
    assert begins("deliveries/date=2026-11-23") is None
    assert begins("deliveries/date=2026-13-23/hour=08") is None


def test_small_files_of_an_hour_that_is_over_become_one() -> None:
    given = files(a=30, b=40, c=60, d=20, e=20)
    assert compaction(given, no_parts, SETTINGS, OVER - 1) == []
    (merge,) = compaction(given, no_parts, SETTINGS, OVER)
    assert isinstance(merge, Merge)
    assert merge.parts == tuple(f"{FOLDER}/{name}.parquet" for name in "abd"), (
        "c is large, e would be too much"
    )
    assert compaction(list(reversed(given)), no_parts, SETTINGS, OVER) == [merge], "whatever the order"


def test_no_group_is_larger_than_the_target() -> None:
    steps = compaction(files(a=49, b=49, c=49, d=49, e=49), no_parts, SETTINGS, OVER)
    assert [len(step.parts) for step in steps if isinstance(step, Merge)] == [2, 2]


@pytest.mark.parametrize("given", [files(a=1), files(a=90, b=95), files(a=90, b=5), []])
def test_what_is_as_it_should_be_stays(given: list[File]) -> None:
    assert compaction(given, no_parts, SETTINGS, OVER) == []


def test_parts_are_deleted_when_readers_have_had_time() -> None:
    given = files(a=10, b=10, d=10, merged_a=20)

    def parts(path: str) -> Sequence[str]:
        return ["a.parquet", "b.parquet", "c.parquet"] if "merged" in path else ()

    assert compaction(given, parts, SETTINGS, OVER + 599) == [], "nor is anything merged meanwhile"
    assert compaction(given, parts, SETTINGS, OVER + 600) == [
        Delete((f"{FOLDER}/a.parquet", f"{FOLDER}/b.parquet"), "merged")
    ]
    left = [file for file in given if file.name not in ("a.parquet", "b.parquet")]
    (merge,) = compaction(left, parts, SETTINGS, OVER + 601)
    assert isinstance(merge, Merge)
    assert set(merge.parts) == {f"{FOLDER}/d.parquet", f"{FOLDER}/merged-a.parquet"}


def test_folders_that_are_no_partitions_are_left_alone() -> None:
    strange = [
        File("deliveries/date=x/hour=y/a.parquet", 1, 0),
        File("deliveries/date=x/hour=y/b.parquet", 1, 0),
    ]
    assert compaction(strange, no_parts, SETTINGS, OVER) == []
    assert retention(strange, 1, OVER) == []


def test_retention() -> None:
    given = [
        File("records/date=2026-11-20/hour=08/a.parquet", 1, 0),
        File("records/date=2026-11-20/hour=08/b.parquet", 1, 0),
        File("records/date=2026-11-20/hour=09/a.parquet", 1, 0),
    ]
    gone = Delete(tuple(file.path for file in given[:2]), "retention")
    assert retention(given, None, HOUR) == []
    assert retention(given, 3, HOUR + 3599) == []
    assert retention(given, 3, HOUR + 3600) == [gone]
    assert len(retention(given, 0.5, HOUR)) == 2
