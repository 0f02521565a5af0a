"""Sketches of sizes and latencies: merged by addition, asked for quantiles.

Their buckets are those of ``docs/flow-records.md#sketches``: numbers below 8 have one each, from there on every power
of two has 8. A quantile is the middle of the bucket in which it is, within 1/16 of it.

While they are merged they are long: a row for each bucket of each sketch. So a merge is a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isthmus_flows.sums import total

BUCKET, COUNT = "sketch_bucket", "sketch_count"


def spread(rows: DataFrame, sketch: str, keys: Sequence[str]) -> DataFrame:
    """A row for each bucket of `sketch`: the keys, `BUCKET` and `COUNT`. What has no sketch has no row."""
    return rows.select(*keys, F.explode(sketch).alias(BUCKET, COUNT))


def merged(long: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Sketches with the same keys as one."""
    return long.groupBy(*keys, BUCKET).agg(total(COUNT).alias(COUNT))


def quantiles(long: DataFrame, keys: Sequence[str], shares: Mapping[str, float]) -> DataFrame:
    """For each of the keys the quantiles by the names of `shares`, as doubles; of merged or unmerged sketches.

    As `isthmus_router.flows.sketch`: the middle of the bucket with the number of rank ceil(share * count).
    """
    by_bucket = Window.partitionBy(*keys).orderBy(BUCKET)
    all_of_them = Window.partitionBy(*keys)
    ranked = merged(long, keys).select(
        *keys,
        BUCKET,
        total(COUNT, by_bucket).alias("_seen"),
        total(COUNT, all_of_them).alias("_total"),
    )
    found = [
        F.min(F.when(F.col("_seen") >= _rank(share), middle(F.col(BUCKET)))).alias(name)
        for name, share in shares.items()
    ]
    return ranked.groupBy(*keys).agg(*found)


def _rank(share: float) -> Column:
    return F.greatest(F.lit(1).cast("long"), F.ceil(F.lit(share) * F.col("_total")))


def middle(bucket: Column) -> Column:
    """The middle of a bucket."""
    shift = F.shiftright(bucket, 3) - 1
    width = F.pow(F.lit(2.0), shift.cast("double"))
    least = (F.lit(8) + bucket.bitwiseAND(F.lit(7))) * width
    return F.when(bucket < 8, bucket.cast("double")).otherwise((least + least + width - 1) / 2)
