"""A router process: the core, its systems and its driver, composed from a configuration and kept to it."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from isthmus_router.amqp.connection import Settings
from isthmus_router.amqp.connector import HANDSHAKE_TIMEOUT_SECONDS, Connector
from isthmus_router.amqp.driver import Driver
from isthmus_router.amqp.listener import Listener
from isthmus_router.amqp.tls import TlsDomain, TlsError, client_domain, server_domain
from isthmus_router.config.diff import Changes, diff
from isthmus_router.config.model import (
    AddressConfig,
    Configuration,
    ConnectorConfig,
    Distribution,
    ListenerConfig,
    Mode,
    SslProfileConfig,
)
from isthmus_router.core.interior import InteriorNetwork
from isthmus_router.core.model import Condition
from isthmus_router.core.patterns import PatternTree
from isthmus_router.core.router import RouterCore
from isthmus_router.core.treatment import Treatment
from isthmus_router.routing.engine import RoutingEngine
from isthmus_router.routing.timers import Timers

log = logging.getLogger("ROUTER")

TREATMENTS = {
    Distribution.MULTICAST: Treatment.MULTICAST,
    Distribution.CLOSEST: Treatment.CLOSEST,
    Distribution.BALANCED: Treatment.BALANCED,
    Distribution.UNAVAILABLE: Treatment.UNAVAILABLE,
}
DRAIN_SECONDS = 10.0
DRAIN_STEP_SECONDS = 0.05
TICK_SECONDS = 1.0
EXTERNAL = "EXTERNAL"


class RouterProcess:
    """Everything of one router, started from and following one configuration."""

    def __init__(self, configuration: Configuration, loop: asyncio.AbstractEventLoop) -> None:
        self.configuration = configuration
        self.loop = loop
        self.started_at = time.monotonic()
        self.instance = int(time.time())
        self.core = RouterCore(
            configuration.router.id,
            edge=configuration.router.mode is Mode.EDGE,
            default_treatment=TREATMENTS[configuration.router.default_distribution],
        )
        self.driver = Driver(self.core, loop)
        self.listeners: dict[str, Listener] = {}
        self.connectors: dict[str, Connector] = {}
        self.stopping = False
        self.last_config_error: str | None = None
        self.interior: InteriorNetwork | None = None
        if configuration.router.mode is Mode.INTERIOR:
            self.interior = self._interior(configuration)
        self._deadline: asyncio.TimerHandle | None = None
        self._configure_treatments()

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
        return InteriorNetwork(self.core, engine, self.loop.time, self._schedule_routing)

    def _schedule_routing(self, deadline: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_at(deadline, self._on_routing_deadline)

    def _on_routing_deadline(self) -> None:
        assert self.interior is not None
        self.interior.tick()
        self.driver.flush()

    async def start(self) -> None:
        """Open listeners and start connectors."""
        if self.interior is not None:
            self.interior.start()
        for listener in self.configuration.listeners:
            await self._add_listener(listener)
        for connector in self.configuration.connectors:
            self._add_connector(connector)

    @property
    def ready(self) -> bool:
        """Whether clients can be served: every listener listens and the router is not stopping."""
        return not self.stopping and all(item.state == "listening" for item in self.listeners.values())

    # Configuration

    def _configure_treatments(self) -> None:
        tree: PatternTree[tuple[Treatment, int | None]] = PatternTree()
        for address in self.configuration.addresses:
            _add_pattern(tree, address)
        default = TREATMENTS[self.configuration.router.default_distribution]
        self.core.configure_treatments(tree, default)

    async def _add_listener(self, config: ListenerConfig) -> None:
        try:
            settings = self._listener_settings(config)
        except TlsError as error:
            log.error("listener failed", extra={"listener": config.name, "reason": str(error)})
            listener = Listener(self.driver, config, self._listener_settings(config, tls=False))
            listener.message = str(error)
            self.listeners[config.name] = listener
            return
        listener = Listener(self.driver, config, settings)
        self.listeners[config.name] = listener
        await listener.open()

    def _add_connector(self, config: ConnectorConfig) -> None:
        try:
            settings = self._connector_settings(config)
        except TlsError as error:
            log.error("connector failed", extra={"connector": config.name, "reason": str(error)})
            connector = Connector(self.driver, config, self._connector_settings(config, tls=False))
            connector.state, connector.message = "failed", str(error)
            self.connectors[config.name] = connector
            return
        connector = Connector(self.driver, config, settings)
        self.connectors[config.name] = connector
        connector.start()

    def _profile(self, name: str | None) -> SslProfileConfig | None:
        return self.configuration.ssl_profiles[name] if name else None

    def _listener_settings(self, config: ListenerConfig, *, tls: bool = True) -> Settings:
        profile = self._profile(config.ssl_profile) if tls else None
        domain: TlsDomain | None = None
        if profile is not None:
            external = config.sasl_mechanisms is not None and EXTERNAL in config.sasl_mechanisms
            domain = server_domain(
                profile,
                demand_certificate=external or (config.authenticate_peer and config.sasl_mechanisms is None),
                allow_clear=not (config.require_ssl or config.require_encryption),
            )
        router = self.configuration.router
        return Settings(
            role=config.role,
            name=config.name,
            cost=config.cost,
            max_frame_size=config.max_frame_size,
            max_sessions=config.max_sessions,
            max_session_frames=config.max_session_frames,
            idle_timeout_seconds=config.idle_timeout_seconds,
            handshake_timeout_seconds=config.initial_handshake_timeout_seconds or HANDSHAKE_TIMEOUT_SECONDS,
            link_capacity=config.link_capacity,
            strip_annotations=config.strip_annotations,
            open_properties=config.open_properties,
            mechanisms=config.sasl_mechanisms,
            authenticate_peer=config.authenticate_peer,
            require_encryption=config.require_ssl or config.require_encryption,
            uid_format=profile.uid_format if profile else None,
            sasl_config_dir=router.sasl_config_dir,
            sasl_config_name=router.sasl_config_name,
            tls=domain,
        )

    def _connector_settings(self, config: ConnectorConfig, *, tls: bool = True) -> Settings:
        profile = self._profile(config.ssl_profile) if tls else None
        mechanisms = config.sasl_mechanisms
        if mechanisms is None and config.sasl_username is None:
            # A client certificate speaks for itself; without one there is nobody to be.
            mechanisms = (EXTERNAL, "ANONYMOUS") if profile and profile.cert_file else ("ANONYMOUS",)
        return Settings(
            role=config.role,
            name=config.name,
            cost=config.cost,
            max_frame_size=config.max_frame_size,
            max_sessions=config.max_sessions,
            max_session_frames=config.max_session_frames,
            idle_timeout_seconds=config.idle_timeout_seconds,
            handshake_timeout_seconds=HANDSHAKE_TIMEOUT_SECONDS,
            link_capacity=config.link_capacity,
            strip_annotations=config.strip_annotations,
            open_properties=config.open_properties,
            mechanisms=mechanisms,
            hostname=config.host,
            username=config.sasl_username,
            password=config.sasl_password,
            verify_hostname=config.verify_hostname,
            tls=client_domain(profile, verify_hostname=config.verify_hostname) if profile else None,
        )

    async def apply(self, configuration: Configuration) -> Changes:
        """Take over what changed without a restart; what needs one stays and is reported in the result."""
        changes = diff(self.configuration, configuration)
        self.configuration = configuration
        profiles = {change.new.name for change in changes.ssl_profiles_changed}
        self._configure_treatments()
        for gone in (*changes.listeners.removed, *(old for old, _ in changes.listeners.changed)):
            self._remove_listener(gone.name)
        for connector in (*changes.connectors.removed, *(old for old, _ in changes.connectors.changed)):
            self._remove_connector(connector.name)
        for listener in (*changes.listeners.added, *(new for _, new in changes.listeners.changed)):
            await self._add_listener(listener)
        for added in (*changes.connectors.added, *(new for _, new in changes.connectors.changed)):
            self._add_connector(added)
        await self._renew_tls(profiles)
        self.driver.flush()
        return changes

    def _remove_listener(self, name: str) -> None:
        listener = self.listeners.pop(name)
        listener.close()
        listener.close_connections()

    def _remove_connector(self, name: str) -> None:
        self.connectors.pop(name).close()

    async def _renew_tls(self, profiles: set[str]) -> None:
        """New credentials serve new connections; what is open goes on with what it negotiated."""
        for listener in list(self.listeners.values()):
            if listener.config.ssl_profile in profiles:
                try:
                    listener.settings = self._listener_settings(listener.config)
                except TlsError as error:
                    log.error("credentials not usable", extra={"reason": str(error)})
                    continue
                if listener.state == "failed":
                    await listener.open()
        for connector in list(self.connectors.values()):
            if connector.config.ssl_profile in profiles:
                try:
                    connector.settings = self._connector_settings(connector.config)
                except TlsError as error:
                    log.error("credentials not usable", extra={"reason": str(error)})
                    continue
                if connector.connection is None:
                    connector.start()

    # End

    async def stop(self) -> None:
        """Drain and end: no new connections, deliveries under way are given time, then every peer is told."""
        self.stopping = True
        for listener in self.listeners.values():
            listener.close()
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._under_way() and time.monotonic() < deadline:
            await asyncio.sleep(DRAIN_STEP_SECONDS)
        for connector in self.connectors.values():
            connector.close()
        for connection in list(self.driver.connections.values()):
            connection.close(Condition("amqp:connection:forced", "the router is stopping"))
        self.driver.flush()
        deadline = time.monotonic() + 1.0
        while self.driver.connections and time.monotonic() < deadline:
            await asyncio.sleep(DRAIN_STEP_SECONDS)

    def _under_way(self) -> bool:
        return any(
            link.unsettled or link.parked or link.stream is not None
            for connection in self.core.connections.values()
            for link in connection.links
        )


def _add_pattern(tree: PatternTree[tuple[Treatment, int | None]], address: AddressConfig) -> None:
    value = (TREATMENTS[address.distribution], address.priority)
    if address.prefix is not None:
        tree.add_prefix(address.prefix, value)
    elif address.pattern is not None:
        tree.add_pattern(address.pattern, value)
