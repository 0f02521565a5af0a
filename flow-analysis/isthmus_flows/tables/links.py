"""The links of clients, each for itself."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isthmus_flows.sketches import quantiles
from isthmus_flows.tables.inputs import SECOND_US, Inputs, failed
from isthmus_flows.tables.spec import OutputTable, count, number, text, time
from isthmus_flows.tables.traffic import FAILED_COLUMN, LATENCIES, LATENCY_COLUMNS


def _links(inputs: Inputs) -> DataFrame:
    keys = ("flow", "direction")
    latencies = inputs.cubes.sketches.where(F.col("metric") == "latency")
    seconds = F.col("us") / F.lit(SECOND_US)
    return (
        inputs.totals.where(F.col("link").isNotNull())
        .join(quantiles(latencies, keys, LATENCIES), list(keys), "left")
        .withColumns(
            {
                "seconds": seconds,
                "failed": failed(),
                "deliveries_per_second": F.col("deliveries") / F.nullif(seconds, F.lit(0.0)),
                "octets_per_second": F.col("octets") / F.nullif(seconds, F.lit(0.0)),
            }
        )
    )


LINKS = OutputTable(
    "links",
    "Each link of a client that had deliveries or waited.",
    (
        text("link", "Identity of its record."),
        text("connection"),
        text("router"),
        text("site"),
        text("role", "Of the connection: `normal` or `route-container`."),
        text("direction", "`in`: the client sends; `out`: it receives."),
        text("address"),
        text("container", "Container id of the client."),
        text("user"),
        text("host"),
        text("endpoint", "The router's listener or connector."),
        text("link_name"),
        time("first", "Beginning of the first bucket in which it had an interval."),
        time("last", "End of the last one."),
        number(
            "seconds",
            "Length of its intervals together. Routers tell of no interval in which nothing happened.",
        ),
        count("deliveries"),
        count("octets"),
        FAILED_COLUMN,
        number("deliveries_per_second", "Of `seconds`: its rate while it was in use."),
        number("octets_per_second"),
        *LATENCY_COLUMNS,
        count("delayed_1_second", "Deliveries that took from 1 to 10 s to be settled."),
        count("delayed_10_seconds", "That took longer."),
        count("missing_intervals", "Holes in the numbers of its intervals: these were lost."),
    ),
    _links,
    ("-octets", "-deliveries", "link"),
    "Links beyond a router's limits have no row of their own; they count in the other tables. What is lost before the "
    "first and after the last interval of a link shows in `completeness` only.",
)
