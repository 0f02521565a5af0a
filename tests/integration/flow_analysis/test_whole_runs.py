"""All tables of a log in which everything happens, in one run, are those of the same log spoilt (rows twice, files cut
off, damaged or newer, impossible rows) as a stream that reads it bit by bit tells them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.flow_analysis.eventful import DAYS, END, START, eventful
from tests.integration.flow_analysis.files import Row, damage, put, with_metadata
from tests.integration.flow_analysis.made import World, as_told

from isthmus_flowlog.schema import DELIVERIES, EVENTS, RECORDS, RELAYED, VERSION_KEY, Table
from isthmus_flows import batch
from isthmus_flows.settings import Settings
from isthmus_flows.streaming import Runs, Stream, add_new
from isthmus_flows.tables import TABLES

pytestmark = pytest.mark.timeout(600)

ABOUT_THE_LOG = {"quality", "quarantine"}
Tables = Mapping[str, list[str]]


def hours_of(world: World) -> dict[tuple[Table, datetime], list[Row]]:
    """Its rows, by table and hour."""
    found: dict[tuple[Table, datetime], list[Row]] = {}
    for table, rows in (
        (DELIVERIES, world.deliveries),
        (RECORDS, world.records),
        (EVENTS, world.events),
        (RELAYED, world.relayed),
    ):
        for row in rows:
            hour = row[table.time].replace(minute=0, second=0, microsecond=0)
            found.setdefault((table, hour), []).append(row)
    return found


def written(world: World, log: Path) -> None:
    """As a collector has it when all is well: a file for each hour."""
    for (table, hour), rows in hours_of(world).items():
        put(log, hour, "all", as_told(table, rows), table)


def spoilt(world: World, log: Path, seed: int) -> list[tuple[Path, bytes]]:
    """The same as it may be when nothing goes well: files, in any order."""
    chosen = random.Random(seed)
    found: list[tuple[Path, bytes]] = []

    def made(path: Path, length: int | None = None) -> None:
        found.append((path, path.read_bytes()[:length]))
        path.unlink()

    for (table, hour), rows in hours_of(world).items():
        # In two files, in any order; some rows in both, or twice in one.
        parts: tuple[list[Row], list[Row]] = ([], [])
        for row in [*chosen.sample(rows, len(rows)), *chosen.sample(rows, len(rows) // 5)]:
            parts[chosen.randrange(2)].append(row)
        for number, part in enumerate(parts):
            made(put(log, hour, f"part-{number}", as_told(table, part), table))
        impossible = {**rows[0], "identity": "impossible", table.time: hour - timedelta(minutes=1)}
        made(put(log, hour, "impossible", as_told(table, [impossible]), table))
        made(put(log, hour, "cut", as_told(table, rows), table), -20)
        newer = with_metadata(as_told(table, rows), {VERSION_KEY: "99"})
        made(put(log, hour, "newer", newer, table))
        damaged = put(log, hour, "damaged", as_told(table, rows), table)
        damage(damaged, "identity", seed)
        made(damaged)
    return chosen.sample(found, len(found))


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """What comes of the log when all is well."""
    folder = tmp_path_factory.mktemp("well")
    written(eventful(1), folder / "log")
    stream = stream_in(folder)
    window = Runs(spark, stream).window(END)
    tables = told(spark, folder, batch.run(spark, stream.settings, window, END)["run"])
    assert {name for name, rows in tables.items() if not rows} == {"quarantine"}
    return tables


def stream_in(folder: Path) -> Stream:
    settings = Settings(str(folder / "log"), str(folder / "output"), 60, DAYS)
    return Stream(settings, str(folder / "checkpoint"), END - START, timedelta(days=30))


def told(spark: SparkSession, folder: Path, name: str) -> Tables:
    """The tables that a run has written."""
    tables = folder / "output" / name / "tables"
    return {
        table.name: sorted(map(str, spark.read.parquet(str(tables / table.name)).collect()))
        for table in TABLES
    }


def differing(found: Tables, expected: Tables) -> dict[str, set[str]]:
    """What only one of both has."""
    return {
        name: set(found[name]) ^ set(rows)
        for name, rows in expected.items()
        if name not in ABOUT_THE_LOG and found[name] != rows
    }


def test_a_spoilt_log_that_comes_bit_by_bit_is_the_same(
    spark: SparkSession, tmp_path: Path, expected: Tables
) -> None:
    files = spoilt(eventful(1), tmp_path / "log", 3)
    runs = Runs(spark, stream_in(tmp_path))
    for step in range(2):
        for path, content in files[step::2]:
            path.write_bytes(content)
        add_new(runs, END)
    found = told(spark, tmp_path, runs.tell(runs.last(), END)["run"])
    assert differing(found, expected) == {}
    reasons = " ".join(found["quarantine"])
    for reason in ("of another hour than its folder", "cut off", "schema version 99", "damaged"):
        assert reason in reasons
