"""What goes from this relay to one other site: a cursor per origin in its stream, and a window of what is under way.

Nothing is queued here: what does not fit in the window stays in the streams, and is read from there when there is
room. So a replay after a takeover, what waits for a slow site, and live traffic are the same thing, and one site does
not wait for another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from isthmus_router.groups.identity import MemberId
from isthmus_router.relay.buffer import Buffer
from isthmus_router.relay.messages import MOST_NUMBERS, BridgeKind, Position, Range, pack, pack_numbers
from isthmus_router.relay.port import SiteStreams, StreamLog
from isthmus_router.relay.settings import Window

TURN_BYTES = 65_536
"""Of one origin, before it is another one's turn."""
REPEAT_INTERVAL = 0.1
MOST_REPEATED = 1_024
"""Batches for one request. The site requests further ones again."""
REPEAT_BYTES = TURN_BYTES
"""Repeated, of all origins together, in `REPEAT_PAUSE`. After longer batches the pause is longer in proportion."""
REPEAT_PAUSE = 0.005
"""Seconds."""
REPEAT_LEAST = 256
"""Bytes for which a small batch or a gap counts, as each costs time."""
GAP_BYTES = 8_192
"""Bytes for which a gap counts in which batches were dropped: these are searched for."""
MOST_BACKLOG = 16 << 20
"""Bytes that wait at the session, beyond which nothing is repeated. It is more than the bound of `Forwarding`, so that
messages to single members do not prevent repeats."""
GIVE_UP_AFTER = 2.0
"""Seconds for a relay of the site to get from its own members what they have acknowledged."""
BATCH = bytes((BridgeKind.BATCH,))


@dataclass(slots=True)
class _Cursor:
    next: int
    messages: int | None
    """Of the origin, before `next`; None: not known."""
    started: bool
    """The site has the stream."""
    asked: bool = False
    """Others have been asked for what is missing here."""
    start: Position | None = None
    """As it was told."""
    behind: tuple[int, float] = (0, inf)
    """The number that the site's relay lacks though its site has acknowledged it, and since when."""
    sent: deque[tuple[int, int]] = field(default_factory=deque)
    """Number and size of what is not acknowledged."""


class Outlet:
    """To one site; idle until a session begins."""

    def __init__(self, site: str, streams: SiteStreams, buffer: Buffer) -> None:
        self.site = site
        self.window = Window(0)
        self._streams = streams
        self._buffer = buffer
        self._send: Callable[[bytes], None] | None = None
        self._backlog: Callable[[], int] = int
        self._cursors: dict[MemberId, _Cursor] = {}
        self._known: dict[MemberId, Position] = {}
        self._ready: dict[MemberId, None] = {}
        """Origins that may have something to send, by turn."""
        self._waiting: set[MemberId] = set()
        """Origins of which something has been asked of others."""
        self._in_flight = 0
        self._unacknowledged: dict[MemberId, None] = {}
        """Origins that something was sent of, or is known to be there, and not acknowledged."""
        self._live_from: dict[MemberId, int] = {}
        self._draining = False
        self._ping_at = inf
        """When the site is next told the numbers of the last batches that were sent to it."""
        self._repeats: dict[MemberId, tuple[int, int]] = {}
        """What is still to be repeated of each origin, by turn: from the first number on and before the second one."""
        self._repeat_left = 0
        """Bytes that may be repeated until `_refill_at`."""
        self._refill_at = -inf
        self._repeat_at = inf
        """When to go on; `inf`: nothing is to be repeated."""
        self.sent_messages = 0
        self.replayed = 0
        """Messages that were here before the session began."""
        self.gaps = 0
        """Messages that the site has been told are lost."""

    @property
    def open(self) -> bool:
        """Whether there is a session."""
        return self._send is not None

    @property
    def deadline(self) -> float:
        """When `on_time` is due."""
        return min(self._ping_at, self._repeat_at)

    @property
    def drained(self) -> bool:
        """Whether all that was sent is acknowledged, and nothing is missing that is to be sent."""
        return not self._unacknowledged and not self._waiting

    def begin(
        self,
        now: float,
        send: Callable[[bytes], None],
        backlog: Callable[[], int],
        known: Iterable[Position],
        origins: Iterable[MemberId],
    ) -> None:
        """A session with a relay of the site: what it knows, and the origins that are relayed here. `backlog`: bytes
        that were sent and that the transport has not taken."""
        self.end()
        self._send, self._backlog = send, backlog
        self._known = {position.origin: position for position in known}
        for origin in origins:
            log = self._streams.log(origin)
            if log is not None:
                self._live_from[origin] = log.next
                self._ready[origin] = None
        self.pump(now)

    def tell_starts(self, send: Callable[[bytes], None], origins: Iterable[MemberId]) -> None:
        """To a relay of the site that is fed nothing: from where on the site is sent what. It may be in a part of its
        own, and knows then what it has missed when it comes to the others."""
        for origin in origins:
            log = self._streams.log(origin)
            if log is not None:
                number = self._buffer.acknowledged(self.site, origin) + 1
                first = next(iter(log.batches(number)), None)
                at = (log.next, log.messages) if first is None else (first.number, first.first)
                if at[0] == number:  # what is gone is for who is fed to be told
                    send(pack(BridgeKind.START, bytes(origin), *at))

    def end(self) -> None:
        """The session has ended, or this member does not relay any more."""
        self._send = None
        self._draining = False
        self._in_flight = 0
        self._ping_at = self._repeat_at = inf
        for mapping in (self._cursors, self._ready, self._unacknowledged, self._live_from, self._repeats):
            mapping.clear()
        self._waiting.clear()

    def drain(self) -> None:
        """Send nothing more."""
        self._draining = True
        self._ready.clear()
        self._waiting.clear()

    def resume(self, now: float, origins: Iterable[MemberId]) -> None:
        """Send again, after `drain`."""
        self._draining = False
        if self.open:
            self._ready.update(dict.fromkeys(origins))
            self.pump(now)

    def keep(self, origins: set[MemberId]) -> None:
        """Others are relayed by another relay from now on."""
        for origin in [origin for origin in self._cursors if origin not in origins]:
            self._in_flight -= sum(size for _, size in self._cursors.pop(origin).sent)
            self._ready.pop(origin, None)
            self._unacknowledged.pop(origin, None)
            self._waiting.discard(origin)
            self._repeats.pop(origin, None)

    def more(self, now: float, origin: MemberId) -> None:
        """Something of an origin may be there to send."""
        if not self._draining:
            self._ready[origin] = None
            self.pump(now)

    def pump(self, now: float) -> None:
        """Send what the window has room for."""
        while self._ready and self._in_flight < self.window.bytes:
            origin = next(iter(self._ready))
            del self._ready[origin]
            if self._turn(now, origin):
                self._ready[origin] = None
        if self._unacknowledged or self._waiting:
            self._ping_at = min(self._ping_at, now + REPEAT_INTERVAL)

    def acknowledge(self, now: float, origin: MemberId, number: int) -> None:
        """The site has batches of the origin up to the number, safely."""
        cursor = self._cursors.get(origin)
        if cursor is None:
            return
        while cursor.sent and cursor.sent[0][0] <= number:
            self._in_flight -= cursor.sent.popleft()[1]
        if not cursor.sent:
            self._unacknowledged.pop(origin, None)
        if number >= cursor.next:
            # It had that from another relay.
            cursor.next, cursor.messages = number + 1, None
        self._ping_at = inf
        self.pump(now)

    def repeat(self, now: float, missing: Range) -> None:
        """The site lacks what it was sent; from 0: it does not know the stream."""
        cursor, log = self._cursors.get(missing.origin), self._streams.log(missing.origin)
        if cursor is None or log is None or self._send is None:
            return
        if missing.from_number == 0:
            if cursor.start is not None:
                self._send(pack(BridgeKind.START, bytes(cursor.start.origin), *cursor.start[1:]))
            return
        from_number = missing.from_number
        acknowledged = self._buffer.acknowledged(self.site, missing.origin)
        if from_number <= acknowledged and log.get(from_number) is None:
            if not self._gone_there(now, cursor, missing, acknowledged, log):
                return
            from_number = acknowledged + 1
        end = min(missing.to_number + 1, cursor.next, from_number + MOST_REPEATED)
        # This request replaces an earlier one: the site has received what that one had and this one has not.
        self._repeats[missing.origin] = from_number, end
        self._go_on_repeating(now)

    def _go_on_repeating(self, now: float) -> None:
        """Repeat up to `REPEAT_BYTES`, and the rest after the pause. Requests that come before its end wait for it."""
        if now >= self._refill_at:
            self._repeat_left, self._refill_at = REPEAT_BYTES, now + REPEAT_PAUSE
        while self._repeats and self._repeat_left > 0 and self._backlog() < MOST_BACKLOG:
            origin = next(iter(self._repeats))
            from_number, end = self._repeats.pop(origin)
            from_number = self._repeat_some(origin, from_number, end)
            if from_number < end:
                self._repeats[origin] = from_number, end
        if self._repeat_left < 0:
            self._refill_at += REPEAT_PAUSE * -self._repeat_left / REPEAT_BYTES
            self._repeat_left = 0
        self._repeat_at = self._refill_at if self._repeats else inf

    def _repeat_some(self, origin: MemberId, from_number: int, end: int) -> int:
        """Repeat of one origin. Return the number to go on with."""
        log = self._streams.log(origin)
        if log is None or self._send is None:
            return end
        for batch in log.batches(from_number):
            if batch.number >= end:
                break
            if self._repeat_left <= 0:
                self._tell_gone(origin, from_number, batch.number)
                return batch.number
            self._repeat_left -= max(batch.size, REPEAT_LEAST)
            if batch.is_for(self.site):
                self._tell_gone(origin, from_number, batch.number)
                self._send(BATCH + batch.encoded)
                from_number = batch.number + 1
        self._tell_gone(origin, from_number, end)
        return end

    def _tell_gone(self, origin: MemberId, from_number: int, end: int) -> None:
        """What was sent before is not here any more, or was not for the site."""
        if from_number < end:
            lost, elsewhere = self._buffer.gone(self.site, origin, from_number, end)
            self._repeat_left -= GAP_BYTES if lost or elsewhere else REPEAT_LEAST
            self._tell_gap(origin, from_number, end - 1, lost)
            self.gaps += lost

    def _gone_there(
        self, now: float, cursor: _Cursor, missing: Range, acknowledged: int, log: StreamLog
    ) -> bool:
        """The site's relay lacks what its site had acknowledged. If nobody there gives it that, all who had it are
        gone: tell that it is lost."""
        if cursor.behind[0] != missing.from_number:
            cursor.behind = (missing.from_number, now)
        if now - cursor.behind[1] < GIVE_UP_AFTER:
            return False
        first = next(iter(log.batches(acknowledged + 1)), None)
        lost = max(0, (log.messages if first is None else first.first) - missing.messages)
        self._tell_gap(missing.origin, missing.from_number, acknowledged, lost)
        self.gaps += lost
        return True

    def on_time(self, now: float) -> None:
        """Go on repeating. Over a transport that loses frames, the last ones might be lost: repeat how far it should
        have got."""
        if self._send is None:
            return
        if now >= self._repeat_at:
            self._go_on_repeating(now)
        if now < self._ping_at:
            return
        self._ping_at = inf
        if self._unacknowledged:
            origins = islice(self._unacknowledged, MOST_NUMBERS)
            sent = [(origin, self._cursors[origin].sent[-1][0]) for origin in origins]
            self._send(pack_numbers(BridgeKind.PING, sent))
        self._ready.update(dict.fromkeys(self._waiting))
        self.pump(now)

    def _turn(self, now: float, origin: MemberId) -> bool:
        """Send of one origin; whether there is more."""
        log = self._streams.log(origin)
        if log is None or self._send is None:
            return False
        cursor = self._cursors.get(origin) or self._open(origin, log)
        if cursor.next >= log.next:
            if cursor.next == log.next and not cursor.started:
                # The site knows from now on where it begins, whoever of it misses what comes next.
                self._start(origin, cursor, log.next, log.messages)
            return False
        if not self._close_up(now, origin, cursor, log):
            return False
        budget = TURN_BYTES
        for batch in log.batches(cursor.next):
            if batch.number > cursor.next or budget <= 0 or self._in_flight >= self.window.bytes:
                return True
            size = max(batch.size, self.window.least)
            if not batch.is_for(self.site):
                self._tell_gap(origin, batch.number, batch.number, 0)
                cursor.started, size = True, 0
            else:
                if not cursor.started:
                    self._start(origin, cursor, batch.number, batch.first)
                self._send(BATCH + batch.encoded)
                self.sent_messages += batch.count
                if batch.number < self._live_from.get(origin, 0):
                    self.replayed += batch.count
            self._sent(origin, cursor, batch.number, batch.first + batch.count, size)
            budget -= batch.size
        return cursor.next < log.next

    def _sent(self, origin: MemberId, cursor: _Cursor, number: int, messages: int, size: int) -> None:
        cursor.next, cursor.messages = number + 1, messages
        cursor.sent.append((number, size))
        self._unacknowledged[origin] = None
        self._in_flight += size

    def _open(self, origin: MemberId, log: StreamLog) -> _Cursor:
        known = self._known.get(origin)
        if known is not None:
            cursor = _Cursor(known.next, known.messages, started=True)
            acknowledged = self._buffer.acknowledged(self.site, origin)
            if known.next <= acknowledged:
                # Others of the site have that, and give it to this relay of theirs.
                cursor.next, cursor.messages = acknowledged + 1, None
            if known.next != acknowledged + 1:
                # It is not safe yet, or not here.
                cursor.sent.append((cursor.next - 1, 0))
                self._unacknowledged[origin] = None
        else:
            number = self._buffer.acknowledged(self.site, origin) + 1
            if self.site not in self._buffer.contacted:
                number = max(number, log.low)
            cursor = _Cursor(number, 0 if number == 1 else None, started=False)
        self._cursors[origin] = cursor
        return cursor

    def _close_up(self, now: float, origin: MemberId, cursor: _Cursor, log: StreamLog) -> bool:
        """If what comes next is not here, get it from others, or tell that it is lost. Whether to go on."""
        first = next(iter(log.batches(cursor.next)), None)
        number, messages = (log.next, log.messages) if first is None else (first.number, first.first)
        if number > cursor.next and not cursor.asked:
            cursor.asked = True
            self._streams.backfill(now, origin, cursor.next)
        if number > cursor.next and not self._streams.ready:
            self._waiting.add(origin)
            return False
        self._waiting.discard(origin)
        cursor.asked = False
        if number > cursor.next:
            gone, elsewhere = self._buffer.gone(self.site, origin, cursor.next, number)
            lost = gone if cursor.messages is None else max(0, messages - cursor.messages - elsewhere)
            self._tell_gap(origin, cursor.next, number - 1, lost)
            cursor.started = True
            self._sent(origin, cursor, number - 1, messages, 0)
            self.gaps += lost
        return True

    def _start(self, origin: MemberId, cursor: _Cursor, number: int, messages: int) -> None:
        cursor.started = True
        cursor.start = Position(origin, number, messages)
        if self._send is not None:
            self._send(pack(BridgeKind.START, bytes(origin), number, messages))

    def _tell_gap(self, origin: MemberId, from_number: int, to_number: int, messages: int) -> None:
        if self._send is not None:
            self._send(pack(BridgeKind.GAP, bytes(origin), from_number, to_number, messages))
