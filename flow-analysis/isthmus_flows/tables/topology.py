"""The network: who is connected to whom, what has changed, and what that has cost."""

from __future__ import annotations

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from isthmus_flows.sums import total
from isthmus_flows.tables.inputs import SECOND_US, Inputs, is_between_routers, joined, shifted, sums_of
from isthmus_flows.tables.lives import connections, latest, routers
from isthmus_flows.tables.spec import OutputTable, count, number, text, time
from isthmus_flows.tables.utilisation import buckets_of

EPISODE_GAP_SECONDS = 30
"""Events that are less apart belong together."""
COSTS = ("released", "modified", "dropped", "delayed")
_EDGE = ("router", "peer", "role")


# Who is connected to whom


def _edges(inputs: Inputs) -> DataFrame:
    connectors = inputs.shared(_connectors)
    told = connectors.select("router", "peer").where(F.col("peer").isNotNull())
    # The other end of a connector tells of the same connection.
    other_ends = told.select(F.col("peer").alias("router"), F.col("router").alias("peer")).distinct()
    accepted = (
        connections(inputs)
        .where(is_between_routers() & (F.col("direction") == "incoming"))
        .withColumnRenamed("container", "peer")
        .groupBy(*_EDGE)
        .agg(F.max(F.when(F.col("end").isNull(), F.lit("up")).otherwise(F.lit("down"))).alias("status"))
        .join(other_ends, ["router", "peer"], "left_anti")
    )
    edges = connectors.unionByName(accepted, allowMissingColumns=True)
    return joined(edges, _carried(inputs), _EDGE).na.fill(
        0, ["octets_out", "deliveries_out", "octets_in", "deliveries_in"]
    )


def _connectors(inputs: Inputs) -> DataFrame:
    """By router and peer, all connectors together: the cheapest cost, `up` if one is."""
    columns = ("container", "router", "role", "cost", "status", "up_time", "down_count", "end_time", "name")
    told = latest(inputs.log.records, ("LINK",), columns)
    over = routers(inputs).select(F.col("identity").alias("source"), F.col("end").alias("_router_end"))
    there = F.col("end_time").isNull() & F.col("_router_end").isNull()
    rows = told.join(over, "source", "left").withColumns(
        {
            "_there": there,
            "status": F.when(there, F.col("status")).otherwise(F.lit("down")),
            "peer": F.col("container"),
        }
    )
    # Those that have never been connected are not one because nobody knows where they lead to.
    of_unknown = F.when(F.col("peer").isNull(), F.coalesce("name", "identity"))
    return rows.groupBy(*_EDGE, of_unknown.alias("connector")).agg(
        F.coalesce(F.min(F.when(F.col("_there"), F.col("cost"))), F.min("cost")).alias("cost"),
        F.max("status").alias("status"),
        F.max("up_time").alias("up_time"),
        total("down_count").alias("down_count"),
    )


def _carried(inputs: Inputs) -> DataFrame:
    def of(metric: str, direction: str) -> Expression:
        return total(F.when(F.col("direction") == direction, F.col(metric))).alias(f"{metric}_{direction}")

    return (
        inputs.totals.where(is_between_routers())
        .withColumnRenamed("container", "peer")
        .groupBy(*_EDGE)
        .agg(*[of(metric, direction) for metric in ("octets", "deliveries") for direction in ("out", "in")])
    )


# What has changed


def _events(inputs: Inputs) -> DataFrame:
    events = inputs.log.events.where(F.col("type") == "TOPOLOGY_EVENT")
    return events.withColumn("bucket", bucket_of(F.col("time"), inputs.bucket_seconds))


def bucket_of(moment: Expression, seconds: int) -> Expression:
    """The beginning of the bucket that a time is in."""
    us = F.lit(seconds * SECOND_US)
    return F.timestamp_micros((F.floor(F.unix_micros(moment) / us) * us).cast("long"))


def _counted_events(inputs: Inputs) -> DataFrame:
    return _events(inputs).groupBy("bucket", "router", "event").agg(F.count("*").alias("count"))


def _episodes(inputs: Inputs) -> DataFrame:
    """`start`, `end` and what happened. Seconds are put in order, not events: there are never more of them than the
    window is long."""
    events = _events(inputs).withColumn("second", F.date_trunc("second", "time"))
    seconds = events.groupBy("second").agg(F.min("time").alias("first"), F.max("time").alias("last"))
    in_order = Window.orderBy("second")
    apart = F.unix_micros("first") - F.unix_micros(F.lag("last").over(in_order))
    begins = F.coalesce(apart >= EPISODE_GAP_SECONDS * SECOND_US, F.lit(True))
    numbered = seconds.withColumn("_begins", begins.cast("int")).withColumn(
        "episode", F.sum("_begins").over(in_order)
    )
    of_event = F.col("event")
    return (
        events.join(numbered.select("second", "episode"), "second")
        .groupBy("episode")
        .agg(
            F.min("time").alias("start"),
            F.max("time").alias("end"),
            F.count("*").alias("events"),
            F.count_distinct("router").alias("routers"),
            F.count_if(of_event == "neighbour-lost").alias("neighbours_lost"),
            F.count_if(of_event == "router-removed").alias("routers_removed"),
            F.count_if(of_event == "paths-computed").alias("path_computations"),
        )
    )


def _churn(inputs: Inputs) -> DataFrame:
    size = inputs.bucket_seconds
    episodes = inputs.shared(_episodes)
    first = bucket_of(F.col("start"), size)
    last = bucket_of(F.col("end"), size)
    after = F.least(
        shifted(last, size), bucket_of(F.lit(inputs.log.window.end) - F.expr("INTERVAL 1 MICROSECOND"), size)
    )
    step = F.make_dt_interval(secs=F.lit(size))
    buckets = episodes.select("episode", F.explode(F.sequence(first, after, step)).alias("bucket"))
    troubles = inputs.shared(_troubles)
    within = (
        buckets.join(troubles, "bucket", "left")
        .groupBy("episode")
        .agg(
            F.count("*").alias("_buckets"), *[F.coalesce(total(name), F.lit(0)).alias(name) for name in COSTS]
        )
    )
    churned = buckets.select("bucket").distinct()
    # One row: what is usual in a bucket without churn. Buckets in which nothing failed have no row.
    quiet = F.lit(buckets_of(inputs.log.window, size)) - F.col("_churned")
    sums = troubles.join(churned, "bucket", "left_anti").agg(*sums_of(COSTS))
    usual = sums.crossJoin(churned.agg(F.count("*").alias("_churned"))).select(
        *[
            F.coalesce(F.col(name) / F.nullif(quiet, F.lit(0)), F.lit(0.0)).alias(f"_usual_{name}")
            for name in COSTS
        ]
    )
    expected = {f"expected_{name}": F.col(f"_usual_{name}") * F.col("_buckets") for name in COSTS}
    cost = sum(
        (F.greatest(F.col(name) - F.col(f"expected_{name}"), F.lit(0.0)) for name in COSTS), F.lit(0.0)
    )
    return (
        episodes.join(within, "episode")
        .crossJoin(F.broadcast(usual))
        .withColumns(expected)
        .withColumn("cost_deliveries", cost)
    )


def _troubles(inputs: Inputs) -> DataFrame:
    """Deliveries of clients that were `COSTS`, by bucket. What senders were told (`in`), or else the same delivery
    would count at the receiver's router too; what was dropped was so at one place."""
    delayed = F.col("delayed_1_second") + F.col("delayed_10_seconds")
    rows = inputs.rates.withColumn("delayed", delayed)
    sent = F.col("direction") == "in"
    return rows.groupBy("bucket").agg(
        *[
            total(F.col(name) if name == "dropped" else F.when(sent, F.col(name)).otherwise(F.lit(0))).alias(
                name
            )
            for name in COSTS
        ]
    )


TOPOLOGY_EDGES = OutputTable(
    "topology_edges",
    "Connections between routers, one row for those between two of them: told by the router that connects, or by the "
    "other one if nothing is heard of that.",
    (
        text("router", "Who tells."),
        text("peer", "Null: the connector has never been connected."),
        text("connector", "Name, if `peer` is null."),
        text("role", "`inter-router` or `edge`."),
        count("cost", "The least of its connectors; null: the other router knows it."),
        text("status", "`up` or `down`, last; `down` also if the connector or its router is gone."),
        time("up_time", "Came up last."),
        count(
            "down_count", "How often it went down since its router started; null: the other router knows it."
        ),
        count("octets_out", "From `router` to `peer`, in the window."),
        count("deliveries_out"),
        count("octets_in", "From `peer` to `router`."),
        count("deliveries_in"),
    ),
    _edges,
    ("-octets_out", "-octets_in", "router", "peer", "connector", "role"),
    "What went over a connection is not what it was for: messages pass several routers.",
)

TOPOLOGY_CHURN = OutputTable(
    "topology_churn",
    f"Times in which the network changed, of events less than {EPISODE_GAP_SECONDS} s apart, and deliveries that went "
    "wrong meanwhile: in all buckets from that of the first event to the one after that of the last.",
    (
        time("start", "The first event."),
        time("end", "The last one."),
        count("events"),
        count("routers", "That told of them."),
        count("neighbours_lost", "Each end of a connection tells of its own."),
        count("routers_removed", "Each router tells of every one that it cannot reach any more."),
        count("path_computations"),
        count("released", "Deliveries of senders, at all routers."),
        count("modified"),
        count("dropped", "Pre-settled deliveries."),
        count("delayed", "Deliveries of senders that took longer than 1 s to be settled."),
        number("expected_released", "As many as usual: the mean of the buckets without churn, for as long."),
        number("expected_modified"),
        number("expected_dropped"),
        number("expected_delayed"),
        number("cost_deliveries", "What is beyond that, of all four together."),
    ),
    _churn,
    ("-cost_deliveries", "-events", "start"),
    "What goes wrong at the same time need not come from the change; and both may come from a third. A delivery that "
    "was late and then released counts twice. If the network never rests, nothing is usual, and all is cost.",
)

TOPOLOGY_EVENTS = OutputTable(
    "topology_events",
    "How many changes of the network each router saw, by bucket.",
    (
        time("bucket"),
        text("router", "Who tells."),
        text("event", "As docs/flow-records.md lists them."),
        count("count"),
    ),
    _counted_events,
    ("bucket", "router", "event"),
    "Several routers tell of one change.",
)
