"""From when until when routers, connections and links were there, as far as records and deliveries tell.

Records are states, told again and again; the last one may be missing, or may come late. What has no end of its own is
over when what it is part of is: the connection of a link, the router of both. A router that was not heard any more, or
that was started anew, is over when it was heard last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isthmus_flows.sums import total
from isthmus_flows.tables.inputs import Inputs

ENDED, LOST, OPEN = "ended", "lost", "open"
ENDPOINT_TYPES = ("LINK", "LISTENER", "CONNECTOR", "ROUTER_ACCESS")


def latest(records: DataFrame, types: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """One row for each record of these types: `identity`, `source`, `first_heard`, `heard_at` (last), and each column
    as it was told of last."""
    return (
        records.where(F.col("type").isin(*types))
        .groupBy("identity")
        .agg(
            F.max("source").alias("source"),
            F.min("heard_at").alias("first_heard"),
            F.max("heard_at").alias("heard_at"),
            *[_last_told(name).alias(name) for name in columns],
        )
    )


def _last_told(name: str) -> Column:
    return F.max(F.when(F.col(name).isNotNull(), F.struct("heard_at", name)))[name]


def routers(inputs: Inputs) -> DataFrame:
    """Runs of routers: `identity`, `router`, `site`, `start`, `start_known`, `end`, `end_known`, `first_heard`,
    `heard_at`, `deliveries`, `octets`, and `next_start`: the `start` of the run after it."""
    return inputs.shared(_routers)


def connections(inputs: Inputs) -> DataFrame:
    """Connections, as `routers`, with `parent`, `source`, `role`, `direction`, `container`, `user`, `host`,
    `tls_ordinal`, `endpoint` and `ssl_profile`."""
    return inputs.shared(_connections)


def links(inputs: Inputs) -> DataFrame:
    """Links of clients, as `connections`, with `name` and `address`."""
    return inputs.shared(_links)


def endpoints(inputs: Inputs) -> DataFrame:
    """Connectors and listeners: `identity`, `type`, `source`, `endpoint` (its name) and `ssl_profile`."""
    told = latest(inputs.log.records, ENDPOINT_TYPES, ("type", "name", "ssl_profile"))
    return told.withColumnRenamed("name", "endpoint")


def _routers(inputs: Inputs) -> DataFrame:
    told = latest(
        inputs.log.records, ("ROUTER",), ("start_time", "end_time", "lost", "router", "site", "name")
    )
    told = told.withColumn("router", F.coalesce("router", "name")).drop("name")
    runs = _with_traffic(inputs, told, "source", {"router": "router", "site": "site"})
    # A run without an id is told apart from all columns.
    of_router = Window.partitionBy(F.coalesce("router", "identity")).orderBy("start", "identity")
    replaced = F.lead("identity").over(of_router).isNotNull()
    over = F.coalesce("lost", F.lit(False)) | replaced
    return (
        runs.withColumns({"_over": over, "next_start": F.lead("start").over(of_router)})
        .withColumn("end_known", _end_known(F.col("_over")))
        .withColumn("end", F.coalesce("end_time", F.when(F.col("_over"), F.col("heard_at"))))
        .drop("_over", "lost", "start_time", "end_time")
    )


def _connections(inputs: Inputs) -> DataFrame:
    own = ("role", "direction", "container", "user", "host", "tls_ordinal", "router", "site")
    told = latest(inputs.log.records, ("CONNECTION",), ("parent", "start_time", "end_time", *own))
    of_parent = endpoints(inputs).select(F.col("identity").alias("parent"), "endpoint", "ssl_profile")
    told = told.join(of_parent, "parent", "left")
    traffic = {name: name for name in (*own, "endpoint") if name != "direction"}
    return _until(_with_traffic(inputs, told, "connection", traffic), inputs)


def _links(inputs: Inputs) -> DataFrame:
    own = ("direction", "address", "router", "site")
    told = latest(inputs.log.records, ("AMQP_LINK",), ("parent", "name", "start_time", "end_time", *own))
    traffic = {"parent": "connection", "name": "link_name", **{name: name for name in own}}
    rows = _until(_with_traffic(inputs, told, "link", traffic), inputs, connections(inputs))
    whose = connections(inputs).select(
        F.col("identity").alias("parent"), "role", "container", "user", "host", "tls_ordinal"
    )
    return rows.join(whose, "parent", "left")


def _with_traffic(inputs: Inputs, told: DataFrame, key: str, attributes: Mapping[str, str]) -> DataFrame:
    """What records and deliveries tell together; each may lack what the other has. `attributes`: column to the one in
    `totals`."""
    columns = {**attributes, "source": "source"} if key != "source" else attributes
    seen = (
        inputs.totals.where(F.col(key).isNotNull())
        .groupBy(F.col(key).alias("identity"))
        .agg(
            *[F.max(column).alias(f"_{name}") for name, column in columns.items()],
            F.min("first").alias("_first"),
            F.max("last").alias("_last"),
            total("deliveries").alias("deliveries"),
            total("octets").alias("octets"),
        )
    )
    rows = told.join(seen, "identity", "full")
    together = {name: F.coalesce(name, f"_{name}") for name in columns}
    if key == "source":
        together["source"] = F.coalesce("source", "identity")
    return rows.withColumns(
        {
            **together,
            "start": F.coalesce("start_time", F.least("first_heard", "_first")),
            "start_known": F.col("start_time").isNotNull(),
            "first_heard": F.coalesce("first_heard", "_first"),
            "heard_at": F.coalesce("heard_at", "_last"),
            "deliveries": F.coalesce("deliveries", F.lit(0)),
            "octets": F.coalesce("octets", F.lit(0)),
        }
    ).drop("_first", "_last", *[f"_{name}" for name in columns])


def _until(rows: DataFrame, inputs: Inputs, parents: DataFrame | None = None) -> DataFrame:
    """With `end` and `end_known`: their own, or that of the parent, or of the router."""
    of_router = routers(inputs).select(F.col("identity").alias("source"), F.col("end").alias("_router_end"))
    rows = rows.join(of_router, "source", "left").withColumn("_parent_end", F.lit(None).cast("timestamp"))
    if parents is not None:
        of_parent = parents.select(F.col("identity").alias("parent"), F.col("end").alias("_parent_end"))
        rows = rows.drop("_parent_end").join(of_parent, "parent", "left")
    return (
        rows.withColumn("end", F.coalesce("end_time", "_parent_end", "_router_end"))
        .withColumn("end_known", _end_known(F.col("end").isNotNull()))
        .drop("_parent_end", "_router_end", "start_time", "end_time")
    )


def _end_known(over: Column) -> Column:
    return F.when(F.col("end_time").isNotNull(), F.lit(ENDED)).when(over, F.lit(LOST)).otherwise(F.lit(OPEN))
