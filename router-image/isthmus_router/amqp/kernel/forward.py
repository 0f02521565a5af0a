"""The forwarding kernel in pure Python: moves deliveries along routes, and outcomes and credit back.

It decides nothing. For an incoming delivery it finds the link's `Route` (asking the core only when there is no
valid one), takes a sink from it, copies the bytes and remembers the pair; for an update of an outgoing
delivery it copies the outcome to the other half of the pair. Whole messages wait in the sink's `parked` queue
while there is no credit; the bytes parked per incoming link are bounded, beyond that the link is paused and
the session window holds the sender back. Larger messages are cut through (`stream.py`).

Source: AMQP 1.0 part 2, 2.6 (links, flow, settlement); docs/architecture.md.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from cproton_ffi import ffi
from cproton_ffi.lib import (
    PN_LOCAL_CLOSED,
    PN_MODIFIED,
    PN_REJECTED,
    pn_delivery,
    pn_delivery_aborted,
    pn_delivery_partial,
    pn_delivery_pending,
    pn_delivery_remote_state,
    pn_delivery_settle,
    pn_delivery_settled,
    pn_link_credit,
    pn_link_current,
    pn_link_queued,
    pn_link_recv,
    pn_link_send,
    pn_link_state,
)

from isthmus_router.amqp.checked import MOST_TAG_BYTES
from isthmus_router.amqp.kernel.copies import Copies
from isthmus_router.amqp.kernel.delivery import (
    CHUNK_BYTES,
    STREAM_OUTGOING_HIGH,
    Announced,
    Branch,
    Delivery,
    Fanout,
    Kept,
    Passed,
    Postponed,
    Stream,
    Told,
)
from isthmus_router.amqp.kernel.early import CUT_THROUGH_BYTES, EarlyDeliveries, Undecided, window_closes
from isthmus_router.amqp.kernel.handles import WHY_NOT_COMPILED, Drain, advance, has_room, key
from isthmus_router.amqp.kernel.inside import Inside
from isthmus_router.amqp.kernel.lookup import RouteLookup
from isthmus_router.amqp.kernel.parking import AT_ONCE, Parking, has_to_settle, is_full
from isthmus_router.amqp.kernel.pieces import Pieces
from isthmus_router.amqp.kernel.routed import MOST_UNSETTLED, RoutedLinks
from isthmus_router.amqp.kernel.selective import Selective
from isthmus_router.amqp.kernel.settlement import Settlement
from isthmus_router.amqp.kernel.slow import SlowReceivers
from isthmus_router.amqp.kernel.stalled import StalledStreams
from isthmus_router.amqp.kernel.states import has_extension_state
from isthmus_router.amqp.kernel.stream import Streams
from isthmus_router.amqp.kernel.wide import WideStream
from isthmus_router.core.address import InProcessConsumer
from isthmus_router.core.model import WHOLE_MESSAGE_BYTES, Link
from isthmus_router.core.nodes import Hop
from isthmus_router.core.receivers import RouteKind, Sink
from isthmus_router.core.router import RouterCore
from isthmus_router.core.routes import Route
from isthmus_router.core.terms import Condition
from isthmus_router.message.sections import DEFAULT_PRIORITY, SectionError, header_priority
from isthmus_router.policy.counters import Denial

log = logging.getLogger("ROUTER")

SHORT_SECTION_BYTES = 512

TRANSACTIONAL_STATE = 0x34
NO_TRANSACTION = SectionError(
    "no transaction has been declared here: the router has no coordinator", "amqp:transaction:unknown-id"
)

_UNDER_WAY = frozenset({Stream, WideStream})
_SINGLE, _NONE, _MULTICAST, _IN_PROCESS, _SELECTIVE = (
    RouteKind.SINGLE,
    RouteKind.NONE,
    RouteKind.MULTICAST,
    RouteKind.IN_PROCESS,
    RouteKind.SELECTIVE,
)


class Forwarder:
    """Forwards for all connections of one router process."""

    def __init__(self, core: RouterCore, slice_end: Callable[[float], float]) -> None:
        """`slice_end` is `Driver.slice_end`."""
        self.core = core
        self.settlement = Settlement()
        self.dirty = self.settlement.dirty
        self.buffer = ffi.new("char[]", WHOLE_MESSAGE_BYTES)
        """The message being dealt with; `raw` and `view` look at the same bytes."""
        self.raw = ffi.buffer(self.buffer)
        self.view = memoryview(self.raw).cast("B")
        self._after = [self.buffer + skip for skip in range(SHORT_SECTION_BYTES)]
        """Pointers behind an annotation section, by its length: making one costs as much as a call."""
        tag_bytes = ffi.new("uint64_t *")
        tag = ffi.new("pn_bytes_t *")
        tag.start = ffi.cast("char *", tag_bytes)
        tag.size = 8
        self.tag_bytes = tag_bytes
        self._tag_keepalive = tag
        self._tag_number = memoryview(ffi.buffer(tag_bytes)).cast("B").cast("Q")
        self._tag = tag[0]
        self._resumed: list[Link] = []
        self.turn_ends: list[Callable[[], None]] = []
        """To be called when the links of this turn are dealt with."""
        self.spent = 0
        """Units of work in this turn, about 4 microseconds each: copies, and messages that waited."""
        self.lookup = RouteLookup(core, self.view)
        self.parking = Parking(self)
        self.pieces = Pieces(self)
        self.streams = Streams(self)
        self.stalled = StalledStreams(self)
        self.slow = SlowReceivers(self)
        self.early = EarlyDeliveries(self)
        self.selective = Selective(self)
        self.routed = RoutedLinks(self)
        self.inside = Inside(self)
        self.copies = Copies(self)
        self.compiled = self._compiled(slice_end)

    def _compiled(self, slice_end: Callable[[float], float]) -> Drain | None:
        """What deals with the common case instead of this; None where everything is done in Python."""
        if WHY_NOT_COMPILED is not None:
            log.warning("forwarding in Python", extra={"reason": WHY_NOT_COMPILED})
            return None
        return Drain(
            self,
            slice_end,
            Delivery,
            Stream,
            Branch,
            Passed,
            most_tag_bytes=MOST_TAG_BYTES,
            most_unsettled=MOST_UNSETTLED,
            chunk_bytes=CHUNK_BYTES,
            stream_outgoing_high=STREAM_OUTGOING_HIGH,
        )

    # Incoming deliveries

    def incoming(self, link: Link, pn: Any, state: int) -> None:
        """Something arrived for the delivery `pn` of an IN link, in that state; usually that is a whole message."""
        pn_link = link.io
        if (
            link.stream is not None
            or link.paused
            or pn_link_current(pn_link) != pn
            or pn_delivery_partial(pn)
            or state
            or pn_link_credit(pn_link) <= 0
            or (size := pn_link_recv(pn_link, self.buffer, link.whole_bytes)) <= 0
        ):
            if not link.replenish_on_arrival and pn_link_queued(pn_link) > pn_link_credit(pn_link):
                self.overdrawn(link)  # also while the link is not read
                return
            self.readable(link)
        else:
            self.received(link, pn, size)

    def received(self, link: Link, pn: Any, size: int) -> None:
        """The message of the current delivery, or its first `size` bytes, is in the buffer."""
        if link.max_message_size and size > link.max_message_size:
            self.too_large(link, pn)
        elif size == WHOLE_MESSAGE_BYTES and pn_delivery_pending(pn):
            if self.streams.begin(link, pn, size):
                self.readable(link)
        else:
            advance(link)
            self.whole(link, pn, size)

    def readable(self, link: Link) -> None:
        """Forward everything that has arrived on an IN link."""
        pn_link = link.io
        buffer = self.buffer
        stream = link.stream
        if link.paused and stream.__class__ in _UNDER_WAY:
            self.streams.pump(link.stream)  # it takes no more room than it has, and others wait for it
        while not link.paused:
            pn = pn_link_current(pn_link)
            if not pn:
                return
            if link.stream is not None:
                kind = self.early if link.stream.__class__ is Undecided else self.streams
                if not kind.pump(link.stream):
                    return
                continue
            if pn_link_credit(pn_link) <= 0 and not link.replenish_on_arrival:
                self.overdrawn(link)
                return
            state = pn_delivery_remote_state(pn)
            if state == TRANSACTIONAL_STATE:
                if pn_delivery_partial(pn):
                    while pn_link_recv(pn_link, buffer, CHUNK_BYTES) > 0:
                        pass
                    return
                advance(link)
                self.settlement.reject(link, pn, NO_TRANSACTION, pn_delivery_settled(pn))
                continue
            size = pn_delivery_pending(pn)
            if pn_delivery_partial(pn):
                if link.begins_early:
                    if not self.early.begin(link, pn):
                        return
                    continue
                # Messages of many clients come on such a link of another router, and none is a stream there.
                shared = link.connection.role.is_between_routers
                most = WHOLE_MESSAGE_BYTES if shared else CUT_THROUGH_BYTES
                if size < most and not window_closes(link):
                    return
                if shared and size < CUT_THROUGH_BYTES:
                    if not self.early.begin(link, pn):
                        return
                    continue
                if not self.streams.begin(link, pn, pn_link_recv(pn_link, buffer, CHUNK_BYTES)):
                    return
                continue
            if size < 2 and pn_delivery_aborted(pn):  # proton says 1 for an aborted delivery
                pn_delivery_settle(pn)
                self.settlement.replenish(link)
                continue
            if 0 < link.max_message_size < size:
                self.too_large(link, pn)
                return
            if size > WHOLE_MESSAGE_BYTES or (state and size and has_extension_state(pn)):
                if not self.streams.begin(link, pn, pn_link_recv(pn_link, buffer, CHUNK_BYTES)):
                    return
                continue
            pn_link_recv(pn_link, buffer, size)
            advance(link)
            self.whole(link, pn, size)

    def overdrawn(self, link: Link) -> None:
        """A client sends without credit, which is what bounds its deliveries under way: the end of the link."""
        log.info("transfer without credit", extra={"connection": link.connection.id, "link": link.name})
        reason = "a message was sent without credit"
        self.core.port.detach_link(link, Condition("amqp:link:transfer-limit-exceeded", reason))

    def too_large(self, link: Link, pn: Any) -> None:
        """The delivery has, or is about to have, more bytes than the IN link may carry: the end of the link.

        What else the sender has under way comes back modified, as when it closes the link itself.
        """
        most = link.max_message_size
        error = SectionError(
            f"a message has more than {most} bytes: keep to the max-message-size of the attach",
            "amqp:link:message-size-exceeded",
        )
        self.core.counters.messages_too_large += 1
        if link.connection.grant is not None:
            link.connection.grant.denied(Denial.MESSAGE_SIZE)
        log.info(
            "message too large", extra={"connection": link.connection.id, "link": link.name, "limit": most}
        )
        self.refuse(link, pn, error)

    def refuse(self, link: Link, pn: Any, error: SectionError) -> None:
        """Take no more of the delivery that is arriving, which is the end of the IN link."""
        link.unsettled.pop(key(pn), None)
        self.settlement.reject(link, pn, error, pn_delivery_settled(pn))
        self.core.port.detach_link(link, Condition(error.condition, str(error)))

    def whole(self, link: Link, pn: Any, size: int) -> None:
        """Forward the whole message of `size` bytes that is in the buffer."""
        settled = pn_delivery_settled(pn)
        link.deliveries += 1
        route = link.route
        if link.targeted and self.view[1] != 0x80:
            skip = 0
            if not route.valid:  # type: ignore[union-attr]
                route = self.core.target_route(link)
        elif link.on_delivery is not None:
            self._consume(link, pn, size, settled)
            return
        else:
            view = self.view
            # The annotation section repeats from message to message: one met before is known as a whole.
            skip = 12 + view[11] if view[10] == 0xC0 else 15 + (view[13] << 8) + view[14]
            route = link.routes.get(self.raw[:skip]) if skip <= size else None
            if route is None or not route.valid:
                try:
                    route = self.lookup.find(link, size)
                except SectionError as error:
                    self.settlement.count_message(link, size)
                    self.settlement.reject(link, pn, error, settled)
                    return
                skip = self.lookup.skip
        self.settlement.count_message(link, size - skip)
        assert route is not None
        route.deliveries += 1
        out = route.link
        load = None
        if out is None:
            kind = route.kind
            if kind is _SINGLE:
                sink = route.sinks[0]
            elif kind is _NONE:
                self.settlement.release(link, pn, settled)
                return
            elif kind is _MULTICAST:
                self._multicast(link, pn, route, size, skip, settled)
                return
            elif kind is _IN_PROCESS:
                start = route.handler.start(skip) if isinstance(route.handler, InProcessConsumer) else skip
                self.inside.take(link, pn, route, bytes(self.view[start:size]), settled)
                return
            elif kind is _SELECTIVE:
                self.selective.forward(link, pn, route, size, skip, settled)
                return
            else:
                sink, load = route.choose()
            out = self.out_link(sink, route, skip, size)
            if out is None:
                self.settlement.release(link, pn, settled)
                return
        record = None
        if settled:
            link.presettled += 1
            pn_delivery_settle(pn)
        else:
            record = Delivery(link, pn, load, self.settlement.now)
            link.unsettled[record.key] = record
            if load is not None:
                load.outstanding += 1
        if settled or link.replenish_on_arrival:
            due = link.credit_due + 1
            if due < link.credit_batch:
                link.credit_due = due
            else:
                self.settlement.replenish(link)
        self.send_message(out, route, size, skip, record, link)

    def out_link(self, sink: Sink, route: Route, skip: int, size: int) -> Link | None:
        """The link that leads to a sink; for a hop that depends on the message's priority."""
        if sink.__class__ is Link:
            return sink
        address = route.address
        view = self.view
        if address is not None and address.priority is not None:
            priority = address.priority
        elif view[skip + 1] == 0x53 and (
            view[skip + 2] != 0x70
            or view[skip + 3] == 0x45
            or (view[skip + 3] == 0xC0 and view[skip + 5] < 2)
        ):
            priority = DEFAULT_PRIORITY  # no header, or one that ends before the priority
        else:
            priority = header_priority(view, skip, size)
        return sink.data_links[priority] or sink.link_for(priority)  # type: ignore[union-attr]

    def send_message(
        self,
        out: Link,
        route: Route,
        size: int,
        skip: int,
        record: Delivery | None,
        origin: Link | None,
        shared: dict[bool, bytes] | None = None,
    ) -> None:
        """Send the message in the buffer on `out`, or park it there; `shared` has what its copies wait as."""
        pn_out = out.io
        connection = out.connection
        driver = connection.io
        if (
            out.parked
            or out.stream is not None
            or (pn_link_credit(pn_out) <= 0 and not out.boundless)
            or not has_room(out, size)
            or (record.__class__ is not Delivery and has_to_settle(out, record))
        ):
            annotates = connection.annotates
            payload = None if shared is None else shared.get(annotates)
            if payload is None:
                body = bytes(self.view[skip:size])
                payload = route.prefix + body if annotates else body
                if shared is not None:
                    shared[annotates] = payload
            self.parking.park(out, payload, record, origin)
            if pn_link_credit(pn_out) > 0 or out.boundless:  # otherwise it goes on when there is credit
                driver.stalled.add(out)  # the session may be full of what other links have sent
                if is_full(connection):
                    self.settlement.touch(connection)  # after the write it is counted anew
            return
        self._tag_number[0] += 1
        pn = pn_delivery(pn_out, self._tag)
        if connection.annotates:
            prefix = route.prefix
            pn_link_send(pn_out, prefix, len(prefix))
        start = self._after[skip] if skip < SHORT_SECTION_BYTES else self.buffer + skip
        pn_link_send(pn_out, start, size - skip)
        out.deliveries += 1
        self.settlement.count_message(out, size - skip)
        if record is None:
            self.settlement.sent_presettled(out, pn)
        else:
            advance(out)
            out.unsettled[key(pn)] = record
            if out.sends_settled:
                self.settlement.sent_settled(out, pn, record)
            elif record.__class__ is Fanout:
                connection.unbounded += 1
        if not driver.dirty:
            driver.dirty = True
            self.dirty.append(driver)

    def _multicast(self, link: Link, pn: Any, route: Route, size: int, skip: int, settled: bool) -> None:
        record = None
        if settled:
            link.presettled += 1
            pn_delivery_settle(pn)
        else:
            record = Fanout(link, pn, self.settlement.now)
            link.unsettled[record.key] = record
            record.pending = 1  # held while copies are sent, as some may be done at once
        if self.copies.has_to_wait(link, route, size):
            if link.replenish_on_arrival:
                self.settlement.replenish(link)
            self.copies.put(link, route, size, skip, record)
            return
        self.copy(route.sinks, route, size, skip, record, link, {})
        if record is None or link.replenish_on_arrival:
            self.settlement.replenish(link)
        if record is not None:
            self.settlement.all_copied(record)

    def copy(
        self,
        sinks: Sequence[Sink],
        route: Route,
        size: int,
        skip: int,
        record: Fanout | None,
        origin: Link | None,
        shared: dict[bool, bytes],
    ) -> None:
        """Send copies of the message in the buffer to these sinks of a route."""
        length = size - skip
        for sink in sinks:
            out = sink if sink.__class__ is Link else self.out_link(sink, route, skip, size)
            if out is None:
                continue
            if record is not None:
                record.pending += 1
            if 0 < out.max_message_size < length:
                if record is not None:
                    self.settlement.outcome(record, PN_REJECTED, None)
                continue
            self.send_message(out, route, size, skip, record, origin, shared)

    def _consume(self, link: Link, pn: Any, size: int, settled: bool) -> None:
        """A delivery for the router itself on a link of its own (control, tracking)."""
        assert link.on_delivery is not None
        payload = bytes(self.view[:size])
        self.settlement.accept(link, pn, settled)
        link.on_delivery(link, payload)

    def new_tag(self) -> Any:
        """The next delivery tag (`pn_bytes_t`): an 8-byte counter."""
        self._tag_number[0] += 1
        return self._tag

    def go_on(self, link: Link) -> None:
        """Go on reading an IN link, or sending on an OUT link, once the current event is dealt with."""
        self._resumed.append(link)

    def room(self, out: Link) -> None:
        """More may be sent on an OUT link."""
        if out.routed:
            self.routed.room(out)
        else:
            self.parking.unpark(out)

    def resume(self) -> None:
        """Go on where links had to wait and need not any more, and send again what was released."""
        if self.selective.released:
            self.selective.send_again()
        while self._resumed or self.turn_ends:
            if not self._resumed:
                self.turn_ends.pop()()
                continue
            link = self._resumed.pop()
            if link not in link.connection.links:
                continue
            try:
                if not link.incoming:
                    self.room(link)
                elif link.routed:
                    self.routed.part(link)
                else:
                    self.readable(link)
            except Exception as error:  # of this link, whoever's turn it is
                link.connection.io.broken(error)

    # Deliveries of the router's own

    def send(self, out: Link, payload: bytes, *, settled: bool) -> None:
        """Send a message that starts in the router; it is queued while there is no credit."""
        record = None if settled else Delivery(None, None, None, self.settlement.now)
        self.parking.park(out, payload, record, None)
        self.parking.unpark(out)

    def forward(self, route: Route, payload: bytes, *, priority: int) -> None:
        """Send a pre-settled message that starts in the router along a route."""
        if route.kind is _IN_PROCESS:
            self.inside.originated(route, payload)
            return
        if route.kind is _MULTICAST:
            if self.copies.has_to_wait(None, route, len(payload)):
                self.copies.originate(route, payload, priority)
            else:
                self.originate(route.sinks, route, payload, priority)
        elif route.kind is not _NONE:
            sink = route.sinks[0] if route.kind is _SINGLE else route.choose()[0]
            self.originate((sink,), route, payload, priority)

    def originate(self, sinks: Sequence[Sink], route: Route, payload: bytes, priority: int) -> None:
        """Send a pre-settled message that starts in the router to these sinks of a route."""
        annotated = b""
        for sink in sinks:
            out = sink.link_for(priority) if isinstance(sink, Hop) else sink
            if out is None:
                continue
            if out.connection.annotates and not annotated:
                annotated = route.prefix + payload
            self.send(out, annotated if out.connection.annotates else payload, settled=True)

    # Loss

    def link_lost(self, link: Link) -> None:
        """A link is gone: finish what it had under way.

        Deliveries sent to a lost receiver come back modified (delivery-failed), those still waiting released.
        """
        if link.routed:
            self.routed.lost(link)
            link.unsettled.clear()
            return
        if link.incoming:
            self._read_rest(link)
            self.inside.held.discard(link)
            for record in link.unsettled.values():
                record.link = None
            for record in link.unsettled.values():
                if record.__class__ is Kept:
                    record.let_go(link)
                elif record.__class__ is Announced:
                    self.settlement.settle_out(record)
            link.unsettled.clear()
            if link.stream is not None:
                self.streams.sender_lost(link.stream)
            self.copies.sender_lost(link)
            self.parking.sender_lost(link)
            return
        self.streams.receiver_lost(link)
        unsettled, link.unsettled = link.unsettled, {}
        for record in unsettled.values():
            if isinstance(record, Told):
                record.out = None  # the sender may settle before its turn has come
        messages = len(unsettled) + len(link.parked)
        self.in_steps(chain(self._give_back(unsettled), self.parking.release(link)), messages)

    def in_steps(self, job: Iterator[None], messages: int) -> None:
        """Deal with so many messages: at once if they are few, or between other work."""
        if messages > AT_ONCE:
            self.core.port.work(job)
        else:
            deque(job, 0)

    def _give_back(self, unsettled: dict[Any, Any]) -> Iterator[None]:
        """Tell the senders of what a lost receiver has not settled, step by step."""
        outcome = self.settlement.outcome
        for number, record in enumerate(unsettled.values(), 1):
            outcome(record, PN_MODIFIED, None)
            if number % AT_ONCE == 0:
                yield

    def _read_rest(self, link: Link) -> None:
        """The sender is gone, and what is unread because other messages wait has arrived before that."""
        while not pn_link_state(link.io) & PN_LOCAL_CLOSED:
            stream = link.stream
            if stream.__class__ is Postponed:
                if not self._read_postponed(link, stream):
                    return
            elif stream.__class__ is WideStream:
                link.stream = None
                if not self.streams.wide.sender_lost(stream):
                    return
            elif not (link.paused and pn_link_current(link.io)) or not (
                link.connection.crowded or self.copies.hold_up(link)
            ):
                return
            link.paused = False
            self.readable(link)

    def _read_postponed(self, link: Link, stream: Stream) -> bool:
        """Deal with a message that has waited for its turn to be passed on, if all of it is here.

        Whether messages behind it can be read. It is lost if it is too large to be copied as a whole: nobody was told
        that it had arrived.
        """
        head, pn = stream.head, stream.pn
        aborted = pn_delivery_aborted(pn)
        if pn_delivery_partial(pn) and not aborted:
            return False
        link.stream, stream.head = None, b""
        self.parking.keep_no_more(stream)
        size = len(head) + pn_delivery_pending(pn)
        if not aborted and 0 < link.max_message_size < size:
            return False
        if aborted or size > WHOLE_MESSAGE_BYTES:
            pn_delivery_settle(pn)
            return True
        self.view[: len(head)] = head
        if size > len(head):
            pn_link_recv(link.io, self.buffer + len(head), size - len(head))
        advance(link)
        self.whole(link, pn, size)
        return True
