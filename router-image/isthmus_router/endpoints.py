"""The listeners and connectors of a router process, opened from its configuration and kept to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from isthmus_router.amqp.connector import Connector
from isthmus_router.amqp.driver import Driver
from isthmus_router.amqp.events import is_known
from isthmus_router.amqp.listener import RETRY_SECONDS, Listener
from isthmus_router.amqp.settings import Settings, connector_settings, listener_settings
from isthmus_router.amqp.tls import TlsError
from isthmus_router.config.diff import Changes
from isthmus_router.config.model import Configuration, ConnectorConfig, ListenerConfig, SslProfileConfig
from isthmus_router.core.access import UNAUTHORIZED
from isthmus_router.core.model import Connection
from isthmus_router.core.terms import Condition
from isthmus_router.credentials import CredentialsError, revocations
from isthmus_router.health import HealthServer, HealthSource

log = logging.getLogger("ROUTER")


class HttpListener:
    """A listener with `http: true`: probes, metrics and status."""

    def __init__(self, config: ListenerConfig, source: HealthSource, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.state = "opening"
        self.message = ""
        self._server = HealthServer(config, source, loop)
        self._loop = loop
        self._closing = asyncio.Event()
        self._retrying: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Bind and serve. While that fails, `state` and `message` say why, and it is tried again."""
        await self._open()
        if self.state == "failed":
            self._retrying = self._loop.create_task(self._retry())

    async def _retry(self) -> None:
        while self.state == "failed":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._closing.wait()
                return
            await self._open()

    async def _open(self) -> None:
        try:
            await asyncio.to_thread(self._server.open)
        except (OSError, UnicodeError) as error:  # UnicodeError: not a host name at all
            reason = getattr(error, "strerror", None) or error
            message = f"cannot listen on {self.config.host or '*'}:{self.config.port}: {reason}"
            if message != self.message:
                log.error("listener failed", extra={"listener": self.config.name, "reason": message})
            self.state, self.message = "failed", message
        else:
            self.state, self.message = "listening", ""
            place = {"host": self.config.host, "port": self.config.port}
            log.info("listening", extra={"listener": self.config.name, **place, "http": True})

    async def close(self) -> None:
        """Stop serving."""
        self._closing.set()
        if self._retrying is not None:
            await self._retrying
        self.state = "closed"
        await self._server.close()


class Endpoints:
    """Everything a router listens on and connects to."""

    def __init__(
        self,
        driver: Driver,
        configuration: Configuration,
        health: HealthSource,
        cost_changed: Callable[[Connection], None],
    ) -> None:
        self.listeners: dict[str, Listener] = {}
        self.connectors: dict[str, Connector] = {}
        self.http: dict[str, HttpListener] = {}
        self.tls_errors: dict[str, str] = {}
        """Credentials that cannot be used, by listener or connector."""
        self.tls_failures = 0
        """How often credentials could not be used, ever."""
        self._driver = driver
        self._configuration = configuration
        self._health = health
        self._cost_changed = cost_changed
        self._opened = False

    async def open(self) -> None:
        """Listen and begin to connect."""
        for profile in self._configuration.ssl_profiles.values():
            await self._read_lists(profile)
        for listener in self._configuration.listeners:
            await self._add_listener(listener)
        for connector in self._configuration.connectors:
            self._add_connector(connector)
        self._opened = True

    def not_listening(self) -> str | None:
        """Why not every AMQP listener listens; None when all do, and those for HTTP have been opened too."""
        if not self._opened:
            return "the router is starting"
        for listener in self.listeners.values():
            if listener.state != "listening":
                return f"listener {listener.config.name}: {listener.message or listener.state}"
        return None

    async def apply(self, configuration: Configuration, changes: Changes) -> None:
        """Open, close and renew what the changed configuration asks for; the rest goes on undisturbed."""
        self._configuration = configuration
        renewed = [pair for pair in changes.connectors.changed if not self._adjust(*pair)]
        reopened = [pair for pair in changes.listeners.changed if not self._adjust_listener(*pair)]
        for gone in (*changes.listeners.removed, *(old for old, _ in reopened)):
            await self._remove_listener(gone.name)
        for connector in (*changes.connectors.removed, *(old for old, _ in renewed)):
            self._remove_connector(connector.name)
        for listener in (*changes.listeners.added, *(new for _, new in reopened)):
            await self._add_listener(listener)
        for added in (*changes.connectors.added, *(new for _, new in renewed)):
            self._add_connector(added)
        if changes.router is not None:
            for item in self.connectors.values():
                item.set_data_connections(self._data_connections(item.config))
        await self._renew_tls({change.new.name for change in changes.ssl_profiles_changed})
        for change in changes.ssl_profiles_changed:
            if change.oldest_valid_raised:
                self._driver.close_generations(change.new.name, change.new.oldest_valid_ordinal)
        for profile in (*changes.ssl_profiles_added, *(item.new for item in changes.ssl_profiles_changed)):
            await self._read_lists(profile)

    async def _read_lists(self, profile: SslProfileConfig) -> None:
        """Connections that they revoke are closed, and authorities without a list are told."""
        # Files that cannot be used are reported with the credentials.
        with contextlib.suppress(CredentialsError):
            lists, remark = await asyncio.to_thread(revocations, profile)
            self._driver.revoke(profile.name, lists)
            if remark:
                log.warning(
                    "revocation lists incomplete", extra={"sslProfile": profile.name, "reason": remark}
                )

    async def _add_listener(self, config: ListenerConfig) -> None:
        if config.http:
            self.http[config.name] = HttpListener(config, self._health, self._driver.loop)
            await self.http[config.name].open()
            return
        try:
            settings = listener_settings(config, self._configuration)
        except TlsError as error:
            self._tls_failed(config.identity, error)
            settings = listener_settings(config, self._configuration, tls=False)
            listener = self.listeners[config.name] = Listener(self._driver, config, settings)
            listener.unusable(str(error))
            return
        self.listeners[config.name] = Listener(self._driver, config, settings)
        await self.listeners[config.name].open()

    def _add_connector(self, config: ConnectorConfig) -> None:
        try:
            settings = connector_settings(config, self._configuration)
        except TlsError as error:
            self._tls_failed(config.identity, error)
            settings = connector_settings(config, self._configuration, tls=False)
            self._connector(config, settings).unusable(str(error))
            return
        self._connector(config, settings).start()

    def _connector(self, config: ConnectorConfig, settings: Settings) -> Connector:
        connector = self.connectors[config.name] = Connector(
            self._driver, config, settings, data_connections=self._data_connections(config)
        )
        return connector

    def regroup(self, connection: Connection) -> None:
        """The peer has no use for this connection's group any more."""
        for connector in self.connectors.values():
            if connector.settings.group_correlator == connection.group_correlator:
                connector.regroup()

    def _data_connections(self, config: ConnectorConfig) -> int:
        count = config.data_connection_count
        return self._configuration.router.data_connections if count is None else count

    async def _remove_listener(self, name: str) -> None:
        http = self.http.pop(name, None)
        if http is not None:
            await http.close()
            return
        listener = self.listeners.pop(name, None)
        if listener is not None:
            self.tls_errors.pop(listener.config.identity, None)
            listener.close()
            listener.close_connections()

    def _remove_connector(self, name: str) -> None:
        connector = self.connectors.pop(name)
        self.tls_errors.pop(connector.config.identity, None)
        connector.close()

    def _adjust_listener(self, old: ListenerConfig, new: ListenerConfig) -> bool:
        """Takes over other `peerNames` and further rights of clients; False if the listener must be reopened.

        It must where there were no `peerNames`, and where rights of management are taken away. Where the right to flow
        records is taken away, the connections that may use it are closed.
        """
        listener = self.listeners.get(old.name)
        further = replace(old, allow_flow_records=new.allow_flow_records, management=new.management)
        if listener is None or replace(further, peer_names=new.peer_names) != new:
            return False
        renamed = old.peer_names != new.peer_names
        if (renamed and not (old.peer_names and new.peer_names)) or _takes_management(listener.settings, new):
            return False
        if renamed:
            listener.rename_peers(new)
        rights: dict[str, Any] = {
            "allow_flow_records": new.allow_flow_records,
            "management": new.management,
        }
        listener.config, listener.settings = new, replace(listener.settings, **rights)
        hidden = old.allow_flow_records and not new.allow_flow_records
        for connection in list(listener.connections):
            connection.settings = replace(connection.settings, **rights)
            if connection.core is None:
                continue
            connection.core.access = connection.settings.access(authenticated=is_known(connection))
            if hidden and connection.core.may_use_flow_records:
                connection.close(
                    Condition(UNAUTHORIZED, "the listener's allowFlowRecords is not set any more")
                )
        if hidden:
            self._driver.flush()
        return True

    def _adjust(self, old: ConnectorConfig, new: ConnectorConfig) -> bool:
        """Takes over what can change on open connections; False if the connector must be renewed."""
        connector = self.connectors[old.name]
        adjusted = replace(old, cost=new.cost, data_connection_count=new.data_connection_count)
        if None not in (old.sasl_username, new.sasl_username):  # or other mechanisms may be allowed
            adjusted = replace(adjusted, sasl_username=new.sasl_username, sasl_password=new.sasl_password)
        if adjusted != new or connector.state == "failed":
            return False
        connector.set_data_connections(self._data_connections(new))
        for connection in connector.recost(new, new.cost):
            self._cost_changed(connection)
        if (old.sasl_username, old.sasl_password) != (new.sasl_username, new.sasl_password):
            settings = replace(connector.settings, username=new.sasl_username, password=new.sasl_password)
            connector.renew(settings)
        return True

    async def _renew_tls(self, profiles: set[str]) -> None:
        """New credentials serve new connections; what is open goes on with what it negotiated.

        They are loaded in a thread: it takes milliseconds, and messages would wait.
        """
        for listener in list(self.listeners.values()):
            if listener.config.ssl_profile in profiles:
                try:
                    listener.settings = await asyncio.to_thread(
                        listener_settings, listener.config, self._configuration
                    )
                except TlsError as error:
                    self._tls_failed(listener.config.identity, error)
                    self._end_if_invalid(listener, error)
                    continue
                self.tls_errors.pop(listener.config.identity, None)
                if listener.state == "failed":
                    await listener.open()
        for connector in list(self.connectors.values()):
            if connector.config.ssl_profile in profiles:
                try:
                    settings = await asyncio.to_thread(
                        connector_settings, connector.config, self._configuration
                    )
                except TlsError as error:
                    self._tls_failed(connector.config.identity, error)
                    self._end_if_invalid(connector, error)
                    continue
                self.tls_errors.pop(connector.config.identity, None)
                connector.renew(settings)

    def _end_if_invalid(self, endpoint: Listener | Connector, error: TlsError) -> None:
        """What it would go on with is no longer valid either."""
        tls = endpoint.settings.tls
        profile = self._configuration.ssl_profiles[endpoint.config.ssl_profile or ""]
        if tls is not None and tls.ordinal < profile.oldest_valid_ordinal:
            endpoint.unusable(str(error))

    def _tls_failed(self, identity: str, error: TlsError) -> None:
        """What is open stays as it is, and new connections go on with the credentials from before, if any."""
        self.tls_failures += 1
        self.tls_errors[identity] = str(error)
        log.error("credentials not usable", extra={"entity": identity, "reason": str(error)})


def _takes_management(before: Settings, config: ListenerConfig) -> bool:
    """Whether clients may ask less of management than before."""
    after = replace(before, management=config.management)
    return any(
        before.access(authenticated=known).management > after.access(authenticated=known).management
        for known in (False, True)
    )
