"""What went from one relay site to another, and what did not."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isthmus_flows.tables.inputs import SECOND_US, Inputs, sums_of
from isthmus_flows.tables.spec import Column, OutputTable, count, number, text, time
from isthmus_flows.tables.topology import bucket_of

_PAIR = ("relay_group", "relay_site", "remote_site")
_SUMS = ("sent", "received", "gaps", "duplicates", "replayed", "held_back_us")
_ABOUT_SITES = (
    "site-up",
    "site-suspect",
    "site-unreachable",
    "site-left",
    "session-opened",
    "session-ended",
    "session-refused",
    "messages-dropped",
    "messages-lost",
)


def _rates(inputs: Inputs) -> DataFrame:
    us = F.unix_micros("end_time") - F.unix_micros("start_time")
    rows = inputs.log.relayed.withColumns(
        {
            "bucket": bucket_of(F.col("end_time"), inputs.bucket_seconds),
            "_not_up": F.when(F.col("relays") & (F.col("state") != "up"), us).otherwise(F.lit(0)),
        }
    )
    by_member = rows.groupBy("bucket", *_PAIR, "source").agg(
        *sums_of((*_SUMS, "dropped", "_not_up")),
        F.max("lag_messages").alias("lag_messages"),
        F.max("lag_us").alias("lag_us"),
        F.max(F.struct("relays", "end_time", "state")).alias("_last"),
    )
    # All members that keep a message count it when it is dropped, and all of them see the same state.
    pairs = by_member.groupBy("bucket", *_PAIR).agg(
        *sums_of(_SUMS),
        *[F.max(name).alias(name) for name in ("dropped", "_not_up", "lag_messages", "lag_us", "_last")],
    )
    return pairs.withColumns(
        {
            "state": F.col("_last")["state"],
            "lag_seconds": F.col("lag_us") / F.lit(SECOND_US),
            "held_back_seconds": F.col("held_back_us") / F.lit(SECOND_US),
            "not_up_seconds": F.col("_not_up") / F.lit(SECOND_US),
        }
    )


def _totals(inputs: Inputs) -> DataFrame:
    counts = ("sent", "received", "dropped", "gaps", "duplicates", "replayed")
    return (
        inputs.shared(_rates)
        .groupBy(*_PAIR)
        .agg(
            *sums_of(counts),
            *[F.sum(name).alias(name) for name in ("held_back_seconds", "not_up_seconds")],
            F.max("lag_messages").alias("max_lag_messages"),
            F.max("lag_seconds").alias("max_lag_seconds"),
            F.max_by("state", "bucket").alias("state"),
        )
    )


def _events(inputs: Inputs) -> DataFrame:
    about_a_site = F.when(F.col("event").isin(*_ABOUT_SITES), F.col("subject"))
    return inputs.log.events.where(F.col("type") == "RELAY_EVENT").withColumn("remote_site", about_a_site)


_WHO = (
    text("relay_group"),
    text("relay_site", "Of the members that tell."),
    text("remote_site", "The other one."),
)
_COUNTS: tuple[Column, ...] = (
    count("sent", "Messages to the other site."),
    count("received", "Messages from it."),
)
_TROUBLES: tuple[Column, ...] = (
    count(
        "dropped", "From the buffer: the other site will never have them. The most that one member dropped."
    ),
    count("gaps", "Messages of the other site that never came."),
    count("duplicates", "Of the received ones, here before."),
    count("replayed", "Of those sent, after a session began: the other site may have had them."),
    number("held_back_seconds", "That senders waited for the other site; all members together."),
    number("not_up_seconds", "That the other site was not `up` for the member that carries messages."),
)

RELAY_RATES = OutputTable(
    "relay_rates",
    "Each site with each other one, by bucket.",
    (
        time("bucket"),
        *_WHO,
        text("state", "Of the other site at the end: `up`, `suspect`, `unreachable`, `left` or `unknown`."),
        *_COUNTS,
        count("lag_messages", "Not acknowledged by the other site: the most at the end of an interval."),
        number("lag_seconds", "Age of the oldest of these."),
        *_TROUBLES,
    ),
    _rates,
    ("bucket", "relay_group", "relay_site", "remote_site"),
    "The two directions between two sites are two rows, each told by its own end; what one sent may be received in the "
    "next bucket.",
)

RELAY_TOTALS = OutputTable(
    "relay_totals",
    "The same over the whole window.",
    (
        *_WHO,
        text("state", "In the last bucket."),
        *_COUNTS,
        count("max_lag_messages"),
        number("max_lag_seconds"),
        *_TROUBLES,
    ),
    _totals,
    ("-dropped", "-gaps", "-max_lag_seconds", "relay_group", "relay_site", "remote_site"),
    "`sent` of one end and `received` of the other differ by what was under way at the beginning and at the end, by "
    "what was dropped, and by what was lost with a member that crashed before it told.",
)

RELAY_EVENTS = OutputTable(
    "relay_events",
    "What members of relay sites told of.",
    (
        time("time"),
        text("relay_group"),
        text("relay_site", "Of the member that tells."),
        text("router", "The member's."),
        text("remote_site", "That it is about; null: it is about the own site."),
        text("event", "As docs/flow-records.md lists them."),
        text("subject", "The other site, or a member."),
        text("reason"),
        count("count", "Members, or messages."),
    ),
    _events,
    ("time", "relay_group", "relay_site", "remote_site", "event"),
    "Each member tells of what it sees; one change may be there several times.",
)
