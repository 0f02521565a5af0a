"""Which events of the routing engine are recorded, and as what."""

from __future__ import annotations

from isthmus_router.flows.recorder import Recorder
from isthmus_router.flows.records import Attr
from isthmus_router.routing import actions as act


def record_topology(recorder: Recorder, action: act.Action) -> None:
    """Record what the routing engine reports, if it is about the shape of the network."""
    match action:
        case act.NeighbourUp(router):
            recorder.topology("neighbour-up", router, {})
        case act.NeighbourMoved(router):
            recorder.topology("neighbour-moved", router, {})
        case act.NeighbourLost(router, _, reason):
            recorder.topology("neighbour-lost", router, {Attr.REASON: reason})
        case act.RouterAdded(router):
            recorder.topology("router-added", router, {})
        case act.RouterRemoved(router):
            recorder.topology("router-removed", router, {})
        case act.RouterRestarted(router):
            recorder.topology("router-restarted", router, {})
        case act.LinkStateExpired(router):
            recorder.topology("router-unheard", router, {})
        case act.RoutesChanged(table):
            recorder.topology("paths-computed", None, {Attr.LINK_COUNT: len(table.routes)})
