"""What was told twice, or written twice by a collector that was killed: rows of the same identity.

Only identities are brought together, and of those that are there twice all places but one are left out: a shuffle of a
few bytes per row, where all of a row would have to move otherwise.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

PLACE = "_place"
"""Column: a number for file and row."""


def with_place(rows: DataFrame) -> DataFrame:
    """Rows as read from files, with where they are."""
    return rows.withColumn(PLACE, F.xxhash64(F.col("_metadata.file_path"), F.col("_metadata.row_index")))


def repeated(rows: DataFrame) -> DataFrame:
    """Identities of which there are several rows: `identity`, `keep` (the place of the one that counts), `copies` (the
    others)."""
    return (
        rows.groupBy("identity")
        .agg(F.min(PLACE).alias("keep"), (F.count("*") - 1).alias("copies"))
        .where("copies > 0")
    )


def once_each(rows: DataFrame, known: DataFrame) -> DataFrame:
    """Rows without the copies that `repeated` has found."""
    kept = rows.join(known.select("identity", "keep"), "identity", "left")
    return kept.where(F.col("keep").isNull() | (F.col("keep") == F.col(PLACE))).drop("keep")
