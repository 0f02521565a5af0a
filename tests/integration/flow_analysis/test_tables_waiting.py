"""What is carried, and what waits: utilisation, links without credit, stuck deliveries."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from tests.integration.flow_analysis.made import Row, World, at, built, only, part

from isthmus_flows.log import Window

WINDOW = Window(at(8), at(8, 40))
SECOND = 1_000_000


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, list[Row]]:
    world = World()
    # Two connections to r2 beside each other, as in a rotation; the busiest buckets are two, equally.
    edge = {"role": "inter-router", "container": "r2", "endpoint": "to-r2", "direction": "out"}
    for minute, number in ((0, 1), (1, 2), (5, 1), (5, 2)):
        octets = 6_000 if minute == 5 else 12_000
        world.flowed(at(8, minute, 10), deliveries=60, octets=octets, connection=f"t{number}", **edge)
    world.flowed(at(8, 1), deliveries=600, octets=600, link="l1", connection="c1", direction="out")
    # A receiver that stops: two whole minutes without credit (a second is not told), one in between with, another one.
    starved = {
        "link": "slow",
        "connection": "c2",
        "direction": "out",
        "address": "orders",
        "container": "desk",
    }
    for minute in (10, 11, 13):
        for second in range(10, 70, 10):
            world.flowed(at(8, minute, second - 1), no_credit_us=9 * SECOND, **starved)
    world.flowed(at(8, 12, 30), no_credit_us=2 * SECOND, unsettled=9, oldest_unsettled_us=SECOND, **starved)
    # A sender whose router told nothing for 90 s; then an interval that is longer than a bucket, and the next one.
    blocked = {"link": "blocked", "connection": "c3", "host": "10.0.0.3"}
    world.flowed(at(8, 20), 90, no_credit_us=90 * SECOND, **blocked)
    world.flowed(at(8, 21, 30), 90, no_credit_us=90 * SECOND, **blocked)
    world.flowed(at(8, 26), 10, no_credit_us=10 * SECOND, **blocked)
    # Short intervals in which credit was there are not wholly without it.
    world.flowed(
        at(8, 5), 0.5, link="short", connection="c4", unsettled=1, oldest_unsettled_us=10 * SECOND - 1
    )
    world.flowed(at(8, 6), 4, link="brief", connection="c4", no_credit_us=SECOND)
    # Deliveries that nobody settles, in two buckets, with one between that is fine.
    world.flowed(at(8, 30), link="stuck", connection="c5", unsettled=3, oldest_unsettled_us=10 * SECOND)
    world.flowed(at(8, 31), link="stuck", connection="c5", unsettled=8, oldest_unsettled_us=SECOND)
    world.flowed(at(8, 32), link="stuck", connection="c5", unsettled=2, oldest_unsettled_us=130 * SECOND)
    return built(spark, world, ("utilisation_rates", "utilisation", "starvation", "stuck"), WINDOW)


def test_connections_of_one_endpoint_to_one_peer_are_one(tables: dict[str, list[Row]]) -> None:
    rates = [row for row in tables["utilisation_rates"] if row["kind"] == "connection"]
    assert [
        part(row, "bucket", "peer", "endpoint", "deliveries_per_second", "octets_per_second") for row in rates
    ] == [
        (at(8, 0), "r2", "to-r2", 1.0, 200.0),
        (at(8, 1), "r2", "to-r2", 1.0, 200.0),
        (at(8, 5), "r2", "to-r2", 2.0, 200.0),
    ]


def test_a_router_is_all_that_it_has_to_do_with(tables: dict[str, list[Row]]) -> None:
    rates = tables["utilisation_rates"]
    router = only(rates, kind="router", bucket=at(8, 1), direction="out")
    assert part(router, "router", "peer", "role", "deliveries_per_second") == ("r1", None, None, 11.0)


def test_idle_buckets_count_in_mean_and_quantile(tables: dict[str, list[Row]]) -> None:
    connection = only(tables["utilisation"], kind="connection")
    assert connection["mean_octets_per_second"] == pytest.approx(36_000 / 2400)
    assert part(connection, "peak_deliveries_per_second", "peak_octets_per_second") == (2.0, 200.0)
    # Of 40 buckets 38 have no more than that: two of the three with traffic are above it.
    assert connection["p95_octets_per_second"] == 200.0
    assert connection["p95_deliveries_per_second"] == 1.0
    assert connection["peak_at"] == at(8, 5)
    router = only(tables["utilisation"], kind="router", direction="in")
    assert part(router, "p95_octets_per_second", "peak_octets_per_second", "peak_at") == (0.0, 0.0, at(8, 5))


def test_starvation_has_its_share_its_worst_bucket_and_its_longest_time(tables: dict[str, list[Row]]) -> None:
    starvation = tables["starvation"]
    assert [row["link"] for row in starvation] == ["blocked", "slow", "brief"]
    blocked, slow, brief = starvation
    assert part(slow, "seconds", "no_credit_seconds", "worst_bucket", "container") == (
        190.0,
        164.0,
        at(8, 10),
        "desk",
    )
    assert slow["share"] == pytest.approx(164 / 190)
    assert slow["longest_seconds"] == 120.0
    assert part(blocked, "no_credit_seconds", "share", "worst_bucket", "host") == (
        190.0,
        1.0,
        at(8, 20),
        "10.0.0.3",
    )
    assert blocked["longest_seconds"] == 180.0
    assert part(brief, "share", "longest_seconds") == (0.25, 0.0)


def test_stuck_deliveries_are_those_of_ten_seconds_and_more(tables: dict[str, list[Row]]) -> None:
    assert [row["link"] for row in tables["stuck"]] == ["stuck"]
    stuck = tables["stuck"][0]
    assert part(stuck, "most_unsettled", "oldest_seconds", "buckets") == (3, 130.0, 2)
    assert part(stuck, "first", "last") == (at(8, 30), at(8, 33))
