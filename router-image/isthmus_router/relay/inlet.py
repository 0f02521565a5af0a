"""What comes from other sites: put on this one, and acknowledged when it is safe here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

from isthmus_router.groups.batch import decode_batch
from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import MemberId, can_be_of
from isthmus_router.groups.streams.senders import MOST_STARTED, MOST_STEP
from isthmus_router.relay.backpressure import Backpressure
from isthmus_router.relay.messages import (
    MOST_NUMBERS,
    MOST_ORIGINS,
    BridgeKind,
    Range,
    pack,
    pack_numbers,
    unpack_position,
    unpack_range,
)
from isthmus_router.relay.port import SiteStreams
from isthmus_router.relay.session import Session

ACK_INTERVAL = 0.01
MOST_ASKED = 256
"""Batches that are asked for again at once."""


@dataclass(slots=True)
class Counts:
    """Of messages from one site, since this member started."""

    messages: int = 0
    duplicates: int = 0
    lost: int = 0


class Inlet:
    """From all sites."""

    def __init__(
        self,
        streams: SiteStreams,
        send: Callable[[int, bytes], None],
        backpressure: Backpressure,
        site_of: Callable[[MemberId], str | None],
    ) -> None:
        """`site_of`: the other site that a member is in, if it is known."""
        self._site_of = site_of
        self._streams = streams
        self._backpressure = backpressure
        self._send = send
        self._stopped = False
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)
        self.deadline = inf

    def begin(self, now: float, session: Session) -> None:
        """A session is open: what is safe here of the site is told, as its relay may be a new one."""
        for origin in self._streams.origins():
            log = self._streams.log(origin)
            if log is not None and log.site == session.site:
                session.origins.add(origin)
                self._acknowledge(now, session, origin)

    def held(self, now: float, origin: MemberId, number: int, sessions: Iterable[Session]) -> None:
        """The stream of an origin is safe up to a number; `sessions` are those with its site."""
        for session in sessions:
            if origin in session.origins:
                session.acks[origin] = max(number, session.acks.get(origin, 0))
                self.deadline = min(self.deadline, now + ACK_INTERVAL)

    def on_frame(self, now: float, session: Session, kind: BridgeKind, frame: bytes) -> None:
        """START, BATCH or GAP. Raises FrameError."""
        if self._stopped:
            return
        if kind is BridgeKind.BATCH:
            self._on_batch(now, session, frame)
        elif kind is BridgeKind.START:
            start = unpack_position(frame)
            if start.next > MOST_STARTED:
                raise FrameError(f"stream that starts with {start.next}")
            if self._belongs(session, start.origin):
                self._streams.start(now, start.origin, session.site, start.next, start.messages)
                self._note(session, start.origin)
        elif kind is BridgeKind.GAP:
            gap = unpack_range(frame)
            if not 1 <= gap.from_number <= gap.to_number:
                raise FrameError(f"gap from {gap.from_number} to {gap.to_number}")
            if self._belongs(session, gap.origin):
                self._check_step(gap.origin, gap.to_number)
                self._on_gap(now, session, gap)
                self._note(session, gap.origin)
        else:
            raise FrameError(f"{kind.name} in an open session")

    def on_ping(self, now: float, session: Session, numbers: Iterable[tuple[MemberId, int]]) -> None:
        """How far the other side has sent: what is missing is asked for, what is safe told again."""
        for origin, number in numbers:
            log = self._streams.log(origin)
            if log is None:
                self._send(session.id, pack(BridgeKind.NAK, bytes(origin), 0, 0, 0))
            elif log.next <= number:
                last = min(number, log.next + MOST_ASKED)
                self._send(session.id, pack(BridgeKind.NAK, bytes(origin), log.next, last, log.messages))
            if self._belongs(session, origin) and self._streams.has_stream(origin):
                self._note(session, origin)
                self._acknowledge(now, session, origin)

    def on_time(self, now: float, sessions: Iterable[Session]) -> None:
        """Send acknowledgements, but where receivers are behind."""
        if now < self.deadline:
            return
        self.deadline = inf
        for session in sessions:
            if session.acks and (until := self._backpressure.until(session)) > now:
                self.deadline = min(self.deadline, until)
            else:
                self._tell(session)

    def stop(self) -> None:
        """Take nothing more: this member leaves, and another one is sent it again."""
        self._stopped = True

    def settled(self, sessions: Iterable[Session]) -> bool:
        """Whether all that was taken is safe here."""
        return all(
            self._streams.held(origin) == log.next - 1
            for session in sessions
            for origin in session.origins
            if (log := self._streams.log(origin)) is not None
        )

    def end(self, sessions: Iterable[Session]) -> None:
        """Send what acknowledgements there are: what receivers here have got is not to come to them again, should the
        whole site restart."""
        for session in sessions:
            self._tell(session)

    def _tell(self, session: Session) -> None:
        acks = list(session.acks.items())
        session.acks.clear()
        for at in range(0, len(acks), MOST_NUMBERS):
            self._send(session.id, pack_numbers(BridgeKind.ACK, acks[at : at + MOST_NUMBERS]))

    def _on_batch(self, now: float, session: Session, frame: bytes) -> None:
        batch = decode_batch(frame, 1)
        if batch.site != session.site:
            raise FrameError(f"batch of site {batch.site} from site {session.site}")
        if not self._belongs(session, batch.origin):
            return
        self._check_step(batch.origin, batch.number)
        accepted = self._streams.accept(now, batch, None, disseminate=True)
        self._note(session, batch.origin)
        counts = self.counts[session.site]
        counts.messages += batch.count
        if not accepted:
            counts.duplicates += batch.count
            self._acknowledge(now, session, batch.origin)

    def _on_gap(self, now: float, session: Session, gap: Range) -> None:
        log = self._streams.log(gap.origin)
        if log is None:
            self._streams.start(now, gap.origin, session.site, gap.from_number, 0)
            self._note(session, gap.origin)
        elif gap.to_number < log.next:
            return
        self.counts[session.site].lost += gap.messages
        self._streams.skip(now, gap.origin, session.site, gap.from_number, gap.to_number, gap.messages)

    def _check_step(self, origin: MemberId, number: int) -> None:
        """No frame uses up the numbers of a stream. Raises FrameError."""
        log = self._streams.log(origin)
        if number > (log.next + MOST_STEP if log is not None else MOST_STARTED):
            raise FrameError(f"batch {number} is too far ahead of its stream")

    def _note(self, session: Session, origin: MemberId) -> None:
        """The session hears what is safe of the origin. Raises FrameError: there was no place for its stream."""
        if not self._streams.has_stream(origin):
            raise FrameError("no place for the stream of one more member of the site")
        session.origins.add(origin)

    def _belongs(self, session: Session, origin: MemberId) -> bool:
        """Whether the stream is of the session's site: no site speaks for another one's members. Raises FrameError
        where the id of the origin says so."""
        if not can_be_of(origin, session.site):
            raise FrameError("stream of a member whose id is of another site")
        log = self._streams.log(origin)
        if (log.site if log is not None else self._site_of(origin)) not in (None, session.site):
            return False
        return origin in session.origins or len(session.origins) < MOST_ORIGINS

    def _acknowledge(self, now: float, session: Session, origin: MemberId) -> None:
        number = self._streams.held(origin)
        if number:
            session.acks[origin] = max(number, session.acks.get(origin, 0))
            self.deadline = min(self.deadline, now + ACK_INTERVAL)
