"""The network as the link states show it, the paths through it, and when these are computed anew."""

from __future__ import annotations

from collections.abc import Generator, Mapping

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
_MOST_DOUBLINGS = 30
_LONGEST_INTERVAL = 2.0
_LONGEST_INTERVAL_HERE = 0.5
"""Between computations because of changes here."""
_LINKS_IN_A_STEP = 4_000
"""Links that are looked at in a step of a computation, in all its trees."""


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
        self._computation: Generator[None, None, Paths] | None = None
        self._trees_in_a_step = 1

    @property
    def settled(self) -> bool:
        """Whether the paths are up to date."""
        return self.due == _NEVER and self._computation is None

    @property
    def is_computing(self) -> bool:
        """Whether the paths are being computed, of the graph as it was at the beginning."""
        return self._computation is not None

    def changed_here(self, now: float) -> None:
        """The local link state changed, or another router's is gone: computed at once.

        A neighbour whose link comes and goes without end makes the paths be computed less often.
        """
        interval = self._lengthened(self._timers.path_interval, _LONGEST_INTERVAL_HERE, now)
        self.due = min(self.due, now if interval is None else max(now, self._last + interval))

    def changed_elsewhere(self, now: float, routers: int) -> None:
        """Another router reports a change: computed soon, in a network of so many other routers.

        A router that reports changes without end makes the paths be computed ever less often.
        """
        interval = self._timers.path_interval_among(routers)
        longer = self._lengthened(interval, _LONGEST_INTERVAL, now)
        if longer is not None:
            interval = max(interval, longer)
        self.due = min(self.due, max(now, self._last + interval))

    def _lengthened(self, interval: float, longest: float, now: float) -> float | None:
        """An interval after very many computations, up to `longest`. None: there were few of late."""
        excess = self._recent_at(now) - _COMPUTATIONS_AT_SPEED
        return min(interval * 2.0 ** min(excess / 2, _MOST_DOUBLINGS), longest) if excess > 0 else None

    def _recent_at(self, now: float) -> float:
        return max(0.0, self._recent - _COMPUTATIONS_FORGOTTEN * (now - self._last)) if self._recent else 0.0

    def begin(self, local: LinkState, nodes: RouterTable, now: float) -> None:
        """Begin to compute the paths from all link states; `go_on` does it."""
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
        self._computation = compute_paths(self._router_id, graph)
        links = sum(len(peers) for peers in graph.values())
        self._trees_in_a_step = max(1, _LINKS_IN_A_STEP // max(links, 1))

    def go_on(self) -> bool:
        """Compute for a step, of at most some milliseconds. Returns whether the paths are those of the graph now."""
        assert self._computation is not None
        try:
            for _ in range(self._trees_in_a_step):
                next(self._computation)
        except StopIteration as end:
            self.paths = end.value
            self._computation = None
            return True
        return False

    def table(self, links: Mapping[str, int], nodes: RouterTable) -> act.RouteTable:
        """The routes along these paths; ``links`` are the control links in use by neighbour.

        A router that has lost its place in ``nodes`` since the paths were computed has no route, and none leads through
        a neighbour that was lost since.
        """
        paths = self.paths
        return act.RouteTable(
            routes={
                router: act.Route(
                    router, links[next_hop], next_hop, paths.cost[router], paths.valid_origins[router]
                )
                for router, next_hop in paths.next_hop.items()
                if router in nodes and next_hop in links
            },
            neighbours=links,
            radius=paths.radius,
        )
