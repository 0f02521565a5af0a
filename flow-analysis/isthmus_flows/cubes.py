"""What deliveries add up to. Everything else that is said of them is computed from these four, which are small.

All are additive: rows with the same keys may be there several times (of several batches) and are summed where they are
used. So a batch over a window and a stream that adds batch by batch come to the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isthmus_flows.sketches import BUCKET, COUNT, merged, spread
from isthmus_flows.sums import total

FLOW = "flow"
"""Identity of what a row of deliveries is about: a client's link, a connection between routers, or the router."""
CLIENT_ROLES = ("normal", "route-container")
COUNTERS = (
    "deliveries",
    "octets",
    "accepted",
    "rejected",
    "released",
    "modified",
    "presettled",
    "dropped",
    "delayed_1_second",
    "delayed_10_seconds",
    "no_credit_us",
)
ATTRIBUTES = (
    "source",
    "site",
    "router",
    "router_mode",
    "role",
    "address",
    "container",
    "user",
    "host",
    "endpoint",
    "connection",
    "link",
    "link_name",
    "tls_ordinal",
)
METRICS = {"latency": "latencies", "size": "sizes"}


@dataclass(frozen=True)
class Cubes:
    """Of the deliveries of a window."""

    traffic: DataFrame
    """`bucket` (its beginning; an interval counts where it ends), `flow`, `direction`: the sums of `COUNTERS`, of
    `intervals` and their length `us`, the largest `unsettled` and `oldest_unsettled_us`, the first and the last
    `sequence`."""
    flows: DataFrame
    """`flow`, `direction`, `ATTRIBUTES`."""
    addresses: DataFrame
    """Sketches of clients by `bucket`, `site`, `address`, `direction` and `metric`."""
    sketches: DataFrame
    """Sketches by `flow`, `direction` and `metric`."""

    def named(self) -> Mapping[str, DataFrame]:
        """By the names under which they are kept."""
        return {name: getattr(self, name) for name in CUBES}


CUBES = ("traffic", "flows", "addresses", "sketches")


def cubes(deliveries: DataFrame, bucket_seconds: int, *apart: str) -> Cubes:
    """Of rows of `deliveries`, each there once. Rows that differ in one of the columns `apart`, which all cubes have
    then, are not added up."""
    us = bucket_seconds * 1_000_000
    bucket = F.timestamp_micros(F.floor(F.unix_micros("end_time") / F.lit(us)).cast("long") * F.lit(us))
    rows = deliveries.withColumn("bucket", bucket).withColumn(
        FLOW, F.coalesce("link", "connection", "source")
    )
    clients = rows.where(F.col("role").isin(*CLIENT_ROLES))
    return Cubes(
        _traffic(rows, (*apart, "bucket", FLOW, "direction")),
        rows.select(*apart, FLOW, "direction", *ATTRIBUTES).distinct(),
        _sketches(clients, (*apart, "bucket", "site", "address", "direction")),
        _sketches(rows, (*apart, FLOW, "direction")),
    )


def _traffic(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    sums = [total(name).alias(name) for name in COUNTERS]
    return rows.groupBy(*keys).agg(
        *sums,
        F.count("*").alias("intervals"),
        total(F.unix_micros("end_time") - F.unix_micros("start_time")).alias("us"),
        F.max("unsettled").alias("unsettled"),
        F.max("oldest_unsettled_us").alias("oldest_unsettled_us"),
        F.min("sequence").alias("first_sequence"),
        F.max("sequence").alias("last_sequence"),
    )


def _sketches(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    parts = [
        spread(rows, column, keys).withColumn("metric", F.lit(metric)) for metric, column in METRICS.items()
    ]
    long = parts[0]
    for part in parts[1:]:
        long = long.unionByName(part)
    return merged(long, (*keys, "metric")).select(*keys, "metric", BUCKET, COUNT)
