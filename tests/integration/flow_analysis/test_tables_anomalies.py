"""Hours that are not as they were on earlier days; what of the log could not be used."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyspark.sql import SparkSession
from tests.integration.flow_analysis.made import Row, World, at, built, only, part

from isthmus_flows.log import Quality, Window
from isthmus_flows.log.files import Quarantined
from isthmus_router.flows.sketch import Sketch, bucket_of

# From the middle of an hour to the middle of another.
WINDOW = Window(at(8, 30), at(10, 30))
FAST, SLOW = bucket_of(2_000), bucket_of(50_000)


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, list[Row]]:
    now, earlier = World(), World()

    def flows(
        world: World, day: int, hours: int, minutes: int, address: str, deliveries: int, **values: object
    ) -> None:
        end = at(hours, minutes, 30) - timedelta(days=day)
        link = f"{address}-{day}-{hours}-{minutes}"
        world.flowed(end, address=address, deliveries=deliveries, link=link, connection="c", **values)

    for day, usual in enumerate((100, 110, 90, 100, 104), start=1):
        # Half of an hour is compared with the same half.
        flows(earlier, day, 8, 10, "steady", 5_000)
        flows(earlier, day, 8, 40, "steady", usual)
        flows(earlier, day, 9, 10, "surge", usual, octets=1_000_000, latencies={FAST: 10})
        flows(earlier, day, 9, 10, "slower", usual, latencies={FAST: 10})
        flows(earlier, day, 9, 10, "gone", usual)
        flows(earlier, day, 10, 10, "late", usual)
        flows(earlier, day, 10, 40, "late", 9_000)
    # On two days only: that are five days of deliveries, with three of none, but two of latency.
    for day in (1, 2):
        flows(earlier, day, 9, 20, "rare", 30, latencies={FAST: 10})
    # More than four deviations, but less than half as much again.
    flows(now, 0, 8, 40, "steady", 145)
    flows(now, 0, 9, 10, "surge", 1_000, octets=1_700_000, latencies={FAST: 10}, released=100)
    flows(now, 0, 9, 10, "slower", 100, latencies={FAST: 90, SLOW: 10})
    flows(now, 0, 9, 20, "new", 400)
    flows(now, 0, 9, 20, "rare", 30, latencies={SLOW: 10})
    # Between routers the same is counted again.
    now.flowed(at(9, 10), deliveries=10_000, role="inter-router", connection="t", container="r2")
    flows(now, 0, 10, 10, "late", 100)
    return built(spark, now, ("anomalies",), WINDOW, earlier=earlier)


def test_what_differs_from_earlier_days_is_told_and_nothing_else(tables: dict[str, list[Row]]) -> None:
    assert [part(row, "address", "metric") for row in tables["anomalies"]] == [
        ("surge", "deliveries"),
        ("slower", "latency_p99_us"),
        ("new", "deliveries"),
        ("surge", "failed"),
        ("gone", "deliveries"),
        ("surge", "octets"),
    ]
    assert {row["bucket_hour"] for row in tables["anomalies"]} == {at(9)}


def test_an_anomaly_has_what_was_expected_and_how_far_it_is_off(tables: dict[str, list[Row]]) -> None:
    rows = tables["anomalies"]
    surge = only(rows, address="surge", metric="deliveries")
    # Of 90, 100, 100, 104 and 110 the median is 100; of the distances 10, 0, 0, 4, 10 it is 4, less than a tenth.
    assert part(surge, "value", "expected", "deviation", "score") == (1000.0, 100.0, 4.0, 90.0)
    # Days that are all the same: a tenth of what is expected is the least deviation.
    octets = only(rows, address="surge", metric="octets")
    assert part(octets, "expected", "deviation", "score") == (1_000_000.0, 0.0, 7.0)
    gone = only(rows, address="gone")
    assert part(gone, "value", "expected", "score", "severity") == (0.0, 100.0, -10.0, 10.0)
    new = only(rows, address="new")
    assert part(new, "value", "expected", "score") == (400.0, 0.0, 40.0)
    slower = only(rows, address="slower")
    usual, now = Sketch({FAST: 1}).quantile(1), Sketch({SLOW: 1}).quantile(1)
    assert part(slower, "value", "expected", "deviation") == (now, usual, 0.0)


def test_hours_that_few_earlier_days_know_are_not_judged(spark: SparkSession) -> None:
    now, earlier = World(), World()
    for day in (1, 2, 3):
        # The third day has nothing from anybody in the hour from nine on.
        for hour in (8, 9) if day < 3 else (8,):
            values: Row = {
                "deliveries": 100 if day < 3 else 200,
                "link": f"{day}-{hour}",
                "connection": "c",
                "address": "a",
            }
            earlier.flowed(at(hour, 50) - timedelta(days=day), **values)
    for hour in (8, 9):
        now.flowed(at(hour, 50), deliveries=1_000, link=f"{hour}", connection="c", address="a")
    # An even number of days has a median between two.
    earlier.flowed(at(8, 50) - timedelta(days=4), deliveries=200, link="4", connection="c", address="a")
    found = built(spark, now, ("anomalies",), Window(at(8), at(10)), earlier=earlier)["anomalies"]
    assert [part(row, "bucket_hour", "expected") for row in found] == [(at(8), 150.0)]
    # Days beyond the baseline are not looked at; without any there is nothing to compare with.
    few = built(spark, now, ("anomalies",), Window(at(8), at(10)), earlier=earlier, baseline_days=2)
    assert few["anomalies"] == []
    assert built(spark, now, ("anomalies",), Window(at(8), at(10)))["anomalies"] == []


def test_quality_and_quarantine_are_what_reading_has_found(spark: SparkSession) -> None:
    world = World(
        quality={"deliveries": Quality("deliveries", 3, 100, 7, 1, 2, 40)},
        quarantine=(
            Quarantined("deliveries", "b.parquet", "damaged", 40),
            Quarantined("deliveries", "a.parquet", "empty", None),
        ),
    )
    found = built(spark, world, ("quality", "quarantine"), WINDOW)
    assert found["quality"] == [
        {
            "table": "deliveries",
            "files": 3,
            "rows": 100,
            "duplicates": 7,
            "late": 1,
            "quarantined_files": 2,
            "quarantined_rows": 40,
        }
    ]
    assert [part(row, "file", "reason", "rows") for row in found["quarantine"]] == [
        ("a.parquet", "empty", None),
        ("b.parquet", "damaged", 40),
    ]
