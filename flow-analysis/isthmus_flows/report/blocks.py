"""What a page consists of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from isthmus_flows.report.charts import Key
from isthmus_flows.report.data import Row, Rows


@dataclass(frozen=True)
class Column:
    """Of a table on the page: a heading, what it shows of a row, and whether that is a number."""

    heading: str
    cell: Callable[[Row], str]
    number: bool = False
    wide: bool = False
    """It may be broken."""


@dataclass(frozen=True)
class Table:
    """Rows of a table."""

    caption: str
    headings: Sequence[tuple[str, bool]]
    """And whether numbers are below."""
    rows: Sequence[Sequence[tuple[str, bool, bool]]]
    """Text of each cell, whether it is a number, whether it may be broken."""
    more: int = 0
    """Rows that are not shown."""
    kind: Literal["table"] = "table"


@dataclass(frozen=True)
class Chart:
    """A drawing."""

    caption: str
    svg: str
    note: str = ""
    legend: Sequence[Key] = ()
    kind: Literal["chart"] = "chart"


@dataclass(frozen=True)
class Cell:
    """Of a heat map."""

    text: str
    title: str
    strength: float
    """From 0 to 1."""


@dataclass(frozen=True)
class HeatMap:
    """Rows of cells."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    note: str = ""
    kind: Literal["heatmap"] = "heatmap"


@dataclass(frozen=True)
class Section:
    """A heading, a sentence or two, and what is below it."""

    id: str
    title: str
    lead: str
    blocks: Sequence[Table | Chart | HeatMap] = field(default_factory=tuple)
    nothing: str = ""
    """In place of blocks."""


def table(caption: str, rows: Rows | Sequence[Row], columns: Sequence[Column], most: int = 20) -> Table:
    """The first `most` of some rows."""
    given = rows.rows if isinstance(rows, Rows) else rows
    count = rows.count if isinstance(rows, Rows) else len(rows)
    shown = given[:most]
    return Table(
        caption,
        [(column.heading, column.number) for column in columns],
        [[(column.cell(row), column.number, column.wide) for column in columns] for row in shown],
        max(0, count - len(shown)),
    )


def of(name: str, show: Callable[[Any], str]) -> Callable[[Row], str]:
    """A cell that shows one value of a row."""
    return lambda row: show(row.get(name))
