"""On the interior: what else an edge attaches there, the downlink for messages to the edge itself, and its mesh id.

The downlink consumes from the key `H<edge id>`, to which `_edge/<edge id>/...` leads from all over the network.
"""

from __future__ import annotations

import logging

from isthmus_router.core.address import AddressClass, normalise
from isthmus_router.core.model import Link
from isthmus_router.core.roles import Role
from isthmus_router.core.router import FORBIDDEN, NO_ROUTE, RouterCore
from isthmus_router.core.terms import CAPABILITY_EDGE_DOWNLINK, Condition, LinkType
from isthmus_router.edge.messages import MESH_DISCOVERY_ADDRESS, EdgeMessageError, decode_mesh_announcement
from isthmus_router.edge.namesakes import Namesakes
from isthmus_router.edge.succession import Succession

log = logging.getLogger("ROUTER_CORE")

MESH_DISCOVERY_CREDIT = 3
NO_DISCOVERY = Condition("qd:connection-role", "Connection does not support mesh discovery")


class Downlinks:
    """Takes downlinks and mesh announcements on the edge connections of an interior."""

    def __init__(self, core: RouterCore, namesakes: Namesakes, succession: Succession) -> None:
        self.core = core
        self._succession = succession
        self.invalid_announcements = 0
        self._namesakes = namesakes
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
            self.core.bind_consumer(link, self.core.addresses.obtain(AddressClass.EDGE + edge_id))
            self._namesakes.watch(link)

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
        self._succession.mesh_known(link.connection)
        self._namesakes.look(link.connection)
