"""On the interior: what else an edge attaches there, the downlink for messages to the edge itself, and its mesh id.

The downlink consumes from the key `H<edge id>`, to which `_edge/<edge id>/...` leads from all over the network.
"""

from __future__ import annotations

import logging

from isthmus_router.core.address import AddressClass, normalise
from isthmus_router.core.model import CAPABILITY_EDGE_DOWNLINK, Address, Condition, Connection, Link, LinkType
from isthmus_router.core.port import CallLater
from isthmus_router.core.roles import Role
from isthmus_router.core.router import FORBIDDEN, NO_ROUTE, RouterCore
from isthmus_router.edge.messages import MESH_DISCOVERY_ADDRESS, EdgeMessageError, decode_mesh_announcement

log = logging.getLogger("ROUTER_CORE")

MESH_DISCOVERY_CREDIT = 3
MOVING_SECONDS = 30.0
"""By then the interior from which an edge has come knows that it is gone, even by an idle timeout."""
OF_ANOTHER_EDGE = "two edges have the same id: each gets part of the other's messages"
OF_AN_INTERIOR = "an edge has the id of an interior router: what is meant for it does not always arrive"
NO_DISCOVERY = Condition("qd:connection-role", "Connection does not support mesh discovery")


class Downlinks:
    """Takes downlinks and mesh announcements on the edge connections of an interior."""

    def __init__(self, core: RouterCore, call_later: CallLater) -> None:
        self.core = core
        self._call_later = call_later
        self.invalid_announcements = 0
        self.duplicate_ids = 0
        self._looking_again: set[Connection] = set()
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
        else:
            link.type = LinkType.EDGE_DOWNLINK
            self.core.port.accept_link(link, link.source, link.target)
            self.core.bind_consumer(link, self.core.address_for(AddressClass.EDGE + edge_id))
            self._watch(link)

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
        except EdgeMessageError as error:
            if not self.invalid_announcements:
                details = {"connection": link.connection.id, "reason": str(error)}
                log.warning("mesh announcement ignored", extra=details)
            self.invalid_announcements += 1
            return
        self.core.set_mesh_id(link.connection, mesh_id)
        self._look_for_namesakes(link.connection)

    # Namesakes

    def _watch(self, downlink: Link) -> None:
        """Look for namesakes as soon as the edge's mesh is known, at the latest when it should have been told."""
        connection = downlink.connection
        assert downlink.address is not None
        if downlink.address.name in {self.core.id, *self.core.nodes}:
            self._tell(downlink, OF_AN_INTERIOR)
        if connection.mesh_id is not None:
            self._look_for_namesakes(connection)
        if connection not in self._looking_again:
            self._looking_again.add(connection)
            self._call_later(MOVING_SECONDS, lambda: self._look_again(connection))

    def _look_again(self, connection: Connection) -> None:
        self._looking_again.discard(connection)
        if connection.mesh_id is None:
            self._look_for_namesakes(connection)
        for downlink, address in _downlinks(connection):
            # An edge that moved here was announced by its former interior for a while; a namesake is for good.
            if address.remotes:
                self._tell(
                    downlink, OF_ANOTHER_EDGE, other_routers=sorted(node.id for node in address.remotes)
                )

    def _look_for_namesakes(self, connection: Connection) -> None:
        """Two connections of one edge are in the same mesh; two edges of the same id are not."""
        for downlink, address in _downlinks(connection):
            for other in address.consumers:
                if other.connection.mesh_id not in {None, connection.mesh_id}:
                    self._tell(
                        downlink,
                        OF_ANOTHER_EDGE,
                        other_connection=other.connection.id,
                        other_peer=other.connection.name,
                    )
                    break

    def _tell(self, downlink: Link, message: str, **where: object) -> None:
        connection = downlink.connection
        if connection.problem is not None:
            return
        assert downlink.address is not None
        connection.problem = message
        self.duplicate_ids += 1
        details = {"id": downlink.address.name, "connection": connection.id, "peer": connection.name}
        log.error(message, extra={**details, **where})


def _downlinks(connection: Connection) -> list[tuple[Link, Address]]:
    """The downlinks of a connection, each with its address."""
    return [
        (link, link.address)
        for link in connection.links
        if link.type is LinkType.EDGE_DOWNLINK and link.address is not None
    ]
