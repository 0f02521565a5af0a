"""The running router as management and `/status` see it, row by row."""

from __future__ import annotations

import resource
import socket
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING

from cproton_ffi import lib

from isthmus_router import __version__, totals
from isthmus_router.amqp.activity import Activity
from isthmus_router.amqp.tls import cipher_strength
from isthmus_router.config.model import Configuration, LinkRouteConfig
from isthmus_router.core.address import Address, SettlingConsumer, address_key
from isthmus_router.core.model import PRIORITIES, Connection, Link
from isthmus_router.core.roles import Role
from isthmus_router.core.sums import AddressSums, sums_of
from isthmus_router.core.terms import Direction, LinkType
from isthmus_router.core.treatment import Treatment
from isthmus_router.linkroute.table import Declaration
from isthmus_router.management.port import (
    SELF,
    AddressRow,
    AutoLinkRow,
    ConnectionLinkRouteRow,
    ConnectionRow,
    ConnectorRow,
    Counters,
    EdgeRow,
    EdgesRow,
    LinkRouteRow,
    LinkRow,
    ListenerRow,
    NodeRow,
    PolicyRow,
    SslProfileRow,
    UplinkRow,
    VhostRow,
)
from isthmus_router.policy.counters import Denial
from isthmus_router.policy.enforcer import PolicyEnforcer
from isthmus_router.upgrade.groups import shown_correlator

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection
    from isthmus_router.amqp.connector import Connector
    from isthmus_router.amqp.listener import Listener
    from isthmus_router.endpoints import HttpListener
    from isthmus_router.process import RouterProcess

_DISTRIBUTIONS = {
    Treatment.FLOOD: "flood",
    Treatment.MULTICAST: "multicast",
    Treatment.CLOSEST: "closest",
    Treatment.BALANCED: "balanced",
    Treatment.UNAVAILABLE: "unavailable",
}
_NO_ACTIVITY = Activity()
_ID = attrgetter("id")
LINKS_SORTED_AT_ONCE = 2048
"""In about a millisecond."""


def _uplink(connection: Connection) -> UplinkRow:
    return UplinkRow(
        connector=connection.io.settings.name,
        connection_id=connection.id,
        container=connection.container,
        cost=connection.cost,
        tls_ordinal=connection.tls_ordinal,
    )


def _distribution(address: Address) -> str:
    relayed = isinstance(address.handler, SettlingConsumer)
    return "relayed" if relayed else _DISTRIBUTIONS[address.treatment]


def _own_link_route(connection: Connection, name: str, own: Declaration) -> ConnectionLinkRouteRow:
    return ConnectionLinkRouteRow(
        connection.id,
        name,
        own.pattern,
        own.routes[0].direction is Direction.IN,
        connection.container,
        own.link_count,
    )


def _link_route(config: LinkRouteConfig, declaration: Declaration | None, now: float) -> LinkRouteRow:
    if declaration is None:
        return LinkRouteRow(config)
    refusals = [route.refusals for route in declaration.routes]
    last = max(refusals, key=lambda one: one.at)
    return LinkRouteRow(
        config,
        container_count=len(declaration.destinations),
        remote_count=min(route.remote_count for route in declaration.routes),
        link_count=declaration.link_count,
        refusal_count=sum(one.count for one in refusals),
        last_refused_address=last.address if last.count else None,
        last_refusal=last.description,
        last_refusal_seconds_ago=now - last.at if last.count else 0.0,
    )


def _vhost(policy: PolicyEnforcer, name: str) -> VhostRow:
    members, denials = policy.members(name), policy.denials.of(name)
    return VhostRow(
        name,
        policy.approved[name],
        len(members.names),
        {kind.value: denials[kind] for kind in Denial},
        {user: list(names.values()) for user, names in members.by_user.items()},
        {host: list(names.values()) for host, names in members.by_host.items()},
    )


def in_order_of_id(links: Collection[Link], offset: int) -> Iterator[Link | None]:
    """The links without the first `offset`, in the order of their ids; None now and then while they are sorted."""
    parts: dict[int, list[Link]] = {}
    for at, link in enumerate(list(links), 1):
        parts.setdefault(link.id // LINKS_SORTED_AT_ONCE, []).append(link)
        if at % LINKS_SORTED_AT_ONCE == 0:
            yield None
    for number in sorted(parts):
        part = parts[number]
        if offset < len(part):
            yield from sorted(part, key=_ID)[offset:]
        offset = max(0, offset - len(part))


def _connector(item: Connector) -> ConnectorRow:
    core = item.connection.core if item.connection is not None else None
    problem = core.problem if core is not None else None
    return ConnectorRow(
        item.config,
        "failed" if problem else item.state,
        problem or item.message,
        container=core.container if core is not None else None,
        connection_id=core.id if core is not None else None,
        tls_ordinal=core.tls_ordinal if core is not None else None,
        cost=core.cost if core is not None else None,
        active=core.active if core is not None and core.role is Role.EDGE else None,
    )


def _upgrade(connection: Connection) -> str:
    if connection.role is not Role.INTER_ROUTER or connection.active:
        return ""
    return "superseded" if connection.superseded else "pending"


class RouterView:
    """Rows, read from the process when they are asked for."""

    def __init__(self, process: RouterProcess) -> None:
        self._process = process
        self._host_name = socket.gethostname()
        self._counters: Counters | None = None
        self._counters_until = 0.0

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self._process.configuration

    @property
    def version(self) -> str:
        """Version of this program."""
        return __version__

    @property
    def host_name(self) -> str:
        """Name of the host it runs on."""
        return self._host_name

    def counters(self) -> Counters:
        """Totals since the start, and present numbers, as of now or of a short while ago."""
        if self._counters is None or time.monotonic() >= self._counters_until:
            begun = time.thread_time()
            self._counters = totals.counters(self._process)
            took = time.thread_time() - begun
            self._counters_until = time.monotonic() + totals.COUNTING_SHARE * took
        return self._counters

    def memory_bytes(self) -> tuple[int, int] | None:
        """Virtual and resident memory of this process; None when the system does not tell."""
        try:
            with open("/proc/self/statm", encoding="ascii") as statm:
                virtual, resident = map(int, statm.read().split()[:2])
        except OSError:
            return None
        return virtual * resource.getpagesize(), resident * resource.getpagesize()

    def connections(self, offset: int = 0) -> Iterator[ConnectionRow]:
        """Open connections by number; those that close in the meantime are left out."""
        connections = self._process.core.connections
        for connection in self._process.core.open_connections[offset:]:
            if connection.id in connections and not connection.leaving:
                yield self._connection(connection)

    def first_connections(self, most: int) -> Iterator[ConnectionRow]:
        """The first `most` connections that are open now, also if they close before their turn comes."""
        return map(self._connection, self._process.core.open_connections[:most])

    def _connection(self, connection: Connection) -> ConnectionRow:
        driver: AmqpConnection = connection.io
        return ConnectionRow(
            id=connection.id,
            host=connection.name,
            role=connection.role,
            incoming=connection.incoming,
            container=connection.container,
            sasl=driver.mechanism,
            is_authenticated=driver.authenticated,
            user=connection.user,
            ssl_protocol=driver.tls_protocol,
            ssl_cipher=driver.tls_cipher,
            ssl_strength=cipher_strength(driver.tls_cipher),
            local_socket=driver.local_name,
            properties=connection.properties,
            active=connection.active,
            last_delivery_seconds=self._process.driver.activity.last_delivery_seconds(connection),
            uptime_seconds=int(time.monotonic() - connection.opened_at),
            mesh_id=connection.mesh_id,
            problem=connection.problem,
            tls_ordinal=connection.tls_ordinal,
            group_correlation_id=None
            if connection.group_correlator is None
            else shown_correlator(connection.group_correlator),
            group_ordinal=connection.group_ordinal,
            upgrade=_upgrade(connection),
        )

    def links(self, offset: int = 0) -> Iterator[LinkRow | None]:
        """Attached links, in the order of their connections; those that end in the meantime are left out."""
        monitor = self._process.driver.activity
        now = time.monotonic()
        clock = self._process.driver.forwarder.settlement.now
        for link in self._links(offset):
            if link is None:
                yield None
                continue
            activity = link.activity or _NO_ACTIVITY
            yield LinkRow(
                id=link.id,
                name=link.name,
                link_type=link.type.value,
                incoming=link.incoming,
                connection_id=link.connection.id,
                role=link.connection.role,
                owning_address=self._owning_address(link),
                capacity=link.capacity,
                undelivered_count=link.waiting,
                unsettled_count=len(link.unsettled),
                delivery_count=link.deliveries,
                presettled_count=link.presettled + (0 if link.incoming else link.dropped_presettled),
                dropped_presettled_count=link.dropped_presettled,
                accepted_count=link.accepted,
                rejected_count=link.rejected,
                released_count=link.released,
                modified_count=link.modified,
                priority=PRIORITIES - 1 if link.type is LinkType.CONTROL else link.priority,
                credit_available=max(0, lib.pn_link_credit(link.io)),
                delayed_1_sec=link.delayed_1_second,
                delayed_10_sec=link.delayed_10_seconds,
                stuck=totals.stuck(link, clock),
                settle_rate=activity.settle_rate,
                zero_credit_seconds=monitor.zero_credit_seconds(link, now),
                peer=link.partner.id if link.partner is not None else None,
            )

    def _owning_address(self, link: Link) -> str | None:
        """The key of the link's own end, or of what was asked for where it is routed.

        Links that the router itself answers have no address to send to.
        """
        if link.address is not None:
            return link.address.key
        routed = self._process.link_routing.routed.get(link)
        asked = link if routed is None else routed.near
        own = asked.target if asked.incoming else asked.source
        if not own.address:
            return None
        core = self._process.core
        return address_key(own.address, core.id, edge=core.edge)

    def _links(self, offset: int) -> Iterator[Link | None]:
        for connection in list(self._process.core.connections.values()):
            if offset >= len(connection.links):
                offset -= len(connection.links)
                continue
            for link in in_order_of_id(connection.links, offset):
                if link is None or link in connection.links:
                    yield link
            offset = 0

    def addresses(self, offset: int = 0) -> Iterator[AddressRow | None]:
        """Addresses in use, in the order they appeared; those that go in the meantime are left out."""
        addresses = self._process.core.addresses
        for address in list(islice(addresses.values(), offset, None)):
            if address.key in addresses:
                yield from self._address_row(address)

    def first_addresses(self, most: int) -> Iterator[AddressRow | None]:
        """The first `most` addresses that are in use now, also if they go before their turn comes."""
        addresses = list(islice(self._process.core.addresses.values(), most))
        return chain.from_iterable(map(self._address_row, addresses))

    def _address_row(self, address: Address) -> Iterator[AddressRow | None]:
        """The row, after None for each step until other work may have its turn."""
        sums = sums_of(address)
        while True:
            try:
                next(sums)
            except StopIteration as finished:
                yield self._address(address, finished.value)
                return
            yield None

    def _address(self, address: Address, sums: AddressSums) -> AddressRow:
        route = self._process.link_routing.table.all.get(address.key)
        return AddressRow(
            key=address.key,
            distribution=_distribution(address) if route is None else "linkBalanced",
            in_process=int(address.handler is not None),
            subscriber_count=sums.subscribers,
            remote_count=len(address.remotes) if route is None else route.remote_count,
            remote_host_routers=sorted(node.id for node in address.remotes),
            container_count=route.container_count if route is not None else 0,
            deliveries_ingress=sums.ingress,
            deliveries_egress=sums.egress,
            deliveries_transit=sums.transit,
            deliveries_to_container=sums.handled,
            deliveries_from_container=address.originated,
            deliveries_ingress_route_container=sums.container_ingress,
            deliveries_egress_route_container=sums.container_egress,
            tracked_deliveries=sum(load.outstanding for load in address.loads.values()),
            priority=address.priority,
        )

    def nodes(self) -> Sequence[NodeRow]:
        """The routers that can be reached, this one first; empty where there is no routing."""
        interior = self._process.interior
        if interior is None:
            return []
        rows, core_id = [], self._process.core.id
        for node in interior.engine.nodes():
            if not node.reachable:
                continue
            own = node.id == core_id
            hop = interior.connections.hops.get(node.link) if node.link is not None else None
            rows.append(
                NodeRow(
                    id=node.id,
                    protocol_version=node.version,
                    instance=node.instance,
                    link_state=node.link_state,
                    next_hop=SELF if own else node.next_hop,
                    valid_origins=[origin for origin in node.valid_origins if origin != core_id],
                    router_link=node.link,
                    cost=node.cost,
                    last_topology_change=self._wall_clock(node.last_topology_change) if own else None,
                    index=node.index,
                    connection_id=hop.connection.id if hop is not None else None,
                )
            )
        return rows

    def _wall_clock(self, moment: float) -> int:
        return int(time.time() - (self._process.loop.time() - moment))

    def listeners(self) -> Sequence[ListenerRow]:
        """Configured listeners and whether they listen."""
        endpoints = self._process.endpoints
        items: list[Listener | HttpListener] = [*endpoints.listeners.values(), *endpoints.http.values()]
        return [ListenerRow(item.config, item.state == "listening", item.message) for item in items]

    def connectors(self, offset: int = 0) -> Iterator[ConnectorRow]:
        """Configured connectors and what became of them, without the first `offset` ones."""
        return map(_connector, list(self._process.endpoints.connectors.values())[offset:])

    def ssl_profiles(self) -> Sequence[SslProfileRow]:
        """Profiles of the configuration, and who uses which of their generations."""
        found: dict[str, Counter[int]] = {name: Counter() for name in self.configuration.ssl_profiles}
        for connection in self._process.core.open_connections if found else ():
            tls = connection.io.settings.tls
            if connection.tls_ordinal is not None and tls.profile in found:
                found[tls.profile][connection.tls_ordinal] += 1
        return [
            SslProfileRow(profile, dict(sorted(found[name].items())))
            for name, profile in self.configuration.ssl_profiles.items()
        ]

    def edge(self) -> Generator[None, None, EdgeRow | None]:
        """Uplinks and proxies of an edge router."""
        side = self._process.edge
        if side is None:
            return None
        manager, proxy = side.connections, side.proxy
        uplink = proxy.uplink
        proxied, bound = (yield from uplink.count_addresses()) if uplink is not None else (0, 0)
        return EdgeRow(
            active=_uplink(manager.active) if manager.active is not None else None,
            standbys=[_uplink(item) for item in manager.ranked_standbys() if item.problem is None],
            uplink_changes=manager.changes,
            proxied_addresses=proxied,
            out_proxies=len(uplink.out_proxies) if uplink is not None else 0,
            in_proxies=len(uplink.in_proxies) if uplink is not None else 0,
            bound_addresses=bound,
            tracking_messages=proxy.messages_received,
            invalid_tracking_messages=proxy.messages_invalid,
        )

    def edges(self) -> EdgesRow | None:
        """What edges use on an interior router."""
        side = self._process.edges
        if side is None:
            return None
        return EdgesRow(
            attached=len(side.tracking.endpoints),
            tracked_addresses=side.tracking.tracked_addresses,
            tracking_messages=side.tracking.messages_sent,
            invalid_announcements=side.downlinks.invalid_announcements,
            duplicate_ids=side.namesakes.duplicate_ids,
        )

    def policy(self) -> PolicyRow:
        """What the policy has decided."""
        policy = self._process.policy
        denials = {kind.value: policy.denials.total[kind] for kind in Denial}
        denials[Denial.MESSAGE_SIZE] = self._process.core.counters.messages_too_large
        return PolicyRow(policy.processed, policy.clients, denials)

    def vhosts(self) -> Iterator[VhostRow]:
        """What came of the vhosts."""
        policy = self._process.policy
        return (_vhost(policy, vhost.name) for vhost in list(policy.vhosts))

    def auto_links(self, offset: int = 0) -> Iterator[AutoLinkRow]:
        """Auto-links and their links, without the first `offset` ones."""
        return (
            AutoLinkRow(
                auto_link.config,
                auto_link.state.value,
                phase=auto_link.phase,
                link_id=auto_link.link.id if auto_link.link is not None else None,
                last_error=auto_link.last_error,
            )
            for auto_link in islice(self._process.auto_links.all, offset, None)
        )

    def link_routes(self, offset: int = 0) -> Iterator[LinkRouteRow]:
        """Link routes, and what became of the links that matched, without the first `offset` ones."""
        routing = self._process.link_routing
        return (
            _link_route(config, routing.sections.get(config), routing.now)
            for config in islice(self.configuration.link_routes, offset, None)
        )

    def connection_link_routes(self, offset: int = 0) -> Iterator[ConnectionLinkRouteRow]:
        """Link routes that containers have made for their connections, without the first `offset` ones."""
        for connection, made in list(self._process.link_routing.made.of.items()):
            if offset >= len(made):
                offset -= len(made)
                continue
            for name, own in list(made.items())[offset:]:
                yield _own_link_route(connection, name, own)
            offset = 0

    def link_routes_of(self, connection_id: int) -> Sequence[ConnectionLinkRouteRow]:
        """Those of one connection."""
        connection = self._process.core.connections.get(connection_id)
        if connection is None:
            return ()
        made = self._process.link_routing.made.of.get(connection, {})
        return [_own_link_route(connection, name, own) for name, own in made.items()]

    def log_counts(self) -> Mapping[tuple[str, str], int]:
        """Log records written, by module and level."""
        return self._process.log_counts()
