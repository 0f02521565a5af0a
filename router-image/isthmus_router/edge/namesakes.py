"""Edges that have the id of another router: each gets part of what is meant for the other, so they are told of.

Source: `docs/edge.md`; the mesh id by which an edge tells its own connections from others' is that of the
skupper-router family.
"""

from __future__ import annotations

import logging

from isthmus_router.core.model import Connection, Link
from isthmus_router.core.port import CallLater
from isthmus_router.core.router import RouterCore

log = logging.getLogger("ROUTER_CORE")

MOVING_SECONDS = 30.0
"""By then the interior from which an edge has come knows that it is gone, even by an idle timeout."""
OF_ANOTHER_EDGE = (
    "two edges have the same id: each gets part of the other's messages; give each an id of its own"
)
OF_AN_INTERIOR = (
    "an edge has the id of an interior router: what is meant for it does not always arrive; "
    "give it an id of its own"
)


class Namesakes:
    """Looks for them whenever an edge attaches to this interior or says to which mesh it belongs."""

    def __init__(self, core: RouterCore, call_later: CallLater) -> None:
        self.core = core
        self.duplicate_ids = 0
        self._call_later = call_later
        self._looking_again: set[Connection] = set()
        self._downlinks: dict[Connection, dict[Link, None]] = {}
        """Those that are bound, the newest last; all of a connection have one address."""

    def watch(self, downlink: Link) -> None:
        """Look for namesakes as soon as the edge's mesh is known, at the latest when it should have been told."""
        connection = downlink.connection
        assert downlink.address is not None
        self._downlinks.setdefault(connection, {})[downlink] = None
        if downlink.address.name in {self.core.id, *self.core.nodes}:
            self._tell(downlink, OF_AN_INTERIOR)
        if connection.mesh_id is not None:
            self.look(connection)
        if connection not in self._looking_again:
            self._looking_again.add(connection)
            self._call_later(MOVING_SECONDS, lambda: self._look_again(connection))

    def forget(self, downlink: Link) -> None:
        """The downlink is gone."""
        downlinks = self._downlinks.get(downlink.connection)
        if downlinks is not None and downlink in downlinks:
            del downlinks[downlink]
            if not downlinks:
                del self._downlinks[downlink.connection]

    def _look_again(self, connection: Connection) -> None:
        self._looking_again.discard(connection)
        if connection.mesh_id is None:
            self.look(connection)
        downlink = self._newest_downlink(connection)
        # An edge that moved here was announced by its former interior for a while; a namesake is for good.
        if downlink is not None and downlink.address is not None and downlink.address.remotes:
            others = sorted(node.id for node in downlink.address.remotes)
            self._tell(downlink, OF_ANOTHER_EDGE, other_routers=others)

    def look(self, connection: Connection) -> None:
        """Two connections of one edge are in the same mesh; two edges of the same id are not."""
        downlink = self._newest_downlink(connection)
        if downlink is None or downlink.address is None or connection.problem is not None:
            return
        for other in downlink.address.edges:
            if other.mesh_id not in {None, connection.mesh_id}:
                self._tell(downlink, OF_ANOTHER_EDGE, other_connection=other.id, other_peer=other.name)
                break

    def _newest_downlink(self, connection: Connection) -> Link | None:
        return next(reversed(self._downlinks.get(connection, {})), None)

    def _tell(self, downlink: Link, message: str, **where: object) -> None:
        connection = downlink.connection
        if connection.problem is not None:
            return
        assert downlink.address is not None
        connection.problem = message
        self.duplicate_ids += 1
        details = {"id": downlink.address.name, "connection": connection.id, "peer": connection.name}
        log.error(message, extra={**details, **where})
