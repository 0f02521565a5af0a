"""Which namespace goes next where all of them share a number of places. Pure.

Each namespace has a count of the turns that it has had. The namespace with the lowest count goes next. This is
start-time fair queueing (Goyal, Vin and Cheng, "Start-time Fair Queuing", SIGCOMM 1996) with a credit: the count of an
idle namespace falls behind that of one that always waits, by at most the credit. So a change that needs a few turns,
one after the other, goes before those that busy namespaces wait for, however many there are. No count gets ahead by
more than the credit either, so that each namespace has its turn again.

A turn that takes long gives its place back and goes on. So a namespace whose turns take long occupies places for a
short time only, whatever was known of it before. The number of such turns is bounded. Namespaces of which it is known
share a part of the places, and the other places remain for namespaces whose turns are short.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import Generic, TypeVar

AGING = 0.25
"""While others wait, a round in which each of them has a turn counts as so much at least for those that do not. So a
namespace has its turn again however many new ones come, whose counts are the lowest."""
REFILL = 2.0
"""While nobody else waits, a turn counts as so much for all namespaces, so that they have their credit again."""

EARLY_PRICE = 0.25
"""What the first turns of a piece of work count as. So short pieces of work go before long ones, and a namespace that
divides its work into short pieces has at most four times as many turns as another one."""

Key = str | None
_Entry = tuple[float, int, Key]
"""The count of a namespace, and the order of entries with the same count."""
_Ticket = TypeVar("_Ticket")


@dataclass
class Turn(Generic[_Ticket]):
    """A turn under way."""

    key: Key
    """The namespace."""
    ticket: _Ticket
    expected: bool
    """Whether the namespace was slow when the turn began."""
    has_place: bool = True


class Turns(Generic[_Ticket]):
    """`total` places, of which one namespace has at most `share` at a time, and all slow namespaces together at most
    `slow_share` (default: `total`), without turns that were late before it was known that they would be. Of these,
    `late_share` go on without a place. `credit` is in turns. Each call takes time in proportion to the logarithm of the
    number of namespaces that wait, and to the number of places."""

    def __init__(
        self,
        total: int,
        share: int,
        credit: float,
        slow_share: int | None = None,
        late_share: int = 0,
    ) -> None:
        self._free = total
        self._share = share
        self._slow_share = total if slow_share is None else slow_share
        self._late_share = late_share
        self._late = {True: 0, False: 0}
        """Turns without a place: those that were expected to be late, and the others."""
        self._places: Counter[Key] = Counter()
        """Places that namespaces have."""
        self._credit = credit
        self._now = 0.0
        """The count of a namespace that has waited all the time."""
        self._taken: dict[Key, float] = {}
        """The counts, those that changed last at the end. A namespace that is not here is at the lowest one."""
        self._waiting: dict[Key, deque[_Ticket]] = {}
        self._under_way: dict[Key, int] = {}
        self._queue: list[_Entry] = []
        """Heap of the namespaces that wait and have fewer turns under way than their share, with their counts."""
        self._slow_queue: list[_Entry] = []
        """The same of slow namespaces."""
        self._queued: dict[Key, _Entry] = {}
        """The entries that count. A namespace that became slow while it waited has an old one in the other heap."""
        self._slow: set[Key] = set()
        self._order = count()
        self._early: dict[Key, int] = {}
        """Turns that count as `EARLY_PRICE`."""

    @property
    def idle(self) -> bool:
        """Whether nothing waits or is under way."""
        return not self._waiting and not self._under_way

    def is_waiting(self, key: Key) -> bool:
        """Return whether a ticket of the namespace waits."""
        return key in self._waiting

    def wait(self, key: Key, ticket: _Ticket) -> None:
        """`ticket` waits for a turn of the namespace `key`."""
        self._waiting.setdefault(key, deque()).append(ticket)
        self._enqueue(key)

    def begin(self, key: Key, early: int) -> None:
        """The namespace begins a piece of work, of which the first `early` turns count as `EARLY_PRICE`."""
        self._early[key] = early

    def forget(self, key: Key) -> None:
        """The namespace begins no more work."""
        self._early.pop(key, None)

    def slow(self, key: Key) -> None:
        """The namespace is slow: its turns take long."""
        self._slow.add(key)
        self._requeue(key)

    def quick(self, key: Key) -> None:
        """The namespace is not slow any more."""
        self._slow.discard(key)
        self._requeue(key)

    def withdraw(self, key: Key, ticket: _Ticket) -> None:
        """`ticket` does not wait any more, if it did."""
        waiting = self._waiting.get(key, deque())
        if ticket in waiting:
            waiting.remove(ticket)
            self._drop_if_empty(key)

    def admit(self) -> Turn[_Ticket] | None:
        """Begin the next turn. Return it, or None if no ticket waits or there is no place."""
        while self._free and (entry := self._lowest()) is not None:
            start, _, key = entry
            del self._queued[key]
            if key not in self._waiting:
                continue
            if self._taken.get(key, start) > start:  # a turn has ended meanwhile, and was counted
                self._enqueue(key)
                continue
            ticket = self._waiting[key].popleft()
            self._drop_if_empty(key)
            self._free -= 1
            self._places[key] += 1
            self._under_way[key] = self._under_way.get(key, 0) + 1
            self._now = max(self._now, start)
            self._count(key, start, self._price(key))
            self._enqueue(key)
            return Turn(key, ticket, key in self._slow)
        return None

    def late(self, turn: Turn[_Ticket]) -> bool:
        """The turn takes long. Return whether it may go on; it has no place any more then. Too many others may do so
        already: it must end."""
        if not turn.expected and self._late[False] >= self._late_share:
            return False
        self._late[turn.expected] += 1
        turn.has_place = False
        self._give_back(turn.key)
        return True

    def leave(self, turn: Turn[_Ticket], cost: float = 0.0) -> None:
        """The turn has ended, and counts as `cost` more."""
        key = turn.key
        if turn.has_place:
            self._give_back(key)
        else:
            self._late[turn.expected] -= 1
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]
        self._count(key, self._start(key), cost)
        self._enqueue(key)

    def _give_back(self, key: Key) -> None:
        self._free += 1
        self._places[key] -= 1
        if not self._places[key]:
            del self._places[key]

    def _price(self, key: Key) -> float:
        early = self._early.pop(key, 0)
        if early > 1:
            self._early[key] = early - 1
        return EARLY_PRICE if early else 1.0

    def _start(self, key: Key) -> float:
        lowest = self._now - self._credit
        return max(lowest, self._taken.get(key, lowest))

    def _count(self, key: Key, before: float, cost: float) -> None:
        others = len(self._waiting) - (key in self._waiting)
        self._now += cost * (AGING / others if others else REFILL)
        self._taken.pop(key, None)
        self._taken[key] = min(before + cost, self._now + self._credit)
        while self._taken and self._taken[oldest := next(iter(self._taken))] <= self._now - self._credit:
            del self._taken[oldest]

    def _enqueue(self, key: Key) -> None:
        if key in self._waiting and key not in self._queued and self._under_way.get(key, 0) < self._share:
            entry = self._queued[key] = (self._start(key), next(self._order), key)
            heapq.heappush(self._slow_queue if key in self._slow else self._queue, entry)

    def _requeue(self, key: Key) -> None:
        """The namespace may have become slow, or is slow no more."""
        if self._queued.pop(key, None) is not None:
            self._enqueue(key)

    def _lowest(self) -> _Entry | None:
        """Remove and return the entry of the namespace that goes next, or None if none may."""
        slow = self._late[True] + sum(number for key, number in self._places.items() if key in self._slow)
        queues = [self._queue] if slow >= self._slow_share else [self._queue, self._slow_queue]
        for queue in queues:
            while queue and self._queued.get(queue[0][2]) is not queue[0]:
                heapq.heappop(queue)
        filled = [queue for queue in queues if queue]
        return heapq.heappop(min(filled, key=itemgetter(0))) if filled else None

    def _drop_if_empty(self, key: Key) -> None:
        if not self._waiting[key]:
            del self._waiting[key]
