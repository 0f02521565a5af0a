"""The router core: addresses, links, and which deliveries go where.

Sans-IO. A driver tells it what happened on the wire (`connection_opened`, `link_attached`, ...) and carries out
what it asks for through a `Port`. Forwarding itself is the driver's, along `Route` objects from here.
The systems on top (inter-router routing, edge) are `Observer`s and handlers of their own link types.
"""

from __future__ import annotations

import logging
import secrets
import string
from collections.abc import Callable, Iterator

from isthmus_router.core.access import UNAUTHORIZED
from isthmus_router.core.address import (
    LINK_ROUTES,
    TEMPORARY_PREFIX,
    Address,
    AddressClass,
    SettlingConsumer,
    normalise,
    split_phase,
)
from isthmus_router.core.address_table import AddressTable
from isthmus_router.core.claims import MOST_ADDRESSES, MOST_CHARACTERS, Claims
from isthmus_router.core.configured import ConfiguredAddress, ConfiguredAddresses
from isthmus_router.core.counters import CoreCounters, LinkTally
from isthmus_router.core.guard import MessageGuard
from isthmus_router.core.link_names import STOLEN, LinkNames
from isthmus_router.core.mesh import mesh_id_of, new_mesh_key
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.offers import Offers
from isthmus_router.core.patterns import PatternTree
from isthmus_router.core.planner import RoutePlanner
from isthmus_router.core.port import Observer, Port
from isthmus_router.core.reachability import Reachability
from isthmus_router.core.receivers import RouteKind
from isthmus_router.core.remembered import (
    MOST_BYTES_BETWEEN_ROUTERS,
    MOST_BYTES_OF_CLIENTS,
    RememberedRoutes,
    retire,
)
from isthmus_router.core.remotes import Remotes
from isthmus_router.core.roles import Role
from isthmus_router.core.routes import Route
from isthmus_router.core.terms import CAPABILITIES_BETWEEN_ROUTERS, Condition, Terminus
from isthmus_router.core.treatment import Treatment
from isthmus_router.message.sections import LONGEST_ADDRESS_BYTES, RouterAnnotations, SectionError

log = logging.getLogger("ROUTER_CORE")

NO_ROUTE = Condition("qd:no-route-to-dest", "No route to the destination node")
FORBIDDEN = Condition("qd:forbidden", "Connectivity to the node is forbidden")
NOT_FOUND = Condition("amqp:not-found", "Node not found")
TOO_LONG = Condition("amqp:invalid-field", f"The address has more than {LONGEST_ADDRESS_BYTES} characters")
WRONG_ROLE = Condition("qd:connection-role", "Link attach forbidden on inter-router connection")
OF_ANOTHER = Condition(UNAUTHORIZED, "The temporary address is that of another connection")
NO_COORDINATOR = Condition(
    "amqp:precondition-failed",
    "This router is no transaction coordinator; a linkRoute with prefix $coordinator and direction in "
    "hands transactions to a broker",
)
OTHER_PHASE = Condition(
    "amqp:link:detach-forced", "The phases of the address have been changed: attach the link again"
)
ADVERTISED = LINK_ROUTES | {AddressClass.MOBILE, AddressClass.EDGE}
"""Classes of addresses that routers tell each other of."""

ADDRESSES_AT_ONCE = 64
"""Addresses of an edge whose routes change within the event that it has said to which mesh it belongs."""

_ALPHABET = string.ascii_letters + string.digits + "+_"

LinkHandler = Callable[[Link], bool]
"""Tries to take a link that the peer attached; False leaves it to the next handler."""


def random_name(length: int = 15) -> str:
    """Random characters, as link names and temporary addresses use them."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


class RouterCore:
    """State of one router and every decision about it."""

    def __init__(
        self, router_id: str, *, edge: bool, default_treatment: Treatment = Treatment.BALANCED
    ) -> None:
        self.id = router_id
        self.instance = secrets.token_urlsafe(16)
        """What no other router process has, whatever its id."""
        self.edge = edge
        self.mesh_key = new_mesh_key() if edge else None
        self.mesh_id = mesh_id_of(self.mesh_key) if self.mesh_key is not None else None
        """The edge mesh this router belongs to; a lone edge is a mesh of its own."""
        self.planner = RoutePlanner(router_id, edge=edge, mesh_id=self.mesh_id)
        self.name = self.planner.name
        self.configured = ConfiguredAddresses(router_id, edge=edge, default=default_treatment)
        self.connections: dict[int, Connection] = {}
        self.addresses = AddressTable(self.configured, self.planner)
        self._remembered_of_clients = RememberedRoutes(MOST_BYTES_OF_CLIENTS)
        self._remembered_between_routers = RememberedRoutes(MOST_BYTES_BETWEEN_ROUTERS)
        self.nodes = self.planner.nodes
        self._reachability = Reachability(
            self.planner, self._reachability_changed, self._reachability_seen, self._work
        )
        self.remotes = Remotes(self.planner, self.addresses, self._reachability, self._work)
        self._offers = Offers(
            self.addresses, self.planner, self.configured, self._reachability, self._advertise
        )
        self.register, self.unregister = self._offers.register, self._offers.unregister
        self.offer, self.withdraw = self._offers.offer, self._offers.withdraw
        self.radius = 0
        """Most links on any path; a message that has passed more routers is looping."""
        self.observers: list[Observer] = []
        self.link_handlers: list[LinkHandler] = []
        self.counters = CoreCounters()
        self.tallies: list[LinkTally] = []
        """Counts of links that are under way."""
        self._names = LinkNames()
        # All addresses of an edge are those of one client of the interior, which has as many for it as for all others.
        part = 2 if edge else 1
        self.claims = Claims(MOST_ADDRESSES // part, MOST_CHARACTERS // part)
        self.advertised: Callable[[Address], None] | None = None
        """Called when an address gains its first, or loses its last, consumer on this router."""
        self.took_over: Callable[[Connection, Connection], None] | None = None
        """Called when a connection between routers takes the place of another one, to the same peer or not."""
        self.lost: list[Callable[[Connection], None]] = []
        """Called when a connection has ended that still has many links, but none that stand (`Connection.leaving`)."""
        self._opening: tuple[Connection, int] | None = None
        """The connection that observers are being told of, and how many of them have been told."""
        self._port: Port | None = None

    @property
    def uplink(self) -> Link | None:
        """On an edge: the link for deliveries that have no destination here (None while there is no uplink)."""
        return self.planner.uplink

    @property
    def port(self) -> Port:
        """The driver."""
        assert self._port is not None
        return self._port

    def attach_port(self, port: Port) -> None:
        """Give the core its driver; once, before the first event."""
        self._port = port

    # Connections

    def connection_opened(self, connection: Connection) -> None:
        """Both sides opened `connection`."""
        self.connections[connection.id] = connection
        self.counters.connections_opened += 1
        for number, observer in enumerate(self.observers, 1):
            self._opening = connection, number
            observer.connection_opened(connection)
            if connection.id not in self.connections:
                break  # the observer has closed it
        self._opening = None

    def connection_lost(self, connection: Connection) -> None:
        """The connection is gone, and its links go in steps; `connection_closed` comes after the last one."""
        connection.leaving = True
        for lost in self.lost:
            lost(connection)

    @property
    def open_connections(self) -> list[Connection]:
        """The connections that have not ended."""
        return [connection for connection in self.connections.values() if not connection.leaving]

    def connection_closed(self, connection: Connection) -> None:
        """The connection is gone; all its links go with it."""
        if self.connections.pop(connection.id, None) is None:
            return
        connection.leaving = True
        self.counters.connections_closed += 1
        for link in list(connection.links):
            self.link_closed(link)
        told = self.observers
        if self._opening is not None and self._opening[0] is connection:
            told = told[: self._opening[1]]
        for observer in told:
            observer.connection_closed(connection)

    # Links

    def link_attached(self, link: Link) -> None:
        """The peer attached `link`: accept it or refuse it."""
        connection = link.connection
        connection.links.add(link)
        self.counters.links_attached += 1
        terminus = link.target if link.incoming else link.source
        names = (terminus.address, terminus.node_address)
        if any(name is not None and len(name) > LONGEST_ADDRESS_BYTES for name in names):
            self.refuse(link, TOO_LONG)
        elif not any(handler(link) for handler in self.link_handlers):
            self._attach_endpoint(link)
        if link in connection.links and not connection.role.is_between_routers:
            stolen = self._names.attached(link)
            if stolen is not None:
                log.warning(
                    "link stolen",
                    extra={"link": link.name, "container": connection.container, "connection": connection.id},
                )
                self.port.detach_link(stolen, STOLEN)

    def _attach_endpoint(self, link: Link) -> None:
        connection = link.connection
        terminus = link.target if link.incoming else link.source
        if connection.role is Role.INTER_ROUTER and connection.control_in is None:
            self.refuse(link, WRONG_ROLE)
        elif terminus.coordinator:
            self.refuse(link, NO_COORDINATOR)
        elif terminus.capabilities & CAPABILITIES_BETWEEN_ROUTERS:
            self.refuse(link, FORBIDDEN)
        elif not terminus.dynamic and (closed := self._closed(connection, terminus.address)) is not None:
            self.refuse(link, closed)
        elif link.incoming:
            self._attach_producer(link)
        else:
            self._attach_consumer(link)

    def _closed(self, connection: Connection, address: str | None) -> Condition | None:
        """Why the peer may not use a control address; None when it may, or the address is none."""
        if address is None or connection.role.is_between_routers:
            return None
        return connection.access.refusal(address, self.id)

    def links_beside(self, link: Link) -> int:
        """Number of links in the direction of `link` that its client has attached under other names.

        A link of the same name gives way to `link`.
        """
        return self._names.others(link)

    def check_destination(self, link: Link, address: str) -> None:
        """Whether what comes on the IN link may go to `address`; SectionError if not."""
        closed = self._closed(link.connection, address)
        if closed is not None:
            raise SectionError(closed.description, closed.name)
        if link.guard is not None:
            link.guard.check_address(address)

    def refuse(self, link: Link, condition: Condition) -> None:
        """Refuse an attach, say why, and count it."""
        refusals = self.counters.link_refusals
        refusals[condition.name] = refusals.get(condition.name, 0) + 1
        log.info(
            "link refused",
            extra={
                "event": "link.refused",
                "connection": link.connection.id,
                "user": link.connection.user,
                "link": link.name,
                "condition": condition.name,
                "description": condition.description,
            },
        )
        link.connection.links.discard(link)
        link.connection.standing.pop(link, None)
        self._names.gone(link)
        self.port.refuse_link(link, condition)

    def _attach_producer(self, link: Link) -> None:
        target = link.target
        if target.dynamic:
            target = Terminus(address=f"amqp:/_$temp.{random_name()}", dynamic=True)
        elif target.address is None:
            self.port.accept_link(link, link.source, target)
            self.port.top_up(link)
            return
        assert target.address is not None
        address = self.addresses.obtain(self.configured.key_for_link(link, target.address))
        if address.treatment is Treatment.UNAVAILABLE and address.is_mobile:
            self.addresses.forget_if_unused(address)
            self.refuse(link, NOT_FOUND)
            return
        link.target = target
        consumer = address.handler
        if (
            isinstance(consumer, SettlingConsumer)
            and consumer.most_bytes
            and not link.connection.role.is_between_routers
        ):
            link.limit_size(min(link.max_message_size or consumer.most_bytes, consumer.most_bytes))
        self.port.accept_link(link, link.source, target)
        self.bind_producer(link, address)

    def _attach_consumer(self, link: Link) -> None:
        source = link.source
        if source.dynamic:
            part = f"_edge/{self.id}" if self.edge else f"_topo/0/{self.id}"
            source = Terminus(address=f"amqp:/{part}/{TEMPORARY_PREFIX}{random_name()}", dynamic=True)
        if source.address is None:
            self.refuse(link, NO_ROUTE)
            return
        key = self.configured.key_for_link(link, source.address)
        if key[0] in {AddressClass.ROUTER, AddressClass.EDGE}:
            # The way to another router: who consumed from it would get that router's messages.
            self.refuse(link, NO_ROUTE)
            return
        if not source.dynamic and self._is_temporary_of_another(key, link.connection):
            self.refuse(link, OF_ANOTHER)
            return
        address = self.addresses.obtain(key)
        if address.treatment is Treatment.UNAVAILABLE and address.is_mobile:
            self.addresses.forget_if_unused(address)
            self.refuse(link, NOT_FOUND)
            return
        if key[0] in ADVERTISED and (full := self.claims.refusal(link.connection, address)) is not None:
            self.addresses.forget_if_unused(address)
            self.refuse(link, full)
            return
        link.source = source
        self.port.accept_link(link, source, link.target)
        self.bind_consumer(link, address)

    def _is_temporary_of_another(self, key: str, connection: Connection) -> bool:
        """Whether a consumer of the address would take messages that are for the client of another connection."""
        if connection.role.is_between_routers or not key.startswith(AddressClass.LOCAL + TEMPORARY_PREFIX):
            return False
        address = self.addresses.get(key)
        return address is None or all(link.connection is not connection for link in address.consumers)

    def bind_producer(self, link: Link, address: Address) -> None:
        """Deliveries on the IN link go to `address`; credit follows its reachability."""
        link.address = address
        address.inlinks.add(link)
        link.targeted = _is_targeted(link)
        reachable = self._reachability.judge(address, link)
        if reachable:
            self.port.top_up(link)
        for observer in self.observers:
            observer.link_bound(link)
        if reachable:
            self._reachability_seen(link, True)

    def _reachability_changed(self, link: Link, reachable: bool) -> None:
        if reachable:
            self.port.top_up(link)
        else:
            self.port.drain(link)
        self._reachability_seen(link, reachable)

    def _work(self, job: Iterator[None]) -> None:
        self.port.work(job)

    def _reachability_seen(self, link: Link, reachable: bool) -> None:
        for observer in self.observers:
            observer.reachability_changed(link, reachable)

    def bind_auto_link(self, link: Link, address: str | None, phase: int) -> None:
        """A container has answered an attach of this router's: the link takes part in `address`.

        Without an address, deliveries go where their `to` says.
        """
        if address is None:
            self.port.top_up(link)
            return
        key = self.configured.key(address, phase)
        if link.incoming:
            link.target = Terminus(address)
            self.bind_producer(link, self.addresses.obtain(key))
        else:
            self.bind_consumer(link, self.addresses.obtain(key))

    def set_guard(self, link: Link, guard: MessageGuard | None) -> None:
        """From now on, this is looked at in the messages of an IN link from a client."""
        if link.guard is not None and guard is not None:
            guard.structure = link.guard.structure  # of the message that is arriving
        link.guard = guard
        self._remembered(link).forget(link)
        if link.address is not None:
            link.targeted = _is_targeted(link)

    def bind_consumer(self, link: Link, address: Address) -> None:
        """The OUT link consumes from `address`."""
        link.address = address
        if link in address.consumers:
            return
        address.add_consumer(link)
        if address.key[0] in ADVERTISED:
            self.claims.added(link.connection, address)
        self._reachability.destination_added(address)
        for observer in self.observers:
            observer.link_bound(link)
        self._advertise(address)

    def unbind_consumer(self, link: Link) -> None:
        """The OUT link no longer consumes, though it stays attached (an edge proxy told to stop)."""
        address = link.address
        if address is not None and link in address.consumers:
            self._remove_consumer(link, address)
            self.addresses.forget_if_unused(address)

    def _remove_consumer(self, link: Link, address: Address) -> None:
        address.remove_consumer(link)
        self.claims.removed(link.connection, address)
        self._reachability.destination_removed(address)
        self._advertise(address)

    def link_closed(self, link: Link) -> None:
        """The link is detached, by either side, or its connection is lost."""
        connection = link.connection
        if link not in connection.links:
            return
        connection.links.discard(link)
        connection.standing.pop(link, None)
        self._names.gone(link)
        self.counters.add_link(link)
        for tally in self.tallies:
            tally.link_closed(link)
        self.forget_routes(link)
        if link is self.uplink:
            self.set_uplink(None)
        address = link.address
        if address is None:
            for observer in self.observers:
                observer.link_unbound(link)
            return
        if link.incoming:
            address.inlinks.discard(link)
        elif link in address.consumers:
            self._remove_consumer(link, address)
        address.link_gone(link)
        for observer in self.observers:
            observer.link_unbound(link)
        self.addresses.forget_if_unused(address)

    # Addresses

    def configure_addresses(
        self, patterns: PatternTree[ConfiguredAddress], default: Treatment
    ) -> Iterator[None]:
        """Replace the address configuration; addresses that exist change with it, in the returned steps.

        Clients whose links would now be in another phase have to attach them again.
        """
        self.configured.patterns, self.configured.default = patterns, default
        return self._reconfigure()

    def _reconfigure(self) -> Iterator[None]:
        for connection in list(self.connections.values()):
            if not connection.role.is_between_routers:
                for link in list(connection.links):
                    if link in connection.links and self._misplaced(link):
                        self.port.detach_link(link, OTHER_PHASE)
                    yield
        for address in list(self.addresses.values()):
            if self.addresses.get(address.key) is address:
                self._reconfigure_address(address)
            yield

    def _reconfigure_address(self, address: Address) -> None:
        if not address.is_mobile or address.handler.__class__ is SettlingConsumer:
            return
        # What the router itself offers stays within reach, whatever the default.
        usual = self.configured.default if address.handler is None else Treatment.CLOSEST
        configured = self.configured.find(address.key) or ConfiguredAddress(usual)
        found = configured.treatment, configured.priority, configured.resends
        if found != (address.treatment, address.priority, address.resends):
            address.treatment, address.priority, address.resends = found
            self._reachability.destinations_changed(address)
            self._advertise(address)

    def _misplaced(self, link: Link) -> bool:
        """Whether a client's link is in another phase than it would be in if it were attached now."""
        terminus = link.target if link.incoming else link.source
        if link.address is None or link.auto_link or terminus.address is None:
            return False
        return link.address.key != self.configured.key_for_link(link, terminus.address)

    def has_consumers(self, name: str) -> bool:
        """Whether there is anybody for a mobile address, here or elsewhere as far as this router is told."""
        address = self.addresses.get(AddressClass.MOBILE + name)
        return address is not None and bool(address.consumers or address.remotes)

    def set_uplink(self, link: Link | None) -> None:
        """On an edge: the uplink came, went or changed."""
        self.planner.uplink = link
        self.planner.unknown.invalidate()
        concerned, self.planner.concerned = self.planner.concerned, set()
        for address in concerned:
            if address.key == AddressClass.ROUTER:
                self._reachability.destinations_changed(address)
            else:
                address.invalidate()

    def set_mesh_id(self, connection: Connection, mesh_id: str) -> None:
        """The edge on `connection` belongs to this mesh: no message goes back to the mesh it came from."""
        if connection.mesh_id == mesh_id:
            return
        connection.mesh_id = mesh_id
        job = self._change_routes(connection, mesh_id)
        if next(job, self) is not self:
            self.port.work(job)

    def _change_routes(self, connection: Connection, mesh_id: str) -> Iterator[None]:
        """Plan anew what leads to the addresses of a connection's links and from them, some within the event."""
        addresses = {link.address: None for link in connection.links if link.address is not None}
        for number, address in enumerate(addresses, 1):
            if self.addresses.get(address.key) is address:
                self._reachability.destinations_changed(address)
                self._advertise(address)
            if number % ADDRESSES_AT_ONCE == 0:
                yield
                if connection.mesh_id != mesh_id:
                    return  # a newer job does it

    def has_local_consumers(self, address: Address) -> bool:
        """Whether anybody attached to this router consumes (clients, containers, edges; not edge proxies).

        So does what the router itself offers to the whole network.
        """
        if address.link_route is not None:
            return address.link_route.offered
        offered = address.handler is not None and address.handler.for_all and address.standing
        return offered or any(not link.proxy for link in address.consumers)

    def _advertise(self, address: Address) -> None:
        if self.advertised is not None and address.key[0] in ADVERTISED:
            self.advertised(address)

    def link_route_changed(self, address: Address) -> None:
        """What this router itself has to do with a link route is different, or may be."""
        self._advertise(address)
        self.addresses.forget_if_unused(address)

    # Routes

    def target_route(self, link: Link) -> Route:
        """The current route of an IN link that has a target address."""
        assert link.address is not None
        return self._reachability.ask(link.address, link)

    def route_for(
        self, link: Link | None, to: str | None, annotations: RouterAnnotations | None = None
    ) -> Route:
        """The route of a delivery that names its own destination.

        `link` is where it arrived (None: it originates in this router), `to` the address by which to route.
        """
        if annotations is not None and len(annotations.trace) > self.radius + 1 and not self.edge:
            return self.planner.nowhere()
        if to is None:
            return self.planner.nowhere()
        if annotations is not None or link is None or link.connection.role.is_between_routers:
            key = self.configured.key(to)
        else:
            # What an auto-link brings has been with a container on its way.
            key = self.configured.key_for_client(to, sends=not link.auto_link)
            if split_phase(key[1:])[1]:
                annotations = RouterAnnotations(to_override=key[1:])
        address = self.addresses.get(key)
        consumer = self.addresses.offered(key) if address is None else None
        if consumer is not None and consumer.takes_from(link):
            return self.planner.inside(consumer)
        return self.planner.plan(address, link, annotations)

    def remember_route(self, link: Link, key: bytes, route: Route) -> None:
        """Have a link that routes by what its messages say find a route by these first bytes of them."""
        self._remembered(link).remember(link, key, route)

    def forget_routes(self, link: Link) -> None:
        """The link no longer holds any route."""
        retire(link.route)
        self._remembered(link).forget(link)

    def _remembered(self, link: Link) -> RememberedRoutes:
        of_router = link.connection.role.is_between_routers
        return self._remembered_between_routers if of_router else self._remembered_of_clients

    def originate(self, to: str, payload: bytes, *, priority: int = 4) -> bool:
        """Send a pre-settled message of this router's own; False when nobody can receive it."""
        route = self.route_for(None, to)
        if route.kind is RouteKind.NONE:
            return False
        # The route is for one message: its annotation section must name the destination.
        prefix = self.planner.prefix(None, RouterAnnotations(to_override=normalise(to)))
        once = Route(route.address, route.receivers, prefix, handler=route.handler)
        if route.address is not None:
            route.address.originated += 1
        self.port.forward(once, payload, priority=priority)
        if route.owner is not None:
            route.owner.retire(route)
        return True


def _is_targeted(link: Link) -> bool:
    """Whether the target of an IN link that has one tells all about its messages."""
    every_message = link.guard is not None and link.guard.every_message
    return not (link.connection.role.is_between_routers or every_message)
