"""Rows that cannot be true: something required is missing, time runs backwards, a number is beyond its bounds.

What is left out here does no harm after it: sums do not overflow, times can be shown, strings are short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    (first, wrong), *rules = _rules(table)
    reason = F.when(wrong, F.lit(first))
    for text, wrong in rules:
        reason = reason.when(wrong, F.lit(text))
    return reason


def _rules(table: Table) -> Iterator[tuple[str, Column]]:
    for column in table.columns:
        if column.required:
            yield f"{column.name} is null", F.col(column.name).isNull()
    names = {column.name for column in table.columns}
    of_kind = {kind: [item.name for item in table.columns if item.kind is kind] for kind in Kind}
    if {"start_time", "end_time"} <= names:
        yield "it ends before it begins", F.col("end_time") < F.col("start_time")
    moments = [F.unix_micros(name) for name in of_kind[Kind.TIME]]
    yield (
        "it has a time that cannot be",
        (_greatest(moments) > F.lit(LAST_TIME)) | (-_greatest([-moment for moment in moments]) < FIRST_TIME),
    )
    if table.name in OF_INTERVALS:
        length = F.unix_micros("end_time") - F.unix_micros("start_time")
        yield "it lasts longer than 400 days", length > F.lit(LONGEST_INTERVAL)
    for column in table.columns:
        if column.kind is Kind.LONG:
            yield f"{column.name} is negative", F.col(column.name) < 0
        if column.kind is Kind.SKETCH:
            yield (
                f"{column.name} has counts that cannot be",
                F.exists(
                    F.map_values(column.name),
                    lambda count: count.isNull() | (count <= 0) | (count > F.lit(LARGEST_COUNT)),
                )
                | F.exists(F.map_keys(column.name), lambda bucket: (bucket < 0) | (bucket > LARGEST_BUCKET)),
            )
    largest = {table.largest(column) for column in table.columns if column.kind is Kind.LONG}
    for bound in sorted(largest):
        within = [
            F.col(item.name)
            for item in table.columns
            if item.kind is Kind.LONG and table.largest(item) == bound
        ]
        yield f"it has a number above {bound}", _greatest(within) > F.lit(bound)
    lengths = [F.octet_length(name) for name in of_kind[Kind.STRING]]
    yield f"it has a string of more than {LONGEST_TEXT} bytes", _greatest(lengths) > LONGEST_TEXT
    told = F.floor(F.unix_seconds(F.col(table.time)) / F.lit(3600))
    yield f"{table.time} is of another hour than its folder", told != F.col(HOUR)


def _greatest(columns: Sequence[Column]) -> Column:
    """Of those that are not null."""
    return F.greatest(*columns) if len(columns) > 1 else columns[0]
