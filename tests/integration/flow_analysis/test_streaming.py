"""Runs that go on come to the same as a run over the window, whatever came when, and whenever they were stopped."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.integration.flow_analysis.files import Row, delivery, in_schema, local, put, with_metadata

from isthmus_flowlog.schema import MERGED_KEY, VERSION_KEY
from isthmus_flows import streaming
from isthmus_flows.cubes import Cubes, cubes
from isthmus_flows.log import Log, read_log
from isthmus_flows.settings import Settings
from isthmus_flows.state import States
from isthmus_flows.streaming import Runs, Stream, add_new

# Of Spark jobs many are started here, which beside other tests take several times as long.
pytestmark = pytest.mark.timeout(400)

NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)
NOW = NINE + timedelta(hours=4)
HOUR = timedelta(hours=1)
BUCKET = 60


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Over the last four hours, with one earlier day."""
    (tmp_path / "log").mkdir()
    settings = Settings(str(tmp_path / "log"), str(tmp_path / "output"), BUCKET, baseline_days=1)
    return Stream(settings, str(tmp_path / "checkpoint"), timedelta(hours=4), lateness=timedelta(hours=2))


def log_of(stream: Stream) -> Path:
    return Path(stream.settings.log)


def some(name: str, moment: datetime, count: int = 40, seed: int = 0) -> list[Row]:
    """Intervals of some links at some sites."""
    chosen = random.Random(f"{name}{seed}")
    found = []
    for number in range(count):
        link = chosen.randrange(4)
        found.append(
            delivery(
                moment + timedelta(seconds=chosen.randrange(3600)),
                f"{name}:{number}",
                link=f"ln:{link}",
                site=chosen.choice(["east", "west", None]),
                direction=("in", "out")[link % 2],
                role=("normal", "inter-router")[link == 3],
                deliveries=chosen.randrange(9),
                octets=chosen.randrange(10_000),
                unsettled=chosen.randrange(5),
                sequence=number + 1,
                latencies={chosen.randrange(100): chosen.randrange(1, 9) for _ in range(3)},
            )
        )
    return found


def sums(found: Cubes) -> dict[str, Any]:
    """What cubes come to: their rows of the same keys added up."""
    traffic: dict[Any, Counter[str]] = {}
    for row in found.traffic.collect():
        sum_ = traffic.setdefault((row["bucket"], row["flow"], row["direction"]), Counter())
        for name in ("deliveries", "octets", "intervals", "us"):
            sum_[name] += row[name]
        for name in ("unsettled", "last_sequence"):
            sum_[name] = max(sum_[name], row[name])
    counts: dict[str, Counter[Any]] = {}
    for name in ("addresses", "sketches"):
        counts[name] = Counter()
        for row in getattr(found, name).collect():
            *keys, count = row
            counts[name][tuple(keys)] += count
    return {"traffic": traffic, "flows": set(map(tuple, found.flows.collect())), **counts}


def differences(left: dict[str, Any], right: dict[str, Any]) -> dict[str, list[str]]:
    """What only one of two cubes comes to, by cube."""
    found = {name: set(_items(left[name])) ^ set(_items(right[name])) for name in left}
    return {name: sorted(items) for name, items in found.items() if items}


def _items(of: Any) -> list[str]:
    return [str(item) for item in (of.items() if isinstance(of, dict) else of)]


def agree(spark: SparkSession, stream: Stream, runs: Runs, now: datetime = NOW) -> tuple[Log, dict[str, Any]]:
    """The stream knows what a run over its window finds: that, and what it adds up to."""
    told = runs.inputs(runs.last(), now)
    read = read_log(spark, stream.settings.log, runs.window(now))
    found = sums(cubes(read.deliveries.persist(), BUCKET))
    assert differences(sums(told.cubes), found) == {}
    assert told.log.quality == read.quality
    assert sorted(map(str, told.log.quarantine)) == sorted(map(str, read.quarantine))
    return read, found


def test_what_comes_bit_by_bit_is_what_is_there_at_the_end(
    spark: SparkSession, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(stream)
    first, second = some("first", NINE), some("second", NINE + HOUR)
    put(log, NINE - 2 * HOUR, "before", some("before", NINE - 2 * HOUR))
    put(log, NINE, "a", first[:25])
    runs = Runs(spark, stream)
    before = add_new(runs, NOW)

    # Told again, in the same hour and beside the next one; impossible rows, a file cut off and a stranger.
    put(log, NINE, "b", first[10:])
    put(log, NINE + HOUR, "a", [*second, *second[:7]])
    put(log, NINE + HOUR, "b", [delivery(NINE + HOUR, "bad", octets=-1), *some("third", NINE + HOUR)])
    path = put(log, NINE + 2 * HOUR, "cut", some("cut", NINE + 2 * HOUR))
    path.write_bytes(path.read_bytes()[:-5])
    (log / "deliveries" / "stray").mkdir()

    # It is killed when the cubes are written and the state is not; what goes on is another process.
    def killed(states: States, state: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(States, "save", killed)
        with pytest.raises(StreamingQueryException, match="killed"):
            add_new(runs, NOW)
    runs = Runs(spark, stream)
    assert runs.last() == before
    add_new(runs, NOW)
    read, _ = agree(spark, stream, runs)
    assert read.quality["deliveries"].duplicates == 15 + 7
    assert {item.reason.partition(":")[0] for item in read.quarantine} == {
        "octets is negative", "no Parquet file, or cut off", "in no folder date=YYYY-MM-DD/hour=HH"
    }  # fmt: skip

    # Merged into one file, beside which one of its parts is still there.
    names = {VERSION_KEY: "1", MERGED_KEY: json.dumps(["a.parquet", "b.parquet"])}
    put(log, NINE, "merged-a", with_metadata(in_schema([*first[:25], *first[10:]]), names))
    (log / "deliveries" / "date=2026-11-20" / "hour=09" / "b.parquet").unlink()
    put(log, NINE + 3 * HOUR, "a", some("last", NINE + 3 * HOUR))
    add_new(runs, NOW)
    read, found = agree(spark, stream, runs)
    assert read.quality["deliveries"].duplicates == 15 + 25 + 7

    # Of an hour that was added up again the cubes before that are kept no longer than the state before.
    versions = {path.name for path in Path(stream.folder, "cubes", "traffic").iterdir()}
    named = {f"version={hour.version}" for hour in runs.last().hours.values()}
    assert {name for name in versions if name.startswith("version=")} == named | {"version=1"}

    # A day later it is what is compared with.
    told = runs.inputs(runs.last(), NOW + 24 * HOUR)
    assert told.earlier is not None
    assert (sums(told.cubes)["traffic"], sums(told.earlier)) == ({}, found)


def test_what_comes_of_a_closed_hour_is_told_to_be_late(spark: SparkSession, stream: Stream) -> None:
    log = log_of(stream)
    put(log, NINE, "a", some("first", NINE))
    put(log, NINE + HOUR, "a", some("second", NINE + HOUR))
    put(log, NINE + 3 * HOUR, "a", some("third", NINE + 3 * HOUR))
    # A router whose clock is ahead closes nothing.
    put(log, NINE + 30 * HOUR, "a", some("ahead", NINE + 30 * HOUR))
    runs = Runs(spark, stream)
    add_new(runs, NOW)
    before = sums(runs.inputs(runs.last(), NOW).cubes)
    put(log, NINE, "late", some("late", NINE, 7))
    put(
        log,
        NINE,
        "merged",
        with_metadata(in_schema(some("first", NINE)), {VERSION_KEY: "1", MERGED_KEY: "[]"}),
    )
    put(log, NINE + HOUR, "in-time", some("in-time", NINE + HOUR, 11))
    add_new(runs, NOW)
    told = runs.inputs(runs.last(), NOW)
    quality = told.log.quality["deliveries"]
    assert (quality.files, quality.rows, quality.late) == (4, 131, 7)
    after = sums(told.cubes)
    intervals = [sum(row["intervals"] for row in found["traffic"].values()) for found in (before, after)]
    assert intervals == [120, 131]
    put(log, NINE, "later-still", some("later-still", NINE, 5))
    add_new(runs, NOW)
    assert runs.inputs(runs.last(), NOW).log.quality["deliveries"].late == 12
    assert sums(runs.inputs(runs.last(), NOW).cubes) == after


def test_a_stream_that_is_another_one_now_begins_anew(spark: SparkSession, stream: Stream) -> None:
    put(log_of(stream), NINE, "a", some("first", NINE))
    add_new(Runs(spark, stream), NOW)
    longer = replace(stream, last=timedelta(hours=5), settings=replace(stream.settings, bucket_seconds=30))
    runs = Runs(spark, longer)
    assert runs.last().hours == {}
    add_new(runs, NOW)
    assert runs.inputs(runs.last(), NOW).log.quality["deliveries"].rows == 40
    assert [path.name for path in Path(stream.checkpoint).iterdir()] == [Path(longer.folder).name]


def test_a_stream_tells_whenever_something_has_come(
    spark: SparkSession, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(stream)
    told: Queue[Mapping[str, Any]] = Queue()
    monkeypatch.setattr(streaming, "publish", rows_of_quality)
    put(log, NINE, "a", some("first", NINE))
    query = streaming.follow(spark, stream, timedelta(seconds=1), told.put, lambda: NOW)
    try:
        assert told.get(timeout=300)["rows"] == 40
        put(log, NINE + HOUR, "a", some("second", NINE + HOUR))
        assert told.get(timeout=300)["rows"] == 80
    finally:
        query.stop()
    assert told.empty()


def rows_of_quality(inputs: Any, output: Any, *more: Any) -> dict[str, Any]:
    """In place of a report."""
    output.write("summary.json", "{}")
    assert local(f"file:{output.complete()}").joinpath("summary.json").is_file()
    return {"rows": inputs.log.quality["deliveries"].rows}
