"""Rows become Arrow tables of the schema; what does not fit is left out and counted, and nothing else with it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.unit.flow_log.samples import deliveries, delivery, identities

from isthmus_flowlog.collector.columns import LAYOUTS
from isthmus_flowlog.collector.rows import SCHEMAS, by_partition, conform, to_arrow
from isthmus_flowlog.schema import DELIVERIES, RECORDS, TABLES


@pytest.mark.parametrize("table", [table.name for table in TABLES])
def test_no_rows_are_a_table_of_the_schema(table: str) -> None:
    content, unfit = to_arrow(table, [])
    assert content.schema.equals(SCHEMAS[table], check_metadata=True)
    assert (len(content), unfit) == (0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": 5},
        {"deliveries": "many"},
        {"octets": 2**64 - 1},
        {"sizes": 7},
        {"sizes": [("a", 1)]},
        {"identity": None},
        {"direction": None},
        {"end_time": "now"},
    ],
)
def test_a_row_with_a_wrong_value_is_left_out(wrong: dict[str, Any]) -> None:
    content, unfit = to_arrow("deliveries", [delivery(1), delivery(2, **wrong), delivery(3)])
    assert identities(content) == ["abcde:1", "abcde:3"]
    assert unfit == 1


def test_values_are_what_they_were() -> None:
    (row,) = to_arrow("deliveries", [delivery(7, 3, address="orders", latencies=[(1, 2), (90, 2**40)])])[
        0
    ].to_pylist()
    assert (row["address"], row["sequence"], row["latencies"]) == ("orders", 7, [(1, 2), (90, 2**40)])
    assert row["end_time"].isoformat() == "2026-11-23T08:00:03+00:00"
    assert row["user"] is None


def test_flags() -> None:
    layout = LAYOUTS["records"]
    values = {"identity": "a", "source": "b", "type": "ROUTER", "lost": 0, "coordinator": 1, "heard_at": 1}
    (row,) = to_arrow("records", [tuple(values.get(name) for name in layout.names)])[0].to_pylist()
    assert (row["lost"], row["coordinator"]) == (False, True)


def test_each_hour_has_its_partition_sorted_by_time() -> None:
    late, early = deliveries(range(5, 8), at=3599), deliveries(range(5), at=3590)
    found = list(by_partition(DELIVERIES, pa.concat_tables([late, early])))
    assert [(folder, identities(rows)) for folder, rows in found] == [
        ("deliveries/date=2026-11-23/hour=08", [f"abcde:{n}" for n in (0, 1, 2, 3, 4, 5)]),
        ("deliveries/date=2026-11-23/hour=09", [f"abcde:{n}" for n in (6, 7)]),
    ]


def test_what_another_version_has_written_gets_the_columns_of_this_one() -> None:
    older = deliveries(range(2)).drop_columns(["no_credit_us", "user", "direction"])
    older = older.append_column("colour", pa.array(["red", "blue"]))
    rows = conform(DELIVERIES, older).to_pylist()
    assert [(row["no_credit_us"], row["user"], row["direction"], row["sequence"]) for row in rows] == [
        (0, None, "", 0),
        (0, None, "", 1),
    ]
    assert conform(DELIVERIES, older).schema.equals(SCHEMAS["deliveries"], check_metadata=True)
    flags = conform(RECORDS, to_arrow("records", [])[0].drop_columns(["lost"]))
    assert flags.schema.equals(SCHEMAS["records"])
