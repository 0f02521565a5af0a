"""The order of streams at one member: what is delivered next, what comes early and waits, and gaps that are skipped."""

from __future__ import annotations

import random
from math import inf

from isthmus_router.groups.batch import Batch
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.port import MemberPort
from isthmus_router.groups.streams.positions import Places
from isthmus_router.groups.streams.repair import Repairs
from isthmus_router.groups.streams.room import Room
from isthmus_router.groups.streams.senders import Senders
from isthmus_router.groups.streams.stability import Stability
from isthmus_router.groups.streams.stream import Stream
from isthmus_router.groups.streams.user import StreamsSettings, StreamsUser

STEP_BYTES = 64 * 1024
"""Delivered in one step of what came early: as much as the largest usual batch, which takes some milliseconds."""
STEP_SECONDS = 0.001
"""Until the next step."""
BATCH_COST, MESSAGE_COST, GAP_COST = 512, 64, 8 * 1024
"""In bytes that take as long, besides those that there are."""


class Order:
    """Of all streams of a member."""

    def __init__(
        self,
        site: str,
        settings: StreamsSettings,
        port: MemberPort,
        user: StreamsUser,
        rng: random.Random,
        stability: Stability,
        retained: dict[MemberId, Stream],
        senders: Senders,
        room: Room,
        places: Places,
    ) -> None:
        """`retained`: streams that keep what is stable; one that gets something back for its log is added."""
        self._room = room
        self._site = site
        self._settings = settings
        self._stability = stability
        self._retained = retained
        self._user = user
        self.repairs = Repairs(site, settings, port, rng, self._given_up, user.relayed, senders, room, places)
        self.early = 0
        """Batches that wait for one before them, of all origins."""
        self.early_bytes = 0
        self.remote_bytes = 0
        """Of remote origins, not stable."""
        self.fresh = 0
        """Bytes delivered since positions were told."""
        self.without_room = 0
        """Batches that were not taken as there was no room for them, ever; they are requested again."""
        self._going_on: dict[MemberId, Stream] = {}
        """Streams that have more to deliver in further steps."""
        self.deadline = inf

    def has_room(self, now: float, stream: Stream, batch: Batch) -> bool:
        """Return whether a batch of a stream is taken; if not, it is counted."""
        if self._room.has(now, stream, batch.size):
            return True
        self.without_room += 1
        return False

    def deliver(self, now: float, stream: Stream, batch: Batch, *, own: bool = False) -> None:
        """The next one is here; `own`: this member has published it."""
        stream.log.append(batch)
        self._count(stream, batch, own=own)
        self.fresh += batch.size
        self._stability.news[stream.origin] = stream
        self._user.delivered(now, batch)

    def _count(self, stream: Stream, batch: Batch, *, own: bool = False) -> None:
        """A batch that is not stable is in the log."""
        size = batch.size
        stream.unstable_bytes += size
        if not own:
            self._room.unstable_bytes += size
        if stream.log.site != self._site:
            self.remote_bytes += size

    def take_aside(self, now: float, stream: Stream, batch: Batch) -> bool:
        """Not the next one: keep it if it comes early, or is wanted back for the log."""
        number, settings = batch.number, self._settings
        if number < stream.log.next:
            if stream.fill:
                if not self._room.take_back(now, batch.size):
                    self.without_room += 1
                    return False
                if stream.log.insert(batch) and number > stream.stable:
                    self._count(stream, batch)
                self._retained[stream.origin] = stream
                if stream.fill_search:
                    self.repairs.progress(now, stream.fill_search)
            return False
        if (
            number in stream.early
            or self.early >= settings.early_batches
            or self.early_bytes + batch.size > settings.early_bytes
        ):
            return False
        stream.early[number] = batch
        self.early += 1
        self.early_bytes += batch.size
        self.repairs.lacking(now, stream)
        return True

    def pop_early(self, stream: Stream, number: int) -> Batch | None:
        """One that waits no longer, if it was here."""
        batch = stream.early.pop(number, None)
        if batch:
            self.early -= 1
            self.early_bytes -= batch.size
        return batch

    def go_on(self, now: float, stream: Stream) -> None:
        """Deliver what came early and skip what is said to be gone, as far as that goes; the rest in further steps."""
        left = STEP_BYTES
        while True:
            at = stream.log.next
            if left <= 0:
                self._going_on[stream.origin] = stream
                self.deadline = min(self.deadline, now + STEP_SECONDS)
                break
            if batch := self.pop_early(stream, at):
                if not self.has_room(now, stream, batch):
                    self.repairs.lacking(now, stream)
                    break
                left -= batch.size + batch.count * MESSAGE_COST + BATCH_COST
                self.deliver(now, stream, batch)
                continue
            covering = next((first for first, (last, _) in stream.gaps.items() if first <= at <= last), None)
            if covering is None:
                break
            left -= GAP_COST
            last, lost = stream.gaps.pop(covering)
            here = min((number for number in stream.early if at < number <= last), default=None)
            if here is not None:
                # Some of it is here: what is lost is before and after.
                before = stream.early[here].first - stream.log.messages
                stream.gaps[here + 1] = (last, max(0, lost - before - stream.early[here].count))
                last, lost = here - 1, min(lost, before)
            self._skip(now, stream, last, lost, announced=True)
        stream.gaps = {first: gap for first, gap in stream.gaps.items() if gap[0] >= stream.log.next}

    def on_time(self, now: float) -> None:
        """Go on with one of the streams that have more to deliver."""
        if now < self.deadline:
            return
        stream = self._going_on.pop(next(iter(self._going_on)))
        self.deadline = now + STEP_SECONDS if self._going_on else inf
        self.go_on(now, stream)
        if stream.search:
            self.repairs.progress(now, stream.search)

    def forget(self, stream: Stream) -> None:
        """It is no more."""
        self._going_on.pop(stream.origin, None)
        if not self._going_on:
            self.deadline = inf
        for number in list(stream.early):
            self.pop_early(stream, number)

    def _skip(self, now: float, stream: Stream, last: int, lost: int, *, announced: bool = False) -> None:
        """Go on after `last`, without so many messages; `announced`: as the bridge has said."""
        log = stream.log
        first = log.next
        log.skip(last, lost, known=announced)
        self._stability.news[stream.origin] = stream
        if stream.search:
            self.repairs.progress(now, stream.search)
        if lost or not announced:
            self._user.gap(now, stream.origin, log.site, first, last, lost)

    def _given_up(self, now: float, stream: Stream, last: int, messages: int) -> None:
        before = stream.messages_before(last + 1) or messages
        self._skip(now, stream, last, max(0, before - stream.log.messages))
        self.go_on(now, stream)
