"""A small router in memory: what management sees of it, and what it was told to do."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

import pytest

from isthmus_router.config import Configuration, parse
from isthmus_router.config.diff import Changes
from isthmus_router.core.access import ManagementLevel
from isthmus_router.core.roles import Role
from isthmus_router.management.agent import ManagementAgent
from isthmus_router.management.port import (
    ActionRefusedError,
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
    Requester,
    SslProfileRow,
    VhostRow,
)
from isthmus_router.message.control import Message, Properties, decode_message

Row = TypeVar("Row")
CONF = """
router {
    mode: interior
    id: A
}
network {
    networkId: net
}
sslProfile {
    name: tls
    ordinal: 3
    oldestValidOrdinal: 1
    password: pass:hunter2
}
listener {
    name: clients
    port: amqp
    saslMechanisms: PLAIN ANONYMOUS
}
listener {
    port: 55672
    role: inter-router
    sslProfile: tls
}
connector {
    name: b
    host: b.example
    port: 55672
    role: inter-router
    saslPassword: hunter2
}
address {
    prefix: jobs
    distribution: closest
}
autoLink {
    address: events
    direction: in
    containerId: broker
}
linkRoute {
    prefix: queue
    direction: in
    connection: broker
}
log {
    module: ROUTER_LS
    enable: debug+
}
"""


def in_steps(rows: Iterable[Row]) -> Iterator[Row | None]:
    """The rows, each after a pause."""
    for row in rows:
        yield None
        yield row


@dataclass
class SmallRouter:
    """Implements both protocols on plain lists."""

    configuration: Configuration
    version: str = "1.2.3"
    host_name: str = "host"
    links_: list[LinkRow] = field(default_factory=list)
    addresses_: list[AddressRow] = field(default_factory=list)
    connections_: list[ConnectionRow] = field(default_factory=list)
    nodes_: list[NodeRow] = field(default_factory=list)
    edge_: EdgeRow | None = None
    made_link_routes: list[ConnectionLinkRouteRow] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    detached: list[tuple[int, int]] = field(default_factory=list)
    refuses: str | None = None
    lags: bool = False
    """What is accepted does not come into force."""
    policy_: PolicyRow = field(default_factory=PolicyRow)
    accepted: Configuration | None = None

    def counters(self) -> Counters:
        return Counters(address_count=len(self.addresses_), link_count=len(self.links_), uptime_seconds=17)

    def memory_bytes(self) -> tuple[int, int] | None:
        return 5000, 1000

    def connections(self, offset: int = 0) -> Iterator[ConnectionRow]:
        return islice(self.connections_, offset, None)

    def first_connections(self, most: int) -> Iterator[ConnectionRow]:
        return islice(self.connections_, most)

    def links(self, offset: int = 0) -> Iterator[LinkRow | None]:
        return in_steps(islice(self.links_, offset, None))

    def addresses(self, offset: int = 0) -> Iterator[AddressRow | None]:
        return in_steps(islice(self.addresses_, offset, None))

    def first_addresses(self, most: int) -> Iterator[AddressRow | None]:
        return in_steps(islice(self.addresses_, most))

    def nodes(self) -> Sequence[NodeRow]:
        return self.nodes_

    def listeners(self) -> Sequence[ListenerRow]:
        # Copies: a listener was made from an earlier configuration, of equal content.
        return [ListenerRow(replace(listener), listening=True) for listener in self.configuration.listeners]

    def connectors(self, offset: int = 0) -> Iterator[ConnectorRow]:
        rows = (ConnectorRow(connector, "connecting") for connector in self.configuration.connectors)
        return islice(rows, offset, None)

    def ssl_profiles(self) -> list[SslProfileRow]:
        return [SslProfileRow(profile, {0: 2}) for profile in self.configuration.ssl_profiles.values()]

    def edge(self) -> Generator[None, None, EdgeRow | None]:
        yield
        return self.edge_

    def edges(self) -> EdgesRow | None:
        return None

    def policy(self) -> PolicyRow:
        return self.policy_

    def vhosts(self) -> Iterator[VhostRow]:
        denials = {"connection": 3, "sender": 2, "message-size": 1}
        per_user, per_host = {"bob": ["10.0.0.1:40000"]}, {"10.0.0.1": ["10.0.0.1:40000"]}
        return (
            VhostRow(vhost.hostname, 5, 1, denials, per_user, per_host) for vhost in self.configuration.vhosts
        )

    def auto_links(self, offset: int = 0) -> Iterator[AutoLinkRow]:
        rows = (AutoLinkRow(config, "active", link_id=9) for config in self.configuration.auto_links)
        return islice(rows, offset, None)

    def connection_link_routes(self, offset: int = 0) -> Iterator[ConnectionLinkRouteRow]:
        return iter(self.made_link_routes[offset:])

    def link_routes_of(self, connection_id: int) -> Sequence[ConnectionLinkRouteRow]:
        return [row for row in self.made_link_routes if row.connection_id == connection_id]

    def make_link_route(self, row: ConnectionLinkRouteRow) -> None:
        self.made_link_routes.append(row)

    def end_link_route(self, row: ConnectionLinkRouteRow) -> None:
        self.made_link_routes.remove(row)

    def link_routes(self, offset: int = 0) -> Iterator[LinkRouteRow]:
        rows = (LinkRouteRow(config, container_count=1) for config in self.configuration.link_routes)
        return islice(rows, offset, None)

    def log_counts(self) -> dict[tuple[str, str], int]:
        return {("AGENT", "info"): 4, ("AGENT", "warning"): 1}

    @property
    def wanted_configuration(self) -> Configuration:
        return self.accepted or self.configuration

    def apply(self, configuration: Configuration, changes: Changes) -> None:
        if self.refuses:
            raise ActionRefusedError(self.refuses)
        assert changes
        if self.lags:
            self.accepted = configuration
        else:
            self.configuration = configuration

    def close_connection(self, connection_id: int) -> None:
        self.closed.append(connection_id)

    def detach_link(self, connection_id: int, link_id: int) -> None:
        self.detached.append((connection_id, link_id))


ADMINISTRATOR = Requester(level=ManagementLevel.WRITE)
"""Who asks, unless a test is about the levels."""


def answer_of(agent: ManagementAgent, message: Message, requester: Requester = ADMINISTRATOR) -> bytes | None:
    """All slices of the work, and what comes of it."""
    work = agent.handle(message, requester)
    while True:
        try:
            next(work)
        except StopIteration as finished:
            response: bytes | None = finished.value
            return response


@dataclass(frozen=True)
class Response:
    status: int
    description: str
    body: Any
    message: Message


@dataclass
class Client:
    """Sends requests as skmanage would and decodes the responses."""

    agent: ManagementAgent
    requester: Requester = ADMINISTRATOR

    def request(self, operation: str | None, body: object = None, **properties: object) -> Response:
        if operation is not None:
            properties = {"operation": operation, **properties}
        return self.send(
            Message(
                properties=Properties(reply_to="temp.1", correlation_id=7),
                application_properties=properties,
                body={} if body is None else body,
            )
        )

    def send(self, message: Message) -> Response:
        data = answer_of(self.agent, message, self.requester)
        assert data is not None
        answer = decode_message(data, most=1_000_000)
        status = answer.application_properties["statusCode"]
        assert isinstance(status, int)
        return Response(status, str(answer.application_properties["statusDescription"]), answer.body, answer)

    def query(self, entity_type: str | None, *names: str, **properties: object) -> list[dict[str, Any]]:
        if entity_type is not None:
            properties = {"entityType": entity_type, **properties}
        response = self.request("QUERY", {"attributeNames": list(names)}, **properties)
        assert response.status == 200, response.description
        columns = response.body["attributeNames"]
        return [dict(zip(columns, row, strict=True)) for row in response.body["results"]]


def connection(number: int, role: Role = Role.NORMAL, **attributes: Any) -> ConnectionRow:
    row = ConnectionRow(number, f"10.0.0.{number}:40000", role, incoming=True, container=f"c{number}")
    return replace(row, **attributes)


@pytest.fixture
def router() -> SmallRouter:
    return SmallRouter(
        parse(CONF, "A.conf"),
        links_=[LinkRow(n, f"link-{n}", "endpoint", n % 2 == 0, 1, delivery_count=n) for n in range(5)],
        addresses_=[
            AddressRow("Mjobs", "closest", subscriber_count=2),
            AddressRow("L$management", "closest"),
        ],
        connections_=[
            connection(1),
            connection(2, Role.INTER_ROUTER, tls_ordinal=3, group_ordinal=3, group_correlation_id="g"),
            connection(3, Role.EDGE, active=False),
        ],
        nodes_=[
            NodeRow("A", 1, 100, ["B"], "(self)", [], None, None, 100, 0),
            NodeRow("B", 1, 101, ["A"], None, ["A"], 0, 1, None, 1),
        ],
    )


@pytest.fixture
def client(router: SmallRouter) -> Client:
    return Client(ManagementAgent(router, router))
