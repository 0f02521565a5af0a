"""Deliveries between links and consumers inside the router.

One that settles later (`SettlingConsumer`) is asked to take messages as they come; what becomes of them it says when it
knows. Towards receivers, what it sends waits in the order of the link, within bounds for each: nobody's credit bounds
it, and no sender is held back by a slow receiver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from cproton_ffi.lib import (
    PN_ACCEPTED,
    PN_MODIFIED,
    PN_REJECTED,
    PN_RELEASED,
    pn_delivery,
    pn_delivery_local,
    pn_delivery_settle,
    pn_delivery_update,
    pn_disposition_condition,
    pn_link_credit,
    pn_link_send,
)

from isthmus_router.amqp.engine import set_condition
from isthmus_router.amqp.kernel.delivery import Delivery, Parked, Stream, queue_of
from isthmus_router.amqp.kernel.handles import advance, has_room, key
from isthmus_router.amqp.kernel.parking import count
from isthmus_router.core.address import InProcessConsumer, SettlingConsumer
from isthmus_router.core.model import Link
from isthmus_router.core.routes import Route
from isthmus_router.core.terms import Condition, Outcome

if TYPE_CHECKING:
    from isthmus_router.amqp.kernel.forward import Forwarder

MOST_WAITING = 100_000
MOST_WAITING_BYTES = 80 * 1024 * 1024
"""Of messages that wait on one link: more than a site keeps for another one, which comes at once after an outage. All
links share a message's bytes."""
MOST_WAITING_OF_CLIENT, MOST_WAITING_OF_ROUTER = 2 * MOST_WAITING, 16 * MOST_WAITING
"""Likewise, on all links of a connection."""
MOST_UNSETTLED = 120_000
"""Messages of one link that wait or are not settled by its receiver."""
_STATES = {
    Outcome.ACCEPTED: PN_ACCEPTED,
    Outcome.REJECTED: PN_REJECTED,
    Outcome.RELEASED: PN_RELEASED,
    Outcome.MODIFIED: PN_MODIFIED,
}


class Inside:
    """What consumers inside one router process take and send."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self._settlement = forwarder.settlement
        self.held: set[Link] = set()
        """IN links that are not read because a consumer wanted no more."""

    # Taken

    def take(self, link: Link, pn: Any, route: Route, payload: bytes, settled: bool) -> None:
        """A whole message, without its annotation section, has arrived for a consumer inside the router."""
        consumer = route.handler
        if consumer.__class__ is InProcessConsumer:
            self._settlement.accept(link, pn, settled)
            consumer.handle(payload, link)
            return
        record = None
        if settled:
            link.presettled += 1
            pn_delivery_settle(pn)
        else:
            record = Delivery(link, pn, None, self._settlement.now)
            link.unsettled[record.key] = record
        if settled or link.replenish_on_arrival:
            self._settlement.replenish(link)
        if not cast("SettlingConsumer", consumer).take(payload, link, record):
            self._hold(link)

    def collected(self, stream: Stream, payload: bytes) -> None:
        """A message that came in pieces is complete."""
        assert stream.consumer is not None
        if not stream.consumer.take(payload, stream.link, stream.record):
            self._hold(stream.link)

    @staticmethod
    def originated(route: Route, payload: bytes) -> None:
        """This router itself sends a consumer inside of it a message."""
        consumer = route.handler
        if isinstance(consumer, SettlingConsumer):
            consumer.take(payload, None, None)
        elif consumer is not None:
            consumer.handle(payload, None)

    def _hold(self, link: Link) -> None:
        link.paused = True
        self.held.add(link)

    def read_on(self) -> None:
        """Port interface."""
        held, self.held = self.held, set()
        for link in held:
            self._forwarder.parking.read_on(link)
            self._settlement.touch(link.connection)  # markers may have waited for it

    def settle(
        self, deliveries: Sequence[object], outcome: Outcome, condition: Condition | None = None
    ) -> None:
        """Port interface."""
        settlement = self._settlement
        state = _STATES[outcome]
        for record in cast("Sequence[Delivery]", deliveries):
            link = record.link
            if link is None:
                continue  # the sender is gone, or has settled
            pn = record.pn
            if state != PN_ACCEPTED or link.settles_second:
                if condition is not None:
                    where = pn_disposition_condition(pn_delivery_local(pn))
                    set_condition(where, condition.name, condition.description, condition.info)
                settlement.give_back(record, state)
                continue
            del link.unsettled[record.key]
            record.link = None
            settlement.took(link, record)
            link.accepted += 1
            pn_delivery_update(pn, PN_ACCEPTED)
            pn_delivery_settle(pn)
            if not link.replenish_on_arrival:
                settlement.replenish(link)
            settlement.touch(link.connection)

    # Sent

    def deliver(self, link: Link, payloads: Sequence[bytes], annotations: bytes) -> bool:
        """Port interface."""
        settlement, forwarder = self._settlement, self._forwarder
        pn_link, unsettled = link.io, link.unsettled
        annotates = link.connection.annotates
        for payload in payloads:
            if link.load() >= MOST_UNSETTLED:
                return False
            record = Delivery(None, None, None, settlement.now)
            if (
                link.parked
                or link.stream is not None
                or (pn_link_credit(pn_link) <= 0 and not link.boundless)
                or not has_room(link, len(payload))
            ):
                if not self._park(link, annotations + payload if annotates else payload, record):
                    return False
                continue
            pn = pn_delivery(pn_link, forwarder.new_tag())
            if annotates:
                pn_link_send(pn_link, annotations, len(annotations))
            pn_link_send(pn_link, payload, len(payload))
            advance(link)
            link.deliveries += 1
            settlement.count_message(link, len(payload))
            unsettled[key(pn)] = record
            if link.sends_settled:
                settlement.sent_settled(link, pn, record)
        settlement.touch(link.connection)
        return True

    @staticmethod
    def _park(link: Link, payload: bytes, record: Delivery) -> bool:
        connection = link.connection
        of_router = connection.role.is_between_routers
        if (
            link.waiting >= MOST_WAITING
            or link.parked_bytes + len(payload) > MOST_WAITING_BYTES
            or connection.relayed_waiting >= (MOST_WAITING_OF_ROUTER if of_router else MOST_WAITING_OF_CLIENT)
        ):
            return False
        item = Parked(queue_of(link), payload, record, None)
        item.relayed = True
        link.parked.append(item)
        count(link, item, 1)
        connection.io.stalled.add(link)
        return True
