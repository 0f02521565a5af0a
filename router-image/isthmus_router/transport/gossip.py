"""Connections to gossip routers: `GossipPort` of a member's gossip client."""

from __future__ import annotations

import asyncio
from typing import Protocol

from isthmus_router.credentials import Credentials
from isthmus_router.gossip.client import Endpoint
from isthmus_router.host_names import HostNames
from isthmus_router.transport.connection import LINGER_SECONDS, FrameConnection, Turn
from isthmus_router.transport.framing import PREFIX
from isthmus_router.transport.problems import Problems
from isthmus_router.transport.reasons import describe
from isthmus_router.transport.settings import TransportSettings
from isthmus_router.transport.sockets import dial
from isthmus_router.transport.tasks import Tasks

RECEIVE_BYTES = 1 << 18
"""That the system receives of a gossip router in advance. What is there cannot be overtaken by frames of others."""


class GossipEvents(Protocol):
    """Who hears of what happens."""

    def gossip_connected(self, router: Endpoint) -> None:
        """A connection is there."""

    def gossip_frame(self, router: Endpoint, frame: bytes) -> None:
        """A frame of it, with its length in front."""

    def gossip_heard(self, router: Endpoint) -> None:
        """Part of a frame of it."""

    def gossip_closed(self, router: Endpoint) -> None:
        """It has ended, or could not be made."""


class GossipConnection(FrameConnection):
    """One."""

    def __init__(
        self, owner: GossipConnections, turn: Turn, settings: TransportSettings, to: Endpoint
    ) -> None:
        super().__init__(owner, turn, settings.longest_frame, settings.queue_bytes, frozenset())
        self.router = to
        self.credentials: Credentials | None = None
        """That it was made with."""
        self.open = False


class GossipConnections:
    """All of them; implements GossipPort."""

    def __init__(
        self,
        settings: TransportSettings,
        credentials: Credentials | None,
        turn: Turn,
        events: GossipEvents,
        problems: Problems,
    ) -> None:
        self.credentials = credentials
        self._problems = problems
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._turn = turn
        self._events = events
        self._connections: dict[Endpoint, GossipConnection] = {}
        self._successors: dict[Endpoint, GossipConnection] = {}
        """Being made, to be used instead."""
        self._closing: set[GossipConnection] = set()
        self._dials = Tasks()
        self._host_names = HostNames()

    def connect(self, router: Endpoint) -> None:
        """Implements GossipPort."""
        self._connections[router] = self._dial(router)

    def renew(self, credentials: Credentials) -> None:
        """Connections are made anew with these; those that are open are used until then."""
        self.credentials = credentials
        for connection in (*self._connections.values(), *self._closing):
            connection.end_if_revoked(credentials)
        for router, connection in self._connections.items():
            if connection.open:
                self._successors[router] = self._dial(router)

    def retire(self, oldest: int) -> None:
        """Close connections whose credentials are older, when there was time to make others."""
        for connection in (*self._connections.values(), *self._closing):
            if connection.credentials is not None and connection.credentials.ordinal < oldest:
                reason = f"credentials of ordinal {connection.credentials.ordinal} are no longer valid"
                self._loop.call_later(self._settings.connect_timeout, connection.close, reason)

    def _dial(self, router: Endpoint) -> GossipConnection:
        connection = GossipConnection(self, self._turn, self._settings, router)
        connection.credentials = self.credentials
        connection.making = self._dials.start(self._connect(connection))
        return connection

    @property
    def backlog(self) -> int:
        """Bytes that wait at the connection with which most do."""
        return max((connection.backlog for connection in self._connections.values()), default=0)

    def send(self, router: Endpoint, frame: bytes) -> None:
        """Implements GossipPort."""
        connection = self._connections.get(router)
        if connection is not None:
            connection.send(memoryview(frame)[PREFIX.size :])

    def close(self, router: Endpoint) -> None:
        """Implements GossipPort."""
        self._successors.pop(router, None)
        connection = self._connections.pop(router, None)
        if connection is not None:
            self._end(connection, "given up")

    def _end(self, connection: GossipConnection, reason: str) -> None:
        self._closing.add(connection)
        connection.close(reason)

    def shut(self) -> list[GossipConnection]:
        """End all of them, after what was sent is written; returns those that take their time."""
        self._dials.cancel()
        return list(self._closing)

    async def _connect(self, connection: GossipConnection) -> None:
        settings, credentials = self._settings, connection.credentials
        try:
            await dial(
                connection,
                connection.router.host,
                connection.router.port,
                None if credentials is None else credentials.client,
                names=self._host_names,
                whose=connection.router.host,
                connect_timeout=settings.connect_timeout,
                handshake_timeout=settings.handshake_timeout,
                user_timeout=settings.user_timeout,
                receive_bytes=RECEIVE_BYTES,
            )
        except OSError as error:
            connection.failed(error, describe(error))

    def _current(self, connection: GossipConnection) -> bool:
        return self._connections.get(connection.router) is connection

    def connected(self, connection: GossipConnection) -> None:
        """Implements Owner."""
        router = connection.router
        connection.open = True
        if self._successors.get(router) is connection:
            del self._successors[router]
            before = self._connections.get(router)
            self._connections[router] = connection
            if before is not None:
                # The router has to know this one before it sees that one end.
                self._closing.add(before)
                self._loop.call_later(LINGER_SECONDS, before.close, "another one is used")
        if self._current(connection):
            self._events.gossip_connected(router)
        else:
            self._end(connection, "not needed")

    def arrived(self, connection: GossipConnection, frames: list[bytes]) -> None:
        """Implements Owner."""
        for frame in frames:
            if self._current(connection):
                self._events.gossip_frame(connection.router, PREFIX.pack(len(frame)) + frame)

    def heard(self, connection: GossipConnection) -> None:
        """Implements Owner."""
        if self._current(connection):
            self._events.gossip_heard(connection.router)

    def drained(self, connection: GossipConnection) -> None:
        """Implements Owner; what waits is bounded."""

    def ended(self, connection: GossipConnection, reason: str) -> None:
        """Implements Owner."""
        self._closing.discard(connection)
        successor = self._successors.get(connection.router) is connection
        if (successor or self._current(connection)) and (connection.misfit or not connection.open):
            self._problems.tell(f"gossip router {connection.router}", reason)
        if successor:
            del self._successors[connection.router]
        elif self._current(connection):
            del self._connections[connection.router]
            self._events.gossip_closed(connection.router)
