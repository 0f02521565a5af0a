"""What is unusual, sessions, and what all of it is made from."""

from __future__ import annotations

from isthmus_flows import formats
from isthmus_flows.report.blocks import Column, Section, of, table
from isthmus_flows.report.data import ReportData, Row
from isthmus_flows.report.sections.parts import (
    ADDRESS,
    DIRECTION,
    SITE,
    address_of,
    client_of,
    number,
    text,
)

METRICS = {"deliveries": "messages", "octets": "volume", "latency_p99_us": "p99 of latency"}


def anomalies(data: ReportData) -> Section:
    rows = data.table("anomalies")
    columns: tuple[Column, ...] = (
        Column("hour", of("bucket_hour", formats.moment)),
        *(
            SITE,
            ADDRESS,
            DIRECTION,
            Column("of", lambda row: METRICS.get(row["metric"], formats.text(row["metric"]))),
        ),
        Column("was", lambda row: _measured(row, "value"), number=True),
        Column("usually", lambda row: _measured(row, "expected"), number=True),
        number("score", "score"),
    )
    return Section(
        "anomalies",
        "What is unusual",
        "Compared with the same hour of earlier days. The score counts usual deviations.",
        [table("Unusual hours", rows, columns, 20)] if rows.rows else (),
        "Nothing differs much from the same hours of earlier days, or the log does not reach back far enough.",
    )


def _measured(row: Row, name: str) -> str:
    show = {"octets": formats.size, "latency_p99_us": formats.duration}.get(row["metric"], formats.number)
    return show(row[name])


def sessions_of(data: ReportData) -> Section:
    columns: tuple[Column, ...] = (
        *(text("router", "router"), Column("who", _who, wide=True)),
        Column(
            "from",
            lambda row: (
                formats.moment(row["start"])
                if row["start_known"]
                else f"before {formats.moment(row['start'])}"
            ),
        ),
        Column("until", _until),
        number("lasted", "duration_seconds", formats.seconds),
        number("messages", "deliveries"),
        number("volume", "octets", formats.size),
    )
    kinds = (
        ("router_sessions", "Routers"),
        ("connection_sessions", "Connections"),
        ("link_sessions", "Links"),
    )
    blocks = [
        table(f"{caption} with the most traffic", own, columns, 10)
        for name, caption in kinds
        if (own := data.table(name)).rows
    ]
    return Section(
        "sessions",
        "Sessions",
        "Routers, connections and links, put together from what was told at their beginning and at their end. Lost: "
        "the router was not heard any more before it told of the end.",
        blocks,
        "Nothing was connected.",
    )


def _who(row: Row) -> str:
    if row["kind"] == "link":
        return f"{formats.text(row['name'])} ({row.get('direction')}) {address_of(row)}"
    return formats.text(row["name"]) if row["kind"] == "router" else client_of(row)


def _until(row: Row) -> str:
    known = {"open": "still there", "lost": "lost"}.get(row["end_known"])
    return f"{known} {formats.moment(row['end'])}" if known == "lost" else known or formats.moment(row["end"])


def quality(data: ReportData) -> Section:
    blocks = [
        table(
            "What was read",
            data.table("quality"),
            (
                text("table", "table"),
                number("files", "files"),
                number("rows", "rows"),
                number("told twice", "duplicates"),
                number("files left out", "quarantined_files"),
                number("rows left out", "quarantined_rows"),
            ),
        )
    ]
    if data.table("quarantine").rows:
        columns: tuple[Column, ...] = (
            *(text("table", "table"), text("file", "file", wide=True), text("why", "reason", wide=True)),
            number("rows", "rows"),
        )
        blocks.append(table("Left out", data.table("quarantine"), columns))
    if data.table("completeness").rows:
        columns = (
            text("router", "router"),
            number("links compared", "links"),
            number("told", "told"),
            number("counted", "counted"),
            number("intervals missing", "missing_intervals"),
            number("messages missed", "records_missed"),
            number("given up by the router", "records_lost"),
            number("beyond its limits", "not_recorded"),
        )
        blocks.append(table("How complete the log is", data.table("completeness"), columns))
    return Section(
        "quality",
        "What this is made from",
        "All is there where told is counted, and nothing is missing.",
        blocks,
        "",
    )
