"""Rows as Arrow tables, and Arrow tables as what the files of a flow log have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from isthmus_flowlog.arrow import UnfitError, arrow_schema
from isthmus_flowlog.collector.columns import LAYOUTS, Row
from isthmus_flowlog.schema import TABLES, Column, Kind, Table, partition

SCHEMAS = {table.name: arrow_schema(table) for table in TABLES}
_HOUR_US = 3_600_000_000
MOST_HOURS = 1000
"""Of one segment, each of which makes a file. Rows are of the day before or after their arrival."""


def to_arrow(table: str, rows: Sequence[Row]) -> tuple[pa.Table, int]:
    """Rows in the order of the table's layout as an Arrow table, and how many had values of wrong types."""
    tables = list(_convertible(table, rows))
    content = pa.concat_tables(tables) if tables else SCHEMAS[table].empty_table()
    return content, len(rows) - len(content)


def _convertible(table: str, rows: Sequence[Row]) -> Iterator[pa.Table]:
    """All rows at once; where one of them does not fit, half of them at a time."""
    try:
        yield _convert(table, rows)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        if len(rows) > 1:
            middle = len(rows) // 2
            yield from _convertible(table, rows[:middle])
            yield from _convertible(table, rows[middle:])


def _convert(table: str, rows: Sequence[Row]) -> pa.Table:
    layout, schema = LAYOUTS[table], SCHEMAS[table]
    values = dict(
        zip(layout.names, zip(*rows, strict=True) if rows else [()] * len(layout.names), strict=True)
    )
    arrays = []
    for column in layout.table.columns:
        content: Any = values[column.name]
        if column.kind is Kind.FLAG:
            content = [None if value is None else bool(value) for value in content]
        array = pa.array(content, schema.field(column.name).type)
        if column.kind is Kind.LONG:
            array = pc.min_element_wise(array, layout.table.largest(column), skip_nulls=False)
        if column.required and array.null_count:
            raise ValueError(f"{column.name} is absent")
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def conform(table: Table, content: pa.Table) -> pa.Table:
    """What another version has written, with the columns of this one: new ones are null, or 0 in counts. UnfitError for
    what no version writes."""
    schema = SCHEMAS[table.name]
    if len(set(content.column_names)) != len(content.column_names):
        raise UnfitError("a column is there twice")
    arrays = []
    for column in table.columns:
        field = schema.field(column.name)
        if column.name not in content.column_names:
            arrays.append(_absent(column, field.type, len(content)))
            continue
        array = content.column(column.name)
        if array.type != field.type or (column.required and array.null_count):
            raise UnfitError(f"column {column.name} has other types, or nulls")
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def _absent(column: Column, kind: pa.DataType, count: int) -> pa.Array:
    if not column.required:
        return pa.nulls(count, kind)
    value: object = {Kind.LONG: 0, Kind.FLAG: False, Kind.STRING: ""}.get(column.kind)
    if value is None:
        raise UnfitError(f"column {column.name} is missing")
    return pa.repeat(pa.scalar(value, kind), count)


def by_partition(table: Table, content: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows sorted by time, those of each hour with its folder."""
    ordered = content.sort_by(table.time)
    hours = pc.divide(ordered.column(table.time).cast(pa.int64()), _HOUR_US)
    begin = 0
    counts = pc.value_counts(hours.combine_chunks())
    if len(counts) > MOST_HOURS:
        raise UnfitError(f"rows are of {len(counts)} hours")
    for count in counts:
        hour, length = count["values"].as_py(), count["counts"].as_py()
        folder = partition(datetime.fromtimestamp(hour * _HOUR_US / 1e6, UTC))
        yield f"{table.name}/{folder}", ordered.slice(begin, length)
        begin += length
