"""Prometheus metrics: a snapshot of the router's counters, and how it is exposed.

Labels are bounded: roles, directions, outcomes, error conditions, ids of neighbours, names of sslProfiles and of
sites. Addresses, containers and connections are in management, not here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from isthmus_router.management.port import EdgeRow, EdgesRow
from isthmus_router.relay_site.metrics import RelayFigures, relay_families

CONTENT_TYPE = CONTENT_TYPE_LATEST

PREFIX = "isthmus_router_"


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """Values at one moment. Mappings go from label values to the value."""

    router_id: str
    mode: str
    version: str
    uptime_seconds: float
    ready: bool
    kernel: str = "python"
    """What forwards: `compiled`, or `python` where there is no compiled kernel."""
    connections: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(role, direction) of open connections."""
    connections_opened: int = 0
    connections_closed: int = 0
    tls_connections: Mapping[str, int] = field(default_factory=dict)
    """Open connections by the ordinal of the sslProfile they were made with."""
    links: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(type, direction) of attached links."""
    links_attached: int = 0
    links_blocked: int = 0
    """Outgoing links with deliveries waiting and no credit."""
    link_refusals: Mapping[str, int] = field(default_factory=dict)
    """Refused attaches by error condition."""
    deliveries: Mapping[str, int] = field(default_factory=dict)
    """By direction."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Deliveries by outcome: accepted, rejected, released, modified, presettled, presettled-dropped."""
    deliveries_stuck: int = 0
    """Deliveries that have been unsettled for more than ten seconds."""
    addresses: int = 0
    routers: int = 0
    """Other routers known."""
    neighbors: Mapping[str, int] = field(default_factory=dict)
    """Cost of each neighbour, by router id."""
    path_computations: int = 0
    connection_upgrades: int = 0
    """Inter-router connections that have taken over from others."""
    routing_messages: Mapping[str, int] = field(default_factory=dict)
    """Control messages from other routers, by opcode."""
    routing_messages_refused: int = 0
    """Those that could not be read, or that their router cannot have sent."""
    routing_messages_dropped: int = 0
    routing_addresses_refused: int = 0
    """Addresses of other routers for which there was no room."""
    edge_link_routes_ignored: Mapping[str, int] = field(default_factory=dict)
    """Those that edges, or the interior of an edge, have announced: `invalid`, or beyond the room for them
    (`no-room`)."""
    routers_without_place: Mapping[str, int] = field(default_factory=dict)
    """Since the start: `refused` by the full table of routers, or `displaced` from it by another one."""
    listeners: Mapping[str, int] = field(default_factory=dict)
    """By state."""
    connectors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By (role, state)."""
    auto_links: Mapping[str, int] = field(default_factory=dict)
    """By state."""
    link_routes: Mapping[str, int] = field(default_factory=dict)
    """By state."""
    routed_links: int = 0
    """Links that pass through this router to a container, or to another router on the way there."""
    ssl_profile_ordinals: Mapping[str, int] = field(default_factory=dict)
    """Ordinal of each sslProfile."""
    policy_denials: Mapping[str, int] = field(default_factory=dict)
    """What the policy has refused, by kind."""
    failed_logins: Mapping[str, int] = field(default_factory=dict)
    """Since the start: `refused` by the SASL mechanism, `throttled`, or `abandoned`."""
    refused_peers: int = 0
    """Connections whose certificates had none of the `peerNames`."""
    excess_connections: int = 0
    """Connections whose listeners had as many as they may."""
    config_reloads: int = 0
    config_errors: int = 0
    config_valid: bool = True
    """Whether the configuration file, as it is now, is in force."""
    log_records: Mapping[str, int] = field(default_factory=dict)
    """By level."""
    edge: EdgeRow | None = None
    edges: EdgesRow | None = None
    relay: RelayFigures | None = None


def exposition(snapshot: MetricsSnapshot) -> bytes:
    """The snapshot and the process's own metrics as text."""
    registry = CollectorRegistry()
    registry.register(_SnapshotCollector(snapshot))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _SnapshotCollector(Collector):
    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        s = self._snapshot
        info = GaugeMetricFamily(
            f"{PREFIX}build_info", "What runs here.", labels=["router_id", "mode", "version", "kernel"]
        )
        info.add_metric([s.router_id, s.mode, s.version, s.kernel], 1)
        yield info
        yield _gauge("uptime_seconds", "Seconds since the router started.", s.uptime_seconds)
        yield _gauge("ready", "Whether clients can be sent here.", s.ready)
        yield _gauge("connections", "Open connections.", s.connections, "role", "direction")
        yield _counter("connections_opened", "Connections opened.", s.connections_opened)
        yield _counter("connections_closed", "Connections closed.", s.connections_closed)
        yield _gauge("tls_connections", "Open TLS connections, by ordinal.", s.tls_connections, "ordinal")
        yield _gauge("links", "Attached links.", s.links, "type", "direction")
        yield _counter("links_attached", "Links that peers attached.", s.links_attached)
        yield _counter("link_refusals", "Attaches refused.", s.link_refusals, "condition")
        yield _gauge("links_blocked", "Links with deliveries waiting for credit.", s.links_blocked)
        yield _counter("deliveries", "Deliveries that came in or went out.", s.deliveries, "direction")
        yield _counter("delivery_outcomes", "Deliveries settled.", s.outcomes, "outcome")
        yield _gauge(
            "deliveries_stuck", "Deliveries unsettled for more than ten seconds.", s.deliveries_stuck
        )
        yield _gauge("addresses", "Addresses in use.", s.addresses)
        yield _gauge("routers", "Other routers known in the network.", s.routers)
        yield _gauge("neighbor_cost", "Cost of the link to a neighbour.", s.neighbors, "neighbor")
        yield _counter("path_computations", "Times the paths were computed.", s.path_computations)
        yield _counter(
            "connection_upgrades",
            "Times an inter-router connection has taken over from another.",
            s.connection_upgrades,
        )
        messages = s.routing_messages
        yield _counter("routing_messages", "Messages of the routing protocol received.", messages, "opcode")
        refused = s.routing_messages_refused
        yield _counter(
            "routing_messages_refused",
            "Messages of the routing protocol that are invalid, or that their router cannot have sent.",
            refused,
        )
        yield _counter(
            "routing_messages_dropped",
            "Messages of the routing protocol for others, beyond the rate at which they are passed on.",
            s.routing_messages_dropped,
        )
        yield _counter(
            "routing_addresses_refused",
            "Addresses that other routers announced and that found no room.",
            s.routing_addresses_refused,
        )
        yield _counter(
            "edge_link_routes_ignored",
            "Link routes that edges, or the interior of an edge, announced and that are invalid or found no room.",
            s.edge_link_routes_ignored,
            "reason",
        )
        yield _counter(
            "routers_without_place",
            "Routers that the full table of routers refused, or that lost their place in it.",
            s.routers_without_place,
            "outcome",
        )
        yield _gauge("listeners", "Configured listeners.", s.listeners, "state")
        yield _gauge("connectors", "Configured connectors.", s.connectors, "role", "state")
        yield _gauge("auto_links", "Configured auto-links.", s.auto_links, "state")
        yield _gauge("link_routes", "Configured link routes.", s.link_routes, "state")
        yield _gauge(
            "routed_links", "Links of clients that go to a container by way of this router.", s.routed_links
        )
        yield _gauge("tls_ordinal", "Ordinal of an sslProfile.", s.ssl_profile_ordinals, "profile")
        yield _counter(
            "policy_denials",
            "Connections, sessions, links and messages that the policy refused.",
            s.policy_denials,
            "kind",
        )
        yield _counter(
            "peers_refused",
            "Connections closed because the peer's certificate has none of the listener's peerNames, or is revoked.",
            s.refused_peers,
        )
        yield _counter(
            "excess_connections",
            "Connections closed because the listener has maxConnections of them, or one router its share.",
            s.excess_connections,
        )
        yield _counter("failed_logins", "Logins of peers that failed.", s.failed_logins, "outcome")
        yield _counter("config_reloads", "Configurations applied while running.", s.config_reloads)
        yield _counter("config_errors", "Configurations refused while running.", s.config_errors)
        yield _gauge("config_valid", "Whether the file's configuration is in force.", s.config_valid)
        yield _counter("log_records", "Log records written.", s.log_records, "level")
        if s.edge is not None:
            yield from _edge(s.edge)
        if s.edges is not None:
            yield from _edges(s.edges)
        if s.relay is not None:
            yield from relay_families(s.relay)


def _edge(edge: EdgeRow) -> Iterator[Metric]:
    uplinks = {"active": int(edge.active is not None), "standby": len(edge.standbys)}
    proxies = {"out": edge.out_proxies, "in": edge.in_proxies}
    messages = {"valid": edge.tracking_messages, "invalid": edge.invalid_tracking_messages}
    yield _gauge("edge_uplinks", "Open uplinks of this edge.", uplinks, "state")
    yield _counter("edge_uplink_changes", "Times an uplink became active.", edge.uplink_changes)
    yield _gauge("edge_proxied_addresses", "Addresses with a proxy link.", edge.proxied_addresses)
    yield _gauge("edge_bound_addresses", "Addresses with consumers beyond the uplink.", edge.bound_addresses)
    yield _gauge("edge_proxies", "Proxy links, by direction seen from this edge.", proxies, "direction")
    yield _counter("edge_tracking_messages", "Tracking messages from the interior.", messages, "result")


def _edges(edges: EdgesRow) -> Iterator[Metric]:
    yield _gauge("tracked_edges", "Edge connections whose addresses are tracked.", edges.attached)
    yield _gauge("tracked_addresses", "Addresses tracked, for each edge.", edges.tracked_addresses)
    yield _counter("tracking_messages_sent", "Tracking messages to edges.", edges.tracking_messages)
    invalid = edges.invalid_announcements
    yield _counter("invalid_mesh_announcements", "Mesh announcements of edges that were ignored.", invalid)
    yield _counter("duplicate_edge_ids", "Edges whose id another router has.", edges.duplicate_ids)


_Value = float | Mapping[str, int] | Mapping[tuple[str, str], int]


def _gauge(name: str, text: str, value: _Value, *labels: str) -> Metric:
    return _filled(GaugeMetricFamily(f"{PREFIX}{name}", text, labels=labels), value)


def _counter(name: str, text: str, value: _Value, *labels: str) -> Metric:
    return _filled(CounterMetricFamily(f"{PREFIX}{name}", text, labels=labels), value)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, value: _Value) -> Metric:
    if isinstance(value, Mapping):
        for key, number in value.items():
            family.add_metric([key] if isinstance(key, str) else list(key), number)
    else:
        family.add_metric([], float(value))
    return family
