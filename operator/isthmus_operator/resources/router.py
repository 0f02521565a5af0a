"""The `Router` kind: a set of like router replicas."""

from __future__ import annotations

from functools import cache
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from .addresses import PREFIX_OR_PATTERN
from .autolink import Phase
from .base import (
    ListMap,
    Metadata,
    Model,
    Port,
    Rule,
    Text,
)
from .listener import Listener
from .pods import ImageName, PodTemplate, ResourceRequirements
from .policy import RouterPolicy
from .router_status import RouterStatus

Mode = Literal["interior", "edge"]
Distribution = Literal["closest", "balanced", "multicast"]
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


class AddressTreatment(Model):
    """How messages to a range of addresses are distributed."""

    prefix: Text | None = None
    """The address and everything below it (`orders` matches `orders` and `orders/eu`)."""

    pattern: Text | None = None
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
        *PREFIX_OR_PATTERN,
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
    exposure `None` of the namespace. The port for collectors of flow records accepts connections from pods of the
    FlowLogs that use it. The health port accepts connections as the installation says."""

    pod_template: PodTemplate | None = None
    """Merged over the generated pod template: `metadata.labels`, `metadata.annotations` and fields of
    `spec` (`nodeSelector`, `tolerations`, `affinity`, `priorityClassName`, ...). The container is called
    `router`. Fields by which a pod gets further rights are refused unless the installation allows them
    (`restrictions.podTemplate` of the chart); so are labels, annotations and priority classes
    (`restrictions.allowedMetadata`, `restrictions.allowedPriorityClasses`)."""

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
            "!has(self.listeners) || self.listeners.all(l, l.port != self.healthPort)",
            "a listener has the port of healthPort (default: 9090); use another port, or set healthPort",
            ".listeners",
            lambda self: all(listener.port != self.health_port for listener in self.listeners or []),
        ),
        Rule(
            "self.healthPort != 0 && (has(self.listeners) || !(self.healthPort in [5672, 45672, 55672]))",
            "healthPort is the port of a listener that Routers have by default",
            ".healthPort",
            lambda self: (
                self.listeners is not None
                or all(listener.port != self.health_port for listener in self.effective_listeners())
            ),
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
        return self.listeners if self.listeners is not None else list(_default_listeners(self.mode))


@cache
def _default_listeners(mode: str) -> tuple[Listener, ...]:
    """Of Routers that state none."""
    normal = Listener(name="amqp", role="normal", port=5672)
    if mode != "interior":
        return (normal,)
    inter_router = Listener(name="inter-router", role="inter-router", port=55672)
    return normal, inter_router, Listener(name="edge", role="edge", port=45672)


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
