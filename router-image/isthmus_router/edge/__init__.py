"""Edge routers: how their clients take part in the network, on the edge's side and on the interior's.

`install_edge` for a router of mode edge, `install_tracking` for one of mode interior.
``docs/edge.md`` has the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass

from isthmus_router.core.model import Connection
from isthmus_router.core.port import CallLater
from isthmus_router.core.router import RouterCore
from isthmus_router.edge.address_proxy import AddressProxy
from isthmus_router.edge.connection_manager import ConnectionManager
from isthmus_router.edge.downlinks import Downlinks
from isthmus_router.edge.namesakes import Namesakes
from isthmus_router.edge.succession import Succession
from isthmus_router.edge.tracking import AddressTracking


@dataclass(frozen=True, slots=True)
class EdgeSide:
    """The systems of an edge router."""

    connections: ConnectionManager
    proxy: AddressProxy


@dataclass(frozen=True, slots=True)
class InteriorSide:
    """The systems of an interior router that edges attach to."""

    tracking: AddressTracking
    downlinks: Downlinks
    namesakes: Namesakes


def install_edge(core: RouterCore, call_later: CallLater) -> EdgeSide:
    """Make `core` an edge router's: connections of role edge that it opens become its uplinks."""
    proxy = AddressProxy(core, call_later)
    manager = ConnectionManager(proxy, call_later)
    proxy.on_fitness_changed = manager.preference_changed
    core.observers.append(manager)

    def lost(connection: Connection) -> None:
        proxy.connection_closed(connection)
        manager.connection_closed(connection)

    core.lost.append(lost)
    return EdgeSide(manager, proxy)


def install_tracking(core: RouterCore, call_later: CallLater) -> InteriorSide:
    """Let edges attach to `core`, an interior router's."""
    namesakes = Namesakes(core, call_later)
    return InteriorSide(AddressTracking(core), Downlinks(core, namesakes, Succession(core)), namesakes)
