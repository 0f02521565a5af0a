"""The streams of all origins at one member of a site."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Collection, Sequence

from isthmus_router.groups.batch import Batch, GroupMessage, decode_batch, make_batch
from isthmus_router.groups.frames import HEADER_BYTES, Kind
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.port import MemberPort
from isthmus_router.groups.streams import wire
from isthmus_router.groups.streams.log import Log
from isthmus_router.groups.streams.order import Order
from isthmus_router.groups.streams.positions import Places
from isthmus_router.groups.streams.room import Room
from isthmus_router.groups.streams.senders import Senders
from isthmus_router.groups.streams.stability import Stability
from isthmus_router.groups.streams.stream import MOST_HOLES, Stream
from isthmus_router.groups.streams.user import StreamsSettings, StreamsSnapshot, StreamsUser
from isthmus_router.groups.views import MOST_MEMBERS, View

MOST_UNKNOWN = 256
"""Streams of another site of which it is not known where they begin."""
UNKNOWN_SECONDS = 60.0
"""For it to be found out. The stream of a member that has left without a batch is forgotten as early."""
MOST_GONE = MOST_MEMBERS
"""Streams of members that have left without a batch."""
_PRESSED = 8
"""Positions are told early when so large a part (1/n) of the window has come since."""


class Streams:
    """Publishes this member's messages, delivers everyone's. Alone until the first view."""

    def __init__(
        self,
        self_id: MemberId,
        site: str,
        settings: StreamsSettings,
        port: MemberPort,
        user: StreamsUser,
        rng: random.Random,
    ) -> None:
        self.self_id = self_id
        self.site = site
        self.is_holder = True
        """Among the oldest members, that keep what is to be relayed."""
        self._settings = settings
        self._port = port
        self._user = user
        self._ids: tuple[MemberId, ...] = (self_id,)
        self._others: tuple[MemberId, ...] = ()
        self._holders: tuple[MemberId, ...] = ()
        """Without this member."""
        self._places = Places()
        self._own = Stream(self_id, site, 1, 0, self._places)
        self._streams = {self_id: self._own}
        self._of_sites: Counter[str] = Counter()
        """Streams of other sites."""
        self._stability = Stability(self_id, settings, port, self._on_stable)
        self._retained: dict[MemberId, Stream] = {}
        """Stable, but kept for other sites; what `relayed` says is looked at now and then."""
        self._senders = Senders(self_id, site)
        self._room = Room(settings, self._streams)
        self._order = Order(
            site,
            settings,
            port,
            user,
            rng,
            self._stability,
            self._retained,
            self._senders,
            self._room,
            self._places,
        )
        self._repairs = self._order.repairs
        self._owed: dict[MemberId, dict[MemberId, Stream]] = {}
        """To whom what position is told at the end of the turn."""
        self._unheld: dict[MemberId, Stream] = {}
        """Streams over the bridge of which more may be held by now."""
        self._protected = 0
        self._installed = False
        """There was a view."""
        self._forget_at = math.inf
        self._trim_at = math.inf
        self._met: set[str] = set()
        """Other sites of which members were known here."""
        self._older: deque[MemberId] = deque(maxlen=settings.most_streams)
        """Members that may have published before they were known here, and those whose streams are forgotten."""
        self.refused = 0
        """Frames of members that may not send them."""

    @property
    def deadline(self) -> float:
        """When `on_time` is due; `math.inf`: never."""
        return min(
            self._order.deadline,
            self._stability.deadline,
            self._repairs.deadline,
            self._trim_at,
            self._forget_at,
        )

    @property
    def room(self) -> int:
        """Bytes that may be published; at 0 or less, wait for `room_changed`. The last batch may exceed it."""
        return self._settings.window_bytes - self._own.unstable_bytes

    @property
    def early(self) -> int:
        """Batches that wait for one before them, of all origins."""
        return self._order.early

    @property
    def ready(self) -> bool:
        """Whether every `backfill` is done."""
        return self._repairs.filled

    def snapshot(self) -> StreamsSnapshot:
        """For metrics."""
        return StreamsSnapshot(
            len(self._streams),
            sum(stream.log.bytes for stream in self._streams.values()),
            self._own.unstable_bytes,
            self.early,
            self._order.early_bytes,
            self._repairs.asked,
            self._repairs.answered,
            self._order.without_room,
        )

    def publish(
        self, now: float, messages: Sequence[GroupMessage], targets: tuple[str, ...] | None = None
    ) -> int:
        """Send messages to every member, and to the `targets` (sites; None: all). The number of their batch."""
        own = self._own
        batch = make_batch(self.self_id, own.log.next, own.log.messages, self.site, targets, messages)
        self._port.send_all(now, Kind.BATCH, batch.encoded)
        self._order.deliver(now, own, batch, own=True)
        return batch.number

    def accept(self, now: float, batch: Batch, source: MemberId | None, *, disseminate: bool = False) -> bool:
        """A batch from a member, or (None) from a bridge session; False: it is not new, or there is no place for it.

        `disseminate`: send it to all members if it is new.
        """
        stream = self._streams.get(batch.origin) or self._make(now, batch.origin, batch.site)
        if stream is None or stream is self._own:
            return False
        if source is None:
            stream.bridged = True
            stream.vouch(batch.number)
            self._unheld[stream.origin] = stream
        else:
            if stream.who is None:
                stream.who = source
            if self.is_holder:
                to = stream.origin if stream.origin in self._ids else source
                self._owed.setdefault(to, {})[stream.origin] = stream
        if not stream.log.site:
            self._assign(stream, batch.site)
        number, log = batch.number, stream.log
        if number >= log.next and stream.started and not self._order.has_room(now, stream, batch):
            return False
        if number in stream.early or (number != log.next and not self._order.take_aside(now, stream, batch)):
            return False
        if disseminate:
            self._port.send_all(now, Kind.BATCH, batch.encoded)
        if number == log.next:
            if number == 1 and stream.forget_at < math.inf:
                # If the member comes back, its batches are not to be delivered twice.
                stream.forget_at = now + self._settings.linger
            self._order.deliver(now, stream, batch)
            if stream.search:
                self._repairs.progress(now, stream.search)
            if stream.early or stream.gaps:
                self._order.go_on(now, stream)
        return True

    def start(self, now: float, origin: MemberId, site: str, number: int, messages: int) -> None:
        """The bridge says where a stream begins, and how many messages of it were before; nothing if it has begun."""
        stream = self._streams.get(origin) or self._make(now, origin, site, begins=True)
        if stream and not stream.started:
            self._assign(stream, site)
            start = self._begun(wire.Start(origin, number, messages, site))
            self._port.send_all(now, Kind.START, wire.encode_start(start))
            self._begin(now, stream, start.number, start.messages)

    def skip(
        self, now: float, origin: MemberId, site: str, from_number: int, to_number: int, messages_lost: int
    ) -> None:
        """The bridge says that these batches will not come; 0 messages lost: they were not for this site, which the
        user is not told. What is here anyway is delivered."""
        gap = wire.Gap(origin, from_number, to_number, messages_lost, site)
        self._port.send_all(now, Kind.GAP, wire.encode_gap(gap))
        self._on_gap(now, gap)

    def log(self, origin: MemberId) -> Log | None:
        """What is kept of an origin; None if it is not known, or not where its stream begins."""
        stream = self._streams.get(origin)
        return stream.log if stream and stream.started else None

    def origins(self) -> list[MemberId]:
        """Those that have a log."""
        return [stream.origin for stream in self._streams.values() if stream.started]

    def has_stream(self, origin: MemberId) -> bool:
        """Whether there is a stream of the origin, also if it has not begun."""
        return origin in self._streams

    def was_member(self, origin: MemberId) -> bool:
        """Whether a member is, or was not long ago, in a view of this member."""
        stream = self._streams.get(origin)
        return stream is not None and stream.started and stream.log.site == self.site

    def held(self, origin: MemberId) -> int:
        """Up to where this member and one other, or this one alone in its site, have a stream."""
        stream = self._streams.get(origin)
        if stream is None or not stream.started:
            return 0
        held = stream.position
        if self._others:
            highest, _ = stream.positions.highest()
            # What is stable everyone has, also if they have told others than this member.
            held = min(held, max(highest, stream.stable))
        # Members that cannot keep up hold up the bridge session, so that what waits for them here has a bound.
        if self._order.remote_bytes > self._settings.window_bytes:
            held = min(held, stream.stable)
        return held

    def backfill(self, now: float, origin: MemberId, from_number: int) -> None:
        """This member has become a holder: fetch for its log, from a number on, what it has delivered but not kept."""
        if stream := self._streams.get(origin):
            if stream.fill:
                from_number = min(from_number, stream.fill[0])
            self._repairs.fill(now, stream, from_number)

    def site_view(self, now: float, site: str, ids: Collection[MemberId]) -> None:
        """Who is alive in a site (of this one, `view_installed` says so). Others' streams are forgotten later."""
        if ids and site not in self._met:
            self._met.add(site)
            self._older.extend(member for member in ids if member not in self._streams)
        ids = frozenset(ids)
        for stream in self._streams.values():
            if stream.log.site == site:
                if stream.origin in ids:
                    stream.forget_at = math.inf
                elif stream.forget_at == math.inf:
                    linger = self._settings.linger
                    if site == self.site and stream.is_unused:
                        linger = min(linger, UNKNOWN_SECONDS)
                    stream.forget_at = now + linger
                    self._forget_at = min(self._forget_at, stream.forget_at)

    def configure(self, now: float, settings: StreamsSettings) -> None:
        """Other numbers of relays and copies hold from now on."""
        self._settings = settings
        self._room.configure(settings)
        self._choose_holders()
        self._tell_as_holder(now)
        self._protect(now)

    def view_installed(self, now: float, view: View) -> None:
        """This member has installed a view."""
        self._installed = True
        self._ids = view.ids
        self._others = tuple(member for member in view.ids if member != self.self_id)
        self._choose_holders()
        for member in view.ids:
            stream = self._streams.get(member) or self._make(now, member, self.site)
            if stream and not stream.started:
                self._begin(now, stream, 1, 0)
        self.site_view(now, self.site, view.ids)
        self._forget_oldest()
        self._stability.view_installed(now, view.coordinator.id, self._others)
        move = self._places.view_installed(self._others)
        for stream in self._streams.values():
            stream.positions.move(move)
            # Who had more may be gone.
            stream.target, stream.who = 0, None
            self._stability.news[stream.origin] = stream
            if stream.bridged:
                self._unheld[stream.origin] = stream
        self._repairs.view_installed(now, self._others)
        self._tell_as_holder(now)
        self._protect(now)

    def positions(self) -> bytes:
        """How far this member is, for the coordinator of the next view."""
        return wire.encode_positions(
            (stream.origin, stream.position) for stream in self._streams.values() if stream.started
        )

    def take_positions(self, now: float, member: MemberId, positions: bytes) -> None:
        """How far another one is. Raises FrameError."""
        self._on_positions(now, member, positions)

    def baseline(self) -> bytes:
        """Where streams begin at members that join now."""
        return wire.encode_baseline(
            self._baseline(stream) for stream in self._streams.values() if stream.started
        )

    def _baseline(self, stream: Stream) -> wire.Start:
        """Nobody counts as having what only this member has: who joins begins before that."""
        safe = stream.position
        if stream is self._own:
            safe = min(safe, self._protected)
        elif stream.bridged:
            safe = min(safe, self.held(stream.origin))
        first = next(stream.log.batches(safe + 1), None)
        number, messages = (first.number, first.first) if first else (stream.log.next, stream.log.messages)
        return wire.Start(stream.origin, number, messages, stream.log.site)

    def take_baseline(self, now: float, baseline: bytes) -> None:
        """Streams that are not known here begin where they were at the coordinator, for who joins. Raises FrameError.

        But who had a view before was in another part of this site: of members that came to the coordinator's part, or
        to a site that this member knew, it must be given, or told that it missed, everything.
        """
        for start in wire.decode_baseline(baseline):
            if not (self._installed and start.site == self.site):
                self._on_start(now, start)

    def heard(self, now: float, member: MemberId) -> None:
        """Part of a frame of a member has come."""
        self._repairs.arriving(now, member)

    def on_frame(self, now: float, kind: Kind, sender: MemberId, frame: bytes) -> None:
        """A whole frame of one of the kinds of streams. Raises FrameError."""
        self._repairs.arrived(sender)
        if kind is Kind.BATCH:
            self._on_batch(now, sender, decode_batch(frame, HEADER_BYTES))
            return
        if not self._senders.is_member(sender):
            self.refused += 1
            return
        body = memoryview(frame)[HEADER_BYTES:]
        if kind is Kind.POSITIONS:
            self._on_positions(now, sender, body)
        elif kind is Kind.STABLE:
            if sender == self._ids[0]:
                for stable in wire.decode_stable(body):
                    if stream := self._streams.get(stable.origin) or self._note(now, stable.origin):
                        self._on_stable(now, stream, stable)
            else:
                self.refused += 1
        elif kind is Kind.REPAIR:
            repair = wire.decode_repair(body)
            self._repairs.on_repair(now, sender, repair, self._streams.get(repair.origin))
        elif kind is Kind.MISSING:
            self._repairs.on_missing(now, sender, wire.decode_missing(body))
        elif kind is Kind.START:
            start = wire.decode_start(body)
            if self._senders.may_send_start(sender, start, self._streams.get(start.origin)):
                self._on_start(now, start)
            else:
                self.refused += 1
        elif kind is Kind.GAP:
            self._on_gap_of(now, sender, wire.decode_gap(body))

    def flush(self, now: float) -> None:
        """The turn ends: tell what is to be told at once."""
        if self._owed:
            for member, streams in self._owed.items():
                positions = [
                    (stream.origin, stream.position) for stream in streams.values() if stream.started
                ]
                self._port.send(now, member, Kind.POSITIONS, wire.encode_positions(positions))
            self._owed.clear()
        if not self._others:
            self._protect(now)
        pressed = self._order.fresh * _PRESSED >= self._settings.window_bytes
        self._stability.flush(now, pressed=pressed)
        if pressed:
            self._order.fresh = 0
        if self._retained and self._trim_at == math.inf:
            self._trim_at = now + self._settings.tell_every
        if self._unheld:
            for stream in self._unheld.values():
                if (held := self.held(stream.origin)) > stream.held:
                    stream.held = held
                    self._user.held(now, stream.origin, held)
            self._unheld.clear()

    def on_time(self, now: float) -> None:
        """Time has passed."""
        if len(self._ids) < self._settings.copies:
            self._protect(now)  # another site may have more by now
        self._order.on_time(now)
        self._stability.on_time(now)
        self._repairs.on_time(now)
        if now >= self._trim_at:
            self._trim_at = math.inf
            for stream in list(self._retained.values()):
                self._trim(stream)
        if now >= self._forget_at:
            self._forget(now)
        self.flush(now)

    def _on_batch(self, now: float, sender: MemberId, batch: Batch) -> None:
        stream = self._streams.get(batch.origin)
        if not self._senders.may_send_batch(sender, batch, stream):
            self.refused += 1
            return
        if stream is not None and self._senders.is_source(
            sender, batch.origin, stream.log.site or batch.site
        ):
            stream.vouch(batch.number)
        self.accept(now, batch, sender)

    def _on_gap_of(self, now: float, sender: MemberId, gap: wire.Gap) -> None:
        stream = self._streams.get(gap.origin)
        if not self._senders.may_send_gap(sender, gap, stream):
            self.refused += 1
            return
        self._on_gap(now, gap)
        # Whoever has not got it can not give it back for the log either.
        self._repairs.on_missing(now, sender, wire.Missing(gap.origin, gap.first, gap.last, 0, 0))

    def _begun(self, start: wire.Start) -> wire.Start:
        """Where it begins for this member: with 1, if the origin came to a site that was known here."""
        if start.site in self._met and start.origin not in self._older:
            return start._replace(number=1, messages=0)
        return start

    def _choose_holders(self) -> None:
        holders = self._ids[: self._settings.holders]
        self.is_holder = self.self_id in holders
        self._senders.choose(self._ids, self._settings.relays)
        self._holders = tuple(member for member in holders if member != self.self_id)

    def _tell_as_holder(self, now: float) -> None:
        if self.is_holder and self._others:
            # Origins that had other holders must hear of these.
            self._port.send_all(now, Kind.POSITIONS, self.positions())

    def _make(self, now: float, origin: MemberId, site: str, *, begins: bool = False) -> Stream | None:
        """A stream that was not known; those of members begin with their first batch, of others it must be asked,
        unless it `begins` now.

        None: there is no place for it.
        """
        if origin in self._ids:
            stream = Stream(origin, self.site, 1, 0, self._places)
        elif not self._has_place(site) or (
            site not in ("", self.site) and not begins and self._repairs.unknown(site) >= MOST_UNKNOWN
        ):
            return None
        else:
            stream = Stream(origin, "", 0, 0, self._places)
            self._assign(stream, site)
            stream.forget_at = now + min(self._settings.linger, UNKNOWN_SECONDS)
            self._forget_at = min(self._forget_at, stream.forget_at)
            self._repairs.lacking(now, stream)
        self._streams[origin] = stream
        return stream

    def _has_place(self, site: str) -> bool:
        """For a stream of a site. Another site has half as many as are free, so that there are some for others."""
        free = self._settings.most_streams - len(self._streams)
        return free > 0 and (site in ("", self.site) or 2 * self._of_sites[site] < free)

    def _assign(self, stream: Stream, site: str) -> None:
        """The stream is of that site."""
        before = stream.log.site
        self._of_sites[before] -= 1
        if self._of_sites[before] <= 0:
            del self._of_sites[before]
        self._of_sites[site] += 1
        stream.log.site = site

    def _note(self, now: float, origin: MemberId) -> Stream | None:
        """The same for one that others mention: half of the place is left for streams that begin."""
        if len(self._streams) * 2 >= self._settings.most_streams and origin not in self._ids:
            return None
        return self._make(now, origin, "")

    def _begin(self, now: float, stream: Stream, number: int, messages: int) -> None:
        stream.begin(number, messages)
        gone = stream.log.site == self.site and stream.origin not in self._ids
        stream.forget_at = now + self._settings.linger if gone else math.inf
        for early in [early for early in stream.early if early < number]:
            self._order.pop_early(stream, early)
        self._stability.news[stream.origin] = stream
        self._order.go_on(now, stream)

    def _forget(self, now: float) -> None:
        """Streams of origins that are gone, when nobody needs them."""
        for stream in list(self._streams.values()):
            if stream.forget_at > now:
                continue
            if stream.log.count:
                stream.forget_at = now + self._settings.linger
                continue
            self._drop(stream)
        self._forget_at = min((stream.forget_at for stream in self._streams.values()), default=math.inf)

    def _forget_oldest(self) -> None:
        """Those that have left, where more are remembered than may be: members of a view may be invented."""
        gone = [
            stream
            for stream in self._streams.values()
            if stream.log.site == self.site and stream.forget_at < math.inf and not stream.log.count
        ]
        unused = [stream for stream in gone if stream.is_unused]
        for streams, most in ((unused, MOST_GONE), (gone, self._settings.most_streams)):
            if len(streams) > most:
                streams.sort(key=lambda stream: stream.forget_at)
                for stream in streams[:-most]:
                    if stream.origin in self._streams:
                        self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        self._order.forget(stream)
        del self._streams[stream.origin]
        self._assign(stream, "")
        self._older.append(stream.origin)
        self._stability.forget(stream)
        self._repairs.forget(stream)
        self._unheld.pop(stream.origin, None)
        self._retained.pop(stream.origin, None)

    def _on_positions(self, now: float, sender: MemberId, body: bytes | memoryview) -> None:
        for origin, number in wire.decode_positions(body):
            stream = self._streams.get(origin) or self._note(now, origin)
            if stream is None:
                continue
            if self._senders.is_source(sender, origin, stream.log.site):
                stream.vouch(number)
            if number:
                stream.positions.note(sender, number)
            if not stream.started and stream.who is None:
                stream.who = sender
            if self._stability.coordinating:
                # Also if that was known: who repeats itself has not heard what is stable.
                self._stability.news[origin] = stream
            if stream is self._own:
                self._protect(now)
            elif stream.bridged:
                self._unheld[origin] = stream

    def _on_stable(self, now: float, stream: Stream, stable: wire.Stable) -> None:
        lowest = min(stable.lowest, stream.position)
        if stream is self._own and len(self._ids) < self._settings.copies:
            # All who are here are not enough: others are to join, and to be given it.
            lowest = min(lowest, self._protected)
        if lowest > stream.stable:
            room = self.room
            settled = stream.settle(lowest)
            if stream is not self._own:
                self._room.unstable_bytes -= settled
            if stream.log.site != self.site:
                self._order.remote_bytes -= settled
            self._trim(stream)
            if stream.bridged:
                self._unheld[stream.origin] = stream
            if stream is self._own:
                self._protect(now)
                if room <= 0 < self.room:
                    self._user.room_changed(now)
        if stream is not self._own:
            stream.target, stream.who = stable.highest, stable.who
            if stream.position < stable.highest:
                self._repairs.lacking(now, stream)

    def _on_start(self, now: float, start: wire.Start) -> None:
        stream = self._streams.get(start.origin) or self._make(
            now, start.origin, start.site, begins=start.number > 0
        )
        if stream and not stream.started and start.number > 0:
            start = self._begun(start)
            self._assign(stream, start.site)
            self._begin(now, stream, start.number, start.messages)

    def _on_gap(self, now: float, gap: wire.Gap) -> None:
        stream = self._streams.get(gap.origin) or self._make(now, gap.origin, gap.site)
        if stream is None or stream is self._own:
            return
        is_next = gap.first <= stream.log.next
        if is_next or gap.first in stream.gaps or len(stream.gaps) < MOST_HOLES:
            stream.gaps[gap.first] = (gap.last, gap.messages)
            if stream.started:
                self._order.go_on(now, stream)

    def _trim(self, stream: Stream) -> None:
        keep: float = stream.stable
        if stream.log.site == self.site and (self.is_holder or stream is self._own):
            keep = min(keep, self._user.relayed(stream.origin))
        stream.log.trim(keep)
        if stream.log.low <= stream.stable:
            self._retained[stream.origin] = stream
        else:
            self._retained.pop(stream.origin, None)

    def _protect(self, now: float) -> None:
        """Tell up to where own batches are held by enough members, here or in another site."""
        own, copies = self._own, self._settings.copies
        number = own.position
        if copies > 1:
            held = sorted((own.positions.of(member) for member in self._holders), reverse=True)
            here = held[copies - 2] if len(held) > copies - 2 else 0
            if len(self._ids) >= copies:
                here = max(here, own.stable)
            number = min(number, here)
            if number < own.position:
                number = self._user.elsewhere(max(number, self._protected))
        if number > self._protected:
            self._protected = number
            self._user.protected(now, number)
            if len(self._ids) < copies:
                self._stability.news[own.origin] = own
