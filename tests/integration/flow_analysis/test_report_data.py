"""What the report is made from: bounded however large the tables are, and nothing is left out without being told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from isthmus_flows.report import ReportData, collect, render
from isthmus_flows.report.data import (
    MATRIX_ADDRESSES,
    MATRIX_SITES,
    MOST_LINES,
    MOST_ROWS,
    OTHERS,
    extent,
)
from isthmus_flows.tables import TABLES, Kind

START = datetime(2026, 11, 22, 8, 3, tzinfo=UTC)
END = START + timedelta(hours=8)
BUCKET = datetime(2026, 11, 22, 8, 3, tzinfo=UTC)
SITES, ADDRESSES = 30, 40
TYPES: Mapping[Kind, T.DataType] = {
    Kind.STRING: T.StringType(),
    Kind.LONG: T.LongType(),
    Kind.DOUBLE: T.DoubleType(),
    Kind.TIME: T.TimestampType(),
    Kind.FLAG: T.BooleanType(),
}
SKETCH = (
    "bucket timestamp, site string, address string, direction string, metric string, sketch_bucket int, "
    "sketch_count long"
)


def frames(spark: SparkSession, given: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, DataFrame]:
    """All tables; those that are not given are empty, values that are not given are null."""
    made = {}
    for item in TABLES:
        schema = T.StructType([T.StructField(column.name, TYPES[column.kind]) for column in item.columns])
        rows = given.get(item.name, ())
        assert all(set(row) <= set(schema.names) for row in rows)
        made[item.name] = spark.createDataFrame([tuple(map(row.get, schema.names)) for row in rows], schema)
    return made


def large() -> dict[str, list[dict[str, Any]]]:
    """More of everything than is shown. The address that is used least is the slowest."""
    matrix = [
        {
            "site": f"s{site}",
            "address": f"a{address}",
            "direction": "in",
            "deliveries": (address + 1) * (site + 1),
        }
        | {"octets": 1, "latency_p99_us": 1000.0 * (ADDRESSES - address)}
        for site in range(SITES)
        for address in range(ADDRESSES)
    ]
    matrix.append({"direction": "out", "deliveries": 5, "octets": 50})
    talkers = [
        {"direction": way, "rank_octets": rank, "container": f"{way}-{rank}", "octets": 1000 - rank}
        for way in ("in", "out")
        for rank in range(1, 101)
    ]
    kinds = {"router": 50, "connection": 50}
    return {
        "traffic_matrix": matrix,
        "traffic_rates": [
            {
                "bucket": BUCKET,
                **{name: row.get(name) for name in ("site", "address", "direction", "deliveries")},
            }
            for row in matrix
        ],
        # So that all of the window is drawn.
        "topology_events": [{"bucket": END - timedelta(minutes=1), "event": "neighbour-lost", "count": 1}],
        "top_talkers": talkers,
        "utilisation": [
            {"kind": kind, "router": f"r{number}", "mean_octets_per_second": float(number)}
            for kind, count in kinds.items()
            for number in range(count)
        ],
        "sessions": [
            {"kind": kind, "identity": f"{kind}-{number}", "router": f"r{number}", "site": f"s{number % 7}"}
            for kind in ("router", "connection", "link")
            for number in range(50)
        ],
        "links": [
            {"link": f"l{number}", "octets": 1000 - number, "latency_p99_us": float(number)}
            for number in range(100)
        ],
        "rotation_flows": [
            {"bucket": BUCKET, "tls_ordinal": ordinal, "connections": 1} for ordinal in range(1, 31)
        ],
        "relay_rates": [
            {"bucket": BUCKET, "relay_group": "g", "relay_site": f"x{number}", "remote_site": "y"}
            | {"sent": 60, "lag_seconds": float(number)}
            for number in range(50)
        ],
    }


@pytest.fixture(scope="module")
def data(spark: SparkSession) -> ReportData:
    names = {"accepted", "rejected", "released", "modified", "presettled", "dropped", "deliveries", "octets"}
    summary = {
        "log": "/log",
        "window": {"from": START.isoformat(), "to": END.isoformat(), "bucketSeconds": 60},
        "generatedAt": END.isoformat(),
        "seconds": 24.7,
        "totals": {way: dict.fromkeys(names, 0) for way in ("in", "out")},
        "findings": [],
    }
    sketches = spark.createDataFrame([], SKETCH)
    return collect(summary, frames(spark, large()), sketches)


def test_the_matrix_adds_up(data: ReportData) -> None:
    rows = data.series["matrix"]
    sent = [row for row in rows if row["direction"] == "in"]
    assert sum(row["deliveries"] for row in rows) == sum(
        row["deliveries"] for row in large()["traffic_matrix"]
    )
    assert len({row["site"] for row in sent}) == MATRIX_SITES + 1
    assert len({row["address"] for row in sent}) == MATRIX_ADDRESSES + 1
    assert len(sent) == (MATRIX_SITES + 1) * (MATRIX_ADDRESSES + 1), (
        "no cell is empty, as all sites use all addresses"
    )
    (most,) = (row for row in sent if (row["site"], row["address"]) == ("s29", "a39"))
    assert most["deliveries"] == 1200


def test_rates_add_up_and_know_how_much_of_a_point_is_in_the_window(data: ReportData) -> None:
    assert data.step == timedelta(minutes=2)
    rows = [row for row in data.series["rates"] if row["direction"] == "in"]
    assert {row["address"] for row in rows} == {f"a{number}" for number in range(33, 40)} | {OTHERS}
    sent = sum(row["deliveries"] for row in large()["traffic_matrix"] if row["direction"] == "in")
    assert sum(row["deliveries_per_second"] for row in rows) == pytest.approx(sent / 60)


def test_what_is_shown_of_one_kind_leaves_room_for_others(data: ReportData) -> None:
    for name, count in (("senders", 100), ("receivers", 100), ("busy_routers", 50), ("busy_connections", 50)):
        assert (len(data.table(name).rows), data.table(name).count) == (MOST_ROWS, count), name
    assert data.table("receivers").rows[0]["container"] == "out-1"
    for kind in ("router", "connection", "link"):
        assert {row["kind"] for row in data.table(f"{kind}_sessions").rows} == {kind}
    assert data.table("slowest_links").rows[0]["link"] == "l99"
    assert data.table("slowest_addresses").rows[0]["address"] == "a0"


def test_series_are_bounded(data: ReportData) -> None:
    assert {row["tls_ordinal"] for row in data.series["ordinals"]} == {None, *range(24, 31)}
    assert {row["connections"] for row in data.series["ordinals"] if row["tls_ordinal"] is None} == {23}
    assert {row["relay_site"] for row in data.series["relay"]} == {
        f"x{50 - at}" for at in range(1, MOST_LINES + 1)
    }


def test_where_routers_are_is_known_of_all(data: ReportData) -> None:
    assert data.sites == {f"r{number}": f"s{number % 7}" for number in range(50)}
    assert data.numbers == {"addresses": 41, "sites": 7, "routers": 50}


def test_the_page_is_made_of_it(data: ReportData) -> None:
    page = render(data)
    assert "older" in page
    assert "and 90 more in the table" in page


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        pytest.param(None, None, (0, 1440), id="nothing"),
        pytest.param(600, 600, (594, 607), id="one-bucket"),
        pytest.param(600, 660, (599, 662), id="an-hour"),
        pytest.param(0, 60, (0, 62), id="at-the-beginning"),
        pytest.param(1435, 1439, (1431, 1440), id="at-the-end"),
        pytest.param(100, 900, (0, 1440), id="most-of-it"),
    ],
)
def test_what_is_drawn_is_the_part_in_which_something_is(
    spark: SparkSession, first: int | None, last: int | None, expected: tuple[int, int]
) -> None:
    day, minute = datetime(2026, 11, 20, tzinfo=UTC), timedelta(minutes=1)

    def at(number: int | None) -> DataFrame:
        rows = [] if number is None else [(day + number * minute,)]
        return spark.createDataFrame(rows, "bucket timestamp")

    tables = {"traffic_rates": at(first), "topology_events": at(None), "relay_rates": at(last)}
    found = extent(tables, day, day + 1440 * minute, minute)
    assert tuple((moment - day) / minute for moment in found) == expected
