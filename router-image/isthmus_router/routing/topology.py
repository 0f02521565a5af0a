"""The network as the link states show it, the paths through it, and when these are computed anew."""

from __future__ import annotations

from collections.abc import Mapping

from . import actions as act
from .linkstate import LinkState
from .nodes import RouterTable
from .paths import Graph, Paths, compute_paths
from .timers import Timers

_NEVER = float("inf")

_COMPUTATIONS_AT_SPEED = 16
"""Computations that others may cause at the shortest interval; beyond these, each two more double it."""
_COMPUTATIONS_FORGOTTEN = 2.0
"""Of these, in a second."""
_LONGEST_INTERVAL = 2.0


class Topology:
    """Seen from the router ``router_id``. Times are in seconds."""

    def __init__(self, router_id: str, timers: Timers) -> None:
        self.due = _NEVER
        """When the paths are to be computed; infinity while they are those of the graph."""
        self.computations = 0
        self.graph: Graph = {}
        """What the paths were computed from."""
        self.paths = Paths()
        self._router_id = router_id
        self._timers = timers
        self._last = -_NEVER
        self._recent = 0.0
        """Computations so far, without those that are forgotten."""

    @property
    def settled(self) -> bool:
        """Whether the paths are up to date."""
        return self.due == _NEVER

    def changed_here(self, now: float) -> None:
        """The local link state changed, or another router's is gone: computed at once."""
        self.due = min(self.due, now)

    def changed_elsewhere(self, now: float, routers: int) -> None:
        """Another router reports a change: computed soon, in a network of so many other routers.

        A router that reports changes without end makes the paths be computed ever less often.
        """
        interval = self._timers.path_interval_among(routers)
        excess = self._recent_at(now) - _COMPUTATIONS_AT_SPEED
        if excess > 0:
            interval = max(interval, min(interval * 2.0 ** (excess / 2), _LONGEST_INTERVAL))
        self.due = min(self.due, max(now, self._last + interval))

    def _recent_at(self, now: float) -> float:
        return max(0.0, self._recent - _COMPUTATIONS_FORGOTTEN * (now - self._last)) if self._recent else 0.0

    def compute(self, local: LinkState, nodes: RouterTable, now: float) -> None:
        """Compute the paths from all link states."""
        self.due = _NEVER
        self._recent = self._recent_at(now) + 1
        self._last = now
        self.computations += 1
        graph: dict[str, Mapping[str, int]] = {self._router_id: local.peers}
        for node in nodes:
            if node.link_state is not None:
                # Routers that found no place in the table do not exist.
                graph[node.id] = {
                    peer: cost
                    for peer, cost in node.link_state.peers.items()
                    if peer in nodes or peer == self._router_id
                }
        self.graph = graph
        self.paths = compute_paths(self._router_id, graph)

    def table(self, links: Mapping[str, int], nodes: RouterTable) -> act.RouteTable:
        """The routes along these paths; ``links`` are the control links in use by neighbour.

        A router that has lost its place in ``nodes`` since the paths were computed has no route.
        """
        paths = self.paths
        return act.RouteTable(
            routes={
                router: act.Route(
                    router, links[next_hop], next_hop, paths.cost[router], paths.valid_origins[router]
                )
                for router, next_hop in paths.next_hop.items()
                if router in nodes
            },
            neighbours=links,
            radius=paths.radius,
        )
