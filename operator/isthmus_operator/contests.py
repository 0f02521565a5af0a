"""Objects that somebody else changes back again and again, such as another installation of the operator.

A single change is corrected at once. After several ones within minutes, the pause before the next correction grows, so
that two writers do not restart pods without end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass

MOST_CHANGES = 5
"""Changes of one object within `PERIOD_SECONDS` that are corrected at once."""
PERIOD_SECONDS = 300.0
FIRST_PAUSE_SECONDS = 60.0
MAX_PAUSE_SECONDS = 1920.0
"""Each pause is twice as long as the one before, up to this."""


@dataclass
class _Contest:
    began: float
    changes: int = 0
    seen: Hashable = None
    """The version in which the object was last changed by somebody else."""
    last: float = 0.0
    pause: float = 0.0
    until: float = 0.0


class Contests:
    """The objects that somebody else has changed. `most_changes` of one within `PERIOD_SECONDS` are corrected at once.
    `clock` is monotonic, in seconds."""

    def __init__(
        self,
        clock: Callable[[], float],
        most_pause: float = MAX_PAUSE_SECONDS,
        *,
        first_pause: float = FIRST_PAUSE_SECONDS,
        most_changes: int = MOST_CHANGES,
    ) -> None:
        self._clock = clock
        self._most_pause = most_pause
        self._first_pause = first_pause
        self._most_changes = most_changes
        self._contests: dict[Hashable, _Contest] = {}

    def __len__(self) -> int:
        return len(self._contests)

    def changed(self, key: Hashable, version: Hashable) -> bool:
        """Somebody else has made this version of an object that the operator had written. Return whether a pause
        begins."""
        now = self._clock()
        found = self._contests.get(key)
        if found is None or self._is_over(found):
            found = self._contests[key] = _Contest(now)
        if found.seen == version:
            return False
        if not found.pause and now - found.began > PERIOD_SECONDS:
            found.began, found.changes = now, 0
        found.seen, found.last = version, now
        found.changes += 1
        if found.changes > self._most_changes:
            found.pause = min(self._most_pause, 2 * found.pause or self._first_pause)
            found.until = now + found.pause
        return found.changes > self._most_changes

    def forget(self, key: Hashable) -> None:
        """Forgets an object."""
        self._contests.pop(key, None)

    def holds(self, key: Hashable) -> bool:
        """Return whether the object is not to be written now."""
        found = self._contests.get(key)
        return found is not None and self._clock() < found.until

    def is_contested(self, key: Hashable) -> bool:
        """Return whether writes of the object have waited, and it is not long ago that somebody else changed it."""
        found = self._contests.get(key)
        return found is not None and found.pause > 0 and not self._is_over(found)

    def _is_over(self, found: _Contest) -> bool:
        return self._clock() - max(found.last, found.until) > PERIOD_SECONDS

    def retain(self, keys: Collection[Hashable]) -> None:
        """Forgets objects other than these."""
        self._contests = {key: item for key, item in self._contests.items() if key in keys}

    def due(self, since: float) -> float | None:
        """Return after how many seconds the next pause ends, without those that ended before `since`."""
        ends = [item.until for item in self._contests.values() if item.until > since]
        return max(0.1, min(ends) - self._clock()) if ends else None
