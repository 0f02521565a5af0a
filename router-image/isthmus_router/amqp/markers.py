"""Markers: when has the peer dealt with everything that was sent on some links of a connection so far?

A peer works off a connection's frames in their order. So once all that was to be sent is in the byte stream, a new
session is begun, and the peer's answer tells that it has got there. Its own deliveries it may have to leave unread
for a while (a consumer is slow): a peer of this kind answers only when it has read them (`Answers`).
Source: AMQP 1.0 part 2, 2.5.1 (session establishment).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cproton_ffi import lib

from isthmus_router.amqp.engine import Pointer
from isthmus_router.amqp.kernel.outgoing import Outgoing
from isthmus_router.core.model import Connection, Link

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection
    from isthmus_router.core.model import Connection


FEW_LINKS = 1000
"""Links of a connection that are walked for each marker. With more, they are walked once a second."""


class Markers:
    """The markers on their way on one connection."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._links: list[Link] = []
        self._waiting: list[Callable[[], None]] = []
        """For what `_links` have still to send; one that has sent everything is looked at once."""
        self._sent: dict[Pointer, list[Callable[[], None]]] = {}

    def add(self, links: Sequence[Link], then: Callable[[], None]) -> None:
        """Call `then` once the peer has taken what these OUT links have sent, or when it no longer can."""
        connection = self._connection
        if connection.core is None:
            then()
            return
        self._links += links
        self._waiting.append(then)
        connection.after_write = True
        connection.driver.touch(connection)

    def send(self) -> bool:
        """To be called when all has been written that can be: begin the session, if it is time.

        Whether it is to be called again.
        """
        if not self._waiting:
            return False
        links = self._links
        while links and not _has_more(links[-1]):
            links.pop()
        if links:
            return True
        waiting, self._waiting = self._waiting, []
        session = self._connection.sessions.begin_another()
        if session is None:
            self._call(waiting)
        else:
            self._sent[session] = waiting
        return bool(self._waiting)

    def answered(self, session: Pointer) -> None:
        """The peer has begun a session too."""
        waiting = self._sent.pop(session, None)
        if waiting is not None:
            lib.pn_session_close(session)
            self._call(waiting)

    def end(self) -> None:
        """The connection is gone: what has not arrived by now never will."""
        waiting = [*self._waiting, *(then for thens in self._sent.values() for then in thens)]
        self._waiting.clear()
        self._links.clear()
        self._sent.clear()
        self._call(waiting)

    def _call(self, waiting: list[Callable[[], None]]) -> None:
        for then in waiting:
            then()
        self._connection.driver.touch(self._connection)


def _has_more(link: Link) -> bool:
    """Whether something is to be sent on the link before its marker."""
    if link not in link.connection.links:
        return False
    outgoing: Outgoing = link.connection.io.outgoing
    return outgoing.waiting(link.session)[0] > 0


class Answers:
    """The peer's markers on one connection that has been superseded: answered when all before them is read."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._owed: list[Pointer] = []

    def due(self, session: Pointer) -> bool:
        """Whether a session of the peer's can be answered at once; otherwise it will be."""
        core = self._connection.core
        if core is None or not core.superseded:
            return True
        if len(core.links) <= FEW_LINKS and not self._has_unread(core):
            return True
        self._owed.append(session)
        self._connection.after_write = True
        return False

    def give(self) -> bool:
        """To be called when something may have been read. Whether it is to be called again."""
        core = self._connection.core
        if self._owed and (core is None or len(core.links) <= FEW_LINKS):
            self.second_passed()
        return bool(self._owed)

    def second_passed(self) -> None:
        """To be called every second."""
        core = self._connection.core
        if not self._owed or (core is not None and self._has_unread(core)):
            return
        owed, self._owed = self._owed, []
        for session in owed:
            lib.pn_session_open(session)
        self._connection.driver.touch(self._connection)

    def forget(self, session: Pointer) -> None:
        """The peer has ended the session before it was answered."""
        if session in self._owed:
            self._owed.remove(session)

    def _has_unread(self, core: Connection) -> bool:
        return self._connection.driver.forwarder.copies.wait_from(core) or any(
            link.paused or (link.incoming and link.stream is not None and lib.pn_link_queued(link.io) > 1)
            for link in core.links
        )
