"""What a person should know first: sentences, from the first rows of the finished tables.

Each question reads a few rows of one table and says what they come to; a table that has nothing of the kind says
nothing. What is said is bounded, however large the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from isthmus_flows.formats import amount, clock, counted, duration, seconds, share
from isthmus_flows.parallel import each
from isthmus_flows.tables import Row, table
from isthmus_flows.tables.anomalies import METRIC_NAMES
from isthmus_flows.tables.inputs import FAILED, ROUTER_ROLES

MOST = 20
CRITICAL, WARNING, INFO = "critical", "warning", "info"
_SEVERITIES = (CRITICAL, WARNING, INFO)
MANY = 1000
"""Rows of a kind that are read to be counted."""
SLOW_US = 1_000_000
FAILED_SHARE = 0.01
STARVED_SHARE = 0.1
STARVED_SECONDS = 10
LAG_SECONDS = 10
STUCK_CRITICAL_SECONDS = 600
LARGE_SHARE = 0.5
ENOUGH = 100
"""Deliveries, for a quantile of them to be worth a sentence."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence that a person acts on."""

    severity: str
    """`critical`, `warning` or `info`."""
    kind: str
    """One word for machines."""
    text: str
    value: float | None = None
    """The number that it is about."""

    def to_json(self) -> dict[str, Any]:
        """As in summary.json."""
        return {"severity": self.severity, "kind": self.kind, "text": self.text, "value": self.value}


@dataclass(frozen=True, slots=True)
class Question:
    """Which rows of which table matter, in which order, and what they come to."""

    table: str
    say: Callable[[Sequence[Row]], Iterator[Finding]]
    where: str = ""
    order: tuple[str, ...] = ()
    limit: int = 1

    def ask(self, rows: DataFrame) -> list[Finding]:
        """What the finished table says."""
        matters = rows.where(self.where) if self.where else rows
        found = table(self.table).read(matters, self.limit, self.order)
        return list(self.say(found)) if found else []


def findings(tables: Mapping[str, DataFrame]) -> list[Finding]:
    """Of all finished tables, the most important first; at most `MOST`."""

    def ask(question: Question) -> list[Finding]:
        return question.ask(tables[question.table])

    spark = tables[QUESTIONS[0].table].sparkSession
    found = [finding for answer in each(spark, ask, QUESTIONS) for finding in answer]
    return sorted(found, key=lambda finding: _SEVERITIES.index(finding.severity))[:MOST]


def more(rows: Sequence[Row], one: str, many: str) -> str:
    """So many, as far as they were counted."""
    at_least = "At least " if len(rows) >= MANY else ""
    return at_least + counted(len(rows), one, many)


# What went wrong with the network


def relay_dropped(rows: Sequence[Row]) -> Iterator[Finding]:
    """Relay: what another site will never have."""
    for row in rows:
        yield Finding(
            CRITICAL,
            "relay-dropped",
            f"{counted(row['dropped'], 'message')} of relay site {row['relay_site']} for {row['remote_site']} (group "
            f"{row['relay_group']}) fell out of the buffer: {row['remote_site']} will never have them. The other site "
            f"was not up for {seconds(row['not_up_seconds'])}; enlarge the relay buffer for outages of that length.",
            row["dropped"],
        )


def relay_gaps(rows: Sequence[Row]) -> Iterator[Finding]:
    """Relay: what never came from another site."""
    for row in rows:
        yield Finding(
            CRITICAL,
            "relay-gaps",
            f"{counted(row['gaps'], 'message')} of relay site {row['remote_site']} never came to {row['relay_site']} "
            f"(group {row['relay_group']}).",
            row["gaps"],
        )


def relay_lag(rows: Sequence[Row]) -> Iterator[Finding]:
    """Relay: how far behind another site was."""
    for row in rows:
        yield Finding(
            WARNING,
            "relay-lag",
            f"Relay site {row['remote_site']} was up to {seconds(row['max_lag_seconds'])} behind {row['relay_site']} "
            f"(group {row['relay_group']}), {counted(row['max_lag_messages'], 'message')} at most; at the end it is "
            f"{row['state']}.",
            row["max_lag_seconds"],
        )


def routers_lost(rows: Sequence[Row]) -> Iterator[Finding]:
    """Routers that crashed, or were cut off."""
    gone = [row for row in rows if row["next_start"] is None]
    back = [row for row in rows if row["next_start"] is not None]
    if gone:
        yield Finding(
            CRITICAL,
            "router-lost",
            f"{_ended_unsaid(gone)} and is not back: look at its log, and at its node.",
            len(gone),
        )
    if back:
        yield Finding(
            WARNING,
            "router-lost",
            f"{_ended_unsaid(back)}; it was back at {clock(back[0]['next_start'])}. Its log says whether it crashed, "
            "its pod whether it was killed.",
            len(back),
        )


def _ended_unsaid(rows: Sequence[Row]) -> str:
    first = rows[0]
    others = f" (and so were {counted(len(rows) - 1, 'other run')} of routers)" if len(rows) > 1 else ""
    return (
        f"Router {first['router'] or first['identity']} was heard last at {clock(first['end'])}, has not said that it "
        f"stops{others}"
    )


def churn(rows: Sequence[Row]) -> Iterator[Finding]:
    """What a change of the network has cost."""
    row = rows[0]
    cost = round(row["cost_deliveries"])
    happened = counted(row["neighbours_lost"], "time a neighbour was lost", "times a neighbour was lost")
    yield Finding(
        WARNING if cost else INFO,
        "topology-churn",
        f"The network changed at {clock(row['start'])} ({happened}, "
        f"{counted(row['path_computations'], 'computation')} of paths): "
        + (
            f"{counted(cost, 'delivery', 'deliveries')} more than usual were released, modified, dropped or late."
            if cost
            else "no delivery more than usual went wrong."
        ),
        row["cost_deliveries"],
    )


def outlived(rows: Sequence[Row]) -> Iterator[Finding]:
    """Connections that keep old certificates in use."""
    row = rows[0]
    busy = sum(1 for item in rows if item["deliveries_after"])
    yield Finding(
        WARNING,
        "rotation-outlived",
        f"{more(rows, 'connection is', 'connections are')} still open with credentials from before a rotation, "
        f"{busy} with deliveries since. First {row['container'] or row['connection']} at "
        f"{row['router']}/{row['endpoint']}: ordinal {row['tls_ordinal']}, "
        f"now {row['newest_ordinal']}. Connect it anew before the old certificate expires.",
        len(rows),
    )


# What went wrong with deliveries


def stuck(rows: Sequence[Row]) -> Iterator[Finding]:
    """Deliveries without an outcome."""
    row = rows[0]
    yield Finding(
        CRITICAL if row["oldest_seconds"] >= STUCK_CRITICAL_SECONDS else WARNING,
        "stuck",
        f"{more(rows, 'link has', 'links have')} deliveries that nobody settles. {_link(row)} has had "
        f"{counted(row['most_unsettled'], 'delivery', 'deliveries')} without an outcome, the oldest for "
        f"{seconds(row['oldest_seconds'])}.",
        row["oldest_seconds"],
    )


def starvation(rows: Sequence[Row]) -> Iterator[Finding]:
    """The link that waited most for credit."""
    row = rows[0]
    if row["role"] in ROUTER_ROLES:
        why = "the other router does not take what is sent to it"
    elif row["direction"] == "out":
        why = "it is slow, or has stopped to take messages"
    else:
        why = "nobody takes what it sends, look for the receivers of its address"
    yield Finding(
        WARNING,
        "starvation",
        f"{_link(row)} had no credit for {seconds(row['no_credit_seconds'])}, {share(row['share'])} of its time: "
        f"{why}.",
        row["share"],
    )


def failed(rows: Sequence[Row]) -> Iterator[Finding]:
    """Where most of what clients sent went wrong."""
    row = rows[0]
    wrong = row["failed"]
    all_of = wrong + row["accepted"] + row["presettled"]
    if wrong < FAILED_SHARE * all_of:
        return
    yield Finding(
        WARNING,
        "failed",
        f"{share(wrong / all_of)} of what clients sent to {_address(row)} went wrong: "
        f"{', '.join(f'{amount(row[name])} {name}' for name in FAILED if row[name])}.",
        wrong / all_of,
    )


def anomalies(rows: Sequence[Row]) -> Iterator[Finding]:
    """What was not as on other days."""
    for row in rows:
        name, words = METRIC_NAMES[row["metric"]], duration if row["metric"].endswith("_us") else amount
        yield Finding(
            WARNING,
            "anomaly",
            f"{_address(row)} had {words(row['value'])} {name} ({_way(row)}) in the hour from "
            f"{clock(row['bucket_hour'])}; usual at that time: {words(row['expected'])}.",
            row["score"],
        )


# What is missing


def unusable(rows: Sequence[Row]) -> Iterator[Finding]:
    """What was left out of the log."""
    files = sum(row["quarantined_files"] for row in rows)
    lines = sum(row["quarantined_rows"] for row in rows)
    if files or lines:
        yield Finding(
            WARNING,
            "quarantined",
            f"{counted(files, 'file')} and {counted(lines, 'row')} of the log could not be used; table "
            "`quarantine` says which and why. All numbers are without them.",
            files + lines,
        )
    if not any(row["rows"] for row in rows if row["table"] == "deliveries"):
        yield Finding(
            WARNING,
            "empty",
            "The log has no deliveries in this window: no client sent or received anything, or the collector did not "
            "hear of it.",
        )


def incomplete(rows: Sequence[Row]) -> Iterator[Finding]:
    """What the log does not have."""
    names = {"missing_intervals": "interval", "records_missed": "message", "records_lost": "record"}
    parts = [
        counted(number, word) for name, word in names.items() if (number := sum(row[name] for row in rows))
    ]
    if parts:
        most = rows[0]["router"] or rows[0]["source"]
        yield Finding(
            WARNING,
            "incomplete",
            f"The log is not complete: {', '.join(parts)} of routers lost, most of {most}. What flowed is "
            "more than these numbers say.",
            sum(row["missing_intervals"] for row in rows),
        )


# What is worth knowing


def busiest(rows: Sequence[Row]) -> Iterator[Finding]:
    """The address with most deliveries."""
    row = rows[0]
    yield Finding(
        INFO,
        "busiest",
        f"{_address(row)} is the busiest: {counted(row['deliveries'], 'delivery', 'deliveries')} ({_way(row)}) on "
        f"{counted(row['links'], 'link')}.",
        row["deliveries"],
    )


def slowest(rows: Sequence[Row]) -> Iterator[Finding]:
    """The address whose messages take longest."""
    row = rows[0]
    yield Finding(
        WARNING if row["latency_p99_us"] >= SLOW_US else INFO,
        "slowest",
        f"{_address(row)} is the slowest of those with {ENOUGH} deliveries: one in a hundred ({_way(row)}) took longer "
        f"than {duration(row['latency_p99_us'])}, half of them longer than {duration(row['latency_p50_us'])}.",
        row["latency_p99_us"],
    )


def largest_talker(rows: Sequence[Row]) -> Iterator[Finding]:
    """One client that is most of it."""
    row = rows[0]
    yield Finding(
        INFO,
        "talker",
        f"One client, {row['container'] or row['host']} at {row['site'] or 'no site'}, is {share(row['share_octets'])} "
        f"of all bytes that were {_way(row)}.",
        row["share_octets"],
    )


def _address(row: Row) -> str:
    name = row["address"] or "(messages that name their destinations)"
    return f"{name} at {row['site']}" if row["site"] else str(name)


def _way(row: Row) -> str:
    return "sent by clients" if row["direction"] == "in" else "sent to clients"


def _link(row: Row) -> str:
    who = row["container"] or row["link"] or row["connection"]
    if row["role"] in ROUTER_ROLES:
        return f"The connection of router {row['router']} to {who}"
    kind = "sender" if row["direction"] == "in" else "receiver"
    about = f" on {row['address']}" if row["address"] else ""
    return f"The {kind} {who}{about} at router {row['router']}"


QUESTIONS: tuple[Question, ...] = (
    Question("relay_totals", relay_dropped, "dropped > 0", ("-dropped",), 3),
    Question("relay_totals", relay_gaps, "gaps > 0", ("-gaps",), 3),
    Question("sessions", routers_lost, "kind = 'router' AND end_known = 'lost'", ("-end",), MANY),
    Question(
        "stuck", stuck, f"role NOT IN {ROUTER_ROLES}", ("-direction", "-oldest_seconds", "link"), limit=MANY
    ),
    Question("quality", unusable, limit=10),
    Question("completeness", incomplete, limit=MANY),
    Question("relay_totals", relay_lag, f"max_lag_seconds >= {LAG_SECONDS}", ("-max_lag_seconds",), 3),
    Question(
        "topology_churn",
        churn,
        "neighbours_lost > 0 OR cost_deliveries >= 0.5",
        ("-cost_deliveries", "-neighbours_lost"),
    ),
    Question("rotation_outlived", outlived, "open", limit=MANY),
    Question(
        "starvation",
        starvation,
        f"share >= {STARVED_SHARE} AND no_credit_seconds >= {STARVED_SECONDS}",
        ("-no_credit_seconds",),
    ),
    Question(
        "traffic_matrix",
        failed,
        "direction = 'in' AND failed > 0",
        ("-failed", "site", "address"),
    ),
    Question("anomalies", anomalies, limit=3),
    Question("traffic_matrix", busiest, "deliveries > 0", ("-deliveries", "site", "address")),
    Question(
        "traffic_matrix",
        slowest,
        f"latency_p99_us IS NOT NULL AND deliveries >= {ENOUGH}",
        ("-latency_p99_us", "site", "address"),
    ),
    Question("top_talkers", largest_talker, f"share_octets >= {LARGE_SHARE}", ("-share_octets",)),
)
