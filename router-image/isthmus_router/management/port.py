"""What management needs to know about the router, and what it can make the router do.

`RouterView` implements `ManagementView`, `RouterProcess` the `ManagementActions`. The rows are plain values, made when
asked for; nothing here refers back into the core. `/status` is written from the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from isthmus_router.config.diff import Changes
from isthmus_router.config.model import (
    AutoLinkConfig,
    Configuration,
    ConnectorConfig,
    LinkRouteConfig,
    ListenerConfig,
    SslProfileConfig,
)
from isthmus_router.core.access import ManagementLevel
from isthmus_router.core.roles import Role


@dataclass(frozen=True, slots=True)
class ConnectionRow:
    """An open connection."""

    id: int
    host: str
    """Peer, `<host>:<port>`."""
    role: Role
    incoming: bool
    """Accepted by a listener."""
    container: str | None = None
    local_socket: str | None = None
    sasl: str | None = None
    """Mechanism in use."""
    is_authenticated: bool = False
    user: str | None = None
    ssl_protocol: str | None = None
    """e.g. `TLSv1.3`; None without TLS."""
    ssl_cipher: str | None = None
    ssl_strength: int = 0
    """Bits of the cipher's key."""
    properties: Mapping[str, object] = field(default_factory=dict)
    """Open properties of the peer."""
    opened: bool = True
    active: bool = True
    """False for an edge connection kept in reserve."""
    uptime_seconds: int = 0
    last_delivery_seconds: int | None = None
    mesh_id: str | None = None
    problem: str | None = None
    """Why the connection, though open, does not serve its purpose."""
    tls_ordinal: int | None = None
    """Ordinal of the own sslProfile when the connection was made."""
    group_correlation_id: str | None = None
    group_ordinal: int | None = None
    upgrade: str = ""
    """Of an inter-router connection: `pending` before it takes over, `superseded` after another has."""


@dataclass(frozen=True, slots=True)
class LinkRow:
    """An attached link. Counters count deliveries."""

    id: int
    name: str
    link_type: str
    """`endpoint`, `router-control`, `inter-router` or `edge-downlink`."""
    incoming: bool
    connection_id: int
    role: Role = Role.NORMAL
    """Of the connection."""
    owning_address: str | None = None
    """Address key; None for anonymous links."""
    capacity: int = 0
    undelivered_count: int = 0
    unsettled_count: int = 0
    delivery_count: int = 0
    oper_status: str = "up"
    """`up`, `down`, `quiescing` or `idle`."""
    presettled_count: int = 0
    dropped_presettled_count: int = 0
    accepted_count: int = 0
    rejected_count: int = 0
    released_count: int = 0
    modified_count: int = 0
    delayed_1_sec: int = 0
    delayed_10_sec: int = 0
    stuck: int = 0
    priority: int = 4
    settle_rate: int = 0
    """Settled deliveries per second, recently."""
    credit_available: int = 0
    zero_credit_seconds: int = 0
    peer: int | None = None
    """Id of the other half of a routed link."""


@dataclass(frozen=True, slots=True)
class AddressRow:
    """An address in use."""

    key: str
    """Class character and name, e.g. `Morders`."""
    distribution: str
    """`multicast`, `closest`, `balanced`, `unavailable`; `flood` for addresses of the router itself, `relayed` for
    those of a group at its members and their edges, and `linkBalanced` for link routes."""
    in_process: int = 0
    subscriber_count: int = 0
    """Consumers on this router."""
    remote_count: int = 0
    """Routers with consumers."""
    remote_host_routers: Sequence[str] = ()
    container_count: int = 0
    """Containers of this router that take the links of a link route."""
    deliveries_ingress: int = 0
    deliveries_egress: int = 0
    deliveries_transit: int = 0
    deliveries_to_container: int = 0
    """Consumed by the router itself."""
    deliveries_from_container: int = 0
    """Made by the router itself."""
    deliveries_egress_route_container: int = 0
    deliveries_ingress_route_container: int = 0
    tracked_deliveries: int = 0
    priority: int | None = None


SELF = "(self)"
"""`NodeRow.next_hop` of this router."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A known interior router, this one included."""

    id: str
    protocol_version: int
    instance: int
    link_state: Sequence[str]
    """Ids of its neighbours."""
    next_hop: str | None
    """`(self)` for this router, None for a neighbour, else the id of the next hop."""
    valid_origins: Sequence[str]
    router_link: int | None
    """Link identifier of a neighbour."""
    cost: int | None
    """Of the path; None for this router."""
    last_topology_change: int | None = None
    """Seconds since the epoch; this router's row only."""
    index: int = 0
    connection_id: int | None = None
    """Connection to a neighbour."""


@dataclass(frozen=True, slots=True)
class ListenerRow:
    """A listener and what became of it."""

    config: ListenerConfig
    listening: bool
    message: str = ""
    """Why it does not listen."""


@dataclass(frozen=True, slots=True)
class ConnectorRow:
    """A connector and what became of it."""

    config: ConnectorConfig
    state: str
    """`open`, `connecting` or `failed`."""
    message: str = ""
    """Last failure, or what is going on."""
    container: str | None = None
    """Container id of the peer, when open."""
    connection_id: int | None = None
    tls_ordinal: int | None = None
    cost: int | None = None
    """Effective cost of the open connection."""
    active: bool | None = None
    """Of an open edge connection: whether it is the uplink in use; False in reserve."""


@dataclass(frozen=True, slots=True)
class SslProfileRow:
    """A profile and the connections that were made or accepted with its credentials."""

    config: SslProfileConfig
    connections: Mapping[int, int]
    """Number of open ones by ordinal."""


@dataclass(frozen=True, slots=True)
class AutoLinkRow:
    """An auto-link and its link."""

    config: AutoLinkConfig
    oper_status: str
    """`inactive`, `attaching`, `failed`, `active`, `quiescing` or `idle`."""
    phase: int | None = None
    """Of the address, as configured or by default; None while that is not known."""
    link_id: int | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class LinkRouteRow:
    """A link route, its containers, and what became of the links that matched."""

    config: LinkRouteConfig
    container_count: int = 0
    """Containers of this router that take its links now."""
    remote_count: int = 0
    """Other routers that have some."""
    link_count: int = 0
    """Links that are routed to containers of this router by it."""
    refusal_count: int = 0
    """Attaches that were refused, for want of a container or by one of this router."""
    last_refused_address: str | None = None
    last_refusal: str = ""
    last_refusal_seconds_ago: float = 0.0

    @property
    def active(self) -> bool:
        """Whether a container of this router takes its links."""
        return self.container_count > 0


@dataclass(frozen=True, slots=True)
class ConnectionLinkRouteRow:
    """A link route that a container has made for its own connection."""

    connection_id: int
    name: str
    pattern: str
    incoming: bool
    """About links of senders."""
    container: str = ""
    link_count: int = 0


@dataclass(frozen=True, slots=True)
class Requester:
    """Who asks, and what the policy lets it do."""

    connection_id: int | None = None
    """On which the request came from a client or container; None: from another router, or this one."""
    neighbour: int | None = None
    """The connection to another router on which it came; None: it came from a client, or from this router."""
    origin: str = ""
    """The router at which it entered the network, as the neighbour says; empty: this one."""
    level: ManagementLevel = ManagementLevel.READ
    container: bool = False
    """It is a broker or the like: its connection is of role route-container."""
    may_close_connections: bool = True
    may_take_links: Callable[[str, bool], bool] | None = None
    """Whether links to addresses of a pattern, those of senders if true, may be routed to it; None: any."""
    may_be_answered_at: Callable[[str], bool] | None = None
    """Whether responses may go to an address; None: to any that clients use."""

    @property
    def waits_with(self) -> int | None:
        """The connection whose requests have their turns together."""
        return self.neighbour if self.connection_id is None else self.connection_id


ANYBODY = Requester()


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the router started, and present numbers."""

    address_count: int = 0
    link_count: int = 0
    node_count: int = 0
    """Other routers."""
    auto_link_count: int = 0
    link_route_count: int = 0
    connection_count: int = 0
    client_connection_count: int = 0
    """Of these, those of clients and containers."""
    connections_opened: int = 0
    presettled_deliveries: int = 0
    dropped_presettled_deliveries: int = 0
    accepted_deliveries: int = 0
    rejected_deliveries: int = 0
    released_deliveries: int = 0
    modified_deliveries: int = 0
    deliveries_delayed_1_sec: int = 0
    deliveries_delayed_10_sec: int = 0
    deliveries_stuck: int = 0
    deliveries_ingress: int = 0
    """From clients, containers and edges."""
    deliveries_egress: int = 0
    """To clients, containers and edges."""
    deliveries_transit: int = 0
    """To other interior routers."""
    deliveries_ingress_route_container: int = 0
    deliveries_egress_route_container: int = 0
    links_blocked: int = 0
    """Outgoing links with deliveries waiting and no credit."""
    uptime_seconds: int = 0


@dataclass(frozen=True, slots=True)
class UplinkRow:
    """An open connection of an edge router to an interior one."""

    connector: str
    connection_id: int
    container: str
    """Id of the interior router."""
    cost: int
    tls_ordinal: int | None


@dataclass(frozen=True, slots=True)
class EdgeRow:
    """An edge router's part in address tracking."""

    active: UplinkRow | None
    standbys: Sequence[UplinkRow]
    """The one that follows the active one first."""
    uplink_changes: int
    """How often an uplink has become active."""
    proxied_addresses: int
    out_proxies: int
    in_proxies: int
    bound_addresses: int
    """Addresses with consumers beyond the uplink, of those that clients here produce to."""
    tracking_messages: int
    invalid_tracking_messages: int


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """What the policy has decided since the router started."""

    connections_processed: int = 0
    connections_current: int = 0
    """Of clients."""
    denials: Mapping[str, int] = field(default_factory=dict)
    """By kind: connection, session, sender, receiver, message, message-size."""


@dataclass(frozen=True, slots=True)
class VhostRow:
    """What came of one vhost of the policy."""

    hostname: str
    connections_approved: int
    connections_current: int
    denials: Mapping[str, int]
    """As of `PolicyRow`."""
    per_user: Mapping[str, Sequence[str]]
    """Peers of the open connections of each user."""
    per_host: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class EdgesRow:
    """An interior router's part in address tracking."""

    attached: int
    """Edge connections with tracking state."""
    tracked_addresses: int
    """Addresses that links of edges produce to, counted for each edge connection."""
    tracking_messages: int
    invalid_announcements: int
    duplicate_ids: int


class ManagementView(Protocol):
    """Reads the router. Every method is called on the event loop and must not block.

    Peers can fill some tables. Methods that walk over them do so in steps: an iterator of rows also yields None, and a
    generator yields, when other work may have its turn.
    """

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""

    @property
    def version(self) -> str:
        """Version of this program."""

    @property
    def host_name(self) -> str:
        """Name of the host it runs on."""

    def counters(self) -> Counters: ...

    def memory_bytes(self) -> tuple[int, int] | None:
        """Virtual and resident memory of this process; None when unknown."""

    def connections(self, offset: int = 0) -> Iterator[ConnectionRow]:
        """Connections in a stable order, without the first `offset`."""

    def first_connections(self, most: int) -> Iterator[ConnectionRow]:
        """Those of the first `most` that are open when this is called."""

    def links(self, offset: int = 0) -> Iterator[LinkRow | None]:
        """Links in a stable order, without the first `offset`."""

    def addresses(self, offset: int = 0) -> Iterator[AddressRow | None]:
        """Addresses in a stable order, without the first `offset`."""

    def first_addresses(self, most: int) -> Iterator[AddressRow | None]:
        """Those of the first `most` that are in use when this is called."""

    def nodes(self) -> Sequence[NodeRow]:
        """This router first, then the others; nothing on an edge or standalone router."""

    def listeners(self) -> Sequence[ListenerRow]: ...

    def connectors(self, offset: int = 0) -> Iterator[ConnectorRow]:
        """Those of the configuration, without the first `offset` ones."""

    def ssl_profiles(self) -> Sequence[SslProfileRow]: ...

    def edge(self) -> Generator[None, None, EdgeRow | None]:
        """Uplinks and proxies; None on a router that is no edge."""

    def edges(self) -> EdgesRow | None:
        """What edges use here; None on a router that edges cannot attach to."""

    def policy(self) -> PolicyRow: ...

    def vhosts(self) -> Iterator[VhostRow]:
        """Of every vhost that is configured."""

    def auto_links(self, offset: int = 0) -> Iterator[AutoLinkRow]:
        """Those of the configuration, without the first `offset` ones."""

    def link_routes(self, offset: int = 0) -> Iterator[LinkRouteRow]:
        """Those of the configuration, without the first `offset` ones."""

    def connection_link_routes(self, offset: int = 0) -> Iterator[ConnectionLinkRouteRow]:
        """Those that containers have made for their connections, without the first `offset` ones."""

    def link_routes_of(self, connection_id: int) -> Sequence[ConnectionLinkRouteRow]:
        """Those of one connection."""

    def log_counts(self) -> Mapping[tuple[str, str], int]:
        """Log records written, by module and level."""


class ActionRefusedError(Exception):
    """The router does not do what was asked; the text says why."""


class ManagementActions(Protocol):
    """Changes the router."""

    @property
    def wanted_configuration(self) -> Configuration:
        """The latest configuration accepted, which the next change builds on; it may not be in force yet."""

    def apply(self, configuration: Configuration, changes: Changes) -> None:
        """Accept `configuration` and begin to carry it out; `changes` lead there from the one wanted so far.

        Raises ActionRefusedError.
        """

    def make_link_route(self, row: ConnectionLinkRouteRow) -> None:
        """The container at the other end of a connection takes such links from now on."""

    def end_link_route(self, row: ConnectionLinkRouteRow) -> None:
        """It takes no new ones any more."""

    def close_connection(self, connection_id: int) -> None:
        """Close a client's connection. Raises ActionRefusedError."""

    def detach_link(self, connection_id: int, link_id: int) -> None:
        """Detach a link of a client. Raises ActionRefusedError."""
