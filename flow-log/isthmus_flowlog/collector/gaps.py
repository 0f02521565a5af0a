"""Notices numbers that are missing from a count, in whatever order they come.

What a source sends comes on several links, which may overtake one another: a number is missed only when it has not
come for a while.
"""

from __future__ import annotations

from isthmus_flowlog.schema import LARGEST_COUNT

MOST_AWAITED = 1000
"""Numbers that may still come; when more are missing at a time, the rest is missed at once."""


class Gaps:
    """Of one count, from the first number heard on. Times are in microseconds."""

    __slots__ = ("_awaited", "_most", "_next", "_slack", "missed")

    def __init__(self, slack_us: int, most_awaited: int = MOST_AWAITED) -> None:
        """A number is missed when it has not come `slack_us` after a higher one."""
        self._slack = slack_us
        self._most = most_awaited
        self._next: int | None = None
        self._awaited: dict[int, int] = {}
        """Until when, by number; the oldest first."""
        self.missed = 0
        """Numbers that have not come in time."""

    def heard(self, number: int, now: int) -> None:
        """A number has come. One that was missed already does not count back."""
        if self._next is None or number == self._next:
            self._next = number + 1
        elif number < self._next:
            self._awaited.pop(number, None)
        else:
            skipped = number - self._next
            awaited = min(skipped, max(0, self._most - len(self._awaited)))
            for missing in range(number - awaited, number):
                self._awaited[missing] = now + self._slack
            self.missed = min(self.missed + skipped - awaited, LARGEST_COUNT)
            self._next = number + 1

    @property
    def open(self) -> bool:
        """Whether there are numbers that may still come."""
        return bool(self._awaited)

    def overdue(self, now: int) -> int:
        """How many numbers have been missed altogether, after those that should have come by now."""
        while self._awaited:
            number = next(iter(self._awaited))
            if self._awaited[number] > now:
                break
            del self._awaited[number]
            self.missed += 1
        return self.missed

    def give_up(self) -> None:
        """Nothing is awaited any more: what has not come is missed."""
        self.missed += len(self._awaited)
        self._awaited.clear()
