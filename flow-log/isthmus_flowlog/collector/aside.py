"""Files and folders of a log that could not be used: named once, counted, and left alone for a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pyarrow as pa
from prometheus_client import Counter

logger = logging.getLogger("STORE")

ASIDE_SECONDS = 3600.0
"""Until it is tried again."""
MOST_ASIDE = 10_000
"""Paths; beyond that the oldest are tried again earlier."""
LONGEST_REASON = 300
"""Characters."""


class Aside:
    """Paths that are not to be tried now."""

    def __init__(self, errors: Counter, clock: Callable[[], float] = time.monotonic) -> None:
        self._errors = errors
        self._clock = clock
        self._until: dict[str, float] = {}

    def put(self, path: str, error: Exception, purpose: str) -> None:
        """What could not be `merged`, for example."""
        self._errors.inc()
        self._until.pop(path, None)
        while len(self._until) >= MOST_ASIDE:
            del self._until[next(iter(self._until))]
        self._until[path] = self._clock() + ASIDE_SECONDS
        expected = isinstance(error, OSError | ValueError | pa.ArrowException)
        logger.error(
            f"part of the log cannot be {purpose}",
            extra={"path": path, "reason": f"{type(error).__name__}: {error}"[:LONGEST_REASON]},
            exc_info=None if expected else error,
        )

    def __contains__(self, path: str) -> bool:
        until = self._until.get(path)
        if until is not None and until <= self._clock():
            del self._until[path]
            return False
        return until is not None
