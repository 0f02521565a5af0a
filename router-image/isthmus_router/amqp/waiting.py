"""Connections with events that wait for a later turn. Clients take turns, so that none delays the others. Sans-IO.

The client that has had the least time comes first (start-time fair queueing): each counts the time that its connections
have had, and a client of which nothing waited counts on from where those are that have had their turns. To add and to
take a connection costs the same however many wait.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

MOST_ABSENT = 64
"""Clients of which nothing waits, and that are remembered, beside as many as have connections that wait."""


class _Client(Generic[T]):
    """A client, and its connections that wait."""

    __slots__ = ("connections", "had")

    def __init__(self) -> None:
        self.connections: dict[T, None] = {}
        self.had = 0.0
        """Seconds, as the queue counts them."""


class WaitingConnections(Generic[T]):
    """Connections in the order of their turns."""

    def __init__(self, client_of: Callable[[T], Hashable]) -> None:
        """`client_of` tells whose connections have their turns together; asked when the connection is added."""
        self._client_of = client_of
        self._clients: dict[Hashable, _Client[T]] = {}
        self._turns: list[tuple[float, int, _Client[T]]] = []
        """A heap of clients with connections that wait, without the one that has its turn: by the time that they have
        had, and by the order in which they came."""
        self._number = 0
        self._had = 0.0
        """What a client of which nothing waited has had at least: as much as the one that had its turn last."""
        self._present: _Client[T] | None = None
        self.connections: set[T] = set()
        """Those that wait."""

    def add(self, connection: T) -> None:
        """The connection waits, if it does not yet."""
        if connection in self.connections:
            return
        self.connections.add(connection)
        key = self._client_of(connection)
        client = self._clients.get(key)
        if client is None:
            if len(self._clients) > 2 * len(self._turns) + MOST_ABSENT:
                self._forget()
            client = self._clients[key] = _Client()
        waits = bool(client.connections)
        client.connections[connection] = None
        if not waits and client is not self._present:
            client.had = max(client.had, self._had)
            self._queue(client)

    def _queue(self, client: _Client[T]) -> None:
        self._number += 1
        heappush(self._turns, (client.had, self._number, client))

    def _forget(self) -> None:
        """Forget clients of which nothing waits, as far as it is of no effect what they have had."""
        self._clients = {
            key: client
            for key, client in self._clients.items()
            if client.connections or client is self._present or client.had > self._had
        }

    def take(self) -> T:
        """The next connection, which has its turn now; `had_turn` ends it. There must be one."""
        self._had, _, self._present = heappop(self._turns)
        connection = next(iter(self._present.connections))
        del self._present.connections[connection]
        self.connections.remove(connection)
        return connection

    def had_turn(self, seconds: float) -> None:
        """The connection that was taken has had its turn, which has taken so long."""
        client, self._present = self._present, None
        if client is None:
            return
        client.had = self._had + seconds
        if client.connections:
            self._queue(client)
        elif not self._turns:
            self._clients.clear()
            self._had = 0.0
