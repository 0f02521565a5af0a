"""Routed links in the forwarding kernel: what comes on one half goes out on the other as it is.

Deliveries pass with their tags, states and settlement, chunk by chunk as they arrive; dispositions pass both ways;
credit is that of the receiver's. The halves' credit is kept the same at all times: of each delivery one credit is used
on both at once. Nothing is read from the sender while the receiver's session has more than its share unsent; the
sender's session window then closes.

A half whose other half is gone takes nothing more: no outcome is made up for what was under way.

Source: AMQP 1.0 part 2, 2.6.7 (flow control), 2.6.12 (settlement), 2.6.14 (transfers of more than one frame).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cproton_ffi.lib import (
    PN_REMOTE_ACTIVE,
    pn_delivery,
    pn_delivery_abort,
    pn_delivery_aborted,
    pn_delivery_partial,
    pn_delivery_pending,
    pn_delivery_remote_state,
    pn_delivery_settle,
    pn_delivery_settled,
    pn_delivery_tag,
    pn_link_credit,
    pn_link_current,
    pn_link_flow,
    pn_link_get_drain,
    pn_link_queued,
    pn_link_recv,
    pn_link_send,
    pn_link_set_drain,
    pn_link_state,
)

from isthmus_router.amqp.checked import LONG_TAG, MOST_TAG_BYTES
from isthmus_router.amqp.frames import TOO_LARGE
from isthmus_router.amqp.kernel.allowance import Allowance, Allowances
from isthmus_router.amqp.kernel.credit import give_back, is_boundless
from isthmus_router.amqp.kernel.delivery import CHUNK_BYTES, STREAM_OUTGOING_HIGH, Passed
from isthmus_router.amqp.kernel.handles import (
    advance,
    equip,
    handle,
    has_room,
    key,
    release_written,
    retain,
)
from isthmus_router.amqp.kernel.outgoing import QUEUED_HIGH, is_sent
from isthmus_router.amqp.kernel.remains import Rest
from isthmus_router.amqp.kernel.settlement import MOST_CREDIT, count_outcome
from isthmus_router.amqp.kernel.states import copy_state
from isthmus_router.core.access import UNAUTHORIZED
from isthmus_router.core.model import Link
from isthmus_router.core.terms import Condition, Direction
from isthmus_router.message.sections import IncompleteError, SectionError

if TYPE_CHECKING:
    from isthmus_router.amqp.kernel.forward import Forwarder

SENDER_LOOKED_AT_BYTES = 16 * 1024
"""Where a message's user-id is looked for."""
MOST_UNSETTLED = 50_000
"""Deliveries of one link; each takes 1.5 KB here, and one frame of the receiver's can settle all of them."""
NOT_SETTLED = Condition(
    "amqp:resource-limit-exceeded",
    f"{MOST_UNSETTLED} deliveries are unsettled: settle them as they are dealt with",
)


class RoutedLinks:
    """The routed links of one router process."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self._settlement = forwarder.settlement
        self.allowances = Allowances()
        self._parting: dict[Link, tuple[Condition | None, bool]] = {}
        """IN links whose peers have detached them, with what they said, while something is left to be passed on."""
        self._drains: dict[Link, int] = {}
        """IN links that are being drained, with the deliveries that their receivers allowed when they last asked."""

    # Deliveries

    def event(self, link: Link, pn: Any) -> None:
        """Something is new about a delivery on either half."""
        record = link.unsettled.get(key(pn))
        if link.direction is Direction.OUT:
            if record is not None:
                self._said_by_receiver(link, pn, record)
            else:
                link.connection.io.detached.unknown(link.io, link)
        elif record is not None and record is not link.stream:
            self._said_by_sender(link, pn, record)
        else:
            self.readable(link)

    def readable(self, link: Link) -> None:
        """Pass on all that has arrived on an IN link, as far as there is room."""
        out = link.partner
        if out is None or link.io not in link.connection.io.links:
            link.connection.io.detached.came(link.io)
            return
        if not link.answered:
            if link.by_peer:
                self._forwarder.overdrawn(link)  # the router has given no credit yet
            return
        queued = pn_link_queued(link.io)
        if queued > QUEUED_HIGH and not link.replenish_on_arrival:
            self._forwarder.overdrawn(link)
            return
        if queued > pn_link_credit(link.io) and not self._covered(link):
            return
        while pn := pn_link_current(link.io):
            if link.stream is None:
                if pn_delivery_aborted(pn):
                    pn_delivery_settle(pn)
                    self.balance(out)
                    continue
                if pn_delivery_tag(pn).size > MOST_TAG_BYTES:
                    link.connection.io.break_off(LONG_TAG)  # its own event follows those of others
                    return
                if not self._begin(link, out, pn):
                    return
                if link.stream is None:
                    continue  # rejected
            if not self._pass(link, out, pn, link.stream):
                return
        if link.drained:
            self._drained(link, out)

    def _covered(self, link: Link) -> bool:
        """More has arrived than there is credit for: whether the sender could not know that it was taken back.

        The engine would tell it of credit below zero, which is a very large number there.
        """
        missing = pn_link_queued(link.io) - pn_link_credit(link.io)
        if missing > link.credit_recalled and not link.replenish_on_arrival:
            self._forwarder.overdrawn(link)
            return False
        link.credit_recalled = max(link.credit_recalled - missing, 0)
        pn_link_flow(link.io, missing)
        return True

    def received(self, link: Link, pn: Any, size: int) -> None:
        """From the compiled kernel: a delivery whose first `size` bytes are in the buffer; there is room for it."""
        assert link.partner is not None
        if 0 < link.max_message_size < size:
            self._forwarder.too_large(link, pn)
            return
        if link.guard is not None and not self._may_pass(link, link.partner, pn, size):
            return
        if not self._start(link, link.partner, pn):
            return
        self._send(link, link.partner, link.stream, size)
        self.readable(link)

    def _begin(self, link: Link, out: Link, pn: Any) -> bool:
        """A delivery is the next one: whether it has begun on the other half as well, or was rejected."""
        if _credit(out) <= 0:
            link.paused = True  # the credit was taken back while this was on its way
            return False
        if link.allowance.is_used_up:
            link.allowance.wait(link, out)
            return False
        if not has_room(out, min(pn_delivery_pending(pn), CHUNK_BYTES), STREAM_OUTGOING_HIGH):
            out.connection.io.stalled.add(out)
            return False
        size = 0
        if link.guard is not None and link.guard.every_message:
            if pn_delivery_partial(pn) and pn_delivery_pending(pn) < SENDER_LOOKED_AT_BYTES:
                return False
            size = max(pn_link_recv(link.io, self._forwarder.buffer, SENDER_LOOKED_AT_BYTES), 0)
            if 0 < link.max_message_size < size:
                self._forwarder.too_large(link, pn)
                return False
            if not self._may_pass(link, out, pn, size):
                return link.partner is out
        if not self._start(link, out, pn):
            return False
        if size:
            self._send(link, out, link.stream, size)
        return True

    def _reject(self, link: Link, out: Link, pn: Any, error: SectionError) -> None:
        self._settlement.reject(link, pn, error, pn_delivery_settled(pn))
        self.balance(out)

    def _may_pass(self, link: Link, out: Link, pn: Any, size: int) -> bool:
        """Whether the sender may send what begins with the `size` bytes in the buffer; rejected if not.

        If it is still arriving, that is the end of the link: there is no way to take no more of a delivery.
        """
        assert link.guard is not None
        complete = not pn_delivery_partial(pn) and not pn_delivery_pending(pn)
        try:
            link.guard.check_sender(self._forwarder.view, 0, size, complete=complete)
            return True
        except IncompleteError:
            error = SectionError(f"no user-id within the first {size} bytes", UNAUTHORIZED)
        except SectionError as found:
            error = found.without_frames()
        partial = pn_delivery_partial(pn)
        self._reject(link, out, pn, error)
        if partial:
            self._forwarder.core.port.detach_link(link, Condition(error.condition, str(error)))
        return False

    def _start(self, link: Link, out: Link, pn: Any) -> bool:
        """Begin the delivery on the other half; if False, it cannot, and that is the end of the link."""
        if len(link.unsettled) >= MOST_UNSETTLED:
            self._forwarder.core.port.detach_link(out, NOT_SETTLED)
            return False
        sent = pn_delivery(out.io, pn_delivery_tag(pn))
        if pn_delivery_remote_state(pn) and not copy_state(pn, sent):
            pn_delivery_abort(sent)
            self._forwarder.core.port.detach_link(link, TOO_LARGE)
            return False
        record = Passed(key(pn), key(sent), self._settlement.now)
        link.unsettled[record.incoming] = out.unsettled[record.outgoing] = record
        link.allowance.unsettled += 1
        link.stream = record
        link.deliveries += 1
        out.deliveries += 1
        return True

    def _send(self, link: Link, out: Link, record: Passed, size: int) -> None:
        record.size += size
        equip(handle(record.outgoing), size)
        pn_link_send(out.io, self._forwarder.buffer, size)
        self._settlement.touch(out.connection)
        self._settlement.touch(link.connection)  # its window may have to be told

    def _pass(self, link: Link, out: Link, pn: Any, record: Passed) -> bool:
        """Pass on what there is of the current delivery; whether all of it has passed."""
        if pn_delivery_aborted(pn):
            self._abort(link, out, pn, record)
            return True
        has_sent = False
        while (size := pn_delivery_pending(pn)) > 0:
            if not has_room(out, min(size, CHUNK_BYTES), STREAM_OUTGOING_HIGH):
                out.connection.io.stalled.add(out)
                if has_sent:
                    release_written(out, handle(record.outgoing))
                return False
            size = pn_link_recv(link.io, self._forwarder.buffer, min(size, CHUNK_BYTES))
            if not self._forwarder.pieces.may_pass(link, pn, size):
                return False
            self._send(link, out, record, size)
            has_sent = True
            if 0 < link.max_message_size < record.size:
                self._forwarder.too_large(link, pn)
                return False
        if pn_delivery_partial(pn):
            retain(link.connection.io, pn)
            release_written(out, handle(record.outgoing))
            return False
        if not self._forwarder.pieces.may_end(link, pn):
            return False
        self._passed(link, out, pn, record)
        return True

    def _passed(self, link: Link, out: Link, pn: Any, record: Passed) -> None:
        """All of the current delivery has passed."""
        link.stream = None
        self._settlement.count_message(link, record.size)
        self._settlement.count_message(out, record.size)
        advance(out)
        advance(link)
        self._settlement.touch(out.connection)
        if pn_delivery_settled(pn):
            link.presettled += 1
            out.presettled += 1
            self._settle(link, out, record)
        elif record.settled:
            self._end(link, out, record)

    def _abort(self, link: Link, out: Link, pn: Any, record: Passed) -> None:
        link.stream = None
        pn_delivery_abort(handle(record.outgoing))
        self._settlement.touch(out.connection)
        self._forget(link, out, record)
        pn_delivery_settle(pn)
        self._settlement.touch(link.connection)
        self.balance(out)

    # Dispositions

    def _said_by_receiver(self, out: Link, pn: Any, record: Passed) -> None:
        """The receiver has given a delivery a state, or settled it."""
        link = out.partner
        state = pn_delivery_remote_state(pn)
        if link is None:
            if pn_delivery_settled(pn) and is_sent(pn):
                del out.unsettled[record.outgoing]
                pn_delivery_settle(pn)
                out.connection.io.remains.settled(out, 1)
            return
        if state:
            if not copy_state(pn, handle(record.incoming)):
                self._forwarder.core.port.detach_link(out, TOO_LARGE)
                return
            self._settlement.touch(link.connection)
        if not pn_delivery_settled(pn):
            return
        if record is link.stream:
            record.settled = True  # until all of it has come
            return
        self._end(link, out, record)

    def _said_by_sender(self, link: Link, pn: Any, record: Passed) -> None:
        """The sender has given a delivery that has passed a state, or settled it."""
        out = link.partner
        if out is None:
            return
        if pn_delivery_remote_state(pn):
            if not copy_state(pn, handle(record.outgoing)):
                self._forwarder.core.port.detach_link(link, TOO_LARGE)
                return
            self._settlement.touch(out.connection)
        if pn_delivery_settled(pn):
            self._end(link, out, record)

    def _end(self, link: Link, out: Link, record: Passed) -> None:
        """One of the ends has settled what was sent unsettled."""
        state = pn_delivery_remote_state(handle(record.outgoing))
        for half in (link, out):
            count_outcome(half, state)
            self._settlement.took(half, record)
        self._settle(link, out, record)

    def _settle(self, link: Link, out: Link, record: Passed) -> None:
        """Nothing more will be said of it."""
        self._forget(link, out, record)
        pn_delivery_settle(handle(record.incoming))
        pn_delivery_settle(handle(record.outgoing))
        self._settlement.touch(link.connection)
        self._settlement.touch(out.connection)

    def _forget(self, link: Link, out: Link, record: Passed) -> None:
        """The record of a delivery is not needed any more."""
        del link.unsettled[record.incoming], out.unsettled[record.outgoing]
        link.allowance.unsettled -= 1
        self.go_on(link.allowance)

    def go_on(self, allowance: Allowance) -> None:
        """Read links of a client again, as far as it may have more unsettled deliveries.

        That happens when the connection of a link's other half has written, not amid what is being done.
        """
        for link in allowance.take_waiting():
            out = link.partner
            if out is not None:
                out.connection.io.stalled.add(out)
                self._settlement.touch(out.connection)

    # Credit

    def flow(self, link: Link) -> None:
        """The peer of either half has sent a flow frame."""
        partner = link.partner
        if partner is None:
            return
        if link.direction is Direction.IN:
            self.balance(partner)
        else:
            link.boundless = is_boundless(link, self._settlement.now)
            self.balance(link)
            if partner.paused:
                partner.paused = False
                self.room(link)

    def balance(self, out: Link) -> None:
        """Make the sender's credit what the receiver has given, and drain what it wants to be drained.

        The engine has the credit of a container before the event of the container's attach is dealt with. A sender
        whose attach is not answered gets none: the event of the container's flow follows that of its attach.
        """
        link = out.partner
        if (
            link is None
            or (link.by_peer and not link.answered)
            or link.connection.io.sessions.flow_waits(link)
        ):
            return
        drain = bool(pn_link_get_drain(out.io))
        wanted = _credit(out)
        allowed = out.deliveries - (link.stream is not None) + wanted
        if (
            drain
            and link.drained
            and allowed <= self._drains[link]
            and pn_link_credit(link.io) <= pn_link_queued(link.io)
        ):
            self._drained(link, out)
            return
        difference = max(wanted, pn_link_queued(link.io)) - pn_link_credit(link.io)
        if difference:
            link.credit_recalled = max(link.credit_recalled - difference, 0)
            pn_link_flow(link.io, min(difference, MOST_CREDIT))
            self._settlement.touch(link.connection)
        if drain is not bool(pn_link_get_drain(link.io)):
            pn_link_set_drain(link.io, drain)
            self._settlement.touch(link.connection)
        link.drained = drain and wanted > 0
        if link.drained:
            self._drains[link] = allowed

    def _drained(self, link: Link, out: Link) -> None:
        """The sender has no credit left in a drain: the receiver learns, after the last message, that it has none."""
        if link.stream is None and pn_link_credit(link.io) <= 0 and give_back(out, self._settlement.now):
            link.drained = False
            del self._drains[link]
            self._settlement.touch(out.connection)

    def granted(self, link: Link) -> None:
        """The sender of an IN link can be told of its credit from now on."""
        if link.partner is not None:
            self.balance(link.partner)

    # Room and loss

    def room(self, out: Link) -> None:
        """Some of what an OUT link has sent has left."""
        if (link := out.partner) is not None:
            self.readable(link)
            self.part(link)
            self.go_on(link.allowance)  # what this one has not used up

    def detached(self, link: Link, condition: Condition | None, *, closed: bool) -> None:
        """The peer of either half has detached it: the core learns, after what was sent before has passed."""
        partner = link.partner
        link.peer_detached = True
        if link.incoming:
            self._parting[link] = condition, closed
            self.part(link)
            return
        link.on_detached(link, condition, closed)  # type: ignore[misc]
        if partner is not None:
            self.part(partner)

    def part(self, link: Link) -> None:
        """The core may learn now that the peer of an IN link has detached it, if it has."""
        if link not in self._parting:
            return
        link.paused = link.partner is not None and _has_more(link, link.partner)
        if not link.paused:
            condition, closed = self._parting.pop(link)
            link.on_detached(link, condition, closed)  # type: ignore[misc]

    def cut_off(self, out: Link) -> None:
        """The sender has detached: of a delivery that is not all here nothing more comes, so that it is aborted."""
        link = out.partner
        if link is not None and (record := link.stream) is not None:
            pn_delivery_abort(handle(record.outgoing))
            self.lost(out)
            del out.unsettled[record.outgoing]

    def lost(self, link: Link) -> None:
        """A half is gone, or about to be; the other one will be told.

        What was passing ends with the link: to abort it takes credit, which the receiver may have taken back. An OUT
        half that is attached goes on having its deliveries: its receiver may settle them until it is detached.
        """
        self._parting.pop(link, None)
        other, link.partner = link.partner, None
        link.stream = None
        if other is None:
            return
        other.partner = None
        if other in self._parting:
            self._forwarder.go_on(other)
        if other.incoming and other.stream is not None:
            other.connection.io.detached.cut_short(other.io)
        other.stream = None
        if link.unsettled:
            rest = Rest(link.allowance, dict.fromkeys((link, other), len(link.unsettled)))
            for half in (link, other):
                half.connection.io.remains.retain(half, rest)
        incoming = link if link.incoming else other
        self._drains.pop(incoming, None)
        incoming.connection.io.freeing.retain(incoming)
        incoming.unsettled.clear()
        for half in (link, other):
            half.allowance.waiting.pop(half, None)
        self.go_on(link.allowance)


def _has_more(link: Link, out: Link) -> bool:
    """Whether something has come on an IN link that the receiver takes, but has no room for as yet."""
    if not pn_link_state(out.io) & PN_REMOTE_ACTIVE:
        return False
    credit, queued = _credit(out), pn_link_queued(out.io)
    if queued and credit + queued > 0:
        return True
    pn = pn_link_current(link.io)
    return bool(pn and credit > 0 and (pn_delivery_pending(pn) or not pn_delivery_partial(pn)))


def _credit(out: Link) -> int:
    """What the receiver of an OUT link has given and is not used; below zero: it has taken back what was used."""
    return MOST_CREDIT if out.boundless else int(pn_link_credit(out.io))
