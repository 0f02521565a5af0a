"""What is said of rows of finished tables, in words that a person understands."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus_flows import findings as say
from isthmus_flows.formats import amount, clock, counted
from isthmus_flows.tables import table


def test_numbers_and_times_in_sentences() -> None:
    assert [amount(12_345), amount(0.25), amount(1234.5)] == ["12,345", "0.25", "1,234"]
    assert [counted(1, "file"), counted(0, "file"), counted(2, "delivery", "deliveries")] == [
        "1 file",
        "0 files",
        "2 deliveries",
    ]
    assert clock("2026-11-23T08:15:02.123456Z") == "2026-11-23 08:15:02 UTC"


def row(name: str, **values: Any) -> dict[str, Any]:
    """Of a table; what is not given is null."""
    columns = [column.name for column in table(name).columns]
    assert values.keys() <= set(columns)
    return {column: values.get(column) for column in columns}


def test_failed_deliveries_are_told_of_from_one_percent_on() -> None:
    few = row("traffic_matrix", address="q", site="s", direction="in", failed=9, accepted=991, presettled=0)
    assert list(say.failed([few])) == []
    counts = {"rejected": 0, "released": 6, "modified": 4, "dropped": 0, "presettled": 490, "accepted": 500}
    (found,) = say.failed([few | counts | {"failed": 10}])
    assert found.text == "1.0 % of what clients sent to q at s went wrong: 6 released, 4 modified."
    assert found.value == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("role", "direction", "text"),
    [
        (
            "normal",
            "in",
            "The sender c on q at router r had no credit for 30 s, 50 % of its time: nobody takes",
        ),
        (
            "normal",
            "out",
            "The receiver c on q at router r had no credit for 30 s, 50 % of its time: it is slow",
        ),
        (
            "edge",
            "out",
            "The connection of router r to c had no credit for 30 s, 50 % of its time: the other router",
        ),
    ],
)
def test_starvation_says_who_is_to_blame(role: str, direction: str, text: str) -> None:
    who = {"role": role, "direction": direction, "container": "c", "router": "r", "address": "q"}
    (found,) = say.starvation([row("starvation", **who, no_credit_seconds=30.0, share=0.5)])
    assert found.text.startswith(text)


def test_stuck_deliveries_become_critical() -> None:
    stuck = row("stuck", role="normal", direction="out", container="c", router="r", most_unsettled=1)
    (young,) = say.stuck([stuck | {"oldest_seconds": 599.0}])
    (old,) = say.stuck([stuck | {"oldest_seconds": 600.0}] * 2)
    assert (young.severity, old.severity) == ("warning", "critical")
    assert young.text == (
        "1 link has deliveries that nobody settles. The receiver c at router r has had 1 delivery without an outcome, "
        "the oldest for 9 min 59 s."
    )
    assert old.text.startswith("2 links have deliveries")
    (many,) = say.stuck([stuck | {"oldest_seconds": 10.0}] * say.MANY)
    assert many.text.startswith("At least 1,000 links")


def test_a_change_of_the_network_is_a_warning_if_it_cost_something() -> None:
    quiet = row("topology_churn", start="2026-11-20T08:03:40.000000Z", neighbours_lost=1, path_computations=2)
    (free,) = say.churn([quiet | {"cost_deliveries": 0.0}])
    (costly,) = say.churn([quiet | {"cost_deliveries": 41.6, "neighbours_lost": 2}])
    assert (free.severity, costly.severity) == ("info", "warning")
    assert free.text == (
        "The network changed at 2026-11-20 08:03:40 UTC (1 time a neighbour was lost, 2 computations of paths): no "
        "delivery more than usual went wrong."
    )
    assert "(2 times a neighbour was lost" in costly.text
    assert "42 deliveries more than usual" in costly.text


def test_old_credentials_that_are_in_use() -> None:
    old = row(
        "rotation_outlived", router="r", endpoint="amqps", connection="x:1", tls_ordinal=1, newest_ordinal=3
    )
    (found,) = say.outlived([old | {"deliveries_after": 5}, old | {"deliveries_after": 0}])
    assert found.text == (
        "2 connections are still open with credentials from before a rotation, 1 with deliveries since. First x:1 at "
        "r/amqps: ordinal 1, now 3. Connect it anew before the old certificate expires."
    )


def test_relays() -> None:
    pair = row(
        "relay_totals", relay_group="g", relay_site="a", remote_site="b", not_up_seconds=90.0, state="up"
    )
    (dropped,) = say.relay_dropped([pair | {"dropped": 4}])
    assert (dropped.severity, dropped.value) == ("critical", 4)
    assert dropped.text.startswith("4 messages of relay site a for b (group g) fell out of the buffer")
    assert "not up for 1 min 30 s" in dropped.text
    (gaps,) = say.relay_gaps([pair | {"gaps": 1}])
    assert gaps.text == "1 message of relay site b never came to a (group g)."
    (lag,) = say.relay_lag([pair | {"max_lag_seconds": 75.0, "max_lag_messages": 9}])
    assert (
        lag.text
        == "Relay site b was up to 1 min 15 s behind a (group g), 9 messages at most; at the end it is up."
    )


def test_anomalies_have_units() -> None:
    hour = {"bucket_hour": "2026-11-20T09:00:00.000000Z", "address": "q", "site": "s", "direction": "out"}
    late = row("anomalies", **hour, metric="latency_p99_us", value=50_000.0, expected=2_000.0, score=48.0)
    none = row(
        "anomalies", **hour | {"site": None}, metric="deliveries", value=0.0, expected=1e5, score=-10.0
    )
    texts = [finding.text for finding in say.anomalies([late, none])]
    assert texts == [
        "q at s had 50 ms latency (99 %) (sent to clients) in the hour from 2026-11-20 09:00:00 UTC; usual at that "
        "time: 2 ms.",
        "q had 0 deliveries (sent to clients) in the hour from 2026-11-20 09:00:00 UTC; usual at that time: 100,000.",
    ]


def test_what_is_missing_is_told() -> None:
    quality = [
        row("quality", table="deliveries", rows=0, quarantined_files=1, quarantined_rows=40),
        row("quality", table="events", rows=9, quarantined_files=0, quarantined_rows=0),
    ]
    assert [finding.kind for finding in say.unusable(quality)] == ["quarantined", "empty"]
    assert list(say.unusable([quality[0] | {"rows": 1, "quarantined_files": 0, "quarantined_rows": 0}])) == []
    whole = row("completeness", source="x:0", missing_intervals=0, records_missed=0, records_lost=0)
    assert list(say.incomplete([whole])) == []
    (found,) = say.incomplete([whole | {"missing_intervals": 2}, whole | {"records_missed": 1}])
    assert "2 intervals, 1 message of routers lost, most of x:0" in found.text


def test_routers_that_were_lost() -> None:
    lost = row("sessions", identity="x:0", end="2026-11-20T09:00:00.000000Z")
    (found,) = say.routers_lost([lost | {"router": "r1"}, lost])
    assert found.text == (
        "Router r1 was heard last at 2026-11-20 09:00:00 UTC, has not said that it stops (and so were 1 other run of "
        "routers) and is not back: look at its log, and at its node."
    )
    (gone, back) = say.routers_lost([lost, lost | {"next_start": "2026-11-20T09:00:02Z"}])
    assert (gone.severity, gone.value, back.severity, back.value) == ("critical", 1, "warning", 1)
    assert "; it was back at 2026-11-20 09:00:02 UTC. " in back.text


def test_what_is_worth_knowing() -> None:
    matrix = row("traffic_matrix", site="s", direction="in", deliveries=1, links=2, latency_p50_us=900.0)
    (busiest,) = say.busiest([matrix])
    assert busiest.text == (
        "(messages that name their destinations) at s is the busiest: 1 delivery (sent by clients) on 2 links."
    )
    (fast,) = say.slowest([matrix | {"latency_p99_us": 999_999.0}])
    (slow,) = say.slowest([matrix | {"latency_p99_us": 1e6}])
    assert (fast.severity, slow.severity) == ("info", "warning")
    assert slow.text.endswith("took longer than 1 s, half of them longer than 900 µs.")
    talker = row("top_talkers", host="10.0.0.1", direction="out", share_octets=0.75)
    (large,) = say.largest_talker([talker])
    assert large.text == "One client, 10.0.0.1 at no site, is 75 % of all bytes that were sent to clients."
