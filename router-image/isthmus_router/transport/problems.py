"""What keeps peers from belonging together, for people: told in the log once, and in the status for a while."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable

SECONDS = 60.0
"""That a problem is told after it was last seen."""
MOST = 8
LONGEST_REASON = 1024
"""Characters; peers choose some of them."""
_LOG_SECONDS = 1.0
"""Between lines, when there are more problems than are kept."""


class Problems:
    """The latest ones of one member."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        self._logger = logger
        self._clock = clock
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._logged_at = -math.inf

    def tell(self, who: str, reason: str) -> None:
        """There is one, or still is; logged if it is not known yet."""
        now = self._clock()
        reason = reason[:LONGEST_REASON]
        problem = f"{who}: {reason}"
        known = now < self._seen.pop(problem, -math.inf) + SECONDS
        many = len(self._seen) >= MOST
        if not known and not (many and now < self._logged_at + _LOG_SECONDS):
            self._logged_at = now
            self._logger.warning(
                "relay site problem", extra={"event": "relay.problem", "peer": who, "reason": reason}
            )
        if many:
            self._seen.popitem(last=False)
        self._seen[problem] = now

    def solved(self, who: str, reason: str) -> None:
        """There is no such problem any more."""
        self._seen.pop(f"{who}: {reason[:LONGEST_REASON]}", None)

    def recent(self) -> tuple[str, ...]:
        """As `who: reason`, the latest last."""
        least = self._clock() - SECONDS
        return tuple(problem for problem, at in self._seen.items() if at > least)
