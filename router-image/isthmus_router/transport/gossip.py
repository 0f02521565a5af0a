"""Connections to gossip routers: `GossipPort` of a member's gossip client."""

from __future__ import annotations

import ssl
from typing import Protocol

from isthmus_router.gossip.client import Endpoint
from isthmus_router.transport.connection import FrameConnection, Turn
from isthmus_router.transport.credentials import Credentials
from isthmus_router.transport.framing import PREFIX
from isthmus_router.transport.settings import TransportSettings
from isthmus_router.transport.sockets import describe, dial
from isthmus_router.transport.tasks import Tasks


class GossipEvents(Protocol):
    """Who hears of what happens."""

    def gossip_connected(self, router: Endpoint) -> None:
        """A connection is there."""

    def gossip_frame(self, router: Endpoint, frame: bytes) -> None:
        """A frame of it, with its length in front."""

    def gossip_closed(self, router: Endpoint) -> None:
        """It has ended, or could not be made."""


class GossipConnection(FrameConnection):
    """One."""

    def __init__(
        self, owner: GossipConnections, turn: Turn, settings: TransportSettings, to: Endpoint
    ) -> None:
        super().__init__(owner, turn, settings.longest_frame, settings.queue_bytes, frozenset())
        self.router = to


class GossipConnections:
    """All of them; implements GossipPort."""

    def __init__(
        self, settings: TransportSettings, credentials: Credentials | None, turn: Turn, events: GossipEvents
    ) -> None:
        self.credentials = credentials
        self._settings = settings
        self._turn = turn
        self._events = events
        self._connections: dict[Endpoint, GossipConnection] = {}
        self._closing: set[GossipConnection] = set()
        self._dials = Tasks()

    def connect(self, router: Endpoint) -> None:
        """Implements GossipPort."""
        connection = GossipConnection(self, self._turn, self._settings, router)
        self._connections[router] = connection
        context = self.credentials.client if self.credentials is not None else None
        self._dials.start(self._connect(connection, context))

    def send(self, router: Endpoint, frame: bytes) -> None:
        """Implements GossipPort."""
        connection = self._connections.get(router)
        if connection is not None:
            connection.send(memoryview(frame)[PREFIX.size :])

    def close(self, router: Endpoint) -> None:
        """Implements GossipPort."""
        connection = self._connections.pop(router, None)
        if connection is not None:
            self._closing.add(connection)
            connection.close("given up")

    def shut(self) -> list[GossipConnection]:
        """End all of them, after what was sent is written; returns those that take their time."""
        self._dials.cancel()
        return list(self._closing)

    async def _connect(self, connection: GossipConnection, context: ssl.SSLContext | None) -> None:
        settings = self._settings
        try:
            await dial(
                connection,
                connection.router.host,
                connection.router.port,
                context,
                connect_timeout=settings.connect_timeout,
                handshake_timeout=settings.handshake_timeout,
                user_timeout=settings.user_timeout,
            )
        except OSError as error:
            connection.failed(describe(error))

    def _current(self, connection: GossipConnection) -> bool:
        return self._connections.get(connection.router) is connection

    def connected(self, connection: GossipConnection) -> None:
        """Implements Owner."""
        if self._current(connection):
            self._events.gossip_connected(connection.router)

    def arrived(self, connection: GossipConnection, frames: list[bytes]) -> None:
        """Implements Owner."""
        for frame in frames:
            if self._current(connection):
                self._events.gossip_frame(connection.router, PREFIX.pack(len(frame)) + frame)

    def drained(self, connection: GossipConnection) -> None:
        """Implements Owner; what waits is bounded."""

    def ended(self, connection: GossipConnection, reason: str) -> None:
        """Implements Owner."""
        self._closing.discard(connection)
        if self._current(connection):
            del self._connections[connection.router]
            self._events.gossip_closed(connection.router)
