"""Hours in which an address had other traffic than in the same hour of earlier days."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from isthmus_flows.sketches import quantiles
from isthmus_flows.tables.inputs import Inputs, by_address, failed, flows_of, joined
from isthmus_flows.tables.spec import OutputTable, number, text, time

LEAST_SCORE = 4
LEAST_DAYS = 3
LEAST = {"deliveries": 10.0, "octets": 10_000.0, "failed": 3.0, "latency_p99_us": 1_000.0}
"""By metric: a deviation below this is noise, however regular the earlier days were."""
METRIC_NAMES = {
    "deliveries": "deliveries",
    "octets": "bytes",
    "failed": "failed deliveries",
    "latency_p99_us": "latency (99 %)",
}
_SHARE = 0.1
"""So is one below this share of what is expected."""
_NORMAL = 1.4826
"""Median absolute deviation to standard deviation, of what is normally distributed."""
_KEYS = ("hour", "site", "address", "direction")


def _anomalies(inputs: Inputs) -> DataFrame:
    hours = inputs.shared(_hours)
    days = hours.groupBy("hour").agg(
        F.count_distinct(F.when(F.col("day") > 0, F.col("day"))).alias("days"),
        F.max((F.col("day") == 0).cast("int")).alias("_now"),
    )
    of_hour = (
        hours.groupBy(*_KEYS, "metric")
        .agg(
            F.max(F.when(F.col("day") == 0, F.col("value"))).alias("value"),
            F.collect_list(F.when(F.col("day") > 0, F.col("value"))).alias("before"),
        )
        .join(days.where(F.col("_now") == 1), "hour")
    )
    is_count = F.col("metric") != "latency_p99_us"
    # A day without the address is one with 0 deliveries, but with no latency.
    missing = F.array_repeat(F.lit(0.0), (F.col("days") - F.size("before")).cast("int"))
    rows = of_hour.withColumns(
        {
            "value": F.when(is_count, F.coalesce("value", F.lit(0.0))).otherwise(F.col("value")),
            "before": F.when(is_count, F.concat("before", missing)).otherwise(F.col("before")),
        }
    ).where((F.size("before") >= LEAST_DAYS) & F.col("value").isNotNull())
    expected = rows.withColumn("expected", _median(F.col("before")))
    distances = F.transform("before", lambda value: F.abs(value - F.col("expected")))
    least = F.create_map(*[F.lit(item) for pair in LEAST.items() for item in pair])[F.col("metric")]
    deviations = expected.withColumn("deviation", _median(distances)).withColumn(
        "_scale", F.greatest(F.col("deviation") * _NORMAL, F.col("expected") * _SHARE, least)
    )
    change = F.col("value") - F.col("expected")
    return (
        deviations.withColumn("score", change / F.col("_scale"))
        .where((F.abs("score") >= LEAST_SCORE) & (F.abs(change) >= F.col("expected") / 2))
        .withColumnsRenamed({"hour": "bucket_hour"})
        .withColumn("severity", F.abs("score"))
    )


def _median(values: Column) -> Column:
    ordered = F.array_sort(values)
    size = F.size(values)
    lower, upper = F.floor((size - 1) / 2).cast("int"), F.floor(size / 2).cast("int")
    return (F.get(ordered, lower) + F.get(ordered, upper)) / 2


def _hours(inputs: Inputs) -> DataFrame:
    """`hour` (of the window), `site`, `address`, `direction`, `day` (0: itself; 1: the day before ...), `metric` and
    `value`."""
    rates, sketches = inputs.rates, inputs.cubes.addresses
    keys = ["bucket", "site", "address", "direction"]
    if inputs.earlier is not None:
        before = by_address(inputs.earlier, flows_of(inputs.earlier))
        rates, sketches = rates.unionByName(before), sketches.unionByName(inputs.earlier.addresses)
    by_day = (*_KEYS, "day")
    counted = (
        _on_days(inputs, rates.select(*keys, "deliveries", "octets", failed().alias("failed")))
        .groupBy(*by_day)
        .agg(*[F.sum(F.col(name).cast("double")).alias(name) for name in ("deliveries", "octets", "failed")])
    )
    latencies = _on_days(inputs, sketches.where(F.col("metric") == "latency"))
    late = quantiles(latencies, by_day, {"latency_p99_us": 0.99})
    return (
        joined(counted, late, by_day)
        .unpivot(list(by_day), list(LEAST), "metric", "value")
        .where("value IS NOT NULL")
    )


def _on_days(inputs: Inputs, rows: DataFrame) -> DataFrame:
    """Each row with the hours of the window that it is to be seen beside, by as many days later. So an hour of which
    only a part is in the window is compared with the same part of other days."""
    window, day = inputs.log.window, F.col("day")
    then = F.col("bucket") + F.make_dt_interval(days=day)
    return (
        rows.withColumn("day", F.explode(F.sequence(F.lit(0), F.lit(inputs.baseline_days))))
        .withColumn("_then", then)
        .where((F.col("_then") >= F.lit(inputs.first_bucket)) & (F.col("_then") < F.lit(window.end)))
        .withColumn("hour", F.date_trunc("hour", "_then"))
        .drop("bucket", "_then")
    )


ANOMALIES = OutputTable(
    "anomalies",
    "Hours in which clients sent to or received from an address at a site much more or less than in the same hour of "
    "the earlier days (`--baseline-days`), or waited longer, or more went wrong. A day on which nothing was heard in "
    "that hour from anybody is left out; one on which only this address had nothing counts as 0.",
    (
        time("bucket_hour", "Beginning of the hour."),
        text("site"),
        text("address"),
        text("direction"),
        text("metric", "`deliveries`, `octets`, `failed` or `latency_p99_us`."),
        number("value"),
        number("expected", f"Median of the earlier days, of which there are at least {LEAST_DAYS}."),
        number("deviation", "Median of how far the earlier days are from that."),
        number("score", "How many deviations `value` is from what is expected; above: positive."),
        number("severity", "`score` without its sign."),
    ),
    _anomalies,
    ("-severity", "bucket_hour", "site", "address", "direction", "metric"),
    f"Only what has a score of at least {LEAST_SCORE} and changed by at least half is here. A deviation counts as at "
    "least a tenth of what is expected, 10 deliveries, 10 kB, 3 failed ones or 1 ms, and is multiplied by 1.4826, "
    "which makes it a standard deviation if days differ at random. Weekends differ from working days: with seven days "
    "before, five or six of them are of the other kind. An address that was moved to another site shows at both.",
)
