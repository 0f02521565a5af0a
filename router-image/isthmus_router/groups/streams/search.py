"""One search for missing batches: whom was asked, who has not got them, when to ask again."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.streams.positions import Places
from isthmus_router.groups.streams.wire import Missing

_NOTHING = (2**63, 0, 0)


class Search:
    """Starts anew whenever the first missing number has changed."""

    __slots__ = ("_lacked", "_missing", "_turn", "backoff", "due", "first", "since")

    def __init__(self, now: float, due: float, backoff: float) -> None:
        self.due = due
        """When to ask."""
        self.backoff = backoff
        """Until it is asked once more, without an answer."""
        self.since = now
        """It is missing."""
        self.first = -1
        self._missing = 0
        """Bits of the places of those who said that they have not got the first."""
        self._lacked = _NOTHING
        self._turn = 0

    def restart(self, now: float, due: float, backoff: float) -> None:
        """What was missing has come, or others are to be asked."""
        self.due, self.backoff, self.since = due, backoff, now
        self.forget_answers()
        self._turn = 0
        self.first = -1

    def lacks(self, place: int, missing: Missing) -> None:
        """A member says that it has not got the first."""
        self._missing |= 1 << place
        last, following, messages = self._lacked
        if missing.last < last:
            last, messages = missing.last, missing.messages
        elif missing.last == last:
            messages = max(messages, missing.messages)
        self._lacked = last, max(following, missing.next), messages

    def forget_answers(self) -> None:
        """All may be asked once more."""
        self._missing, self._lacked = 0, _NOTHING

    def left(self, order: Sequence[MemberId], places: Places) -> list[MemberId]:
        """Those that have not said that they lack it."""
        if not self._missing:
            return list(order)
        return [member for member in order if not self._missing >> places.give(member) & 1]

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
        return self._lacked
