"""Rotations of certificates: what flowed with which ordinal, and what stayed on an old one."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isthmus_flows.tables.inputs import Inputs, seconds_between, sums_of
from isthmus_flows.tables.lives import connections, endpoints
from isthmus_flows.tables.spec import OutputTable, count, flag, number, text, time

OUTLIVED_SECONDS = 60
"""A connection that is replaced at once is no news."""
_ROTATION = ["source", "profile", "ordinal"]


def _flows(inputs: Inputs) -> DataFrame:
    with_tls = inputs.traffic.where(F.col("tls_ordinal").isNotNull())
    return with_tls.groupBy("bucket", "router", "endpoint", "role", "tls_ordinal").agg(
        F.count_distinct("connection").alias("connections"), *sums_of(("deliveries", "octets"))
    )


def _raised(inputs: Inputs) -> DataFrame:
    """New credentials: `source`, `router`, `profile`, `ordinal_before`, `ordinal`, `raised_at`."""
    events = inputs.log.events.where(F.col("event") == "ordinal-raised")
    return events.groupBy(
        "source", F.col("name").alias("profile"), F.col("tls_ordinal").alias("ordinal")
    ).agg(
        F.max("router").alias("router"),
        F.max("ordinal_before").alias("ordinal_before"),
        F.min("time").alias("raised_at"),
    )


def _old(inputs: Inputs) -> DataFrame:
    """Each connection with each rotation that it was there for with an older ordinal of the same profile. One whose
    profile is not known is taken for one of every profile."""
    raised = inputs.shared(_raised).withColumnRenamed("router", "_router")
    pairs = connections(inputs).drop("deliveries", "octets").join(raised, "source")
    return pairs.where(
        (F.col("tls_ordinal") < F.col("ordinal"))
        & (F.col("end").isNull() | (F.col("end") > F.col("raised_at")))
        & (F.col("ssl_profile").isNull() | (F.col("ssl_profile") == F.col("profile")))
    )


def _after(inputs: Inputs) -> DataFrame:
    """What old connections carried in the buckets that begin after the ordinal was raised, for each rotation."""
    old = inputs.shared(_old).select(F.col("identity").alias("connection"), *_ROTATION[1:], "raised_at")
    flows = inputs.flows.select("flow", "direction", "connection").join(old, "connection")
    after = inputs.cubes.traffic.join(flows, ["flow", "direction"]).where(
        F.col("bucket") >= F.col("raised_at")
    )
    return after.groupBy("connection", *_ROTATION[1:]).agg(
        *sums_of(("deliveries", "octets")), F.max("bucket").alias("_last")
    )


def _rotations(inputs: Inputs) -> DataFrame:
    raised = inputs.shared(_raised)
    after = inputs.shared(_after).withColumn("last_traffic", inputs.end_of("_last"))
    old = inputs.shared(_old).withColumnRenamed("identity", "connection")
    left = (
        old.join(after, ["connection", *_ROTATION[1:]], "left")
        .groupBy(*_ROTATION)
        .agg(
            F.count("*").alias("old_connections"),
            F.max("end").alias("last_old_end"),
            F.max("last_traffic").alias("last_old_traffic"),
            F.bool_and(F.col("end").isNotNull()).alias("complete"),
        )
    )
    until = F.when(F.col("complete"), F.coalesce("last_old_end", "raised_at")).otherwise(
        F.lit(inputs.log.window.end)
    )
    return (
        raised.join(_upgraded(inputs), _ROTATION, "left")
        .join(left, _ROTATION, "left")
        .withColumns(
            {
                "connections_upgraded": F.coalesce("connections_upgraded", F.lit(0)),
                "old_connections": F.coalesce("old_connections", F.lit(0)),
                "complete": F.coalesce("complete", F.lit(True)),
            }
        )
        .withColumn("duration_seconds", F.greatest(seconds_between(F.col("raised_at"), until), F.lit(0.0)))
    )


def _upgraded(inputs: Inputs) -> DataFrame:
    """Connections that have taken over, by rotation. Only a router that connects tells its own ordinal there; one that
    listens tells that of its peer."""
    records = endpoints(inputs).where(F.col("type") == "LINK")
    connectors = records.select("source", F.col("endpoint").alias("name"), "ssl_profile").distinct()
    events = inputs.log.events.where(F.col("event") == "connection-upgraded").select(
        "source", "name", "time", F.col("tls_ordinal").alias("ordinal")
    )
    raised = inputs.shared(_raised).select(*_ROTATION, "raised_at")
    pairs = events.join(connectors, ["source", "name"]).join(raised, ["source", "ordinal"])
    of_profile = F.col("ssl_profile").isNull() | (F.col("ssl_profile") == F.col("profile"))
    return (
        pairs.where(of_profile & (F.col("time") >= F.col("raised_at")))
        .groupBy(*_ROTATION)
        .agg(F.count("*").alias("connections_upgraded"), F.max("time").alias("last_upgrade_at"))
    )


def _outlived(inputs: Inputs) -> DataFrame:
    window = inputs.log.window
    old = inputs.shared(_old).withColumnRenamed("identity", "connection")
    after = inputs.shared(_after).select("connection", *_ROTATION[1:], "deliveries", "octets")
    both = old.join(after, ["connection", *_ROTATION[1:]], "left")
    first = F.struct("raised_at", "ordinal")
    found = both.groupBy(
        "connection", "router", "endpoint", "role", "container", "user", "host", "tls_ordinal", "end"
    ).agg(
        F.max("ordinal").alias("newest_ordinal"),
        F.min("raised_at").alias("raised_at"),
        F.coalesce(F.min_by("deliveries", first), F.lit(0)).alias("deliveries_after"),
        F.coalesce(F.min_by("octets", first), F.lit(0)).alias("octets_after"),
    )
    until = F.coalesce("end", F.lit(window.end))
    found = found.withColumns({"until": until, "open": F.col("end").isNull()})
    return found.where(seconds_between(F.col("raised_at"), F.col("until")) > F.lit(OUTLIVED_SECONDS))


FLOWS = OutputTable(
    "rotation_flows",
    "What flowed over connections with TLS, by the ordinal of the router's credentials that they were made with.",
    (
        time("bucket"),
        text("router"),
        text("endpoint", "Connector or listener."),
        text("role", "Of the connections."),
        count("tls_ordinal"),
        count("connections", "That had deliveries, or on which some waited."),
        count("deliveries", "In both directions."),
        count("octets"),
    ),
    _flows,
    ("bucket", "router", "endpoint", "role", "tls_ordinal"),
    "Connections on which nothing flowed are not here. Ordinals of different profiles have nothing to do with each "
    "other.",
)

ROTATIONS = OutputTable(
    "rotations",
    "Each time that a router had new credentials of an `sslProfile`, and how long old ones were in use after that.",
    (
        text("router"),
        text("profile"),
        count("ordinal_before"),
        count("ordinal"),
        time("raised_at"),
        count(
            "connections_upgraded",
            "To other routers, by this router's connectors: the new one has taken over.",
        ),
        time("last_upgrade_at"),
        count(
            "old_connections", "With an older ordinal of the profile, that were there then; clients' as well."
        ),
        time("last_old_end", "When the last of these ended, of those that have."),
        time("last_old_traffic", "Until when, to the bucket, something flowed over one of these."),
        number("duration_seconds", "Until the last of these ended, or until the end of the window."),
        flag("complete", "All of these have ended."),
    ),
    _rotations,
    ("complete", "-duration_seconds", "router", "profile", "ordinal"),
    "Only what was raised within the window. Connections of a router that does not tell the profile of its connectors "
    "and listeners count for every profile.",
)

OUTLIVED = OutputTable(
    "rotation_outlived",
    f"Connections that were there with an old ordinal more than {OUTLIVED_SECONDS} s after it was raised.",
    (
        text("connection", "Identity of its record."),
        text("router"),
        text("endpoint"),
        text("role"),
        text("container", "Container id of the peer."),
        text("user"),
        text("host"),
        count("tls_ordinal", "Of the connection."),
        count("newest_ordinal", "Of the profile, while it was there."),
        time(
            "raised_at",
            "When its ordinal was no more the newest; if that was before the window, the first time within.",
        ),
        time("until", "Its end, or that of the window."),
        flag("open", "It has not ended."),
        count("deliveries_after", "In both directions, in the buckets that begin after `raised_at`."),
        count("octets_after"),
    ),
    _outlived,
    ("-octets_after", "-deliveries_after", "-until", "connection"),
    "Replaced connections between routers stay open for what is under way on them, and clients stay until they connect "
    "anew; `oldestValidOrdinal` closes both. One that stays is no fault of the rotation.",
)
