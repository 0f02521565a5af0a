"""The network and its relay sites: who is connected, what changed, what that has cost, what did not arrive."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.integration.flow_analysis.made import Row, World, at, built, only, part

from isthmus_flows.log import Window

WINDOW = Window(at(8), at(8, 20))
SECOND = 1_000_000


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, list[Row]]:
    world = World()
    _edges(world)
    _changes(world)
    names = ("topology_edges", "topology_events", "topology_churn")
    return built(spark, world, names, WINDOW)


def _edges(world: World) -> None:
    for source, router in (("r1:0", "r1"), ("r2:0", "r2"), ("r3:0", "r3")):
        world.told(at(8), "ROUTER", source, source=source, router=router, name=router, start_time=at(7))
    # The last of r4 is that it is heard no more.
    world.told(at(8), "ROUTER", "r4:0", source="r4:0", router="r4", start_time=at(7))
    world.told(at(8, 5), "ROUTER", "r4:0", source="r4:0", router="r4", start_time=at(7), lost=True)
    r1 = {"router": "r1", "role": "inter-router"}
    # Two connectors to r2: one is cheaper, and up; its last failure is told in a later state without its cost.
    world.told(
        at(8),
        "LINK",
        "k1",
        name="a",
        container="r2",
        cost=3,
        status="up",
        up_time=at(7, 1),
        down_count=1,
        **r1,
    )
    world.told(at(8, 1), "LINK", "k1", name="a", container="r2", status="down", down_count=2, **r1)
    world.told(
        at(8),
        "LINK",
        "k2",
        name="b",
        container="r2",
        cost=9,
        status="up",
        up_time=at(7, 2),
        down_count=0,
        **r1,
    )
    # One that never was connected, and one that is gone with its router.
    world.told(at(8), "LINK", "k3", name="nowhere", cost=1, status="down", down_count=0, **r1)
    gone: Row = {"source": "r4:0", "router": "r4", "role": "edge", "name": "up", "container": "r1"}
    world.told(at(8), "LINK", "k4", cost=1, status="up", down_count=0, **gone)
    # The other end of k1 and k2 says nothing new; r3 accepts a foreign router that tells nothing.
    accepted: Row = {"role": "inter-router", "direction": "incoming", "start_time": at(7)}
    world.told(at(8), "CONNECTION", "c1", source="r2:0", router="r2", container="r1", **accepted)
    world.told(at(8), "CONNECTION", "c2", source="r3:0", router="r3", container="x", **accepted)
    world.told(
        at(8),
        "CONNECTION",
        "c3",
        source="r3:0",
        router="r3",
        container="client",
        **accepted | {"role": "normal"},
    )
    between: Row = {"role": "inter-router", "connection": "t1", "container": "r2"}
    world.flowed(at(8, 19), octets=700, deliveries=7, direction="out", **between)
    world.flowed(at(8, 19), octets=50, deliveries=1, direction="in", **between)


def _changes(world: World) -> None:
    def happens(minute: int, second: float, event: str, router: str | None = "r1") -> None:
        world.happened(at(8, minute, second), "TOPOLOGY_EVENT", event, router=router)

    # 29.9 s apart: one episode, over two buckets; what follows 30 s later is another one.
    happens(3, 40, "neighbour-lost")
    happens(3, 40.5, "router-removed", "r2")
    happens(3, 40.5, "paths-computed", None)
    happens(4, 10.4, "paths-computed")
    happens(4, 40.4, "router-added")
    # The last bucket of the window has none after it.
    happens(19, 59, "neighbour-up")
    world.happened(at(8, 10), "RELAY_EVENT", "site-up", subject="b")
    sender: Row = {"link": "l1", "connection": "c9"}
    for minute in range(20):
        # Two in each minute are usual.
        world.flowed(at(8, minute, 30), released=2, delayed_1_second=1, delayed_10_seconds=1, **sender)
    world.flowed(at(8, 3, 50), released=10, modified=4, **sender)
    world.flowed(at(8, 4, 50), delayed_10_seconds=5, dropped=1, **sender)
    # After the bucket after the episode; and what receivers had of it, which is the same once more.
    world.flowed(at(8, 6, 50), released=34, **sender)
    receiver: Row = {"link": "l2", "connection": "c8", "direction": "out"}
    world.flowed(at(8, 3, 50), released=10, delayed_1_second=50, dropped=2, **receiver)
    # Between routers it is counted again.
    world.flowed(
        at(8, 3, 50), released=500, role="inter-router", connection="t9", container="r2", router="r9"
    )


def test_an_edge_is_all_connectors_to_a_peer(tables: dict[str, list[Row]]) -> None:
    edges = tables["topology_edges"]
    edge = only(edges, router="r1", peer="r2")
    assert part(edge, "cost", "status", "up_time", "down_count") == (3, "up", at(7, 2), 2)
    assert part(edge, "octets_out", "deliveries_out", "octets_in", "deliveries_in") == (700, 7, 50, 1)
    assert part(edge, "role", "connector") == ("inter-router", None)


def test_what_accepts_is_an_edge_only_if_the_other_end_is_not_heard(tables: dict[str, list[Row]]) -> None:
    edges = tables["topology_edges"]
    assert {part(row, "router", "peer") for row in edges} == {
        ("r1", "r2"),
        ("r1", None),
        ("r4", "r1"),
        ("r3", "x"),
    }
    assert part(only(edges, router="r3"), "cost", "status", "down_count", "octets_out") == (
        None,
        "up",
        None,
        0,
    )
    assert part(only(edges, router="r1", peer=None), "connector", "status") == ("nowhere", "down")
    assert part(only(edges, router="r4"), "status", "cost") == ("down", 1)


def test_events_less_than_thirty_seconds_apart_are_an_episode(tables: dict[str, list[Row]]) -> None:
    churn = sorted(tables["topology_churn"], key=lambda row: row["start"])
    assert [part(row, "start", "end", "events") for row in churn] == [
        (at(8, 3, 40), at(8, 4, 10.4), 4),
        (at(8, 4, 40.4), at(8, 4, 40.4), 1),
        (at(8, 19, 59), at(8, 19, 59), 1),
    ]
    assert part(churn[0], "routers", "neighbours_lost", "routers_removed", "path_computations") == (
        2,
        1,
        1,
        2,
    )


def test_an_episode_costs_what_is_beyond_the_usual(tables: dict[str, list[Row]]) -> None:
    churn = sorted(tables["topology_churn"], key=lambda row: row["start"])
    # Minutes 3, 4 and 5. The others without churn are 0 to 2 and 6 to 18: 16, with 2 each, and 34 in one of them.
    first = churn[0]
    assert part(first, "released", "modified", "dropped", "delayed") == (16, 4, 3, 11)
    usual = (2 * 16 + 34) / 16
    assert first["expected_released"] == pytest.approx(3 * usual)
    assert part(first, "expected_modified", "expected_dropped", "expected_delayed") == (0.0, 0.0, 6.0)
    assert first["cost_deliveries"] == pytest.approx((16 - 3 * usual) + 4 + 3 + (11 - 6))
    # In the last one less than usual was released: that makes up for nothing.
    assert part(churn[2], "released", "expected_delayed", "cost_deliveries") == (2, 2.0, 0.0)


def test_changes_are_counted_by_router_and_bucket(tables: dict[str, list[Row]]) -> None:
    events = tables["topology_events"]
    assert only(events, bucket=at(8, 3), router="r1", event="neighbour-lost")["count"] == 1
    assert only(events, bucket=at(8, 3), router=None)["event"] == "paths-computed"
    assert {row["event"] for row in events}.isdisjoint({"site-up"})


@pytest.fixture(scope="module")
def relay(spark: SparkSession) -> dict[str, list[Row]]:
    world = World()
    pair: Row = {"relay_site": "a", "remote_site": "b"}
    # Member r1 carries messages, r2 only keeps them: both count what is dropped.
    world.went(
        at(8, 0, 10), sent=10, received=5, lag_messages=3, lag_us=2 * SECOND, held_back_us=SECOND, **pair
    )
    world.went(at(8, 0, 20), sent=10, dropped=4, state="suspect", lag_messages=9, lag_us=8 * SECOND, **pair)
    kept: Row = {"source": "r2:0", "router": "r2", "relays": False, "state": "unknown"}
    world.went(at(8, 0, 25), 15, dropped=3, **pair, **kept)
    # r2 takes over in the middle of a bucket, replays, and has a longer interval than a bucket.
    world.went(at(8, 1, 5), 5, state="unreachable", **pair)
    world.went(at(8, 1, 55), 50, source="r2:0", state="unreachable", sent=6, replayed=6, **pair)
    world.went(at(8, 4, 0), 125, source="r2:0", state="suspect", gaps=2, received=9, duplicates=1, **pair)
    # The other way, and another group.
    world.went(at(8, 0, 10), relay_site="b", remote_site="a", sent=5)
    world.went(at(8, 0, 10), relay_group="h", relay_site="a", remote_site="b", sent=1)
    member: Row = {"relay_group": "g", "relay_site": "a"}
    world.happened(at(8, 1), "RELAY_EVENT", "site-unreachable", subject="b", **member)
    world.happened(at(8, 1, 1), "RELAY_EVENT", "view-installed", subject="a/2", count=2, **member)
    world.happened(at(8, 1, 2), "RELAY_EVENT", "messages-lost", subject="b", count=2, reason="gone", **member)
    return built(spark, world, ("relay_rates", "relay_totals", "relay_events"), WINDOW)


def test_members_of_a_site_are_one_end_of_a_pair(relay: dict[str, list[Row]]) -> None:
    rates = [row for row in relay["relay_rates"] if part(row, "relay_group", "relay_site") == ("g", "a")]
    names: tuple[Any, ...] = (
        "bucket",
        "state",
        "sent",
        "received",
        "dropped",
        "gaps",
        "lag_messages",
        "lag_seconds",
    )
    assert [part(row, *names) for row in rates] == [
        (at(8, 0), "suspect", 20, 5, 4, 0, 9, 8.0),
        (at(8, 1), "unreachable", 6, 0, 0, 0, 0, 0.0),
        (at(8, 4), "suspect", 0, 9, 0, 2, 0, 0.0),
    ]
    assert part(rates[0], "held_back_seconds", "not_up_seconds") == (1.0, 10.0)
    assert part(rates[1], "replayed", "not_up_seconds") == (6, 50.0)


def test_totals_of_a_pair(relay: dict[str, list[Row]]) -> None:
    totals = relay["relay_totals"]
    assert [part(row, "relay_group", "relay_site", "remote_site") for row in totals] == [
        ("g", "a", "b"),
        ("g", "b", "a"),
        ("h", "a", "b"),
    ]
    assert part(totals[0], "sent", "received", "dropped", "gaps", "duplicates", "replayed") == (
        26,
        14,
        4,
        2,
        1,
        6,
    )
    assert part(totals[0], "state", "max_lag_messages", "max_lag_seconds", "not_up_seconds") == (
        "suspect",
        9,
        8.0,
        185.0,
    )


def test_events_about_the_own_site_have_no_remote_one(relay: dict[str, list[Row]]) -> None:
    assert [part(row, "event", "remote_site", "subject", "count") for row in relay["relay_events"]] == [
        ("site-unreachable", "b", "b", None),
        ("view-installed", None, "a/2", 2),
        ("messages-lost", "b", "b", 2),
    ]
