"""Rows are what the flow log's schema says, with what parents say, whatever comes first."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.flow_log.network import START, Network, at_once

from isthmus_flowlog.collector import columns
from isthmus_flowlog.collector.assembly import ASK_US, FURTHEST_US, WAIT_US, Assembly
from isthmus_flowlog.collector.known import MOST_OF_SOURCE, MOST_OVER
from isthmus_flowlog.collector.rows import to_arrow
from isthmus_flowlog.schema import DELIVERIES, TABLES, Kind
from isthmus_router.flows.records import Attr, RecordType

SECOND = 1_000_000
HOUR_US = 3600 * SECOND


def attributes(record_type: RecordType, identity: str, **values: Any) -> dict[int, Any]:
    """A record as it arrives."""
    return {
        0: int(record_type),
        1: identity,
        **{int(Attr[key.upper()]): value for key, value in values.items()},
    }


ROUTER = attributes(
    RecordType.ROUTER, "abcde:0", start_time=START, name="0/east", mode="edge", parent="abcde:1"
)
SITE = attributes(RecordType.SITE, "abcde:1", start_time=START, name="Paris")
LISTENER = attributes(RecordType.LISTENER, "abcde:2", parent="abcde:0", start_time=START, name="clients")
CONNECTION = attributes(
    RecordType.CONNECTION,
    "abcde:3",
    parent="abcde:2",
    start_time=START,
    role="normal",
    container="shop",
    user="anna",
    source_host="10.1.2.3",
    active_tls_ordinal=3,
)
LINK = attributes(
    RecordType.AMQP_LINK, "abcde:4", parent="abcde:3", start_time=START, name="sender", direction="in"
)
SUMMARY = attributes(
    RecordType.DELIVERY_SUMMARY,
    "abcde:5",
    parent="abcde:4",
    start_time=START,
    end_time=START + SECOND,
    direction="in",
    van_address="orders",
    sequence=1,
    deliveries=7,
    octets=700,
    sizes=[(40, 7)],
)
PATH = [ROUTER, SITE, LISTENER, CONNECTION, LINK]


def rows_of(assembly: Assembly, table: str) -> list[dict[str, Any]]:
    names = columns.LAYOUTS[table].names
    return [dict(zip(names, row, strict=True)) for row in assembly.take()[table]]


def test_every_column_has_a_value_from_somewhere() -> None:
    for table in TABLES:
        assert sorted(columns.LAYOUTS[table.name].names) == sorted(column.name for column in table.columns)


def test_a_summary_has_what_its_parents_say() -> None:
    assembly = Assembly()
    assembly.heard("abcde:0", START, [*PATH, SUMMARY])
    (row,) = rows_of(assembly, "deliveries")
    counts = [column.name for column in DELIVERIES.columns if column.required and column.kind is Kind.LONG]
    zeros = dict.fromkeys(counts, 0)
    assert row == zeros | {
        "identity": "abcde:5",
        "source": "abcde:0",
        "start_time": START,
        "end_time": START + SECOND,
        "sequence": 1,
        "site": "Paris",
        "router": "east",
        "router_mode": "edge",
        "direction": "in",
        "address": "orders",
        "role": "normal",
        "endpoint": "clients",
        "connection": "abcde:3",
        "link": "abcde:4",
        "link_name": "sender",
        "container": "shop",
        "user": "anna",
        "host": "10.1.2.3",
        "tls_ordinal": 3,
        "deliveries": 7,
        "octets": 700,
        "sizes": [(40, 7)],
        "latencies": None,
        "heard_at": START,
    }


@pytest.mark.parametrize("last", range(5))
def test_a_summary_waits_for_whichever_parent_is_missing(last: int) -> None:
    assembly = Assembly()
    assembly.heard("abcde:0", START, [SUMMARY])
    for at, record in enumerate(PATH):
        if at != last:
            assembly.heard("abcde:0", START + 1, [record])
    assert rows_of(assembly, "deliveries") == []
    assembly.tick(START + WAIT_US - 1)
    assembly.heard("abcde:0", START + 2, [PATH[last]])
    (row,) = rows_of(assembly, "deliveries")
    assert (row["site"], row["router"], row["endpoint"], row["link_name"]) == (
        "Paris",
        "east",
        "clients",
        "sender",
    )
    assert row["heard_at"] == START
    assert assembly.counts.unaccompanied == 0


def test_a_summary_does_not_wait_for_ever() -> None:
    assembly = Assembly()
    assembly.heard("abcde:0", START, [ROUTER, SITE, LINK, SUMMARY])
    assembly.tick(START + ASK_US)
    assert assembly.to_ask == {"abcde:0"}
    assert rows_of(assembly, "deliveries") == []
    assembly.tick(START + WAIT_US)
    (row,) = rows_of(assembly, "deliveries")
    assert (row["router"], row["connection"], row["link"], row["container"]) == (
        "east",
        None,
        "abcde:4",
        None,
    )
    assert assembly.counts.unaccompanied == 1
    assembly.heard("abcde:0", START + 1, [SUMMARY | {1: "abcde:6"}])
    assert len(rows_of(assembly, "deliveries")) == 1, "nor does the next one wait for what does not come"
    assembly.heard("abcde:0", START + 1, [LISTENER, CONNECTION, SUMMARY | {1: "abcde:7"}])
    (row,) = rows_of(assembly, "deliveries")
    assert row["container"] == "shop"


def test_what_parents_say_now_is_in_the_next_row() -> None:
    assembly = Assembly()
    assembly.heard("abcde:0", START, [*PATH, SUMMARY])
    changed = [
        {0: CONNECTION[0], 1: "abcde:3", int(Attr.USER): "bob"},
        {0: LISTENER[0], 1: "abcde:2", int(Attr.NAME): "amqps"},
    ]
    assembly.heard("abcde:0", START, [*changed, SUMMARY | {1: "abcde:6"}])
    first, second = rows_of(assembly, "deliveries")
    assert (first["user"], first["endpoint"]) == ("anna", "clients")
    assert (second["user"], second["endpoint"]) == ("bob", "amqps")


def test_the_host_is_that_of_the_peer_whoever_connected() -> None:
    assembly = Assembly()
    outgoing = attributes(
        RecordType.CONNECTION,
        "abcde:7",
        parent="abcde:2",
        start_time=START,
        dest_host="broker",
        dest_port="5672",
    )
    summary = SUMMARY | {1: "abcde:8", int(Attr.PARENT): "abcde:7"}
    assembly.heard("abcde:0", START, [*PATH, outgoing, summary])
    rows = assembly.take()
    names = columns.LAYOUTS["records"].names
    hosts = {(row[names.index("host")], row[names.index("port")]) for row in rows["records"]}
    assert hosts == {(None, None), ("10.1.2.3", None), ("broker", "5672")}
    assert rows["deliveries"][0][columns.LAYOUTS["deliveries"].names.index("host")] == "broker"


def test_a_summary_that_comes_after_the_end_of_its_link_has_its_parents_still() -> None:
    assembly = Assembly()
    ended = [record | {int(Attr.END_TIME): START + 5} for record in (LINK, CONNECTION)]
    assembly.heard("abcde:0", START, [*PATH, *ended, SUMMARY])
    (row,) = rows_of(assembly, "deliveries")
    assert (row["link_name"], row["container"], row["router"]) == ("sender", "shop", "east")


def test_what_is_told_again_is_not_written_again() -> None:
    assembly = Assembly()
    for _ in range(3):
        assembly.heard("abcde:0", START, [*PATH, SUMMARY])
    rows = assembly.take()
    assert [len(rows[table]) for table in ("records", "deliveries")] == [5, 1]
    assert assembly.counts.again == 12


def test_records_have_a_row_when_something_but_counters_changes() -> None:
    assembly = Assembly()
    at = START
    for changes in (
        {},
        {"octets": 5},
        {"octets": 6, "deliveries": 1},
        {"name": "other"},
        {"end_time": START},
        {},
    ):
        at += 1
        assembly.heard(
            "abcde:0", at, [ROUTER, SITE, LINK | attributes(RecordType.AMQP_LINK, "abcde:4", **changes)]
        )
    rows = [row for row in rows_of(assembly, "records") if row["type"] == "AMQP_LINK"]
    assert [row["heard_at"] - START for row in rows] == [1, 4, 5]
    assert [row["name"] for row in rows] == ["sender", "other", "sender"]
    assert [row["octets"] for row in rows] == [None, 6, 6]
    assert [row["end_time"] for row in rows] == [None, None, START]


def test_a_change_of_something_that_was_never_told_in_full_makes_no_row() -> None:
    assembly = Assembly()
    change = attributes(RecordType.AMQP_LINK, "abcde:4", octets=5)
    assembly.heard("abcde:0", START, [ROUTER, SITE, change])
    assembly.tick(START + WAIT_US)
    assert [row["type"] for row in rows_of(assembly, "records")] == ["SITE", "ROUTER"]
    assert assembly.to_ask == {"abcde:0"}
    assembly.heard("abcde:0", START, [LINK | change])
    assert [(row["type"], row["octets"]) for row in rows_of(assembly, "records")] == [("AMQP_LINK", 5)]


def test_records_wait_for_their_router() -> None:
    assembly = Assembly()
    assembly.heard("abcde:0", START, [LINK, LINK | {int(Attr.NAME): "renamed"}])
    assert rows_of(assembly, "records") == []
    assembly.heard("abcde:0", START + 1, [ROUTER, SITE])
    rows = {row["type"]: row for row in rows_of(assembly, "records")}
    assert set(rows) == {"AMQP_LINK", "ROUTER", "SITE"}
    assert (rows["AMQP_LINK"]["router"], rows["AMQP_LINK"]["name"]) == ("east", "renamed")
    assert rows["ROUTER"]["name"] == "east"


def test_every_minute_the_router_and_every_hour_everything() -> None:
    assembly = Assembly()
    begin = START // HOUR_US * HOUR_US
    assembly.heard("abcde:0", begin + 1, PATH)
    assembly.take()
    found = []
    for at in range(2, 3602 + 60, 2):
        assembly.heard("abcde:0", begin + at * SECOND)
        found += [(at, row["type"]) for row in rows_of(assembly, "records")]
    minutes = [(at, "ROUTER") for at in range(60, 3600, 60)]
    assert found[: len(minutes)] == minutes
    hour = [item for item in found if 3600 <= item[0] < 3660]
    assert sorted(kind for _, kind in hour) == ["AMQP_LINK", "CONNECTION", "LISTENER", "ROUTER", "SITE"]
    assert {at for at, _ in hour} == {3600}


def test_the_rows_of_an_hour_do_not_come_all_at_once() -> None:
    assembly = Assembly()
    begin = START // HOUR_US * HOUR_US
    links = [LINK | {1: f"abcde:{number}"} for number in range(10, 2010)]
    assembly.heard("abcde:0", begin + 1, PATH + links)
    assembly.take()
    sizes = []
    for at in range(6):
        assembly.heard("abcde:0", begin + HOUR_US + at)
        sizes.append(len(rows_of(assembly, "records")))
    assert sizes == [500, 500, 500, 500, 5, 0]


def test_a_lost_source() -> None:
    assembly = Assembly()
    assembly.heard("abcde:0", START, PATH)
    assembly.heard("abcde:0", START + 5, missed=3)
    assembly.take()
    assert assembly.lost("abcde:0", START + 10 * SECOND)
    rows = assembly.take()
    names = columns.LAYOUTS["records"].names
    (row,) = (dict(zip(names, row, strict=True)) for row in rows["records"])
    assert (row["identity"], row["type"], row["lost"], row["end_time"]) == ("abcde:0", "ROUTER", True, None)
    assert (row["heard_at"], row["records_missed"], row["router"]) == (START + 5, 3, "east")
    (event,) = (dict(zip(columns.LAYOUTS["events"].names, row, strict=True)) for row in rows["events"])
    assert (event["type"], event["event"], event["subject"]) == ("COLLECTOR_EVENT", "source-lost", "east")
    assert (event["time"], event["router"], event["site"]) == (START + 10 * SECOND, "east", "Paris")
    assembly.lost("abcde:0", START + 10 * SECOND)
    assert rows_of(assembly, "records")[0]["heard_at"] == START + 6, "the latest row is never ambiguous"


def test_a_source_that_has_said_that_it_ends_is_not_lost() -> None:
    assembly = Assembly()
    assembly.heard("abcde:0", START, PATH)
    assembly.heard("abcde:0", START + 5, [PATH[0] | {4: START + 4}])
    assembly.take()
    assert not assembly.lost("abcde:0", START + 10 * SECOND)
    assert not any(assembly.take().values())


def test_only_wanted_routers() -> None:
    network = Network(wanted=lambda router: router != "east")
    network.seconds(5)
    assert network.rows["records"] == []
    assert network.consumed == {"mc/sfe.all"}
    network = Network(wanted=lambda router: router == "east")
    network.seconds(5)
    assert [row["router"] for row in network.rows["records"]] == ["east"]


@pytest.mark.parametrize(
    "record",
    [
        {},
        {0: "x", 1: "abcde:9"},
        {0: 1003, 1: 7},
        SUMMARY | {int(Attr.END_TIME): 10**20},
        SUMMARY | {int(Attr.END_TIME): "now"},
        {int(Attr.TYPE): 1003, 1: "abcde:9", int(Attr.PARENT): "abcde:4"},
    ],
)
def test_what_makes_no_sense_is_counted(record: dict[int, Any]) -> None:
    assembly = Assembly()
    assembly.heard("abcde:0", START, [*PATH, record])
    assert rows_of(assembly, "deliveries") == []
    assert assembly.counts.malformed == 1


def test_types_that_are_unknown_are_skipped() -> None:
    assembly = Assembly()
    assembly.heard("abcde:0", START, [*PATH, {0: 77, 1: "abcde:9"}])
    assert assembly.counts.skipped == 1


def test_a_loop_of_parents_ends() -> None:
    assembly = Assembly()
    loop = [LINK | {int(Attr.PARENT): "abcde:3"}, CONNECTION | {int(Attr.PARENT): "abcde:4"}]
    assembly.heard("abcde:0", START, [ROUTER, SITE, *loop, SUMMARY])
    (row,) = rows_of(assembly, "deliveries")
    assert row["router"] == "east"


def test_what_is_remembered_is_bounded() -> None:
    assembly = Assembly()
    assembly.heard("abcde:0", START, PATH)
    for number in range(3 * MOST_OVER):
        assembly.heard("abcde:0", START, [SUMMARY | {1: f"abcde:{number + 10}"}])
    (source,) = assembly._sources.values()
    assert len(source.over) == MOST_OVER
    assert not source.waiting
    assembly.forgotten("abcde:0")
    assert not assembly._sources
    assert not assembly._sites


@pytest.mark.parametrize(
    "record", [SUMMARY, attributes(RecordType.UPGRADE_EVENT, "abcde:8", event="ordinal-raised")]
)
@pytest.mark.parametrize("distance", [-FURTHEST_US, FURTHEST_US])
def test_rows_have_times_that_are_less_than_a_day_from_the_clock_of_the_collector(
    record: dict[int, Any], distance: int
) -> None:
    """Each hour has files of its own: times that are anywhere would make a file of each row."""
    assembly = Assembly()
    assembly.heard("abcde:0", START, PATH)
    assembly.take()
    for number, at in enumerate((START + distance, START + distance + (1 if distance > 0 else -1))):
        times = {int(Attr.START_TIME): at, int(Attr.END_TIME): at}
        assembly.heard("abcde:0", START, [record | times | {1: f"abcde:{number + 10}"}])
    assert sum(len(rows) for rows in assembly.take().values()) == 1
    assert assembly.counts.malformed == 1


def test_sites_that_have_ended_are_not_remembered_for_ever() -> None:
    assembly = Assembly()
    for number in range(2 * MOST_OVER):
        ended = SITE | {1: f"site:{number}", int(Attr.END_TIME): START}
        assembly.heard("abcde:0", START + number * SECOND, [ended])
        assembly.take()
    assert len(assembly._sites) == MOST_OVER
    assembly.forgotten("abcde:0")
    assert not assembly._sites


def test_a_source_is_forgotten_at_the_same_cost_however_many_sites_others_have() -> None:
    assembly = Assembly()
    for source in range(8):
        sites = [SITE | {1: f"{source}:{number}"} for number in range(15_000)]
        assembly.heard(f"site{source}:0", START, sites)
    begun = time.thread_time()
    for number in range(50):
        assembly.heard(f"other{number}:0", START, [ROUTER | {1: f"other{number}:0"}])
        assembly.forgotten(f"other{number}:0")
    assert time.thread_time() - begun < 0.5
    assert len(assembly._sites) == 120_000


def test_long_names_of_what_is_summarized_count_with_their_characters() -> None:
    """Of a source; the estimate may be too low by half."""
    assembly = Assembly()
    assembly.heard("abcde:0", START, PATH)
    tracemalloc.start()
    try:
        for number in range(60_000):
            name = f"{number} " + "\U0001f4a5" * 110
            summary = attributes(
                RecordType.RELAY_SUMMARY, name, parent=name + "p", subject=name + 2 * name, sequence=1
            )
            assembly.heard("abcde:0", START + number * SECOND, [summary])
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 1.5 * MOST_OF_SOURCE
    assert used < 1.5 * assembly._budget.used


def test_sketches_count_with_what_is_known_of_a_source() -> None:
    """Records have none that the table of their type has no column for, but a source can say so."""
    assembly = Assembly()
    assembly.heard("abcde:0", START, PATH)
    tracemalloc.start()
    try:
        for number in range(20_000):
            sketch = [(bucket, 2**40 + number) for bucket in range(100)]
            record = attributes(
                RecordType.CONNECTION, f"c{number}", parent="abcde:0", sizes=sketch, latencies=sketch
            )
            assembly.heard("abcde:0", START + number * SECOND, [record])
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert assembly.counts.too_many > 0
    assert used < 1.5 * MOST_OF_SOURCE


def test_text_that_rows_repeat_counts() -> None:
    """For the memory that rows take, and for the rate of their source if it is much."""
    assembly = Assembly()
    long = {
        int(attribute): "\U0001f4a5" * 290 for attribute in (Attr.NAME, Attr.CONTAINER, Attr.USER, Attr.ROLE)
    }
    assembly.heard("abcde:0", START, [*PATH, CONNECTION | long])
    assembly.take()
    assert assembly.octets == 0
    changes = [attributes(RecordType.CONNECTION, "abcde:3", process=str(number)) for number in range(1000)]
    assembly.heard("abcde:0", START, changes)
    assert 4000 * 1000 < assembly.octets < 6000 * 1000
    assert assembly.counts.too_many == 0
    for at in range(20):
        assembly.heard("abcde:0", START + at, changes)
    assert assembly.counts.too_many > 0
    assembly.take()
    for number in range(1000):
        assembly.heard("other:0", START + 1, [*PATH, LINK | {int(Attr.NAME): f"{number}"}])
    assert assembly.octets < 1000 * 1000


def test_what_was_waited_for_counts_until_its_deadline() -> None:
    assembly = Assembly()
    assembly.heard("abcde:0", START, PATH)
    before = assembly._budget.used
    for number in range(2000):
        change = {0: int(RecordType.CONNECTION), 1: f"abcde:{number + 10}"}
        times = {int(Attr.START_TIME): START, int(Attr.END_TIME): START}
        assembly.heard("abcde:0", START, [change, change | times])
    (source,) = assembly._sources.values()
    assert not source.waiting
    waiting = assembly._budget.used
    assembly.tick(START + WAIT_US)
    assert waiting - assembly._budget.used > 2000 * 200
    assembly.forgotten("abcde:0")
    assert before > assembly._budget.used == 0


def test_events_relays_and_a_site_that_another_source_tells_of() -> None:
    assembly = Assembly()
    assembly.heard("other:0", START, [SITE])
    raised = attributes(
        RecordType.UPGRADE_EVENT, "abcde:8", start_time=START, end_time=START, event="ordinal-raised", name="tls",
        active_tls_ordinal=4, ordinal_before=3,
    )  # fmt: skip
    member = attributes(
        RecordType.RELAY_MEMBER, "abcde:9", parent="abcde:0", start_time=START, relay_site="Paris"
    )
    summary = attributes(
        RecordType.RELAY_SUMMARY, "abcde:10", parent="abcde:9", start_time=START, end_time=START + 1, sequence=1,
        relay_group="g", relay_site="Paris", subject="Rome", oper_status="up", relays=1, sent=4, lag=9,
    )  # fmt: skip
    assembly.heard("abcde:0", START, [ROUTER, raised, member, summary])
    rows = assembly.take()
    (event,) = (dict(zip(columns.LAYOUTS["events"].names, row, strict=True)) for row in rows["events"])
    assert event == dict.fromkeys(event) | {
        "identity": "abcde:8", "source": "abcde:0", "time": START, "site": "Paris", "router": "east",
        "router_mode": "edge", "type": "UPGRADE_EVENT", "event": "ordinal-raised", "name": "tls",
        "tls_ordinal": 4, "ordinal_before": 3, "heard_at": START,
    }  # fmt: skip
    (relayed,) = (dict(zip(columns.LAYOUTS["relayed"].names, row, strict=True)) for row in rows["relayed"])
    assert {name: value for name, value in relayed.items() if value not in (0, None)} == {
        "identity": "abcde:10", "source": "abcde:0", "start_time": START, "end_time": START + 1, "sequence": 1,
        "site": "Paris", "router": "east", "router_mode": "edge", "relay_group": "g", "relay_site": "Paris",
        "remote_site": "Rome", "state": "up", "relays": 1, "sent": 4, "lag_us": 9, "heard_at": START,
    }  # fmt: skip


def test_a_restarted_router_is_another_source() -> None:
    network = Network(at_once)
    network.seconds(5)
    del network.sources["abcde:0"]
    network.sources["fghij:0"] = network.a_source("fghij:0")
    network.seconds(90)
    lost = [row["identity"] for row in network.of("records", lost=True)]
    assert lost == ["abcde:0"]
    assert network.latest("abcde:0")["lost"]
    assert not network.latest("fghij:0")["lost"]
    assert list(network.session.sources) == ["fghij:0"]


ANYTHING = st.one_of(
    st.integers(0, 2**64 - 1),
    st.text(max_size=3),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=2),
    st.none(),
    st.binary(max_size=2),
    st.booleans(),
    st.floats(),
)


@given(st.lists(st.dictionaries(st.sampled_from([int(a) for a in Attr]), ANYTHING, max_size=8), max_size=6))
def test_values_of_any_type_break_nothing(changes: list[dict[int, Any]]) -> None:
    records = [
        record | change for record, change in zip([*PATH, SUMMARY], [*changes, *[{}] * 6][:6], strict=True)
    ]
    assembly = Assembly(lambda router: router != "")
    for _ in range(2):
        assembly.heard("abcde:0", START, records)
    assembly.tick(START + WAIT_US)
    assembly.heard("abcde:0", START + HOUR_US, records)
    assembly.lost("abcde:0", START + HOUR_US)
    assembly.close()
    for table, rows in assembly.take().items():
        content, unfit = to_arrow(table, rows)
        assert len(content) + unfit == len(rows)
