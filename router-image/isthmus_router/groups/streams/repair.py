"""Repair: asking those that have what is missing here, and giving others what they ask for.

First a source of the stream is asked (`streams.senders`), then the member that has most of the stream, then the others
in turn. Members that are no source are asked only for numbers up to the one that a source has vouched for. Numbers that
no member has are given up, so that the stream goes on with a gap; but not before the sites' bridge had its chance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from isthmus_router.groups.frames import Kind
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.port import MemberPort
from isthmus_router.groups.streams.log import Skipped
from isthmus_router.groups.streams.positions import Places
from isthmus_router.groups.streams.room import Room
from isthmus_router.groups.streams.search import Search
from isthmus_router.groups.streams.senders import MOST_STEP, Senders
from isthmus_router.groups.streams.stream import Stream
from isthmus_router.groups.streams.user import StreamsSettings
from isthmus_router.groups.streams.wire import (
    Gap,
    Missing,
    Repair,
    Start,
    encode_gap,
    encode_missing,
    encode_repair,
    encode_start,
)

ARRIVING = 0.5
"""Seconds without a part of a long frame after which no more of it is waited for."""
PART_BYTES = 1_024
"""Bytes for which a small batch, a gap or a range that is missing counts, as each costs time."""


class _GiveUp(Protocol):
    def __call__(self, now: float, stream: Stream, last: int, messages: int) -> None:
        """Nobody has the next ones up to `last`; `messages` of the origin come before what follows (0: unknown)."""


class Repairs:
    """Of all streams of a member."""

    def __init__(
        self,
        site: str,
        settings: StreamsSettings,
        port: MemberPort,
        rng: random.Random,
        give_up: _GiveUp,
        relayed: Callable[[MemberId], float],
        senders: Senders,
        room: Room,
        places: Places,
    ) -> None:
        self._places = places
        self._senders = senders
        self._room = room
        self._site = site
        self._settings = settings
        self._port = port
        self._random = rng
        self._give_up = give_up
        self._relayed = relayed
        self._others: tuple[MemberId, ...] = ()
        self._streams: dict[MemberId, Stream] = {}
        """Those that lack something."""
        self._arriving: dict[MemberId, tuple[float, float]] = {}
        """Members of which part of a frame has come: the first part and the last one so far."""
        self._pressing: dict[MemberId, Stream] = {}
        """Those to be looked at before the others."""
        self._walk_at = math.inf
        """When the next one of all is due."""
        self.deadline = math.inf
        self.asked = 0
        """Requests sent, ever."""
        self.answered = 0
        """Batches, and ranges that will not come, sent to who asked, ever."""

    @property
    def filled(self) -> bool:
        """Whether nothing is to be fetched for the logs any more."""
        return not any(stream.fill for stream in self._streams.values())

    def view_installed(self, now: float, others: tuple[MemberId, ...]) -> None:
        """All may be asked anew."""
        self._others = others
        self._arriving.clear()
        for stream in self._streams.values():
            for search in (stream.search, stream.fill_search):
                if search:
                    search.restart(now, now + self._settings.repair_after, self._settings.repair_after * 2)
        self._due(now if self._streams else math.inf)

    def forget(self, stream: Stream) -> None:
        """It is no more."""
        self._streams.pop(stream.origin, None)
        self._pressing.pop(stream.origin, None)

    def unknown(self, site: str) -> int:
        """Number of streams of a site of which it is not known where they begin."""
        return sum(not stream.started and stream.log.site == site for stream in self._streams.values())

    def arriving(self, now: float, member: MemberId) -> None:
        """Part of a frame has come. A member with a slow line is not asked for more meanwhile: what is missing may be
        on its way, and would be sent again behind it."""
        first, _ = self._arriving.get(member, (now, now))
        self._arriving[member] = first, now

    def arrived(self, member: MemberId) -> None:
        """A whole frame has come."""
        if self._arriving:
            self._arriving.pop(member, None)

    def lacking(self, now: float, stream: Stream) -> None:
        """Something of it is missing, maybe only for a moment."""
        if stream.search is None:
            stream.search = self._search(now, stream, self._settings.repair_after)

    def fill(self, now: float, stream: Stream, first: int) -> None:
        """Fetch what the log has not of what was delivered."""
        stream.fill = (first, stream.position)
        stream.fill_search = self._search(now, stream, 0)

    def progress(self, now: float, search: Search) -> None:
        """Part of what was missing has come; if no more comes soon, ask at once."""
        after = self._settings.repair_after
        search.restart(now, now + after, after * 2)
        self._due(search.due)

    def on_time(self, now: float) -> None:
        """Ask for what is still missing."""
        if now < self.deadline:
            return
        streams, self._pressing = list(self._pressing.values()), {}
        if now >= self._walk_at:
            streams, self._walk_at = list(self._streams.values()), math.inf
        for stream in streams:
            self._look(now, stream)
        self.deadline = self._walk_at
        for stream in streams:
            for search in (stream.search, stream.fill_search):
                if search:
                    self._due(search.due)

    def _due(self, at: float) -> None:
        """Something is to be done then."""
        self._walk_at = min(self._walk_at, at)
        self.deadline = min(self.deadline, at)

    def on_missing(self, now: float, sender: MemberId, missing: Missing) -> None:
        """A member that was asked has not got it; others are not believed."""
        stream = self._streams.get(missing.origin)
        if stream is None or sender not in stream.asked:
            return
        if self._senders.is_source(sender, stream.origin, stream.log.site):
            stream.vouch(missing.next - 1)
        for search in (stream.search, stream.fill_search):
            if search and missing.first <= search.first <= missing.last:
                search.lacks(self._places.give(sender), missing)
                search.due = self.deadline = now
                self._pressing[stream.origin] = stream

    def on_repair(self, now: float, sender: MemberId, repair: Repair, stream: Stream | None) -> None:
        """Give what is here; say what is not."""
        first, last = repair.first, repair.last
        if stream is None or not stream.started:
            self._say_missing(now, sender, stream, repair.origin, first, last)
            return
        if first == 0:
            # Where what is left of it begins: so much can be had.
            number = stream.log.low
            start = Start(stream.origin, number, stream.messages_before(number), stream.log.site)
            self._port.send(now, sender, Kind.START, encode_start(start))
            return
        budget = self._settings.repair_bytes
        for number, part in stream.known(first, last):
            if budget <= 0:
                return
            if number > first:
                budget -= PART_BYTES
                self._say_missing(now, sender, stream, repair.origin, first, number - 1)
            self.answered += 1
            if isinstance(part, Skipped):
                budget -= PART_BYTES
                gap = Gap(stream.origin, *part, stream.log.site)
                self._port.send(now, sender, Kind.GAP, encode_gap(gap))
                first = part.last + 1
                continue
            budget -= max(part.size, PART_BYTES)
            self._port.send(now, sender, Kind.BATCH, part.encoded)
            first = number + 1
        if first <= last:
            self._say_missing(now, sender, stream, repair.origin, first, last)

    def _say_missing(
        self, now: float, to: MemberId, stream: Stream | None, origin: MemberId, first: int, last: int
    ) -> None:
        following = stream.log.next if stream else 0
        messages = stream.messages_before(last + 1) if stream else 0
        self._port.send(
            now, to, Kind.MISSING, encode_missing(Missing(origin, first, last, following, messages))
        )

    def _search(self, now: float, stream: Stream, after: float) -> Search:
        self._streams[stream.origin] = stream
        self._due(now + after)
        return Search(now, now + after, self._settings.repair_after * 2)

    def _look(self, now: float, stream: Stream) -> None:
        if (search := stream.search) and search.due <= now:
            self._look_for_next(now, stream, search)
        if (search := stream.fill_search) and search.due <= now:
            self._look_for_old(now, stream, search)
        if not stream.search and not stream.fill_search:
            self._streams.pop(stream.origin, None)
            stream.asked.clear()

    def _look_for_next(self, now: float, stream: Stream, search: Search) -> None:
        if stream.log.next in stream.early:
            self.progress(now, search)  # more of what has come is delivered in the next steps
            return
        holes = stream.holes()
        if not holes:
            stream.search = None
            return
        if not self._room.has(now, stream):
            search.asked(now, self._settings.repair_longest)
            return
        first, last = holes[0]
        search.first = first
        left = search.left(self._order(stream), self._places)
        sources = self._senders.sources(stream.origin, stream.log.site)
        if sources and (first == 0 or first > stream.vouched):
            # Only a source knows whether there is such a batch, or where the stream begins.
            left = [member for member in left if member in sources]
            if not left:
                search.forget_answers()
                stream.target = min(stream.target, stream.vouched)
                if not stream.holes():
                    stream.search = None
                    return
        if left:
            if member := self._whom(now, search, left):
                most = math.inf if not sources or member in sources else stream.vouched
                for first, last in holes:
                    if first <= most:
                        self._ask(now, member, stream, first, int(min(last, most)))
        elif not sources or 0 < first <= stream.vouched:
            lacked, following, messages = search.lacked
            search.forget_answers()
            lacked = min(lacked, last, first + MOST_STEP)
            if sources:
                lacked = min(lacked, stream.vouched)
            if stream.log.site != self._site:
                # What no member had yet may still come over the bridge.
                lacked = min(lacked, following - 1)
            if lacked >= first > 0 and now - search.since >= self._settings.give_up_after:
                self._give_up(now, stream, lacked, messages)
        search.asked(now, self._settings.repair_longest)

    def _look_for_old(self, now: float, stream: Stream, search: Search) -> None:
        while stream.fill and (hole := stream.fill_hole(self._relayed(stream.origin))):
            search.first = hole[0]
            if left := search.left(self._order(stream), self._places):
                if stream.origin in left:
                    left = [stream.origin]  # others, only when it has not got them any more
                if member := self._whom(now, search, left):
                    self._ask(now, member, stream, *hole)
                search.asked(now, self._settings.repair_longest)
                return
            stream.fill = (min(search.lacked[0], hole[1]) + 1, stream.fill[1])
            search.forget_answers()
        stream.fill = stream.fill_search = None

    def _whom(self, now: float, search: Search, left: Sequence[MemberId]) -> MemberId | None:
        """None: all that are left are in the middle of a long frame."""
        quiet = [member for member in left if not self._is_arriving(now, member)]
        return search.next_of(quiet) if quiet else None

    def _is_arriving(self, now: float, member: MemberId) -> bool:
        first, last = self._arriving.get(member, (now, now))
        return now - first >= self._settings.repair_after and now - last < ARRIVING

    def _ask(self, now: float, member: MemberId, stream: Stream, first: int, last: int) -> None:
        self.asked += 1
        stream.ask(member, first, last)
        self._port.send(now, member, Kind.REPAIR, encode_repair(Repair(stream.origin, first, last)))

    def _order(self, stream: Stream) -> list[MemberId]:
        others = list(self._others)
        self._random.shuffle(others)
        sources = self._senders.sources(stream.origin, stream.log.site)
        first = [member for member in (*sources, stream.who) if member and member in self._others]
        return list(dict.fromkeys(first + others))
