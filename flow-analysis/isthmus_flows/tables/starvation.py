"""Links without credit, and deliveries that nobody settles."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from isthmus_flows.tables.inputs import SECOND_US, Inputs, sums_of
from isthmus_flows.tables.spec import OutputTable, count, number, text, time

STUCK_SECONDS = 10
"""As routers count deliveries that are stuck."""
_KEYS = ["flow", "direction"]
_LINK = (
    text("link", "Identity of its record; null between routers."),
    text("connection"),
    text("router"),
    text("site"),
    text("role", "Of the connection."),
    text("direction", "`in`: a sender, whom the router gives no credit; `out`: a receiver, who gives none."),
    text("address"),
    text("container", "Container id of the client, or id of the other router."),
    text("host"),
)


def _starvation(inputs: Inputs) -> DataFrame:
    buckets = (
        inputs.cubes.traffic.where(F.col("no_credit_us") > 0)
        .groupBy("bucket", *_KEYS)
        .agg(*sums_of(("no_credit_us", "us", "intervals")))
    )
    worst = buckets.groupBy(*_KEYS).agg(
        F.max_by("bucket", F.struct("no_credit_us", -F.unix_micros("bucket"))).alias("worst_bucket")
    )
    seconds = F.col("us") / F.lit(SECOND_US)
    without = F.col("no_credit_us") / F.lit(SECOND_US)
    return (
        inputs.totals.where(F.col("no_credit_us") > 0)
        .join(worst, _KEYS)
        .join(_longest(buckets, inputs.bucket_seconds), _KEYS, "left")
        .withColumns(
            {
                "seconds": seconds,
                "no_credit_seconds": without,
                "share": without / F.nullif(seconds, F.lit(0.0)),
                "longest_seconds": F.coalesce("longest_seconds", F.lit(0.0)),
            }
        )
    )


def _longest(buckets: DataFrame, bucket_seconds: int) -> DataFrame:
    """The longest time of each flow wholly without credit. Routers tell of whole seconds, so up to a second of each
    interval may be missing."""
    wholly = buckets.where(F.col("us") - F.col("no_credit_us") <= F.col("intervals") * F.lit(SECOND_US))
    in_order = Window.partitionBy(*_KEYS).orderBy("bucket")
    at = F.unix_micros("bucket")
    bucket, interval = F.lit(bucket_seconds * SECOND_US), F.col("us") / F.col("intervals")
    # Intervals may be longer than buckets: then the buckets in between have none.
    reach = F.when(interval <= bucket, bucket).otherwise(interval + bucket)
    begins = F.coalesce(at - F.lag(at).over(in_order) > reach, F.lit(True))
    runs = wholly.withColumn("_begins", begins.cast("int")).withColumn(
        "_run", F.sum("_begins").over(in_order)
    )
    lengths = runs.groupBy(*_KEYS, "_run").agg(
        (F.sum(F.col("us").cast("double")) / F.lit(SECOND_US)).alias("length")
    )
    return lengths.groupBy(*_KEYS).agg(F.max("length").alias("longest_seconds"))


def _stuck(inputs: Inputs) -> DataFrame:
    stuck = inputs.cubes.traffic.where(F.col("oldest_unsettled_us") >= F.lit(STUCK_SECONDS * SECOND_US))
    found = stuck.groupBy(*_KEYS).agg(
        F.max("unsettled").alias("most_unsettled"),
        (F.max("oldest_unsettled_us") / F.lit(SECOND_US)).alias("oldest_seconds"),
        F.count_distinct("bucket").alias("buckets"),
        F.min("bucket").alias("first"),
        F.max("bucket").alias("last"),
    )
    return found.join(inputs.flows, _KEYS).withColumns(
        {"first": inputs.begin_of("first"), "last": inputs.end_of("last")}
    )


STARVATION = OutputTable(
    "starvation",
    "Links, and connections between routers, on which nothing could be sent for a time because the receiving end gave "
    "no credit. Of a receiver only while messages waited for it.",
    (
        *_LINK,
        number("seconds", "Length of all of its intervals."),
        number("no_credit_seconds", "Of these; routers tell of whole seconds."),
        number("share", "Of `seconds`, 0 to 1."),
        time("worst_bucket", "The one with most time without credit, the first of them."),
        number("longest_seconds", "The longest time on end, of buckets wholly without; 0: there is none."),
    ),
    _starvation,
    ("-no_credit_seconds", "-share", "link", "connection", "direction"),
    "A sender (`in`) without credit is mostly one whose messages nobody takes: look for receivers of its address. A "
    "receiver (`out`) without credit is slow, or has stopped. Of a connection between routers it is what the worst of "
    "its links had, and there may be another one each time.",
)

STUCK = OutputTable(
    "stuck",
    f"Links, and connections between routers, with deliveries that had no outcome for {STUCK_SECONDS} s or longer at "
    "the end of an interval.",
    (
        *_LINK,
        count("most_unsettled", "Deliveries without an outcome, of any age, at the end of one interval."),
        number("oldest_seconds", "Age of the oldest."),
        count("buckets", "In how many buckets."),
        time("first", "Beginning of the first of these."),
        time("last", "End of the last one."),
    ),
    _stuck,
    ("-oldest_seconds", "-most_unsettled", "link", "connection", "direction"),
    "One stuck delivery shows at each router on its way, and at the sender's link as well as at the receiver's. Work "
    "that takes long, with the outcome at its end, looks the same.",
)
