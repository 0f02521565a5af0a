"""The management view of the network: one row per known router."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .actions import RouteTable
from .linkstate import LinkState
from .messages import ROUTER_VERSION
from .nodes import RouterNode


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One row. The first row is this router, with index 0."""

    id: str
    index: int
    """Mask bit."""
    version: int
    """Protocol version; 0 while unknown."""
    instance: int
    """0 while unknown."""
    link_state: tuple[str, ...]
    """Its neighbours, as the paths were computed."""
    next_hop: str | None
    """None if it is a neighbour, this router itself, or unreachable."""
    link: int | None
    """Control link in use, for a neighbour."""
    cost: int | None
    """None for this router and unreachable ones."""
    valid_origins: tuple[str, ...]
    last_topology_change: float
    """On the engine's clock; for this router, of the whole network."""
    reachable: bool


def own_row(local: LinkState, instance: int, last_topology_change: float) -> NodeInfo:
    """The row of this router itself."""
    return NodeInfo(
        id=local.router,
        index=0,
        version=ROUTER_VERSION,
        instance=instance,
        link_state=tuple(sorted(local.peers)),
        next_hop=None,
        link=None,
        cost=None,
        valid_origins=(),
        last_topology_change=last_topology_change,
        reachable=True,
    )


def other_rows(
    nodes: Iterable[RouterNode], table: RouteTable, graph: Mapping[str, Mapping[str, int]]
) -> list[NodeInfo]:
    """The rows of all other known routers, by mask bit; `graph` is what the paths were computed from."""
    return [
        _row(node, table, tuple(sorted(graph.get(node.id, ()))))
        for node in sorted(nodes, key=lambda node: node.index)
    ]


def _row(node: RouterNode, table: RouteTable, link_state: tuple[str, ...]) -> NodeInfo:
    route = table.routes.get(node.id)
    return NodeInfo(
        id=node.id,
        index=node.index,
        version=node.version,
        instance=node.instance or 0,
        link_state=link_state,
        next_hop=route.next_hop if route and route.next_hop != node.id else None,
        link=table.neighbours.get(node.id),
        cost=route.cost if route else None,
        valid_origins=tuple(sorted(route.valid_origins)) if route else (),
        last_topology_change=node.last_topology_change,
        reachable=route is not None,
    )
