"""What comes on links on which nothing may come: those that this end has closed and the peer has not, and OUT links.

A peer may send a transfer on a link on which the router sends. The engine takes it. Its deliveries and the router's
then are mixed up, and it goes on knowing such a delivery by its number when the link is freed.

Source: AMQP 1.0 part 2, 2.6.5 (detaching), 2.8.17 (errant-link).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cproton_ffi import ffi, lib

from isthmus_router.amqp.engine import Pointer
from isthmus_router.amqp.kernel.buffers import release
from isthmus_router.core.terms import Condition

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection
    from isthmus_router.core.model import Link

MOST_DELIVERIES = 100_000
"""What was on its way when the link was closed may come. It is discarded, but the engine keeps a record of each
delivery until the peer has closed the link, too."""
DISCARDED_AT_ONCE = 64 * 1024
"""Bytes of a delivery."""

FEW_LINKS = 256
"""Links of a session that are walked when a link is detached. With more, they are walked once a second at most."""

MOST_LEFT = 1000
"""Links that are not freed before their sessions end, because something unknown has come on them."""
NOT_ALLOWED = Condition("amqp:not-allowed", "a transfer on a link on which the router sends")


class _Session:
    """Those of one session."""

    __slots__ = ("cut_short", "deliveries", "left", "never_read")

    def __init__(self) -> None:
        self.deliveries: dict[Pointer, int] = {}
        """How many have come, by link."""
        self.cut_short: set[Pointer] = set()
        """Links that were closed in the middle of a delivery."""
        self.left: set[Pointer] = set()
        """OUT links that are gone and on which something unknown has come."""
        self.never_read = 0
        """Bytes of such deliveries that the capacity of the session has been raised by."""


class Detached:
    """Those of one connection."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._sessions: dict[Pointer, _Session] = {}
        self._total = 0
        """Deliveries that have come, in all sessions."""
        self._undiscarded: dict[Pointer, Pointer] = {}
        """Links on which deliveries have come since the engine last wrote, and their sessions. They may be freed."""
        self._left = 0
        """OUT links that are gone and on which something unknown has come, in all sessions."""
        self._unsent: dict[Pointer, dict[Pointer, None]] = {}
        """OUT links by session that this end has closed with messages that wait; the engine still sends these."""
        self._cramped: dict[Pointer, Pointer | None] = {}
        """Sessions in which deliveries that were cut short may have taken room, or may still do so.

        Each with a link that had deliveries which the engine does not show yet, when the links were last walked.
        """
        self._freed: set[Pointer] = set()
        """Sessions with links that have been freed since the engine last wrote.

        If the engine announces the window of such a session now, it may name a freed link, with the handle 2^32-2.
        """
        self._due: set[Pointer] = set()
        """Cramped sessions whose links are walked after the engine has written."""
        self._untold: set[Pointer] = set()
        """Sessions whose windows are announced after the engine has written.

        The engine notes once that it has to look at a window, and looks at it when it writes for one of the session's
        links or deliveries. If that is closed or freed before, it never looks at it again by itself.
        """
        self._ending: set[Pointer] = set()
        """Sessions that the peer has ended and whose links may be freed."""

    @property
    def has_cramped_sessions(self) -> bool:
        """Whether there is anything for `make_room`."""
        return bool(self._cramped)

    def came(self, link: Pointer) -> None:
        """A transfer has come on a link on which the router receives nothing any more.

        It is discarded after the next write. Otherwise such deliveries would use up the window of the session until the
        peer has answered the detach, and its other links would have to wait.
        """
        session = lib.pn_link_session(link)
        if link not in self._connection.sessions.receivers(session):
            return  # the peer has closed it, too, and settles what came before
        self._undiscarded[link] = session
        self._connection.after_write = True
        self._count(link)

    def _count(self, link: Pointer) -> None:
        deliveries = self._of(link).deliveries
        deliveries[link] = deliveries.get(link, 0) + 1
        self._total += 1
        if self._total == MOST_DELIVERIES:
            reason = "messages keep coming on links that are detached"
            self._connection.close(Condition("amqp:session:errant-link", reason))

    def closed(self, link: Link) -> None:
        """This end has closed or detached a link. It discards after the next write what has come and is not read."""
        if link.incoming:
            self.tell_window(link.session)
            self._undiscarded[link.io] = link.session
            self._connection.after_write = True
        elif lib.pn_link_queued(link.io):
            self._unsent.setdefault(link.session, {})[link.io] = None

    def tell_window(self, session: Pointer) -> None:
        """Announce a session's window after the next write, unless it is too early for that."""
        if self._connection.sessions.has_begun(session):
            self._untold.add(session)
            self._connection.after_write = True

    def may_end(self, session: Pointer) -> bool:
        """Whether the links may be freed of a session that the peer has ended; if False, after the next write.

        The engine looks at the window when it settles the deliveries of these links. If it then announced the window,
        it would name links that this end has closed, with the handle 2^32-2. So the window is announced before.
        """
        if session in self._ending:
            return True
        if not any(
            self._is_closed(link) and lib.pn_link_unsettled(link)
            for link in self._connection.sessions.receivers(session)
        ):
            self._ending.add(session)
            return True
        if session not in self._freed:
            self._ending.add(session)
            unread = lib.pn_session_incoming_bytes(session)
            capacity = lib.pn_session_get_incoming_capacity(session)
            lib.pn_session_set_incoming_capacity(session, capacity + unread)
        self._connection.driver.touch(self._connection)
        return False

    def session_freed(self, session: Pointer) -> None:
        """All links of a session that the peer has ended are freed, and the session is next."""
        self._ending.discard(session)

    def have_unsent(self, session: Pointer) -> bool:
        """Whether messages wait on links of a session that this end has closed."""
        links = self._unsent.get(session, {})
        while links:
            first = next(iter(links))
            if lib.pn_link_queued(first):
                return True
            del links[first]
        self._unsent.pop(session, None)
        return False

    def unknown(self, pn: Pointer, link: Link | None) -> None:
        """Something is new about a delivery, on a link on which the router sends, that is not one of those it has.

        If it has settled it, the peer may have said two things at once. A link that the core still has can have no
        more deliveries than the core has for it.
        """
        if link is None:
            left = self._of(pn).left
            self._left += pn not in left
            left.add(pn)
            self._count(pn)
            return
        known = len(link.unsettled)
        if link.stream is not None:
            known += link.stream.has_begun(link)
        if lib.pn_link_unsettled(pn) > known:
            self._connection.break_off(NOT_ALLOWED)

    def cut_short(self, link: Pointer) -> None:
        """A delivery is given up before all of it is here, and its link with it.

        As the engine counts, what arrives of it afterwards remains unread: the session would fill up. The peer may
        even wait for room in the session before it answers.
        """
        self._of(link).cut_short.add(link)
        self._cramped.setdefault(lib.pn_link_session(link), None)

    def _of(self, link: Pointer) -> _Session:
        session = lib.pn_link_session(link)
        found = self._sessions.get(session)
        if found is None:
            found = self._sessions[session] = _Session()
        return found

    def answered(self, link: Pointer) -> None:
        """The peer has closed it: nothing more can come."""
        session = lib.pn_link_session(link)
        self._connection.sessions.peer_detached(session, link)
        self._unsent.get(session, {}).pop(link, None)
        of = self._sessions.get(session)
        if of is not None:
            self._total -= of.deliveries.pop(link, 0)
            of.cut_short.discard(link)
        if of is None or link not in of.left:
            self._connection.freeing.free(session, link)
        elif self._left > MOST_LEFT:
            self._connection.close(Condition("amqp:session:errant-link", "too many links that are detached"))
        if session in self._cramped:
            if self._cramped[session] == link:
                self._cramped[session] = None
            if len(self._connection.sessions.receivers(session)) <= FEW_LINKS:
                self._due.add(session)
                self._connection.after_write = True

    def link_freed(self, session: Pointer, *, receiver: bool) -> None:
        """A link of a session has been freed, on which something could come if it was a `receiver`."""
        self._freed.add(session)
        self._connection.after_write = True
        if receiver:
            self.tell_window(session)

    def written(self) -> None:
        """The engine has written everything, so that no freed link can be named any more."""
        self._freed.clear()
        due, self._due = self._due, set()
        untold, self._untold = self._untold, set()
        undiscarded, self._undiscarded = self._undiscarded, {}
        closed = [link for link, session in undiscarded.items() if self._is_half_closed(link, session)]
        untold.update(undiscarded[link] for link in closed)
        for session in due:
            if session in self._cramped:
                self._make_room(session)
        for session in untold:
            lib.pn_session_set_incoming_capacity(session, lib.pn_session_get_incoming_capacity(session))
            self._connection.driver.touch(self._connection)
        for link in closed:
            _discard(link)

    def _is_half_closed(self, link: Pointer, session: Pointer) -> bool:
        """Whether the engine still has a link, which this end has closed and the peer has not."""
        sessions = self._connection.sessions
        return sessions.has_begun(session) and link in sessions.receivers(session) and self._is_closed(link)

    def _is_closed(self, link: Pointer) -> bool:
        """Whether this end has closed a link. It has a routed one, whose other half is gone, until the peer answers."""
        own = self._connection.links.get(link)
        return own is None or (own.routed and own.partner is None)

    def make_room(self) -> Iterator[None]:
        """Give sessions back what deliveries that were cut short have taken, if it can be told how much that is.

        One session in each step. To be called every second: a session may have to wait until others are read.
        """
        for session in list(self._cramped):
            if self._connection.closed:
                return
            if session in self._cramped:
                self._make_room(session)
                yield

    def _make_room(self, session: Pointer) -> None:
        if session in self._freed or self._connection.freeing.is_freeing(session):
            return
        hidden, of = self._cramped[session], self._sessions[session]
        if hidden is not None and lib.pn_link_queued(hidden) > 1:
            return
        unread = 0
        for link in self._connection.sessions.receivers(session):
            queued = lib.pn_link_queued(link)
            if queued > 1:
                self._cramped[session] = link  # bytes wait in deliveries that the engine does not show yet
                return
            current = lib.pn_link_current(link) if queued else None
            unread += lib.pn_delivery_pending(current) if current else 0
        if of.cut_short:
            self._cramped[session] = None
        else:
            del self._cramped[session]
        taken = lib.pn_session_incoming_bytes(session) - unread - of.never_read
        if taken:
            of.never_read += taken
            lib.pn_session_set_incoming_capacity(
                session, lib.pn_session_get_incoming_capacity(session) + taken
            )
            self._connection.driver.touch(self._connection)

    def session_ended(self, session: Pointer) -> None:
        """The session is gone, or about to be, and its links with it."""
        self._unsent.pop(session, None)
        self._cramped.pop(session, None)
        self._freed.discard(session)
        self._due.discard(session)
        self._untold.discard(session)
        of = self._sessions.pop(session, None)
        if of is not None:
            self._left -= len(of.left)
            self._total -= sum(of.deliveries.values())


def _discard(link: Pointer) -> None:
    """Discard what has come on a link.

    If the engine did not know already that it has to announce the window of the session, it would announce it here
    with the handle of this link, which is 2^32-2 since the link is closed.
    """
    while current := lib.pn_link_current(link):
        while lib.pn_delivery_pending(current) and lib.pn_link_recv(link, _scratch, DISCARDED_AT_ONCE) > 0:
            pass
        if lib.pn_delivery_partial(current) and not lib.pn_delivery_aborted(current):
            return
        lib.pn_link_advance(link)
        release(current)


_scratch = ffi.new("char[]", DISCARDED_AT_ONCE)
