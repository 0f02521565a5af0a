"""What clients sent and received, how fast, and who they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from isthmus_flows.report import charts, formats
from isthmus_flows.report.blocks import Cell, Column, HeatMap, Section, table
from isthmus_flows.report.data import MATRIX_ADDRESSES, MATRIX_SITES, ReportData, Row
from isthmus_flows.report.sections.parts import (
    ADDRESS,
    CLIENT,
    DIRECTION,
    LATENCY,
    SITE,
    address_of,
    by_name,
    chart,
    number,
    site_of,
    text,
)


def traffic(data: ReportData) -> Section:
    matrix = data.table("traffic_matrix")
    columns: tuple[Column, ...] = (
        *(SITE, ADDRESS, DIRECTION),
        number("messages", "deliveries"),
        number("volume", "octets", formats.size),
        Column("failed", _failed, number=True),
        number("links", "links"),
        *LATENCY,
    )
    maps = [_heat(matrix.rows, direction) for direction in ("in", "out")]
    return Section(
        "traffic",
        "What flows where",
        "Messages that clients sent (in) and received (out), by site and address. The stronger the colour, the more; "
        "the scale is logarithmic.",
        [*(item for item in maps if item is not None), table("Busiest addresses", matrix, columns)]
        if matrix.rows
        else (),
        "No client sent or received a message.",
    )


def _failed(row: Row) -> str:
    lost = sum(row.get(name) or 0 for name in ("rejected", "released", "modified", "dropped"))
    return formats.share(lost / row["deliveries"]) if row["deliveries"] else formats.NOTHING


def _heat(rows: Sequence[Row], direction: str) -> HeatMap | None:
    counted: dict[tuple[str, str], Row] = {
        (site_of(row), address_of(row)): row for row in rows if row["direction"] == direction
    }
    if not counted:
        return None
    sites = _largest(((site, row["octets"]) for (site, _), row in counted.items()), MATRIX_SITES)
    addresses = _largest(
        ((address, row["octets"]) for (_, address), row in counted.items()), MATRIX_ADDRESSES
    )
    counts = [row["deliveries"] for row in counted.values() if row["deliveries"]]
    if not counts:
        return None
    scale = (min(counts), max(counts))
    rows_shown = [
        (address, [_cell(counted.get((site, address)), site, address, scale) for site in sites])
        for address in addresses
    ]
    verb = "sent" if direction == "in" else "received"
    return HeatMap(f"Messages {verb} by clients", sites, rows_shown)


def _cell(row: Row | None, site: str, address: str, scale: tuple[int, int]) -> Cell:
    """`scale`: the least and the most that any cell has."""
    if row is None or not row["deliveries"]:
        return Cell("", f"{address} at {site}: nothing", 0.0)
    told = f"{address} at {site}: {row['deliveries']} messages, {formats.size(row['octets'])}"
    least, most = scale
    share = math.log(row["deliveries"] / least) / math.log(most / least) if most > least else 1.0
    return Cell(formats.number(row["deliveries"]), told, 0.12 + 0.88 * share)


def _largest(weights: Iterable[tuple[str, int]], most: int) -> list[str]:
    sums: dict[str, int] = {}
    for name, weight in weights:
        sums[name] = sums.get(name, 0) + (weight or 0)
    return sorted(sums, key=lambda name: (-sums[name], name))[:most]


def over_time(data: ReportData) -> Section:
    blocks = []
    for direction, verb in (("in", "sent"), ("out", "received")):
        rows = [row for row in data.series.get("rates", ()) if row["direction"] == direction]
        if rows:
            drawn = by_name(rows, "address", "deliveries_per_second")
            caption = f"Messages {verb} by clients, per second"
            blocks.append(chart(data, caption, drawn, formats.rate, stacked=True))
    return Section(
        "rates",
        "Over time",
        f"Each point is {formats.seconds(data.step.total_seconds())}. The busiest addresses have their own colours.",
        blocks,
        "No messages in this time.",
    )


def latency(data: ReportData) -> Section:
    rows = data.series.get("latency", ())
    blocks: list[Any] = []
    if rows:
        shares = [
            charts.Series(name, {row["moment"]: row[name] for row in rows if row[name] is not None})
            for name in ("p50", "p90", "p99")
        ]
        blocks.append(chart(data, "All messages", shares, formats.duration, logarithmic=True))
        slow = by_name(data.series.get("slowest", ()), "address", "p99")
        if len(slow) > 1:
            blocks.append(
                chart(data, "p99 of the slowest addresses", slow, formats.duration, logarithmic=True)
            )
        links = [row for row in data.table("links").rows if row["latency_p99_us"] is not None]
        links.sort(key=lambda row: -row["latency_p99_us"])
        columns: tuple[Column, ...] = (
            *(text("router", "router"), ADDRESS, DIRECTION, CLIENT),
            number("messages", "deliveries"),
            *LATENCY,
            number("over 1 s", "delayed_1_second"),
            number("over 10 s", "delayed_10_seconds"),
        )
        blocks.append(table("Slowest of the busiest links", links, columns, 10))
    return Section(
        "latency",
        "How long it takes",
        "From when a router had a message until it had its outcome, with the rest of the way and the receiver's work. "
        "Over time: where messages came in. The scale is logarithmic; quantiles are within 6.3 %.",
        blocks,
        "No message had an outcome: all were pre-settled, or there were none.",
    )


def talkers(data: ReportData) -> Section:
    rows = data.table("top_talkers").rows
    columns: tuple[Column, ...] = (
        number("rank", "rank_octets"),
        *(SITE, CLIENT, text("user", "user")),
        number("messages", "deliveries"),
        number("volume", "octets", formats.size),
        number("share", "share_octets", formats.share),
        number("addresses", "addresses"),
    )
    blocks = [
        table(f"Clients that {verb} most", own, columns, 10)
        for direction, verb in (("in", "sent"), ("out", "received"))
        if (own := [row for row in rows if row["direction"] == direction and row["rank_octets"] is not None])
    ]
    return Section("talkers", "Who talks most", "By volume.", blocks, "No client sent or received a message.")
