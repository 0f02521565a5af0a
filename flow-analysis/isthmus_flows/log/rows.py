"""Rows that cannot be true: something required is missing, time runs backwards, a number is beyond its bounds.

What is left out here does no harm after it: sums do not overflow, times can be shown, strings are short.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F

from isthmus_flowlog.schema import (
    FIRST_TIME,
    LARGEST_BUCKET,
    LARGEST_COUNT,
    LAST_TIME,
    LONGEST_INTERVAL,
    LONGEST_TEXT,
    OF_INTERVALS,
    Kind,
    Table,
)
from isthmus_flows.log.places import HOUR

REASON = "_impossible"


def impossible(table: Table) -> Column:
    """Why a row of a table cannot be true, null for one that can. The row has the column `HOUR`."""
    reason = F.lit(None).cast("string")
    for text, wrong in reversed(list(_rules(table))):
        reason = F.when(wrong, F.lit(text)).otherwise(reason)
    return reason


def _rules(table: Table) -> Iterator[tuple[str, Column]]:
    for column in table.columns:
        if column.required:
            yield f"{column.name} is null", F.col(column.name).isNull()
    names = {column.name for column in table.columns}
    if {"start_time", "end_time"} <= names:
        yield "it ends before it begins", F.col("end_time") < F.col("start_time")
    for column in table.columns:
        if column.kind is Kind.TIME:
            moment = F.unix_micros(column.name)
            yield f"{column.name} is no time that can be", (moment < FIRST_TIME) | (moment > F.lit(LAST_TIME))
    if table.name in OF_INTERVALS:
        length = F.unix_micros("end_time") - F.unix_micros("start_time")
        yield "it lasts longer than 400 days", length > F.lit(LONGEST_INTERVAL)
    for column in table.columns:
        if column.kind is Kind.LONG:
            yield f"{column.name} is negative", F.col(column.name) < 0
            yield (
                f"{column.name} is larger than it can be",
                F.col(column.name) > F.lit(table.largest(column)),
            )
        if column.kind is Kind.STRING:
            yield f"{column.name} is too long", F.length(column.name) > LONGEST_TEXT
        if column.kind is Kind.SKETCH:
            yield (
                f"{column.name} has counts that cannot be",
                F.exists(
                    F.map_values(column.name),
                    lambda count: count.isNull() | (count <= 0) | (count > F.lit(LARGEST_COUNT)),
                )
                | F.exists(F.map_keys(column.name), lambda bucket: (bucket < 0) | (bucket > LARGEST_BUCKET)),
            )
    told = F.floor(F.unix_seconds(F.col(table.time)) / F.lit(3600))
    yield f"{table.time} is of another hour than its folder", told != F.col(HOUR)
