"""Findings and the summary come of finished tables: which rows matter, in which order, and all of it as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.integration.flow_analysis.made import at

from isthmus_flows.findings import MOST, Finding, findings
from isthmus_flows.log import Window
from isthmus_flows.summary import FIRST_ROWS, summary
from isthmus_flows.tables import TABLES, Kind, table

_NONE: dict[Kind, Any] = {Kind.LONG: 0, Kind.DOUBLE: 0.0, Kind.FLAG: False}
_TYPES = {
    Kind.STRING: "string",
    Kind.LONG: "long",
    Kind.DOUBLE: "double",
    Kind.TIME: "timestamp",
    Kind.FLAG: "boolean",
}


def matrix(address: str, direction: str = "in", **values: Any) -> dict[str, Any]:
    return {"site": "s", "address": address, "direction": direction, **values}


ROWS: dict[str, list[dict[str, Any]]] = {
    "traffic_matrix": [
        matrix(
            "busy", deliveries=900, octets=1, accepted=900, latency_p99_us=500.0, latency_p50_us=1.0, links=2
        ),
        matrix(
            "busy", "out", deliveries=850, octets=3, accepted=850, latency_p99_us=800.0, latency_p50_us=1.0
        ),
        matrix("broken", deliveries=100, octets=7, accepted=50, released=50, failed=50, latency_p99_us=None),
        # Slow, but once only.
        matrix("rare", deliveries=99, latency_p99_us=9e6, latency_p50_us=1.0),
        *[matrix(f"a{number:02}") for number in range(30)],
    ],
    "starvation": [
        {
            "role": "normal",
            "direction": "out",
            "container": "long",
            "no_credit_seconds": 100.0,
            "share": 0.09,
        },
        {"role": "normal", "direction": "out", "container": "much", "no_credit_seconds": 50.0, "share": 0.5},
        {"role": "normal", "direction": "out", "container": "short", "no_credit_seconds": 9.0, "share": 1.0},
    ],
    "sessions": [
        {"kind": "router", "identity": "r", "router": "gone", "end": at(8, 30), "end_known": "lost"},
        {"kind": "router", "identity": "r", "router": "stopped", "end": at(8, 31), "end_known": "ended"},
        {"kind": "link", "identity": "l", "end": at(8, 40), "end_known": "lost"},
    ],
    "rotation_outlived": [{"connection": "closed", "router": "r", "open": False, "octets_after": 9}],
    "topology_churn": [{"start": at(8), "end": at(8), "events": 5}],
    "relay_totals": [
        {"relay_group": "g", "relay_site": "a", "remote_site": "b", "max_lag_seconds": 9.9, "state": "up"},
        {"relay_group": "g", "relay_site": "b", "remote_site": "a", "dropped": 2, "state": "left"},
    ],
    "quality": [{"table": "deliveries", "rows": 1949, "files": 1}],
    "completeness": [{"router": "r", "source": "r:0", "not_recorded": 7}],
    "top_talkers": [{"direction": "in", "container": "half", "share_octets": 0.49}],
}


@pytest.fixture(scope="module")
def finished(spark: SparkSession) -> dict[str, DataFrame]:
    found = {}
    for item in TABLES:
        rows = [
            tuple(row.get(column.name, _NONE.get(column.kind)) for column in item.columns)
            for row in ROWS.get(item.name, ())
        ]
        schema = ", ".join(f"`{column.name}` {_TYPES[column.kind]}" for column in item.columns)
        found[item.name] = spark.createDataFrame(rows, schema)
    return found


@pytest.fixture(scope="module")
def found(finished: dict[str, DataFrame]) -> list[Finding]:
    return findings(finished)


def test_findings_are_of_the_rows_that_matter_and_the_worst_come_first(found: list[Finding]) -> None:
    assert [(finding.severity, finding.kind) for finding in found] == [
        ("critical", "relay-dropped"),
        ("critical", "router-lost"),
        ("warning", "starvation"),
        ("warning", "failed"),
        ("info", "busiest"),
        ("info", "slowest"),
    ]
    texts = {finding.kind: finding.text for finding in found}
    assert "Router gone was" in texts["router-lost"]
    assert "receiver much" in texts["starvation"]
    assert texts["failed"].startswith("50 % of what clients sent to broken at s")
    assert texts["busiest"].startswith("busy at s")
    assert "(sent by clients)" in texts["busiest"]
    assert "(sent to clients)" in texts["slowest"]
    assert "800 µs" in texts["slowest"]


def test_the_summary_is_json_and_bounded(finished: dict[str, DataFrame], found: list[Finding]) -> None:
    many = found * 10
    made = summary(
        "s3a://logs/a",
        Window(at(8), at(9)),
        60,
        datetime(2026, 11, 20, 9, 0, 1, 500_000, tzinfo=UTC),
        finished,
        many[:MOST],
    )
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert made["window"] == {
        "from": "2026-11-20T08:00:00Z",
        "to": "2026-11-20T09:00:00Z",
        "bucketSeconds": 60,
    }
    assert made["generatedAt"] == "2026-11-20T09:00:01.500000Z"
    sent, received = made["totals"]["in"], made["totals"]["out"]
    assert (sent["deliveries"], sent["octets"], sent["released"], received["accepted"]) == (1099, 8, 50, 850)
    assert made["tables"].keys() == {item.name for item in TABLES}
    first = made["tables"]["traffic_matrix"]
    assert len(first) == FIRST_ROWS
    assert [row["address"] for row in first[:4]] == ["broken", "busy", "busy", "rare"]
    assert made["tables"]["topology_churn"][0]["start"] == "2026-11-20T08:00:00.000000Z"
    assert made["tables"]["anomalies"] == []
    assert made["findings"][0] == {
        "severity": "critical",
        "kind": "relay-dropped",
        "text": found[0].text,
        "value": 2,
    }


def test_columns_are_declared_once_each() -> None:
    for item in TABLES:
        names = [column.name for column in item.columns]
        assert len(set(names)) == len(names)
        assert {name.removeprefix("-") for name in item.order} <= set(names)
        assert table(item.name) is item
    assert len({item.name for item in TABLES}) == len(TABLES)
