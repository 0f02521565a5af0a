"""Sums that cannot overflow: a row that is a lie is one row of one source, and must not end the run for all others."""

from __future__ import annotations

from pyspark.sql import Column, WindowSpec
from pyspark.sql import functions as F

LARGEST_SUM = 2**58
"""Sixteen of these are less than a long holds."""


def total(name: str | Column, over: WindowSpec | None = None) -> Column:
    """The sum of a column of longs, at most `LARGEST_SUM`; exact up to 2^53."""
    column = F.col(name) if isinstance(name, str) else name
    found = F.sum(column.cast("double"))
    if over is not None:
        found = found.over(over)
    return F.when(found > F.lit(float(LARGEST_SUM)), F.lit(LARGEST_SUM)).otherwise(found.cast("long"))
