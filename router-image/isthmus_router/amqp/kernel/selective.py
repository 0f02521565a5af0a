"""Deliveries for which not every receiver will do: some take no message of that size, some have released it.

The compiled kernel leaves them to Python. A message that may be sent again is kept until its outcome is known; what is
kept for one connection is bounded, and beyond that its messages are as any other's.

Source: AMQP 1.0 part 2, 2.7.3 (max-message-size); released deliveries as in the skupper-router family.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cproton_ffi.lib import PN_RELEASED, pn_delivery_settle

from isthmus_router.amqp.kernel.delivery import Delivery, Kept
from isthmus_router.core.model import Link
from isthmus_router.core.nodes import PathLoad
from isthmus_router.core.receivers import RouteKind, Sink
from isthmus_router.core.routes import Route
from isthmus_router.message.sections import SectionError, decode_annotations

if TYPE_CHECKING:
    from isthmus_router.amqp.kernel.forward import Forwarder

MOST_TRIES = 100
"""Receivers that may release one message before its sender gets it back."""
KEPT_BYTES, ROUTER_KEPT_BYTES = 1 << 20, 16 << 20
"""Of the messages on one connection, to be sent again if need be; between routers for many clients."""


def too_large(size: int) -> SectionError:
    """Why the sender gets a message back that no receiver takes."""
    return SectionError(
        f"no receiver takes a message of {size} bytes (max-message-size)", "amqp:link:message-size-exceeded"
    )


def fits(out: Link, size: int) -> bool:
    """Whether the receiver of an OUT link takes a message of `size` bytes."""
    return not out.max_message_size or size <= out.max_message_size


def _most_kept(link: Link) -> int:
    return ROUTER_KEPT_BYTES if link.connection.role.is_between_routers else KEPT_BYTES


class Selective:
    """The deliveries of one router process that go along routes of kind SELECTIVE."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self.released = forwarder.settlement.released
        self._sending = False

    def forward(self, link: Link, pn: Any, route: Route, size: int, skip: int, settled: bool) -> None:
        """Forward the whole message in the buffer to a receiver that takes it."""
        forwarder = self._forwarder
        settlement = forwarder.settlement
        found = route.choose_for(size - skip)
        if found is None:
            settlement.reject(link, pn, too_large(size - skip), settled)
            return
        sink, load = found
        out = forwarder.out_link(sink, route, skip, size)
        if out is None:
            settlement.release(link, pn, settled)
            return
        record: Delivery | None = None
        if settled:
            link.presettled += 1
            pn_delivery_settle(pn)
        else:
            if route.resends and link.connection.kept_bytes + size <= _most_kept(link):
                kept = Kept(link, pn, load, settlement.now, bytes(forwarder.view[:size]), skip)
                kept.address = route.address
                kept.tried.append(sink)
                record = kept
            else:
                record = Delivery(link, pn, load, settlement.now)
            link.unsettled[record.key] = record
            if load is not None:
                load.outstanding += 1
        if settled or link.replenish_on_arrival:
            settlement.replenish(link)
        forwarder.send_message(out, route, size, skip, record, link)

    def send_again(self) -> None:
        """Send to others what has been released, in steps; what nobody is left for comes back to its sender."""
        if not self._sending:
            self._sending = True
            self._forwarder.core.port.work(self._send_all())

    def _send_all(self) -> Iterator[None]:
        try:
            while self.released:
                kept = self.released.popleft()
                if kept.link is not None and not self._again(kept, kept.link):
                    self._forwarder.settlement.give_back(kept, PN_RELEASED)
                yield
        finally:
            self._sending = False

    def _again(self, kept: Kept, link: Link) -> bool:
        if len(kept.tried) >= MOST_TRIES:
            return False
        planner = self._forwarder.core.planner
        section = b"" if link.connection.strips_in else kept.payload[: kept.skip]
        size = len(kept.payload) - kept.skip
        annotations = decode_annotations(section) if section else None
        route = planner.plan(kept.address, link, annotations)
        try:
            found = route.choose_for(size, kept.tried) if route.kind is RouteKind.SELECTIVE else None
            if found is not None:
                return self._along(route, found, kept, link)
        finally:
            if route.owner is not None:
                route.owner.retire(route)
        if kept.address is None:
            return False
        farther = planner.farther(kept.address, link, annotations, size, kept.tried)
        if farther is None or not self._along(farther, farther.choose(), kept, link):
            return False
        kept.address.transit_closed += farther.transit
        return True

    def _along(self, route: Route, found: tuple[Sink, PathLoad | None], kept: Kept, link: Link) -> bool:
        forwarder = self._forwarder
        skip, size = kept.skip, len(kept.payload)
        sink, load = found
        forwarder.view[:size] = kept.payload
        out = forwarder.out_link(sink, route, skip, size)
        if out is None:
            return False
        kept.tried.append(sink)
        kept.load = load
        if load is not None:
            load.outstanding += 1
        route.deliveries += 1
        forwarder.send_message(out, route, size, skip, kept, link)
        return True
