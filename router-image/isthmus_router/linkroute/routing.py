"""Link routing: links that clients attach to matching addresses are attached on, hop by hop, up to a container.

A link goes to the nearest container: one attached to this router, or to an edge here, or by way of the next hop on the
shortest path to a router that announced one; among several that are as near, the one with the fewest links. Every
router on the way decides anew, and refuses what has passed it already.

Sans-IO; a link handler and an observer of the core. What passes along the links is the driver's affair
(`amqp/kernel/routed.py`). Source: docs/link-routes.md; link routes of qpid-dispatch.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from isthmus_router.config.model import LinkRouteConfig, LinkRouteDirection
from isthmus_router.core.address import AddressClass, Purpose, normalise, purpose
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.patterns import TooManyPatternsError
from isthmus_router.core.port import CallLater
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.steps import begin
from isthmus_router.core.terms import CAPABILITIES_BETWEEN_ROUTERS, COORDINATOR, Condition, Direction
from isthmus_router.linkroute.chain import Action, Answer, Chain, Detach, End, Half
from isthmus_router.linkroute.made import MadeLinkRoutes
from isthmus_router.linkroute.names import NamesInUse, RouteName
from isthmus_router.linkroute.table import (
    SHOWN,
    Declaration,
    LinkRoute,
    LinkRouteTable,
    pattern_of,
    prefix_pattern,
)

log = logging.getLogger("ROUTER_CORE")

ANSWER_SECONDS = 20.0
"""A container that has not answered the detach of a link by then is not waited for."""
MOST_SILENT = 1_000
"""Links that a container has not answered for so long, in sessions with others. Its connection is closed for more."""
NOT_ANSWERED = Condition("amqp:resource-limit-exceeded", f"{MOST_SILENT} detaches are not answered")
MOST_TRIED = 8
"""Connections on which a link is attached if the peers of others have no room for it."""
FEW = 64
"""Sections with which the router deals within the event when a container comes or goes. More of them in steps."""
MOST_COMPARED = 64
"""Containers of which a link goes to the one with the fewest links. With more of them, they take turns."""
NO_EXPIRATION = Condition("qd:link-expiration", "Requested link expiration not allowed")
TOO_MANY_PATTERNS = Condition(
    "amqp:resource-limit-exceeded", "Too many patterns of link routes begin like the address"
)
_DIRECTIONS = {
    LinkRouteDirection.IN: (Direction.IN,),
    LinkRouteDirection.OUT: (Direction.OUT,),
    LinkRouteDirection.BOTH: (Direction.IN, Direction.OUT),
}


def no_route(address: str) -> Condition:
    """Why a link to `address` is refused while there is no container for it."""
    return Condition(
        "qd:no-route-to-dest",
        f"No route to the destination node: no container takes links to {address[:SHOWN]!r} at present",
    )


@dataclass(slots=True, eq=False)
class Routed:
    """A link that is routed through this router."""

    near: Link
    far: Link
    chain: Chain
    route: LinkRoute
    address: str
    """By which it is routed."""
    declaration: Declaration | None
    """When the far half goes to a container of this router: what says so."""
    outside: str | None = None
    """What the container was told in place of the address that the client has named."""

    def link(self, half: Half) -> Link:
        """One of the two."""
        return self.near if half is Half.NEAR else self.far

    def half(self, link: Link) -> Half:
        """Which one it is."""
        return Half.NEAR if link is self.near else Half.FAR


class LinkRouting:
    """The link routes of one router, and the links that are routed through it."""

    def __init__(
        self,
        core: RouterCore,
        clock: Callable[[], float],
        call_later: CallLater,
        *,
        resumable: bool = True,
    ) -> None:
        """`clock`: monotonic seconds. `resumable`: clients may ask for termini that outlive their links."""
        self.core = core
        self.table = LinkRouteTable(core.addresses, self._tell)
        self.routed: dict[Link, Routed] = {}
        """By either half."""
        self.sections: dict[LinkRouteConfig, Declaration] = {}
        """In the order of the configuration."""
        self.made = MadeLinkRoutes(core, self.table, self.route_changed)
        self.changed: Callable[[LinkRoute], None] | None = None
        """Called when containers for a link route have come or gone, here or elsewhere, or may have."""
        self._clock = clock
        self._call_later = call_later
        self._unanswered: dict[Link, float] = {}
        """Links to containers that are detached, with the time by which these should have answered; oldest first."""
        self._silent: defaultdict[Connection, set[Link]] = defaultdict(set)
        """Those that were not answered in time, and share their sessions with others; no set is empty."""
        self._resumable = resumable
        self._names = NamesInUse()
        self._containers: dict[Connection, None] = {}
        """Open route-container connections."""
        self._by_connection: dict[str, list[Declaration]] = {}
        self._by_container: dict[str, list[Declaration]] = {}
        core.observers.append(self)
        core.lost.append(self.connection_closed)
        core.link_handlers.append(self.take_link)

    # Which links are routed

    def take_link(self, link: Link) -> bool:
        """The link handler: whether the link is routed, or refused because it should be and cannot."""
        terminus = link.target if link.incoming else link.source
        name = self._name_of(link)
        if name is None or terminus.capabilities & CAPABILITIES_BETWEEN_ROUTERS:
            return False
        address = (
            COORDINATOR
            if terminus.coordinator
            else terminus.node_address
            if terminus.dynamic
            else terminus.address
        )
        if address is None:
            return False
        try:
            route = self.table.find(address, link.direction)
        except TooManyPatternsError:
            if self._is_own(address):
                return False
            self.core.refuse(link, TOO_MANY_PATTERNS)
            return True
        if (route is None and not name.passed) or self._is_own(address):
            return False
        returns = not name.passed and RouteName.returns(link.name, link.connection)
        if route is None or self.core.id in name.passed or returns:
            self.core.refuse(link, no_route(address))
        elif not self._resumable and terminus.outlives and not name.passed:
            self.core.refuse(link, NO_EXPIRATION)
        else:
            self._route(link, name, route, address)
        return True

    def _is_own(self, address: str) -> bool:
        """Whether it is one of the routers themselves, such as `$management`, which no pattern captures."""
        name = normalise(address)
        served = self.core.addresses.get(AddressClass.MOBILE + name)
        return (
            name.startswith("_")
            or purpose(name) in {Purpose.MANAGEMENT, Purpose.FLOW_RECORDS}
            or (served is not None and served.handler is not None)
        )

    def _name_of(self, link: Link) -> RouteName | None:
        """What a link is called on its way; None for those that routers have attached for themselves."""
        connection = link.connection
        if connection.role.is_between_routers:
            return RouteName.read(link.name)
        return RouteName.of_client(link.name, connection.container, connection.proven_user)

    def _route(self, link: Link, name: RouteName, route: LinkRoute, address: str) -> None:
        condition = no_route(address)
        tried: set[Connection] = set()
        while found := self._container(route, link, tried) or self._router(route, link, name, tried):
            refused = self._route_to(*found, link, name, route, address)
            if refused is None:
                return
            condition = refused
            tried.add(found[0])
            if len(tried) == MOST_TRIED:
                break
        route.refusals.note(address, condition.description, self._clock())
        self.core.refuse(link, condition)

    def _route_to(
        self,
        connection: Connection,
        declaration: Declaration | None,
        link: Link,
        name: RouteName,
        route: LinkRoute,
        address: str,
    ) -> Condition | None:
        """Attach the link on a connection, or return why that is not possible."""
        terminus = link.target if link.incoming else link.source
        outside = None
        if declaration is not None and terminus.address is not None:
            outside = declaration.outside(terminus.address)
            outside = None if outside == terminus.address else outside
        direction = Direction.OUT if link.incoming else Direction.IN
        wanted = name.beyond(self.core.id) if connection.role.is_between_routers else name.name
        own_name = self._names.take(connection, direction, wanted)
        far = self.core.port.route_link(link, connection, own_name, outside)
        if isinstance(far, Condition):
            self._names.free(connection, direction, own_name)
            return far
        far.on_answered = self._answered
        outlives = link.source.outlives or link.target.outlives
        routed = Routed(link, far, Chain(outlives=outlives), route, address, declaration, outside)
        self.routed[link] = self.routed[far] = routed
        link.on_detached = far.on_detached = self._detached
        if declaration is not None:
            declaration.destinations[connection].add(far)
        log.debug(
            "link routed",
            extra={"link": link.name, "address": address, "from": link.connection.id, "to": connection.id},
        )
        return None

    def _container(
        self, route: LinkRoute, link: Link, tried: Collection[Connection]
    ) -> tuple[Connection, Declaration | None] | None:
        """A container of this router that was not tried; never the one that the link comes from."""
        found = list(
            islice(
                (
                    (len(links), declaration, connection)
                    for (declaration, connection), links in route.containers.items()
                    if connection is not link.connection
                    and connection not in tried
                    and self._is_open(connection)
                ),
                MOST_COMPARED,
            )
        )
        if not found:
            return None
        if len(found) < len(route.containers):  # others come before them next time
            for _, declaration, connection in found:
                route.containers[declaration, connection] = route.containers.pop((declaration, connection))
        least = min(count for count, _, _ in found)
        best = [(connection, declaration) for count, declaration, connection in found if count == least]
        return best[self._next(route) % len(best)]

    def _router(
        self, route: LinkRoute, link: Link, name: RouteName, tried: Collection[Connection]
    ) -> tuple[Connection, Declaration | None] | None:
        """A router by way of which there is one: an edge (or, from an edge, the interior), or the nearest.

        Never the one that the link comes from, nor one that was tried.
        """
        origin = link.connection
        best = [
            router
            for router, there in route.routers.items()
            if there and router and router is not origin and router not in tried and self._is_open(router)
        ]
        if not best:
            nodes = [
                node
                for node in route.address.remotes
                if node.hop is not None
                and node.hop.connection is not origin
                and node.hop.connection not in tried
                and node.id not in name.passed
                and node.hop.neighbour not in name.passed
            ]
            least = min((node.cost for node in nodes), default=0)
            best = list({node.hop.connection: None for node in nodes if node.hop and node.cost == least})
        if not best:
            return None
        return best[self._next(route) % len(best)], None

    def _is_open(self, connection: Connection) -> bool:
        return connection.id in self.core.connections and not connection.leaving

    @staticmethod
    def _next(route: LinkRoute) -> int:
        route.turn = (route.turn + 1) & 0xFFFF
        return route.turn

    # What becomes of routed links

    def _answered(self, far: Link) -> None:
        routed = self.routed.get(far)
        if routed is not None:
            self._carry_out(routed, routed.chain.on_answered())

    def _detached(self, link: Link, condition: Condition | None, closed: bool) -> None:
        routed = self.routed[link]
        if condition is not None and link is routed.far and routed.declaration is not None:
            self._note(routed, condition)
        self._carry_out(routed, routed.chain.on_detached(routed.half(link), condition, closed=closed))

    def _note(self, routed: Routed, condition: Condition) -> None:
        """A container of this router detaches a link with an error, or refuses it."""
        far = routed.far
        refused = (far.source if far.incoming else far.target).absent
        log.info(
            "link refused by the container" if refused else "link detached by the container",
            extra={
                "link": far.name,
                "address": routed.address,
                "connection": far.connection.id,
                "container": far.connection.container,
                "condition": condition.name,
                "description": condition.description,
            },
        )
        if refused:
            reason = f"{far.connection.container}: {condition.name}: {condition.description}".removesuffix(
                ": "
            )
            routed.route.refusals.note(routed.address, reason, self._clock())

    def _carry_out(self, routed: Routed, actions: Iterable[Action]) -> None:
        port = self.core.port
        for action in actions:
            match action:
                case Answer():
                    port.answer_routed(routed.near, self._inside(routed))
                case Detach(half, condition, closed):
                    port.detach_routed(routed.link(half), condition, closed=closed)
                    if half is Half.FAR:
                        self._await_answer(routed.far)
                case End(half):
                    port.end_routed(routed.link(half))

    def _await_answer(self, far: Link) -> None:
        if far not in self.routed or far.connection.role.is_between_routers:
            return  # the peer was first; or another router waits for its own next one
        if not self._unanswered:
            self._call_later(ANSWER_SECONDS, self._look_for_answers)
        self._unanswered[far] = self._clock() + ANSWER_SECONDS

    def _look_for_answers(self) -> None:
        """A container that does not answer detaches would have links pile up, those of clients long gone."""
        now = self._clock()
        for far in [far for far, until in self._unanswered.items() if until <= now]:
            del self._unanswered[far]
            if not self.core.port.abandon_routed(far):
                silent = self._silent[far.connection]
                silent.add(far)
                if len(silent) == MOST_SILENT:
                    self.core.port.close_connection(far.connection, NOT_ANSWERED)
        if self._unanswered:
            self._call_later(next(iter(self._unanswered.values())) - now, self._look_for_answers)

    @staticmethod
    def _inside(routed: Routed) -> str | None:
        """What the client is told in place of the address that the container answers, if it is another one."""
        near, far, declaration = routed.near, routed.far, routed.declaration
        answer = (far.source if far.incoming else far.target).address
        if declaration is None or answer is None:
            return None
        if answer == routed.outside:
            return (near.target if near.incoming else near.source).address
        inside = declaration.inside(answer)
        return None if inside == answer else inside

    # The configuration

    def configure(self, configs: Iterable[LinkRouteConfig]) -> None:
        """Have these sections and no others; links that are routed stay as they are."""
        wanted = dict.fromkeys(configs)
        for config in [config for config in self.sections if config not in wanted]:
            self._remove(self.sections.pop(config))
        self.sections = {config: self.sections.get(config) or self._add(config) for config in wanted}
        self._by_connection, self._by_container = {}, {}
        for declaration in self.sections.values():
            if declaration.connection_name is not None:
                self._by_connection.setdefault(declaration.connection_name, []).append(declaration)
            elif declaration.container_id is not None:
                self._by_container.setdefault(declaration.container_id, []).append(declaration)
        for connection in self._containers:
            self._serve(connection)

    def _add(self, config: LinkRouteConfig) -> Declaration:
        declaration = Declaration(
            config.connection,
            config.container_id,
            config.add_external_prefix or "",
            config.del_external_prefix or "",
        )
        pattern = prefix_pattern(config.prefix) if config.prefix is not None else config.pattern or ""
        self.table.declare(((pattern, one) for one in _DIRECTIONS[config.direction]), declaration)
        self._changed(declaration)
        return declaration

    def _remove(self, declaration: Declaration) -> None:
        for connection in list(declaration.destinations):
            declaration.leave(connection)
        for route in declaration.routes:
            del route.declarations[declaration]
        self._changed(declaration)

    def _changed(self, declaration: Declaration) -> None:
        for route in declaration.routes:
            self.route_changed(route)

    def route_changed(self, route: LinkRoute) -> None:
        """What this router has to do with a link route is different."""
        self.core.link_route_changed(route.address)
        self._tell(route)

    def _tell(self, route: LinkRoute) -> None:
        if self.changed is not None:
            self.changed(route)

    @property
    def now(self) -> float:
        """By the clock of refusals."""
        return self._clock()

    # Observer of the core

    def declared(self, connection: Connection) -> list[Declaration]:
        """The sections that name a container, or its connector or listener."""
        return [
            *self._by_connection.get(connection.endpoint, ()),
            *self._by_container.get(connection.container, ()),
        ]

    def _serve(self, connection: Connection) -> None:
        at_once = FEW if connection.grant is None else 1
        begin(self.core.port.work, self._serve_each(connection, self.declared(connection)), at_once)

    def _serve_each(self, connection: Connection, declared: list[Declaration]) -> Iterator[None]:
        for declaration in declared:
            self.serve(connection, declaration)
            yield

    def serve(self, connection: Connection, declaration: Declaration) -> None:
        """Have the container take links of a section that names it, if it does not yet, and may."""
        if connection not in self._containers or connection in declaration.destinations:
            return
        if not declaration.takes(connection) or declaration.is_removed:
            return
        if declaration.is_allowed(connection):
            declaration.serve(connection)
            self._changed(declaration)
        else:
            log.warning(
                "link route withheld",
                extra={
                    "event": "link_route.withheld",
                    "connection": connection.id,
                    "user": connection.user,
                    "container": connection.container,
                    "pattern": pattern_of(declaration.routes[0].key)[:SHOWN],
                },
            )

    def leave(self, connection: Connection, declaration: Declaration) -> None:
        """The container takes no further links of a section."""
        if declaration.leave(connection):
            self._changed(declaration)

    def _leave_each(self, connection: Connection, declared: list[Declaration]) -> Iterator[None]:
        for declaration in declared:
            self.leave(connection, declaration)
            yield

    def connection_opened(self, connection: Connection) -> None:
        """A container may have come."""
        if connection.role is Role.ROUTE_CONTAINER:
            self._containers[connection] = None
            self._serve(connection)

    def connection_closed(self, connection: Connection) -> None:
        """A container may have gone: nobody is told to attach there any more."""
        self.made.connection_closed(connection)
        if connection in self._containers:
            del self._containers[connection]
            begin(self.core.port.work, self._leave_each(connection, self.declared(connection)), FEW)

    def link_unbound(self, link: Link) -> None:
        """A half of a routed link is gone, after both ends have detached it or without."""
        routed = self.routed.pop(link, None)
        if routed is None:
            return
        half = routed.half(link)
        if half is Half.FAR:
            self._unanswered.pop(link, None)
            if link.connection in self._silent:
                self._silent[link.connection].discard(link)
                if not self._silent[link.connection]:
                    del self._silent[link.connection]
            self._names.free(link.connection, link.direction, link.name)
            if routed.declaration is not None and link.connection in routed.declaration.destinations:
                routed.declaration.destinations[link.connection].discard(link)
        other = routed.link(half.other)
        link.partner = other.partner = None
        self._carry_out(routed, routed.chain.on_lost(half))

    def link_bound(self, link: Link) -> None:
        """Observer interface: nothing to do."""

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        """Observer interface: credit is the ends' concern."""
