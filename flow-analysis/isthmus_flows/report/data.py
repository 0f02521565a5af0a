"""What the page is made from: some rows of each table, and what is drawn over time. All of it is bounded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from isthmus_flows.sketches import quantiles
from isthmus_flows.tables import TABLES

Row = Mapping[str, Any]
MOST_ROWS = 20
MOST_POINTS = 240
MOST_LINES = 7
OTHERS = "others"
MATRIX_SITES, MATRIX_ADDRESSES = 20, 24
MOST_EDGES = 200
_MORE = {
    "traffic_matrix": 2 * MATRIX_SITES * MATRIX_ADDRESSES,
    "topology_edges": MOST_EDGES,
    "top_talkers": 80,
}
"""Tables of which more rows than those shown are needed."""


@dataclass(frozen=True)
class Rows:
    """The first rows of a table, and how many it has."""

    rows: Sequence[Row] = ()
    count: int = 0


@dataclass(frozen=True)
class ReportData:
    """Of one analysis."""

    summary: Mapping[str, Any]
    tables: Mapping[str, Rows] = field(default_factory=dict)
    series: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    """By name: rows with `moment` and what is drawn."""
    step: timedelta = timedelta(minutes=1)
    """Between two points of a series."""

    @property
    def span(self) -> tuple[datetime, datetime]:
        """The window."""
        start, end = (datetime.fromisoformat(self.summary["window"][name]) for name in ("from", "to"))
        return start, end

    def table(self, name: str) -> Rows:
        """Empty for one that is not there."""
        return self.tables.get(name, Rows())


def collect(summary: Mapping[str, Any], tables: Mapping[str, DataFrame], addresses: DataFrame) -> ReportData:
    """From the tables of an analysis, and its sketches by `addresses` (`cubes.Cubes.addresses`)."""
    window = summary["window"]
    length = datetime.fromisoformat(window["to"]) - datetime.fromisoformat(window["from"])
    buckets = max(1, math.ceil(length.total_seconds() / window["bucketSeconds"]))
    seconds = int(window["bucketSeconds"]) * math.ceil(buckets / MOST_POINTS)
    found = {
        item.name: Rows(
            _rows(item.first(tables[item.name], _MORE.get(item.name, MOST_ROWS))), tables[item.name].count()
        )
        for item in TABLES
    }
    busiest = _names(found["traffic_matrix"], "octets")
    slowest = _names(found["traffic_matrix"], "latency_p99_us")
    series = {
        "rates": _rates(tables["traffic_rates"], busiest, seconds),
        "latency": _latency(addresses, seconds, ()),
        "slowest": _latency(addresses.where(F.col("address").isin(slowest)), seconds, ("address",)),
        "ordinals": _ordinals(tables["rotation_flows"], seconds),
        "events": _events(tables["topology_events"], seconds),
        "relay": _relay(tables["relay_rates"], seconds),
    }
    return ReportData(
        summary, found, {name: _rows(frame) for name, frame in series.items()}, timedelta(seconds=seconds)
    )


def _names(matrix: Rows, by: str) -> list[str]:
    """The addresses with most of something."""
    most: dict[str, float] = {}
    for row in matrix.rows:
        if row["address"] is not None:
            most[row["address"]] = max(most.get(row["address"], 0), row[by] or 0)
    return sorted(most, key=lambda name: (-most[name], name))[:MOST_LINES]


def _moment(seconds: int) -> Column:
    us = seconds * 1_000_000
    return F.timestamp_micros(F.floor(F.unix_micros("bucket") / F.lit(us)).cast("long") * F.lit(us)).alias(
        "moment"
    )


def _rates(rates: DataFrame, addresses: Sequence[str], seconds: int) -> DataFrame:
    name = (
        F.when(F.col("address").isin(list(addresses)), F.col("address"))
        .otherwise(F.lit(OTHERS))
        .alias("address")
    )
    return rates.groupBy(_moment(seconds), name, "direction").agg(
        (F.sum("deliveries") / seconds).alias("deliveries_per_second"),
        (F.sum("octets") / seconds).alias("octets_per_second"),
    )


def _latency(addresses: DataFrame, seconds: int, keys: tuple[str, ...]) -> DataFrame:
    """Where messages come in: from there until their outcome is known."""
    rows = addresses.where("metric = 'latency' AND direction = 'in'").withColumn("moment", _moment(seconds))
    return quantiles(rows, ("moment", *keys), {"p50": 0.5, "p90": 0.9, "p99": 0.99})


def _ordinals(flows: DataFrame, seconds: int) -> DataFrame:
    at_once = flows.groupBy("bucket", "tls_ordinal").agg(F.sum("connections").alias("connections"))
    return at_once.groupBy(_moment(seconds), "tls_ordinal").agg(F.max("connections").alias("connections"))


def _events(events: DataFrame, seconds: int) -> DataFrame:
    return events.groupBy(_moment(seconds), "event").agg(F.sum("count").alias("count"))


def _relay(rates: DataFrame, seconds: int) -> DataFrame:
    return rates.groupBy(_moment(seconds), "relay_group", "relay_site", "remote_site").agg(
        F.max("lag_seconds").alias("lag_seconds"), (F.sum("sent") / seconds).alias("sent_per_second")
    )


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows with times that have a zone; Spark would give them in that of this process."""
    times = [item.name for item in frame.schema if isinstance(item.dataType, T.TimestampType)]
    rows = [
        row.asDict() for row in frame.withColumns({name: F.unix_micros(name) for name in times}).collect()
    ]
    for row in rows:
        for name in times:
            if row[name] is not None:
                row[name] = datetime.fromtimestamp(row[name] / 1_000_000, UTC)
    return rows
