"""What a member keeps of one origin: for those that lack it, and for the sites that it has to be relayed to."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from isthmus_router.groups.batch import Batch

MOST_SKIPPED = 10_000
"""Ranges that are remembered."""


class Skipped(NamedTuple):
    """Numbers, both included, without which the stream has gone on."""

    first: int
    last: int
    messages: int
    """That were lost in them; 0: they were not for this site."""


def _number(batch: Batch) -> int:
    return batch.number


class Log:
    """Batches in ascending order; between two of them some may be missing for ever (a gap)."""

    __slots__ = ("_batches", "_skipped", "bytes", "messages", "next", "site")

    def __init__(self, site: str, number: int, messages: int) -> None:
        """Empty; `number` is the first that will be delivered."""
        self._batches: deque[Batch] = deque()
        self._skipped: deque[Skipped] = deque(maxlen=MOST_SKIPPED)
        self.site = site
        """Of the origin; "" while it is not known."""
        self.next = number
        """The number that is delivered next; 0: it is not known where the stream begins."""
        self.messages = messages
        """Of the origin, in batches before `next`."""
        self.bytes = 0

    @property
    def count(self) -> int:
        """Batches that are here."""
        return len(self._batches)

    @property
    def low(self) -> int:
        """The lowest number that is here; `next` if there is none."""
        return self._batches[0].number if self._batches else self.next

    def get(self, number: int) -> Batch | None:
        """The batch, if it is here."""
        at = self._at(number)
        if at < len(self._batches) and (batch := self._batches[at]).number == number:
            return batch
        return None

    def batches(self, from_number: int) -> Iterator[Batch]:
        """Those from a number on, ascending; numbers that are left out are gone. Not to be kept across turns."""
        for at in range(self._at(from_number), len(self._batches)):
            yield self._batches[at]

    def append(self, batch: Batch) -> None:
        """The one that is delivered now."""
        self._batches.append(batch)
        self.bytes += batch.size
        self.next = batch.number + 1
        self.messages = batch.first + batch.count

    def skip(self, last: int, messages: int, *, known: bool) -> None:
        """Go on after a number, without so many messages; `known`: that is what others are to be told, too."""
        first, self.next = self.next, last + 1
        self.messages += messages
        if not known:
            return
        before = self._skipped[-1] if self._skipped else None
        if before and before.last == first - 1 and not before.messages and not messages:
            self._skipped[-1] = before._replace(last=last)
        else:
            self._skipped.append(Skipped(first, last, messages))

    def skipped(self, first: int, last: int) -> Iterator[Skipped]:
        """Ranges with numbers between two, both included, ascending."""
        return (each for each in self._skipped if each.last >= first and each.first <= last)

    def insert(self, batch: Batch) -> bool:
        """One from before `next`, that somebody else had; False if it is here."""
        at = self._at(batch.number)
        if at < len(self._batches) and self._batches[at].number == batch.number:
            return False
        self._batches.insert(at, batch)
        self.bytes += batch.size
        return True

    def trim(self, number: float) -> None:
        """Forget those up to a number."""
        batches = self._batches
        while batches and batches[0].number <= number:
            self.bytes -= batches.popleft().size
        while self._skipped and self._skipped[0].last <= number:
            self._skipped.popleft()

    def _at(self, number: int) -> int:
        """Where it is, or where it would be. Without gaps that is known without a search."""
        batches = self._batches
        if not batches or number >= self.next:
            return len(batches)
        guess = len(batches) - (self.next - number)
        if guess >= 0 and batches[guess].number == number:
            return guess
        return bisect_left(batches, number, key=_number)
