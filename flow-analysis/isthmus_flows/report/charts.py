"""Lines over time, as SVG that is part of the page: its text is text, its colours are those of the page.

Gaps in what is known are gaps in the line. Rates begin at zero; latencies are on a logarithmic scale, which is said.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import dates as mdates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

Points = Mapping[datetime, float]
INK, FAINT, PAPER = "#010203", "#040506", "#070809"
"""Stand for colours of the page's style, which is dark or light."""
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c", "#b8a600")
"""Told apart by those who do not see all colours."""
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 1.5), (1.5, 1.5), (6, 1.5, 1.5, 1.5))
MOST_SERIES = 8
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "isthmus",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
}


def _place(moment: datetime) -> float:
    """Where a moment is on the axis."""
    dates: Any = mdates
    return float(dates.date2num(moment))


@dataclass(frozen=True)
class Series:
    """One line."""

    name: str
    points: Points


@dataclass(frozen=True)
class Mark:
    """A moment, or a time, that is marked across the chart."""

    start: datetime
    end: datetime | None = None
    text: str = ""
    """Beside a time, after its end."""


@dataclass(frozen=True)
class Key:
    """How a series is drawn, for the legend, which is beside the drawing: it has room for names."""

    name: str
    colour: str
    dashes: str
    """As SVG has them; empty: none."""
    area: bool


def legend(series: Sequence[Series], stacked: bool) -> list[Key]:
    """Of what `lines` draws; of a stack, what is on top comes first."""
    keys = [
        Key(
            item.name,
            COLOURS[number % len(COLOURS)],
            "" if stacked else " ".join(map(str, DASHES[number // 2 % len(DASHES)])),
            stacked,
        )
        for number, item in enumerate(series[:MOST_SERIES])
    ]
    return keys[::-1] if stacked else keys


def lines(
    series: Sequence[Series],
    step: timedelta,
    unit: Callable[[float | None], str],
    title: str,
    *,
    span: tuple[datetime, datetime] | None = None,
    logarithmic: bool = False,
    stacked: bool = False,
    marks: Sequence[Mark] = (),
) -> str:
    """An SVG of at most `MOST_SERIES` series; `step` is the distance of two points that follow each other, `title` says
    what it shows to those who do not see it. Of a logarithmic scale zeros are no points. `span` is what the axis shows
    of time, as far as it matters."""
    shown = series[:MOST_SERIES]
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8.6, 2.6), layout="constrained")
        axes = figure.add_subplot()
        if stacked:
            _stack(axes, shown, step)
        else:
            _draw(axes, shown, step, logarithmic)
        for mark in marks:
            if mark.end is not None:
                axes.axvspan(_place(mark.start), _place(mark.end), color=FAINT, alpha=0.45, lw=0)
                axes.annotate(
                    mark.text,
                    (_place(mark.end), 1.0),
                    xycoords=("data", "axes fraction"),
                    xytext=(3, -2),
                    textcoords="offset points",
                    va="top",
                    fontsize=8,
                )
            else:
                axes.axvline(_place(mark.start), color=INK, lw=0.8, ls=":")
        if logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: unit(value)))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
        dates: Any = mdates
        locator = dates.AutoDateLocator(maxticks=9)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        axes.grid(axis="y")
        if span is not None:
            axes.set_xlim(*map(_place, span))
        axes.spines[["top", "right"]].set_visible(False)
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(written.getvalue(), title)


def _draw(axes: Axes, series: Sequence[Series], step: timedelta, logarithmic: bool) -> None:
    for number, item in enumerate(series):
        points = {at: value for at, value in item.points.items() if value > 0 or not logarithmic}
        colour = COLOURS[number % len(COLOURS)]
        moments, values = _with_gaps(points, step)
        dashes = DASHES[number // 2 % len(DASHES)]
        style: Any = (0, dashes) if dashes else "-"
        axes.plot(moments, values, color=colour, linestyle=style, linewidth=1.4)
        alone = [at for at in points if not any(at + step * n in points for n in (-1, 1))]
        axes.plot(
            [_place(at) for at in alone],
            [points[at] for at in alone],
            color=colour,
            linestyle="",
            marker="o",
            markersize=3,
        )


def _stack(axes: Axes, series: Sequence[Series], step: timedelta) -> None:
    moments = sorted({moment for item in series for moment in item.points})
    if not moments:
        return
    count = round((moments[-1] - moments[0]) / step) + 1
    filled = [moments[0] + step * number for number in range(count)]
    areas = [[item.points.get(moment, 0.0) for moment in filled] for item in series]
    axes.stackplot(
        [_place(moment) for moment in (*filled, filled[-1] + step)],
        [[*area, area[-1]] for area in areas],
        colors=COLOURS,
        step="post",
        lw=0.3,
        edgecolor=PAPER,
    )


def _with_gaps(points: Points, step: timedelta) -> tuple[list[float], list[float]]:
    moments: list[float] = []
    values: list[float] = []
    before: datetime | None = None
    for moment in sorted(points):
        if before is not None and moment - before > 1.5 * step:
            moments.append(_place(before + step))
            values.append(float("nan"))
        moments.append(_place(moment))
        values.append(points[moment])
        before = moment
    return moments, values


def _inline(svg: str, title: str) -> str:
    """Without what only a file needs, with the colours of the page, and as wide as it."""
    svg = svg[svg.index("<svg") :]
    svg = svg.replace(INK, "var(--ink)").replace(FAINT, "var(--line)").replace(PAPER, "var(--box)")
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    described = f'<svg role="img" aria-label="{_escaped(title)}"'
    return svg.replace("<svg", described, 1)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
