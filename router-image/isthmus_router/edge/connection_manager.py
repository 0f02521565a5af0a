"""Which of an edge router's connections to interiors is its uplink: one is active, the others stand by.

The first to open becomes active. Among uplinks of one cost, one whose TLS ordinal is greater than the active
one's takes over at once (rotated certificates). One of lower cost takes over when it has been open for a while
(the preferred way is back). When the active one turns out not to serve, the best standby takes over at once.
What was replaced stays open as a standby. When the active one is lost, the standby of the least cost follows,
among equals the one with the greatest TLS ordinal, then the one that has been open longest.
Source: the edge connection manager of the skupper-router family, which knows no preference.
"""

from __future__ import annotations

import logging
from typing import Protocol

from isthmus_router.core.model import Connection, Link
from isthmus_router.core.port import CallLater
from isthmus_router.core.roles import Role

log = logging.getLogger("CONN_MGR")

_NO_TLS = -1
PROVEN_SECONDS = 5.0
"""A preferred uplink that comes and goes is not worth moving to: it has to stay open this long."""


class UplinkUser(Protocol):
    """Who uses the active connection."""

    def uplink_established(self, connection: Connection) -> None:
        """`connection` is the active one from now on, also when another was and still is open."""

    def uplink_lost(self, connection: Connection) -> None:
        """The active connection is closed; its links are gone, or are removed one after the other."""


class ConnectionManager:
    """Chooses among the open edge connections; an observer of the core."""

    def __init__(self, user: UplinkUser, call_later: CallLater) -> None:
        self.active: Connection | None = None
        self.standbys: list[Connection] = []
        """In the order in which they opened; those that were replaced are behind."""
        self.changes = 0
        """How often a connection has become active."""
        self._user = user
        self._call_later = call_later
        self._proving: dict[Connection, object] = {}
        """Standbys that will take over if they stay open and preferred."""

    def connection_opened(self, connection: Connection) -> None:
        """A further uplink: active, or in reserve."""
        if connection.role is not Role.EDGE or connection.incoming:
            return
        previous = self.active
        if previous is None:
            self._activate(connection, "edge uplink established")
            return
        connection.active = False
        self.standbys.append(connection)
        if connection.cost == previous.cost and _ordinal(connection) > _ordinal(previous) >= 0:
            self._take_over(connection, "edge uplink upgraded")
        else:
            log.info("edge uplink in reserve", extra=_described(connection))
            self._prefer_later(connection)

    def connection_closed(self, connection: Connection) -> None:
        """An uplink is gone; the best standby follows an active one."""
        self._proving.pop(connection, None)
        if connection in self.standbys:
            self.standbys.remove(connection)
            return
        if connection is not self.active:
            return
        self.active = None
        connection.active = False
        self._user.uplink_lost(connection)
        if not self.standbys:
            log.warning("edge uplink lost, none in reserve", extra=_described(connection))
            return
        best = min(self.standbys, key=_rank)
        self.standbys.remove(best)
        self._activate(best, "edge uplink lost, reserve activated")

    def preference_changed(self) -> None:
        """The cost of an open uplink is another one now, or the active one has become fit or unfit for its use."""
        if self.active is not None and self.active.problem is not None:
            self._call_later(0.0, self._leave_unfit)
        for standby in self.standbys:
            self._prefer_later(standby)

    def _leave_unfit(self) -> None:
        if self.active is None or self.active.problem is None or not self.standbys:
            return
        best = min(self.standbys, key=_rank)
        if best.problem is None:
            self._take_over(best, "edge uplink does not serve, reserve activated")

    def _prefer_later(self, standby: Connection) -> None:
        if not self._is_preferred(standby):
            self._proving.pop(standby, None)
        elif standby not in self._proving:
            proof = self._proving[standby] = object()
            self._call_later(PROVEN_SECONDS, lambda: self._prefer(standby, proof))

    def _prefer(self, standby: Connection, proof: object) -> None:
        if self._proving.get(standby) is not proof:
            return
        del self._proving[standby]
        if self._is_preferred(standby):
            self._take_over(standby, "preferred edge uplink activated")

    def _is_preferred(self, standby: Connection) -> bool:
        if self.active is None:
            return False
        fitness, present = _rank(standby)[:2], _rank(self.active)[:2]
        return fitness < present or (fitness == present and _ordinal(standby) > _ordinal(self.active) >= 0)

    def _take_over(self, standby: Connection, message: str) -> None:
        """Change from the active connection, which is open and stays so, to a standby."""
        assert self.active is not None
        self.standbys.remove(standby)
        self._proving.pop(standby, None)
        self.active.active = False
        self.standbys.append(self.active)
        self._activate(standby, message)

    def ranked_standbys(self) -> list[Connection]:
        """Those in reserve, the one that would follow the active connection first."""
        return sorted(self.standbys, key=_rank)

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


def _rank(connection: Connection) -> tuple[bool, int, int]:
    """The least is the best: one that serves its purpose, as far as known, then by cost, then by ordinal."""
    return connection.problem is not None, connection.cost, -_ordinal(connection)


def _ordinal(connection: Connection) -> int:
    return _NO_TLS if connection.tls_ordinal is None else connection.tls_ordinal


def _described(connection: Connection) -> dict[str, object]:
    return {
        "connection": connection.id,
        "peer": connection.name,
        "container": connection.container,
        "cost": connection.cost,
        "tls_ordinal": connection.tls_ordinal,
    }
