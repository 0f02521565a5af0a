"""The `GossipRouter` kind: processes that tell members of groups who else there is, and carry messages between them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from .base import Condition, ListMap, Metadata, Model, NodePort, Port, Rule
from .pods import ImageName, PodTemplate, ResourceRequirements
from .tls import MembersTls


class GossipRouterSpec(Model):
    """Desired state of a set of gossip routers."""

    replicas: Annotated[int, Field(ge=0, le=8)] = 2
    """Number of gossip routers. Each knows the members by itself; members register with all of them, so one that is
    lost is not missed."""

    port: Port = 12001
    """Port for members."""

    health_port: Port = 9090
    """Port of `/healthz`, `/readyz`, `/status` and `/metrics`."""

    tls: MembersTls | None = None
    """Transport security. When absent, members and gossip routers show each other certificates of the namespace's own
    authority."""

    expiry_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """A member that is silent for so long is forgotten."""

    expose: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """How it is reached: by a headless Service, whose name stands for all replicas, or in addition from outside by a
    Service `<name>-gossip-exposed` of type `NodePort` or `LoadBalancer`, which picks one for each connection. The
    installation must allow these (`restrictions.allowedExposures` of the chart)."""

    node_port: NodePort | None = None
    """Fixed node port with `expose` `NodePort` or `LoadBalancer`; chosen by the cluster when absent."""

    service_annotations: (
        Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32)] | None
    ) = None
    """Annotations of the NodePort or LoadBalancer Service. Keys with a domain need
    `restrictions.allowedMetadata` of the chart."""

    network_policy: Literal["Disabled", "Ingress"] = "Ingress"
    """`Ingress` makes a NetworkPolicy that admits routers to the port for members: of the namespace where the
    certificates are of its own authority, else of any namespace, or with `expose` other than `ClusterIP` anybody. The
    health port accepts connections as the installation says."""

    image: ImageName | None = None
    """Image in place of the operator's default for routers."""

    resources: ResourceRequirements | None = None
    """Compute resources of the container."""

    pod_template: PodTemplate | None = None
    """Merged over the generated pod template, as that of a Router. The container is called `gossip-router`."""

    rules: ClassVar = (
        Rule(
            "self.port != self.healthPort",
            "healthPort must not be port",
            ".healthPort",
            lambda self: self.port != self.health_port,
        ),
        Rule(
            "!has(self.nodePort) || (has(self.expose) && self.expose in ['NodePort', 'LoadBalancer'])",
            "nodePort needs expose NodePort or LoadBalancer",
            ".nodePort",
            lambda self: self.node_port is None or self.expose != "ClusterIP",
        ),
        Rule(
            "!has(self.serviceAnnotations) || (has(self.expose) && self.expose in ['NodePort', 'LoadBalancer'])",
            "serviceAnnotations needs expose NodePort or LoadBalancer",
            ".serviceAnnotations",
            lambda self: self.service_annotations is None or self.expose != "ClusterIP",
        ),
    )


class GossipRouterStatus(Model):
    """Observed state of a set of gossip routers."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The generation of the specification this status is about."""

    conditions: Annotated[list[Condition], Field(max_length=16), ListMap("type")] | None = None
    """`Configured` (its references resolve and its objects are as they should be), `Available` (all replicas are
    ready), `Ready` (both), `Insecure` (it accepts clear text, or members that do not authenticate)."""

    replicas: Annotated[int, Field(ge=0)] = 0
    """Pods there are."""

    ready_replicas: Annotated[int, Field(ge=0)] = 0
    """Pods that are ready."""

    selector: Annotated[str, Field(max_length=256)] | None = None
    """Label selector of the pods."""

    endpoint: Annotated[str, Field(max_length=262)] | None = None
    """Where members in the cluster reach it: `host:port`."""


class GossipRouter(Model):
    """Gossip routers: members of RelaySites that cannot find or reach each other otherwise do it through them."""

    kind_name: ClassVar = "GossipRouter"

    metadata: Metadata
    spec: GossipRouterSpec
    """Desired state."""

    status: GossipRouterStatus | None = None
    """Observed state, written by the operator only."""

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def own_tls(self) -> bool:
        """It uses certificates of the namespace's own authority."""
        return self.spec.tls is None
