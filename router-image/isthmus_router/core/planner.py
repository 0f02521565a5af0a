"""The decision behind a route: who may receive what comes from where.

Source: docs/architecture.md; distributions, valid origins and echo rules as in the skupper-router family.
"""

from __future__ import annotations

from collections.abc import Collection

from isthmus_router.core.address import Address, AddressClass, SettlingConsumer
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.nodes import Hop, PathLoad, RouterNode
from isthmus_router.core.receivers import INSIDE, NOBODY, ONE_OF_THE_SINKS, Receivers, RouteKind, Sink
from isthmus_router.core.roles import Role
from isthmus_router.core.routes import Route
from isthmus_router.core.terms import CAPABILITY_STREAMING_DELIVERIES
from isthmus_router.core.treatment import Treatment
from isthmus_router.message.sections import (
    FLAG_RESEND_RELEASED,
    FLAG_STREAMING,
    RouterAnnotations,
    encode_annotations,
)

MOST_SPELLINGS, LONGEST_SPELLING = 8, 256
"""Senders share the routes of so many spellings of an address, of at most so many characters. Others have one each."""
MOST_ROUTES = 10_000
"""To one address, or to destinations without one; beyond that all of them end, and are made anew as they are needed."""
LEAST_SETS, MOST_PLACES = 16, 1_000_000
"""Sets of receivers of an address that are remembered, and the receivers in all of them together."""


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
        self.planned: set[Address] = set()
        """Addresses to which routes have been made, and those of link routes: whom a change of paths may concern."""
        self.concerned: set[Address] = set()
        """On an edge: those with routes that a change of the uplink concerns."""
        self.unknown = Address("", Treatment.UNAVAILABLE)
        """Owner of routes to keys without an address; they become invalid when any address is created."""

    def plan(
        self, address: Address | None, origin: Link | None, annotations: RouterAnnotations | None = None
    ) -> Route:
        """Decide where deliveries to `address` go that come from `origin` with these annotations."""
        if address is None or origin is None or origin.connection.role.is_between_routers:
            return self._decide(address, origin, annotations)
        override = _own_override(origin) if annotations is None else annotations.to_override
        if annotations not in (None, RouterAnnotations(to_override=override)):
            return self._decide(address, origin, annotations)
        # What is decided for one client's sender holds for all that ask for the same.
        key = override, origin.address is None, origin.resends, _streams_deliveries(origin)
        route = address.client_routes.get(key)
        if route is None or not route.valid:
            route = self._decide(address, origin, annotations)
            if override is not None and len(override) > LONGEST_SPELLING:
                return route
            known = address.client_routes
            if len(known) >= MOST_SPELLINGS:
                known = address.client_routes = {key: each for key, each in known.items() if each.valid}
            if len(known) < MOST_SPELLINGS:
                route.shared = True
                known[key] = route
        return route

    def _decide(
        self, address: Address | None, origin: Link | None, annotations: RouterAnnotations | None
    ) -> Route:
        self._make_room(address or self.unknown)
        resends = _resends(address, origin, annotations)
        prefix = self.prefix(origin, annotations, resends=resends)
        if address is None:
            return self._fallback(self.unknown, origin, prefix)
        consumer = address.handler
        if consumer is not None and consumer.takes_from(origin):
            route = Route(address, INSIDE, prefix, handler=consumer)
        else:
            receivers = self._receivers(address, origin, annotations)
            if receivers.kind is RouteKind.NONE:
                return self._fallback(address, origin, prefix)
            route = Route(address, receivers, prefix)
            if receivers.kind in ONE_OF_THE_SINKS and (resends or receivers.is_limited):
                route.make_selective(resends=resends)
        route.from_interior = origin is not None and origin.connection.role.is_between_interiors
        return self._owned(route, address)

    def _receivers(
        self, address: Address, origin: Link | None, annotations: RouterAnnotations | None
    ) -> Receivers:
        """Who may have what comes from `origin`: one object for all for whom the same come into question."""
        barred = self._barred(address, origin, annotations)
        paths = self.paths(address, origin, annotations)
        also_uplink = self._also_uplink(address, origin)
        key = barred, frozenset(paths.items()), also_uplink
        if key == address.everybody_key and address.everybody is not None:
            return address.everybody
        found = address.known_receivers.get(key)
        if found is None:
            if len(address.known_receivers) >= _most_sets(address):
                address.end_routes()
            links = self._links(address, barred)
            whole = address.handler is None and not barred and paths == self.paths(address, None, None)
            if also_uplink and links and not any(link.proxy for link in links):
                assert self.uplink is not None
                links.append(self.uplink)
            found = self._distribute(address, links, paths, whole=whole)
            if found.can_change:
                address.follow(found, key)
            else:
                address.known_receivers[key] = found
        return found

    def _barred(
        self, address: Address, origin: Link | None, annotations: RouterAnnotations | None
    ) -> frozenset[Connection]:
        """The connections whose consumers may not have what comes from `origin`: nothing goes back to the edge it came
        from."""
        if origin is None or not address.edges:
            return frozenset()
        of_edge = origin.connection.role is Role.EDGE
        mesh_id = (annotations.mesh_id if annotations else None) or origin.connection.mesh_id
        if mesh_id is None and not of_edge:
            return frozenset()
        return frozenset(
            connection
            for connection in address.edges
            if connection is origin.connection
            or (of_edge and self.edge)
            or (mesh_id is not None and mesh_id == connection.mesh_id)
        )

    @staticmethod
    def _links(address: Address, barred: Collection[Connection]) -> list[Link]:
        """The consumers that are attached here, without those of some connections; only those in the interior, if the
        router is one."""
        if sum(map(address.edges.__getitem__, barred)) == len(address.consumers):
            return []
        links = list(address.consumers)
        if barred:
            links = [link for link in links if link.connection not in barred]
        if address.handler is not None:
            links = [link for link in links if link.proxy]
        return links

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
            barred = self._barred(address, origin, annotations)
            links = [
                link
                for link in self._links(address, barred)
                if link not in tried and not 0 < link.max_message_size < size
            ]
            paths = self.paths(address, origin, annotations)
            left = {hop: cost for hop, cost in paths.items() if hop not in tried}
            receivers = self._distribute(address, links, left, whole=False)
            if receivers.kind is not RouteKind.NONE:
                return Route(address, receivers, prefix)
        uplink = self._uplink_for(address, origin)
        if uplink is None or uplink in tried:
            return None
        return Route(address, Receivers(RouteKind.SINGLE, [uplink]), prefix)

    def _distribute(
        self, address: Address, links: list[Link], paths: dict[Hop, int], *, whole: bool
    ) -> Receivers:
        """`whole`: there are no other consumers."""
        sinks: list[Sink] = [*links, *paths]
        if not sinks:
            return NOBODY
        if address.treatment in {Treatment.MULTICAST, Treatment.FLOOD}:
            return Receivers(RouteKind.MULTICAST, sinks, hops=len(paths))
        if address.treatment is Treatment.CLOSEST or address.key[0] == AddressClass.ROUTER:
            near: list[Sink] = [*([link for link in links if not link.proxy] or links)]
            if near:
                kind = RouteKind.SINGLE if len(near) == 1 else RouteKind.ROTATE
                return Receivers(kind, near, whole=whole)
            least = min(paths.values())
            near = [hop for hop, cost in paths.items() if cost == least]
            kind = RouteKind.SINGLE if len(near) == 1 else RouteKind.ROTATE
            return Receivers(kind, near, hops=len(near))
        if len(sinks) == 1:
            return Receivers(RouteKind.SINGLE, sinks, hops=len(paths))
        known = address.loads
        loads = {hop: known.get(hop) or PathLoad(cost, address.balance) for hop, cost in paths.items()}
        for hop, cost in paths.items():
            loads[hop].cost = cost
        others = {} if whole else {hop: load for hop, load in known.items() if not hop.ended}
        address.loads = others | loads
        return Receivers(
            RouteKind.BALANCE, sinks, [*[None] * len(links), *loads.values()], hops=len(paths), whole=whole
        )

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

    def _also_uplink(self, address: Address, origin: Link | None) -> bool:
        """On an edge: whether a multicast needs the uplink besides its receivers, unless they have a proxy link."""
        if not self.edge or address.treatment not in {Treatment.MULTICAST, Treatment.FLOOD}:
            return False
        if origin is not None and (origin.address is not None or origin.connection.role is Role.EDGE):
            return False
        self.concerned.add(address)
        return self.uplink is not None

    def _fallback(self, address: Address, origin: Link | None, prefix: bytes) -> Route:
        """Nobody here: on an edge the uplink may take it; else there is no route.

        Messages from senders with a target take the uplink only towards other routers; for mobile addresses
        they wait for a proxy link.
        """
        uplink = self._uplink_for(address, origin)
        receivers = NOBODY if uplink is None else Receivers(RouteKind.SINGLE, [uplink])
        return self._owned(Route(None, receivers, prefix), address)

    def _uplink_for(self, address: Address, origin: Link | None) -> Link | None:
        """On an edge: the uplink, if it may take what comes from there."""
        proxied = origin is not None and origin.address is not None and address.key != AddressClass.ROUTER
        from_uplink = origin is not None and origin.connection.role is Role.EDGE
        if proxied or from_uplink or not self.edge:
            return None
        if address is not self.unknown:
            self.concerned.add(address)
        return self.uplink

    def prefix(
        self, origin: Link | None, annotations: RouterAnnotations | None, *, resends: bool = False
    ) -> bytes:
        """The annotation section with which messages from `origin` go to other routers."""
        if annotations is None:
            annotations = RouterAnnotations(to_override=_own_override(origin))
        flags = annotations.flags | (FLAG_RESEND_RELEASED if resends else 0)
        if origin is not None and _streams_deliveries(origin):
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
        self._make_room(self.unknown)
        return self._owned(Route(None, NOBODY, b""), self.unknown)

    def inside(self, consumer: SettlingConsumer) -> Route:
        """The route to what this router offers to consume at a name that has no address, until one appears."""
        self._make_room(self.unknown)
        return self._owned(Route(None, INSIDE, b"", handler=consumer), self.unknown)

    def _owned(self, route: Route, owner: Address) -> Route:
        """Make the route invalid when something about `owner` changes."""
        owner.hold(route)
        if owner is not self.unknown:
            self.planned.add(owner)
        return route

    @staticmethod
    def _make_room(owner: Address) -> None:
        if len(owner.routes) + len(owner.lasting_routes) >= MOST_ROUTES:
            owner.invalidate()


def _own_override(origin: Link | None) -> str | None:
    """What the annotations state as the destination of messages from `origin`; None if each message states it."""
    if origin is None or origin.address is None or origin.target.address is None:
        return None
    return origin.address.key[1:] if origin.address.phase else origin.target.address


def _streams_deliveries(origin: Link) -> bool:
    return CAPABILITY_STREAMING_DELIVERIES in origin.target.capabilities


def _most_sets(address: Address) -> int:
    return min(MOST_ROUTES, max(LEAST_SETS, MOST_PLACES // (len(address.consumers) + 1)))


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
