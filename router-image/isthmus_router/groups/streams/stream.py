"""One origin's stream at one member: what was delivered, what came early, and how far the others are."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from isthmus_router.groups.batch import Batch
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.streams.log import Log, Skipped
from isthmus_router.groups.streams.positions import Places, Positions
from isthmus_router.groups.streams.search import Search

MOST_HOLES = 64
"""That are asked for at once; announced gaps that are remembered."""
MOST_ASKED = 64
"""Members whose answers are awaited at once: those that were asked last."""


class Stream:
    """State only; `Streams` and its parts act on it."""

    __slots__ = (
        "asked",
        "bridged",
        "early",
        "fill",
        "fill_search",
        "forget_at",
        "gaps",
        "held",
        "log",
        "origin",
        "positions",
        "search",
        "stable",
        "target",
        "unstable_bytes",
        "vouched",
        "who",
    )

    def __init__(self, origin: MemberId, site: str, number: int, messages: int, places: Places) -> None:
        """`number` is the first to be delivered; 0: not known yet."""
        self.origin = origin
        self.log = Log(site, number, messages)
        self.early: dict[int, Batch] = {}
        self.gaps: dict[int, tuple[int, int]] = {}
        """Announced: first -> last, and messages in it."""
        self.positions = Positions(places)
        """Of the others in the view."""
        self.stable = max(number - 1, 0)
        """Everyone in the view has it up to here."""
        self.unstable_bytes = 0
        self.target = 0
        """Up to here somebody has it,"""
        self.who: MemberId | None = None
        """namely this one."""
        self.search: Search | None = None
        """For what is missing before it can go on."""
        self.fill: tuple[int, int] | None = None
        """Delivered batches that are wanted back for the log."""
        self.fill_search: Search | None = None
        self.asked: dict[MemberId, tuple[int, int]] = {}
        """Lowest and highest number that others were asked for in the present search; (0, 0): where it begins."""
        self.vouched = 0
        """Up to here a source of the stream has said that it goes; see `streams.senders`."""
        self.bridged = False
        """It came over a bridge session of this member."""
        self.held = 0
        self.forget_at = math.inf

    @property
    def started(self) -> bool:
        """Whether it is known where it begins."""
        return self.log.next > 0

    @property
    def position(self) -> int:
        """The highest contiguous number here."""
        return self.log.next - 1

    @property
    def is_unused(self) -> bool:
        """Whether no batch of it has come."""
        return self.log.next == 1 and not self.early

    @property
    def settled(self) -> bool:
        """Whether all of it that is here is stable, and nothing is missing."""
        return self.position <= self.stable and not self.early and self.target < self.log.next

    def begin(self, number: int, messages: int) -> None:
        """It is known now where it begins. What came early but is from before that is not delivered."""
        self.log.next = number
        self.log.messages = messages
        self.stable = number - 1

    def ask(self, member: MemberId, first: int, last: int) -> None:
        """A member is asked for these numbers, and may send them from now on."""
        if member not in self.asked and len(self.asked) >= MOST_ASKED:
            del self.asked[next(iter(self.asked))]
        lowest, highest = self.asked.get(member, (first, last))
        self.asked[member] = min(first, lowest), max(last, highest)

    def vouch(self, number: int) -> None:
        """A source says that the stream goes that far."""
        self.vouched = max(self.vouched, number)

    def holes(self) -> list[tuple[int, int]]:
        """First and last numbers of what is missing, ascending; (0, 0): where it begins. No more than
        `MOST_HOLES`."""
        if not self.started:
            return [(0, 0)]
        at, holes = self.log.next, []
        if self.early:
            for number in sorted(self.early):
                if number > at:
                    holes.append((at, number - 1))
                    if len(holes) == MOST_HOLES:
                        return holes
                at = number + 1
        if at <= self.target:
            holes.append((at, self.target))
        return holes

    def fill_hole(self, relayed: float) -> tuple[int, int] | None:
        """The first part of `fill` that is not in the log and still needed; `relayed` as `StreamsUser.relayed`."""
        if self.fill is None or relayed >= self.fill[1]:
            return None
        first, last = self.fill
        first = max(first, int(relayed) + 1)
        for batch in self.log.batches(first):
            if batch.number > last:
                break
            if batch.number > first:
                return first, batch.number - 1
            first += 1
        return (first, last) if first <= last else None

    def known(self, first: int, last: int) -> Iterator[tuple[int, Batch | Skipped]]:
        """What is here of a range, or known not to come, each with the first number in the range; ascending."""
        skipped = deque(self.log.skipped(first, last))
        for batch in self.log.batches(first):
            while skipped and skipped[0].first < batch.number:
                yield max(first, skipped[0].first), skipped.popleft()
            if batch.number > last:
                return
            yield batch.number, batch
        for each in skipped:
            yield max(first, each.first), each
        for number in sorted(self.early):
            if first <= number <= last:
                yield number, self.early[number]

    def messages_before(self, number: int) -> int:
        """Of the origin before a batch; 0 if it is not known here."""
        if number == self.log.next:
            return self.log.messages
        batch = self.early.get(number) or self.log.get(number)
        return batch.first if batch else 0

    def settle(self, number: int) -> int:
        """Everyone has it up to a number: the bytes of what has become stable."""
        settled = 0
        for batch in self.log.batches(self.stable + 1):
            if batch.number > number:
                break
            settled += batch.size
        self.unstable_bytes -= settled
        self.stable = number
        return settled

    def lowest(self) -> int:
        """Up to where this member and all of the others have it."""
        own, others = max(self.position, 0), self.positions.lowest()
        return own if others is None else min(own, others)

    def highest(self, self_id: MemberId) -> tuple[int, MemberId]:
        """Up to where somebody has it, and who."""
        own = max(self.position, 0)
        best, who = self.positions.highest()
        return (own, self_id) if who is None or best <= own else (best, who)
