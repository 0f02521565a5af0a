"""How many lines of a kind the log gets, whatever routers and sources do. Sans-IO."""

from __future__ import annotations

from typing import Final

MOST: Final = 20
"""Of a kind, in a span of time."""
SPAN_US: Final = 10_000_000


class Lines:
    """Those of one process."""

    def __init__(self) -> None:
        self._kinds: dict[str, tuple[int, int]] = {}
        """Since when, and how many."""

    def allow(self, kind: str, now: int) -> bool:
        """Whether one more may be written. `now`: in microseconds."""
        since, count = self._kinds.get(kind, (now, 0))
        if not since <= now < since + SPAN_US:
            since, count = now, 0
        self._kinds[kind] = since, count + 1
        return count < MOST
