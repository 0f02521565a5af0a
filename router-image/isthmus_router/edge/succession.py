"""On the interior: an edge's links on a new connection follow those on its old one, in order.

When an edge changes to another connection (rotated certificates, a preferred way), it attaches its consumers again
there while the old links still have deliveries under way. To deliver on both would mix up their order, and what
waits on an old link would come back when that goes. So the new link takes over from the old one at once.

Source: `docs/edge.md`.
"""

from __future__ import annotations

from isthmus_router.core.model import Connection, Link
from isthmus_router.core.router import RouterCore


class Succession:
    """Looks for the predecessor of every consumer that an edge attaches; an observer of the core."""

    def __init__(self, core: RouterCore) -> None:
        self.core = core
        self._connections: dict[tuple[str, str | None], set[Connection]] = {}
        """Those of each edge that has said to which mesh it belongs."""
        self._edges: dict[Connection, tuple[str, str | None]] = {}
        core.observers.append(self)

    def __len__(self) -> int:
        """How many edges are known, each as often as it has meshes."""
        return len(self._connections)

    def link_bound(self, link: Link) -> None:
        """Somebody consumes from an address."""
        if not link.incoming and len(self._connections.get(_edge(link.connection), ())) > 1:
            self._succeed(link)

    def mesh_known(self, connection: Connection) -> None:
        """The edge has said to which mesh it belongs, maybe after it attached its consumers."""
        self.connection_closed(connection)
        edge = self._edges[connection] = _edge(connection)
        connections = self._connections.setdefault(edge, set())
        connections.add(connection)
        if len(connections) > 1:
            for link in list(connection.links):
                if not link.incoming and link.address is not None and link in link.address.consumers:
                    self._succeed(link)

    def _succeed(self, link: Link) -> None:
        assert link.address is not None
        for other in list(link.address.consumers):
            if (
                other.id < link.id
                and other.connection is not link.connection
                and other.connection.is_of_same_edge(link.connection)
            ):
                self.core.unbind_consumer(other)
                self.core.port.hand_over([(other, link)])

    def connection_closed(self, connection: Connection) -> None:
        """It is nobody's any more."""
        edge = self._edges.pop(connection, None)
        if edge is not None:
            self._connections[edge].discard(connection)
            if not self._connections[edge]:
                del self._connections[edge]

    def connection_opened(self, connection: Connection) -> None:
        """Observer interface: nothing to do."""

    def link_unbound(self, link: Link) -> None:
        """Observer interface: nothing to do."""

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        """Observer interface: nothing to do."""


def _edge(connection: Connection) -> tuple[str, str | None]:
    """What tells an edge from others; those that share an id by mistake differ in their mesh."""
    return connection.container, connection.mesh_id
