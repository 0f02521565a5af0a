"""Whether the log has everything."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isthmus_flows.sums import total
from isthmus_flows.tables.inputs import Inputs
from isthmus_flows.tables.lives import latest, links, routers
from isthmus_flows.tables.spec import OutputTable, count, text

_SAID = ("records_lost", "records_missed", "not_recorded")


def _completeness(inputs: Inputs) -> DataFrame:
    window = inputs.log.window
    # Only of links whose whole life is in the window the intervals have to add up to the totals.
    whole = links(inputs).where(
        F.col("start_known")
        & (F.col("end_known") == "ended")
        & (F.col("start") >= F.lit(window.start))
        & (F.col("end") < F.lit(window.end))
    )
    totals = latest(inputs.log.records, ("AMQP_LINK",), ("deliveries",)).select(
        "identity", F.col("deliveries").alias("_total")
    )
    compared = (
        whole.join(totals, "identity")
        .groupBy("source")
        .agg(
            F.count("*").alias("links"),
            total("deliveries").alias("told"),
            total(F.coalesce("_total", F.lit(0))).alias("counted"),
        )
    )
    missing = inputs.totals.groupBy("source").agg(total("missing_intervals").alias("missing_intervals"))
    said = latest(inputs.log.records, ("ROUTER",), _SAID).select(F.col("identity").alias("source"), *_SAID)
    rows = routers(inputs).select(F.col("identity").alias("source"), "router")
    for part in (compared, missing, said):
        rows = rows.join(part, "source", "left")
    numbers = ("links", "told", "counted", "missing_intervals", *_SAID)
    return rows.withColumns({name: F.coalesce(name, F.lit(0)) for name in numbers})


COMPLETENESS = OutputTable(
    "completeness",
    "Of each run of a router, how much of what it had to tell is in the log. All is there if `told` is `counted` and "
    "the other counts are 0.",
    (
        text("router"),
        text("source", "The run."),
        count(
            "links",
            "Of clients, that began and ended within the window, and said so; of these are the next two.",
        ),
        count("told", "Deliveries in their intervals."),
        count("counted", "Deliveries in the totals that they ended with."),
        count("missing_intervals", "Holes in the numbers of the intervals of links and connections."),
        count("records_lost", "What the router gave up before anybody heard of it; since it started."),
        count(
            "records_missed", "Messages with records that the collector never had; since it heard the router."
        ),
        count(
            "not_recorded", "Connections, links and addresses beyond the router's limits; since it started."
        ),
    ),
    _completeness,
    ("-missing_intervals", "-records_missed", "-records_lost", "router", "source"),
    "Zeros mean that nothing is known to be missing. `told` above `counted`: the last totals of a link were lost. What "
    "is beyond the router's limits is not lost, it counts with the connection or the router.",
)
