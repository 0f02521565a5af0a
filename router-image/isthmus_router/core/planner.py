"""The decision behind a route: who may receive what comes from where.

Source: docs/architecture.md; distributions, valid origins and echo rules as in the skupper-router family.
"""

from __future__ import annotations

from collections.abc import Collection

from isthmus_router.core.address import Address, AddressClass, SettlingConsumer
from isthmus_router.core.model import Link
from isthmus_router.core.nodes import Hop, PathLoad, RouterNode
from isthmus_router.core.roles import Role
from isthmus_router.core.routes import ONE_OF_THE_SINKS, Route, RouteKind, Sink
from isthmus_router.core.terms import CAPABILITY_STREAMING_DELIVERIES
from isthmus_router.core.treatment import Treatment
from isthmus_router.message.sections import (
    FLAG_RESEND_RELEASED,
    FLAG_STREAMING,
    RouterAnnotations,
    encode_annotations,
)

MOST_SPELLINGS = 1000
"""Of the name of an address in targets; senders that spell it otherwise have a route for each link."""
UNKNOWN_ROUTES = 10_000
"""Destinations without an address that are remembered as such."""


class RoutePlanner:
    """Makes routes from the state of the core; the address a route belongs to makes it invalid again."""

    def __init__(self, router_id: str, *, edge: bool, mesh_id: str | None) -> None:
        self.id = router_id
        self.name = f"0/{router_id}"
        """Full name, as ingress and trace carry it."""
        self.edge = edge
        self.mesh_id = mesh_id
        self.nodes: dict[str, RouterNode] = {}
        """Other interior routers by id."""
        self.uplink: Link | None = None
        """On an edge: the anonymous OUT link that takes what has no destination here."""
        self.unknown = Address("", Treatment.UNAVAILABLE)
        """Owner of routes to keys without an address; they become invalid when any address is created."""

    def plan(
        self, address: Address | None, origin: Link | None, annotations: RouterAnnotations | None = None
    ) -> Route:
        """Decide where deliveries to `address` go that come from `origin` with these annotations."""
        from_router = origin is not None and origin.connection.role.is_between_routers
        if address is None or origin is None or from_router or annotations is not None:
            return self._decide(address, origin, annotations)
        # What is decided for one client's sender holds for all with the same target that ask for the same.
        target = origin.target.address if origin.address is not None else None
        key = target, origin.resends, CAPABILITY_STREAMING_DELIVERIES in origin.target.capabilities
        route = address.client_routes.get(key)
        if route is None:
            route = self._decide(address, origin, None)
            if len(address.client_routes) < MOST_SPELLINGS:
                route.shared = True
                address.client_routes[key] = route
        return route

    def _decide(
        self, address: Address | None, origin: Link | None, annotations: RouterAnnotations | None
    ) -> Route:
        resends = _resends(address, origin, annotations)
        prefix = self.prefix(origin, annotations, resends=resends)
        if address is None:
            return self._fallback(self.unknown, origin, prefix)
        consumer = address.handler
        if consumer is not None and consumer.takes_from(origin):
            route = Route(RouteKind.IN_PROCESS, address, [], prefix, handler=consumer)
        else:
            links = self._links(address, origin, annotations)
            if consumer is not None:
                links = [link for link in links if link.proxy]
            paths = self.paths(address, origin, annotations)
            if self._also_uplink(address, origin, links):
                assert self.uplink is not None
                links.append(self.uplink)
            route = self._distribute(address, links, paths, prefix)
        if route.kind is RouteKind.NONE:
            return self._fallback(address, origin, prefix)
        route.from_interior = origin is not None and origin.connection.role.is_between_interiors
        if route.kind is RouteKind.BALANCE:
            missing = len(address.consumers) + len(address.loads) - len(route.sinks)
            # From another interior router, the paths back to it are missing.
            if not missing and not (route.from_interior and address.remotes):
                route.make_whole()
        elif route.kind is RouteKind.ROTATE and isinstance(route.sinks[0], Link):
            takers = [link for link in address.consumers if not link.proxy] or address.consumers
            if len(route.sinks) == len(takers):
                route.make_whole()
        if route.kind in ONE_OF_THE_SINKS and (
            resends or any(sink.__class__ is Link and sink.max_message_size for sink in route.sinks)
        ):
            route.make_selective(resends=resends)
        return self._owned(route, address)

    def _links(
        self, address: Address, origin: Link | None, annotations: RouterAnnotations | None
    ) -> list[Link]:
        """The consumers that are attached here and may have what comes from `origin`."""
        return [link for link in address.consumers if _may_receive(link, origin, annotations, edge=self.edge)]

    def farther(
        self,
        address: Address,
        origin: Link,
        annotations: RouterAnnotations | None,
        size: int,
        tried: Collection[Sink],
    ) -> Route | None:
        """For one delivery of `size` bytes that has been released by all who come into question at first.

        To a `closest` address it goes to the nearest of the others; from an edge to what is beyond, at last. None
        without any.
        """
        prefix = self.prefix(origin, annotations, resends=True)
        if address.treatment is Treatment.CLOSEST:
            links = [
                link
                for link in self._links(address, origin, annotations)
                if link not in tried and not 0 < link.max_message_size < size
            ]
            paths = self.paths(address, origin, annotations)
            left = {hop: cost for hop, cost in paths.items() if hop not in tried}
            route = self._distribute(address, links, left, prefix)
            if route.kind is not RouteKind.NONE:
                return route
        uplink = self._uplink_for(address, origin)
        if uplink is None or uplink in tried:
            return None
        return Route(RouteKind.SINGLE, address, [uplink], prefix)

    def _distribute(self, address: Address, links: list[Link], paths: dict[Hop, int], prefix: bytes) -> Route:
        sinks: list[Sink]
        if address.treatment in {Treatment.MULTICAST, Treatment.FLOOD}:
            sinks = [*links, *paths]
            return Route(RouteKind.MULTICAST if sinks else RouteKind.NONE, address, sinks, prefix)
        if address.treatment is Treatment.CLOSEST or address.key[0] == AddressClass.ROUTER:
            near = [link for link in links if not link.proxy] or links
            if near:
                sinks = list(near)
            else:
                least = min(paths.values(), default=0)
                sinks = [hop for hop, cost in paths.items() if cost == least]
            kind = (RouteKind.NONE, RouteKind.SINGLE, RouteKind.ROTATE)[min(len(sinks), 2)]
            return Route(kind, address, sinks, prefix)
        sinks = [*links, *paths]
        if len(sinks) < 2:
            return Route(RouteKind.SINGLE if sinks else RouteKind.NONE, address, sinks, prefix)
        loads: list[PathLoad | None] = [None] * len(links)
        known = address.loads
        address.loads = {
            hop: known.get(hop) or PathLoad(cost, address.balance) for hop, cost in paths.items()
        }
        for hop, cost in paths.items():
            address.loads[hop].cost = cost
        loads += address.loads.values()
        return Route(RouteKind.BALANCE, address, sinks, prefix, loads=loads)

    def paths(
        self, address: Address, origin: Link | None, annotations: RouterAnnotations | None
    ) -> dict[Hop, int]:
        """Hops towards the routers that announced the address, with the least cost behind each.

        A router is a destination only for messages whose ingress router is among its valid origins, unless
        the message is addressed to that very router (then the trace alone ends a loop); for a multicast, routers
        the message has passed are left out too.
        """
        ingress = None
        passed: set[str] = set()
        if annotations is not None:
            ingress = router_of(annotations.ingress) if annotations.ingress else None
            passed = {router_of(router) for router in annotations.trace}
        topological = address.key[0] == AddressClass.TOPOLOGICAL
        multicast = topological or address.treatment in {Treatment.MULTICAST, Treatment.FLOOD}
        paths: dict[Hop, int] = {}
        for node in self.nodes.values() if topological else address.remotes:
            hop = node.hop
            if hop is None or (origin is not None and hop is origin.connection.hop):
                continue
            if (
                address.key[0] != AddressClass.ROUTER
                and ingress not in (None, self.id)
                and ingress not in node.valid_origins
                and (multicast or ingress in self.nodes)
            ):
                continue
            if multicast and hop.neighbour in passed:
                continue
            cost = paths.get(hop)
            if cost is None or node.cost < cost:
                paths[hop] = node.cost
        return paths

    def _also_uplink(self, address: Address, origin: Link | None, links: list[Link]) -> bool:
        """On an edge: whether a multicast needs the uplink besides `links`, for lack of a proxy link."""
        return (
            self.uplink is not None
            and address.treatment in {Treatment.MULTICAST, Treatment.FLOOD}
            and bool(links)
            and not any(link.proxy for link in links)
            and (origin is None or (origin.address is None and origin.connection.role is not Role.EDGE))
        )

    def _fallback(self, address: Address, origin: Link | None, prefix: bytes) -> Route:
        """Nobody here: on an edge the uplink may take it; else there is no route.

        Messages from senders with a target take the uplink only towards other routers; for mobile addresses
        they wait for a proxy link.
        """
        route = Route(RouteKind.NONE, None, [], prefix)
        uplink = self._uplink_for(address, origin)
        if uplink is not None:
            route = Route(RouteKind.SINGLE, None, [uplink], prefix)
        return self._owned(route, address)

    def _uplink_for(self, address: Address, origin: Link | None) -> Link | None:
        """On an edge: the uplink, if it may take what comes from there."""
        proxied = origin is not None and origin.address is not None and address.key != AddressClass.ROUTER
        from_uplink = origin is not None and origin.connection.role is Role.EDGE
        return None if proxied or from_uplink else self.uplink

    def prefix(
        self, origin: Link | None, annotations: RouterAnnotations | None, *, resends: bool = False
    ) -> bytes:
        """The annotation section with which messages from `origin` go to other routers."""
        if annotations is None:
            to_override = None
            if origin is not None and origin.address is not None and origin.target.address is not None:
                in_phase = origin.address.phase
                to_override = origin.address.key[1:] if in_phase else origin.target.address
            annotations = RouterAnnotations(to_override=to_override)
        flags = annotations.flags | (FLAG_RESEND_RELEASED if resends else 0)
        if origin is not None and CAPABILITY_STREAMING_DELIVERIES in origin.target.capabilities:
            flags |= FLAG_STREAMING
        if self.edge:
            return encode_annotations(flags, annotations.to_override, None, (), self.mesh_id)
        return encode_annotations(
            flags,
            annotations.to_override,
            annotations.ingress or self.name,
            (*annotations.trace, self.name),
            annotations.mesh_id,
        )

    def nowhere(self) -> Route:
        """The route of what cannot be delivered, until any address appears."""
        return self._owned(Route(RouteKind.NONE, None, [], b""), self.unknown)

    def inside(self, consumer: SettlingConsumer) -> Route:
        """The route to what this router offers to consume at a name that has no address, until one appears."""
        return self._owned(Route(RouteKind.IN_PROCESS, None, [], b"", handler=consumer), self.unknown)

    def _owned(self, route: Route, owner: Address) -> Route:
        """Make the route invalid when something about `owner` changes."""
        if owner is self.unknown and len(owner.routes) >= UNKNOWN_ROUTES:
            owner.invalidate()
        route.owner = owner
        owner.routes.add(route)
        return route


def _resends(address: Address | None, origin: Link | None, annotations: RouterAnnotations | None) -> bool:
    """Whether a delivery that is released goes to another receiver."""
    return (
        (annotations is not None and bool(annotations.flags & FLAG_RESEND_RELEASED))
        or (origin is not None and origin.resends)
        or (address is not None and address.resends)
    )


def router_of(full_name: str) -> str:
    """`0/RA` names router RA."""
    return full_name.rpartition("/")[2]


def _may_receive(
    link: Link, origin: Link | None, annotations: RouterAnnotations | None, *, edge: bool
) -> bool:
    """Whether a delivery from `origin` may go to the consumer `link`: never back to the edge it came from."""
    if link.connection.role is not Role.EDGE or origin is None:
        return True
    if link.connection is origin.connection or (edge and origin.connection.role is Role.EDGE):
        return False
    mesh_id = (annotations.mesh_id if annotations else None) or origin.connection.mesh_id
    return mesh_id is None or mesh_id != link.connection.mesh_id
