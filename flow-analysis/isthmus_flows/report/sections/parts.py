"""What several sections show in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from isthmus_flows import formats
from isthmus_flows.report import charts
from isthmus_flows.report.blocks import Chart, Column, of
from isthmus_flows.report.data import NO_ADDRESS, NO_SITE, OTHERS, ReportData, Row


def text(heading: str, name: str, *, wide: bool = False) -> Column:
    return Column(heading, of(name, formats.text), wide=wide)


def number(heading: str, name: str, show: Callable[[Any], str] = formats.number) -> Column:
    return Column(heading, of(name, show), number=True)


def address_of(row: Row) -> str:
    return row["address"] if row["address"] is not None else NO_ADDRESS


def site_of(row: Row) -> str:
    return row["site"] if row["site"] is not None else NO_SITE


def client_of(row: Row) -> str:
    host = f" at {row['host']}" if row.get("host") else ""
    return f"{row.get('container') or formats.NOTHING}{host}"


ADDRESS = Column("address", address_of, wide=True)
SITE = Column("site", site_of)
DIRECTION = text("direction", "direction")
CLIENT = Column("client", client_of, wide=True)
LATENCY = tuple(number(f"p{share}", f"latency_p{share}_us", formats.duration) for share in (50, 90, 99))


def by_name(rows: Iterable[Row], name: str, value: str) -> list[charts.Series]:
    """A line for each name, the largest first, what is left of all others last."""
    points: dict[str, dict[datetime, float]] = {}
    for row in rows:
        if row[value] is not None:
            points.setdefault(str(row[name]), {})[row["moment"]] = float(row[value])
    order = sorted(points, key=lambda key: (key == OTHERS, -sum(points[key].values()), key))
    return [charts.Series(key, points[key]) for key in order]


def chart(
    data: ReportData,
    caption: str,
    series: Sequence[charts.Series],
    unit: Callable[[float | None], str],
    *,
    logarithmic: bool = False,
    stacked: bool = False,
    marks: Sequence[charts.Mark] = (),
    note: str = "",
) -> Chart:
    names = ", ".join(item.name for item in series[: charts.MOST_SERIES])
    left_out = len(series) - charts.MOST_SERIES
    if left_out > 0:
        note = f"{note} {left_out} more are not drawn.".strip()
    svg = charts.lines(
        series,
        data.step,
        unit,
        f"{caption}: {names}",
        span=data.span,
        logarithmic=logarithmic,
        stacked=stacked,
        marks=marks,
    )
    return Chart(caption, svg, note, charts.legend(series, stacked))


def utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
