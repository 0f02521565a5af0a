"""Sessions: from when until when who was there, and what flowed meanwhile."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isthmus_flows.tables.inputs import Inputs, seconds_between
from isthmus_flows.tables.lives import connections, links, routers
from isthmus_flows.tables.spec import OutputTable, count, flag, number, text, time


def _sessions(inputs: Inputs) -> DataFrame:
    window = inputs.log.window
    parts = (
        routers(inputs).withColumns({"kind": F.lit("router"), "name": F.col("router")}),
        connections(inputs).withColumns({"kind": F.lit("connection"), "name": F.col("endpoint")}),
        links(inputs).withColumn("kind", F.lit("link")),
    )
    rows = (
        parts[0]
        .unionByName(parts[1], allowMissingColumns=True)
        .unionByName(parts[2], allowMissingColumns=True)
    )
    in_window = F.col("end").isNull() | (F.col("end") >= F.lit(window.start))
    until = F.coalesce("end", F.lit(window.end))
    return rows.where(in_window).withColumn(
        "duration_seconds", F.greatest(seconds_between(F.col("start"), until), F.lit(0.0))
    )


SESSIONS = OutputTable(
    "sessions",
    "Routers (each run of one), their connections, and the links of clients, that were there in the window. Put "
    "together from the states in `records` and from deliveries: what is missing in one may be known from the other.",
    (
        text("kind", "`router`, `connection` or `link`."),
        text("identity", "Of its record."),
        text("parent", "Of a link its connection, of a connection its connector or listener."),
        text("router"),
        text("site"),
        text("name", "Id of the router, name of the connection's connector or listener, name of the link."),
        text("container", "Of the peer."),
        text("user"),
        text("host"),
        text("address"),
        text("direction", "`incoming` or `outgoing` connection; link `in` or `out`."),
        count("tls_ordinal", "Of the credentials of the connection."),
        time("start", "By the router's clock; if nobody told, when it was heard of first."),
        flag("start_known", "Somebody told."),
        time("end", "Null: it was there at the end of the window, as far as is known."),
        text(
            "end_known",
            "`ended`: it said so. `lost`: its connection or its router has ended, or its router was heard no more or "
            "was started anew; `end` is when that was, of the router when it was heard last. `open`: it has no end.",
        ),
        time("next_start", "Of a router that was started anew: when."),
        number("duration_seconds", "Until its end or that of the window."),
        count("deliveries", "In the window; of a router and a connection both directions together."),
        count("octets"),
    ),
    _sessions,
    ("kind", "-octets", "-duration_seconds", "identity"),
    "The end of what is `lost` is the last time that its router was heard, which is known to the minute; it may have "
    "ended before. What is `open` may have ended without anybody knowing yet: a router counts as lost only after the "
    "collector has not heard it for some time.",
)
