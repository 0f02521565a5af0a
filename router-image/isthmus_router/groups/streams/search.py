"""One search for missing batches: whom was asked, who has not got them, when to ask again."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.streams.wire import Missing


class Search:
    """Starts anew whenever the first missing number has changed."""

    __slots__ = ("_turn", "backoff", "due", "first", "missing", "since")

    def __init__(self, now: float, due: float, backoff: float) -> None:
        self.due = due
        """When to ask."""
        self.backoff = backoff
        """Until it is asked once more, without an answer."""
        self.since = now
        """It is missing."""
        self.first = -1
        self.missing: dict[MemberId, Missing] = {}
        """Who said that it has not got the first."""
        self._turn = 0

    def restart(self, now: float, due: float, backoff: float) -> None:
        """What was missing has come, or others are to be asked."""
        self.due, self.backoff, self.since = due, backoff, now
        self.missing.clear()
        self._turn = 0
        self.first = -1

    def left(self, order: Sequence[MemberId]) -> list[MemberId]:
        """Those that have not said that they lack it."""
        return [member for member in order if member not in self.missing]

    def next_of(self, members: Sequence[MemberId]) -> MemberId:
        """Whom of these to ask now."""
        member = members[self._turn % len(members)]
        self._turn += 1
        return member

    def asked(self, now: float, longest: float) -> None:
        """Wait for the answer."""
        self.due = now + self.backoff
        self.backoff = min(self.backoff * 2, longest)

    @property
    def lacked(self) -> tuple[int, int, int]:
        """Of all that said so: up to where everyone lacks it; the highest `next`; messages before, 0 if unknown."""
        answers = self.missing.values()
        last = min((answer.last for answer in answers), default=2**63)
        messages = max((answer.messages for answer in answers if answer.last == last), default=0)
        return last, max((answer.next for answer in answers), default=0), messages
