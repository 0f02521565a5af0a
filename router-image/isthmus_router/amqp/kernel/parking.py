"""Whole messages that wait on an outgoing link, for credit or for room in its session.

What a sender has waiting anywhere is bounded: beyond that its link is paused, and its session window holds it
back. The link of another router is read on, since it carries messages of many clients, and one receiver that takes none
would hold up those of all others: what waits from its connection is bounded, and the router releases messages beyond
that. What no sender answers for (pre-settled messages, and those of senders that are gone) is bounded for each
outgoing link, and for all links of a connection: beyond that the oldest pre-settled ones are dropped, and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cproton_ffi.lib import (
    PN_RELEASED,
    pn_delivery,
    pn_link_credit,
    pn_link_get_drain,
    pn_link_send,
)

from isthmus_router.amqp.kernel.credit import give_back, is_boundless
from isthmus_router.amqp.kernel.delivery import (
    Branch,
    Delivery,
    Fanout,
    Hold,
    Parked,
    Queue,
    Stream,
    Waiting,
    queue_of,
)
from isthmus_router.amqp.kernel.handles import advance, has_room, key
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.terms import Condition, LinkType

if TYPE_CHECKING:
    from isthmus_router.amqp.kernel.forward import Forwarder

PARKED_BYTES_HIGH = 1024 * 1024
PARKED_BYTES_LOW = 512 * 1024
CONNECTION_PARKED_HIGH, ROUTER_PARKED_HIGH = 16 * 1024 * 1024, 128 * 1024 * 1024
"""What no sender answers for, on all links of a connection together; between routers for many clients. Of clients'
connections as well: what their senders have waiting anywhere, on all links together. From a connection of another
router as much may wait as between routers."""
LEAST_WAITING = 16
"""Messages that may wait for each receiver when more than that waits, until twice as much does. A receiver that gives
credit again and again gets its messages so."""
CONNECTION_PARKED_LOW = 8 * 1024 * 1024
PLACE_BYTES = 256
"""What a message that waits takes besides its bytes."""
UNASKED_HIGH = 10_000
"""Pre-settled messages under way to a receiver that wants them unsettled: nobody's credit bounds them."""
MOST_UNBOUNDED = 100_000
"""Unsettled deliveries to a client on all links together, beyond which it gets no further copies of multicast messages,
and no pre-settled messages that it is to settle."""
CONTROL_PARKED_MOST, CONTROL_PARKED_HIGH = 10_000, 64 * 1024 * 1024
"""Messages about routing that wait for a neighbour, and their bytes."""
NOT_READ = Condition("amqp:resource-limit-exceeded", "the messages about routing are not read")
AT_ONCE = 256
"""Messages that are sent or given back in one step."""
DROPPED_PLACES = 16
"""Places of dropped messages that a queue may have in any case; otherwise they may be half of it."""


class Parking:
    """The messages of one router process that wait."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self._unparking: set[Link] = set()
        """OUT links on which what waits is sent in steps."""

    def park(self, out: Link, payload: bytes, record: Delivery | None, origin: Link | None) -> None:
        """Queue a whole message until `out` has credit."""
        if record is not None and origin is not None and is_crowded(out, origin.connection):
            self._forwarder.settlement.outcome(record, PN_RELEASED, None)
            return
        item = Parked(out.queue or queue_of(out), payload, record, None if record is None else origin)
        out.parked.append(item)
        if record is None:
            connection = out.connection
            if not out.parked_presettled:
                connection.parked_on[out] = None
            out.parked_presettled.append(item)
            _add(out, len(payload))
            if connection.parked_bytes > _most_parked(connection):
                _drop_longest_parked(connection)
            if out.type is LinkType.CONTROL:
                self._bound_control(out)
            elif len(out.parked_presettled) > out.capacity or out.parked_bytes > PARKED_BYTES_HIGH:
                _drop_older_presettled(out)
        elif origin is not None:
            origin.sent_parked[item] = None
            size = PLACE_BYTES
            if record.__class__ is not Fanout:
                size += len(payload)
            else:
                fanout: Fanout = record
                if not fanout.parked:
                    fanout.size = len(payload)
                    size += fanout.size
                fanout.parked += 1
            self.wait(origin, size)
        elif record.__class__ is not Fanout:
            item.orphaned = True
            _add(out, len(payload))
        elif not self._orphan(out, item, record):
            out.parked.pop()

    def _bound_control(self, out: Link) -> None:
        """Messages about routing are not dropped: a neighbour that does not read them is not one any more."""
        if len(out.parked) == CONTROL_PARKED_MOST or (
            out.parked_bytes > CONTROL_PARKED_HIGH >= out.parked_bytes - len(out.parked[-1].payload)
        ):
            connection, close = out.connection, self._forwarder.core.port.close_connection
            self._forwarder.turn_ends.append(lambda: close(connection, NOT_READ))
            self._forwarder.settlement.touch(connection)

    def flow(self, link: Link) -> None:
        """The receiver of an OUT link changed its credit."""
        link.boundless = is_boundless(link, self._forwarder.settlement.now)
        self.unpark(link)
        if link.parked and is_full(link.connection):
            self._forwarder.settlement.touch(link.connection)  # after the write it is counted anew
        link.drained = pn_link_get_drain(link.io) or (pn_link_credit(link.io) <= 0 and not link.boundless)
        self._forwarder.settlement.eased(link)

    def unpark(self, out: Link) -> None:
        """Send what waits on `out` as far as credit and session allow; many messages in steps."""
        if out not in self._unparking and self._unpark_some(out):
            self._unparking.add(out)
            self._forwarder.core.port.work(self._unpark_rest(out))

    def _unpark_rest(self, out: Link) -> Iterator[None]:
        try:
            while out in out.connection.links and self._unpark_some(out):
                yield
        finally:
            self._unparking.discard(out)

    def _unpark_some(self, out: Link) -> bool:
        """Whether more could be sent at once."""
        forwarder, left = self._forwarder, AT_ONCE
        streams, settlement = forwarder.streams, forwarder.settlement
        if out.stream is not None:
            streams.receiver_ready(out.stream)
        pn_out = out.io
        while (parked := out.parked) and out.stream is None:
            if parked[0].__class__ is Hold:
                break
            if parked[0].dropped:
                parked.popleft()
                out.parked_dropped -= 1
                continue
            if parked[0].__class__ is Waiting:
                place = parked.popleft()
                del out.queue.streams[place]
                streams.turn(out, place.stream)
                continue
            if pn_link_credit(pn_out) <= 0 and not out.boundless:
                break
            if not has_room(out, len(parked[0].payload)) or (
                parked[0].record.__class__ is not Delivery and has_to_settle(out, parked[0].record)
            ):
                out.connection.io.stalled.add(out)
                break
            if not left:
                return True
            left -= 1
            item = parked.popleft()
            forwarder.spent += 1
            pn = pn_delivery(pn_out, forwarder.new_tag())
            pn_link_send(pn_out, item.payload, len(item.payload))
            out.deliveries += 1
            settlement.count_message(out, item.body_size)
            if item.record is None:
                out.parked_presettled.popleft()
                settlement.sent_presettled(out, pn)
            else:
                advance(out)
                out.unsettled[key(pn)] = item.record
                if out.sends_settled:
                    settlement.sent_settled(out, pn, item.record)
                elif item.record.__class__ is Fanout:
                    out.connection.unbounded += 1
            self._left(out, item)
            settlement.touch(out.connection)
        if (
            not out.parked
            and out.stream is None
            and pn_link_get_drain(pn_out)
            and give_back(out, settlement.now)
        ):
            settlement.touch(out.connection)
        settlement.eased(out)
        return False

    def _left(self, out: Link | None, item: Parked) -> None:
        """A message waits no longer. `out` is the link for which it counts, if any."""
        origin = item.origin
        if out is not None:
            count(out, item, -1)
        if origin is None:
            return
        del origin.sent_parked[item]
        size = PLACE_BYTES
        if item.record.__class__ is not Fanout:
            size += len(item.payload)
        else:
            fanout: Fanout = item.record
            fanout.parked -= 1
            if not fanout.parked:
                size += fanout.size
        self.wait_no_more(origin, size)

    def wait(self, origin: Link, size: int) -> None:
        """So many bytes more wait that came on an IN link."""
        origin.parked_bytes += size
        if origin.parked_bytes > PARKED_BYTES_HIGH and not origin.connection.role.is_between_routers:
            origin.paused = True
        self._more_waits(origin.connection, size)

    def _more_waits(self, connection: Connection, size: int) -> None:
        connection.waiting_bytes += size
        if connection.role.is_between_routers:
            return
        if connection.waiting_bytes > CONNECTION_PARKED_HIGH and not connection.crowded:
            connection.crowded = True
            for link in connection.links:
                if link.incoming and not link.routed:
                    link.paused = True

    def keep(self, stream: Stream) -> None:
        """Count the first bytes of a message, which the stream stores until it starts, for the sender's connection."""
        size = len(stream.head) + PLACE_BYTES * max(1, len(stream.branches))
        stream.kept += size
        self._more_waits(stream.link.connection, size)

    def keep_no_more(self, stream: Stream) -> None:
        """Count them no longer: the stream has started, or ends before that."""
        size, stream.kept = stream.kept, 0
        if size:
            self._less_waits(stream.link.connection, size)

    def leave_queue(self, branch: Branch) -> None:
        """Remove a stream that ends while it waits for a link from the queue of that link."""
        out, place = branch.link, branch.waiting
        assert place is not None
        branch.waiting = None
        if out.queue is None or out.queue.streams.pop(place, None) is None:
            _give_up(place)  # all that waited on the link is given back
            return
        _leave_place(out, place)
        _close_gaps(out)
        self._forwarder.settlement.eased(out)

    def wait_no_more(self, origin: Link, size: int) -> None:
        """So many bytes less wait that came on an IN link."""
        origin.parked_bytes -= size
        self._less_waits(origin.connection, size)
        if origin.paused and origin.parked_bytes < PARKED_BYTES_LOW and not origin.connection.crowded:
            origin.paused = False
            self._forwarder.go_on(origin)
            self._forwarder.settlement.touch(origin.connection)  # markers may have waited for it

    def _less_waits(self, connection: Connection, size: int) -> None:
        connection.waiting_bytes -= size
        if connection.crowded and connection.waiting_bytes < CONNECTION_PARKED_LOW:
            connection.crowded = False
            self._forwarder.core.port.work(self._read_on(connection))

    def _read_on(self, connection: Connection) -> Iterator[None]:
        """Read the IN links of a connection again, one after the other."""
        for link in list(connection.links):
            if connection.crowded:
                return
            if link.incoming and not link.routed and link in connection.links:
                self.read_on(link)
                self._forwarder.resume()
                yield
        self._forwarder.settlement.touch(connection)  # markers may have waited for it

    def read_on(self, link: Link) -> None:
        """Read an IN link again, unless too much of it or of its connection waits, or a consumer wants no more."""
        if (
            link.paused
            and not link.connection.crowded
            and link.parked_bytes <= PARKED_BYTES_HIGH
            and link not in self._forwarder.inside.held
        ):
            link.paused = False
            self._forwarder.go_on(link)

    def sender_lost(self, origin: Link) -> None:
        """The sender is gone: what it has parked is still delivered, as far as each link's bound has room.

        Nobody was told that the rest had arrived.
        """
        origin.paused = False  # what leaves meanwhile must not have it read on
        self._forwarder.in_steps(self._orphan_all(origin), len(origin.sent_parked))

    def _orphan_all(self, origin: Link) -> Iterator[None]:
        for number, item in enumerate(list(origin.sent_parked), 1):
            if item in origin.sent_parked:  # it has not left since then
                del origin.sent_parked[item]
                item.origin = None
                if (out := item.link) is not None:
                    if not self._orphan(out, item, item.record):
                        _leave_place(out, item)
                        _close_gaps(out)
                    self._forwarder.settlement.eased(out)
            if number % AT_ONCE == 0:
                yield
        size, origin.parked_bytes = origin.parked_bytes, 0
        self._less_waits(origin.connection, size)

    def _orphan(self, out: Link, item: Parked, record: Delivery) -> bool:
        """Whether there is room on `out` for a message whose sender is gone."""
        size = len(item.payload)
        if out.parked_bytes + size > PARKED_BYTES_HIGH or out.connection.parked_bytes + size > _most_parked(
            out.connection
        ):
            self._forwarder.settlement.outcome(record, PN_RELEASED, None)
            return False
        item.orphaned = True
        _add(out, size)
        return True

    def hand_over(self, old: Link, new: Link) -> bool:
        """What waits on `old` waits on `new` from now on, in front of what is there.

        True if `old` was held, so that nothing has been sent there yet: then `new` is held in its place.
        """
        holds = _take_holds(old)
        held = bool(holds)
        holds += _take_holds(new)
        for hold in holds:
            hold.link = new
        if old.parked:
            _move(old, new)
        new.parked.extendleft(holds)
        return held

    def hold(self, out: Link) -> Hold:
        """Nothing leaves on `out` until this is lifted."""
        hold = Hold(out)
        out.parked.appendleft(hold)
        return hold

    def lift(self, hold: Hold) -> None:
        """Let go what was held, unless it is gone."""
        out = hold.link
        holds = _take_holds(out)
        lifted = hold in holds
        if lifted:
            holds.remove(hold)
        out.parked.extendleft(holds)
        if lifted:
            self.unpark(out)

    def release(self, link: Link) -> Iterator[None]:
        """Give back, step by step, what waits for credit on an OUT link that is gone."""
        parked, link.parked = link.parked, deque()
        link.parked_presettled.clear()
        link.connection.parked_on.pop(link, None)
        link.parked_dropped = 0
        queue: Queue | None = link.queue
        if queue is not None:
            _count_elsewhere(link, queue, None)
            link.queue = queue.link = None
        return self._release(link, parked)

    def _release(self, link: Link, parked: deque[Any]) -> Iterator[None]:
        streams, outcome = self._forwarder.streams, self._forwarder.settlement.outcome
        for number, item in enumerate(parked, 1):
            if number % AT_ONCE == 0:
                yield
            if item.dropped or item.__class__ is Hold:
                continue
            if item.__class__ is Waiting:
                streams.leave_out(item.stream, link)
                continue
            if item.record is not None:
                outcome(item.record, PN_RELEASED, None)
            else:
                link.dropped_presettled += 1
            self._left(None, item)


def much_waits(connection: Connection) -> bool:
    """Whether messages that came on a connection of another router may wait only for receivers with few of them."""
    return connection.waiting_bytes > ROUTER_PARKED_HIGH and connection.role.is_between_routers


def too_much_waits(connection: Connection) -> bool:
    """Whether no more messages may wait that come on a connection of another router."""
    return connection.waiting_bytes > 2 * ROUTER_PARKED_HIGH and connection.role.is_between_routers


def is_crowded(out: Link, connection: Connection) -> bool:
    """Whether too much waits that came on a connection of another router for more to wait on an OUT link."""
    return much_waits(connection) and (out.waiting >= LEAST_WAITING or too_much_waits(connection))


def too_many_unasked(out: Link) -> bool:
    """Whether a receiver has not settled so many deliveries that pre-settled messages have to wait."""
    return out.sends_unsettled and (len(out.unsettled) > UNASKED_HIGH or is_full(out.connection))


def is_full(connection: Connection) -> bool:
    """Whether the client has so many unsettled deliveries that only a sender's credit may give it more.

    Deliveries are counted when they are sent, and not when they are settled: see `count_unsettled`.
    """
    return connection.unbounded >= MOST_UNBOUNDED and not connection.role.is_between_routers


def has_to_settle(out: Link, record: Delivery | None) -> bool:
    """Whether the receiver has to settle deliveries before it gets one with this record."""
    if record is None:
        return too_many_unasked(out)
    return record.__class__ is Fanout and is_full(out.connection)


def count_unsettled(connection: Connection) -> None:
    """Count anew what a client has unsettled, after a write, where it may have more than it may."""
    if is_full(connection):
        links = (link for link in connection.links if not link.incoming and not link.routed)
        connection.unbounded = sum(len(link.unsettled) for link in links)


def _drop_older_presettled(out: Link) -> None:
    """Make room: the oldest pre-settled messages go, so that the newest survive.

    They leave their places behind, for between them wait others that stay; now and then those go as well.
    """
    presettled = out.parked_presettled
    while len(presettled) > 1 and (len(presettled) > out.capacity or out.parked_bytes > PARKED_BYTES_HIGH):
        _drop_oldest(out)
    _close_gaps(out)


def _drop_oldest(out: Link) -> None:
    item = out.parked_presettled.popleft()
    _add(out, -len(item.payload))
    out.dropped_presettled += 1
    _leave_place(out, item)


def count(out: Link, item: Parked, sign: int) -> None:
    """A message that no sender waits for is parked on a link, or has left (-1)."""
    if item.relayed:
        size = sign * len(item.payload)
        out.parked_bytes += size
        out.queue.relayed_bytes += size
        out.queue.relayed += sign
        out.connection.relayed_waiting += sign
    elif item.record is None or item.orphaned:
        _add(out, sign * len(item.payload))


def _add(out: Link, size: int) -> None:
    """Bytes that no sender answers for are parked on a link, or have left."""
    out.parked_bytes += size
    out.connection.parked_bytes += size


def _count_elsewhere(old: Link, queue: Queue, new: Link | None) -> None:
    """What waits on `old` counts there no longer, but for the other link, if any. `queue` is that of `old`."""
    size, old.parked_bytes = old.parked_bytes, 0
    old.connection.parked_bytes -= size - queue.relayed_bytes
    old.connection.relayed_waiting -= queue.relayed
    if new is not None:
        new.parked_bytes += size
        new.connection.parked_bytes += size - queue.relayed_bytes
        new.connection.relayed_waiting += queue.relayed


def _take_holds(out: Link) -> list[Hold]:
    """Take what is in front of all messages of a queue."""
    holds: list[Hold] = []
    parked = out.parked
    while parked and parked[0].__class__ is Hold:
        holds.append(parked.popleft())
    return holds


def _move(old: Link, new: Link) -> None:
    """What waits on `old`, other than streams, waits on `new` in front of what is there.

    The number of messages does not matter if nothing waits on `new`.
    """
    before, after = queue_of(old), queue_of(new)
    streams_of_new, stay = after.streams, Queue(old)
    for place, branch in before.streams.items():
        branch.waiting = Waiting(place.stream)
        stay.streams[branch.waiting] = branch
        _leave_place(old, place)
    before.streams = {}
    if old.parked_presettled:
        new.connection.parked_on[new] = None
    _count_elsewhere(old, before, new)
    whole, part = (before, after) if len(old.parked) > len(new.parked) else (after, before)
    whole.link, part.link, part.part_of = new, None, whole
    whole.relayed += part.relayed
    whole.relayed_bytes += part.relayed_bytes
    whole.streams = streams_of_new
    new.parked = _joined(old.parked, new.parked)
    new.parked_presettled = _joined(old.parked_presettled, new.parked_presettled)
    new.parked_dropped += old.parked_dropped
    old.parked, old.parked_presettled, old.parked_dropped = deque(stay.streams), deque(), 0
    old.queue, new.queue = stay, whole
    _close_gaps(new)


def _joined(first: deque[Any], then: deque[Any]) -> deque[Any]:
    """Both in one of them; the shorter one is walked."""
    if len(first) > len(then):
        first.extend(then)
        return first
    then.extendleft(reversed(first))
    return then


def _most_parked(connection: Connection) -> int:
    return ROUTER_PARKED_HIGH if connection.role.is_between_routers else CONNECTION_PARKED_HIGH


def _drop_longest_parked(connection: Connection) -> None:
    """Make room on a connection: link by link, those first on which messages have waited longest."""
    most, parked_on = _most_parked(connection), connection.parked_on
    while parked_on and connection.parked_bytes > most:
        out = next(iter(parked_on))
        if out.type is not LinkType.CONTROL:
            while out.parked_presettled and connection.parked_bytes > most:
                _drop_oldest(out)
            _close_gaps(out)
        if not out.parked_presettled or out.type is LinkType.CONTROL:
            del parked_on[out]


def _leave_place(out: Link, item: Parked | Waiting) -> None:
    """What waits is given up, with only its place left: taking it out would mean to look for it."""
    _give_up(item)
    out.parked_dropped += 1


def _give_up(item: Parked | Waiting) -> None:
    if isinstance(item, Waiting):
        item.stream = None
    else:
        item.payload = b""
    item.record = None
    item.dropped = True


def _close_gaps(out: Link) -> None:
    """Take places out that messages have left: in front of the others, and all of them once there are many."""
    while out.parked and out.parked[0].dropped:
        out.parked.popleft()
        out.parked_dropped -= 1
    if out.parked_dropped > max(DROPPED_PLACES, len(out.parked) // 2):
        out.parked = deque(item for item in out.parked if not item.dropped)
        out.parked_dropped = 0
