"""`summary.json`: what an analysis has found, small enough to be read as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame

from isthmus_flows.findings import Finding
from isthmus_flows.log import Window
from isthmus_flows.parallel import each
from isthmus_flows.sums import total
from isthmus_flows.tables import TABLES, OutputTable, Row

SCHEMA_VERSION = 1
"""Raised when something in it changes its meaning or goes."""
FIRST_ROWS = 20
"""Of each table."""
TOTALS = (
    "deliveries",
    "octets",
    "accepted",
    "rejected",
    "released",
    "modified",
    "presettled",
    "dropped",
    "links",
)


def summary(
    log: str,
    window: Window,
    bucket_seconds: int,
    generated_at: datetime,
    tables: Mapping[str, DataFrame],
    findings: Sequence[Finding],
) -> dict[str, Any]:
    """Of the finished tables. All of it is what JSON has."""

    def first(item: OutputTable) -> list[Row]:
        return item.read(tables[item.name], FIRST_ROWS)

    rows = each(tables["quality"].sparkSession, first, TABLES)
    by_name = {item.name: found for item, found in zip(TABLES, rows, strict=True)}
    return {
        "schemaVersion": SCHEMA_VERSION,
        "log": log,
        "window": {"from": _iso(window.start), "to": _iso(window.end), "bucketSeconds": bucket_seconds},
        "generatedAt": _iso(generated_at),
        "totals": totals(tables["traffic_matrix"]),
        "quality": by_name["quality"],
        "findings": [finding.to_json() for finding in findings],
        "tables": by_name,
    }


def totals(matrix: DataFrame) -> dict[str, dict[str, int]]:
    """Of all clients, by direction: `in` and `out`."""
    sums = matrix.groupBy("direction").agg(*[total(name).alias(name) for name in TOTALS])
    found = {row["direction"]: row.asDict() for row in sums.collect()}
    return {way: {name: found.get(way, {}).get(name) or 0 for name in TOTALS} for way in ("in", "out")}


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
