"""How the sources share the time of the thread that reads their messages.

While messages take more than a part of a processor, a source that takes more than its share gets no credit: the share
is such that all sources together take that part, and those that take less get all that they take. What comes by
earlier credit is read, unless the source has taken very much. Sans-IO.
"""

from __future__ import annotations

from math import exp, inf

PART = 0.5
"""Of a processor; the rest is for rows, files and answers."""
WINDOW_SECONDS = 1.0
"""For which time is remembered, on average."""
STEP_SECONDS = 0.02
"""Of the processor, after which shares are computed again."""
MOST_SECONDS = 0.6
"""Of the processor in the window, up to which a source is read also beyond its share: 20,000 records take 0.5."""
NEGLIGIBLE_SECONDS = 1e-6


class Turns:
    """Of one thread. Times are in seconds."""

    def __init__(self, now: float) -> None:
        self._taken: dict[str, float] = {}
        """Of the processor, by source, in the last second or so."""
        self._share = inf
        self._since = 0.0
        """Taken since shares were computed."""
        self._at = now

    def may_have_credit(self, source: str) -> bool:
        """Whether it has taken less than its share."""
        return self._taken.get(source, 0.0) < self._share

    def may_be_read(self, source: str) -> bool:
        """Whether a message that has come is read."""
        return self._taken.get(source, 0.0) < max(self._share, MOST_SECONDS)

    def took(self, source: str, seconds: float, now: float) -> None:
        """A message of the source has taken that much of the processor."""
        self._taken[source] = self._taken.get(source, 0.0) + seconds
        self._since += seconds
        if self._since >= STEP_SECONDS:
            self.tick(now)

    def tick(self, now: float) -> None:
        """Time has passed."""
        left = exp(-max(0.0, now - self._at) / WINDOW_SECONDS)
        self._at, self._since = now, 0.0
        decayed = ((source, taken * left) for source, taken in self._taken.items())
        self._taken = {source: taken for source, taken in decayed if taken > NEGLIGIBLE_SECONDS}
        self._share = self._fair()

    def _fair(self) -> float:
        free, left = PART * WINDOW_SECONDS, len(self._taken)
        for taken in sorted(self._taken.values()):
            if taken * left >= free:
                return free / left
            free -= taken
            left -= 1
        return inf
