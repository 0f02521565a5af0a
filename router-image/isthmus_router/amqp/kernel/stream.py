"""Cut-through of large deliveries: chunk by chunk as they arrive, never collected whole.

A stream holds its incoming link until the delivery is complete, and each outgoing link it uses. Towards other
routers it takes a link of its own (from the connection's pool), so that it does not hold up the messages
behind it. Nothing is read from the sender while any receiver's session has more than its share unsent; the
sender's session window then closes. So a stream costs bounded memory however slow its receivers are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from cproton_ffi.lib import (
    PN_ACCEPTED,
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
)

from isthmus_router.amqp.kernel.delivery import (
    CHUNK_BYTES,
    STREAM_OUTGOING_HIGH,
    Branch,
    Delivery,
    Fanout,
    Postponed,
    Stream,
    Waiting,
    queue_of,
)
from isthmus_router.amqp.kernel.handles import (
    advance,
    equip,
    has_room,
    is_shut_session,
    key,
    release_written,
    retain,
)
from isthmus_router.amqp.kernel.parking import has_to_settle, is_crowded, much_waits, too_much_waits
from isthmus_router.amqp.kernel.selective import fits, too_large
from isthmus_router.amqp.kernel.states import copy_state, has_extension_state
from isthmus_router.amqp.kernel.wide import MANY_RECEIVERS, WideStream, WideStreams
from isthmus_router.core.address import SettlingConsumer
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.nodes import Hop, PathLoad
from isthmus_router.core.port import SessionClass
from isthmus_router.core.receivers import NOBODY, RouteKind, Sink
from isthmus_router.core.roles import Role
from isthmus_router.core.routes import Route
from isthmus_router.core.terms import CAPABILITY_ROUTER, Direction, LinkType, Terminus
from isthmus_router.message.sections import IncompleteError, SectionError

if TYPE_CHECKING:
    from isthmus_router.amqp.kernel.forward import Forwarder

COLLECTED_BYTES = 16 * 1024 * 1024
"""Largest message for a consumer inside the router; larger ones are rejected."""
CONNECTION_COLLECTED_HIGH, ROUTER_COLLECTED_HIGH = COLLECTED_BYTES, 8 * COLLECTED_BYTES
"""Of messages for consumers inside the router that have begun on all links of a connection; between routers for many
clients."""
IDLE_LINKS = 32
"""Streaming links that a connection keeps for the next streams."""
MOST_UNSETTLED_LINKS = 256
"""Idle streaming links of one connection. If there are more, a link with an unsettled message serves other addresses
too, and the link that has been idle for longest comes first."""


class Streams:
    """The streams of one router process."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self.wide = WideStreams(forwarder, self)
        self._trimmed: set[Connection] = set()
        """Whose idle streaming links are being closed."""

    def begin(self, link: Link, pn: Any, size: int) -> bool:
        """Route a delivery by its first `size` bytes, which are in the buffer, and start to pass it on.

        True when the delivery is dealt with and the link can go on with the next one.
        """
        forwarder = self._forwarder
        if 0 < link.max_message_size < size:
            forwarder.too_large(link, pn)
            return False
        swamped = too_much_waits(link.connection)
        if forwarder.copies.hold_up(link) and not swamped:
            link.stream = Postponed(link, pn, bytes(forwarder.view[:size]))
            forwarder.parking.keep(link.stream)
            return False
        settled = pn_delivery_settled(pn)
        skip = 0
        failure: SectionError | None = None
        route: Route | None = None
        to: bytes | None = None
        if link.on_delivery is None:
            try:
                route = forwarder.lookup.find(link, size, complete=False)
                skip, to = forwarder.lookup.skip, forwarder.lookup.to
            except SectionError as error:
                failure = error.without_frames()
            except IncompleteError:
                if size >= CHUNK_BYTES or not much_waits(link.connection):
                    failure = SectionError(f"no address within the first {size} bytes")
        if route is None:
            route = Route(None, NOBODY, b"")
        has_to_wait = route.kind is RouteKind.MULTICAST and self.wide.has_to_wait(link, route)
        if has_to_wait and not swamped:
            link.stream = self.wide.postponed(link, pn, size, route)
            return False
        link.deliveries += 1
        route.deliveries += 1
        load: PathLoad | None = None
        known = size - skip + pn_delivery_pending(pn)
        if route.kind in {RouteKind.ROTATE, RouteKind.BALANCE, RouteKind.SELECTIVE}:
            found = route.choose_for(known) if route.kind is RouteKind.SELECTIVE else route.choose()
            if found is None:
                failure = too_large(known)
                sinks = []
            else:
                sink, load = found
                sinks = [sink]
        else:
            sinks = list(route.sinks)
        if swamped and (has_to_wait or len(sinks) > MANY_RECEIVERS or forwarder.copies.hold_up(link)):
            sinks, load = [], None  # it would have to wait in any case
        record: Delivery | None = None
        if settled:
            link.presettled += 1
        else:
            now = forwarder.settlement.now
            multicast = route.kind is RouteKind.MULTICAST
            record = Fanout(link, pn, now) if multicast else Delivery(link, pn, load, now)
            link.unsettled[record.key] = record
            if load is not None:
                load.outstanding += 1
            if failure is not None:
                forwarder.settlement.fail(record, failure)
        head = bytes(forwarder.view[skip:size])
        if route.kind is RouteKind.MULTICAST and len(sinks) > MANY_RECEIVERS:
            stream: Stream = WideStream(link, pn, head, record, route, sinks, known)
            at_once: list[Sink] = []
        else:
            stream, at_once = Stream(link, pn, head, record), sinks
        stream.size, stream.skip, stream.to = size, skip, to
        stream.multicast = route.kind is RouteKind.MULTICAST
        link.stream = stream
        if link.on_delivery is not None:
            stream.consume = partial(link.on_delivery, link)
        elif isinstance(route.handler, SettlingConsumer):
            stream.consumer = route.handler
            stream.consume = lambda payload: forwarder.inside.collected(stream, payload)
        elif route.handler is not None:
            handle = route.handler.handle
            stream.collected.most = route.handler.most_bytes
            stream.head = bytes(forwarder.view[route.handler.start(skip) : size])
            stream.consume = lambda payload: handle(payload, link)
        if stream.consume is not None:
            self._collect(stream, stream.head)
        for sink in at_once:
            branch = self.branch_to(sink, route, stream, known)
            if branch is not None:
                stream.branches.append(branch)
        if isinstance(record, Fanout):
            record.pending = len(stream.branches) + 1
        forwarder.parking.keep(stream)
        if stream.__class__ is WideStream:
            self.wide.begin(stream)
        elif settled and not stream.branches and stream.consume is None:
            link.dropped_presettled += 1
        for branch in list(stream.branches):
            self.claim(stream, branch)
        if sinks:
            forwarder.stalled.watch(link)
            if stream.multicast:
                forwarder.slow.watch(link)
        if settled or link.replenish_on_arrival:
            forwarder.settlement.replenish(link)
        if self.pump(stream):
            return True
        if stream.kept and much_waits(link.connection):
            self._bound(stream)
        return False

    def branch_to(self, sink: Sink, route: Route, stream: Stream, known: int) -> Branch | None:
        """What passes a stream on to a sink, unless that takes no message of which so many bytes are known."""
        out = self._out_link(sink, None if route.address is None else route.address.key, stream.link)
        if out is None:
            return None
        if not fits(out, known):
            if isinstance(stream.record, Fanout):
                stream.record.outcome = PN_REJECTED
            return None
        return Branch(out, route.prefix if out.connection.annotates else b"")

    def _bound(self, stream: Stream) -> None:
        """Leave out receivers for which a stream would have to wait though too much of its connection waits."""
        for branch in [one for one in stream.branches if one.pn is None]:
            if stream.kept and is_crowded(branch.link, stream.link.connection):
                self.drop(stream, branch)

    def _out_link(self, sink: Sink, address: str | None, origin: Link) -> Link | None:
        """The link for a stream to `address` that comes in on `origin`.

        One on which an earlier stream may still wait at the other router, as it is not settled, serves only the same
        address unless there are many: streams for others would wait behind it.
        """
        connection: Connection | None
        if isinstance(sink, Hop):
            connection = sink.connection_for_stream()
        elif sink.connection.takes_streams:
            connection = sink.connection
        else:
            return sink
        if connection is None:
            return None
        idle = connection.idle_streams
        crowded = len(idle) > MOST_UNSETTLED_LINKS
        for _ in range(min(len(idle), IDLE_LINKS)):
            link = idle.popleft()
            if link in connection.links:
                if (
                    not is_shut_session(link.session)
                    and (crowded or not link.unsettled or link.streamed_to == address)
                    and connection.io.sessions.may_carry(link, origin)
                ):
                    link.streamed_to = address
                    return link
                idle.append(link)  # the end of the last stream is still to be sent, perhaps
        link = self._open(connection, origin)
        link.streamed_to = address
        return link

    def _open(self, connection: Connection, origin: Link) -> Link:
        """A new streaming link; on an inter-router control connection it is one more inter-router link."""
        between = connection.role is Role.INTER_ROUTER
        terminus = Terminus(capabilities=frozenset((CAPABILITY_ROUTER,))) if between else Terminus()
        link = self._forwarder.core.port.open_link(
            connection,
            Direction.OUT,
            link_type=LinkType.ROUTER if between else LinkType.ENDPOINT,
            source=terminus,
            target=terminus,
            session=SessionClass.STREAMING,
            origin=origin,
        )
        link.streaming = True
        link.note_standing()
        return link

    def claim(self, stream: Stream, branch: Branch) -> None:
        """Take the outgoing link, or queue for it behind what already waits there."""
        link = branch.link
        if link.stream is None and not link.parked:
            link.stream = stream
            branch.claim()
        else:
            branch.waiting = Waiting(stream)
            queue_of(link).streams[branch.waiting] = branch
            link.parked.append(branch.waiting)

    def turn(self, link: Link, stream: Stream) -> None:
        """A stream that has waited for an OUT link may have it now."""
        link.stream = stream
        if stream.__class__ is WideStream:
            self.wide.turn(stream, link)
            return
        for branch in stream.branches:
            if branch.link is link:
                branch.claim()
        self._pump_on(stream)

    def _pump_on(self, stream: Stream) -> None:
        """Pump from the receiving side; once through, the sender's link goes on by itself."""
        compiled = self._forwarder.compiled
        if compiled is not None and compiled.go_on(stream):
            return
        if self.pump(stream):
            self._forwarder.go_on(stream.link)

    def receiver_ready(self, stream: Stream) -> None:
        """A receiver has given credit, or its session has room again."""
        self._pump_on(stream)

    def pump(self, stream: Stream) -> bool:
        """Pass on what has arrived. True when the delivery is finished and the link free for the next."""
        forwarder = self._forwarder
        if stream.__class__ is WideStream:
            self.wide.stir(stream)
            return False
        link, pn = stream.link, stream.pn
        if stream.__class__ is Postponed:
            if forwarder.copies.hold_up(link) or self.wide.holds_up(stream):
                return False
            link.stream = None
            size = len(stream.head)
            forwarder.view[:size] = stream.head
            forwarder.parking.keep_no_more(stream)
            return self.begin(link, pn, size)
        stream.up_to_date = False
        if pn_delivery_aborted(pn):
            self._abort(stream)
            link.unsettled.pop(key(pn), None)
            pn_delivery_settle(pn)
            link.stream = None
            if stream.record is not None and not link.replenish_on_arrival:
                forwarder.settlement.replenish(link)
            return True
        if not self._started(stream):
            retain(link.connection.io, pn)
            return False
        has_sent = False
        while True:
            size = min(pn_delivery_pending(pn), CHUNK_BYTES)
            for branch in stream.branches:
                out = branch.link
                if not has_room(out, size, STREAM_OUTGOING_HIGH):
                    out.connection.io.stalled.add(out)
                    if has_sent:
                        _release_written(stream)
                    return False
            if size > 0:
                stream.size += size
                if 0 < link.max_message_size < stream.size:
                    forwarder.too_large(link, pn)
                    return False
                for branch in [one for one in stream.branches if not fits(one.link, stream.size)]:
                    self._too_large_for(stream, branch)
                pn_link_recv(link.io, forwarder.buffer, size)
                if not forwarder.pieces.may_pass(link, pn, size):
                    return False
                has_sent = True
                for branch in stream.branches:
                    equip(branch.pn, size)
                    pn_link_send(branch.link.io, forwarder.buffer, size)
                    forwarder.settlement.touch(branch.link.connection)
                if stream.consume is not None:
                    self._collect(stream, forwarder.view[:size])
                forwarder.settlement.touch(link.connection)
            elif pn_delivery_partial(pn):
                retain(link.connection.io, pn)
                _release_written(stream)
                stream.up_to_date = True
                return False
            elif forwarder.pieces.may_end(link, pn):
                self._finish(stream)
                return True
            else:
                return False

    def _too_large_for(self, stream: Stream, branch: Branch) -> None:
        """One of the receivers does not take so large a message: it sees the delivery aborted."""
        self._cut(stream, branch, PN_REJECTED)
        record = stream.record
        if record is not None and not isinstance(record, Fanout):
            self._forwarder.settlement.fail(record, too_large(stream.size))

    def _cut(self, stream: Stream, branch: Branch, state: int) -> None:
        """One of the receivers gets no more of it, and sees it aborted; `state` is what the sender learns."""
        stream.branches.remove(branch)
        self._end_early(branch)
        self._forwarder.settlement.branch_lost(stream.record, state)

    def _end_early(self, branch: Branch) -> None:
        if branch.pn is not None:
            pn_delivery_abort(branch.pn)
        if branch.claimed:
            self._forwarder.settlement.touch(branch.link.connection)
            self.release(branch.link)
        else:
            self._forwarder.parking.leave_queue(branch)

    def drop(self, stream: Stream, branch: Branch) -> None:
        """Leave out a receiver that does not take the message, and go on with the others."""
        state = PN_RELEASED if branch.pn is None else PN_MODIFIED
        if isinstance(stream, WideStream):
            self.wide.drop(stream, branch, state)
        elif stream.link.stream is stream and branch in stream.branches:
            self._cut(stream, branch, state)
            self._pump_on(stream)
        else:
            return  # it has ended meanwhile
        if stream.record is None:
            branch.link.dropped_presettled += 1

    def give_up(self, stream: Stream) -> Iterator[None]:
        """All receivers see the delivery aborted, step by step; what still comes of it is discarded.

        The delivery has begun to each of them.
        """
        if isinstance(stream, WideStream):
            yield from self.wide.cut(stream)
        else:
            for branch in list(stream.branches):
                self._cut(stream, branch, PN_MODIFIED)
            self._pump_on(stream)

    def _collect(self, stream: Stream, data: bytes | memoryview) -> None:
        connection, size = stream.link.connection, len(data)
        largest = stream.collected.most or COLLECTED_BYTES
        if stream.collected.size + size > largest:
            error = SectionError(f"more than {largest} bytes", "amqp:link:message-size-exceeded")
        elif connection.collected_bytes + size > (most := _most_collected(connection)):
            reason = (
                f"unfinished messages for the router itself have more than {most} bytes on this connection"
            )
            error = SectionError(reason, "amqp:resource-limit-exceeded")
        else:
            stream.collected.add(data)
            connection.collected_bytes += size
            return
        stream.consume = None
        self._take_collected(stream)
        if stream.record is not None:
            self._forwarder.settlement.fail(stream.record, error)

    @staticmethod
    def _take_collected(stream: Stream) -> bytes:
        """What has been collected of a message; the stream has it no longer."""
        data = stream.collected.take()
        stream.link.connection.collected_bytes -= len(data)
        return data

    def _started(self, stream: Stream) -> bool:
        """Whether every branch has its outgoing delivery; creates them as credit allows."""
        waits = False
        for branch in stream.branches:
            if branch.pn is None and not self._start(stream, branch):
                waits = True
        if stream.kept and not waits:
            self._forwarder.parking.keep_no_more(stream)
            stream.head = b""
        return not waits

    def _start(self, stream: Stream, branch: Branch) -> bool:
        """Whether a receiver takes the beginning; then it has it."""
        out, forwarder = branch.link, self._forwarder
        if not (branch.claimed and (pn_link_credit(out.io) > 0 or out.boundless)):
            return False
        if not has_room(out, len(stream.head), STREAM_OUTGOING_HIGH) or has_to_settle(out, stream.record):
            out.connection.io.stalled.add(out)
            return False
        branch.pn = pn_delivery(out.io, forwarder.new_tag())
        if has_extension_state(stream.pn):
            copy_state(stream.pn, branch.pn)
        equip(branch.pn, len(stream.head))
        if branch.prefix:
            pn_link_send(out.io, branch.prefix, len(branch.prefix))
        pn_link_send(out.io, stream.head, len(stream.head))
        out.deliveries += 1
        forwarder.settlement.touch(out.connection)
        return True

    def _finish(self, stream: Stream) -> None:
        forwarder = self._forwarder
        link = stream.link
        if pn_delivery_settled(stream.pn):
            self.settled_after_all(stream)
        record = stream.record
        link.stream = None
        advance(link)
        forwarder.settlement.touch(link.connection)
        branches = stream.branches
        body_size = stream.size - stream.skip
        forwarder.settlement.count_message(link, body_size)
        for branch in branches:
            out, pn = branch.link, branch.pn
            forwarder.settlement.count_message(out, body_size)
            advance(out)
            # The last bytes may have been written before the end was known, or while it had to wait.
            forwarder.settlement.touch(out.connection)
            if record is None:
                forwarder.settlement.sent_presettled(out, pn)
            else:
                out.unsettled[key(pn)] = record
                if out.sends_settled:
                    forwarder.settlement.sent_settled(out, pn, record)
                elif record.__class__ is Fanout:
                    out.connection.unbounded += 1
            self.release(out)
        if stream.consume is not None:
            self._consume(stream)
            return
        if record is None:
            pn_delivery_settle(stream.pn)
            return
        for branch in branches:
            if not branch.link.sends_settled and pn_delivery_updated(branch.pn):
                forwarder.settlement.updated(branch.link, branch.pn, pn_delivery_remote_state(branch.pn))
        if isinstance(record, Fanout):
            forwarder.settlement.all_copied(record)
        elif not branches:
            forwarder.settlement.unrouted(record)

    def settled_after_all(self, stream: Stream) -> None:
        """The last frame says that the delivery is settled; the engine of another router cannot say so earlier."""
        record, stream.record = stream.record, None
        if record is None:
            return
        link = stream.link
        del link.unsettled[record.key]
        record.link = None
        if record.load is not None:
            record.load.settled()
        link.presettled += 1
        if not link.replenish_on_arrival:
            self._forwarder.settlement.replenish(link)

    def _consume(self, stream: Stream) -> None:
        """The whole of a message for the router itself is here."""
        consume, stream.consume = stream.consume, None
        assert consume is not None
        if stream.record is None:
            pn_delivery_settle(stream.pn)
        elif stream.consumer is None:
            stream.record.lost_state = PN_ACCEPTED
            self._forwarder.settlement.unrouted(stream.record)
        consume(self._take_collected(stream))

    def release(self, out: Link) -> None:
        """The stream has left `out`: back to the pool, or on with what waits there."""
        out.stream = None
        if out.streaming:
            out.connection.idle_streams.append(out)
        self._forwarder.go_on(out)

    def trim(self, connection: Connection) -> None:
        """Close streaming links that a burst has left behind, in steps; to be called now and then."""
        if len(connection.idle_streams) > IDLE_LINKS and connection not in self._trimmed:
            self._trimmed.add(connection)
            self._forwarder.core.port.work(self._close_idle(connection))

    def _close_idle(self, connection: Connection) -> Iterator[None]:
        idle = connection.idle_streams
        try:
            for _ in range(len(idle)):
                if len(idle) <= IDLE_LINKS:
                    return
                link = idle.popleft()
                if link.unsettled:
                    idle.append(link)
                elif link in connection.links:
                    self._forwarder.core.port.detach_link(link)
                yield
        finally:
            self._trimmed.discard(connection)

    def _abort(self, stream: Stream) -> None:
        branches, stream.branches = stream.branches, []
        stream.consume = None
        self._take_collected(stream)
        self._forwarder.parking.keep_no_more(stream)
        stream.head = b""
        record = stream.record
        if record is not None and record.load is not None:
            record.load.settled()
            record.load = None
        for branch in branches:
            self._end_early(branch)

    def sender_lost(self, stream: Stream) -> None:
        """The sender went away in the middle: receivers see the delivery aborted."""
        stream.link.stream = None
        if stream.__class__ is WideStream:
            self.wide.sender_lost(stream)
            return
        self._abort(stream)

    def receiver_lost(self, link: Link) -> None:
        """A receiver went away in the middle; without any left, the rest of the delivery is discarded."""
        stream, link.stream = link.stream, None
        if stream is not None:
            self.leave_out(stream, link)

    def leave_out(self, stream: Stream, link: Link) -> None:
        """Go on without one of the receivers."""
        if stream.__class__ is WideStream:
            self.wide.leave_out(stream, link)
            return
        lost = [branch for branch in stream.branches if branch.link is link]
        if not lost:
            return  # the stream was given up while it waited for the link
        stream.branches = [branch for branch in stream.branches if branch.link is not link]
        for branch in lost:
            self._forwarder.settlement.branch_lost(
                stream.record, PN_MODIFIED if branch.pn is not None else PN_RELEASED
            )
        self._pump_on(stream)


def _release_written(stream: Stream) -> None:
    for branch in stream.branches:
        release_written(branch.link, branch.pn)


def _most_collected(connection: Connection) -> int:
    return ROUTER_COLLECTED_HIGH if connection.role.is_between_routers else CONNECTION_COLLECTED_HIGH
