"""Streams of a member of a site in memory: in order, repaired from whoever has it, trimmed by `relayed`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from isthmus_router.groups.batch import Batch, GroupMessage, decode_batch, make_batch
from isthmus_router.groups.frames import HEADER_BYTES, Kind
from isthmus_router.groups.identity import MemberId

if TYPE_CHECKING:
    from tests.unit.relay.world import Node

BACKFILL_TIME = 0.01


@dataclass
class MemoryLog:
    """As `StreamLog`."""

    site: str
    next: int
    messages: int
    kept: dict[int, Batch] = field(default_factory=dict)
    early: dict[int, Batch] = field(default_factory=dict)
    skipped: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def low(self) -> int:
        return min(self.kept, default=self.next)

    def get(self, number: int) -> Batch | None:
        return self.kept.get(number)

    def batches(self, start: int) -> Iterator[Batch]:
        for number in sorted(self.kept):
            if number >= start:
                yield self.kept[number]


class MemoryStreams:
    """As `SiteStreams`; looks into the other members of the site where the real ones exchange positions."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.logs: dict[MemberId, MemoryLog] = {}
        self.pending = 0
        self.told: dict[MemberId, int] = {}

    def origins(self) -> Iterable[MemberId]:
        return list(self.logs)

    def log(self, origin: MemberId) -> MemoryLog | None:
        return self.logs.get(origin)

    @property
    def ready(self) -> bool:
        return self.pending == 0

    def publish(self, now: float, messages: list[GroupMessage], targets: tuple[str, ...] | None = None) -> None:
        own = self.node.id
        log = self.logs.setdefault(own, MemoryLog(self.node.site.name, 1, 0))
        batch = make_batch(own, log.next, log.messages, self.node.site.name, targets, messages)
        self.accept(now, batch, None, disseminate=True)

    def accept(self, now: float, batch: Batch, source: MemberId | None, *, disseminate: bool = False) -> bool:
        log = self.logs.get(batch.origin)
        if log is None:
            if batch.site != self.node.site.name:
                return True  # where it starts is not known yet: it will be repaired
            log = self.logs[batch.origin] = MemoryLog(batch.site, 1, 0)
        if batch.number < log.next or batch.number in log.early:
            return False
        log.early[batch.number] = batch
        if disseminate:
            self.node.hook("before_local_dissem", batch.site)
            self.node.send_all(now, Kind.BATCH, batch.encoded)
            self.node.hook("after_local_dissem", batch.site)
        self.advance(now, batch.origin)
        return True

    def start(self, now: float, origin: MemberId, site: str, number: int, messages: int) -> None:
        if origin not in self.logs:
            self.logs[origin] = MemoryLog(site, number, messages)
            for other in self.node.others():
                self.node.later(lambda o=other: o.streams.start(o.world.now, origin, site, number, messages), other)

    def skip(self, now: float, origin: MemberId, site: str, first: int, last: int, lost: int) -> None:
        log = self.logs.get(origin)
        if log is None or last < log.next or first in log.skipped:
            return
        log.skipped[first] = (last, lost)
        for other in self.node.others():
            self.node.later(lambda o=other: o.streams.skip(o.world.now, origin, site, first, last, lost), other)
        self.advance(now, origin)

    def backfill(self, now: float, origin: MemberId, number: int) -> None:
        self.pending += 1

        def fill() -> None:
            self.pending -= 1
            log = self.logs[origin]
            for other in self.node.others():
                theirs = other.streams.logs.get(origin)
                for batch in theirs.batches(number) if theirs else ():
                    if batch.number < log.next:
                        log.kept.setdefault(batch.number, batch)

        self.node.world.at(now + BACKFILL_TIME, fill, self.node)

    def held(self, origin: MemberId) -> int:
        log = self.logs.get(origin)
        others = [node.streams.logs[origin].next for node in self.node.others() if origin in node.streams.logs]
        if log is None or (not others and len(self.node.view.ids) > 1):
            return 0
        return min([log.next, max(others)] if others else [log.next]) - 1

    def on_frame(self, now: float, frame: bytes) -> None:
        self.accept(now, decode_batch(frame, HEADER_BYTES), None)

    def advance(self, now: float, origin: MemberId) -> None:
        log = self.logs[origin]
        while True:
            span = next((first for first in log.skipped if first <= log.next), None)
            if span is not None:
                last, lost = log.skipped.pop(span)
                if last >= log.next:
                    self.node.gap(origin, log.next, last, lost)
                    log.next = last + 1
                continue
            batch = log.early.pop(log.next, None)
            if batch is None:
                break
            log.kept[batch.number] = batch
            log.next, log.messages = batch.number + 1, batch.first + batch.count
            self.node.delivered(now, batch)
        for other in (*self.node.others(), self.node):
            other.later(other.streams.look, other)

    def look(self) -> None:
        """Repair, tell what is held, trim."""
        now = self.node.world.now
        for origin, log in list(self.logs.items()):
            others = [node.streams.logs[origin] for node in self.node.others() if origin in node.streams.logs]
            for theirs in others:
                if log.next in theirs.kept and log.next not in log.early:
                    self.node.world.at(now + 0.02, lambda o=origin: self.repair(o), self.node)
                    break
            held = self.held(origin)
            if held > self.told.get(origin, 0):
                self.told[origin] = held
                self.node.relay.held(now, origin, held)
            stable = min([theirs.next for theirs in others] + [log.next]) - 1
            if len(others) == len(self.node.view.ids) - 1:
                least = min(stable, self.node.relay.relayed(origin))
                for number in [number for number in log.kept if number <= least]:
                    del log.kept[number]

    def repair(self, origin: MemberId) -> None:
        log = self.logs[origin]
        for node in self.node.others():
            theirs = node.streams.logs.get(origin)
            for batch in list(theirs.batches(log.next)) if theirs else ():
                self.accept(self.node.world.now, batch, None)
