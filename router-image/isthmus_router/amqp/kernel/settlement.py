"""Settlement in the forwarding kernel: outcomes go back to senders, and credit with them.

Source: AMQP 1.0 part 2, 2.6.7 (flow control), 2.6.12 (settlement); outcomes across several receivers and lost
links as in the skupper-router family.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any

from cproton_ffi.lib import (
    PN_ACCEPTED,
    PN_MODIFIED,
    PN_REJECTED,
    PN_RELEASED,
    pn_delivery_local,
    pn_delivery_partial,
    pn_delivery_settle,
    pn_delivery_settled,
    pn_delivery_update,
    pn_disposition_condition,
    pn_disposition_set_failed,
    pn_link_credit,
    pn_link_flow,
    pn_link_get_drain,
)

from isthmus_router.amqp.engine import set_condition
from isthmus_router.amqp.kernel.delivery import Announced, Delivery, Fanout, Followed, Kept, Passed
from isthmus_router.amqp.kernel.handles import advance, count_message, handle, key
from isthmus_router.amqp.kernel.histograms import LATE_US, VERY_LATE_US, Histograms
from isthmus_router.amqp.kernel.states import TERMINAL, copy_details, copy_state
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.receivers import RouteKind
from isthmus_router.core.terms import Direction
from isthmus_router.message.sections import SectionError

_ONE_RECEIVER = frozenset({Delivery, Followed, Kept})
MOST_CREDIT = 2**31 - 1
_SEVERITY = {PN_REJECTED: 4, PN_ACCEPTED: 3, PN_MODIFIED: 2, PN_RELEASED: 1, 0: 0}


class Settlement:
    """Outcomes and credit of all deliveries of one router process."""

    def __init__(self) -> None:
        self.quiescing = False
        """The router is about to stop: clients get no more credit."""
        self.now = 0
        """The router's clock in microseconds, read once per turn; it starts anywhere."""
        self.histograms: dict[Link, Histograms] = {}
        """Of links with deliveries."""
        self.released: deque[Kept] = deque()
        """What receivers have released and may go to others (`selective.py`)."""
        self.dirty: list[Any] = []
        """Connections (driver side) with something to write."""

    # Outcomes

    def updated(self, link: Link, pn: Any, state: int) -> None:
        """The peer changed the state of a delivery, to `state` or only to settled."""
        number = key(pn)
        record = link.unsettled.get(number)
        if record is None:
            if link.direction is Direction.OUT:
                link.connection.io.detached.unknown(link.io, link)
            return
        if link.direction is Direction.IN:
            if pn_delivery_settled(pn) and not pn_delivery_partial(pn):
                self._settled_by_sender(link, pn, record)
            return
        origin = record.link
        if (
            state == PN_ACCEPTED
            and record.__class__ is Delivery
            and pn_delivery_settled(pn)
            and (origin is None or not origin.settles_second)
        ):
            # What happens to nearly every delivery, without detours.
            del link.unsettled[number]
            link.accepted += 1
            pn_delivery_settle(pn)
            self.took(link, record)
            self.touch(link.connection)
            if record.load is not None:
                record.load.settled()
            self.eased(link)
            if origin is None:
                return
            pn_in = record.pn
            del origin.unsettled[record.key]
            self.took(origin, record)
            origin.accepted += 1
            pn_delivery_update(pn_in, PN_ACCEPTED)
            pn_delivery_settle(pn_in)
            if not origin.replenish_on_arrival:
                due = origin.credit_due + 1
                if due < origin.credit_batch:
                    origin.credit_due = due
                else:
                    self.replenish(origin)
            driver = origin.connection.io
            if not driver.dirty:
                driver.dirty = True
                self.dirty.append(driver)
            return
        settled = pn_delivery_settled(pn)
        if not settled and state not in TERMINAL:
            if state and record.__class__ is not Fanout and origin is not None:
                if record.__class__ is Delivery:
                    record = Followed(record, link, number)
                    origin.unsettled[record.key] = link.unsettled[number] = record
                copy_state(pn, record.pn)
                self.touch(origin.connection)
            return
        if not settled and self._announce(record, state, link, pn):
            return
        del link.unsettled[number]
        self.took(link, record)
        self.eased(link)
        count_outcome(link, state)
        self.outcome(record, state, pn)
        pn_delivery_settle(pn)
        if not settled:
            self.touch(link.connection)

    def _announce(self, record: Delivery, state: int, out: Link, pn: Any) -> bool:
        """A receiver has given an outcome and waits for the sender to settle; tell the sender so, if it will.

        Other routers decide by what they have in front of them. A client's sender that has not asked for it hears
        of an outcome together with its settlement: False.
        """
        origin = record.link
        if (
            origin is None
            or record.__class__ not in _ONE_RECEIVER
            or (record.__class__ is Kept and state == PN_RELEASED)
            or not (origin.settles_second or origin.replenish_on_arrival)
        ):
            return record.__class__ is Announced  # then it is known already
        if record.__class__ is Kept:
            record.let_go(origin)
        announced = Announced(record, state)
        announced.out, announced.number = out, key(pn)
        origin.unsettled[record.key] = out.unsettled[announced.number] = announced
        self._tell(record.pn, state, pn)
        self.touch(origin.connection)
        return True

    def outcome(self, record: Delivery, state: int, pn: Any) -> None:
        """One copy of a delivery is done; `pn` is its outgoing half, from which the details are copied."""
        if record.__class__ is Announced:
            self._receiver_done(record)
            return
        if record.load is not None:
            record.load.settled()
        if record.__class__ is Kept and state == PN_RELEASED and record.link is not None:
            record.load = None
            self.released.append(record)
            return
        self.give_back(record, state, pn)

    def give_back(self, record: Delivery, state: int, pn: Any = None) -> None:
        """The outcome of one copy, which is final: to the sender, unless there are other copies."""
        if record.__class__ is Fanout:
            fanout: Fanout = record
            fanout.pending -= 1
            if _SEVERITY.get(state, 3) > _SEVERITY.get(fanout.outcome, 0):
                fanout.outcome = state
            if fanout.pending == 0:
                self._outcome_to_sender(fanout, fanout.outcome, None)
            return
        self._outcome_to_sender(record, state, pn)

    def branch_lost(self, record: Delivery | None, state: int) -> None:
        """A stream lost a receiver; its outcome reaches the sender when the delivery is complete."""
        if isinstance(record, Fanout):
            self.outcome(record, state, None)
        elif record is not None:
            if record.load is not None:
                record.load.settled()
                record.load = None
            record.lost_state = state

    def all_copied(self, record: Fanout) -> None:
        """No more copies will be made: from now on the last settled copy decides."""
        record.pending -= 1
        if record.pending == 0:
            self._outcome_to_sender(record, record.outcome or PN_RELEASED, None)

    def fail(self, record: Delivery, error: SectionError) -> None:
        """A stream cannot be passed on; it will be rejected when it is complete."""
        set_condition(pn_disposition_condition(pn_delivery_local(record.pn)), error.condition, str(error))
        record.lost_state = PN_REJECTED

    def unrouted(self, record: Delivery) -> None:
        """A stream is complete and has no receiver to decide on it."""
        if record.link is not None and record.key in record.link.unsettled:
            self._outcome_to_sender(record, record.lost_state or PN_RELEASED, None)

    def _outcome_to_sender(self, record: Delivery, state: int, pn: Any) -> None:
        link = record.link
        if link is None:
            return
        if record.__class__ is Kept:
            record.let_go(link)
        pn_in = record.pn
        self._tell(pn_in, state, pn)
        if link.settles_second and state:
            link.unsettled[record.key] = Announced(record, state)
            self.touch(link.connection)
        else:
            self._settle_in(link, pn_in, record, state)

    def _tell(self, pn_in: Any, state: int, pn: Any) -> None:
        """Give a sender the outcome, unsettled as yet."""
        if state:
            copy_details(state, pn, pn_in)
            if state == PN_MODIFIED:
                # A delivery that reached a receiver and came back has failed, whatever the receiver says of it.
                pn_disposition_set_failed(pn_delivery_local(pn_in), True)
            pn_delivery_update(pn_in, state)

    def _settle_in(self, link: Link, pn_in: Any, record: Delivery, state: int) -> None:
        """The end of a delivery on its IN link."""
        del link.unsettled[record.key]
        record.link = None
        self.took(link, record)
        count_outcome(link, state)
        pn_delivery_settle(pn_in)
        if not link.replenish_on_arrival:
            self.replenish(link)
        self.touch(link.connection)

    def _receiver_done(self, record: Announced) -> None:
        """The receiver has settled, or is gone, after the sender was told of the outcome."""
        link = record.link
        record.out = None
        if record.load is not None:
            record.load.settled()
            record.load = None
        if link is not None and not link.settles_second:
            self._settle_in(link, record.pn, record, record.state)

    def settle_out(self, record: Announced) -> None:
        """The sender has settled, or is gone, after it was told of the outcome: now the receiver settles, too."""
        out = record.out
        if out is None:
            return
        del out.unsettled[record.number]
        self.took(out, record)
        self.eased(out)
        count_outcome(out, record.state)
        self._receiver_done(record)
        pn_delivery_settle(handle(record.number))
        self.touch(out.connection)

    def _end_out(self, record: Followed) -> None:
        """The sender has settled a delivery without an outcome, which so will not have any."""
        out = record.out
        if out is None:
            return  # the receiver is gone, and `give_back` is about to come to this delivery
        del out.unsettled[record.number]
        self.took(out, record)
        self.eased(out)
        if record.load is not None:
            record.load.settled()
        pn_delivery_settle(handle(record.number))
        self.touch(out.connection)

    def eased(self, out: Link) -> None:
        """An OUT link may have less under way than before, or take deliveries again."""
        address = out.address
        if address is not None and address.balance.heeded:
            address.balance.eased(out)

    def took(self, link: Link, record: Delivery | Passed) -> None:
        """Count how long a delivery that is now settled on one of its links was under way."""
        microseconds = self.now - record.arrived
        (link.histograms or self.new_histograms(link)).count_latency(microseconds)
        if microseconds > LATE_US:
            self.count_late(link, microseconds)

    def count_late(self, link: Link, microseconds: int) -> None:
        """Count a delivery that took long to settle."""
        if microseconds > VERY_LATE_US:
            link.delayed_10_seconds += 1
        else:
            link.delayed_1_second += 1

    def count_message(self, link: Link, size: int) -> None:
        """Count a whole message of `size` bytes, router annotations left out, on one of its links."""
        count_message(link.histograms or self.new_histograms(link), size)

    def new_histograms(self, link: Link) -> Histograms:
        """A link has its first delivery, or the first one in a while."""
        histograms = self.histograms[link] = link.histograms = Histograms()
        return histograms

    def _settled_by_sender(self, link: Link, pn: Any, record: Delivery) -> None:
        """The sender forgot the delivery; its copies are settled when their receivers are done.

        Of one whose outcome or other state the sender has been told, this is what the receiver waits for.
        """
        if record.__class__ is Followed:
            self._end_out(record)
        if record.__class__ is Announced:
            self._settle_in(link, pn, record, record.state)
            self.settle_out(record)
            return
        del link.unsettled[record.key]
        record.link = None
        if record.__class__ is Kept:
            record.let_go(link)
        pn_delivery_settle(pn)
        if not link.replenish_on_arrival:
            self.replenish(link)
        self.touch(link.connection)

    def sender_left(self, link: Link) -> None:
        """The sender has closed an IN link, and cannot learn any more what becomes of its deliveries.

        The engine settles them when it frees the link. Without an outcome, a router that sent them for a client
        would pass on none.
        """
        for number, record in link.unsettled.items():
            self._tell_of_end(link, number, record)

    def cut_off_some(self, link: Link, most: int) -> None:
        """Settle so many of an IN link's deliveries, the oldest ones, whatever becomes of them; not a stream."""
        streamed = None if link.stream is None else key(link.stream.pn)
        for number in list(islice(link.unsettled, most)):
            record = None if number == streamed else link.unsettled.pop(number, None)
            if record is not None:
                self._tell_of_end(link, number, record)
                record.link = None
                self._cut_off(link, number, record)
        self.touch(link.connection)

    def sender_cut_off(self, link: Link) -> None:
        """The router is about to close an IN link: its sender is told so much of what it has under way."""
        self.sender_left(link)
        for record in link.unsettled.values():
            record.link = None
        for number, record in link.unsettled.items():
            self._cut_off(link, number, record)
        link.unsettled.clear()

    def _tell_of_end(self, link: Link, number: Any, record: Delivery) -> None:
        if record.__class__ is Announced:
            count_outcome(link, record.state)
        else:
            self._tell(handle(number), PN_MODIFIED, None)
            link.modified += 1

    def _cut_off(self, link: Link, number: Any, record: Delivery) -> None:
        if record.__class__ is Kept:
            record.let_go(link)
        give_up(link, handle(number))
        if record.__class__ is Announced:
            self.settle_out(record)

    def sent_presettled(self, out: Link, pn: Any) -> None:
        """A pre-settled message is on its way; a receiver that wants none such settles it, for nobody's sake."""
        if out.sends_unsettled:
            advance(out)
            out.unsettled[key(pn)] = Delivery(None, None, None, self.now)
            out.connection.unbounded += 1
        else:
            out.presettled += 1
            pn_delivery_settle(pn)

    def sent_settled(self, out: Link, pn: Any, record: Delivery) -> None:
        """The receiver wants settled deliveries: for the sender, sent is accepted."""
        del out.unsettled[key(pn)]
        out.presettled += 1
        pn_delivery_settle(pn)
        self.outcome(record, PN_ACCEPTED, None)

    def accept(self, link: Link, pn: Any, settled: bool) -> None:
        """Accept and settle a delivery that the router consumed."""
        self._answer(link, pn, PN_ACCEPTED, settled)

    def release(self, link: Link, pn: Any, settled: bool) -> None:
        """No destination: released; a pre-settled delivery is only counted."""
        if settled:
            link.dropped_presettled += 1
        self._answer(link, pn, PN_RELEASED, settled)

    def reject(self, link: Link, pn: Any, error: SectionError, settled: bool) -> None:
        """The router cannot pass the delivery on, and says why."""
        set_condition(pn_disposition_condition(pn_delivery_local(pn)), error.condition, str(error))
        self._answer(link, pn, PN_REJECTED, settled)

    def _answer(self, link: Link, pn: Any, state: int, settled: bool) -> None:
        """The router's own outcome of a delivery that nobody else gets."""
        if settled:
            link.presettled += 1
        else:
            pn_delivery_update(pn, state)
            if link.settles_second and not link.routed:
                link.unsettled[key(pn)] = Announced(Delivery(link, pn, None, self.now), state)
                self.touch(link.connection)
                return
            count_outcome(link, state)
        give_up(link, pn)
        self.replenish(link)
        self.touch(link.connection)

    # Credit

    def replenish(self, link: Link) -> None:
        """One more credit is due to the sender of an IN link; grant what is due in batches."""
        due = link.credit_due + 1
        if due < link.credit_batch:
            link.credit_due = due
            return
        link.credit_due = 0
        route = link.route
        if (route is not None and route.kind is RouteKind.NONE) or (
            self.quiescing and not link.replenish_on_arrival
        ):
            return
        pn_link_flow(link.io, due)
        self.touch(link.connection)

    def top_up(self, link: Link) -> None:
        """Raise credit to the link's capacity; in-flight deliveries of clients count against it."""
        if self.quiescing and not link.replenish_on_arrival:
            return
        outstanding = _outstanding(link)
        link.credit_due = 0
        if outstanding < link.capacity:
            # A sender that claims to have sent without credit owes it, up to more than an int holds.
            pn_link_flow(link.io, min(link.capacity - outstanding, MOST_CREDIT))
        self.touch(link.connection)

    def given_back(self, link: Link) -> None:
        """The sender of an IN link may have answered a drain; if consumers are back by now, it gets credit again.

        They may have come back before the answer. What was granted then counted the credit that the answer takes
        away, so that some is left but less than there should be.
        """
        if pn_link_get_drain(link.io) or _outstanding(link) + link.credit_due >= link.capacity:
            return
        if link.route is None or link.route.kind is not RouteKind.NONE:
            self.top_up(link)

    def touch(self, connection: Connection) -> None:
        """The connection has something to write."""
        driver = connection.io
        if not driver.dirty:
            driver.dirty = True
            self.dirty.append(driver)


def give_up(link: Link, pn: Any) -> None:
    """Settle a delivery of an IN link that may still be arriving.

    Then the link has to be closed: the engine counts what still comes as unread (`detached.py`).
    """
    if pn_delivery_partial(pn):
        link.connection.io.detached.cut_short(link.io)
    pn_delivery_settle(pn)


def _outstanding(link: Link) -> int:
    """What an IN link's sender has of its capacity: credit and, if it is a client, deliveries under way."""
    credit: int = pn_link_credit(link.io)
    return credit if link.replenish_on_arrival else credit + len(link.unsettled)


def count_outcome(link: Link, state: int) -> None:
    """Count an outcome of a delivery on one of its links."""
    if state == PN_ACCEPTED:
        link.accepted += 1
    elif state == PN_REJECTED:
        link.rejected += 1
    elif state == PN_RELEASED:
        link.released += 1
    elif state == PN_MODIFIED:
        link.modified += 1
