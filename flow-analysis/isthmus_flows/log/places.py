"""Columns of rows that tell from where they were read."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from isthmus_flowlog.schema import Table
from isthmus_flows.spark_schema import spark_schema

PLACE = "_place"
"""A number for file and row."""
FILE = "_file"
HOUR = "_hour"
"""Of the folder, counted from the epoch."""
_TYPES = {PLACE: T.LongType(), FILE: T.StringType(), HOUR: T.IntegerType()}


def read_files(
    spark: SparkSession, table: Table, base: str, paths: Sequence[str], *, past_damage: bool = False
) -> DataFrame:
    """All rows of these files of a table, whose folder is `base`, with their places. A file that cannot be read makes
    the job fail, or, `past_damage`, has as many rows as can be read."""
    schema = spark_schema(table)
    if not paths:
        for name, kind in _TYPES.items():
            schema = schema.add(name, kind)
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema.add("date", T.DateType()).add("hour", T.IntegerType()))
    skip = str(past_damage).lower()
    rows = (
        reader.option("basePath", base)
        .option("ignoreCorruptFiles", skip)
        .option("ignoreMissingFiles", skip)
        .parquet(*paths)
    )
    file = F.col("_metadata.file_path")
    return rows.withColumns(
        {
            PLACE: F.xxhash64(file, F.col("_metadata.row_index")),
            FILE: file,
            HOUR: F.unix_date("date") * F.lit(24) + F.col("hour"),
        }
    ).drop("date", "hour")
