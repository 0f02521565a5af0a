"""Folders of runs: whole or not there, and no more of them than are to be kept."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from isthmus_flows.output import EVENTS, making
from isthmus_flows.settings import Settings

NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)


def settings(folder: Path, keep: int | None = None) -> Settings:
    return Settings("log", str(folder), 60, 0, 10, keep)


def seen(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


def test_a_run_is_whole_or_not_there(spark: SparkSession, tmp_path: Path) -> None:
    with making(spark, settings(tmp_path), NOW) as output:
        output.write("summary.json", "{}")
        assert seen(tmp_path) == {f"_{output.run}"}
        output.complete()
    assert seen(tmp_path) == {"20261120T090000Z"}

    def fails() -> None:
        with making(spark, settings(tmp_path), NOW) as output:
            output.write("summary.json", "{}")
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        fails()
    assert seen(tmp_path) == {"20261120T090000Z"}
    # Of the same second, and what a killed one has left behind.
    (tmp_path / "_20261120T090000Z-2").mkdir()
    (tmp_path / "_20261120T090000Z-2" / "rest").touch()
    with making(spark, settings(tmp_path), NOW) as output:
        output.write("report.html", "")
        output.complete()
    assert seen(tmp_path) == {"20261120T090000Z", "20261120T090000Z-2"}
    assert seen(tmp_path / "20261120T090000Z-2") == {"report.html"}


def test_what_killed_runs_have_left_is_deleted_after_a_day(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("_20261119T085959Z", "_20261119T090000Z-2", "_20261120T085900Z", "_mine", EVENTS):
        (tmp_path / name / "_cubes").mkdir(parents=True)
    with making(spark, settings(tmp_path), NOW) as output:
        output.write("summary.json", "{}")
        output.complete()
    left = {"_20261119T090000Z-2", "_20261120T085900Z", "_mine", EVENTS}
    assert seen(tmp_path) == {output.run, *left}


def test_the_newest_are_kept_and_their_event_logs(spark: SparkSession, tmp_path: Path) -> None:
    names = [f"{NOW + timedelta(minutes=number):%Y%m%dT%H%M%SZ}" for number in range(4)]
    for number, name in enumerate([*names[:3], f"{names[2]}-2", f"{names[2]}-10"]):
        (tmp_path / name / "tables").mkdir(parents=True)
        # Their names say nothing about their age.
        log = tmp_path / EVENTS / f"eventlog_v2_{9 - number}"
        log.mkdir(parents=True)
        (log / "events_1").touch()
        os.utime(log / "events_1", (1_000_000 + number,) * 2)
    (tmp_path / "of-somebody-else").mkdir()
    running = tmp_path / EVENTS / "eventlog_v2_running"
    running.mkdir()
    (running / "events_1").touch()
    with making(spark, settings(tmp_path, keep=3), NOW + timedelta(minutes=3)) as output:
        output.write("summary.json", "{}")
        output.complete()
    kept = {names[3], f"{names[2]}-10", f"{names[2]}-2"}
    assert seen(tmp_path) == {*kept, EVENTS, "of-somebody-else"}
    assert seen(tmp_path / EVENTS) == {"eventlog_v2_running", "eventlog_v2_5", "eventlog_v2_6"}
