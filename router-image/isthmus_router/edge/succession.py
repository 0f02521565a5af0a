"""On the interior: an edge's links on a new connection follow those on its old one, in order.

When an edge changes to another connection (rotated certificates, a preferred way), it attaches its consumers again
there while the old links still have deliveries under way. To deliver on both would mix up their order, and what
waits on an old link would come back when that goes. So the new link takes over from the old one at once.

An edge has one consumer for each address on a connection. Further ones are possible, but only the newest of each
connection has a part in this, so that the cost of an attach does not depend on their number.

Source: `docs/edge.md`.
"""

from __future__ import annotations

from collections.abc import Iterator

from isthmus_router.core.address import Address
from isthmus_router.core.mesh import MOST_CONNECTIONS
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore

AT_ONCE = 16
"""Addresses whose links are compared within one event; more of them in steps."""

_Edge = tuple[str, str | None, bool, str | None]


class Succession:
    """Looks for the predecessor of every consumer that an edge attaches; an observer of the core."""

    def __init__(self, core: RouterCore) -> None:
        self.core = core
        self._connections: dict[_Edge, dict[Connection, None]] = {}
        """Those of each edge that has said to which mesh it belongs."""
        self._edges: dict[Connection, _Edge] = {}
        self._consumers: dict[Connection, dict[Address, Link]] = {}
        """The newest consumer of each address on a connection of an edge."""
        core.observers.append(self)

    def __len__(self) -> int:
        """How many edges are known, each as often as it has meshes."""
        return len(self._connections)

    def link_bound(self, link: Link) -> None:
        """Somebody consumes from an address."""
        connection = link.connection
        if link.incoming or connection.role is not Role.EDGE:
            return
        assert link.address is not None
        self._consumers.setdefault(connection, {})[link.address] = link
        edge = self._edges.get(connection)
        if (
            edge is not None
            and len(self._connections[edge]) > 1
            and (pairs := self._follow(edge, link.address))
        ):
            self.core.port.hand_over(pairs)

    def mesh_known(self, connection: Connection) -> None:
        """The edge has said to which mesh it belongs, maybe after it attached its consumers."""
        self._forget(connection)
        edge = _edge(connection)
        connections = self._connections.setdefault(edge, {})
        if len(connections) >= MOST_CONNECTIONS:  # those of which the mesh became known last are compared
            self._forget(next(iter(connections)))
        self._edges[connection] = edge
        self._connections.setdefault(edge, {})[connection] = None
        if len(self._connections[edge]) > 1:
            job = self._follow_all(edge, connection)
            if next(job, self) is not self:
                self.core.port.work(job)

    def _follow_all(self, edge: _Edge, connection: Connection) -> Iterator[None]:
        """Compare all links of a connection with those on the edge's others."""
        addresses = list(self._consumers.get(connection, ()))
        for at in range(0, len(addresses), AT_ONCE):
            if at:
                yield
            if self._edges.get(connection) != edge:
                return
            pairs = [pair for address in addresses[at : at + AT_ONCE] for pair in self._follow(edge, address)]
            if pairs:
                self.core.port.hand_over(pairs)

    def _follow(self, edge: _Edge, address: Address) -> list[tuple[Link, Link]]:
        """Unbind all consumers of an address on the edge's connections but the newest one, which follows them.

        The older of two predecessors comes last, for what waits on it goes to the front.
        """
        links = []
        for connection in self._connections[edge]:
            link = self._consumers.get(connection, _NONE).get(address)
            if link is not None and link in address.consumers:
                links.append(link)
        if len(links) < 2:
            return []
        links.sort(key=lambda link: link.id, reverse=True)
        newest, *others = links
        for other in others:
            del self._consumers[other.connection][address]
            self.core.unbind_consumer(other)
        return [(other, newest) for other in others]

    def _forget(self, connection: Connection) -> None:
        edge = self._edges.pop(connection, None)
        if edge is not None:
            del self._connections[edge][connection]
            if not self._connections[edge]:
                del self._connections[edge]

    def connection_closed(self, connection: Connection) -> None:
        """It is nobody's any more."""
        self._forget(connection)
        self._consumers.pop(connection, None)

    def link_unbound(self, link: Link) -> None:
        """It consumes no longer."""
        consumers = self._consumers.get(link.connection)
        if consumers is not None and link.address is not None and consumers.get(link.address) is link:
            del consumers[link.address]

    def connection_opened(self, connection: Connection) -> None:
        """Observer interface: nothing to do."""

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        """Observer interface: nothing to do."""


_NONE: dict[Address, Link] = {}


def _edge(connection: Connection) -> _Edge:
    """What is the same for connections of one edge, and for no others (`Connection.is_of_same_edge`)."""
    proven = connection.mesh_id == connection.proven_mesh_id
    return connection.container, connection.mesh_id, proven, None if proven else connection.user
