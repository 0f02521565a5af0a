"""A table that leaves out columns where there is no room for them."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_BETWEEN = 2
"""Blanks between two columns."""
_ENOUGH = 26
"""A column that may break is not made narrower than this for the sake of another."""


@dataclass(frozen=True)
class Column:
    """A column: its header, and what becomes of it in a narrow table."""

    name: str
    number: bool = False
    leaves: int | None = None
    """The lowest goes first; None always stays."""
    breaks: bool = False
    """Its cells may take several lines, broken between words."""


class Columns:
    """Rows of a table with `columns`."""

    def __init__(self, title: str, columns: tuple[Column, ...]) -> None:
        self.caption: str | None = None
        self._title = title
        self._columns = columns
        self._rows: list[tuple[Text, ...]] = []

    def add(self, *cells: str | Text) -> None:
        self._rows.append(tuple(cell if isinstance(cell, Text) else Text(cell) for cell in cells))

    def natural_width(self) -> int:
        """Columns of the terminal for all columns, each cell in one line."""
        return self._width([self._longest(index) for index in range(len(self._columns))])

    def drawn(self, width: int | None) -> RenderableType:
        """The table for a terminal of `width` columns, or with everything; the caption below it."""
        caption = [] if self.caption is None else [Text(self.caption, style="dim italic")]
        return (
            Group(self._table(width), *caption) if self._rows else Group(Text(self._title, "bold"), *caption)
        )

    def _table(self, width: int | None) -> Table:
        shown = list(range(len(self._columns)))
        while width is not None and self._width([self._least(index) for index in shown]) > width:
            able = [index for index in shown if self._columns[index].leaves is not None]
            if not able:
                break
            shown.remove(min(able, key=lambda index: self._columns[index].leaves or 0))
        table = Table(
            title=self._title,
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        for index in shown:
            column = self._columns[index]
            justify = "right" if column.number else "left"
            table.add_column(
                column.name,
                justify=justify,  # type: ignore[arg-type]
                overflow="fold",
                min_width=self._least(index),
            )
        for row in self._rows:
            table.add_row(*(row[index] for index in shown))
        return table

    def _longest(self, index: int) -> int:
        return max(len(self._columns[index].name), *(row[index].cell_len for row in self._rows), 0)

    def _least(self, index: int) -> int:
        """The column's width when cells break wherever they may."""
        if not self._columns[index].breaks:
            return self._longest(index)
        words = (word for row in self._rows for word in row[index].plain.split(" "))
        return max(min(self._longest(index), _ENOUGH), *(len(word) for word in words), 0)

    @staticmethod
    def _width(widths: list[int]) -> int:
        return sum(widths) + _BETWEEN * (len(widths) - 1)
