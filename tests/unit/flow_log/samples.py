"""Rows for tests of what becomes of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from isthmus_flowlog.collector.columns import LAYOUTS, Row
from isthmus_flowlog.collector.rows import to_arrow
from isthmus_flowlog.schema import DELIVERIES, Kind

HOUR = datetime(2026, 11, 23, 8, tzinfo=UTC).timestamp()
"""The beginning of the hour in which things happen here; seconds since the epoch."""


def delivery(number: int, at: float = 0.0, **values: Any) -> Row:
    """A row of `deliveries`; `at` is its time, in seconds from `HOUR`."""
    microseconds = round((HOUR + at) * 1e6)
    wanted: dict[str, Any] = {
        "identity": f"abcde:{number}",
        "source": "abcde:0",
        "start_time": microseconds - 1,
        "end_time": microseconds,
        "sequence": number,
        "direction": "in",
        "heard_at": microseconds,
        "sizes": [(40, number)],
        **values,
    }
    zeros = {column.name: 0 for column in DELIVERIES.columns if column.required and column.kind is Kind.LONG}
    return tuple((zeros | wanted).get(name) for name in LAYOUTS["deliveries"].names)


def deliveries(numbers: range, at: float = 0.0) -> pa.Table:
    """Rows a second apart."""
    table, unfit = to_arrow(
        "deliveries", [delivery(number, at + index) for index, number in enumerate(numbers)]
    )
    assert not unfit
    return table


def identities(table: pa.Table) -> list[str]:
    """Of rows, in order."""
    found: list[str] = table.column("identity").to_pylist()
    return found
