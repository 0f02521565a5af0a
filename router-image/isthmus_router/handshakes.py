"""Connections to a port that are not open yet: how many there may be, and which one has to go for another.

Anybody who reaches the port can have them, and each costs memory until it is opened or times out.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from isthmus_router.client_hosts import network_of

MOST = 512
MOST_OF_HOST = 256
"""At ports for members, other sites and gossip routers."""


_Connection = TypeVar("_Connection", bound=Hashable)


class Handshakes(Generic[_Connection]):
    """Those of one port, the oldest first."""

    def __init__(self, most: int = MOST, most_of_host: int = MOST_OF_HOST) -> None:
        self._most = most
        self._most_of_host = most_of_host
        self._by_host: dict[str, dict[_Connection, None]] = {}
        self._hosts: dict[_Connection, str] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    def begun(self, connection: _Connection, address: str) -> _Connection | None:
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

    def ended(self, connection: _Connection) -> None:
        """The connection is open, or closed; nothing happens if that is known."""
        host = self._hosts.pop(connection, None)
        if host is not None:
            of_host = self._by_host[host]
            del of_host[connection]
            if not of_host:
                del self._by_host[host]
