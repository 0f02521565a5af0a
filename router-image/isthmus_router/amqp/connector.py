"""Connectors: the connections that one `connector` section asks for, generation by generation.

A generation has the credentials of one ordinal. When the ordinal of the sslProfile rises, a new generation is
opened beside the old one, which stays for what it has under way but is not connected again.
Source: docs/rotation.md; groups of connections as in the skupper-router family.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from isthmus_router.amqp.connection import AmqpConnection
from isthmus_router.amqp.dialler import Dialler
from isthmus_router.amqp.driver import Driver
from isthmus_router.amqp.settings import Settings
from isthmus_router.config.model import ConnectorConfig
from isthmus_router.core.model import Connection
from isthmus_router.core.roles import Role
from isthmus_router.core.router import random_name

_ROTATING = (Role.INTER_ROUTER, Role.EDGE)
"""Roles whose open connections a new generation replaces; others meet it when they next connect."""
DATA_INTERVAL_SECONDS = 0.02
"""Between the data connections of a generation: each TLS handshake holds up messages for milliseconds."""


class Connector:
    """One `connector` section: its control connection (or only one), and its data connections."""

    def __init__(
        self, driver: Driver, config: ConnectorConfig, settings: Settings, *, data_connections: int = 0
    ) -> None:
        self.driver = driver
        self.config = config
        between = config.role is Role.INTER_ROUTER
        if between:
            settings = replace(settings, group_correlator=random_name())
        self.settings = settings
        """Of the newest generation."""
        self._data_connections = data_connections if between else 0
        self._diallers = self._generation()
        """The newest generation; the control connection comes first."""
        self._earlier: list[Dialler] = []
        self._unusable = ""
        self._closed = False

    def _generation(self) -> list[Dialler]:
        """Data connections are dialled once the control connection is open, and while it is."""
        control = Dialler(self.driver, self.config, self.settings, opened=lambda: self._start_data(control))
        return [control, *(self._data_dialler(control) for _ in range(self._data_connections))]

    def _data_dialler(self, control: Dialler) -> Dialler:
        settings = replace(self.settings, role=Role.INTER_ROUTER_DATA)
        return Dialler(self.driver, self.config, settings, wanted=lambda: control.state == "open")

    def _start_data(self, control: Dialler) -> None:
        if self._diallers[0] is control:
            waiting = [dialler for dialler in self._diallers[1:] if dialler.connection is None]
            for place, dialler in enumerate(waiting, start=1):
                dialler.start(place * DATA_INTERVAL_SECONDS)

    def set_data_connections(self, count: int) -> None:
        """More are opened at once, if this is an inter-router connector; fewer count from the next generation on."""
        if self.config.role is not Role.INTER_ROUTER:
            return
        self._data_connections = count
        control = self._diallers[0]
        self._diallers += [self._data_dialler(control) for _ in range(count + 1 - len(self._diallers))]
        if control.state == "open":
            self._start_data(control)

    def start(self) -> None:
        """Begin to connect."""
        self._unusable = ""
        self._diallers[0].start()

    def unusable(self, reason: str) -> None:
        """There are no credentials to connect with; what is open stays."""
        self._unusable = reason
        for dialler in self._diallers:
            dialler.retire()

    def renew(self, settings: Settings) -> None:
        """Take over renewed credentials: for a new generation if their ordinal is greater, else for what comes."""
        if self._closed:
            return
        rotated = (
            settings.tls is not None
            and self.settings.tls is not None
            and settings.tls.ordinal > self.settings.tls.ordinal
            and self.config.role in _ROTATING
        )
        self.settings = replace(settings, group_correlator=self.settings.group_correlator)
        if rotated or self._unusable:
            self._retire(self._diallers)
            self._diallers = self._generation()
            self.start()
            return
        for dialler in self._diallers:
            dialler.settings = replace(self.settings, role=dialler.settings.role)
        if self._diallers[0].connection is None:
            self.start()

    def regroup(self) -> None:
        """The peer has no use for the group any more: connect anew, as another one."""
        self.settings = replace(self.settings, group_correlator=random_name())
        self._retire(self._diallers)
        self._diallers = self._generation()
        if not self._unusable:
            self.start()

    def _retire(self, diallers: list[Dialler]) -> None:
        for dialler in diallers:
            dialler.retire()
        self._earlier = [item for item in (*self._earlier, *diallers) if item.connection is not None]

    @property
    def state(self) -> str:
        """`connecting`, `open`, `failed` or `closed`."""
        connection = self.connection
        if connection is not None and connection.opened:
            return "open"
        return "failed" if self._unusable else self._diallers[0].state

    @property
    def message(self) -> str:
        """Why it is not open; or what keeps the newest generation from taking over."""
        newest = self._diallers[0]
        if self.state == "open" and newest.state != "open":
            ordinal = self.settings.tls.ordinal if self.settings.tls is not None else 0
            return f"connections of ordinal {ordinal}: {self._unusable or newest.message or newest.state}"
        return self._unusable or newest.message

    @property
    def connection(self) -> AmqpConnection | None:
        """The connection that is in use; one that is not yet, if there is no other."""
        found = [dialler.connection for dialler in self._control() if dialler.connection is not None]
        return next((item for item in found if item.core is not None and item.core.active), None) or next(
            iter(found), None
        )

    def _control(self) -> Iterator[Dialler]:
        """Diallers of control connections (or only ones), the newest generation first."""
        yield self._diallers[0]
        for dialler in reversed(self._earlier):
            if dialler.settings.role is not Role.INTER_ROUTER_DATA:
                yield dialler

    def recost(self, config: ConnectorConfig, cost: int) -> list[Connection]:
        """Nothing but the cost has changed: what is open stays. Returns the open connections as the core sees them."""
        self.config, self.settings = config, replace(self.settings, cost=cost)
        found = []
        for dialler in (*self._diallers, *self._earlier):
            dialler.config, dialler.settings = config, replace(dialler.settings, cost=cost)
            connection = dialler.connection
            if connection is None:
                continue
            connection.settings = replace(connection.settings, cost=cost)
            if connection.core is not None:
                connection.core.own_cost = cost
                connection.core.cost = max(cost, connection.remote_cost)
                found.append(connection.core)
        return found

    def close(self) -> None:
        """Give up every connection and make no other."""
        self._closed = True
        for dialler in (*self._diallers, *self._earlier):
            dialler.close()
