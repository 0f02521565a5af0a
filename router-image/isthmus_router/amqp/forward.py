"""The forwarding kernel in pure Python: moves deliveries along routes, and outcomes and credit back.

It decides nothing. For an incoming delivery it finds the link's `Route` (asking the core only when there is no
valid one), takes a sink from it, copies the bytes and remembers the pair; for an update of an outgoing
delivery it copies the outcome to the other half of the pair. Whole messages wait in the sink's `parked` queue
while there is no credit; the bytes parked per incoming link are bounded, beyond that the link is paused and
the session window holds the sender back. Larger messages are cut through (`stream.py`).

Source: AMQP 1.0 part 2, 2.6 (links, flow, settlement); DESIGN.md 4.2.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from cproton_ffi import ffi
from cproton_ffi.lib import (
    PN_ACCEPTED,
    PN_MODIFIED,
    PN_REJECTED,
    PN_RELEASED,
    pn_delivery,
    pn_delivery_aborted,
    pn_delivery_partial,
    pn_delivery_pending,
    pn_delivery_settle,
    pn_delivery_settled,
    pn_link_advance,
    pn_link_credit,
    pn_link_current,
    pn_link_drained,
    pn_link_draining,
    pn_link_get_drain,
    pn_link_recv,
    pn_link_send,
    pn_session_get_incoming_capacity,
    pn_session_incoming_bytes,
    pn_session_outgoing_bytes,
)

from isthmus_router.amqp.delivery import Delivery, Fanout, Parked, Waiting
from isthmus_router.amqp.settlement import Settlement
from isthmus_router.amqp.stream import Streams
from isthmus_router.core.model import Hop, Link, LinkType
from isthmus_router.core.router import RouterCore
from isthmus_router.core.routes import Route, RouteKind, Sink
from isthmus_router.message.sections import (
    DEFAULT_PRIORITY,
    IncompleteError,
    SectionError,
    annotations_length,
    decode_annotations,
    find_to,
    header_priority,
)

WHOLE_MESSAGE_BYTES = 1024 * 1024
"""Complete messages up to this size are forwarded in one piece."""
CUT_THROUGH_BYTES = 64 * 1024
"""An incomplete message is passed on while it arrives once this much of it is here."""
PARKED_BYTES_HIGH = 1024 * 1024
PARKED_BYTES_LOW = 512 * 1024
SESSION_OUTGOING_HIGH = 1024 * 1024
LARGE_BYTES = 16 * 1024
"""From here on a message is checked against its session's backlog even while the socket takes all."""
ROUTE_CACHE_SIZE = 10_000
"""Routes remembered per link that routes by annotation section or `to`."""

_SINGLE, _NONE, _MULTICAST, _IN_PROCESS = (
    RouteKind.SINGLE,
    RouteKind.NONE,
    RouteKind.MULTICAST,
    RouteKind.IN_PROCESS,
)
_TERMINAL = frozenset({PN_ACCEPTED, PN_REJECTED, PN_RELEASED, PN_MODIFIED})
_SEVERITY = {PN_REJECTED: 4, PN_ACCEPTED: 3, PN_MODIFIED: 2, PN_RELEASED: 1, 0: 0}


class Forwarder:
    """Forwards for all connections of one router process."""

    def __init__(self, core: RouterCore) -> None:
        self.core = core
        self.settlement = Settlement()
        self.dirty = self.settlement.dirty
        self.buffer = ffi.new("char[]", WHOLE_MESSAGE_BYTES)
        self.view = memoryview(ffi.buffer(self.buffer)).cast("B")
        tag_bytes = ffi.new("uint64_t *")
        tag = ffi.new("pn_bytes_t *")
        tag.start = ffi.cast("char *", tag_bytes)
        tag.size = 8
        self._tag_keepalive = (tag_bytes, tag)
        self._tag_number = tag_bytes
        self._tag = tag[0]
        self._next_tag = 0
        self.skip = 0
        self._resumed: list[Link] = []
        self.streams = Streams(self)

    # Incoming deliveries

    def incoming(self, link: Link, pn: Any) -> None:
        """Something arrived for the delivery `pn` of an IN link; usually that is a whole message."""
        pn_link = link.io
        if link.stream is not None or link.paused or pn_link_current(pn_link) != pn:
            self.readable(link)
            return
        size = pn_delivery_pending(pn)
        if size < 2 or size > WHOLE_MESSAGE_BYTES or pn_delivery_partial(pn):
            self.readable(link)
            return
        pn_link_recv(pn_link, self.buffer, size)
        pn_link_advance(pn_link)
        self._forward(link, pn, size)

    def readable(self, link: Link) -> None:
        """Forward everything that has arrived on an IN link."""
        pn_link = link.io
        buffer = self.buffer
        while True:
            if link.paused:
                return
            pn = pn_link_current(pn_link)
            if not pn:
                return
            if link.stream is not None:
                if not self.streams.pump(link.stream):
                    return
                continue
            size = pn_delivery_pending(pn)
            if pn_delivery_partial(pn):
                if size < CUT_THROUGH_BYTES and not _window_closes(link):
                    return
                if not self.streams.begin(link, pn, size):
                    return
                continue
            if size < 2 and pn_delivery_aborted(pn):  # proton says 1 for an aborted delivery
                pn_delivery_settle(pn)
                self.settlement.replenish(link)
                continue
            if size > WHOLE_MESSAGE_BYTES:
                if not self.streams.begin(link, pn, size):
                    return
                continue
            pn_link_recv(pn_link, buffer, size)
            pn_link_advance(pn_link)
            self._forward(link, pn, size)

    def _forward(self, link: Link, pn: Any, size: int) -> None:
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
            route = link.routes.get(bytes(view[:skip])) if skip <= size else None
            if route is None or not route.valid:
                try:
                    route = self.route(link, size)
                except SectionError as error:
                    self.settlement.reject(link, pn, error, settled)
                    return
                skip = self.skip
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
                assert route.handler is not None
                route.handler.handle(bytes(self.view[skip:size]), link)
                self.settlement.accept(link, pn, settled)
                return
            else:
                sink, load = route.choose()
            out = self._out_link(sink, route, skip, size)
            if out is None:
                self.settlement.release(link, pn, settled)
                return
        record = None
        if settled:
            link.presettled += 1
            pn_delivery_settle(pn)
        else:
            record = Delivery(link, pn, load)
            link.unsettled[pn] = record
            if load is not None:
                load.outstanding += 1
        if settled or link.replenish_on_arrival:
            due = link.credit_due + 1
            if due < link.credit_batch:
                link.credit_due = due
            else:
                self.settlement.replenish(link)
        self._send(out, route, size, skip, record, link)

    def _out_link(self, sink: Sink, route: Route, skip: int, size: int) -> Link | None:
        """The link that leads to a sink; for a hop that depends on the message's priority."""
        if sink.__class__ is Link:
            return sink
        address = route.address
        view = self.view
        if address is not None and address.priority is not None:
            priority = address.priority
        elif view[skip + 2] != 0x70 or view[skip + 3] != 0xC0 or view[skip + 5] < 2:
            priority = DEFAULT_PRIORITY  # no header, or one that ends before the priority
        else:
            priority = header_priority(view, skip, size)
        return sink.data_links[priority] or sink.link_for(priority)  # type: ignore[union-attr]

    def _send(
        self, out: Link, route: Route, size: int, skip: int, record: Delivery | None, origin: Link | None
    ) -> None:
        """Send the message in the buffer on `out`, or park it there."""
        pn_out = out.io
        connection = out.connection
        driver = connection.io
        if (
            out.parked
            or out.stream is not None
            or pn_link_credit(pn_out) <= 0
            or (
                (driver.write_blocked or size > LARGE_BYTES)
                and pn_session_outgoing_bytes(out.session) > SESSION_OUTGOING_HIGH
            )
        ):
            body = bytes(self.view[skip:size])
            self.park(out, route.prefix + body if connection.annotates else body, record, origin)
            driver.stalled.add(out)  # the session may be full of what other links have sent
            return
        self._tag_number[0] = self._next_tag
        self._next_tag += 1
        pn = pn_delivery(pn_out, self._tag)
        if connection.annotates:
            prefix = route.prefix
            pn_link_send(pn_out, prefix, len(prefix))
        pn_link_send(pn_out, self.buffer + skip if skip else self.buffer, size - skip)
        out.deliveries += 1
        if record is None:
            pn_delivery_settle(pn)
        else:
            pn_link_advance(pn_out)
            out.unsettled[pn] = record
            if out.sends_settled:
                self.settlement.sent_settled(out, pn, record)
        if not driver.dirty:
            driver.dirty = True
            self.dirty.append(driver)

    def park(self, out: Link, payload: bytes, record: Delivery | None, origin: Link | None) -> None:
        """Queue a whole message until `out` has credit."""
        parked = out.parked
        parked.append(Parked(payload, record, None if record is None else origin))
        if record is None:
            out.parked_bytes += len(payload)
            if len(parked) > out.capacity or out.parked_bytes > PARKED_BYTES_HIGH:
                self._drop_older_presettled(out)
        elif origin is not None:
            origin.waits_on.add(out)
            origin.parked_bytes += len(payload)
            if origin.parked_bytes > PARKED_BYTES_HIGH:
                origin.paused = True

    def _drop_older_presettled(self, out: Link) -> None:
        """Make room: the oldest pre-settled messages behind the head go, so that head and newest survive."""
        if out.type is LinkType.CONTROL:
            return  # few, and every one of them counts
        parked = out.parked
        at = 1
        while at < len(parked) - 1 and (len(parked) > out.capacity or out.parked_bytes > PARKED_BYTES_HIGH):
            item = parked[at]
            if item.__class__ is Parked and item.record is None:
                del parked[at]
                out.parked_bytes -= len(item.payload)
                out.dropped_presettled += 1
            else:
                at += 1

    def _multicast(self, link: Link, pn: Any, route: Route, size: int, skip: int, settled: bool) -> None:
        record = None
        if settled:
            link.presettled += 1
        else:
            record = Fanout(link, pn)
            link.unsettled[pn] = record
            record.pending = 1  # held while copies are sent, as some may be done at once
        for sink in route.sinks:
            out = self._out_link(sink, route, skip, size)
            if out is None:
                continue
            if record is not None:
                record.pending += 1
            self._send(out, route, size, skip, record, link)
        if record is None:
            pn_delivery_settle(pn)
            self.settlement.replenish(link)
        else:
            if link.replenish_on_arrival:
                self.settlement.replenish(link)
            self.settlement.all_copied(record)

    def route(self, link: Link, available: int, *, complete: bool = True) -> Route:
        """The route of the message in the buffer, by its annotation section or its `to`.

        Sets `_skip` to the length of the annotation section. Raises SectionError on a malformed message and,
        when the message is not `complete`, IncompleteError if more of it is needed.
        """
        view = self.view
        try:
            skip = annotations_length(view, available)
        except IncompleteError:
            if not complete:
                raise
            raise SectionError(
                "Invalid router annotations section: truncated", "amqp:invalid-field"
            ) from None
        self.skip = skip
        if link.connection.strips_in or skip == 0:
            if link.address is not None and link.route is not None:
                return link.route if link.route.valid else self.core.target_route(link)
            return self._route_by_to(link, skip, available, b"", complete)
        section = bytes(view[:skip])
        route = link.routes.get(section)
        if route is not None and route.valid:
            return route
        annotations = decode_annotations(section)
        if annotations.to_override is None:
            return self._route_by_to(link, skip, available, section, complete)
        route = self.core.route_for(link, annotations.to_override, annotations)
        self._remember(link, section, route)
        return route

    def _route_by_to(self, link: Link, skip: int, available: int, section: bytes, complete: bool) -> Route:
        try:
            to = find_to(self.view, skip, available)
        except IncompleteError:
            if not complete:
                raise
            raise SectionError("invalid message format: truncated") from None
        if to is None:
            if link.source.address is not None and section:
                to = link.source.address.encode()
            else:
                raise SectionError("Routing failure: no address present", "amqp:precondition-failed")
        key = section + b"\0" + to
        route = link.routes.get(key)
        if route is None or not route.valid:
            annotations = decode_annotations(section) if section else None
            route = self.core.route_for(link, to.decode("utf-8", "replace"), annotations)
            self._remember(link, key, route)
        return route

    def _remember(self, link: Link, key: bytes, route: Route) -> None:
        routes = link.routes
        if len(routes) >= ROUTE_CACHE_SIZE:
            self.core.forget_routes(link)
        routes[key] = route

    def _consume(self, link: Link, pn: Any, size: int, settled: bool) -> None:
        """A delivery for the router itself on a link of its own (control, tracking)."""
        assert link.on_delivery is not None
        payload = bytes(self.view[:size])
        self.settlement.accept(link, pn, settled)
        link.on_delivery(link, payload)

    def flow(self, link: Link) -> None:
        """The receiver of an OUT link changed its credit."""
        self.unpark(link)
        link.drained = pn_link_get_drain(link.io)

    def unpark(self, out: Link) -> None:
        """Send what waits on `out` as far as credit and session allow."""
        if out.stream is not None:
            self.streams.receiver_ready(out.stream)
        parked = out.parked
        pn_out = out.io
        while parked and out.stream is None:
            if parked[0].__class__ is Waiting:
                self.streams.turn(out, parked.popleft().stream)
                continue
            if pn_link_credit(pn_out) <= 0:
                break
            if pn_session_outgoing_bytes(out.session) > SESSION_OUTGOING_HIGH:
                out.connection.io.stalled.add(out)
                break
            item = parked.popleft()
            pn = pn_delivery(pn_out, self.new_tag())
            pn_link_send(pn_out, item.payload, len(item.payload))
            out.deliveries += 1
            if item.record is None:
                pn_delivery_settle(pn)
            else:
                pn_link_advance(pn_out)
                out.unsettled[pn] = item.record
                if out.sends_settled:
                    self.settlement.sent_settled(out, pn, item.record)
            self._unparked(out, item)
            self.settlement.touch(out.connection)
        if not parked and out.stream is None and pn_link_draining(pn_out):
            pn_link_drained(pn_out)
            self.settlement.touch(out.connection)

    def new_tag(self) -> Any:
        """The next delivery tag (`pn_bytes_t`): an 8-byte counter."""
        self._tag_number[0] = self._next_tag
        self._next_tag += 1
        return self._tag

    def _unparked(self, out: Link, item: Parked) -> None:
        origin = item.origin
        if item.record is None or item.orphaned:
            out.parked_bytes -= len(item.payload)
        if origin is None:
            return
        origin.parked_bytes -= len(item.payload)
        if origin.paused and origin.parked_bytes < PARKED_BYTES_LOW:
            origin.paused = False
            self._resumed.append(origin)

    def go_on(self, link: Link) -> None:
        """Go on reading an IN link, or sending on an OUT link, once the current event is dealt with."""
        self._resumed.append(link)

    def resume(self) -> None:
        """Go on where links had to wait and need not any more."""
        while self._resumed:
            link = self._resumed.pop()
            if link not in link.connection.links:
                continue
            if link.incoming:
                self.readable(link)
            else:
                self.unpark(link)

    # Deliveries of the router's own

    def send(self, out: Link, payload: bytes, *, settled: bool) -> None:
        """Send a message that starts in the router; it is queued while there is no credit."""
        self.park(out, payload, None if settled else Delivery(None, None, None), None)
        self.unpark(out)

    def forward(self, route: Route, payload: bytes, *, priority: int) -> None:
        """Send a pre-settled message that starts in the router along a route."""
        if route.kind is _IN_PROCESS:
            assert route.handler is not None
            route.handler.handle(payload, None)
            return
        sinks = route.sinks
        if route.kind in {RouteKind.ROTATE, RouteKind.BALANCE}:
            sinks = [route.choose()[0]]
        for sink in sinks:
            out = sink.link_for(priority) if isinstance(sink, Hop) else sink
            if out is not None:
                self.send(out, route.prefix + payload if out.connection.annotates else payload, settled=True)

    # Loss

    def link_lost(self, link: Link) -> None:
        """A link is gone: finish what it had under way.

        Deliveries sent to a lost receiver come back modified (delivery-failed), those still waiting released.
        """
        if link.incoming:
            for record in link.unsettled.values():
                record.link = None
            link.unsettled.clear()
            self._forget_parked(link)
            if link.stream is not None:
                self.streams.sender_lost(link.stream)
            return
        self.streams.receiver_lost(link)
        unsettled, link.unsettled = link.unsettled, {}
        for record in unsettled.values():
            self.settlement.outcome(record, PN_MODIFIED, None)
        self.release_parked(link)

    def _forget_parked(self, origin: Link) -> None:
        """The sender is gone: what it has parked is still delivered, as far as each link's bound has room.

        Nobody was told that the rest had arrived.
        """
        for out in origin.waits_on:
            kept: deque[Any] = deque()
            for item in out.parked:
                if item.__class__ is Parked and item.origin is origin:
                    if out.parked_bytes + len(item.payload) > PARKED_BYTES_HIGH:
                        assert item.record is not None
                        self.settlement.outcome(item.record, PN_RELEASED, None)
                        continue
                    item.origin, item.orphaned = None, True
                    out.parked_bytes += len(item.payload)
                kept.append(item)
            out.parked = kept
        origin.waits_on.clear()
        origin.parked_bytes = 0

    def release_parked(self, link: Link) -> None:
        """Give back what waits for credit on an OUT link."""
        parked, link.parked = link.parked, type(link.parked)()
        for item in parked:
            if item.__class__ is Waiting:
                self.streams.leave_out(item.stream, link)
                continue
            if item.record is not None:
                self.settlement.outcome(item.record, PN_RELEASED, None)
            else:
                link.dropped_presettled += 1
            self._unparked(link, item)


def _window_closes(link: Link) -> bool:
    """Whether what waits unread fills so much of the session that the rest might never arrive."""
    capacity: int = pn_session_get_incoming_capacity(link.session)
    waiting: int = pn_session_incoming_bytes(link.session)
    return capacity > 0 and waiting > capacity // 2
