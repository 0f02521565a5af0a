"""Who was there from when until when: late and missing ends, routers that crash, certificates that rotate."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from tests.integration.flow_analysis.made import Row, World, at, built, only, part

from isthmus_flows.log import Window

WINDOW = Window(at(8), at(9))


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> dict[str, list[Row]]:
    world = World()
    _routers(world)
    _clients(world)
    _deliveries_only(world)
    return built(spark, world, ("sessions", "completeness"), WINDOW)


def _routers(world: World) -> None:
    def told(heard_at: tuple[int, int], source: str, router: str | None, **values: object) -> None:
        world.told(at(*heard_at), "ROUTER", source, source=source, router=router, site="east", **values)

    # r1 is there all the time; its site is not told in the last state.
    told((7, 59), "r1:0", "r1", start_time=at(1), records_missed=1)
    told((8, 59), "r1:0", "r1", records_missed=4, not_recorded=2)
    # r2 was heard no more, and came back as another one; r3 was started anew without being missed.
    told((8, 0), "r2a:0", "r2", start_time=at(2))
    told(
        (
            8,
            20,
        ),
        "r2a:0",
        "r2",
        start_time=at(2),
        lost=True,
    )
    told((8, 30), "r2b:0", "r2", start_time=at(8, 29))
    told((8, 10), "r3a:0", "r3", start_time=at(3))
    told((8, 40), "r3b:0", "r3", start_time=at(8, 39))
    # r4 was not heard for a while, and then again; r5 stopped in order; r6 was over before the window.
    told((8, 10), "r4:0", "r4", start_time=at(4), lost=True)
    told((8, 12), "r4:0", "r4", start_time=at(4))
    told((8, 50), "r5:0", "r5", start_time=at(5), end_time=at(8, 49))
    told((8, 0), "r6:0", "r6", start_time=at(6), end_time=at(7, 59))
    # r7 was heard no more, and did not come back.
    told((8, 25), "r7:0", "r7", start_time=at(7), lost=True)
    # Two whose ids were never heard are not one after the other.
    told((8, 5), "x:0", None, start_time=at(8, 4))
    told((8, 6), "y:0", None, start_time=at(8, 5))


def _clients(world: World) -> None:
    def connection(identity: str, source: str, heard_at: int, **values: object) -> None:
        told: Row = {
            "container": "c",
            "user": "u",
            "host": "h",
            "tls_ordinal": 3,
            "parent": "listener",
            **values,
        }
        world.told(at(8, heard_at), "CONNECTION", identity, source=source, role="normal", **told)

    def link(identity: str, parent: str | None, source: str, heard_at: int, **values: object) -> None:
        world.told(
            at(8, heard_at), "AMQP_LINK", identity, source=source, parent=parent, address="q", **values
        )

    world.told(at(8), "LISTENER", "listener", name="amqps")
    # Ends told: of the first late, after a state of it that has none.
    connection("c1", "r1:0", 1, start_time=at(8, 1), direction="incoming")
    connection("c1", "r1:0", 59, start_time=at(8, 1), end_time=at(8, 5))
    link("l1", "c1", "r1:0", 2, start_time=at(8, 2), name="mine", direction="in", deliveries=5)
    link("l1", "c1", "r1:0", 58, start_time=at(8, 2), end_time=at(8, 4), deliveries=30)
    world.flowed(at(8, 3), deliveries=20, octets=200, link="l1", connection="c1")
    world.flowed(at(8, 4), deliveries=10, octets=100, link="l1", connection="c1", sequence=4)
    # No end of the link; its connection has one. Nor of what its router has left behind.
    link("l2", "c1", "r1:0", 2, start_time=at(8, 2), deliveries=7)
    connection("c2", "r2a:0", 1, start_time=at(7))
    link("l3", "c2", "r2a:0", 1, start_time=at(7, 30))
    connection("c3", "r3a:0", 1, start_time=at(8, 1))
    connection("c4", "r5:0", 1, start_time=at(8, 1))
    link("l4", "gone", "r5:0", 1, start_time=at(8, 1), end_time=at(8, 40))
    # Open; one whose beginning nobody told, one that began before the window and had all in it but that.
    connection("c5", "r4:0", 14)
    link("l5", "c5", "r4:0", 15, start_time=at(7, 59), end_time=at(8, 30), deliveries=100)
    world.flowed(at(8, 20), deliveries=60, source="r4:0", router="r4", link="l5", connection="c5")
    # Nor do these two have all of it in the window: one ends with it, the beginning of the other is not known.
    link("l6", "c5", "r4:0", 59, start_time=at(8, 50), end_time=at(9), deliveries=50)
    link("l7", "c5", "r4:0", 15, end_time=at(8, 16), deliveries=9)
    # Ended before the window, told again in its first hour.
    connection("c6", "r1:0", 0, start_time=at(7), end_time=at(7, 30))


def _deliveries_only(world: World) -> None:
    seen: Row = {
        "source": "z:0",
        "router": "z",
        "link": "l9",
        "connection": "c9",
        "link_name": "seen",
        "container": "k",
    }
    world.flowed(at(8, 10), deliveries=1, octets=9, tls_ordinal=2, endpoint="amqps", address="q", **seen)
    world.flowed(at(8, 11), deliveries=1, octets=9, direction="in", role=None, source="z:0", router="z")


def test_a_run_of_a_router_ends_when_it_says_or_was_heard_last(tables: dict[str, list[Row]]) -> None:
    routers = {row["identity"]: row for row in tables["sessions"] if row["kind"] == "router"}
    assert {name: part(row, "end", "end_known") for name, row in routers.items()} == {
        "r1:0": (None, "open"),
        "r2a:0": (at(8, 20), "lost"),
        "r2b:0": (None, "open"),
        "r3a:0": (at(8, 10), "lost"),
        "r3b:0": (None, "open"),
        "r4:0": (None, "open"),
        "r5:0": (at(8, 49), "ended"),
        "r7:0": (at(8, 25), "lost"),
        "x:0": (None, "open"),
        "y:0": (None, "open"),
        "z:0": (None, "open"),
    }
    assert part(routers["r1:0"], "name", "site", "start", "start_known") == ("r1", "east", at(1), True)
    assert part(routers["r1:0"], "duration_seconds", "deliveries", "octets") == (8 * 3600.0, 30, 300)
    assert part(routers["r2a:0"], "duration_seconds", "deliveries") == (6 * 3600 + 1200.0, 0)
    assert [routers[name]["next_start"] for name in ("r1:0", "r2a:0", "r3a:0", "r7:0", "x:0")] == [
        None,
        at(8, 29),
        at(8, 39),
        None,
        None,
    ]
    assert part(routers["z:0"], "router", "start", "start_known", "deliveries") == ("z", at(8, 10), False, 2)


def test_an_end_that_is_told_late_counts(tables: dict[str, list[Row]]) -> None:
    sessions = tables["sessions"]
    connection = only(sessions, identity="c1")
    assert part(connection, "start", "end", "end_known", "duration_seconds") == (
        at(8, 1),
        at(8, 5),
        "ended",
        240.0,
    )
    assert part(connection, "name", "container", "tls_ordinal", "direction") == ("amqps", "c", 3, "incoming")
    assert part(connection, "deliveries", "octets") == (30, 300)
    link = only(sessions, identity="l1")
    assert part(link, "end", "end_known", "name", "address", "direction") == (
        at(8, 4),
        "ended",
        "mine",
        "q",
        "in",
    )
    assert part(link, "parent", "container", "user", "host", "tls_ordinal") == ("c1", "c", "u", "h", 3)
    assert part(link, "deliveries", "octets") == (30, 300)


def test_what_has_no_end_is_over_with_what_it_is_part_of(tables: dict[str, list[Row]]) -> None:
    ends = {
        row["identity"]: part(row, "end", "end_known")
        for row in tables["sessions"]
        if row["kind"] != "router"
    }
    assert ends == {
        "c1": (at(8, 5), "ended"),
        "l1": (at(8, 4), "ended"),
        "l2": (at(8, 5), "lost"),
        "c2": (at(8, 20), "lost"),
        "l3": (at(8, 20), "lost"),
        "c3": (at(8, 10), "lost"),
        "c4": (at(8, 49), "lost"),
        "l4": (at(8, 40), "ended"),
        "c5": (None, "open"),
        "l5": (at(8, 30), "ended"),
        "l6": (at(9), "ended"),
        "l7": (at(8, 16), "ended"),
        "c9": (None, "open"),
        "l9": (None, "open"),
    }


def test_what_is_known_from_deliveries_only_is_a_session_too(tables: dict[str, list[Row]]) -> None:
    link = only(tables["sessions"], identity="l9")
    assert part(link, "parent", "router", "name", "address", "container") == ("c9", "z", "seen", "q", "k")
    assert part(link, "start", "start_known", "duration_seconds", "deliveries") == (
        at(8, 10),
        False,
        3000.0,
        1,
    )
    connection = only(tables["sessions"], identity="c9")
    assert part(connection, "container", "name", "tls_ordinal", "parent") == ("k", "amqps", 2, None)
    assert part(only(tables["sessions"], identity="c5"), "start", "start_known") == (at(8, 14), False)


def test_intervals_have_to_add_up_to_the_totals_of_links_that_were_there_as_a_whole(
    tables: dict[str, list[Row]],
) -> None:
    rows = tables["completeness"]
    assert part(only(rows, source="r1:0"), "router", "links", "told", "counted") == ("r1", 1, 30, 30)
    assert part(only(rows, source="r1:0"), "missing_intervals", "records_missed", "not_recorded") == (2, 4, 2)
    assert part(only(rows, source="r4:0"), "links", "told", "counted") == (0, 0, 0)
    assert part(only(rows, source="r5:0"), "links", "told", "counted") == (1, 0, 0)
    assert part(only(rows, source="z:0"), "router", "records_lost") == ("z", 0)
    assert len(rows) == 12


@pytest.fixture(scope="module")
def rotation(spark: SparkSession) -> dict[str, list[Row]]:
    world = World()
    world.told(at(8), "ROUTER", "r1:0", router="r1", start_time=at(1))
    for identity, kind, profile in (
        ("ki", "LINK", "inner"),
        ("ls", "LISTENER", "outer"),
        ("lq", "LISTENER", None),
    ):
        world.told(at(8), kind, identity, name=identity, ssl_profile=profile)
    _raises(world)
    _connections(world)
    return built(spark, world, ("rotation_flows", "rotations", "rotation_outlived"), WINDOW)


def _raises(world: World) -> None:
    def raised(minute: int, profile: str, before: int, ordinal: int) -> None:
        values: Row = {"name": profile, "ordinal_before": before, "tls_ordinal": ordinal}
        world.happened(at(8, minute, 30), "UPGRADE_EVENT", "ordinal-raised", **values)

    raised(10, "inner", 1, 2)
    raised(20, "outer", 1, 2)
    raised(40, "outer", 2, 3)
    # The connector's own; one of a peer, told by a listener; one of a rotation before.
    for minute, name, ordinal in ((11, "ki", 2), (12, "ki", 2), (25, "ls", 2), (9, "ki", 2)):
        values: Row = {"name": name, "tls_ordinal": ordinal, "role": "inter-router"}
        world.happened(at(8, minute), "UPGRADE_EVENT", "connection-upgraded", **values)


def _connections(world: World) -> None:
    def connection(
        identity: str, parent: str, ordinal: int | None, start: tuple[int, int], end: int | None
    ) -> None:
        ends: Row = {} if end is None else {"end_time": at(8, end)}
        told: Row = {
            "parent": parent,
            "tls_ordinal": ordinal,
            "start_time": at(*start),
            "router": "r1",
            **ends,
        }
        world.told(at(8, 59), "CONNECTION", identity, role="normal", container=f"of-{identity}", **told)

    def flows(identity: str, parent: str, ordinal: int | None, minute: int, deliveries: int) -> None:
        whose: Row = {
            "connection": identity,
            "link": f"l-{identity}",
            "endpoint": parent,
            "tls_ordinal": ordinal,
        }
        world.flowed(at(8, minute, 40), deliveries=deliveries, octets=10 * deliveries, **whose)

    # Two between routers are replaced, one in seconds.
    connection("i1", "ki", 1, (7, 0), 11)
    connection("i2", "ki", 1, (7, 0), 13)
    connection("i3", "ki", 2, (8, 11), None)
    # A client that outlives one rotation, one that outlives two and is still there; one that was gone before.
    connection("o1", "ls", 1, (7, 0), 30)
    connection("o2", "ls", 1, (7, 0), None)
    connection("o3", "ls", 1, (7, 0), 20)
    connection("o4", "ls", 2, (8, 21), 50)
    # A listener whose profile is not known; one without TLS.
    connection("q1", "lq", 1, (7, 0), 15)
    connection("p1", "lq", None, (7, 0), None)
    flows("o2", "ls", 1, 5, 1)
    flows("o2", "ls", 1, 20, 2)
    flows("o2", "ls", 1, 21, 4)
    flows("o2", "ls", 1, 45, 8)
    flows("o1", "ls", 1, 25, 16)
    flows("o4", "ls", 2, 45, 32)
    # Another link of the same connection.
    world.flowed(at(8, 45, 50), unsettled=1, connection="o4", link="l2-o4", endpoint="ls", tls_ordinal=2)
    flows("i1", "ki", 1, 5, 64)
    flows("p1", "lq", None, 5, 128)


def test_what_flows_is_told_by_ordinal(rotation: dict[str, list[Row]]) -> None:
    flows = rotation["rotation_flows"]
    assert [
        part(row, "endpoint", "tls_ordinal", "connections", "deliveries")
        for row in flows
        if row["bucket"] == at(8, 45)
    ] == [
        ("ls", 1, 1, 8),
        ("ls", 2, 1, 32),
    ]
    assert [part(row, "endpoint", "octets") for row in flows if row["bucket"] == at(8, 5)] == [
        ("ki", 640),
        ("ls", 10),
    ]


def test_a_rotation_is_over_when_the_last_old_connection_is(rotation: dict[str, list[Row]]) -> None:
    rotations = {part(row, "profile", "ordinal"): row for row in rotation["rotations"]}
    assert rotations.keys() == {("inner", 2), ("outer", 2), ("outer", 3)}
    inner = rotations["inner", 2]
    # i1, i2 and q1, which may be of any profile.
    assert part(inner, "router", "ordinal_before", "raised_at", "old_connections") == (
        "r1",
        1,
        at(8, 10, 30),
        3,
    )
    assert part(inner, "last_old_end", "duration_seconds", "complete") == (at(8, 15), 270.0, True)
    assert part(inner, "connections_upgraded", "last_upgrade_at", "last_old_traffic") == (2, at(8, 12), None)
    outer = rotations["outer", 2]
    assert part(outer, "old_connections", "last_old_end", "complete") == (2, at(8, 30), False)
    assert part(outer, "last_old_traffic", "duration_seconds") == (at(8, 46), 39.5 * 60)
    assert part(outer, "connections_upgraded", "last_upgrade_at") == (0, None)
    newest = rotations["outer", 3]
    assert part(newest, "old_connections", "last_old_end", "last_old_traffic") == (2, at(8, 50), at(8, 46))
    assert part(newest, "complete", "connections_upgraded") == (False, 0)


def test_connections_that_outlive_a_rotation(rotation: dict[str, list[Row]]) -> None:
    outlived = {row["connection"]: row for row in rotation["rotation_outlived"]}
    # i1 was replaced within the minute.
    assert outlived.keys() == {"i2", "o1", "o2", "o4", "q1"}
    stays = outlived["o2"]
    assert part(stays, "tls_ordinal", "newest_ordinal", "raised_at") == (1, 3, at(8, 20, 30))
    assert part(stays, "until", "open", "endpoint", "container") == (at(9), True, "ls", "of-o2")
    # The bucket in which the ordinal was raised is left out.
    assert part(stays, "deliveries_after", "octets_after") == (12, 120)
    assert part(outlived["o1"], "until", "open", "newest_ordinal", "deliveries_after") == (
        at(8, 30),
        False,
        2,
        16,
    )
    assert part(outlived["i2"], "deliveries_after", "until") == (0, at(8, 13))
