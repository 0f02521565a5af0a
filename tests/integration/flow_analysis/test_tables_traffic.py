"""What clients sent and received: sums, rates, links and talkers of rows made by hand, and of any rows at all."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.integration.flow_analysis.made import Row, World, at, built, only, part

from isthmus_flows.log import Window
from isthmus_flows.sums import LARGEST_SUM
from isthmus_router.flows.sketch import Sketch, bucket_of

# The first bucket has 55 s of it, the last one 30.
WINDOW = Window(at(8, 0, 5), at(8, 31, 30))
TABLES = ("traffic_matrix", "traffic_rates", "links", "top_talkers")
FAST, SLOW = bucket_of(800), bucket_of(90_000)


def middle(bucket: int) -> float | None:
    return Sketch({bucket: 1}).quantile(0.5)


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, list[Row]]:
    world = World()
    sender = {
        "link": "l1",
        "connection": "c1",
        "address": "orders",
        "container": "shop",
        "user": "u",
        "host": "10.0.0.1",
        "endpoint": "amqps",
        "link_name": "to-orders",
    }
    # Before the router's site and name were known to the collector.
    unheard: Row = {**sender, "site": None, "router": None, "router_mode": None}
    world.flowed(at(8, 0, 10), deliveries=100, octets=10_000, accepted=90, latencies={FAST: 90}, **unheard)
    counts = {"accepted": 40, "rejected": 1, "released": 2, "modified": 3}
    world.flowed(
        at(8, 0, 20), deliveries=50, octets=5_000, latencies={FAST: 36, SLOW: 10}, **counts, **sender
    )
    # Intervals 3 to 5 were lost. The sixth is in another bucket.
    world.flowed(at(8, 2, 0), deliveries=7, octets=700, sequence=6, sizes={FAST: 7}, **sender)
    receiver = {
        "link": "l2",
        "connection": "c2",
        "direction": "out",
        "address": "orders",
        "container": "desk",
    }
    world.flowed(at(8, 0, 10), 4, deliveries=20, octets=2_000, presettled=20, dropped=4, **receiver)
    # No site, no address, no container; a link beyond the router's limits, which counts with its connection.
    world.flowed(at(8, 30), deliveries=5, octets=50, source="e:0", router="e", site=None, connection="c3")
    world.flowed(
        at(8, 31), deliveries=6, octets=60, source="e:0", router="e", site=None, link="l4", connection="c3"
    )
    # The same messages between routers, and beyond the limit of connections.
    world.flowed(
        at(8, 0, 10), deliveries=999, octets=99_999, role="inter-router", connection="t1", container="r2"
    )
    world.flowed(at(8, 0, 10), deliveries=5_000, octets=5_000, role=None)
    # A link to a broker, which is a client, too; on it nothing happened in an interval of no length.
    world.flowed(
        at(8, 0, 40), 0, unsettled=1, role="route-container", link="l5", connection="c5", address="queue"
    )
    return built(spark, world, TABLES, WINDOW)


def test_the_matrix_sums_up_clients_by_site_address_and_direction(tables: dict[str, list[Row]]) -> None:
    matrix = tables["traffic_matrix"]
    assert [part(row, "site", "address", "direction") for row in matrix] == [
        ("east", "orders", "in"),
        ("east", "orders", "out"),
        (None, None, "in"),
        ("east", "queue", "in"),
    ]
    orders = matrix[0]
    assert part(orders, "deliveries", "octets", "links") == (157, 15_700, 1)
    assert part(orders, "accepted", "rejected", "released", "modified", "failed") == (130, 1, 2, 3, 6)
    # 126 fast ones and 10 slow ones: number 123 of 136 is fast, number 135 slow.
    assert part(orders, "latency_p50_us", "latency_p90_us", "latency_p99_us") == (
        middle(FAST),
        middle(FAST),
        middle(SLOW),
    )
    assert part(orders, "size_p50", "size_p99") == (middle(FAST), middle(FAST))
    assert part(matrix[1], "presettled", "dropped", "failed", "latency_p50_us", "size_p50") == (
        20,
        4,
        4,
        None,
        None,
    )
    assert part(matrix[2], "deliveries", "octets", "links") == (11, 110, 1)
    assert part(matrix[3], "deliveries", "links") == (0, 1)


def test_rates_are_of_as_much_of_a_bucket_as_is_in_the_window(tables: dict[str, list[Row]]) -> None:
    rates = tables["traffic_rates"]
    first = only(rates, bucket=at(8), site="east", address="orders", direction="in")
    assert part(first, "deliveries", "octets", "failed") == (150, 15_000, 6)
    assert part(first, "deliveries_per_second", "octets_per_second") == (150 / 55, 15_000 / 55)
    assert part(first, "latency_p50_us", "latency_p99_us") == (middle(FAST), middle(SLOW))
    last = only(rates, bucket=at(8, 31), site=None)
    assert part(last, "deliveries", "deliveries_per_second", "octets_per_second") == (6, 0.2, 2.0)
    later = only(rates, bucket=at(8, 2), address="orders")
    assert part(later, "deliveries", "latency_p50_us") == (7, None)


def test_a_link_has_its_intervals_and_what_is_missing_of_them(tables: dict[str, list[Row]]) -> None:
    links = tables["links"]
    assert [row["link"] for row in links] == ["l1", "l2", "l4", "l5"]
    assert part(links[0], "site", "router", "container", "user", "host", "endpoint", "link_name") == (
        ("east", "r1", "shop", "u", "10.0.0.1", "amqps", "to-orders")
    )
    assert part(links[0], "first", "last") == (at(8, 0, 5), at(8, 3))
    assert part(links[0], "seconds", "deliveries", "failed", "missing_intervals") == (30.0, 157, 6, 3)
    assert links[0]["octets_per_second"] == pytest.approx(15_700 / 30)
    assert part(links[1], "seconds", "deliveries_per_second", "missing_intervals") == (4.0, 5.0, 0)
    assert part(links[3], "seconds", "deliveries_per_second", "role") == (0.0, None, "route-container")


def test_talkers_have_shares_of_their_direction(tables: dict[str, list[Row]]) -> None:
    talkers = tables["top_talkers"]
    shop = only(talkers, container="shop")
    assert part(shop, "rank_octets", "rank_deliveries", "addresses") == (1, 1, 1)
    assert shop["share_deliveries"] == pytest.approx(157 / 168)
    nameless = only(talkers, container=None, site=None, direction="in")
    assert part(nameless, "rank_octets", "octets", "addresses") == (2, 110, 0)
    assert part(only(talkers, direction="out"), "rank_octets", "share_octets", "share_deliveries") == (
        1,
        1.0,
        1.0,
    )


def test_equal_talkers_have_equal_ranks_and_the_cut_is_the_same_each_time(spark: SparkSession) -> None:
    world = World()
    for name, deliveries, octets in (("a", 5, 90), ("b", 1, 100), ("c", 5, 100), ("d", 9, 10), ("e", 5, 90)):
        world.flowed(
            at(8, 1), deliveries=deliveries, octets=octets, link=name, connection=name, container=name
        )
    talkers = built(spark, world, ("top_talkers",), WINDOW, top=3)["top_talkers"]
    ranks = {row["container"]: part(row, "rank_octets", "rank_deliveries") for row in talkers}
    # By bytes c and b, then a, which comes before e by its name; by deliveries d, then c (more bytes), then a.
    assert ranks == {"c": (1, 2), "b": (1, None), "a": (3, 2), "d": (None, 1)}


_NAMES = st.sampled_from([None, "a", "b"])
_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "second": st.integers(1, 599),
            "seconds": st.sampled_from([0, 1, 10, 150]),
            "link": st.sampled_from([None, "l1", "l2", "l3"]),
            "direction": st.sampled_from(["in", "out"]),
            "role": st.sampled_from([None, "normal", "route-container", "edge", "inter-router"]),
            "deliveries": st.integers(0, 1000),
            "octets": st.integers(0, 2**40),
            "released": st.integers(0, 3),
            "latencies": st.none()
            | st.dictionaries(st.integers(0, 239), st.integers(1, 5), min_size=1, max_size=3),
        }
    ),
    max_size=40,
)


@settings(max_examples=4)
@given(rows=_ROWS, sites=st.tuples(_NAMES, _NAMES, _NAMES), addresses=st.tuples(_NAMES, _NAMES, _NAMES))
def test_matrix_and_rates_are_what_plain_sums_come_to(
    spark: SparkSession, rows: list[Row], sites: tuple[Any, ...], addresses: tuple[Any, ...]
) -> None:
    world = World()
    window = Window(at(8, 0, 30), at(8, 9, 45))
    sums: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    sketches: dict[tuple[Any, ...], Sketch] = defaultdict(Sketch)
    for row in rows:
        values = dict(row)
        end = at(8, 0, values.pop("second"))
        number = 0 if values["link"] is None else int(values["link"][1]) - 1
        role, direction = values["role"], values["direction"]
        # A flow has one role and one direction.
        flow = f"{values['link'] or 'c'}-{role}-{direction}"
        values["link"] = values["link"] and flow
        values |= {"connection": flow, "site": sites[number], "address": addresses[number]}
        if not window.start <= end < window.end:
            continue
        world.flowed(end, **values)
        if role in ("normal", "route-container"):
            where = (sites[number], addresses[number], direction)
            bucket = end.replace(second=0, microsecond=0)
            for key in (where, (bucket, *where)):
                sums[key].update({name: values[name] for name in ("deliveries", "octets", "released")})
                sketches[key].merge(values["latencies"] or {})
    found = built(spark, world, ("traffic_matrix", "traffic_rates"), window)
    keys = {"traffic_matrix": (), "traffic_rates": ("bucket",)}
    seen = set()
    for name, more in keys.items():
        for row in found[name]:
            key = part(row, *more, "site", "address", "direction")
            seen.add(key)
            assert part(row, "deliveries", "octets") == part(sums[key], "deliveries", "octets")
            for column, share in (("latency_p50_us", 0.5), ("latency_p99_us", 0.99)):
                assert row[column] == sketches[key].quantile(share)
            if more:
                begin = max(row["bucket"], window.start)
                length = min(row["bucket"] + timedelta(minutes=1), window.end) - begin
                rate = sums[key]["deliveries"] / length.total_seconds()
                assert math.isclose(row["deliveries_per_second"], rate)
                assert row["failed"] == sums[key]["released"]
    assert seen == sums.keys()


def test_sums_beyond_a_long_are_the_largest_and_the_rest_is_right(spark: SparkSession) -> None:
    world = World()
    for second in (40, 50):
        world.flowed(
            at(8, 0, second), octets=2**62, deliveries=2**63 - 1, address="lies", latencies={3: 2**62}
        )
        world.flowed(at(8, 0, second), octets=5, deliveries=1, address="orders", link="l2", connection="c2")
    names = ("traffic_matrix", "top_talkers", "utilisation", "completeness")
    found = built(spark, world, names, Window(at(8, 0, 30), at(8, 9, 45)))
    by_address = {row["address"]: row for row in found["traffic_matrix"]}
    assert part(by_address["lies"], "octets", "deliveries") == (LARGEST_SUM, LARGEST_SUM)
    assert part(by_address["orders"], "octets", "deliveries") == (10, 2)
