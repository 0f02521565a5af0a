"""What clients sent and received, how fast, and who they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from isthmus_flows import formats
from isthmus_flows.report import charts
from isthmus_flows.report.blocks import Cell, Column, HeatMap, Section, table
from isthmus_flows.report.data import OTHERS, ReportData, Row
from isthmus_flows.report.sections.parts import (
    ADDRESS,
    CLIENT,
    DIRECTION,
    LATENCY,
    SITE,
    by_name,
    chart,
    number,
    text,
)
from isthmus_flows.tables.inputs import FAILED


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
    maps = [_heat(data.series.get("matrix", ()), direction) for direction in ("in", "out")]
    return Section(
        "traffic",
        "What flows where",
        "Messages that clients sent (in) and received (out), by site and address. The stronger the colour, the more; "
        "the scale is logarithmic. What is small is summed up as others.",
        [*(item for item in maps if item is not None), table("Busiest addresses", matrix, columns)]
        if matrix.rows
        else (),
        "No client sent or received a message.",
    )


def _failed(row: Row) -> str:
    lost = sum(row.get(name) or 0 for name in FAILED)
    return formats.share(lost / row["deliveries"]) if row["deliveries"] else formats.NOTHING


def _heat(rows: Iterable[Row], direction: str) -> HeatMap | None:
    counted = {
        (row["site"], row["address"]): row
        for row in rows
        if row["direction"] == direction and row["deliveries"]
    }
    if not counted:
        return None
    sites, addresses = _by_weight(counted, 0), _by_weight(counted, 1)
    counts = [row["deliveries"] for key, row in counted.items() if OTHERS not in key]
    scale = (min(counts, default=1), max(counts, default=1))
    rows_shown = [
        (address, [_cell(counted.get((site, address)), site, address, scale) for site in sites])
        for address in addresses
    ]
    verb = "sent" if direction == "in" else "received"
    return HeatMap(f"Messages {verb} by clients", sites, rows_shown)


def _cell(row: Row | None, site: str, address: str, scale: tuple[int, int]) -> Cell:
    """`scale`: the least and the most that any cell has. What others have together is not coloured."""
    if row is None:
        return Cell("", f"{address} at {site}: nothing", 0.0)
    told = f"{address} at {site}: {row['deliveries']} messages, {formats.size(row['octets'])}"
    if OTHERS in (site, address):
        return Cell(formats.number(row["deliveries"]), told, 0.0)
    least, most = scale
    share = math.log(row["deliveries"] / least) / math.log(most / least) if most > least else 1.0
    return Cell(formats.number(row["deliveries"]), told, 0.12 + 0.88 * share)


def _by_weight(counted: Mapping[tuple[str, str], Row], part: int) -> list[str]:
    """Sites (part 0) or addresses (part 1), the busiest first, others last."""
    sums: dict[str, int] = {}
    for key, row in counted.items():
        sums[key[part]] = sums.get(key[part], 0) + row["deliveries"]
    return sorted(sums, key=lambda name: (name == OTHERS, -sums[name], name))


def over_time(data: ReportData) -> Section:
    blocks = []
    for direction, verb in (("in", "sent"), ("out", "received")):
        rows = [row for row in data.series.get("rates", ()) if row["direction"] == direction]
        if rows:
            drawn = by_name(rows, "address", "deliveries_per_second")
            caption = f"Messages {verb} by clients, per second"
            blocks.append(chart(data, caption, drawn, formats.rate, stacked=True))
    part = ""
    if data.drawn is not None:
        first, last = (formats.moment(moment) for moment in data.drawn)
        part = f" Here and below, what is drawn over time is from {first} to {last}: nothing was told of the rest."
    return Section(
        "rates",
        "Over time",
        f"Each point is {formats.seconds(data.step.total_seconds())}. The busiest addresses have their own "
        f"colours.{part}",
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
        addresses: tuple[Column, ...] = (
            *(SITE, ADDRESS, DIRECTION),
            number("messages", "deliveries"),
            *LATENCY,
        )
        blocks.append(table("Slowest addresses", data.table("slowest_addresses"), addresses, 10))
        columns: tuple[Column, ...] = (
            *(text("router", "router"), ADDRESS, DIRECTION, CLIENT),
            number("messages", "deliveries"),
            *LATENCY,
            number("over 1 s", "delayed_1_second"),
            number("over 10 s", "delayed_10_seconds"),
        )
        blocks.append(table("Slowest links", data.table("slowest_links"), columns, 10))
    return Section(
        "latency",
        "How long it takes",
        "From when a router had a message until it had its outcome, with the rest of the way and the receiver's work. "
        "Over time: where messages came in. The scale is logarithmic; quantiles are within 6.3 %.",
        blocks,
        "No message had an outcome: all were pre-settled, or there were none.",
    )


def talkers(data: ReportData) -> Section:
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
        for name, verb in (("senders", "sent"), ("receivers", "received"))
        if (own := data.table(name)).rows
    ]
    return Section("talkers", "Who talks most", "By volume.", blocks, "No client sent or received a message.")
