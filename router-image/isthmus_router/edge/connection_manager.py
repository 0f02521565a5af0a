"""Which of an edge router's connections to interiors is its uplink: one is active, the others stand by.

The first to open becomes active. One whose TLS ordinal is greater than the active one's takes over (rotated
certificates); the other stays open as a standby. When the active one is lost, the standby with the greatest
TLS ordinal follows, among equals the one that has been open longest.
Source: the edge connection manager of the skupper-router family.
"""

from __future__ import annotations

import logging
from typing import Protocol

from isthmus_router.core.model import Connection, Link
from isthmus_router.core.roles import Role

log = logging.getLogger("CONN_MGR")

_NO_TLS = -1


class UplinkUser(Protocol):
    """Who uses the active connection."""

    def uplink_established(self, connection: Connection) -> None:
        """`connection` is the active one from now on, also when another was and still is open."""

    def uplink_lost(self, connection: Connection) -> None:
        """The active connection is closed; its links are gone."""


class ConnectionManager:
    """Chooses among the open edge connections; an observer of the core."""

    def __init__(self, user: UplinkUser) -> None:
        self.active: Connection | None = None
        self.standbys: list[Connection] = []
        """In the order in which they opened; those that were replaced are behind."""
        self.changes = 0
        """How often a connection has become active."""
        self._user = user

    def connection_opened(self, connection: Connection) -> None:
        """A further uplink: active, or in reserve."""
        if connection.role is not Role.EDGE or connection.incoming:
            return
        previous = self.active
        if previous is None:
            self._activate(connection, "edge uplink established")
        elif _ordinal(connection) > _ordinal(previous) >= 0:
            previous.active = False
            self.standbys.append(previous)
            self._activate(connection, "edge uplink upgraded")
        else:
            connection.active = False
            self.standbys.append(connection)
            log.info("edge uplink in reserve", extra=_described(connection))

    def connection_closed(self, connection: Connection) -> None:
        """An uplink is gone; the best standby follows an active one."""
        if connection in self.standbys:
            self.standbys.remove(connection)
            return
        if connection is not self.active:
            return
        self.active = None
        self._user.uplink_lost(connection)
        if not self.standbys:
            log.warning("edge uplink lost, none in reserve", extra=_described(connection))
            return
        best = max(self.standbys, key=_ordinal)
        self.standbys.remove(best)
        self._activate(best, "edge uplink lost, reserve activated")

    def _activate(self, connection: Connection, message: str) -> None:
        self.active = connection
        connection.active = True
        self.changes += 1
        log.info(message, extra=_described(connection))
        self._user.uplink_established(connection)

    def link_bound(self, link: Link) -> None:
        """Observer interface: links are no concern of the manager."""

    def link_unbound(self, link: Link) -> None:
        """Observer interface: nothing to do."""

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        """Observer interface: nothing to do."""


def _ordinal(connection: Connection) -> int:
    return _NO_TLS if connection.tls_ordinal is None else connection.tls_ordinal


def _described(connection: Connection) -> dict[str, object]:
    return {
        "connection": connection.id,
        "peer": connection.name,
        "container": connection.container,
        "tls_ordinal": connection.tls_ordinal,
    }
