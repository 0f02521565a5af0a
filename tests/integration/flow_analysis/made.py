"""Rows of a flow log made by hand, and the tables that come of them.

A day of the tests begins at `DAY`; times are told as offsets from it: `at(8, 30)` is half past eight in the morning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from isthmus_flowlog.arrow import arrow_schema
from isthmus_flowlog.schema import DELIVERIES, EVENTS, RECORDS, RELAYED, Kind, Table
from isthmus_flows.cubes import cubes
from isthmus_flows.log import Log, Quality, Window
from isthmus_flows.log.files import Quarantined
from isthmus_flows.spark_schema import spark_schema
from isthmus_flows.tables import Inputs, Row, table
from isthmus_flows.tables import Kind as OutputKind

DAY = datetime(2026, 11, 20, tzinfo=UTC)


def at(hours: int, minutes: int = 0, seconds: float = 0) -> datetime:
    """A time of the day."""
    return DAY + timedelta(hours=hours, minutes=minutes, seconds=seconds)


@dataclass
class World:
    """What a log has."""

    deliveries: list[Row] = field(default_factory=list)
    records: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    relayed: list[Row] = field(default_factory=list)
    quality: Mapping[str, Quality] = field(default_factory=dict)
    quarantine: tuple[Quarantined, ...] = ()
    _sequences: dict[tuple[str | None, str], int] = field(default_factory=dict)

    def flowed(self, end: datetime, seconds: float = 10, **values: Any) -> None:
        """An interval of a link. The numbers of a flow's intervals count up, unless `sequence` is given."""
        row = {
            "source": "r1:0",
            "site": "east",
            "router": "r1",
            "router_mode": "interior",
            "direction": "in",
            "role": "normal",
            **values,
        }
        flow = (row.get("link") or row.get("connection") or row["source"], row["direction"])
        sequence = values.get("sequence", self._sequences.get(flow, 0) + 1)
        self._sequences[flow] = sequence
        row |= {
            "identity": f"d{len(self.deliveries)}",
            "sequence": sequence,
            "start_time": end - timedelta(seconds=seconds),
            "end_time": end,
            "heard_at": end,
        }
        self.deliveries.append(row)

    def told(self, heard_at: datetime, record_type: str, identity: str, **values: Any) -> None:
        """A state of a record."""
        row = {"source": "r1:0", "type": record_type, "identity": identity, "heard_at": heard_at, **values}
        self.records.append(row)

    def happened(self, time: datetime, event_type: str, event: str, **values: Any) -> None:
        """An event."""
        row = {"source": "r1:0", "router": "r1", "site": "east", "type": event_type, "event": event, **values}
        self.events.append({"identity": f"e{len(self.events)}", "time": time, "heard_at": time, **row})

    def went(self, end: datetime, seconds: float = 10, **values: Any) -> None:
        """An interval of a relay site with another one."""
        row = {"source": "r1:0", "router": "r1", "relay_group": "g", "state": "up", "relays": True, **values}
        times = {"start_time": end - timedelta(seconds=seconds), "end_time": end, "heard_at": end}
        self.relayed.append(
            {"identity": f"s{len(self.relayed)}", "sequence": len(self.relayed), **times, **row}
        )


def built(
    spark: SparkSession,
    world: World,
    names: Iterable[str],
    window: Window,
    bucket_seconds: int = 60,
    earlier: World | None = None,
    **options: Any,
) -> dict[str, list[Row]]:
    """These tables, each in its order."""
    log = Log(
        window,
        _frame(spark, DELIVERIES, world.deliveries),
        _frame(spark, RECORDS, world.records),
        _frame(spark, EVENTS, world.events),
        _frame(spark, RELAYED, world.relayed),
        world.quality,
        world.quarantine,
    )
    before = None
    if earlier is not None:
        before = cubes(_frame(spark, DELIVERIES, earlier.deliveries), bucket_seconds)
    inputs = Inputs(log, cubes(log.deliveries, bucket_seconds), bucket_seconds, before, **options)
    found = {}
    for name in names:
        of = table(name)
        times = {column.name for column in of.columns if column.kind is OutputKind.TIME}
        rows = of.read(of.build(inputs), 1000)
        found[name] = [
            {key: _time(value) if key in times else value for key, value in row.items()} for row in rows
        ]
    inputs.release()
    return found


def only(rows: Iterable[Row], **wanted: Any) -> Row:
    """The one row with these values."""
    found = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    assert len(found) == 1, found
    return found[0]


def part(row: Row, *names: str) -> tuple[Any, ...]:
    """Some of its values."""
    return tuple(row[name] for name in names)


def as_told(of: Table, rows: Iterable[Row]) -> pa.Table:
    """Rows of a table of the log; counts that are not given are 0."""
    names = {column.name for column in of.columns}
    zeros: Row = {column.name: 0 for column in of.columns if column.required and column.kind is Kind.LONG}
    zeros |= {column.name: False for column in of.columns if column.required and column.kind is Kind.FLAG}
    complete = []
    for row in rows:
        assert row.keys() <= names, row.keys() - names
        complete.append(zeros | {name: _plain(value) for name, value in row.items()})
    return pa.Table.from_pylist(complete, arrow_schema(of))


def _frame(spark: SparkSession, of: Table, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(as_told(of, rows), spark_schema(of))


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _plain(value: Any) -> Any:
    """A sketch as pyarrow takes it."""
    return list(value.items()) if isinstance(value, dict) else value
