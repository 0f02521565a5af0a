"""What the page is made from: some rows of each table, and what is drawn over time. All of it is bounded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from isthmus_flows.parallel import each
from isthmus_flows.sketches import quantiles
from isthmus_flows.sums import total
from isthmus_flows.tables import TABLES, table

Row = Mapping[str, Any]
MOST_ROWS = 20
MOST_POINTS = 240
LEAST_POINTS = 12
MOST_LINES = 7
OTHERS = "others"
NO_ADDRESS = "(in each message)"
NO_SITE = "(no site)"
MATRIX_SITES, MATRIX_ADDRESSES = 20, 24
MOST_EDGES = 200
MOST_ROUTERS = 1000
_MORE = {"topology_edges": MOST_EDGES}
"""Tables of which more rows than those shown are needed."""


@dataclass(frozen=True)
class View:
    """Some rows of a table that are shown on their own, so that others do not take their place."""

    table: str
    where: str
    order: tuple[str, ...] = ()
    """The table's own without it."""


VIEWS: dict[str, View] = {
    "slowest_addresses": View(
        "traffic_matrix", "latency_p99_us IS NOT NULL", ("-latency_p99_us", "-deliveries")
    ),
    "slowest_links": View("links", "latency_p99_us IS NOT NULL", ("-latency_p99_us", "-deliveries")),
    "senders": View("top_talkers", "direction = 'in' AND rank_octets IS NOT NULL"),
    "receivers": View("top_talkers", "direction = 'out' AND rank_octets IS NOT NULL"),
    "busy_routers": View("utilisation", "kind = 'router'"),
    "busy_connections": View("utilisation", "kind = 'connection'"),
    "router_sessions": View("sessions", "kind = 'router'"),
    "connection_sessions": View("sessions", "kind = 'connection'"),
    "link_sessions": View("sessions", "kind = 'link'"),
}


@dataclass(frozen=True)
class Rows:
    """The first rows of a table, and how many it has."""

    rows: Sequence[Row] = ()
    count: int = 0


@dataclass(frozen=True)
class ReportData:
    """Of one analysis."""

    summary: Mapping[str, Any]
    tables: Mapping[str, Rows] = field(default_factory=dict)
    """And `VIEWS`."""
    series: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    """By name: what is drawn, with `moment` if that is over time."""
    step: timedelta = timedelta(minutes=1)
    """Between two points of a series."""
    sites: Mapping[str, str | None] = field(default_factory=dict)
    """Of routers."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """How many addresses, sites and routers there are."""

    drawn: tuple[datetime, datetime] | None = None
    """From the first to the last thing that happened, if that is not all of the window."""

    @property
    def span(self) -> tuple[datetime, datetime]:
        """Of what is drawn over time."""
        start, end = (datetime.fromisoformat(self.summary["window"][name]) for name in ("from", "to"))
        return self.drawn or (start, end)

    def table(self, name: str) -> Rows:
        """Empty for one that is not there."""
        return self.tables.get(name, Rows())


def collect(summary: Mapping[str, Any], tables: Mapping[str, DataFrame], addresses: DataFrame) -> ReportData:
    """From the tables of an analysis, and its sketches by `addresses` (`cubes.Cubes.addresses`)."""
    window = summary["window"]
    start, end = (datetime.fromisoformat(window[name]) for name in ("from", "to"))
    bucket = int(window["bucketSeconds"])
    drawn = extent(tables, start, end, timedelta(seconds=bucket))
    buckets = max(1, math.ceil((drawn[1] - drawn[0]).total_seconds() / bucket))
    points = Points(start, end, bucket, bucket * math.ceil(buckets / MOST_POINTS))
    views = {item.name: View(item.name, "true") for item in TABLES} | VIEWS
    spark = addresses.sparkSession

    def view(name: str) -> Rows:
        return _view(tables[views[name].table], views[name], _MORE.get(name, MOST_ROWS))

    found = dict(zip(views, each(spark, view, views), strict=True))
    matrix = tables["traffic_matrix"].withColumns(
        {"site": F.coalesce("site", F.lit(NO_SITE)), "address": F.coalesce("address", F.lit(NO_ADDRESS))}
    )
    addresses = addresses.withColumn("address", F.coalesce("address", F.lit(NO_ADDRESS)))
    busiest = _largest(matrix, "address", total("deliveries"), MATRIX_ADDRESSES)
    slowest = _largest(matrix.where("direction = 'in'"), "address", F.max("latency_p99_us"), MOST_LINES)
    series = {
        "matrix": _matrix(matrix, _largest(matrix, "site", total("deliveries"), MATRIX_SITES), busiest),
        "rates": _rates(tables["traffic_rates"], busiest[:MOST_LINES], points),
        "latency": _latency(addresses, points, ()),
        "slowest": _latency(addresses.where(F.col("address").isin(slowest)), points, ("address",)),
        "ordinals": _ordinals(tables["rotation_flows"], points),
        "events": _events(tables["topology_events"], points),
        "relay": _relay(tables["relay_rates"], points),
    }
    routers = tables["sessions"].where("kind = 'router'").groupBy("router").agg(F.max("site").alias("site"))
    return ReportData(
        summary,
        found,
        dict(zip(series, each(spark, _rows, series.values()), strict=True)),
        timedelta(seconds=points.seconds),
        {row["router"]: row["site"] for row in _rows(routers.orderBy("router").limit(MOST_ROUTERS))},
        {
            "addresses": matrix.select("address").distinct().count(),
            "sites": tables["sessions"].where("site IS NOT NULL").select("site").distinct().count(),
            "routers": routers.count(),
        },
        drawn if drawn != (start, end) else None,
    )


def extent(
    tables: Mapping[str, DataFrame], start: datetime, end: datetime, bucket: timedelta
) -> tuple[datetime, datetime]:
    """The part of the window in which something is, with as much before and after it as makes `LEAST_POINTS`; all of
    the window if that is most of it."""
    parts = [tables[name].select("bucket") for name in ("traffic_rates", "topology_events", "relay_rates")]
    (found,) = _rows(
        reduce(DataFrame.union, parts).agg(F.min("bucket").alias("first"), F.max("bucket").alias("last"))
    )
    if found["first"] is None:
        return start, end
    room = max(bucket, (bucket * LEAST_POINTS - (found["last"] - found["first"])) / 2)
    first, last = max(start, found["first"] - room), min(end, found["last"] + bucket + room)
    return (first, last) if last - first < (end - start) / 2 else (start, end)


@dataclass(frozen=True)
class Points:
    """How time is divided."""

    start: datetime
    end: datetime
    bucket: int
    """Seconds, of the tables."""
    seconds: int
    """From one point to the next."""

    def moment(self) -> Column:
        """When the point of a bucket begins."""
        us = self.seconds * 1_000_000
        begin = F.floor(F.unix_micros("bucket") / F.lit(us)).cast("long") * F.lit(us)
        return F.timestamp_micros(begin).alias("moment")

    def known(self) -> Column:
        """Seconds of a point that are in the window: the first and the last may be there in part."""
        us = self.seconds * 1_000_000
        end = F.least(F.unix_micros("moment") + us, F.lit(_micros(self.end)))
        begin = F.greatest(F.unix_micros("moment"), F.lit(_micros(self.start)))
        return F.greatest((end - begin) / 1_000_000, F.lit(float(self.bucket)))


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _view(rows: DataFrame, view: View, most: int) -> Rows:
    rows = rows.where(view.where)
    return Rows(_rows(table(view.table).first(rows, most, view.order)), rows.count())


def _largest(rows: DataFrame, name: str, weight: Column, most: int) -> list[str]:
    """The names with most of something."""
    sums = rows.groupBy(name).agg(weight.alias("_weight")).where("_weight IS NOT NULL")
    return [row[name] for row in sums.orderBy(F.desc("_weight"), name).limit(most).collect()]


def _named(name: str, known: Sequence[str]) -> Column:
    return F.when(F.col(name).isin(list(known)), F.col(name)).otherwise(F.lit(OTHERS)).alias(name)


def _matrix(matrix: DataFrame, sites: Sequence[str], addresses: Sequence[str]) -> DataFrame:
    return matrix.groupBy(_named("site", sites), _named("address", addresses), "direction").agg(
        total("deliveries").alias("deliveries"), total("octets").alias("octets")
    )


def _rates(rates: DataFrame, addresses: Sequence[str], points: Points) -> DataFrame:
    named = rates.withColumn("address", F.coalesce("address", F.lit(NO_ADDRESS)))
    sums = named.groupBy(points.moment(), _named("address", addresses), "direction").agg(
        total("deliveries").alias("deliveries")
    )
    per_second = (F.col("deliveries") / points.known()).alias("deliveries_per_second")
    return sums.select("moment", "address", "direction", per_second)


def _latency(addresses: DataFrame, points: Points, keys: tuple[str, ...]) -> DataFrame:
    """Where messages come in: from there until their outcome is known."""
    rows = addresses.where("metric = 'latency' AND direction = 'in'").withColumn("moment", points.moment())
    return quantiles(rows, ("moment", *keys), {"p50": 0.5, "p90": 0.9, "p99": 0.99})


def _ordinals(flows: DataFrame, points: Points) -> DataFrame:
    """By ordinal, of the newest; those before them together, as null."""
    newest = [
        row[0]
        for row in flows.select("tls_ordinal")
        .distinct()
        .orderBy(F.desc("tls_ordinal"))
        .limit(MOST_LINES)
        .collect()
    ]
    ordinal = F.when(F.col("tls_ordinal").isin(newest), F.col("tls_ordinal")).alias("tls_ordinal")
    at_once = flows.groupBy("bucket", ordinal).agg(F.sum("connections").alias("connections"))
    return at_once.groupBy(points.moment(), "tls_ordinal").agg(F.max("connections").alias("connections"))


def _events(events: DataFrame, points: Points) -> DataFrame:
    return events.groupBy(points.moment(), "event").agg(total("count").alias("count"))


def _relay(rates: DataFrame, points: Points) -> DataFrame:
    """Of the pairs that were most behind."""
    pair = ("relay_group", "relay_site", "remote_site")
    furthest = rates.groupBy(*pair).agg(F.max("lag_seconds").alias("_lag")).orderBy(F.desc("_lag"), *pair)
    rows = rates.join(F.broadcast(furthest.limit(MOST_LINES).select(*pair)), list(pair), "left_semi")
    sums = rows.groupBy(points.moment(), *pair).agg(
        F.max("lag_seconds").alias("lag_seconds"), total("sent").alias("sent")
    )
    return sums.select(
        "moment", *pair, "lag_seconds", (F.col("sent") / points.known()).alias("sent_per_second")
    )


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows with times that have a zone; Spark would give them in that of this process."""
    times = [item.name for item in frame.schema if isinstance(item.dataType, T.TimestampType)]
    rows = [
        row.asDict() for row in frame.withColumns({name: F.unix_micros(name) for name in times}).collect()
    ]
    for row in rows:
        for name in times:
            if row[name] is not None:
                row[name] = datetime.fromtimestamp(row[name] / 1_000_000, UTC)
    return rows
