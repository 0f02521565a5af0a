"""What clients have sent and received: by site, address and direction, in all and over time."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isthmus_flows.cubes import COUNTERS
from isthmus_flows.sketches import quantiles
from isthmus_flows.tables.inputs import Inputs, failed, is_client, joined, sums_of
from isthmus_flows.tables.spec import Column, OutputTable, count, number, text, time

LATENCIES = {"latency_p50_us": 0.5, "latency_p90_us": 0.9, "latency_p99_us": 0.99}
SIZES = {"size_p50": 0.5, "size_p99": 0.99}
LATENCY_COLUMNS = (
    number(
        "latency_p50_us", "Median of microseconds from arrival to outcome, within 1/16; null without any."
    ),
    number("latency_p90_us"),
    number("latency_p99_us"),
)
FAILED_COLUMN = count("failed", "Rejected, released, modified or dropped.")
_KEYS = ("site", "address", "direction")
_WHAT = (
    text("site", "Of the router; null: it is in none."),
    text("address", "Null: the messages name their destinations."),
    text("direction", "`in`: clients sent it; `out`: clients were sent it."),
)


def _matrix(inputs: Inputs) -> DataFrame:
    sums = inputs.clients.groupBy(*_KEYS).agg(*sums_of(COUNTERS), F.count("link").alias("links"))
    sketches = inputs.cubes.sketches.join(inputs.flows.where(is_client()), ["flow", "direction"])
    for metric, shares in (("latency", LATENCIES), ("size", SIZES)):
        of_metric = sketches.where(F.col("metric") == metric)
        sums = joined(sums, quantiles(of_metric, _KEYS, shares), _KEYS)
    return sums.withColumn("failed", failed())


def _rates(inputs: Inputs) -> DataFrame:
    keys = ("bucket", *_KEYS)
    latencies = inputs.cubes.addresses.where(F.col("metric") == "latency")
    seconds = inputs.seconds_of("bucket")
    return joined(
        inputs.rates.withColumns(
            {
                "failed": failed(),
                "deliveries_per_second": F.col("deliveries") / seconds,
                "octets_per_second": F.col("octets") / seconds,
            }
        ),
        quantiles(latencies, keys, LATENCIES),
        keys,
    )


def _counts() -> tuple[Column, ...]:
    return (
        count("deliveries", "That began."),
        count("octets", "Bytes of whole messages."),
        count("accepted", "Outcomes; those of deliveries that began before the window as well."),
        count("rejected"),
        count("released"),
        count("modified"),
        count("presettled", "Deliveries that have no outcome."),
        count("dropped", "Pre-settled ones that routers gave up."),
    )


MATRIX = OutputTable(
    "traffic_matrix",
    "What clients sent to and received from each address at each site, over the whole window.",
    (
        *_WHAT,
        *_counts(),
        FAILED_COLUMN,
        count("links", "Of clients, that had deliveries or waited."),
        *LATENCY_COLUMNS,
        number("size_p50", "Median of bytes per message, within 1/16."),
        number("size_p99"),
    ),
    _matrix,
    ("-octets", "-deliveries", "site", "address", "direction"),
    "`in` and `out` of an address are not the same messages counted twice at one place: a multicast message comes in "
    "once and goes out to each receiver, and one that was sent at one site goes out at another. Latency of `in` is the "
    "sender's: until its message was settled, whoever has taken it; that of `out` is from the arrival at the "
    "receiver's router. Neither is added to the other.",
)

RATES = OutputTable(
    "traffic_rates",
    "The same over time, by bucket.",
    (
        time("bucket", "Its beginning."),
        *_WHAT,
        count("deliveries"),
        count("octets"),
        number("deliveries_per_second", "On average over as much of the bucket as is in the window."),
        number("octets_per_second"),
        FAILED_COLUMN,
        *LATENCY_COLUMNS,
    ),
    _rates,
    ("bucket", "site", "address", "direction"),
    "A bucket in which an address has no row had no traffic, if the log is complete (`completeness`). An interval "
    "counts in the bucket in which it ends; with buckets shorter than the routers' intervals (`flowIntervalSeconds`) "
    "rates jump up and down without a reason. Latencies lack the intervals of which the collector did not know site or "
    "address when it wrote them: the first ones after it has heard of a router.",
)
