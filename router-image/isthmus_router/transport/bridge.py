"""Bridge sessions with members of other sites: `BridgePort` of the relay on TCP with mutual TLS.

Sessions that this member dials have the relay's numbers, which are positive; those that it is dialled for have negative
ones. A session may be spliced: what comes by it is passed on to another endpoint, and back, as fast as both read.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections import Counter
from typing import Protocol

from isthmus_router.credentials import Credentials, certificate_names
from isthmus_router.handshakes import Handshakes
from isthmus_router.host_names import HostNames
from isthmus_router.places import Places
from isthmus_router.relay.settings import Endpoint
from isthmus_router.transport.connection import OTHERS_NEED_IT, FrameConnection, Turn
from isthmus_router.transport.problems import Problems
from isthmus_router.transport.reasons import describe
from isthmus_router.transport.settings import TransportSettings
from isthmus_router.transport.sockets import adopt, dial, peer_host
from isthmus_router.transport.tasks import Tasks

logger = logging.getLogger("TRANSPORT")

LONGEST_HELLO_BYTES = 1 << 20
"""From who has dialled and was not answered yet; what a relay may say of itself fits."""
_NOTHING_DROPPED: frozenset[int] = frozenset()


class BridgeEvents(Protocol):
    """Who hears of what happens: what the relay is told, and that sessions should be moved."""

    def bridge_opened(self, session: int, names: tuple[str, ...]) -> None:
        """A session is there; the names are those of the peer's certificate, none without TLS."""

    def bridge_frame(self, session: int, frame: bytes) -> None:
        """A frame of it."""

    def bridge_heard(self, session: int) -> None:
        """Part of a frame of it."""

    def bridge_closed(self, session: int, reason: str) -> None:
        """It has ended, or could not be made."""

    def bridge_renewed(self, sessions: list[int]) -> None:
        """Those that this member dialled with other credentials than the newest."""


class BridgeConnection(FrameConnection):
    """One session."""

    def __init__(self, owner: Bridge, turn: Turn, settings: TransportSettings, session: int) -> None:
        longest = settings.longest_frame if session >= 0 else min(LONGEST_HELLO_BYTES, settings.longest_frame)
        super().__init__(owner, turn, longest, settings.queue_bytes, _NOTHING_DROPPED)
        self.session = session
        self.other: BridgeConnection | None = None
        """The other end of a splice."""
        self.credentials: Credentials | None = None
        """That it was made with."""
        self.open = False
        self.answered = session >= 0
        """The relay has sent something by it, or passes it on: it has said HELLO."""


class Bridge:
    """All sessions; implements BridgePort."""

    def __init__(
        self,
        settings: TransportSettings,
        credentials: Credentials | None,
        turn: Turn,
        events: BridgeEvents,
        problems: Problems,
    ) -> None:
        self.credentials = credentials
        self._problems = problems
        self.counts: Counter[str] = Counter()
        """`refused`: connections that were one too many."""
        self._places = Places(settings.most_connections)
        self._settings = settings
        self._turn = turn
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(-1, -1)
        self._sessions: dict[int, BridgeConnection] = {}
        self._spliced: set[BridgeConnection] = set()
        self._dials = Tasks()
        self._host_names = HostNames()
        self._adoptions = Tasks()
        self._incoming = 0
        self._handshakes = Handshakes[BridgeConnection]()
        """Sessions of others that were not answered yet."""

    # BridgePort

    def dial(self, session: int, site: str, endpoint: Endpoint) -> None:
        """Implements BridgePort."""
        connection = BridgeConnection(self, self._turn, self._settings, session)
        self._sessions[session] = connection
        connection.making = self._dials.start(self._connect(connection, site, endpoint))

    def send(self, session: int, frame: bytes) -> None:
        """Implements BridgePort."""
        connection = self._sessions.get(session)
        if connection is not None:
            if not connection.answered:
                self._answered(connection)
            connection.send(frame)

    def close(self, session: int, reason: str) -> None:
        """Implements BridgePort."""
        connection = self._sessions.pop(session, None)
        if connection is not None:
            logger.debug("bridge session closed", extra={"session": session, "reason": reason})
            connection.close(reason)

    def backlog(self, session: int) -> int:
        """Implements BridgePort."""
        connection = self._sessions.get(session)
        return 0 if connection is None else connection.backlog

    def splice(self, session: int, endpoint: Endpoint, first: bytes) -> None:
        """Implements BridgePort."""
        connection = self._sessions.pop(session, None)
        if connection is None:
            return
        onward = BridgeConnection(self, self._turn, self._settings, 0)
        connection.other, onward.other = onward, connection
        self._answered(connection)
        self._spliced |= {connection, onward}
        onward.send(first)
        onward.making = self._dials.start(self._connect(onward, "", endpoint))

    def _answered(self, connection: BridgeConnection) -> None:
        connection.answered = True
        connection.longest = self._settings.longest_frame
        self._handshakes.ended(connection)

    # What the driver asks for

    def accepted(self, sock: socket.socket) -> None:
        """Somebody has dialled this member."""
        if self._incoming >= self._settings.most_connections and not self._make_room():
            self.counts["refused"] += 1
            sock.close()
            return
        self._incoming += 1
        connection = BridgeConnection(self, self._turn, self._settings, next(self._numbers))
        connection.remote = peer_host(sock)
        connection.credentials = self.credentials
        self._sessions[connection.session] = connection
        connection.making = self._adoptions.start(self._adopt(connection, sock))
        victim = self._handshakes.begun(connection, connection.remote)
        if victim is not None:
            self._handshakes.ended(victim)
            victim.abort(OTHERS_NEED_IT)

    def _make_room(self) -> bool:
        """The oldest that was not answered has to leave its place."""
        for connection in self._sessions.values():
            if not connection.answered and not connection.ending:
                connection.abort(OTHERS_NEED_IT)
                return True
        return False

    def renew(self, credentials: Credentials) -> None:
        """For sessions from now on; others are to be dialled anew."""
        self.credentials = credentials
        for connection in (*self._sessions.values(), *self._spliced):
            connection.end_if_revoked(credentials)
        self._events.bridge_renewed([session for session in self._sessions if session > 0])

    def retire(self, oldest: int) -> None:
        """Close sessions whose credentials are older."""
        for connection in (*self._sessions.values(), *self._spliced):
            if connection.credentials is not None and connection.credentials.ordinal < oldest:
                ordinal = connection.credentials.ordinal
                connection.close(f"credentials of ordinal {ordinal} are no longer valid")

    def shut(self) -> list[BridgeConnection]:
        """End all sessions, after what was sent is written; returns those that take their time."""
        self._dials.cancel()
        self._adoptions.cancel()
        connections = [*self._sessions.values(), *self._spliced]
        self._sessions.clear()
        for connection in connections:
            connection.close("the member leaves")
        return connections

    # Connections

    async def _connect(self, connection: BridgeConnection, whose: str, endpoint: Endpoint) -> None:
        """`whose`: the site that has stated the endpoint; empty if it is of the own one."""
        settings, credentials = self._settings, self.credentials
        connection.credentials = credentials
        try:
            await dial(
                connection,
                endpoint.host,
                endpoint.port,
                None if credentials is None else credentials.client,
                names=self._host_names,
                whose=whose,
                connect_timeout=settings.connect_timeout,
                handshake_timeout=settings.handshake_timeout,
                user_timeout=settings.bridge_user_timeout,
            )
        except OSError as error:
            connection.failed(error, f"{endpoint}: {describe(error)}")

    async def _adopt(self, connection: BridgeConnection, sock: socket.socket) -> None:
        try:
            context = None if self.credentials is None else self.credentials.server
            await adopt(connection, sock, context, self._settings.handshake_timeout)
        except OSError as error:
            connection.failed(error, describe(error))

    def connected(self, connection: BridgeConnection) -> None:
        """Implements Owner."""
        if connection.session < 0:
            identity = connection.identity
            if not self._places.take(identity):
                self.counts["refused"] += 1
                connection.misfit = True
                connection.close(f"too many connections of {identity}")
                return
            connection.place = identity
        connection.open = True
        if self._sessions.get(connection.session) is connection:
            self._events.bridge_opened(connection.session, certificate_names(connection.certificate))

    def arrived(self, connection: BridgeConnection, frames: list[bytes]) -> None:
        """Implements Owner."""
        for frame in frames:
            if connection.other is not None:
                connection.other.send(frame)
            elif self._sessions.get(connection.session) is connection:
                self._events.bridge_frame(connection.session, frame)
        if connection.other is not None:
            # At once, as much more may be read in this turn.
            connection.other.write()
            if connection.other.full:
                connection.pause_reading(True)

    def heard(self, connection: BridgeConnection) -> None:
        """Implements Owner."""
        if self._sessions.get(connection.session) is connection:
            self._events.bridge_heard(connection.session)

    def drained(self, connection: BridgeConnection) -> None:
        """Implements Owner."""
        if connection.other is not None:
            connection.other.pause_reading(False)

    def ended(self, connection: BridgeConnection, reason: str) -> None:
        """Implements Owner."""
        if connection.session < 0:
            self._incoming -= 1
            self._handshakes.ended(connection)
            if connection.place:
                self._places.leave(connection.place)
            if connection.misfit:
                self._problems.tell(f"bridge from {connection.remote}", reason)
        self._spliced.discard(connection)
        if connection.other is not None:
            connection.other.close(f"the other end of the splice: {reason}")
        elif self._sessions.get(connection.session) is connection:
            del self._sessions[connection.session]
            if connection.open or connection.session > 0:
                self._events.bridge_closed(connection.session, reason)
