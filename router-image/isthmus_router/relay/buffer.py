"""What other sites have acknowledged, and so what has to be kept for them: within bounds.

Every member keeps count of its own batches; a holder of those of all origins of the site. The batches themselves are
in the streams, which ask `relayed` before they forget any. Source: the RELAY design's buffer of "the last N messages,
or M bytes, or for T seconds"; here a batch goes when all sites have acknowledged it, and the bounds are for the rest.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from isthmus_router.groups.batch import Batch
from isthmus_router.groups.identity import MemberId
from isthmus_router.relay.settings import RelaySettings

MOST_REMEMBERED = 4_096
"""Dropped batches of one origin,"""
MOST_REMEMBERED_TOGETHER = 65_536
"""and of all."""
_ALL_SITES = -1


class _Kept(NamedTuple):
    number: int
    since: float
    messages: int
    size: int
    batch: Batch
    """The streams have it for at least as long."""

    def is_for(self, site: str) -> bool:
        return self.batch.is_for(site)


class _Gone(NamedTuple):
    """A batch that was dropped."""

    number: int
    messages: int
    sites: int
    """Bits of the sites, of those that were configured, that it was for; all bits: of any."""


class Backlog(NamedTuple):
    """What a site has not acknowledged."""

    messages: int
    bytes: int
    seconds: float
    """For which the oldest of it has been here."""


@dataclass(slots=True)
class _Queue:
    """Of one origin, ascending."""

    entries: deque[_Kept] = field(default_factory=deque)
    messages: int = 0
    bytes: int = 0


class _Waiting:
    """What one site has not acknowledged, in the order of each origin; so that to ask how much costs nothing."""

    def __init__(self) -> None:
        self._of: dict[MemberId, _Queue] = {}
        self.messages = 0
        self.bytes = 0

    def add(self, origin: MemberId, entries: list[_Kept], *, before: bool) -> None:
        """Ascending ones, before or after all that are here."""
        queue = self._of.setdefault(origin, _Queue())
        if before:
            queue.entries.extendleft(reversed(entries))
        else:
            queue.entries.extend(entries)
        self._count(queue, sum(entry.messages for entry in entries), sum(entry.size for entry in entries))

    def remove(self, origin: MemberId, number: float) -> None:
        """Those up to a number."""
        queue = self._of.get(origin)
        if queue is None:
            return
        entries = queue.entries
        while entries and entries[0].number <= number:
            entry = entries.popleft()
            self._count(queue, -entry.messages, -entry.size)
        if not entries:
            del self._of[origin]

    def of(self, origin: MemberId) -> tuple[int, int]:
        """Messages and bytes of one origin."""
        queue = self._of.get(origin)
        return (queue.messages, queue.bytes) if queue else (0, 0)

    @property
    def since(self) -> float:
        """When the oldest came; `inf` if there is none."""
        return min((queue.entries[0].since for queue in self._of.values()), default=inf)

    def _count(self, queue: _Queue, messages: int, size: int) -> None:
        queue.messages += messages
        queue.bytes += size
        self.messages += messages
        self.bytes += size


class Buffer:
    """By origin and number; sites by name."""

    def __init__(self, settings: RelaySettings) -> None:
        self._settings = settings
        self._kept: dict[MemberId, deque[_Kept]] = {}
        self._dropped: dict[MemberId, int] = {}
        """Up to which number batches of the origin were dropped."""
        self.acked: dict[str, dict[MemberId, int]] = {}
        self._waiting: dict[str, _Waiting] = {}
        self.contacted: set[str] = set()
        """Sites that have been relayed to before: they miss what is gone."""
        self._gone: dict[MemberId, deque[_Gone]] = {}
        """What was dropped last: whether it was for a site is not known otherwise."""
        self._remembered = 0
        """Batches in it."""
        self._bits: dict[str, int] = {}
        """Of sites that are, or were, configured."""
        self.dropped: Counter[str] = Counter()
        """Messages for a site that were dropped, ever."""
        self.messages = 0
        self.bytes = 0
        self.configure(settings)

    def configure(self, settings: RelaySettings) -> None:
        """Other bounds, and sites, hold from now on."""
        self._settings = settings
        self.acked = {site: self.acked.get(site, {}) for site in settings.sites}
        self._waiting = {site: self._waiting[site] for site in settings.sites if site in self._waiting}
        for site in settings.sites:
            self._bits.setdefault(site, 1 << len(self._bits))
            if site not in self._waiting:
                self._waiting[site] = _Waiting()
                for origin, kept in self._kept.items():
                    self._await(origin, list(kept), site)

    def acknowledged(self, site: str, origin: MemberId) -> int:
        """Up to which number; 0: none."""
        return self.acked.get(site, {}).get(origin, 0)

    def relayed(self, origin: MemberId) -> float:
        """Up to which number batches are needed no more; `inf`: there are no other sites."""
        acked = min((numbers.get(origin, 0) for numbers in self.acked.values()), default=inf)
        return max(acked, self._dropped.get(origin, 0))

    def take(self, now: float, batch: Batch) -> None:
        """A batch of an origin of this site is here, the next of it."""
        self.adopt(now, batch.origin, (batch,))
        self.shrink()

    def shrink(self) -> None:
        """Drop what is too much, the oldest first."""
        while self._full:
            self._drop_oldest()

    def adopt(self, now: float, origin: MemberId, batches: Iterable[Batch]) -> None:
        """Keep count of an origin's batches, also of older ones than are counted yet; ascending. To be followed by
        `shrink`."""
        kept = self._kept.setdefault(origin, deque())
        relayed = self.relayed(origin)
        older: list[_Kept] = []
        newer: list[_Kept] = []
        first, last = (kept[0].number, kept[-1].number) if kept else (inf, inf)
        for batch in batches:
            entry = _Kept(batch.number, now, batch.count, batch.size, batch)
            if relayed < batch.number < first:
                older.append(entry)
            elif batch.number > last:
                newer.append(entry)
            else:
                continue
            self.messages += batch.count
            self.bytes += batch.size
        kept.extendleft(reversed(older))
        kept.extend(newer)
        for site in self._waiting:
            self._await(origin, older, site, before=True)
            self._await(origin, newer, site)

    def _await(self, origin: MemberId, entries: list[_Kept], site: str, *, before: bool = False) -> None:
        acked = self.acknowledged(site, origin)
        own = [entry for entry in entries if entry.number > acked and entry.is_for(site)]
        if own:
            self._waiting[site].add(origin, own, before=before)

    def acknowledge(self, site: str, origin: MemberId, number: int) -> bool:
        """A site has all batches of the origin up to the number; False: that was known."""
        numbers = self.acked.get(site)
        if numbers is None or numbers.get(origin, 0) >= number:
            return False
        numbers[origin] = number
        self._waiting[site].remove(origin, number)
        self._trim(origin)
        return True

    def only(self, own: MemberId) -> None:
        """This member is no holder any more: of other origins nothing is kept."""
        for origin in [origin for origin in self._kept if origin != own]:
            self.forget(origin)

    def forget(self, origin: MemberId) -> None:
        """Nothing is kept of an origin any more."""
        for waiting in self._waiting.values():
            waiting.remove(origin, inf)
        for entry in self._kept.pop(origin, ()):
            self._discount(entry)

    def origins(self) -> set[MemberId]:
        """All that something is known of."""
        return self._kept.keys() | self._dropped.keys() | set().union(*self.acked.values())

    def forget_all(self, gone: Iterable[MemberId]) -> None:
        """Origins whose streams are forgotten."""
        for origin in gone:
            self.forget(origin)
            self._dropped.pop(origin, None)
            self._remembered -= len(self._gone.pop(origin, ()))
            for numbers in self.acked.values():
                numbers.pop(origin, None)

    def gone(self, site: str, origin: MemberId, from_number: int, end: int) -> tuple[int, int]:
        """Messages that were dropped here from a number on and before another: for the site, and for others only."""
        counts = [0, 0]
        gone = self._gone.get(origin)
        if not gone or gone[-1].number < from_number:
            return 0, 0
        bit = self._bits.get(site, 0)
        for entry in gone:
            if from_number <= entry.number < end:
                counts[not entry.sites & bit] += entry.messages
        return counts[0], counts[1]

    def on_time(self, now: float, reachable: Callable[[str], bool]) -> None:
        """Drop what has been here for too long; not what sites that are reached are to get yet."""
        while self._full or (
            now - self._oldest > self._settings.buffer_seconds and not self._is_awaited(reachable)
        ):
            self._drop_oldest()

    def _is_awaited(self, reachable: Callable[[str], bool]) -> bool:
        """The oldest, by a site that is reached."""
        origin = self._oldest_of
        entry = self._kept[origin][0]
        return any(
            entry.is_for(site) and numbers.get(origin, 0) < entry.number and reachable(site)
            for site, numbers in self.acked.items()
        )

    def waiting(self, site: str, origin: MemberId | None = None) -> tuple[int, int]:
        """Messages and bytes, of an origin or of all, that the site has not acknowledged."""
        waiting = self._waiting[site]
        return (waiting.messages, waiting.bytes) if origin is None else waiting.of(origin)

    def backlog(self, now: float, site: str) -> Backlog:
        """What the site has not acknowledged of what is kept count of."""
        waiting = self._waiting[site]
        return Backlog(waiting.messages, waiting.bytes, now - min(now, waiting.since))

    @property
    def _full(self) -> bool:
        settings = self._settings
        return self.messages > settings.buffer_messages or self.bytes > settings.buffer_bytes

    @property
    def _oldest(self) -> float:
        return min((kept[0].since for kept in self._kept.values() if kept), default=inf)

    @property
    def _oldest_of(self) -> MemberId:
        return min(
            (origin for origin, kept in self._kept.items() if kept),
            key=lambda origin: self._kept[origin][0].since,
        )

    def _drop_oldest(self) -> None:
        origin = self._oldest_of
        entry = self._kept[origin][0]
        for site, numbers in self.acked.items():
            if entry.is_for(site) and numbers.get(origin, 0) < entry.number:
                self.dropped[site] += entry.messages
        self._remember(origin, entry)
        self._dropped[origin] = entry.number
        for waiting in self._waiting.values():
            waiting.remove(origin, entry.number)
        self._trim(origin)

    def _remember(self, origin: MemberId, entry: _Kept) -> None:
        targets, sites = entry.batch.targets, _ALL_SITES
        if targets is not None:
            sites = sum({self._bits[site] for site in targets if site in self._bits})
        gone = self._gone.setdefault(origin, deque())
        gone.append(_Gone(entry.number, entry.messages, sites))
        self._remembered += 1
        if len(gone) > MOST_REMEMBERED:
            gone.popleft()
            self._remembered -= 1
        elif self._remembered > MOST_REMEMBERED_TOGETHER:
            most = max(self._gone.values(), key=len)
            for _ in range((len(most) + 1) // 2):
                most.popleft()
                self._remembered -= 1

    def _trim(self, origin: MemberId) -> None:
        kept, relayed = self._kept.get(origin), self.relayed(origin)
        while kept and kept[0].number <= relayed:
            self._discount(kept.popleft())

    def _discount(self, entry: _Kept) -> None:
        self.messages -= entry.messages
        self.bytes -= entry.size
