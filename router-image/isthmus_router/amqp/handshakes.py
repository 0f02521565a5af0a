"""Connections of a listener that are not open yet: how many there may be, and which one has to go for another.

Anybody who reaches the port can have them, and each costs memory until it is opened or times out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus_router.policy.hosts import network_of

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection


class Handshakes:
    """Those of one listener, the oldest first."""

    def __init__(self, most: int, most_of_host: int) -> None:
        self._most = most
        self._most_of_host = most_of_host
        self._by_host: dict[str, dict[AmqpConnection, None]] = {}
        self._hosts: dict[AmqpConnection, str] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    def begun(self, connection: AmqpConnection, address: str) -> AmqpConnection | None:
        """A connection was accepted from an IP address; the one that has to be dropped for it, if any."""
        host = network_of(address)
        of_host = self._by_host.setdefault(host, {})
        of_host[connection] = None
        self._hosts[connection] = host
        if len(of_host) > self._most_of_host:
            return next(iter(of_host))
        if len(self._hosts) > self._most:
            most = max(len(connections) for connections in self._by_host.values())
            return next(next(iter(found)) for found in self._by_host.values() if len(found) == most)
        return None

    def ended(self, connection: AmqpConnection) -> None:
        """The connection is open, or closed; nothing happens if that is known."""
        host = self._hosts.pop(connection, None)
        if host is not None:
            of_host = self._by_host[host]
            del of_host[connection]
            if not of_host:
                del self._by_host[host]
