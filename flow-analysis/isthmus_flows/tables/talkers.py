"""Who has sent and received most."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from isthmus_flows.sums import total
from isthmus_flows.tables.inputs import Inputs, joined, sums_of
from isthmus_flows.tables.spec import OutputTable, count, number, ordered, text

_WHO = ("site", "container", "user", "host", "direction")


def _top_talkers(inputs: Inputs) -> DataFrame:
    talkers = inputs.shared(_talkers)
    all_of = talkers.groupBy("direction").agg(
        total("octets").alias("_octets"), total("deliveries").alias("_deliveries")
    )
    by_octets = _ranked(talkers, "octets", "deliveries", inputs.top)
    by_deliveries = _ranked(talkers, "deliveries", "octets", inputs.top)
    either = by_octets.select(*_WHO).union(by_deliveries.select(*_WHO)).distinct()
    ranked = joined(either, talkers, _WHO, "inner")
    for rank, frame in (("rank_octets", by_octets), ("rank_deliveries", by_deliveries)):
        ranked = joined(ranked, frame.select(*_WHO, rank), _WHO)
    return ranked.join(all_of, "direction").withColumns(
        {
            "share_octets": F.col("octets") / F.nullif(F.col("_octets"), F.lit(0)),
            "share_deliveries": F.col("deliveries") / F.nullif(F.col("_deliveries"), F.lit(0)),
        }
    )


def _talkers(inputs: Inputs) -> DataFrame:
    return inputs.clients.groupBy(*_WHO).agg(
        *sums_of(("deliveries", "octets")), F.count_distinct("address").alias("addresses")
    )


def _ranked(talkers: DataFrame, metric: str, then: str, top: int) -> DataFrame:
    """The first of each direction. Equals have the same rank; which of them are left out at the end is told by the
    other metric and by their names."""
    column = f"rank_{metric}"
    within = Window.partitionBy("direction")
    order = ordered((f"-{metric}", f"-{then}", *_WHO))
    first = talkers.withColumn("_place", F.row_number().over(within.orderBy(*order))).where(
        F.col("_place") <= top
    )
    return first.withColumn(column, F.rank().over(within.orderBy(F.col(metric).desc())))


TOP_TALKERS = OutputTable(
    "top_talkers",
    "The clients that sent and received most, `in` and `out` each ranked for itself: the first `--top` by bytes and "
    "the first by deliveries. A client is who connected from one host, as one user, with one container id, at a site.",
    (
        count(
            "rank_octets", "Among those of the direction; equals have the same. Null: not among the first."
        ),
        count("rank_deliveries"),
        text("site"),
        text("container"),
        text("user"),
        text("host"),
        text("direction"),
        count("deliveries"),
        count("octets"),
        number(
            "share_octets", "Of the bytes of all clients in that direction, 0 to 1; null: there are none."
        ),
        number("share_deliveries"),
        count("addresses", "How many different ones."),
    ),
    _top_talkers,
    ("direction", "rank_octets", "rank_deliveries", "site", "container", "user", "host"),
    "Clients that make up a new container id with every start are others each time.",
)
