"""The order in which auto-links are attached: one by one between other work, at a bounded rate for each client.

Sans-IO. A client is a user, or a host whose connections are anonymous.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from isthmus_router.core.model import Connection
from isthmus_router.core.port import CallLater
from isthmus_router.core.router import RouterCore

log = logging.getLogger("ROUTER_CORE")

LEAST_AT_ONCE = 5_000
"""Auto-links that the router attaches for a client without a pause; at least twice the number that it has."""
PER_SECOND = 500
"""Auto-links that it attaches for the client in each further second."""


class _Client:
    """The connections of a client, and what the router has attached for it lately."""

    __slots__ = ("attached", "connections", "is_delayed", "is_served", "waiting")

    def __init__(self) -> None:
        self.connections = 0
        self.waiting: dict[Connection, None] = {}
        """Connections on which auto-links are to be attached, in the order of their turns."""
        self.attached = 0
        """Auto-links that count; `PER_SECOND` fewer after each second."""
        self.is_served = False
        self.is_delayed = False
        """There were too many, and there are still some that count."""


class Turns:
    """The connections on which auto-links wait to be attached."""

    def __init__(
        self, core: RouterCore, call_later: CallLater, attach_next: Callable[[Connection], bool]
    ) -> None:
        """`attach_next` attaches one auto-link on a connection, or returns False if none is left."""
        self._core = core
        self._call_later = call_later
        self._attach_next = attach_next
        self._most = LEAST_AT_ONCE
        self._clients: dict[str, _Client] = {}
        """Those that have connections, or for which auto-links were attached lately."""
        self._counted: dict[str, _Client] = {}
        """Those for which auto-links were attached lately."""

    def __len__(self) -> int:
        return len(self._clients)

    def configured(self, auto_links: int) -> None:
        """The router has so many auto-links now."""
        self._most = max(LEAST_AT_ONCE, 2 * auto_links)

    def opened(self, connection: Connection) -> None:
        """A connection has opened, and `closed` follows."""
        name = _client(connection)
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = _Client()
        client.connections += 1

    def wait(self, connection: Connection) -> None:
        """Attach auto-links on an open connection when it is its turn."""
        name = _client(connection)
        self._clients[name].waiting[connection] = None
        self._serve(name)

    def leave(self, connection: Connection) -> None:
        """Attach nothing more on a connection."""
        self._clients[_client(connection)].waiting.pop(connection, None)

    def closed(self, connection: Connection) -> None:
        """A connection has closed."""
        self.leave(connection)
        name = _client(connection)
        self._clients[name].connections -= 1
        self._forget(name)

    def _forget(self, name: str) -> None:
        client = self._clients[name]
        if not client.connections and not client.attached:
            del self._clients[name]

    def _serve(self, name: str) -> None:
        client = self._clients[name]
        if client.waiting and not client.is_served and client.attached < self._most:
            client.is_served = True
            self._core.port.work(self._attach(name, client))

    def _attach(self, name: str, client: _Client) -> Iterator[None]:
        """Attach auto-links for a client, one in each step."""
        try:
            while client.waiting and client.attached < self._most:
                connection = next(iter(client.waiting))
                if self._attach_next(connection):
                    self._count(name, client)
                else:
                    del client.waiting[connection]
                yield
        finally:
            client.is_served = False
        if client.waiting and not client.is_delayed:
            client.is_delayed = True
            log.warning(
                "auto-links wait",
                extra={
                    "client": name,
                    "connections": len(client.waiting),
                    "reason": f"{self._most} auto-links were attached for the client within a short time",
                },
            )

    def _count(self, name: str, client: _Client) -> None:
        client.attached += 1
        if not self._counted:
            self._call_later(1.0, self._second_passed)
        self._counted[name] = client

    def _second_passed(self) -> None:
        for name, client in list(self._counted.items()):
            client.attached = max(0, client.attached - PER_SECOND)
            self._serve(name)
            if not client.attached:
                client.is_delayed = False
                del self._counted[name]
                self._forget(name)
        if self._counted:
            self._call_later(1.0, self._second_passed)


def _client(connection: Connection) -> str:
    return connection.client or f"peer of {connection.endpoint}"
