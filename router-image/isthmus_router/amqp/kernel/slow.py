"""Receivers that hold up a multicast message that is passed on while it arrives.

Such a message gets on at the pace of the slowest receiver. Once a second the router examines the messages that are
under way, and leaves out the receivers for which others wait too long. If all receivers are slow, the sender waits.

A router that waits for another one cannot see for which client that one waits. So it waits longer: each router on the
way of the message waits longer than the next one, which leaves out its own receivers first. If all of these are slow,
the next router cannot see whether others wait at the one before, nor that it has been left out itself: the window of
the session is closed, so that nothing arrives there. So it waits only as long as others may wait for a message.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cproton_ffi.lib import pn_delivery_pending, pn_link_credit, pn_session_outgoing_bytes

from isthmus_router.amqp.kernel.delivery import CHUNK_BYTES, STREAM_OUTGOING_HIGH, Branch, Stream
from isthmus_router.amqp.kernel.handles import has_room
from isthmus_router.amqp.kernel.wide import WideStream
from isthmus_router.core.model import Link
from isthmus_router.message.sections import decode_annotations

if TYPE_CHECKING:
    from isthmus_router.amqp.kernel.forward import Forwarder

log = logging.getLogger("ROUTER")

DEFAULT_SECONDS = 10
LEAST_BYTES = 8 * 1024
"""That a receiver has to take in this time, if others wait for it."""
MESSAGE_BYTES = 1024
"""As so many of them counts a message that the receiver takes before this one."""
PROBATION_SECONDS, PROBATION_PATIENCE = 60, 1
"""For so long after a receiver was left out, others wait no longer than this for it."""
ROUTER_SECONDS = 3
"""Others wait so much longer for a router, for each router that may be behind it."""
MOST_ROUTERS = 8
"""That are counted for this."""
AT_ONCE = 64
"""Receivers that are examined, or left out, in one step: with the last message at most three times as many. A message
to no more than so many is never left half examined, as it may be over when it goes on."""


class _Hold:
    """How long one receiver has held up a message, in microseconds, and what it had taken when that began."""

    __slots__ = ("taken", "unsent", "waited")

    def __init__(self, taken: int, unsent: int) -> None:
        self.taken = taken
        self.unsent = unsent
        """Bytes that waited in its session."""
        self.waited = 0


class _Course:
    """How one message gets on."""

    __slots__ = ("holds", "size", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.size = stream.size
        """When it last got on."""
        self.holds: dict[Branch, _Hold] = {}
        """Of the receivers that have held it up since then."""


class SlowReceivers:
    """Those of one router process."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self.seconds = DEFAULT_SECONDS
        """For which a receiver may hold up others though it takes less than `LEAST_BYTES`; 0: without end."""
        self._courses: dict[Link | WideStream, _Course | None] = {}
        """By the IN link, or by the stream itself if that link is gone."""
        self._left_out: dict[Link, int] = {}
        """Until when receivers are on probation, by the router's clock."""
        self._examined = 0
        self._work = 0
        """What has been done in this step: receivers, and messages."""
        self._under_way = False

    def watch(self, link: Link) -> None:
        """A multicast stream has begun on an IN link."""
        if self.seconds:
            self._courses.setdefault(link, None)

    def orphaned(self, stream: WideStream) -> None:
        """The IN link of a stream is gone."""
        if self.seconds:
            self._courses[stream] = None

    def examine(self) -> Iterator[None]:
        """Leave out the receivers that hold others up; to be called every second, and carried out in steps."""
        if self._under_way or not self.seconds:
            return
        self._under_way = True
        now = self._forwarder.settlement.now
        elapsed, self._examined = now - self._examined, now
        try:
            for link, until in list(self._left_out.items()):
                if now >= until or link not in link.connection.links:
                    del self._left_out[link]
            yield from self._examine_all(elapsed)
        finally:
            self._under_way = False

    def _examine_all(self, elapsed: int) -> Iterator[None]:
        for place, course in list(self._courses.items()):
            if self._work >= AT_ONCE:
                self._work = 0
                yield
            self._work += 1
            stream = _under_way(place)
            if course is not None and course.stream is not stream:
                self._over(course)
                course = self._courses[place] = None
            if stream is None:
                del self._courses[place]
                continue
            if course is None:
                course = self._courses[place] = _Course(stream)
            if stream.up_to_date or stream.size - course.size >= LEAST_BYTES:
                course.size = stream.size
                course.holds.clear()
            if not stream.up_to_date and not _is_queued(stream):
                yield from self._examine(course, elapsed)

    def _examine(self, course: _Course, elapsed: int) -> Iterator[None]:
        stream, late, ready = course.stream, [], False
        for number, branch in enumerate(_branches(stream), 1):
            state = _holds_up(stream, branch)
            if state is False:
                ready = True
            elif state and self._is_late(course, branch, elapsed):
                late.append(branch)
            self._work += 1
            if number % AT_ONCE == 0:
                self._work = 0
                yield
        left_out = 0
        for number, branch in enumerate(late, 1):
            if ready or self._others_may_wait(course, branch):
                left_out += 1
                self._forwarder.streams.drop(stream, branch)
                self._on_probation(branch.link)
            self._work += 1
            if number % AT_ONCE == 0:
                self._work = 0
                yield
        if left_out:
            self._report(stream, left_out)

    def _others_may_wait(self, course: _Course, branch: Branch) -> bool:
        """Whether others may wait for a receiver at the router from which the message comes."""
        if not course.stream.link.connection.role.is_between_routers:
            return False
        most = self._forwarder.stalled.seconds * 1_000_000
        return branch.link in self._left_out or 0 < most <= course.holds[branch].waited

    def _is_late(self, course: _Course, branch: Branch, elapsed: int) -> bool:
        """Whether a receiver that holds others up has done so for too long."""
        out, stream = branch.link, course.stream
        taken = out.deliveries * MESSAGE_BYTES
        if branch.pn is not None:
            taken += stream.size - pn_delivery_pending(branch.pn)
        unsent = pn_session_outgoing_bytes(out.session)
        hold = course.holds.get(branch)
        if hold is None:
            course.holds[branch] = _Hold(taken, unsent)
            return False
        if taken - hold.taken >= LEAST_BYTES or hold.unsent - unsent >= LEAST_BYTES:
            hold.taken, hold.unsent, hold.waited = taken, min(unsent, hold.unsent), 0
            return False
        hold.waited += elapsed
        return hold.waited >= self._patience(branch) * 1_000_000

    def _patience(self, branch: Branch) -> int:
        """Seconds for which others may wait for a receiver."""
        if branch.link in self._left_out:
            return min(PROBATION_PATIENCE, self.seconds)
        if not branch.link.connection.role.is_between_routers:
            return self.seconds
        core = self._forwarder.core
        return self.patience_with_routers(branch.prefix, MOST_ROUTERS if core.edge else len(core.nodes))

    def patience_with_routers(self, section: bytes, others: int) -> int:
        """Seconds for which others may wait for a router that gets this annotation section, with so many in the
        network."""
        passed = len(decode_annotations(section).trace) if section else 0  # this router among them
        return self.seconds + ROUTER_SECONDS * max(1, min(others, MOST_ROUTERS) + 2 - passed)

    def _over(self, course: _Course) -> None:
        """A message is not under way any more; with it goes what has held it up until the end."""
        for branch, hold in course.holds.items():
            if hold.waited >= self.seconds * 1_000_000:
                self._on_probation(branch.link)

    def _on_probation(self, out: Link) -> None:
        if not out.connection.role.is_between_routers and out in out.connection.links:
            self._left_out[out] = self._forwarder.settlement.now + PROBATION_SECONDS * 1_000_000

    def _report(self, stream: Stream, receivers: int) -> None:
        log.info(
            "receivers left out of a multicast message",
            extra={
                "event": "message.slow_receivers",
                "connection": stream.link.connection.id,
                "link": stream.link.name,
                "receivers": receivers,
                "reason": f"less than {LEAST_BYTES} bytes taken in {self.seconds} seconds, while others waited",
            },
        )


def _under_way(place: Link | WideStream) -> Stream | None:
    """The stream that is watched there, if it still passes on."""
    stream = place if isinstance(place, WideStream) else place.stream
    if isinstance(place, Link) and place not in place.connection.links:
        return None
    if isinstance(stream, WideStream):
        return stream if stream.passes_on else None
    return stream if stream.__class__ is Stream and stream.multicast else None


def _branches(stream: Stream) -> list[Branch]:
    return list(stream.receivers.values() if isinstance(stream, WideStream) else stream.branches)


def _is_queued(stream: Stream) -> bool:
    """Whether a stream to many waits for another stream."""
    if not isinstance(stream, WideStream) or stream.at >= len(stream.round):
        return False
    branch = stream.round[stream.at]
    return not branch.claimed and branch.link.stream is not None


def _holds_up(stream: Stream, branch: Branch) -> bool | None:
    """Whether a receiver holds others up; None if the message waits there for another stream, or for nothing more."""
    out = branch.link
    if isinstance(stream, WideStream) and stream.receivers.get(out) is not branch:
        return None
    if branch.pn is not None:
        return not has_room(out, _next_bytes(stream), STREAM_OUTGOING_HIGH)
    if not branch.claimed:
        return None if out.stream is not None else True
    if pn_link_credit(out.io) <= 0 and not out.boundless:
        return True
    return not has_room(out, len(stream.head), STREAM_OUTGOING_HIGH)


def _next_bytes(stream: Stream) -> int:
    """How much a receiver gets next of a stream that has begun there."""
    if isinstance(stream, WideStream):
        return len(stream.chunk)
    pending: int = pn_delivery_pending(stream.pn)
    return min(pending, CHUNK_BYTES)
