"""The tables of a flow log as Spark has them."""

from __future__ import annotations

from pyspark.sql import types as T

from isthmus_flowlog.schema import Column, Kind, Table

_TYPES: dict[Kind, T.DataType] = {
    Kind.STRING: T.StringType(),
    Kind.LONG: T.LongType(),
    Kind.TIME: T.TimestampType(),
    Kind.FLAG: T.BooleanType(),
    Kind.SKETCH: T.MapType(T.IntegerType(), T.LongType(), valueContainsNull=True),
}


def spark_schema(table: Table) -> T.StructType:
    """What a table is read with. Nothing is required here: rows that lack something are to be counted, not to fail."""
    return T.StructType([_field(column) for column in table.columns])


def _field(column: Column) -> T.StructField:
    return T.StructField(column.name, _TYPES[column.kind], nullable=True)
