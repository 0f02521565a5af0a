"""Which sources there are, what is received from each, and when they are asked to tell everything again.

Sans-IO: told of messages and of time, which is in microseconds since the epoch, it returns what is to be done. Time
that passes while nothing can be heard (no connection, no credit, a process that was stopped) is no silence of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from isthmus_flowlog.collector.gaps import Gaps
from isthmus_flowlog.collector.wire import Beacon
from isthmus_router.flows.messages import BEACONS, commands_address, records_address, summaries_address

SECOND = 1_000_000
SILENCE_US = 3 * 2 * SECOND + 4 * SECOND
"""Three heartbeats and some slack: a source that says nothing for so long is lost."""
FORGET_US = 60 * SECOND
"""A lost source is listened to for so long."""
FLUSH_AGAIN_US = 10 * SECOND
"""From one FLUSH to the next, for whatever reason; twice as long after each that has not helped, up to a minute."""
LONGEST_FLUSH_US = 60 * SECOND
OVERTAKEN_US = 3 * SECOND
"""What comes on one link may be overtaken by what comes on another, so long."""
REATTACH_US = 5 * SECOND
"""After a link was refused or ended by the router."""
STALL_US = 2 * SECOND
"""Two ticks that are further apart: this process stood still, or the clock was set."""
MOST_SOURCES = 1000
MOST_UNPROVEN = 500
"""Of these, sources that have not sent the record of their router. A new source takes the place of the oldest of them;
a source that has sent it keeps its place, so invented ids displace no source that is heard."""


@dataclass(frozen=True, slots=True)
class Receive:
    """Attach a receiver to the address."""

    address: str


@dataclass(frozen=True, slots=True)
class Release:
    """End the receivers of these addresses, and the sender to this one."""

    addresses: tuple[str, ...]
    direct: str


@dataclass(frozen=True, slots=True)
class Flush:
    """Ask for every record at the address; `flushed` is to be told how that went."""

    source: str
    direct: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The source is not heard any more."""

    source: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The source is nothing to us any more."""

    source: str


Action: TypeAlias = Receive | Release | Flush | Lost | Forgotten


@dataclass(slots=True)
class Source:
    """One run of a router, or of something else that sends records."""

    name: str
    heard_at: int
    silent_since: int
    """Nothing was heard from then on; time in which nothing could be heard is left out."""
    numbers: Gaps = field(default_factory=lambda: Gaps(OVERTAKEN_US))
    missed: int = 0
    """Messages, as last looked at."""
    lost_at: int | None = None
    proven: bool = False
    """It has sent the record of its router."""
    unwanted: bool = False
    flush_wanted: bool = True
    flush_under_way: bool = False
    flush_not_before: int = 0
    flush_pause: int = FLUSH_AGAIN_US
    reattach: dict[str, int] = field(default_factory=dict)
    """When to attach again, by address."""

    @property
    def addresses(self) -> tuple[str, str]:
        """What is received from it: its id says that, never a message."""
        return records_address(self.name), summaries_address(self.name)

    @property
    def direct(self) -> str:
        """Where it takes commands."""
        return commands_address(self.name)


class Session:
    """All sources that one router's network has."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}
        self._by_address: dict[str, Source] = {}
        self._connected = False
        self._listening = True
        self._beacons_at: int | None = None
        """When to attach to the beacons again."""
        self._last_tick: int | None = None
        self.beacons_ignored = 0
        """Of sources beyond the limit."""
        self.missed = 0
        """Messages, of all sources so far."""

    def source_of(self, address: str) -> Source | None:
        """Whose records come on the address."""
        return self._by_address.get(address)

    def connected(self, now: int) -> list[Action]:
        """There is a connection: every link on it has to be made anew."""
        self._connected = True
        self._beacons_at = None
        actions: list[Action] = [Receive(BEACONS)]
        for source in self.sources.values():
            actions += self._subscribe(source, now)
        return actions

    def disconnected(self) -> None:
        """The connection is gone, and all links with it."""
        self._connected = False
        for source in self.sources.values():
            source.reattach.clear()
            source.flush_under_way = False

    def listening(self, may_hear: bool) -> None:
        """Whether there is credit for sources."""
        self._listening = may_hear

    def detached(self, address: str, now: int) -> None:
        """The router has ended or refused a receiver."""
        if address == BEACONS:
            self._beacons_at = now + REATTACH_US
        elif (source := self._by_address.get(address)) is not None and not source.unwanted:
            source.reattach[address] = now + REATTACH_US

    def beacon(self, beacon: Beacon, now: int) -> list[Action]:
        """A source says that it is there."""
        source = self.sources.get(beacon.source)
        if source is not None:
            source.numbers.heard(beacon.number, now)
            if source.unwanted:
                source.silent_since = now
            return []
        actions: list[Action] = []
        unproven = [known for known in self.sources.values() if not known.proven]
        if len(unproven) >= MOST_UNPROVEN or (unproven and len(self.sources) >= MOST_SOURCES):
            self.beacons_ignored += 1
            actions += self._forget(unproven[0])
        elif len(self.sources) >= MOST_SOURCES:
            self.beacons_ignored += 1
            return []
        source = Source(beacon.source, heard_at=now, silent_since=now)
        source.numbers.heard(beacon.number, now)  # so that it is noticed if the next message is lost
        self.sources[source.name] = source
        for address in source.addresses:
            self._by_address[address] = source
        return actions + self._subscribe(source, now)

    def _subscribe(self, source: Source, now: int) -> list[Action]:
        source.silent_since = now
        if source.unwanted:
            return []
        source.flush_wanted, source.flush_not_before, source.flush_pause = True, now, FLUSH_AGAIN_US
        return [Receive(address) for address in source.addresses]

    def heard(self, source: Source, number: int, now: int) -> None:
        """A message has come on one of the source's addresses."""
        source.numbers.heard(number, now)
        source.heard_at = source.silent_since = now
        source.lost_at = None

    def unread(self, source: Source, now: int) -> None:
        """A message of the source has come and is not read: the source is there, and is to tell everything again."""
        source.silent_since, source.lost_at, source.flush_wanted = now, None, True

    def proven(self, source: str) -> None:
        """The source has sent the record of its router."""
        if (known := self.sources.get(source)) is not None:
            known.proven = True

    def ask_again(self, source: str) -> None:
        """Something is missing from what the source has told: a summary, say."""
        if (known := self.sources.get(source)) is not None:
            known.flush_wanted = True

    def flushed(self, source: str, accepted: bool) -> None:
        """What has become of a FLUSH."""
        if (known := self.sources.get(source)) is not None:
            known.flush_under_way = False
            known.flush_wanted |= not accepted

    def unwanted(self, name: str) -> list[Action]:
        """Nothing is to be received from the source, as long as it runs."""
        source = self.sources.get(name)
        if source is None or source.unwanted:
            return []
        source.unwanted = True
        source.reattach.clear()
        return [Release(source.addresses, source.direct)]

    def tick(self, now: int) -> list[Action]:
        """Time has passed; to be called several times a second."""
        stalled = self._last_tick is not None and not 0 <= now - self._last_tick < STALL_US
        deaf = stalled or not self._connected or not self._listening
        self._last_tick = now
        actions: list[Action] = []
        if self._connected and self._beacons_at is not None and now >= self._beacons_at:
            self._beacons_at = None
            actions.append(Receive(BEACONS))
        for source in list(self.sources.values()):
            if deaf:
                source.silent_since = now
            actions += self._look_at(source, now)
        return actions

    def _look_at(self, source: Source, now: int) -> Iterator[Action]:
        missed = source.numbers.overdue(now)
        if missed > source.missed:
            self.missed += missed - source.missed
            source.missed, source.flush_wanted = missed, True
        silence = now - source.silent_since
        if source.unwanted:
            if silence >= FORGET_US:
                yield from self._forget(source)
            return
        if source.lost_at is None and silence >= SILENCE_US:
            source.lost_at = now
            yield Lost(source.name)
        if source.lost_at is not None:
            if silence >= SILENCE_US + FORGET_US:
                yield from self._forget(source)
            return
        if not self._connected:
            return
        for address in [address for address, at in source.reattach.items() if now >= at]:
            del source.reattach[address]
            source.flush_wanted = True
            yield Receive(address)
        if source.flush_wanted and not source.flush_under_way and now >= source.flush_not_before:
            source.flush_wanted, source.flush_under_way = False, True
            if now - source.flush_not_before >= source.flush_pause:
                source.flush_pause = FLUSH_AGAIN_US
            source.flush_not_before = now + source.flush_pause
            source.flush_pause = min(2 * source.flush_pause, LONGEST_FLUSH_US)
            yield Flush(source.name, source.direct)

    def _forget(self, source: Source) -> Iterator[Action]:
        del self.sources[source.name]
        for address in source.addresses:
            del self._by_address[address]
        if self._connected and not source.unwanted:
            yield Release(source.addresses, source.direct)
        yield Forgotten(source.name)
