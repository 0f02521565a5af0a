"""A listener of a Router."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from .base import ANY_PEER_NAME, DNS_LABEL, NO_NUL, Model, Port, Rule
from .sasl import NO_PLAIN_IN_CLEAR, PLAIN_NEEDS_TLS, ListenerSasl, Mechanism
from .tls import ListenerTls, given

HEALTH_LISTENER = "health"
"""Name of the listener that the operator gives each router for `healthPort`."""
ANY_PEER = "*"
"""In `peerNames`: every certificate of the authorities."""
AnyPeerName = Annotated[str, Field(min_length=1, max_length=256, pattern=ANY_PEER_NAME)]

Role = Literal["normal", "inter-router", "edge", "route-container"]


class Listener(Model):
    """A port on which the router accepts AMQP connections."""

    name: Annotated[str, Field(min_length=1, max_length=24, pattern=DNS_LABEL)]
    """Name of the listener, unique in the Router; also the name of the Service port. `health` is reserved."""

    role: Role = "normal"
    """Who may connect: `normal` clients, `inter-router` (interior routers), `edge` (edge routers),
    `route-container` (brokers)."""

    port: Port
    """TCP port in the pod and on the Service."""

    host: Annotated[str, Field(min_length=1, max_length=253, pattern=NO_NUL)] | None = None
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
    ClusterIP Service; `NodePort` and `LoadBalancer` get a Service of that type in addition, and the installation must
    allow them (`restrictions.allowedExposures` of the chart)."""

    node_port: Port | None = None
    """Fixed node port for `exposure: NodePort` or `LoadBalancer`; chosen by the cluster when absent."""

    service_annotations: (
        Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32)] | None
    ) = None
    """Annotations of the NodePort or LoadBalancer Service, for example for a cloud load balancer. Keys with a domain
    need `restrictions.allowedMetadata` of the chart."""

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

    max_connections: Annotated[int, Field(ge=1, le=2_147_483_647)] | None = None
    """Open connections of the listener at the same time; one more is closed with `amqp:resource-limit-exceeded`. When
    absent 16,384 with role `edge`, 4,096 with role `inter-router`, any number with the other roles, whose connections
    `policy` bounds. With role `inter-router`, one user, or one host without login, has at most as many as are free for
    others, and 64 in any case."""

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
            f"self.name != '{HEALTH_LISTENER}'",
            f"name {HEALTH_LISTENER} is that of the listener for healthPort; use another name",
            ".name",
            lambda self: self.name != HEALTH_LISTENER,
        ),
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
            f"{NO_PLAIN_IN_CLEAR}"
            " || (!has(self.tls) && has(self.role) && self.role in ['inter-router', 'edge'])",
            PLAIN_NEEDS_TLS,
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
