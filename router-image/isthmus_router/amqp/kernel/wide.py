"""Streams to many receivers (multicast): what arrives is passed on in steps between other work.

Such a stream goes through its receivers one by one: first to queue for each, next to begin a delivery to each, then
with every chunk, and at last to end the deliveries. It waits where a receiver has no credit or its session no room. So
an event costs the same however many receivers there are. Steps have their turns with those of copies (`copies.py`).

Two streams could wait for each other if they queued for the same receivers at the same time. So while one queues for
the receivers of an address, other streams to several receivers of this address wait for their turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi
from cproton_ffi.lib import (
    PN_LOCAL_CLOSED,
    PN_MODIFIED,
    PN_REJECTED,
    PN_RELEASED,
    pn_delivery,
    pn_delivery_abort,
    pn_delivery_aborted,
    pn_delivery_partial,
    pn_delivery_pending,
    pn_delivery_remote_state,
    pn_delivery_settle,
    pn_delivery_settled,
    pn_delivery_updated,
    pn_link_credit,
    pn_link_recv,
    pn_link_send,
    pn_link_state,
)

from isthmus_router.amqp.kernel.delivery import (
    CHUNK_BYTES,
    STREAM_OUTGOING_HIGH,
    Branch,
    Delivery,
    Fanout,
    Postponed,
    Stream,
)
from isthmus_router.amqp.kernel.handles import advance, equip, has_room, key, release_written, retain
from isthmus_router.amqp.kernel.parking import PLACE_BYTES, has_to_settle
from isthmus_router.amqp.kernel.selective import fits
from isthmus_router.amqp.kernel.states import copy_state, has_extension_state
from isthmus_router.core.address import Address
from isthmus_router.core.model import WHOLE_MESSAGE_BYTES, Link
from isthmus_router.core.receivers import Sink
from isthmus_router.core.routes import Route
from isthmus_router.message.sections import SectionError

if TYPE_CHECKING:
    from isthmus_router.amqp.kernel.forward import Forwarder
    from isthmus_router.amqp.kernel.stream import Streams

MANY_RECEIVERS = 64
"""A stream to more receivers is a wide one."""
STEP = 32
"""Receivers that a step deals with; an eighth of it with each chunk."""


class _Stage(Enum):
    QUEUE = "queue"
    BEGIN = "begin"
    PASS_ON = "pass on"
    END = "end"
    ABORT = "abort"
    OVER = "over"


class WideStream(Stream):
    """A delivery that is passed on to many receivers while it arrives; it has no `branches` for the compiled kernel."""

    __slots__ = (
        "at",
        "chunk",
        "known",
        "orphaned",
        "place",
        "queued",
        "receivers",
        "rest",
        "round",
        "route",
        "sinks",
        "stage",
    )

    def __init__(
        self,
        link: Link,
        pn: Any,
        head: bytes,
        record: Delivery | None,
        route: Route,
        sinks: Sequence[Sink],
        known: int,
    ) -> None:
        super().__init__(link, pn, head, record)
        self.route = route
        self.sinks = sinks
        """Of its receivers; those from `at` on are still to be queued for."""
        self.known = known
        """Bytes of it that were known at its beginning."""
        self.receivers: dict[Link, Branch] = {}
        """Those that still get it."""
        self.round: list[Branch] = []
        """Those that one stage goes through; some may be gone."""
        self.at = 0
        """How many of them are done."""
        self.place = PLACE_BYTES * len(sinks)
        """Bytes of memory that it takes."""
        self.stage = _Stage.QUEUE
        self.chunk = head
        self.queued = False
        """Its next step is due."""
        self.rest = b""
        """What is still to be passed on when the link is gone."""
        self.orphaned = False
        """The link on which it came is gone."""

    @property
    def passes_on(self) -> bool:
        """Whether receivers still get more of it."""
        return self.stage in {_Stage.QUEUE, _Stage.BEGIN, _Stage.PASS_ON}

    def has_begun(self, out: Link) -> bool:
        """As `Stream`."""
        branch = self.receivers.get(out)
        return branch is not None and branch.pn is not None


class _Turns:
    """Which stream queues for the receivers of an address, and which ones wait for their turns."""

    __slots__ = ("queueing", "under_way", "waiting")

    def __init__(self) -> None:
        self.queueing: WideStream | None = None
        self.waiting: deque[Postponed] = deque()
        self.under_way = False
        """The next one is about to be found."""


class _Step:
    """The next steps of a stream, as a `Piece`."""

    __slots__ = ("_stream", "_wide", "route", "size")

    def __init__(self, wide: WideStreams, stream: WideStream) -> None:
        self._wide = wide
        self._stream = stream
        self.route = stream.route
        self.size = len(stream.rest)

    def step(self) -> bool:
        """As `Piece`."""
        return self._wide.step(self._stream)

    def orphan(self) -> bool:
        """As `Piece`."""
        self.size = len(self._stream.rest)
        return True

    def give_up(self) -> None:
        """As `Piece`."""
        self._wide.give_up(self._stream)


class WideStreams:
    """Those of one router process."""

    def __init__(self, forwarder: Forwarder, streams: Streams) -> None:
        self._forwarder = forwarder
        self._streams = streams
        self._turns: dict[Address | None, _Turns] = {}
        """By address for whose receivers a stream queues."""
        self._admitted: Link | None = None
        """Whose turn it is."""

    def has_to_wait(self, link: Link, route: Route) -> bool:
        """Whether another stream queues for the receivers of an address, so that one on an IN link has to wait."""
        return route.address in self._turns and link is not self._admitted

    def holds_up(self, stream: Postponed) -> bool:
        """Whether a stream still has to wait for that."""
        return stream.address in self._turns and stream.link is not self._admitted

    def postponed(self, link: Link, pn: Any, size: int, route: Route) -> Postponed:
        """The stream that begins in the buffer, until its turn to queue for the receivers of its address."""
        stream = Postponed(link, pn, bytes(self._forwarder.view[:size]), route.address)
        self._turns[route.address].waiting.append(stream)
        self._forwarder.parking.keep(stream)
        return stream

    def begin(self, stream: WideStream) -> None:
        """Queue for the links of all receivers from now on, in steps."""
        self._turns.setdefault(stream.route.address, _Turns()).queueing = stream
        self._forwarder.parking.wait(stream.link, stream.place)

    def _queue(self, stream: WideStream) -> None:
        """Take the links of some receivers, or queue for them."""
        some = stream.sinks[stream.at : stream.at + STEP]
        stream.at += len(some)
        for sink in self._forwarder.copies.present(some):
            branch = self._streams.branch_to(sink, stream.route, stream, stream.known)
            if branch is not None and branch.link not in stream.receivers:
                if isinstance(stream.record, Fanout):
                    stream.record.pending += 1
                stream.receivers[branch.link] = branch
                stream.round.append(branch)
                self._streams.claim(stream, branch)
        if stream.at == len(stream.sinks):
            if stream.record is None and not stream.receivers:
                stream.link.dropped_presettled += 1
            self._has_queued(stream)
            stream.stage, stream.at = _Stage.BEGIN, 0

    def _has_queued(self, stream: WideStream) -> None:
        """A stream has queued for all its receivers, or does not any more: it is the turn of the next one."""
        stream.sinks = ()
        turns = self._turns[stream.route.address]
        turns.queueing = None
        if not turns.under_way:
            turns.under_way = True
            self._forwarder.core.port.work(self._next_queues(stream.route.address, turns))

    def _next_queues(self, address: Address | None, turns: _Turns) -> Iterator[None]:
        while turns.waiting:
            stream = turns.waiting.popleft()
            link = stream.link
            if link.stream is not stream:
                continue
            stream.address, self._admitted = None, link
            self._forwarder.go_on(link)
            self._forwarder.resume()
            self._admitted = None
            if turns.queueing is not None:
                turns.under_way = False
                return
            yield
        del self._turns[address]

    def stir(self, stream: WideStream) -> None:
        """Something has happened for which it may have waited."""
        if not stream.queued and stream.stage is not _Stage.OVER:
            stream.queued = True
            stream.up_to_date = False
            self._forwarder.copies.queue(None if stream.orphaned else stream.link, _Step(self, stream))

    def give_up(self, stream: WideStream) -> None:
        """There is no room for the rest of it: receivers see the delivery aborted."""
        stream.queued, stream.rest = False, b""
        if stream.passes_on and stream.orphaned:
            self._go_through(stream, _Stage.ABORT)
            self.stir(stream)

    def cut(self, stream: WideStream) -> Iterator[None]:
        """All receivers see the delivery aborted; what still comes of it is discarded."""
        for number, branch in enumerate(list(stream.receivers.values()), 1):
            if stream.receivers.get(branch.link) is branch:
                self._abort(stream, branch)
                self._forwarder.settlement.branch_lost(stream.record, PN_MODIFIED)
            if number % STEP == 0:
                yield
                if stream.stage is not _Stage.PASS_ON:
                    return
        self.stir(stream)

    def drop(self, stream: WideStream, branch: Branch, state: int) -> None:
        """One of the receivers, if it still gets more of the message, does not; `state` is what the sender gets."""
        if stream.passes_on and stream.receivers.get(branch.link) is branch:
            self._abort(stream, branch)
            self._forwarder.settlement.branch_lost(stream.record, state)
            self.stir(stream)

    def turn(self, stream: WideStream, out: Link) -> None:
        """It may have the link of a receiver, for which it has waited."""
        branch = stream.receivers.get(out)
        if branch is not None:
            branch.claim()
        self.stir(stream)

    def leave_out(self, stream: WideStream, out: Link) -> None:
        """A receiver is gone."""
        branch = stream.receivers.pop(out, None)
        if branch is not None:
            state = PN_MODIFIED if branch.pn is not None else PN_RELEASED
            self._forwarder.settlement.branch_lost(stream.record, state)
            self.stir(stream)

    def sender_lost(self, stream: WideStream) -> bool:
        """The sender is gone: unless all of it has arrived, receivers see the delivery aborted.

        Whether messages behind it can be read, which has to be done before the engine forgets the link.
        """
        link, pn = stream.link, stream.pn
        reads_on = not pn_link_state(link.io) & PN_LOCAL_CLOSED
        if stream.passes_on:
            if reads_on and self._take_rest(stream):
                advance(link)
            else:
                reads_on = reads_on and pn_delivery_aborted(pn)
                self._go_through(stream, _Stage.ABORT)
        if stream.stage is _Stage.ABORT and reads_on:
            link.unsettled.pop(key(pn), None)
            pn_delivery_settle(pn)
        stream.orphaned = True
        stream.pn = ffi.NULL
        self._forwarder.slow.orphaned(stream)
        self.stir(stream)
        return reads_on

    def _take_rest(self, stream: WideStream) -> bool:
        """Whether all of it has arrived; it is taken then, before the engine forgets it."""
        forwarder, link, pn = self._forwarder, stream.link, stream.pn
        if pn_delivery_partial(pn) or pn_delivery_aborted(pn):
            return False
        size = pn_delivery_pending(pn)
        if size > WHOLE_MESSAGE_BYTES or 0 < link.max_message_size < stream.size + size:
            return False
        if size > 0:
            pn_link_recv(link.io, forwarder.buffer, size)
            stream.rest = bytes(forwarder.view[:size])
        if link.guard is not None:
            try:
                link.guard.check_rest(stream.rest, len(stream.rest))
                link.guard.check_end()
            except SectionError:
                stream.rest = b""
                return False
        if pn_delivery_settled(pn):
            stream.record = None
        return True

    def step(self, stream: WideStream) -> bool:
        """Go on for some of the receivers; whether there is more to do before something happens."""
        left = STEP
        self._look_for_abort(stream)
        while left > 0:
            if stream.stage is _Stage.QUEUE:
                self._queue(stream)
                return True
            if stream.at == len(stream.round):
                if not self._next(stream):
                    stream.queued = False
                    return False
                left -= 1
                continue
            branch = stream.round[stream.at]
            if stream.receivers.get(branch.link) is branch:
                if not self._deal_with(stream, branch):
                    stream.queued = False
                    return False
                left -= 8 if stream.stage is _Stage.PASS_ON else 1
            stream.at += 1
        return True

    def _look_for_abort(self, stream: WideStream) -> bool:
        aborted = not stream.orphaned and stream.passes_on and pn_delivery_aborted(stream.pn)
        if aborted:
            self._go_through(stream, _Stage.ABORT)
        return bool(aborted)

    def _go_through(self, stream: WideStream, stage: _Stage) -> None:
        self._forwarder.parking.keep_no_more(stream)
        stream.head = b""
        if stream.stage is _Stage.QUEUE:
            self._has_queued(stream)
        stream.stage, stream.at = stage, 0
        if len(stream.receivers) != len(stream.round):
            stream.round = list(stream.receivers.values())

    def _next(self, stream: WideStream) -> bool:
        """All receivers have been dealt with: what comes next. False when that has to arrive."""
        forwarder, link, pn = self._forwarder, stream.link, stream.pn
        if stream.stage in {_Stage.END, _Stage.ABORT}:
            self._over(stream)
            return False
        if self._look_for_abort(stream):
            return True
        if stream.orphaned:
            stream.chunk, stream.rest = stream.rest, b""
            stream.size += len(stream.chunk)
            self._go_through(stream, _Stage.PASS_ON if stream.chunk else _Stage.END)
            return True
        size = min(pn_delivery_pending(pn), CHUNK_BYTES)
        if size > 0:
            stream.size += size
            if 0 < link.max_message_size < stream.size:
                forwarder.too_large(link, pn)  # the link is gone, and the stream goes on to be aborted
                return True
            pn_link_recv(link.io, forwarder.buffer, size)
            if not forwarder.pieces.may_pass(link, pn, size):
                return True  # as above
            stream.chunk = bytes(forwarder.view[:size])
            forwarder.settlement.touch(link.connection)
            self._go_through(stream, _Stage.PASS_ON)
        elif pn_delivery_partial(pn):
            retain(link.connection.io, pn)
            stream.up_to_date = True
            return False
        elif forwarder.pieces.may_end(link, pn):
            if pn_delivery_settled(pn):
                self._streams.settled_after_all(stream)
            advance(link)
            if stream.record is None:
                pn_delivery_settle(pn)
            stream.pn = ffi.NULL
            forwarder.settlement.count_message(link, stream.size - stream.skip)
            forwarder.settlement.touch(link.connection)
            self._go_through(stream, _Stage.END)
        return True

    def _deal_with(self, stream: WideStream, branch: Branch) -> bool:
        """What the stage is for one receiver; False when it has to wait for it."""
        if stream.stage is _Stage.BEGIN:
            return self._begin(stream, branch)
        if stream.stage is _Stage.PASS_ON:
            return self._pass_on(stream, branch)
        if stream.stage is _Stage.END:
            self._end(stream, branch)
        else:
            self._abort(stream, branch)
        return True

    def _begin(self, stream: WideStream, branch: Branch) -> bool:
        out, forwarder = branch.link, self._forwarder
        if not branch.claimed or (pn_link_credit(out.io) <= 0 and not out.boundless):
            return False
        if not has_room(out, len(stream.head), STREAM_OUTGOING_HIGH) or has_to_settle(out, stream.record):
            out.connection.io.stalled.add(out)
            return False
        branch.pn = pn_delivery(out.io, forwarder.new_tag())
        if not stream.orphaned and has_extension_state(stream.pn):
            copy_state(stream.pn, branch.pn)
        equip(branch.pn, len(stream.head))
        if branch.prefix:
            pn_link_send(out.io, branch.prefix, len(branch.prefix))
        pn_link_send(out.io, stream.head, len(stream.head))
        out.deliveries += 1
        forwarder.settlement.touch(out.connection)
        return True

    def _pass_on(self, stream: WideStream, branch: Branch) -> bool:
        out, settlement = branch.link, self._forwarder.settlement
        if not has_room(out, len(stream.chunk), STREAM_OUTGOING_HIGH):
            out.connection.io.stalled.add(out)
            return False
        if fits(out, stream.size):
            equip(branch.pn, len(stream.chunk))
            pn_link_send(out.io, stream.chunk, len(stream.chunk))
            release_written(out, branch.pn)
            settlement.touch(out.connection)
        else:
            self._abort(stream, branch)
            settlement.branch_lost(stream.record, PN_REJECTED)
        return True

    def _end(self, stream: WideStream, branch: Branch) -> None:
        out, pn, record, settlement = branch.link, branch.pn, stream.record, self._forwarder.settlement
        del stream.receivers[out]
        settlement.count_message(out, stream.size - stream.skip)
        advance(out)
        settlement.touch(out.connection)
        if record is None:
            settlement.sent_presettled(out, pn)
        else:
            out.unsettled[key(pn)] = record
            if out.sends_settled:
                settlement.sent_settled(out, pn, record)
            else:
                out.connection.unbounded += 1
                if pn_delivery_updated(pn):
                    settlement.updated(out, pn, pn_delivery_remote_state(pn))
        self._streams.release(out)

    def _abort(self, stream: WideStream, branch: Branch) -> None:
        out, forwarder = branch.link, self._forwarder
        del stream.receivers[out]
        if branch.pn is not None:
            pn_delivery_abort(branch.pn)
        if branch.claimed:
            forwarder.settlement.touch(out.connection)
            self._streams.release(out)
        else:
            forwarder.parking.leave_queue(branch)

    def _over(self, stream: WideStream) -> None:
        forwarder, link, record = self._forwarder, stream.link, stream.record
        aborted, stream.stage = stream.stage is _Stage.ABORT, _Stage.OVER
        stream.round, stream.at, stream.chunk = [], 0, b""
        if not stream.orphaned:
            link.stream = None
            if aborted:
                link.unsettled.pop(key(stream.pn), None)
                pn_delivery_settle(stream.pn)
                if record is not None and not link.replenish_on_arrival:
                    forwarder.settlement.replenish(link)
            forwarder.parking.wait_no_more(link, stream.place)
            forwarder.settlement.touch(link.connection)  # its session may have room again
            forwarder.go_on(link)
        if record is not None and not aborted:
            forwarder.settlement.all_copied(record)  # type: ignore[arg-type]
