"""The tables of a flow log as pyarrow schemas."""

from __future__ import annotations

import pyarrow as pa

from isthmus_flowlog.schema import SCHEMA_VERSION, VERSION_KEY, Column, Kind, Table


class UnfitError(ValueError):
    """Content that is not what a table has, or that would take more memory than it may."""


_TYPES = {
    Kind.STRING: pa.string(),
    Kind.LONG: pa.int64(),
    Kind.TIME: pa.timestamp("us", tz="UTC"),
    Kind.FLAG: pa.bool_(),
    Kind.SKETCH: pa.map_(pa.int32(), pa.int64()),
}

TYPES = frozenset(_TYPES.values())


def arrow_schema(table: Table) -> pa.Schema:
    """What the files of a table are written with; the version is in its metadata."""
    return pa.schema(
        [_field(column) for column in table.columns],
        metadata={VERSION_KEY: str(SCHEMA_VERSION)},
    )


def _field(column: Column) -> pa.Field:
    return pa.field(column.name, _TYPES[column.kind], nullable=not column.required)
