"""Deliveries that may have to be passed on before much of them is here, and so are looked at from their first byte.

They come from senders whose target has the capability `qd.streaming-deliveries`, which routers tell each other in the
annotation section, on links for streams. Others that come in there are collected like any delivery.

So are those on other links of routers whose session window is too small for them. Other messages for all receivers come
on these links: a message that waits for its receiver there, or that fills the window, would hold them up.

Source: streaming deliveries of the skupper-router family.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cproton_ffi.lib import (
    pn_delivery_aborted,
    pn_delivery_partial,
    pn_delivery_pending,
    pn_delivery_settle,
    pn_delivery_settled,
    pn_link_recv,
    pn_session_get_incoming_capacity,
    pn_session_incoming_bytes,
)

from isthmus_router.amqp.kernel.delivery import Stream
from isthmus_router.amqp.kernel.handles import advance, retain
from isthmus_router.amqp.kernel.parking import much_waits
from isthmus_router.amqp.kernel.states import has_extension_state
from isthmus_router.core.model import Link
from isthmus_router.message.sections import FLAG_STREAMING, IncompleteError, SectionError, decode_annotations

if TYPE_CHECKING:
    from isthmus_router.amqp.kernel.forward import Forwarder

CUT_THROUGH_BYTES = 64 * 1024
"""An incomplete message is passed on while it arrives once this much of it is here."""


class Undecided(Stream):
    """In the place of a link's stream: the beginning of a delivery, of which `head` is all that has arrived."""

    __slots__ = ()


class EarlyDeliveries:
    """Those of one router process; each ends as a stream or, if the rest of it comes early enough, as a whole."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder

    def begin(self, link: Link, pn: Any) -> bool:
        """The current delivery of an IN link has begun to arrive. True when the link can go on with the next."""
        link.stream = Undecided(link, pn, b"", None)
        return self.pump(link.stream)

    def pump(self, undecided: Stream) -> bool:
        """More of it has arrived. True when the link can go on with the next one."""
        forwarder = self._forwarder
        link, pn = undecided.link, undecided.pn
        if not link.begins_early and not window_closes(link):
            size = len(undecided.head) + pn_delivery_pending(pn)
            if pn_delivery_partial(pn) and not pn_delivery_aborted(pn) and size < CUT_THROUGH_BYTES:
                return False
        link.stream = None
        forwarder.parking.keep_no_more(undecided)
        if pn_delivery_aborted(pn):
            pn_delivery_settle(pn)
            forwarder.settlement.replenish(link)
            return True
        size = len(undecided.head)
        forwarder.view[:size] = undecided.head
        room = CUT_THROUGH_BYTES - size
        size += max(0, pn_link_recv(link.io, forwarder.buffer + size, room))
        if not pn_delivery_pending(pn) and not pn_delivery_partial(pn) and not has_extension_state(pn):
            if 0 < link.max_message_size < size:
                forwarder.too_large(link, pn)
                return False
            advance(link)
            forwarder.whole(link, pn, size)
            return True
        try:
            streams = self._is_stream(link, size)
        except SectionError as error:
            if pn_delivery_partial(pn):
                return forwarder.streams.begin(link, pn, size)
            advance(link)
            link.deliveries += 1
            forwarder.settlement.count_message(link, size)
            forwarder.settlement.reject(link, pn, error, pn_delivery_settled(pn))
            return True
        if (
            streams
            or size == CUT_THROUGH_BYTES
            or not pn_delivery_partial(pn)
            or much_waits(link.connection)  # then no more is collected
        ):
            return forwarder.streams.begin(link, pn, size)
        undecided.head = bytes(forwarder.view[:size])
        link.stream = undecided
        forwarder.parking.keep(undecided)
        retain(link.connection.io, pn)
        forwarder.settlement.touch(link.connection)  # what was taken makes room in the session's window
        return False

    def _is_stream(self, link: Link, size: int) -> bool:
        """Whether the delivery that begins with what is in the buffer is to be passed on as it arrives."""
        lookup = self._forwarder.lookup
        try:
            lookup.find(link, size, complete=False)
        except IncompleteError:
            return False
        if not link.connection.role.is_between_routers:
            return True
        section = bytes(self._forwarder.view[: lookup.skip])
        return bool(section) and bool(decode_annotations(section).flags & FLAG_STREAMING)


def window_closes(link: Link) -> bool:
    """Whether what waits unread fills so much of the session that the rest might never arrive."""
    capacity: int = pn_session_get_incoming_capacity(link.session)
    waiting: int = pn_session_incoming_bytes(link.session)
    return capacity > 0 and waiting > capacity // 2
