"""What a table of an analysis is: its columns, declared once, and how it is computed.

The report, the summary and ``docs/flow-analysis.md`` rely on what is declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from isthmus_flows.tables.inputs import Inputs

Row = dict[str, Any]


class Kind(Enum):
    """What a column holds."""

    STRING = "string"
    LONG = "long"
    DOUBLE = "double"
    TIME = "time"
    """Microseconds, UTC."""
    FLAG = "flag"


_TYPES: Mapping[Kind, T.DataType] = {
    Kind.STRING: T.StringType(),
    Kind.LONG: T.LongType(),
    Kind.DOUBLE: T.DoubleType(),
    Kind.TIME: T.TimestampType(),
    Kind.FLAG: T.BooleanType(),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `text` is empty where its name says it."""

    name: str
    kind: Kind
    text: str = ""


@dataclass(frozen=True, slots=True)
class OutputTable:
    """A table: its name, what it holds, how it is computed, and what a reader can and cannot conclude."""

    name: str
    text: str
    columns: tuple[Column, ...]
    compute: Callable[[Inputs], DataFrame]
    order: tuple[str, ...]
    """By what its rows are in order of interest, `-` before a column: descending."""
    caution: str = ""
    """What cannot be concluded."""

    @property
    def schema(self) -> T.StructType:
        """As it is written."""
        return T.StructType([T.StructField(item.name, _TYPES[item.kind]) for item in self.columns])

    def build(self, inputs: Inputs) -> DataFrame:
        """The rows, with the declared columns in their order and with their types."""
        rows = self.compute(inputs)
        return rows.select(
            *[F.col(item.name).cast(_TYPES[item.kind]).alias(item.name) for item in self.columns]
        )

    def first(self, rows: DataFrame, count: int, order: Sequence[str] = ()) -> DataFrame:
        """The first `count` of its rows, in this order or in their own; the others are not sorted for that."""
        return rows.orderBy(*ordered(order or self.order)).limit(count)

    def read(self, rows: DataFrame, count: int, order: Sequence[str] = ()) -> list[Row]:
        """The first `count` as JSON has them: times are texts of ISO 8601."""
        columns = [_as_text(item) if item.kind is Kind.TIME else F.col(item.name) for item in self.columns]
        return [row.asDict() for row in self.first(rows, count, order).select(*columns).collect()]


def _as_text(column: Column) -> Expression:
    # A time that is collected would be in the zone of the machine.
    return F.date_format(column.name, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias(column.name)


def ordered(order: Sequence[str]) -> list[Expression]:
    """Names, `-` before one that is to be descending, as what Spark sorts by. Null comes last."""
    return [
        F.col(name[1:]).desc_nulls_last() if name.startswith("-") else F.col(name).asc_nulls_last()
        for name in order
    ]


def text(name: str, about: str = "") -> Column:
    """A column of strings."""
    return Column(name, Kind.STRING, about)


def count(name: str, about: str = "") -> Column:
    """A column of whole numbers."""
    return Column(name, Kind.LONG, about)


def number(name: str, about: str = "") -> Column:
    """A column of doubles."""
    return Column(name, Kind.DOUBLE, about)


def time(name: str, about: str = "") -> Column:
    """A column of times."""
    return Column(name, Kind.TIME, about)


def flag(name: str, about: str = "") -> Column:
    """A column of truth values."""
    return Column(name, Kind.FLAG, about)
