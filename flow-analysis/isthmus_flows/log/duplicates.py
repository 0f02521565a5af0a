"""What was told twice, or written twice by a collector that was killed: rows of the same identity.

Nearly always there are few of them. So only hashes of identities are brought together at first, eight bytes for each
row, where all of a row would have to move otherwise: a tenth of the time, by `bench/flow_analysis.py`. Rows whose hash
is there twice are then compared by their identities.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isthmus_flows.log.places import HOUR, PLACE

_HASH, _ROWS = "_hash", "_rows"
MOST_BROADCAST = 2_000_000
"""Identities that are sent to every executor; more are sorted with the rows."""


def repeated(rows: DataFrame) -> DataFrame | None:
    """Identities of which there are several rows: `identity`, `keep` (the place of the one that counts, which was heard
    first), its `HOUR` and `copies` (how many others there are). None: there are none."""
    hashes = rows.select(F.xxhash64("identity").alias(_HASH))
    # All rows of a hash are brought together before they are counted: to count before as well would not make them
    # fewer, as nearly all are there once.
    several = (
        hashes.repartition(_HASH)
        .groupBy(_HASH)
        .agg(F.count("*").alias(_ROWS))
        .where(f"{_ROWS} > 1")
        .persist()
    )
    try:
        suspects = several.count()
        if not suspects:
            return None
        found = (
            rows.select("identity", "heard_at", PLACE, HOUR, F.xxhash64("identity").alias(_HASH))
            .join(_sized(several.select(_HASH), suspects), _HASH)
            .groupBy("identity")
            .agg(
                F.min(F.struct("heard_at", PLACE))[PLACE].alias("keep"),
                F.min(HOUR).alias(HOUR),
                (F.count("*") - 1).alias("copies"),
            )
            .where("copies > 0")
            .persist()
        )
        return found if found.count() else None
    finally:
        several.unpersist()


def once_each(rows: DataFrame, known: DataFrame) -> DataFrame:
    """Rows without the copies that `repeated` has found."""
    kept = rows.join(_sized(known.select("identity", "keep"), known.count()), "identity", "left")
    return kept.where(F.col("keep").isNull() | (F.col("keep") == F.col(PLACE))).drop("keep")


def _sized(few: DataFrame, count: int) -> DataFrame:
    """For a join with rows of which there are many."""
    return F.broadcast(few) if count <= MOST_BROADCAST else few.hint("merge")
