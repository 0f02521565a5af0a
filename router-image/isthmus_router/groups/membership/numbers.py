"""Numbers of views: they rise with each view, and a peer raises them by bounded steps only.

One view with a number near the end of the range would otherwise leave no number for the next one. Each member may be
taken `FIRST_CREDIT` beyond the number that it has, and `CREDIT_PER_SECOND` more for each second; two parts of a site
that change their views apart from each other for years stay within that, and the range is never used up.
"""

from __future__ import annotations

from isthmus_router.groups.frames import MOST_NUMBER, FrameError

FIRST_CREDIT = 1 << 33
CREDIT_PER_SECOND = 1 << 10
MOST_JOINED = 1 << 61
"""Number of a view that a member without a view joins."""


class ViewNumbers:
    """Of one member."""

    def __init__(self) -> None:
        self.highest = 0
        """The highest number that was seen: the next view is above it."""
        self._credit = float(FIRST_CREDIT)
        self._at: float | None = None

    def check(self, now: float, number: int, *, joins: bool) -> None:
        """Raise FrameError for a number that is too far above the highest one. `joins`: this member has no view."""
        reach = MOST_JOINED if joins else self.highest + self._accrued(now)
        if number > min(reach, MOST_NUMBER):
            raise FrameError(f"view number {number} is too far above {self.highest}")

    def raise_to(self, now: float, number: int, *, joins: bool) -> None:
        """A view of that number was seen. Raises FrameError as `check`."""
        self.check(now, number, joins=joins)
        if number > self.highest:
            if not joins:
                self._credit = self._accrued(now) - (number - self.highest)
            self.highest = number

    def next(self) -> int:
        """One that nobody has used."""
        self.highest += 1
        return self.highest

    def _accrued(self, now: float) -> float:
        if self._at is not None:
            self._credit += (now - self._at) * CREDIT_PER_SECOND
        self._at = now
        return self._credit
