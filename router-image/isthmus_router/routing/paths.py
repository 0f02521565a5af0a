"""Shortest paths over the link state database.

Every router of the network computes the same trees from the same database, so ties must be broken alike
everywhere: of two routers at equal cost, the one with the lower id is settled first, and a path is only
replaced by a cheaper one. It follows that the path from a router on the tree to any router below it is the
tail of the tree's path, which is what makes valid origins sufficient against loops and duplicates.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

Graph = Mapping[str, Mapping[str, int]]
"""Router id -> {neighbour's id: cost of the link as that router sees it, at least 1}."""

_UNREACHED = 1 << 60


@dataclass(frozen=True, slots=True)
class Paths:
    """Result of one computation, keyed by router id; unreachable routers and the root itself are absent."""

    next_hop: Mapping[str, str] = field(default_factory=dict)
    """The neighbour through which the shortest path leads."""
    cost: Mapping[str, int] = field(default_factory=dict)
    """Sum of link costs of that path."""
    valid_origins: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Routers whose own shortest path to the destination leads through the root, and the root."""
    radius: int = 0
    """Number of links on the longest path between any two routers."""


def compute_paths(root: str, graph: Graph) -> Generator[None, None, Paths]:
    """Shortest paths from ``root``, and whose lead through it. Runs one Dijkstra per router of ``graph``, one a step.

    A router that others name as their neighbour but that has no link state yet gets an invented link of
    cost 1 back to the lowest of them: it must be reachable, or it could never be asked for its link state.
    """
    complete = _with_invented_links(root, graph)
    ids = sorted(complete)
    number = {router: at for at, router in enumerate(ids)}
    edges = [
        [(number[peer], cost) for peer, cost in complete[router].items() if peer != router] for router in ids
    ]
    me = number[root]

    order, previous, distance, radius = _tree(me, edges)
    next_hop = [me] * len(ids)
    for at in order[1:]:
        next_hop[at] = at if previous[at] == me else next_hop[previous[at]]
    reachable = order[1:]

    origins: dict[int, set[str]] = {at: {root} for at in reachable}
    for origin in range(len(ids)):
        if origin == me:
            continue
        yield
        order, previous, _, hops = _tree(origin, edges)
        radius = max(radius, hops)
        if me not in previous:
            continue
        through_me = bytearray(len(ids))
        through_me[me] = 1
        for at in order[1:]:
            if through_me[previous[at]]:
                through_me[at] = 1
                origins[at].add(ids[origin])

    return Paths(
        next_hop={ids[at]: ids[next_hop[at]] for at in reachable},
        cost={ids[at]: distance[at] for at in reachable},
        valid_origins={ids[at]: frozenset(origins[at]) for at in reachable},
        radius=radius,
    )


def _with_invented_links(root: str, graph: Graph) -> dict[str, Mapping[str, int]]:
    complete: dict[str, Mapping[str, int]] = {root: {}, **graph}
    for router in sorted(graph):
        for peer in graph[router]:
            if peer not in complete:
                complete[peer] = {router: 1}
    return complete


def _tree(root: int, edges: list[list[tuple[int, int]]]) -> tuple[list[int], list[int], list[int], int]:
    """Dijkstra: (routers in the order settled, predecessor of each or -1, cost of each, most hops).

    Costs are small integers and many routers share one, so the queue holds costs, each with its routers.
    """
    distance = [_UNREACHED] * len(edges)
    previous = [-1] * len(edges)
    hops = [-1] * (len(edges) + 1)
    distance[root] = 0
    order: list[int] = []
    waiting: dict[int, list[int]] = {0: [root]}
    costs = [0]
    while costs:
        cost = heapq.heappop(costs)
        routers = waiting.pop(cost)
        routers.sort()
        for router in routers:
            if distance[router] != cost:
                continue
            order.append(router)
            hops[router] = hops[previous[router]] + 1
            for peer, link_cost in edges[router]:
                total = cost + link_cost
                if total < distance[peer]:
                    distance[peer] = total
                    previous[peer] = router
                    if total in waiting:
                        waiting[total].append(peer)
                    else:
                        waiting[total] = [peer]
                        heapq.heappush(costs, total)
    return order, previous, distance, max(hops)
