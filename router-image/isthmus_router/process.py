"""A router process: the core, its systems and its driver, composed from a configuration and kept to it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from isthmus_router import totals
from isthmus_router.amqp.driver import Driver
from isthmus_router.amqp.logins import Logins
from isthmus_router.autolink.autolinks import AutoLinks
from isthmus_router.config import edit
from isthmus_router.config.diff import Changes, diff
from isthmus_router.config.errors import ConfigError
from isthmus_router.config.model import AddressConfig, Configuration, Distribution, Mode
from isthmus_router.core.address import InProcessConsumer, is_temporary
from isthmus_router.core.configured import ConfiguredAddress
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.patterns import PatternTree
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import Condition
from isthmus_router.core.terms import Direction as CoreDirection
from isthmus_router.core.treatment import Treatment
from isthmus_router.edge import EdgeSide, InteriorSide, install_edge, install_tracking
from isthmus_router.endpoints import Endpoints
from isthmus_router.flow_log import FlowLog
from isthmus_router.interior.network import InteriorNetwork
from isthmus_router.linkroute.edges import EdgeLinkRoutes
from isthmus_router.linkroute.rights import RightsReview
from isthmus_router.linkroute.routing import LinkRouting
from isthmus_router.logs import RouterLog
from isthmus_router.management.agent import ManagementAgent
from isthmus_router.management.errors import ConflictError
from isthmus_router.management.port import ActionRefusedError, ConnectionLinkRouteRow, Requester
from isthmus_router.management.waiting import LARGEST_BYTES
from isthmus_router.manager import Manager
from isthmus_router.message.sections import annotations_length, decode_annotations
from isthmus_router.metrics import MetricsSnapshot
from isthmus_router.policy.enforcer import PolicyEnforcer
from isthmus_router.relay_site.member import RelaySite
from isthmus_router.routing.engine import RoutingEngine
from isthmus_router.routing.timers import Timers
from isthmus_router.sites.edge import EdgeReceivers
from isthmus_router.status import ProcessFacts, status_document
from isthmus_router.view import RouterView

log = logging.getLogger("ROUTER")

TREATMENTS = {
    Distribution.MULTICAST: Treatment.MULTICAST,
    Distribution.CLOSEST: Treatment.CLOSEST,
    Distribution.BALANCED: Treatment.BALANCED,
    Distribution.UNAVAILABLE: Treatment.UNAVAILABLE,
}
DRAIN_SECONDS = 10.0
DRAIN_STEP_SECONDS = 0.05
EDGE_DRAIN_SECONDS = 0.5
"""How long a stopping interior keeps its edges: their clients reach nobody beyond it any more."""
MANAGEMENT = "$management"
LONGEST_ORIGIN = 256
"""Characters of the id of a router, as far as routers are told apart by it."""


class RouterProcess:
    """Everything of one router, started from and following one configuration."""

    def __init__(
        self,
        configuration: Configuration,
        loop: asyncio.AbstractEventLoop,
        router_log: RouterLog | None = None,
    ) -> None:
        self.configuration = configuration
        """In force."""
        self.wanted_configuration = configuration
        """The latest that was accepted; carrying it out may still be under way."""
        self._file = configuration
        """The file alone, without what management has made of it."""
        self.loop = loop
        self.started_at = time.monotonic()
        self.instance = int(time.time())
        self.core = RouterCore(
            configuration.router.id,
            edge=configuration.router.mode is Mode.EDGE,
            default_treatment=TREATMENTS[configuration.router.default_distribution],
        )
        self.driver = Driver(self.core, loop, threads=configuration.router.worker_threads)
        self.driver.logins = Logins(time.monotonic, configuration.router.max_failed_logins_per_minute)
        self.driver.forwarder.stalled.seconds = configuration.router.stalled_message_timeout_seconds
        self.driver.forwarder.slow.seconds = configuration.router.slow_receiver_timeout_seconds
        self.policy = self.driver.policy = PolicyEnforcer(self.core, configuration)
        self.endpoints = Endpoints(self.driver, configuration, self, self._cost_changed)
        self.stopping = False
        self._config_error: str | None = None
        self.config_reloads = 0
        self._config_errors = 0
        self.view = RouterView(self)
        self.tallies = totals.Tallies(self)
        self._log = router_log
        self._applying = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.interior: InteriorNetwork | None = None
        self.edges: InteriorSide | None = None
        self.edge: EdgeSide | None = None
        self.relayed: EdgeReceivers | None = None
        if configuration.router.mode is Mode.INTERIOR:
            self.interior = self._interior(configuration)
            self.edges = install_tracking(self.core, self._call_later)
        elif configuration.router.mode is Mode.EDGE:
            self.edge = install_edge(self.core, self._call_later)
            self.relayed = EdgeReceivers(self.core, self._call_later)
        self._deadline: asyncio.TimerHandle | None = None
        self.flow_log = FlowLog(self) if configuration.router.flow_records else None
        self.auto_links = AutoLinks(self.core, self._call_later)
        self.link_routing = LinkRouting(
            self.core,
            time.monotonic,
            self._call_later,
            resumable=configuration.router.allow_resumable_link_route,
        )
        self.edge_link_routes = EdgeLinkRoutes(self.core, self.link_routing, self._call_later)
        if self.edge is not None:
            self.edge.proxy.on_uplink = self.edge_link_routes.use
        link_routes = RightsReview(self.link_routing)
        self.policy.rights_changed = lambda connection: chain(
            link_routes.examine(connection), self.auto_links.examine(connection)
        )
        self.link_routing.configure(configuration.link_routes)
        for _ in self._configure_addresses():
            pass  # there are no addresses yet
        self._manager = Manager(
            ManagementAgent(self.view, self, log=router_log),
            loop,
            self.core.originate,
            self.driver.flush,
            lambda: bool(self._tasks),
            self._requester_now,
        )
        self.core.register(
            MANAGEMENT,
            InProcessConsumer(self._on_management_request, annotated=True, most_bytes=LARGEST_BYTES),
            mobile=True,
        )
        self.relay_site = RelaySite(self)

    def _interior(self, configuration: Configuration) -> InteriorNetwork:
        router = configuration.router
        timers = Timers(
            hello_interval=router.hello_interval_seconds,
            hello_max_age=router.hello_max_age_seconds,
            ra_interval=router.ra_interval_seconds,
            ra_interval_flux=router.ra_interval_flux_seconds,
            remote_ls_max_age=router.remote_ls_max_age_seconds,
            unreachable_holdoff=router.unreachable_holdoff_seconds,
        )
        engine = RoutingEngine(router.id, instance=self.instance, now=self.loop.time(), timers=timers)
        return InteriorNetwork(
            self.core,
            engine,
            self.loop.time,
            self._schedule_routing,
            call_later=self._call_later,
            regroup=self.endpoints.regroup,
        )

    def _cost_changed(self, connection: Connection) -> None:
        if self.interior is not None:
            self.interior.cost_changed(connection)
        elif self.edge is not None:
            self.edge.connections.preference_changed()

    def _schedule_routing(self, deadline: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_at(deadline, self._on_routing_deadline)

    def _call_later(self, delay: float, callback: Callable[[], None]) -> None:
        def call() -> None:
            callback()
            self.driver.flush()

        self.loop.call_later(delay, call)

    def _on_routing_deadline(self) -> None:
        assert self.interior is not None
        self.interior.tick()
        self.driver.flush()

    async def start(self) -> None:
        """Open listeners and start connectors."""
        if self.interior is not None:
            self.interior.start()
        if self.flow_log is not None:
            self.flow_log.start()
        await self.endpoints.open()
        self.relay_site.start()

    # What probes and monitoring ask (HealthSource)

    def not_ready_reason(self) -> str | None:
        """Why clients should not be sent here; None when the router is ready."""
        if self.stopping:
            return "the router is stopping"
        if self.interior is not None and self.interior.engine.has_neighbour_without_place(self.loop.time()):
            return "a connected router has no place in the table of routers, which is full"
        return self.endpoints.not_listening()

    def metrics(self) -> Generator[None, None, MetricsSnapshot]:
        """Return the metrics at this moment, in steps."""
        return totals.metrics(self)

    def status(self) -> Generator[None, None, Mapping[str, object]]:
        """Return the document of `/status`, in steps."""
        ready = self.not_ready_reason() is None
        facts = ProcessFacts(self.instance, ready, self.last_config_error, self.relay_site.status())
        return status_document(self.view, facts)

    @property
    def last_config_error(self) -> str | None:
        """Why the configuration as it is in the files is not wholly in force; None when it is."""
        errors = [
            *([self._config_error] if self._config_error else ()),
            *dict.fromkeys(self.endpoints.tls_errors.values()),
        ]
        return "; ".join(errors) or None

    @property
    def config_errors(self) -> int:
        """How often a configuration, or credentials in it, could not be used."""
        return self._config_errors + self.endpoints.tls_failures

    def log_counts(self) -> Mapping[tuple[str, str], int]:
        """Log records written, by module and level."""
        return self._log.counts if self._log is not None else {}

    # Management

    def _on_management_request(self, payload: bytes, link: Link | None) -> None:
        connection = link.connection if link is not None else None
        requester = self._requester(connection, _origin_of(payload))
        self._manager.received(payload[annotations_length(payload, len(payload)) :], requester)

    def _requester(self, connection: Connection | None, origin: str) -> Requester:
        """Who asks on a connection, with the rights of now; None: this router."""
        if connection is None:
            return Requester(origin=origin)
        level = connection.access.management
        if connection.role.is_between_routers:
            # Which user asks at another router is not known here.
            answered_at = is_temporary if self.policy.in_force else None
            return Requester(
                neighbour=connection.id, origin=origin, level=level, may_be_answered_at=answered_at
            )
        grant = connection.grant
        return Requester(
            connection.id,
            level=level,
            container=connection.role is Role.ROUTE_CONTAINER,
            may_close_connections=grant is None or grant.may_close_connections,
            may_take_links=None if grant is None else grant.may_take_links,
            may_be_answered_at=None if grant is None else grant.may_be_answered_at,
        )

    def _requester_now(self, requester: Requester) -> Requester | None:
        """With the rights of now; None if its connection has ended, or will for want of them."""
        if requester.waits_with is None:
            return requester
        connection = self.core.connections.get(requester.waits_with)
        if connection is None or self.policy.renew(connection) is not None:
            return None
        return self._requester(connection, requester.origin)

    def make_link_route(self, row: ConnectionLinkRouteRow) -> None:
        """A container takes links from now on."""
        connection = self.core.connections.get(row.connection_id)
        if connection is None:
            raise ActionRefusedError("the connection is gone")
        direction = CoreDirection.IN if row.incoming else CoreDirection.OUT
        if self.link_routing.made.has(connection, row.pattern, direction):
            raise ConflictError(
                "there is a link route of this pattern and direction on this connection; delete the one that exists"
            )
        refusal = self.link_routing.made.make(connection, row.name, row.pattern, direction)
        if refusal is not None:
            raise ActionRefusedError(refusal.description)

    def end_link_route(self, row: ConnectionLinkRouteRow) -> None:
        """A container takes no more links."""
        self.link_routing.made.unmake(self.core.connections[row.connection_id], row.name)

    def apply(self, configuration: Configuration, changes: Changes) -> None:
        """Management changed an entity: take the configuration that results over."""
        if changes.needs_restart or changes.refused:
            raise ActionRefusedError("; ".join((*changes.needs_restart, *changes.refused)))
        self._accept(configuration, changes)

    def close_connection(self, connection_id: int) -> None:
        """Close a client's connection."""
        connection = self.core.connections.get(connection_id)
        if connection is None:
            raise ActionRefusedError("no such connection")
        self.driver.close_connection(connection, Condition("amqp:connection:forced", "closed by management"))

    def detach_link(self, connection_id: int, link_id: int) -> None:
        """Detach a link of a client."""
        connection = self.core.connections.get(connection_id)
        link = next((link for link in connection.links if link.id == link_id), None) if connection else None
        if link is None:
            raise ActionRefusedError("no such link")
        if link.incoming:
            self.driver.forwarder.settlement.sender_cut_off(link)
        self.driver.detach_link(link, Condition("amqp:link:detach-forced", "detached by management"))

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._carried_out)

    def _carried_out(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._manager.carried_out()

    # Configuration

    def configuration_changed(self, configuration: Configuration) -> None:
        """The file changed and is valid. What management made stays, as far as it goes with the file."""
        old, file = self.wanted_configuration, configuration
        configuration, misfits = edit.with_entities(file, edit.made_here(old, self._file))
        changes = diff(old, configuration)
        if changes.refused:
            self._config_errors += 1
            self._config_error = "; ".join(changes.refused)
            log.error("configuration refused", extra={"reason": self._config_error})
            return
        self._config_error = None
        if changes.needs_restart:
            self._config_errors += 1
            self._config_error = f"needs a restart: {'; '.join(changes.needs_restart)}"
            log.warning("configuration needs a restart", extra={"reason": self._config_error})
            configuration = replace(configuration, router=old.router, config_hash=old.config_hash)
        for misfit in misfits:
            log.warning("made by management, removed for the file", extra={"reason": str(misfit)})
        self._file = file
        self._accept(configuration, changes)

    def configuration_failed(self, error: ConfigError) -> None:
        """The file changed and cannot be used; what is in force stays."""
        self._config_errors += 1
        self._config_error = str(error)
        log.error("configuration refused", extra={"reason": str(error)})

    def _accept(self, configuration: Configuration, changes: Changes) -> None:
        """The next change builds on `configuration` from now on; changes are carried out in their order."""
        for warning in configuration.warnings:
            if warning not in self.wanted_configuration.warnings:
                log.warning("configuration", extra={"reason": warning})
        self.wanted_configuration = configuration
        self._run(self._carry_out(configuration, changes))

    async def _carry_out(self, configuration: Configuration, changes: Changes) -> None:
        async with self._applying:
            try:
                await self._apply_changes(configuration, changes)
            except Exception as error:
                # Later changes must not fail with this one.
                self._config_errors += 1
                self._config_error = f"not wholly applied, an error in the router: {error!r}"
                log.exception("configuration not wholly applied")
            self.config_reloads += 1
            log.info(
                "configuration applied",
                extra={
                    **changes.summary(),
                    "hash": configuration.config_hash,
                    "except": self.last_config_error,
                },
            )

    def _configure_addresses(self) -> Iterator[None]:
        patterns: PatternTree[ConfiguredAddress] = PatternTree()
        for address in self.configuration.addresses:
            _add_pattern(patterns, address)
        default = TREATMENTS[self.configuration.router.default_distribution]
        steps = self.core.configure_addresses(patterns, default)
        self.auto_links.configure(self.configuration.auto_links)
        return steps

    async def _take(self, steps: Iterator[None]) -> None:
        """Take these steps between other work."""
        taken: asyncio.Future[None] = self.loop.create_future()

        def job() -> Iterator[None]:
            try:
                yield from steps
            except Exception as error:
                taken.set_exception(error)
            else:
                taken.set_result(None)

        self.driver.work(job())
        await taken

    async def _apply_changes(self, configuration: Configuration, changes: Changes) -> None:
        self.configuration = configuration
        if self._log is not None and changes.logs:
            self._log.configure(configuration.logs)
        if changes.addresses or changes.auto_links or changes.router is not None:
            await self._take(self._configure_addresses())
        if changes.link_routes:
            self.link_routing.configure(configuration.link_routes)
        await self._take(self.policy.configure(configuration))
        await self.endpoints.apply(configuration, changes)
        if self.flow_log is not None:
            self.flow_log.configure(configuration, changes)
        await self.relay_site.configure(changes)
        self.driver.flush()

    # End

    async def stop(self) -> None:
        """Drain and end: no new connections, deliveries under way are given time, then every peer is told.

        Other routers stop sending here first, clients get no more credit; what was accepted before still finds
        its receiver, and its outcome the sender. Edges are sent away early: until they attach elsewhere, their
        clients wait, and what is under way may well wait for these.
        """
        self.stopping = True
        for listener in self.endpoints.listeners.values():
            listener.close()
        if self.interior is not None:
            if self.flow_log is not None:
                self.flow_log.tell_the_end()  # while there is a way to collectors elsewhere
            self.interior.leave()
        self.driver.quiesce()
        await self._drained(EDGE_DRAIN_SECONDS)
        self._close_connections(edges_only=True)
        await self._drained(DRAIN_SECONDS - EDGE_DRAIN_SECONDS)
        await self.relay_site.stop()
        if self.flow_log is not None:
            self.flow_log.stop()
            self.flow_log.tell_the_end()
        for connector in self.endpoints.connectors.values():
            connector.close()
        if self._deadline is not None:
            self._deadline.cancel()
        self._close_connections()
        deadline = time.monotonic() + 1.0
        while self.driver.connections and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_STEP_SECONDS)
        for http in self.endpoints.http.values():
            await http.close()
        self.driver.end_work()

    async def _drained(self, seconds: float) -> None:
        """Wait until nothing is under way, so long at most."""
        deadline = time.monotonic() + seconds
        # Looked at now and then rather than signalled: settling a delivery must not cost more for it.
        while self._under_way() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_STEP_SECONDS)

    def _close_connections(self, *, edges_only: bool = False) -> None:
        for connection in list(self.driver.connections.values()):
            if not edges_only or (connection.incoming and connection.settings.role is Role.EDGE):
                connection.close(Condition("amqp:connection:forced", "the router is stopping"))
        self.driver.flush()

    def _under_way(self) -> bool:
        return any(connection.under_way for connection in self.core.connections.values())


def _origin_of(payload: bytes) -> str:
    """The router at which a message that another one has sent entered the network; empty if that is not known."""
    length = annotations_length(payload, len(payload))
    if not length:
        return ""
    return (decode_annotations(payload[:length]).ingress or "")[:LONGEST_ORIGIN]


def _add_pattern(patterns: PatternTree[ConfiguredAddress], address: AddressConfig) -> None:
    configured = ConfiguredAddress(
        TREATMENTS[address.distribution], address.priority, *address.phases, address.resend_released
    )
    if address.prefix is not None:
        patterns.add_prefix(address.prefix, configured)
    elif address.pattern is not None:
        patterns.add_pattern(address.pattern, configured)
