"""The `Connector` kind: connections opened by the replicas of a Router."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from .autolink import AutoLink, AutoLinkStatus
from .base import (
    DNS_LABEL,
    Condition,
    ListMap,
    Metadata,
    Model,
    ObjectName,
    Port,
    Rule,
)
from .listener import Role
from .sasl import NO_PLAIN_IN_CLEAR, PLAIN_NEEDS_TLS, ConnectorSasl
from .tls import ConnectorTls, given


class FromRouterRef(Model):
    """A Router in the same namespace."""

    name: ObjectName
    """Name of the Router."""


class ToRouterRef(Model):
    """A Router in the same namespace, and which of its listeners to connect to."""

    name: ObjectName
    """Name of the Router."""

    listener: Annotated[str, Field(min_length=1, max_length=24, pattern=DNS_LABEL)] | None = None
    """Name of the listener; when absent the first one whose role fits the connector's."""


class Source(Model):
    """Who opens the connections."""

    router_ref: FromRouterRef
    """The Router every replica of which opens a connection."""


class Destination(Model):
    """Where the connections go: a Router of the same namespace, or a host and port."""

    router_ref: ToRouterRef | None = None
    """A Router in the same namespace. Interior replica *i* connects to replicas *i* and *i* + 1 modulo the
    number of replicas there (to the only one, if there is one); edge replicas connect through the Service."""

    host: (
        Annotated[
            str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9:]([-A-Za-z0-9.:_]*[A-Za-z0-9:])?$")
        ]
        | None
    ) = None
    """Host name or IP address of a router or broker elsewhere."""

    port: Port | None = None
    """TCP port at `host`."""

    rules: ClassVar = (
        Rule(
            "has(self.routerRef) != has(self.host)",
            "exactly one of to.routerRef and to.host must be set",
            ".routerRef",
            lambda self: (self.router_ref is None) != (self.host is None),
        ),
        Rule(
            "has(self.host) == has(self.port)",
            "to.host and to.port go together",
            ".port",
            lambda self: (self.host is None) == (self.port is None),
        ),
    )


class ConnectorSpec(Model):
    """Desired state of a set of connections."""

    from_: Annotated[Source, Field(alias="from")]
    """The Router whose replicas open the connections."""

    to: Destination
    """Where they go."""

    role: Role
    """`inter-router` joins interior routers, `edge` attaches an edge router to an interior one,
    `route-container` and `normal` go to brokers and other AMQP containers."""

    cost: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """`inter-router`: cost of the link in path computation. `edge`: order of preference among the Connectors of
    the Router, the least first; the others are kept open in reserve. Changed without interruption."""

    data_connections: Annotated[int, Field(ge=0, le=16)] | None = None
    """`inter-router`: number of connections beside the first, which carry messages that are large or never end,
    so that one cannot block the others; 2 when absent. More are opened at once, fewer count from the next rotation
    on."""

    tls: ConnectorTls | None = None
    """Transport security. When absent: what the listener of `to.routerRef` has without `tls`, which is mutual TLS with
    certificates of the namespace's own authority unless its `tls.disabled` is set. To a host, role `inter-router` and
    `edge` need `tls`, and others use clear text when it is absent."""

    sasl: ConnectorSasl | None = None
    """Authentication; when absent `EXTERNAL` if `tls` has a certificate, else `ANONYMOUS`."""

    max_frame_size: Annotated[int, Field(ge=512, le=2_147_483_647)] = 16384
    """Largest AMQP frame accepted, in bytes."""

    max_sessions: Annotated[int, Field(ge=1, le=32768)] = 1000
    """Sessions per connection."""

    idle_timeout_seconds: Annotated[int, Field(ge=0, le=86400)] = 16
    """A connection without any frame for this long is closed; 0 switches the check off."""

    link_capacity: Annotated[int, Field(ge=1, le=10000)] = 250
    """Largest credit given to one sender, in deliveries; links between routers, which carry what many clients send,
    get 16 times as much."""

    allow_peer_links: bool = False
    """`route-container` and `normal`: the peer may attach links of its own, with the rights of a client without a
    policy. Otherwise it has only the links that the routers attach, for LinkRoutes and `autoLinks`."""

    auto_links: Annotated[list[AutoLink], Field(max_length=64)] | None = None
    """`route-container`: links that the routers keep attached to the broker, such as those to and from a queue that
    is a waypoint of an address."""

    rules: ClassVar = (
        Rule(
            "!has(self.to.routerRef) || self.to.routerRef.name != self.from.routerRef.name",
            "to.routerRef must not be the Router the connector comes from",
            ".to.routerRef.name",
            lambda self: self.to.router_ref is None or self.to.router_ref.name != self.from_.router_ref.name,
        ),
        Rule(
            "!has(self.dataConnections) || self.role == 'inter-router'",
            "dataConnections needs role inter-router",
            ".dataConnections",
            lambda self: self.data_connections is None or self.role == "inter-router",
        ),
        Rule(
            "!self.allowPeerLinks || self.role in ['route-container', 'normal']",
            "allowPeerLinks needs role route-container or normal",
            ".allowPeerLinks",
            lambda self: not self.allow_peer_links or self.role in {"route-container", "normal"},
        ),
        Rule(
            "!has(self.autoLinks) || self.role == 'route-container'",
            "autoLinks needs role route-container",
            ".autoLinks",
            lambda self: self.auto_links is None or self.role == "route-container",
        ),
        Rule(
            "!has(self.autoLinks) || self.autoLinks.all(a, self.autoLinks.exists_one(b,"
            " a.address == b.address && a.direction == b.direction"
            " && (has(a.phase) ? a.phase : -1) == (has(b.phase) ? b.phase : -1)"
            " && (has(a.externalAddress) ? a.externalAddress : '')"
            " == (has(b.externalAddress) ? b.externalAddress : '')))",
            "autoLinks must not repeat one",
            ".autoLinks",
            lambda self: self.auto_links is None or len(set(self.auto_links)) == len(self.auto_links),
        ),
        Rule(
            "!has(self.sasl) || !has(self.sasl.mechanisms)"
            " || !self.sasl.mechanisms.exists(m, m == 'EXTERNAL') || has(self.tls)"
            " || (has(self.to.routerRef) && self.role in ['inter-router', 'edge'])",
            "sasl mechanism EXTERNAL needs tls",
            ".sasl.mechanisms",
            lambda self: (
                self.sasl is None
                or "EXTERNAL" not in (self.sasl.mechanisms or [])
                or self.tls is not None
                or (self.to.router_ref is not None and self.role in {"inter-router", "edge"})
            ),
        ),
        Rule(
            f"{NO_PLAIN_IN_CLEAR}"
            " || (!has(self.tls) && has(self.to.routerRef) && self.role in ['inter-router', 'edge'])",
            PLAIN_NEEDS_TLS,
            ".sasl.allowPlainWithoutTls",
            lambda self: (
                self.sasl is None
                or not self.sasl.needs_tls
                or given(self.tls) is not None
                or (
                    self.tls is None
                    and self.to.router_ref is not None
                    and self.role in {"inter-router", "edge"}
                )
            ),
        ),
    )


class ConnectorStatus(Model):
    """Observed state of a Connector, from the routers that open it."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The generation of the specification this status is about."""

    conditions: Annotated[list[Condition], Field(max_length=16), ListMap("type")] | None = None
    """`Configured` (references resolve and the routers run this specification), `Operational` (every
    replica's connection is open, and its auto-links are attached), `Ready` (both), `Insecure` (it carries messages in
    clear text, or accepts every server that its authorities certify)."""

    connections: Annotated[int, Field(ge=0)] = 0
    """Connections wanted: one for each replica of the Router it comes from, or two between interior Routers if
    the other one has several replicas."""

    open_connections: Annotated[int, Field(ge=0)] = 0
    """Connections open."""

    auto_links: Annotated[list[AutoLinkStatus], Field(max_length=64)] | None = None
    """What became of `spec.autoLinks`, in their order."""

    destination: Annotated[str, Field(max_length=320)] | None = None
    """Where it goes, for display."""


class Connector(Model):
    """Connections opened by every replica of a Router to another Router, a broker or a remote site."""

    kind_name: ClassVar = "Connector"

    metadata: Metadata
    spec: ConnectorSpec
    """Desired state."""

    status: ConnectorStatus | None = None
    """Observed state, written by the operator only."""

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def given_tls(self) -> ConnectorTls | None:
        """The certificates that it names."""
        return given(self.spec.tls)
