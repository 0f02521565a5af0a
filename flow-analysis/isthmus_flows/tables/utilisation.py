"""How busy routers and the connections between them are."""

from __future__ import annotations

import math

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isthmus_flows.log import Window
from isthmus_flows.tables.inputs import Inputs, is_between_routers, sums_of
from isthmus_flows.tables.spec import Column, OutputTable, number, text, time

_WHAT = ("kind", "router", "peer", "endpoint", "role", "direction")
_METRICS = ("deliveries", "octets")
_SHARE = 0.95


def _rates(inputs: Inputs) -> DataFrame:
    null = F.lit(None).cast("string")
    sums = sums_of(_METRICS)
    routers = inputs.traffic.groupBy("bucket", "router", "direction").agg(*sums)
    connections = (
        inputs.traffic.where(is_between_routers())
        .groupBy("bucket", "router", F.col("container").alias("peer"), "endpoint", "role", "direction")
        .agg(*sums)
    )
    both = routers.withColumns(
        {"kind": F.lit("router"), "peer": null, "endpoint": null, "role": null}
    ).unionByName(connections.withColumn("kind", F.lit("connection")))
    seconds = inputs.seconds_of("bucket")
    return both.withColumns({f"{metric}_per_second": F.col(metric) / seconds for metric in _METRICS})


def _utilisation(inputs: Inputs) -> DataFrame:
    window = inputs.log.window
    buckets = buckets_of(window, inputs.bucket_seconds)
    found: dict[str, Expression] = {}
    for metric in _METRICS:
        rate = f"{metric}_per_second"
        found |= {
            f"mean_{rate}": F.sum(F.col(metric).cast("double")) / F.lit(window.seconds),
            f"p95_{rate}": _quantile(rate, buckets),
            f"peak_{rate}": F.max(rate),
        }
    earliest = F.struct("octets_per_second", "deliveries_per_second", -F.unix_micros("bucket"))
    return (
        inputs.shared(_rates)
        .groupBy(*_WHAT)
        .agg(
            *[column.alias(name) for name, column in found.items()],
            F.max_by("bucket", earliest).alias("peak_at"),
        )
    )


def buckets_of(window: Window, seconds: int) -> int:
    """How many buckets some of the window is in."""
    return math.ceil(window.end.timestamp() / seconds) - math.floor(window.start.timestamp() / seconds)


def _quantile(rate: str, buckets: int) -> Expression:
    """Over all buckets of the window; those without a row are 0, and come first."""
    present = F.sort_array(F.collect_list(rate))
    place = F.lit(math.ceil(_SHARE * buckets) - buckets) + F.size(present)
    return F.when(place >= 1, F.get(present, place - 1)).otherwise(0.0)


_COLUMNS: tuple[Column, ...] = (
    text("kind", "`router`: all that it had to do with; `connection`: between two routers."),
    text("router", "Who tells."),
    text("peer", "The other router of a connection."),
    text("endpoint", "The connector or listener of a connection."),
    text("role", "Of a connection: `inter-router` or `edge`."),
    text("direction", "`in`: into the router; `out`: out of it."),
)

UTILISATION_RATES = OutputTable(
    "utilisation_rates",
    "Deliveries and bytes per second of each router and of each connection between routers, by bucket. What several "
    "connections of one endpoint to one peer carry, as during a rotation, is one.",
    (
        time("bucket"),
        *_COLUMNS,
        number("deliveries_per_second"),
        number("octets_per_second"),
    ),
    _rates,
    ("bucket", "-kind", "router", "peer", "endpoint", "role", "direction"),
    "A connection is told of by both of its ends, and a message counts at each router on its way.",
)

UTILISATION = OutputTable(
    "utilisation",
    "The same over the whole window.",
    (
        *_COLUMNS,
        number("mean_deliveries_per_second", "Of the whole window, also where there was nothing."),
        number(
            "p95_deliveries_per_second",
            "95 % of the buckets had no more; those in which there was nothing count too.",
        ),
        number("peak_deliveries_per_second", "Of the busiest bucket."),
        number("mean_octets_per_second"),
        number("p95_octets_per_second"),
        number("peak_octets_per_second"),
        time("peak_at", "The bucket with most bytes, the first of them."),
    ),
    _utilisation,
    ("-kind", "-mean_octets_per_second", "router", "peer", "endpoint", "role", "direction"),
    "This is what was carried, not what could be: how much a router can carry depends on sizes, TLS and its CPU "
    "(`docs/benchmarks.md`).",
)
