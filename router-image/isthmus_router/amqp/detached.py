"""What comes on links on which nothing may come: those that this end has closed and the peer has not, and OUT links.

A peer may send a transfer on a link on which the router sends. The engine takes it. Its deliveries and the router's
then are mixed up, and it goes on knowing such a delivery by its number when the link is freed.

Source: AMQP 1.0 part 2, 2.6.5 (detaching), 2.8.17 (errant-link).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cproton_ffi import lib

from isthmus_router.amqp.engine import Pointer
from isthmus_router.core.terms import Condition

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection
    from isthmus_router.core.model import Link

MOST_DELIVERIES = 100_000
"""What was on its way when the link was closed may come; the engine keeps it until the peer has closed it, too."""

MOST_LEFT = 1000
"""Links that are not freed before their sessions end, because something unknown has come on them."""
NOT_ALLOWED = Condition("amqp:not-allowed", "a transfer on a link on which the router sends")


class Detached:
    """Those of one connection."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._deliveries: dict[tuple[Pointer, Pointer], int] = {}
        """How many have come, by session and link."""
        self._total = 0
        self._cut_short: dict[Pointer, Pointer] = {}
        """Links that were closed in the middle of a delivery, with their sessions."""
        self._cramped: set[Pointer] = set()
        """Sessions in which such deliveries may have taken room."""
        self._never_read: dict[Pointer, int] = {}
        """Bytes of such deliveries that the capacity of a session has been raised by."""
        self._left: dict[Pointer, Pointer] = {}
        """OUT links that are gone and on which something unknown has come, with their sessions."""

    def came(self, link: Pointer) -> None:
        """A transfer has come on a link of which nothing is wanted any more."""
        key = lib.pn_link_session(link), link
        self._deliveries[key] = self._deliveries.get(key, 0) + 1
        self._total += 1
        if self._total == MOST_DELIVERIES:
            reason = "messages keep coming on links that are detached"
            self._connection.close(Condition("amqp:session:errant-link", reason))

    def unknown(self, pn: Pointer, link: Link | None) -> None:
        """Something is new about a delivery, on a link on which the router sends, that is not one of those it has.

        If it has settled it, the peer may have said two things at once. A link that the core still has can have no
        more deliveries than the core has for it.
        """
        if link is None or (link.routed and link.partner is None):
            self._left[pn] = lib.pn_link_session(pn)
            self.came(pn)
            return
        known = len(link.unsettled)
        if link.stream is not None:
            known += link.stream.has_begun(link)
        if lib.pn_link_unsettled(pn) > known:
            self._connection.break_off(NOT_ALLOWED)

    def cut_short(self, link: Pointer) -> None:
        """A delivery is given up before all of it is here, and its link with it.

        As the engine counts, what then still comes of it is unread for ever: the session would fill up.
        """
        self._cut_short[link] = lib.pn_link_session(link)

    def answered(self, link: Pointer) -> None:
        """The peer has closed it: nothing more can come."""
        session = lib.pn_link_session(link)
        self._connection.sessions.peer_detached(session, link)
        self._total -= self._deliveries.pop((session, link), 0)
        if self._cut_short.pop(link, None) is not None:
            self._cramped.add(session)
        if link not in self._left:
            lib.pn_link_free(link)
        elif len(self._left) > MOST_LEFT:
            self._connection.close(Condition("amqp:session:errant-link", "too many links that are detached"))
        self.make_room()

    def make_room(self) -> None:
        """Give sessions back what deliveries that were cut short have taken, if it can be told how much that is."""
        for session in list(self._cramped):
            unread = self._unread(session)
            if unread is not None:
                self._cramped.discard(session)
                never_read = lib.pn_session_incoming_bytes(session) - unread
                capacity = lib.pn_session_get_incoming_capacity(session) - self._never_read.get(session, 0)
                self._never_read[session] = never_read
                # Told to the peer in any case, whose window may be used up.
                lib.pn_session_set_incoming_capacity(session, capacity + never_read)
                self._connection.driver.touch(self._connection)

    def _unread(self, session: Pointer) -> int | None:
        """Bytes that wait in the engine to be read; None while some are in deliveries that it does not show yet."""
        found = 0
        link = lib.pn_link_head(self._connection.pn, 0)
        while link:
            if lib.pn_link_is_receiver(link) and lib.pn_link_session(link) == session:
                if lib.pn_link_queued(link) > 1:
                    return None
                current = lib.pn_link_current(link)
                found += lib.pn_delivery_pending(current) if current else 0
            link = lib.pn_link_next(link, 0)
        return found

    def session_ended(self, session: Pointer) -> None:
        """The session is gone, and its links with it."""
        self._never_read.pop(session, None)
        self._cramped.discard(session)
        for link in [link for link, of in self._left.items() if of == session]:
            del self._left[link]
        for link in [link for link, of in self._cut_short.items() if of == session]:
            del self._cut_short[link]
        for key in [key for key in self._deliveries if key[0] == session]:
            self._total -= self._deliveries.pop(key)
