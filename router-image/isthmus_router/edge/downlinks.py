"""On the interior: what else an edge attaches there, the downlink for messages to the edge itself, and its mesh id.

The downlink consumes from the key `H<edge id>`, to which `_edge/<edge id>/...` leads from all over the network. An edge
has the id of its container. An id that another user holds stays with that user: the downlink of the second edge waits
until the first edge is gone, unless both are one that has proven its mesh (after a rotation).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection

from isthmus_router.core.address import AddressClass, normalise
from isthmus_router.core.mesh import MOST_CONNECTIONS
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.roles import Role
from isthmus_router.core.router import FORBIDDEN, NO_ROUTE, RouterCore
from isthmus_router.core.terms import CAPABILITY_EDGE_DOWNLINK, Condition, LinkType
from isthmus_router.edge.messages import MESH_DISCOVERY_ADDRESS, EdgeMessageError, decode_mesh_announcement
from isthmus_router.edge.namesakes import Namesakes
from isthmus_router.edge.succession import Succession

log = logging.getLogger("ROUTER_CORE")

MESH_DISCOVERY_CREDIT = 3
MOST_MESHES = 100
"""To which an edge may say that it belongs, one after another, on a connection: each one changes routes."""
MOST_DOWNLINKS = 8
"""Of one connection. An edge uses one; while it changes from one uplink to another and back, older ones finish."""
TOO_MANY_CONNECTIONS = Condition(
    "amqp:resource-limit-exceeded", f"An edge has at most {MOST_CONNECTIONS} connections with downlinks"
)
TOO_MANY = Condition("amqp:not-allowed", f"A connection has at most {MOST_DOWNLINKS} downlinks")
OTHER_ID = Condition("amqp:not-allowed", "The id of an edge is the container id of its connection")
OF_ANOTHER_USER = (
    "an edge has the id of an edge of another user: it gets no messages by that id; give it an id of its own"
)
NO_DISCOVERY = Condition("qd:connection-role", "Connection does not support mesh discovery")


class Downlinks:
    """Takes downlinks and mesh announcements on the edge connections of an interior."""

    def __init__(self, core: RouterCore, namesakes: Namesakes, succession: Succession) -> None:
        self.core = core
        self.succession = succession
        self.invalid_announcements = 0
        self._namesakes = namesakes
        self._waiting: dict[str, dict[Connection, Link]] = {}
        """By id: downlinks for ids that other users hold."""
        self._downlinks: Counter[Connection] = Counter()
        """How many a connection has, those that wait included."""
        self._meshes: Counter[Connection] = Counter()
        """How often the mesh of a connection has changed."""
        core.observers.append(self)
        core.link_handlers.append(self._take_link)

    def _take_link(self, link: Link) -> bool:
        if link.incoming:
            address = link.target.address
            if address is not None and normalise(address) == MESH_DISCOVERY_ADDRESS:
                self._take_discovery(link)
                return True
        elif CAPABILITY_EDGE_DOWNLINK in link.source.capabilities and link.connection.role is Role.EDGE:
            self._take_downlink(link)
            return True
        return False

    def _take_downlink(self, link: Link) -> None:
        edge_id = link.source.address
        if not edge_id:
            self.core.refuse(link, NO_ROUTE)
        elif self.core.edge:
            self.core.refuse(link, FORBIDDEN)
        elif edge_id != link.connection.container:
            self.core.refuse(link, OTHER_ID)
        elif self._downlinks[link.connection] >= MOST_DOWNLINKS:
            self.core.refuse(link, TOO_MANY)
        elif not self._has_room(link.connection, held := self._is_held(link.connection)):
            self.core.refuse(link, TOO_MANY_CONNECTIONS)
        else:
            link.type = LinkType.EDGE_DOWNLINK
            link.note_standing()
            self._downlinks[link.connection] += 1
            self.core.port.accept_link(link, link.source, link.target)
            if held:
                self._waiting.setdefault(edge_id, {})[link.connection] = link
                details = {"id": edge_id, "connection": link.connection.id, "user": link.connection.user}
                log.error(OF_ANOTHER_USER, extra=details)
                link.connection.problem = OF_ANOTHER_USER
            else:
                self._bind(link)

    def _bind(self, link: Link) -> None:
        key = AddressClass.EDGE + link.connection.container
        self.core.bind_consumer(link, self.core.addresses.obtain(key))
        self._namesakes.watch(link)

    def _holders(self, edge_id: str) -> Collection[Connection]:
        """The connections that have this id."""
        address = self.core.addresses.get(AddressClass.EDGE + edge_id)
        return () if address is None else address.edges.keys()

    def _has_room(self, connection: Connection, held: bool) -> bool:
        """Whether it may be one more of the connections of its user that have its id, or wait for it if it is held."""
        edge_id = connection.container
        group = self._waiting.get(edge_id, {}) if held else self._holders(edge_id)
        return connection in group or sum(item.user == connection.user for item in group) < MOST_CONNECTIONS

    def _is_held(self, connection: Connection) -> bool:
        """Whether another user, who is not this edge on another connection, has the id."""
        return any(
            other.user != connection.user and not connection.is_of_same_edge(other)
            for other in self._holders(connection.container)
        )

    def _look_again(self, connection: Connection) -> None:
        waiting = self._waiting.get(connection.container, {})
        link = waiting.get(connection)
        if link is not None and not self._is_held(connection):
            self._remove_waiting(link)
            if connection.problem == OF_ANOTHER_USER:
                connection.problem = None
            self._bind(link)

    def link_unbound(self, link: Link) -> None:
        """A downlink is gone: one that waits, or one that others wait for."""
        if link.type is not LinkType.EDGE_DOWNLINK:
            return
        self._downlinks[link.connection] -= 1
        if not self._downlinks[link.connection]:
            del self._downlinks[link.connection]
        self._namesakes.forget(link)
        waiting = self._waiting.get(link.connection.container, {})
        if waiting.get(link.connection) is link:
            self._remove_waiting(link)
        for connection in list(waiting):
            self._look_again(connection)

    def _remove_waiting(self, link: Link) -> None:
        waiting = self._waiting[link.connection.container]
        del waiting[link.connection]
        if not waiting:
            del self._waiting[link.connection.container]

    def link_bound(self, link: Link) -> None:
        """Observer interface: nothing to do."""

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        """Observer interface: nothing to do."""

    def connection_opened(self, connection: Connection) -> None:
        """No link of an edge that proves its mesh at once is bound without that knowledge."""
        if connection.proven_mesh_id is not None:
            self._learn_mesh(connection, connection.proven_mesh_id)

    def connection_closed(self, connection: Connection) -> None:
        """Its links were unbound before."""
        self._meshes.pop(connection, None)

    def _take_discovery(self, link: Link) -> None:
        if link.connection.role is not Role.EDGE:
            self.core.refuse(link, NO_DISCOVERY)
            return
        link.set_capacity(MESH_DISCOVERY_CREDIT)
        link.on_delivery = self._on_announcement
        self.core.port.accept_link(link, link.source, link.target)
        self.core.port.top_up(link)

    def _on_announcement(self, link: Link, payload: bytes) -> None:
        try:
            mesh_id = decode_mesh_announcement(payload)
            if mesh_id == link.connection.mesh_id:
                return
            if self._meshes[link.connection] >= MOST_MESHES:
                raise EdgeMessageError(f"the mesh has changed {MOST_MESHES} times on this connection")
            self._meshes[link.connection] += 1
        except EdgeMessageError as error:
            if not self.invalid_announcements:
                details = {"connection": link.connection.id, "reason": str(error)}
                log.warning("mesh announcement ignored", extra=details)
            self.invalid_announcements += 1
            return
        self._learn_mesh(link.connection, mesh_id)

    def _learn_mesh(self, connection: Connection, mesh_id: str) -> None:
        self.core.set_mesh_id(connection, mesh_id)
        self._look_again(connection)
        self.succession.mesh_known(connection)
        self._namesakes.look(connection)
