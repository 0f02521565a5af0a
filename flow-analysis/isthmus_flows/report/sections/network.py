"""How routers, their connections and relay sites did."""

from __future__ import annotations

from typing import Any

from isthmus_flows import formats
from isthmus_flows.report import charts, graph
from isthmus_flows.report.blocks import Chart, Column, Section, of, table
from isthmus_flows.report.data import ReportData, Row
from isthmus_flows.report.sections.parts import (
    ADDRESS,
    CLIENT,
    DIRECTION,
    by_name,
    chart,
    number,
    text,
    utc,
)

MOST_COSTS = 4
"""Told in the drawing: more would cover each other."""
EPISODES = "Grey: times of change, with what the worst cost."


def utilisation(data: ReportData) -> Section:
    figures = (
        number("mean", "mean_deliveries_per_second", formats.rate),
        number("p95", "p95_deliveries_per_second", formats.rate),
        number("peak", "peak_deliveries_per_second", formats.rate),
        number("mean volume", "mean_octets_per_second", formats.throughput),
        number("peak volume", "peak_octets_per_second", formats.throughput),
        Column("peak at", of("peak_at", formats.moment)),
    )
    kinds = (
        ("busy_routers", "Routers", (text("router", "router"), DIRECTION)),
        (
            "busy_connections",
            "Connections between routers",
            (text("router", "router"), text("peer", "peer"), text("role", "role"), DIRECTION),
        ),
    )
    blocks = [
        table(caption, own, (*names, *figures), 12)
        for name, caption, names in kinds
        if (own := data.table(name)).rows
    ]
    return Section(
        "utilisation",
        "How busy routers and their connections are",
        "Messages per second; p95 is exceeded in one interval of twenty.",
        blocks,
        "Nothing was carried.",
    )


def waiting(data: ReportData) -> Section:
    starved, stuck = data.table("starvation"), data.table("stuck")
    who = (text("router", "router"), ADDRESS, DIRECTION, CLIENT)
    blocks = []
    if starved.rows:
        columns: tuple[Column, ...] = (
            *who,
            number("without credit", "no_credit_seconds", formats.seconds),
            number("of its time", "share", formats.share),
            number("longest", "longest_seconds", formats.seconds),
            Column("worst at", of("worst_bucket", formats.moment)),
        )
        blocks.append(table("Links without credit", starved, columns, 12))
    if stuck.rows:
        columns = (
            *who,
            number("most at once", "most_unsettled"),
            number("oldest", "oldest_seconds", formats.seconds),
            Column("from", of("first", formats.moment)),
            Column("until", of("last", formats.moment)),
        )
        blocks.append(table("Deliveries without an outcome for 10 s or longer", stuck, columns, 12))
    return Section(
        "waiting",
        "What waits",
        "A sender (in) is without credit mostly because nobody takes from its address, or not fast enough; a receiver "
        "(out) because it gives none while messages wait for it.",
        blocks,
        "Nothing had to wait.",
    )


def rotation(data: ReportData) -> Section:
    rotations, outlived = data.table("rotations"), data.table("rotation_outlived")
    rows = data.series.get("ordinals", ())
    blocks: list[Any] = []
    if rows:
        ordinals = sorted({row["tls_ordinal"] for row in rows}, key=lambda ordinal: ordinal or 0)
        drawn = [
            charts.Series(
                "older" if ordinal is None else f"ordinal {ordinal}",
                {row["moment"]: float(row["connections"]) for row in rows if row["tls_ordinal"] == ordinal},
            )
            for ordinal in ordinals
        ]
        marks = [charts.Mark(utc(row["raised_at"])) for row in rotations.rows]
        blocks.append(
            chart(
                data,
                "Connections by TLS ordinal",
                drawn,
                formats.number,
                stacked=True,
                marks=marks,
                note="Dotted: new credentials. Of each ordinal, the most at once.",
            )
        )
    if rotations.rows:
        columns: tuple[Column, ...] = (
            *(text("router", "router"), text("sslProfile", "profile", wide=True)),
            Column(
                "ordinal",
                lambda row: f"{formats.text(row['ordinal_before'])} → {formats.text(row['ordinal'])}",
            ),
            Column("raised at", of("raised_at", formats.moment)),
            number("upgraded", "connections_upgraded"),
            number("old ones", "old_connections"),
            number("took", "duration_seconds", formats.seconds),
            text("complete", "complete"),
        )
        blocks.append(table("Rotations", rotations, columns, 12))
    if outlived.rows:
        columns = (
            *(text("router", "router"), CLIENT, text("role", "role")),
            Column(
                "ordinal",
                lambda row: f"{formats.text(row['tls_ordinal'])} of {formats.text(row['newest_ordinal'])}",
            ),
            number("messages since", "deliveries_after"),
            Column("until", lambda row: "still there" if row["open"] else formats.moment(row["until"])),
        )
        blocks.append(table("Connections that outlived a rotation", outlived, columns, 12))
    return Section(
        "rotation",
        "Certificates",
        "Which credentials connections were made with, and how long old ones stayed in use after a rotation.",
        blocks,
        "No connection used TLS, and nothing was rotated.",
    )


def topology(data: ReportData) -> Section:
    edges, churn = data.table("topology_edges"), data.table("topology_churn")
    blocks: list[Any] = []
    if edges.rows:
        note = "The wider, the more bytes; dashed: of an edge router; dotted and red: down at the end."
        blocks.append(Chart("The network", graph.network(edges.rows, data.sites, edges.count), note))
    rows = data.series.get("events", ())
    if rows:
        marks = [
            charts.Mark(
                utc(row["start"]), utc(row["end"]), f"cost {_cost(row)}" if number < MOST_COSTS else ""
            )
            for number, row in enumerate(churn.rows)
        ]
        blocks.append(
            chart(
                data,
                "Changes that routers saw",
                by_name(rows, "event", "count"),
                formats.number,
                stacked=True,
                marks=marks,
                note=EPISODES,
            )
        )
    if churn.rows:
        columns: tuple[Column, ...] = (
            Column("from", of("start", formats.moment)),
            Column("until", of("end", formats.moment)),
            Column("cost", _cost, number=True),
            number("events", "events"),
            number("routers", "routers"),
            number("neighbours lost", "neighbours_lost"),
            number("path computations", "path_computations"),
            number("released", "released"),
            number("modified", "modified"),
            number("dropped", "dropped"),
            number("delayed", "delayed"),
        )
        blocks.append(table("Times of change, by what they cost", churn, columns, 12))
    if edges.rows:
        columns = (
            *(
                text("router", "router"),
                text("peer", "peer"),
                text("role", "role"),
                number("cost", "cost"),
            ),
            text("status", "status"),
            number("went down", "down_count"),
            number("out", "octets_out", formats.size),
            number("in", "octets_in", formats.size),
        )
        blocks.append(table("Connections between routers", edges, columns, 12))
    return Section(
        "topology",
        "The network and its changes",
        "The cost of a change is the deliveries that went wrong or were late meanwhile, beyond what is usual.",
        blocks,
        "There is one router, or none told of its connections.",
    )


def _cost(row: Row) -> str:
    return formats.number(row["cost_deliveries"])


def relay(data: ReportData) -> Section:
    totals, events = data.table("relay_totals"), data.table("relay_events")
    rows = [
        {**row, "pair": f"{row['relay_group']}: {row['relay_site']} to {row['remote_site']}"}
        for row in data.series.get("relay", ())
    ]
    blocks: list[Any] = []
    if rows:
        left_out = totals.count - len({row["pair"] for row in rows})
        note = f"Those that were most behind; {left_out} more are not drawn." if left_out > 0 else ""
        behind = by_name(rows, "pair", "lag_seconds")
        blocks.append(chart(data, "Behind by", behind, formats.seconds, note=note))
        blocks.append(
            chart(
                data, "Messages per second", by_name(rows, "pair", "sent_per_second"), formats.rate, note=note
            )
        )
    if totals.rows:
        columns: tuple[Column, ...] = (
            *(text("group", "relay_group"), text("site", "relay_site"), text("other site", "remote_site")),
            text("state", "state"),
            number("sent", "sent"),
            number("received", "received"),
            number("dropped", "dropped"),
            number("never came", "gaps"),
            number("replayed", "replayed"),
            number("most behind", "max_lag_seconds", formats.seconds),
            number("not up", "not_up_seconds", formats.seconds),
            number("senders held back", "held_back_seconds", formats.seconds),
        )
        blocks.append(table("Sites with each other", totals, columns, 20))
    if events.rows:
        columns = (
            Column("at", of("time", formats.moment)),
            *(text("site", "relay_site"), text("router", "router"), text("event", "event")),
            Column("about", lambda row: formats.text(row["remote_site"] or row["subject"])),
            number("how many", "count"),
            text("reason", "reason", wide=True),
        )
        blocks.append(table("Events", events, columns, 20))
    return Section(
        "relay",
        "Relay sites",
        "What went from site to site, and how far each was behind.",
        blocks,
        "There are no relay sites.",
    )
