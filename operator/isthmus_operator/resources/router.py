"""The `Router` kind: a set of like router replicas."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from .autolink import Phase
from .base import (
    ANY_PEER_NAME,
    DNS_LABEL,
    ListMap,
    Metadata,
    Model,
    Port,
    Rule,
    SecretRef,
)
from .policy import RouterPolicy
from .router_status import RouterStatus
from .tls import ListenerTls, given

ANY_PEER = "*"
"""In `peerNames`: every certificate of the authorities."""
AnyPeerName = Annotated[str, Field(min_length=1, max_length=256, pattern=ANY_PEER_NAME)]

Mode = Literal["interior", "edge"]
Role = Literal["normal", "inter-router", "edge", "route-container"]
Distribution = Literal["closest", "balanced", "multicast"]
Mechanism = Literal[
    "ANONYMOUS",
    "EXTERNAL",
    "PLAIN",
    "SCRAM-SHA-1",
    "SCRAM-SHA-224",
    "SCRAM-SHA-256",
    "SCRAM-SHA-384",
    "SCRAM-SHA-512",
]
LogModule = Literal[
    "DEFAULT",
    "ROUTER",
    "ROUTER_CORE",
    "ROUTER_HELLO",
    "ROUTER_LS",
    "ROUTER_MA",
    "MESSAGE",
    "SERVER",
    "AGENT",
    "CONTAINER",
    "ERROR",
    "HTTP",
    "CONN_MGR",
    "PROTOCOL",
    "FLOW_LOG",
    "POLICY",
    "RELAY",
    "TRANSPORT",
]
MAX_INTERIOR_REPLICAS = 32

IMAGE = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$"

ImageName = Annotated[str, Field(min_length=1, max_length=512, pattern=IMAGE)]

QUANTITY = r"^[+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"

Quantity = Annotated[
    int | Annotated[str, Field(max_length=32, pattern=QUANTITY)],
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY,
            "maxLength": 32,
            "x-kubernetes-int-or-string": True,
        }
    ),
]


class ListenerSasl(Model):
    """Authentication of the peers of a listener."""

    mechanisms: Annotated[
        list[Mechanism],
        Field(min_length=1, max_length=8, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ]
    """Mechanisms offered. Without `ANONYMOUS` every peer must authenticate."""

    users_secret_ref: SecretRef | None = None
    """Secret whose key `sasldb` is a database of users and passwords for `PLAIN` and `SCRAM-*`, as
    `saslpasswd2 -c -f FILE -u REALM USER` makes it; users log in as `USER@REALM`. A Router has one for all
    of its listeners. Changed users take effect at once; naming another Secret restarts the routers."""

    allow_plain_without_tls: bool = False
    """Offer `PLAIN` on a listener without TLS, where others can read the passwords on their way. The condition
    `Insecure` shows it."""

    rules: ClassVar = (
        Rule(
            "!self.mechanisms.exists(m, m == 'PLAIN' || m.startsWith('SCRAM')) || has(self.usersSecretRef)",
            "usersSecretRef is required when mechanisms contains PLAIN or SCRAM",
            ".usersSecretRef",
            lambda self: self.users_secret_ref is not None or not self.passwords,
        ),
        Rule(
            "self.mechanisms.all(m, self.mechanisms.exists_one(n, n == m))",
            "mechanisms must not repeat",
            ".mechanisms",
            lambda self: len(set(self.mechanisms)) == len(self.mechanisms),
        ),
    )

    @property
    def passwords(self) -> bool:
        """Some mechanism checks passwords."""
        return any(mechanism not in {"ANONYMOUS", "EXTERNAL"} for mechanism in self.mechanisms)

    @property
    def plain_allowed(self) -> bool:
        """PLAIN is offered in clear text as well."""
        return "PLAIN" in self.mechanisms and self.allow_plain_without_tls


class Listener(Model):
    """A port on which the router accepts AMQP connections."""

    name: Annotated[str, Field(min_length=1, max_length=24, pattern=DNS_LABEL)]
    """Name of the listener, unique in the Router; also the name of the Service port."""

    role: Role = "normal"
    """Who may connect: `normal` clients, `inter-router` (interior routers), `edge` (edge routers),
    `route-container` (brokers)."""

    port: Port
    """TCP port in the pod and on the Service."""

    host: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Address to bind; all addresses of the pod when absent."""

    cost: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Least cost of links accepted here (`inter-router` and `edge`); the effective cost of a link is the
    larger one of its two ends."""

    tls: ListenerTls | None = None
    """Transport security. When absent: on listeners of role `inter-router` and `edge` mutual TLS with certificates of
    the namespace's own authority, on others clear text."""

    peer_names: (
        Annotated[
            list[AnyPeerName],
            Field(min_length=1, max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}),
        ]
        | None
    ) = None
    """Further names that certificates of peers may have, as a DNS name or as the common name, on listeners of role
    `inter-router`, `edge` and `route-container` with `tls.requireClientCertificate`, and of role `inter-router` and
    `edge` without `tls` and `sasl`, whose certificates are of the namespace's own authority; `*.` stands for one label,
    `*` alone accepts every certificate of the authorities. On listeners of role `inter-router` and `edge` the operator
    adds the names of the Router's own certificate and of those of the Connectors in the namespace that lead to the
    Router. Name here the certificates of Routers in other namespaces and clusters. Other peers get
    `amqp:unauthorized-access`."""

    sasl: ListenerSasl | None = None
    """Authentication. When absent: `EXTERNAL` if certificates are demanded, because of
    `tls.requireClientCertificate` or because `tls` is absent, else `ANONYMOUS`."""

    accept_insecure: bool = False
    """The condition `Insecure` does not count this listener, though it accepts clear text or anonymous clients. For
    `role` `normal` and `route-container`."""

    exposure: Literal["ClusterIP", "NodePort", "LoadBalancer", "None"] = "ClusterIP"
    """How the listener is reached from outside the pod network. All but `None` are ports of the Router's
    ClusterIP Service; `NodePort` and `LoadBalancer` get a Service of that type in addition."""

    node_port: Port | None = None
    """Fixed node port for `exposure: NodePort` or `LoadBalancer`; chosen by the cluster when absent."""

    service_annotations: (
        Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32)] | None
    ) = None
    """Annotations of the NodePort or LoadBalancer Service, for example for a cloud load balancer."""

    max_frame_size: Annotated[int, Field(ge=512, le=2_147_483_647)] = 16384
    """Largest AMQP frame accepted, in bytes."""

    max_sessions: Annotated[int, Field(ge=1, le=32768)] = 1000
    """Sessions per connection."""

    idle_timeout_seconds: Annotated[int, Field(ge=0, le=86400)] = 16
    """A connection without any frame for this long is closed; 0 switches the check off."""

    initial_handshake_timeout_seconds: Annotated[int, Field(ge=0, le=3600)] = 10
    """A connection that has not finished TLS, SASL and open after this long is closed; 0: after 15 seconds."""

    max_links: Annotated[int, Field(ge=1, le=2_147_483_647)] | None = None
    """Links that the peer may attach on a connection; one more is refused with `amqp:resource-limit-exceeded`. When
    absent 16,384 with role `normal`, 262,144 with the other roles."""

    max_handshakes: Annotated[int, Field(ge=1, le=2_147_483_647)] | None = None
    """Connections that have not finished TLS, SASL and open; with one more, the router closes the one that has waited
    longest, of the host that has most of them. 1,024 when absent."""

    max_handshakes_per_host: Annotated[int, Field(ge=1, le=2_147_483_647)] | None = None
    """The same, of one host (IPv6: of one /64 network). 512 when absent."""

    management: Literal["none", "basic", "read"] | None = None
    """What peers may ask of `$management`: nothing, totals and the schema (`basic`), or everything that can be read.
    When absent `read` for routers and for peers that have authenticated, else `basic`."""

    link_capacity: Annotated[int, Field(ge=1, le=10000)] = 250
    """Largest credit given to one sender, in deliveries; links between routers, which carry what many clients send,
    get 16 times as much."""

    max_message_size: Annotated[int, Field(ge=0, le=2**53 - 1)] = 0
    """Largest message taken from a client, in bytes; 0 is any. A larger one is rejected and its link closed."""

    strip_annotations: Literal["in", "out", "both", "no"] = "both"
    """Remove router annotations from messages coming in, going out, both, or not at all."""

    rules: ClassVar = (
        Rule(
            "!has(self.peerNames) || (has(self.role) && self.role != 'normal')",
            "peerNames needs role inter-router, edge or route-container",
            ".peerNames",
            lambda self: self.peer_names is None or self.role != "normal",
        ),
        Rule(
            "!has(self.peerNames) || (has(self.tls) ? has(self.tls.requireClientCertificate)"
            " && self.tls.requireClientCertificate"
            " : has(self.role) && self.role in ['inter-router', 'edge'] && !has(self.sasl))",
            "peerNames needs tls.requireClientCertificate, or role inter-router or edge without tls and sasl",
            ".peerNames",
            lambda self: (
                self.peer_names is None
                or (self.own_tls and self.sasl is None)
                or (self.tls is not None and self.tls.require_client_certificate)
            ),
        ),
        Rule(
            "!has(self.acceptInsecure) || !self.acceptInsecure"
            " || !has(self.role) || self.role in ['normal', 'route-container']",
            "acceptInsecure needs role normal or route-container",
            ".acceptInsecure",
            lambda self: not self.accept_insecure or self.role in {"normal", "route-container"},
        ),
        Rule(
            "!has(self.nodePort) || (has(self.exposure) && self.exposure in ['NodePort', 'LoadBalancer'])",
            "nodePort needs exposure NodePort or LoadBalancer",
            ".nodePort",
            lambda self: self.node_port is None or self.exposure in {"NodePort", "LoadBalancer"},
        ),
        Rule(
            "!has(self.serviceAnnotations)"
            " || (has(self.exposure) && self.exposure in ['NodePort', 'LoadBalancer'])",
            "serviceAnnotations needs exposure NodePort or LoadBalancer",
            ".serviceAnnotations",
            lambda self: self.service_annotations is None or self.exposure in {"NodePort", "LoadBalancer"},
        ),
        Rule(
            "!has(self.sasl) || !self.sasl.mechanisms.exists(m, m == 'EXTERNAL')"
            " || (has(self.tls) && has(self.tls.requireClientCertificate)"
            " && self.tls.requireClientCertificate)",
            "sasl mechanism EXTERNAL needs tls.requireClientCertificate",
            ".sasl.mechanisms",
            lambda self: (
                self.sasl is None
                or "EXTERNAL" not in self.sasl.mechanisms
                or (self.tls is not None and self.tls.require_client_certificate)
            ),
        ),
        Rule(
            "!has(self.sasl) || !self.sasl.mechanisms.exists(m, m == 'PLAIN')"
            " || (has(self.sasl.allowPlainWithoutTls) && self.sasl.allowPlainWithoutTls)"
            " || (has(self.tls) ? !has(self.tls.disabled) || !self.tls.disabled"
            " : has(self.role) && self.role in ['inter-router', 'edge'])",
            "sasl mechanism PLAIN without TLS shows passwords to others: set tls, use SCRAM-SHA-256 in place of PLAIN,"
            " or set sasl.allowPlainWithoutTls",
            ".sasl.allowPlainWithoutTls",
            lambda self: (
                self.sasl is None
                or "PLAIN" not in self.sasl.mechanisms
                or self.sasl.allow_plain_without_tls
                or self.encrypted
            ),
        ),
        Rule(
            "!has(self.sasl) || !has(self.tls) || !has(self.tls.requireClientCertificate)"
            " || !self.tls.requireClientCertificate"
            " || !self.sasl.mechanisms.exists(m, m == 'ANONYMOUS')",
            "sasl mechanism ANONYMOUS contradicts tls.requireClientCertificate",
            ".sasl.mechanisms",
            lambda self: (
                self.sasl is None
                or self.tls is None
                or not self.tls.require_client_certificate
                or "ANONYMOUS" not in self.sasl.mechanisms
            ),
        ),
    )

    @property
    def given_tls(self) -> ListenerTls | None:
        """The certificates that it names."""
        return given(self.tls)

    @property
    def own_tls(self) -> bool:
        """It uses certificates of the namespace's own authority, and demands such from clients."""
        return self.tls is None and self.role in {"inter-router", "edge"}

    @property
    def mechanisms(self) -> list[Mechanism]:
        """The mechanisms that it offers."""
        if self.sasl is not None:
            return self.sasl.mechanisms
        demands = self.own_tls or (self.tls is not None and self.tls.require_client_certificate)
        return ["EXTERNAL"] if demands else ["ANONYMOUS"]

    @property
    def encrypted(self) -> bool:
        """It accepts TLS only."""
        return self.own_tls or self.given_tls is not None

    @property
    def plain_in_clear(self) -> bool:
        """It accepts passwords in clear text."""
        return self.sasl is not None and self.sasl.plain_allowed and not self.encrypted


class AddressTreatment(Model):
    """How messages to a range of addresses are distributed."""

    prefix: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """The address and everything below it (`orders` matches `orders` and `orders/eu`)."""

    pattern: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Tokens separated by `.` or `/`; `*` is one token, `#` any number."""

    distribution: Distribution
    """`closest`: to the cheapest consumer; `balanced`: spread by load; `multicast`: to all."""

    priority: Annotated[int, Field(ge=0, le=9)] | None = None
    """Of all messages to these addresses, between routers; when absent that of their header, or 4."""

    resend_released: bool = False
    """A message that a consumer releases is sent to another one before it comes back to its sender."""

    waypoint: bool = False
    """Messages pass a queue on a broker on their way: senders are in phase 0 of the address, receivers in phase 1,
    and `autoLinks` of a Connector join the two. To be the same in every Router."""

    ingress_phase: Phase | None = None
    """Phase that senders are in, where waypoints follow each other; 0 when absent."""

    egress_phase: Phase | None = None
    """Phase that receivers are in; when absent 1 with `waypoint`, else 0."""

    rules: ClassVar = (
        Rule(
            "has(self.prefix) != has(self.pattern)",
            "exactly one of prefix and pattern must be set",
            ".prefix",
            lambda self: (self.prefix is None) != (self.pattern is None),
        ),
        Rule(
            "!has(self.waypoint) || !self.waypoint || (!has(self.ingressPhase) && !has(self.egressPhase))",
            "waypoint already says what ingressPhase and egressPhase are",
            ".waypoint",
            lambda self: not self.waypoint or (self.ingress_phase is None and self.egress_phase is None),
        ),
    )


class LogLevel(Model):
    """Level of one log module."""

    module: LogModule
    """Log module, or `DEFAULT` for all that are not named."""

    level: Literal["debug", "info", "warning", "error", "critical"]
    """Least severity logged."""


ResourceMap = Annotated[dict[str, Quantity], Field(max_length=16)]


class ResourceRequirements(Model):
    """Compute resources of the router container."""

    requests: ResourceMap | None = None
    """What is reserved, for example `cpu: 100m`."""

    limits: ResourceMap | None = None
    """What is not exceeded, for example `memory: 256Mi`."""


class PodTemplateMetadata(Model):
    """Labels and annotations of the pods."""

    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=64)] | None = None
    """Additional labels; those of the operator win."""

    annotations: (
        Annotated[dict[str, Annotated[str, Field(max_length=65536)]], Field(max_length=64)] | None
    ) = None
    """Additional annotations."""


MAX_POD_LEVELS = 24
"""Of objects and lists in each other in `podTemplate.spec`; those of Kubernetes have less than half."""


def _checked_depth(spec: dict[str, Any]) -> dict[str, Any]:
    level: list[Any] = [spec]
    for _ in range(MAX_POD_LEVELS):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return spec
    raise ValueError(f"more than {MAX_POD_LEVELS} objects and lists in each other")


class PodTemplate(Model):
    """Changes to the generated pod template."""

    metadata: PodTemplateMetadata | None = None
    """Labels and annotations of the pods."""

    spec: (
        Annotated[
            dict[str, Any],
            AfterValidator(_checked_depth),
            WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        ]
        | None
    ) = None
    """Any fields of a pod's specification; lists of named objects are merged by name, others replaced."""


class RouterSpec(Model):
    """Desired state of a set of routers."""

    mode: Mode = "interior"
    """`interior` routers form the network; `edge` routers attach to one interior router and serve clients."""

    replicas: Annotated[int, Field(ge=0, le=200)] = 1
    """Number of routers. Interior replicas connect to each other by themselves (at most 32)."""

    site: (
        Annotated[
            str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
        ]
        | None
    ) = None
    """Name of the place these routers run in, shown in status and metadata."""

    listeners: Annotated[list[Listener], Field(min_length=1, max_length=16), ListMap("name")] | None = None
    """Ports to accept connections on. When absent: `amqp` 5672 for clients and, for interior routers,
    `inter-router` 55672 and `edge` 45672."""

    health_port: Port = 9090
    """Port of `/healthz`, `/readyz`, `/metrics` and `/status`."""

    addresses: Annotated[list[AddressTreatment], Field(max_length=128)] | None = None
    """Treatment of addresses; the most specific match wins."""

    default_distribution: Distribution = "balanced"
    """Treatment of addresses that no entry of `addresses` matches."""

    policy: RouterPolicy | None = None
    """Who may connect, and attach to what, on the listeners of role `normal` and `route-container`. Changes take
    effect at once, for what is open as well. Everybody may do everything when absent."""

    log: Annotated[list[LogLevel], Field(max_length=32), ListMap("module")] | None = None
    """Log levels; `info` when absent."""

    image: ImageName | None = None
    """Router image in place of the operator's default. The installation must allow it (`restrictions.allowedImages` of
    the chart)."""

    resources: ResourceRequirements | None = None
    """Compute resources of the router container."""

    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Threads of each router that share reading and writing its connections, TLS included. More than one pays with
    large messages or TLS on several connections at once, given as many cores (`resources`)."""

    flow_interval_seconds: Annotated[int, Field(ge=0, le=3600)] = 10
    """Flow records sum up deliveries over so many seconds; 0 turns flow records off. Routers send them only while
    somebody collects."""

    network_policy: Literal["Disabled", "Ingress"] = "Ingress"
    """`Ingress` makes a NetworkPolicy. Listeners with exposure `NodePort` or `LoadBalancer` accept connections from
    anywhere. Others of role `inter-router` and `edge` do so from routers only: of the namespace where the certificates
    are of its own authority, else of any namespace. Others of other roles do so from pods of the cluster, or with
    exposure `None` of the namespace. The health port accepts connections as the installation says."""

    pod_template: PodTemplate | None = None
    """Merged over the generated pod template: `metadata.labels`, `metadata.annotations` and fields of
    `spec` (`nodeSelector`, `tolerations`, `affinity`, `priorityClassName`, ...). The container is called
    `router`. Fields by which a pod gets further rights are refused unless the installation allows them
    (`restrictions.podTemplate` of the chart)."""

    rules: ClassVar = (
        Rule(
            "self.mode == oldSelf.mode",
            "mode is immutable; delete the Router and create it anew",
            ".mode",
            None,
        ),
        Rule(
            f"self.mode != 'interior' || self.replicas <= {MAX_INTERIOR_REPLICAS}",
            f"replicas of an interior Router must be at most {MAX_INTERIOR_REPLICAS}",
            ".replicas",
            lambda self: self.mode != "interior" or self.replicas <= MAX_INTERIOR_REPLICAS,
        ),
        Rule(
            "self.mode != 'edge' || !has(self.listeners)"
            " || self.listeners.all(l, !has(l.role) || l.role in ['normal', 'route-container'])",
            "listeners of an edge Router must have role normal or route-container",
            ".listeners",
            lambda self: (
                self.mode != "edge"
                or all(listener.role in {"normal", "route-container"} for listener in self.listeners or [])
            ),
        ),
        Rule(
            "self.mode != 'interior' || self.replicas < 2 || !has(self.listeners)"
            " || self.listeners.exists(l, has(l.role) && l.role == 'inter-router')",
            "listeners needs one of role inter-router when an interior Router has several replicas",
            ".listeners",
            lambda self: (
                self.mode != "interior"
                or self.replicas < 2
                or self.listeners is None
                or any(listener.role == "inter-router" for listener in self.listeners)
            ),
        ),
        Rule(
            "!has(self.listeners) || self.listeners.all(l, self.listeners.exists_one(k, k.port == l.port))",
            "listeners must not share a port",
            ".listeners",
            lambda self: (
                self.listeners is None
                or len({listener.port for listener in self.listeners}) == len(self.listeners)
            ),
        ),
        Rule(
            "self.healthPort != 0 && (has(self.listeners) ? self.listeners.all(l, l.port != self.healthPort)"
            " : !(self.healthPort in [5672, 45672, 55672]))",
            "healthPort is the port of a listener",
            ".healthPort",
            lambda self: all(listener.port != self.health_port for listener in self.effective_listeners()),
        ),
        Rule(
            "!has(self.listeners) || self.listeners.all(a, self.listeners.all(b,"
            " !has(a.sasl) || !has(a.sasl.usersSecretRef) || !has(b.sasl) || !has(b.sasl.usersSecretRef)"
            " || a.sasl.usersSecretRef.name == b.sasl.usersSecretRef.name))",
            "listeners must not name different sasl.usersSecretRef",
            ".listeners",
            lambda self: (
                len(
                    {
                        listener.sasl.users_secret_ref.name
                        for listener in self.listeners or []
                        if listener.sasl is not None and listener.sasl.users_secret_ref is not None
                    }
                )
                < 2
            ),
        ),
        Rule(
            "!has(self.addresses) || self.addresses.all(a, self.addresses.exists_one(b,"
            " has(a.prefix) == has(b.prefix)"
            " && (has(a.prefix) ? a.prefix == b.prefix : a.pattern == b.pattern)))",
            "addresses must not repeat a prefix or pattern",
            ".addresses",
            lambda self: (
                self.addresses is None
                or len({(a.prefix, a.pattern) for a in self.addresses}) == len(self.addresses)
            ),
        ),
    )

    def effective_listeners(self) -> list[Listener]:
        """The listeners given, or the defaults of the mode."""
        if self.listeners is not None:
            return self.listeners
        defaults = [Listener(name="amqp", role="normal", port=5672)]
        if self.mode == "interior":
            defaults.append(Listener(name="inter-router", role="inter-router", port=55672))
            defaults.append(Listener(name="edge", role="edge", port=45672))
        return defaults


class Router(Model):
    """A set of like AMQP routers: interior routers that mesh themselves, or edge routers."""

    kind_name: ClassVar = "Router"

    metadata: Metadata
    spec: RouterSpec
    """Desired state."""

    status: RouterStatus | None = None
    """Observed state, written by the operator only."""

    @property
    def name(self) -> str:
        return self.metadata.name
