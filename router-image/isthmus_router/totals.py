"""What the running router adds up: the counters of management, and the snapshot behind `/metrics`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING

from cproton_ffi import lib

from isthmus_router import __version__
from isthmus_router.core.counters import CoreCounters
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.router import RouterCore
from isthmus_router.management.port import Counters
from isthmus_router.metrics import MetricsSnapshot

if TYPE_CHECKING:
    from isthmus_router.process import RouterProcess

STUCK_SECONDS = 10
_KIND = attrgetter("type", "direction")


class Tally:
    """What a walk over the links of a router adds up."""

    def __init__(self, core: RouterCore) -> None:
        self.totals = CoreCounters()
        """Of all links, those that are gone included."""
        self.links: Counter[tuple[str, str]] = Counter()
        """By type and direction."""
        self.blocked = 0
        for name in CoreCounters.__slots__:
            setattr(self.totals, name, getattr(core.counters, name))
        for connection in core.connections.values():
            self._add(connection)

    def _add(self, connection: Connection) -> None:
        """Count the links of a connection; those without deliveries, most of them on an interior, cost little."""
        kinds = Counter(map(_KIND, connection.links))
        for (link_type, direction), count in kinds.items():
            self.links[link_type.value, direction.value] += count
        for link in connection.links:
            if link.deliveries or link.dropped_presettled:
                self.totals.add_link(link)
            if link.parked and lib.pn_link_credit(link.io) <= 0:
                self.blocked += 1


def _uptime_seconds(process: RouterProcess) -> float:
    """Seconds since the process was composed."""
    return time.monotonic() - process.started_at


def stuck(link: Link, now: int) -> int:
    """Deliveries that have been unsettled for more than ten whole seconds at `now` (in microseconds).

    The oldest are first.
    """
    before = now - (STUCK_SECONDS + 1) * 1_000_000
    return sum(1 for _ in takewhile(lambda record: record.arrived < before, link.unsettled.values()))


def _all_stuck(process: RouterProcess) -> int:
    """Of all links. The clock is read anew, as that of the forwarder stands still while nothing arrives."""
    now = process.driver.clock() // 1000
    return sum(stuck(link, now) for link in process.driver.activity.busy)


def counters(process: RouterProcess) -> Counters:
    """Totals since the start, and present numbers."""
    core = process.core
    tally = Tally(core)
    totals = tally.totals
    return Counters(
        address_count=len(core.addresses),
        link_count=tally.links.total(),
        node_count=len(core.nodes),
        auto_link_count=len(process.configuration.auto_links),
        link_route_count=len(process.configuration.link_routes),
        connection_count=len(core.connections),
        client_connection_count=sum(
            not connection.role.is_between_routers for connection in core.connections.values()
        ),
        connections_opened=core.counters.connections_opened,
        presettled_deliveries=totals.presettled,
        dropped_presettled_deliveries=totals.dropped_presettled,
        accepted_deliveries=totals.accepted,
        rejected_deliveries=totals.rejected,
        released_deliveries=totals.released,
        modified_deliveries=totals.modified,
        deliveries_ingress=totals.ingress,
        deliveries_egress=totals.egress,
        deliveries_transit=totals.transit,
        deliveries_ingress_route_container=totals.container_ingress,
        deliveries_egress_route_container=totals.container_egress,
        deliveries_delayed_1_sec=totals.delayed_1_second,
        deliveries_delayed_10_sec=totals.delayed_10_seconds,
        deliveries_stuck=_all_stuck(process),
        links_blocked=tally.blocked,
        uptime_seconds=int(_uptime_seconds(process)),
    )


def metrics(process: RouterProcess) -> MetricsSnapshot:
    """Everything `/metrics` exposes, at this moment."""
    core, view = process.core, process.view
    tally = Tally(core)
    totals = tally.totals
    interior = process.interior
    nodes = view.nodes()
    return MetricsSnapshot(
        router_id=core.id,
        mode=process.configuration.router.mode.value,
        version=__version__,
        uptime_seconds=_uptime_seconds(process),
        ready=process.not_ready_reason() is None,
        kernel="python" if process.driver.forwarder.compiled is None else "compiled",
        connections=Counter(
            (item.role.label, "in" if item.incoming else "out") for item in core.connections.values()
        ),
        connections_opened=core.counters.connections_opened,
        connections_closed=core.counters.connections_closed,
        tls_connections=Counter(
            str(item.tls_ordinal) for item in core.connections.values() if item.tls_ordinal is not None
        ),
        links=tally.links,
        links_attached=core.counters.links_attached,
        links_blocked=tally.blocked,
        link_refusals=dict(core.counters.link_refusals),
        deliveries={"in": totals.deliveries_in, "out": totals.deliveries_out},
        outcomes={
            "accepted": totals.accepted,
            "rejected": totals.rejected,
            "released": totals.released,
            "modified": totals.modified,
            "presettled": totals.presettled,
            "presettled-dropped": totals.dropped_presettled,
        },
        deliveries_stuck=_all_stuck(process),
        addresses=len(core.addresses),
        routers=len(core.nodes),
        neighbors={node.id: node.cost or 0 for node in nodes if node.next_hop is None},
        path_computations=interior.engine.recomputations if interior is not None else 0,
        connection_upgrades=interior.connections.groups.upgrades if interior is not None else 0,
        routing_messages_refused=interior.engine.refused_messages if interior is not None else 0,
        routing_messages_dropped=interior.rates.dropped if interior is not None else 0,
        routing_addresses_refused=interior.engine.refused_addresses if interior is not None else 0,
        edge_link_routes_ignored=process.edge_link_routes.ignored,
        routers_without_place=(
            {"refused": interior.engine.refused_routers, "displaced": interior.engine.displaced_routers}
            if interior is not None
            else {}
        ),
        routing_messages=dict(interior.engine.received_messages) if interior is not None else {},
        listeners=Counter("listening" if row.listening else "failed" for row in view.listeners()),
        connectors=Counter(
            (item.config.role.label, item.state) for item in process.endpoints.connectors.values()
        ),
        auto_links=Counter(row.oper_status for row in view.auto_links()),
        link_routes=Counter("active" if row.active else "inactive" for row in view.link_routes()),
        routed_links=len(process.link_routing.routed) // 2,
        ssl_profile_ordinals={
            profile.name: profile.ordinal for profile in process.configuration.ssl_profiles.values()
        },
        policy_denials=view.policy().denials,
        failed_logins=process.driver.logins.failures,
        refused_peers=process.driver.refused_peers,
        excess_connections=process.driver.excess_connections,
        config_reloads=process.config_reloads,
        config_errors=process.config_errors,
        config_valid=process.last_config_error is None,
        log_records=_by_level(process.log_counts()),
        edge=view.edge(),
        edges=view.edges(),
        relay=process.relay_site.figures(),
    )


def _by_level(counts: Mapping[tuple[str, str], int]) -> Mapping[str, int]:
    levels: Counter[str] = Counter()
    for (_, level), count in counts.items():
        levels[level] += count
    return levels
