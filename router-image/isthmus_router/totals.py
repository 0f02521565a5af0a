"""What the running router adds up: the counters of management, and the snapshot behind `/metrics`.

A client can have so many links that to walk over them takes long. So they are counted in steps between other work, and
what is asked for meanwhile has the last count.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import takewhile
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
FEW_LINKS, FEW_CONNECTIONS = 4096, 512
"""They are counted whenever somebody asks, within a few milliseconds."""
AT_ONCE = 64
"""Links that are counted in one step, of more of them. As 32 links counts one with deliveries."""
CONNECTIONS_AT_ONCE = 1024
OLDEST_SECONDS = 10.0
"""More of them are counted anew so often, and when somebody asks (`COUNTING_SHARE`)."""
COUNTING_SHARE = 20
"""Neither links nor other totals are counted anew before so many times as long as it took: the work grows with links
and addresses."""
PERIOD_SECONDS = 1.0
_STEP = 32 * AT_ONCE


class Tally:
    """What a walk over the links of a router adds up: nothing is counted twice, and nothing that was there before is
    left out."""

    def __init__(self, core: RouterCore, busy: set[Link], clock: Callable[[], int]) -> None:
        """`busy` has all links with unsettled deliveries."""
        self._core = core
        self._busy = busy
        self._clock = clock
        self.totals = CoreCounters()
        """Of all links, those that are gone included."""
        self.links: Counter[tuple[str, str]] = Counter()
        """By type and direction."""
        self.blocked = 0
        self.stuck = 0
        self._counted: set[Link] = set()

    def walk(self) -> Iterator[None]:
        """Count, in steps."""
        core = self._core
        for name in CoreCounters.__slots__:
            setattr(self.totals, name, getattr(core.counters, name))
        core.tallies.append(self)
        try:
            for connection in list(core.connections.values()):
                yield from self._walk_over(connection)
        finally:
            core.tallies.remove(self)
            self._counted = set()

    def _walk_over(self, connection: Connection) -> Iterator[None]:
        """Those without deliveries, most of them on an interior, cost little."""
        links = list(connection.links)
        for at in range(0, len(links), _STEP):
            work = 0
            for link in links[at : at + _STEP]:
                if link not in connection.links:
                    continue
                work += 1
                self.links[link.type.value, link.direction.value] += 1
                if link.deliveries or link.dropped_presettled:
                    work += _STEP // AT_ONCE
                    self.totals.add_link(link)
                    self._counted.add(link)
                if link.parked and lib.pn_link_credit(link.io) <= 0:
                    self.blocked += 1
                if link.unsettled and link in self._busy:
                    # The clock is read anew, as that of the forwarder stands still while nothing arrives.
                    found = stuck(link, self._clock())
                    self.stuck += found
                    work += found
                if work >= _STEP:
                    work = 0
                    yield
            yield

    def link_closed(self, link: Link) -> None:
        """As `LinkTally`."""
        if link not in self._counted:
            self._counted.add(link)
            self.totals.add_link(link)


class Tallies:
    """Counts of the links of one router process."""

    def __init__(self, process: RouterProcess) -> None:
        self._process = process
        self._last: Tally | None = None
        self._counted_at = self._not_before = 0.0
        self._under_way = False
        process.loop.call_later(PERIOD_SECONDS, self._look)

    def latest(self) -> Tally:
        """As of now if there are few links, or as they were counted last."""
        if self._last is None or self._are_few():
            tally = self._tally()
            for _ in tally.walk():
                pass
            self._counted(tally)
            return tally
        self._count_later(self._not_before)
        return self._last

    def _are_few(self) -> bool:
        connections = self._process.core.connections
        if len(connections) > FEW_CONNECTIONS:
            return False
        return sum(len(connection.links) for connection in connections.values()) <= FEW_LINKS

    def _tally(self) -> Tally:
        driver = self._process.driver
        return Tally(self._process.core, driver.activity.busy, lambda: driver.clock() // 1000)

    def _counted(self, tally: Tally, took: float = 0.0) -> None:
        self._last, self._counted_at = tally, time.monotonic()
        self._not_before = self._counted_at + COUNTING_SHARE * took

    def _look(self) -> None:
        self._process.loop.call_later(PERIOD_SECONDS, self._look)
        if self._last is None or not self._are_few():
            self._count_later(self._counted_at + OLDEST_SECONDS)

    def _count_later(self, not_before: float) -> None:
        if not self._under_way and (self._last is None or time.monotonic() >= not_before):
            self._under_way = True
            self._process.driver.work(self._count())

    def _count(self) -> Iterator[None]:
        took, begun, before = 0.0, time.thread_time(), self._last
        try:
            tally = self._tally()
            for _ in tally.walk():
                took += time.thread_time() - begun
                yield
                begun = time.thread_time()
            if self._last is before:  # counters that were reported meanwhile must not decrease
                self._counted(tally, took + time.thread_time() - begun)
        finally:
            self._under_way = False


def _uptime_seconds(process: RouterProcess) -> float:
    """Seconds since the process was composed."""
    return time.monotonic() - process.started_at


def stuck(link: Link, now: int) -> int:
    """Deliveries that have been unsettled for more than ten whole seconds at `now` (in microseconds).

    The oldest are first.
    """
    before = now - (STUCK_SECONDS + 1) * 1_000_000
    return sum(1 for _ in takewhile(lambda record: record.arrived < before, link.unsettled.values()))


def counters(process: RouterProcess) -> Counters:
    """Totals since the start, and present numbers."""
    core = process.core
    tally = process.tallies.latest()
    totals = tally.totals
    connections = core.open_connections
    return Counters(
        address_count=len(core.addresses),
        link_count=tally.links.total(),
        node_count=len(core.nodes),
        auto_link_count=len(process.configuration.auto_links),
        link_route_count=len(process.configuration.link_routes),
        connection_count=len(connections),
        client_connection_count=sum(not connection.role.is_between_routers for connection in connections),
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
        deliveries_stuck=tally.stuck,
        links_blocked=tally.blocked,
        uptime_seconds=int(_uptime_seconds(process)),
    )


def metrics(process: RouterProcess) -> Generator[None, None, MetricsSnapshot]:
    """Return everything `/metrics` exposes, at this moment, in steps."""
    core, view = process.core, process.view
    connections: Counter[tuple[str, str]] = Counter()
    tls_connections: Counter[str] = Counter()
    for at, connection in enumerate(core.open_connections, 1):
        if connection.id in core.connections and not connection.leaving:
            connections[connection.role.label, "in" if connection.incoming else "out"] += 1
            if connection.tls_ordinal is not None:
                tls_connections[str(connection.tls_ordinal)] += 1
        if at % CONNECTIONS_AT_ONCE == 0:
            yield
    auto_links: Counter[str] = Counter()
    for row in view.auto_links():
        auto_links[row.oper_status] += 1
        yield
    link_routes: Counter[str] = Counter()
    for route in view.link_routes():
        link_routes["active" if route.active else "inactive"] += 1
        yield
    connectors: Counter[tuple[str, str]] = Counter()
    for connector in list(process.endpoints.connectors.values()):
        connectors[connector.config.role.label, connector.state] += 1
        yield
    edge = yield from view.edge()
    tally = process.tallies.latest()
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
        connections=connections,
        connections_opened=core.counters.connections_opened,
        connections_closed=core.counters.connections_closed,
        tls_connections=tls_connections,
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
        deliveries_stuck=tally.stuck,
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
        connectors=connectors,
        auto_links=auto_links,
        link_routes=link_routes,
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
        edge=edge,
        edges=view.edges(),
        relay=process.relay_site.figures(),
    )


def _by_level(counts: Mapping[tuple[str, str], int]) -> Mapping[str, int]:
    levels: Counter[str] = Counter()
    for (_, level), count in counts.items():
        levels[level] += count
    return levels
