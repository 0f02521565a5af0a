"""Status of the Router kind."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .base import Condition, ListMap, Model, Port

MAX_INSTANCE_STATUSES = 250
"""A Router has at most 200 replicas, and a quarter more during a rolling update."""


class UplinkStatus(Model):
    """An open connection of an edge router to an interior one."""

    connector: Annotated[str, Field(max_length=253)]
    """Name of the Connector."""

    router: Annotated[str, Field(max_length=253)]
    """Id of the interior router at the other end."""

    ordinal: Annotated[int, Field(ge=0)] | None = None
    """Ordinal of the TLS credentials it was opened with; absent without TLS."""


class RouterInstanceStatus(Model):
    """What one router says of itself."""

    id: Annotated[str, Field(max_length=253)]
    """Router id, which is also the pod's name."""

    ready: bool
    """The router answers and is ready to route."""

    version: Annotated[str, Field(max_length=64)] | None = None
    """Version of the router program."""

    neighbors: (
        Annotated[
            list[Annotated[str, Field(max_length=253)]],
            Field(max_length=512),
        ]
        | None
    ) = None
    """Ids of the routers it has a direct link with."""

    uplink: UplinkStatus | None = None
    """Of an edge router: the uplink in use."""

    standbys: Annotated[list[UplinkStatus], Field(max_length=16)] | None = None
    """Of an edge router: the uplinks in reserve, the one that follows first."""

    proxied_addresses: Annotated[int, Field(ge=0)] | None = None
    """Of an edge router: addresses used by its clients and so made known to the interior."""

    policy_denials: Annotated[int, Field(ge=0)] | None = None
    """How often its policy has refused something since its start."""

    message: Annotated[str, Field(max_length=1024)] | None = None
    """What is wrong with it, if anything."""


class Endpoint(Model):
    """Where a listener is reached."""

    listener: Annotated[str, Field(max_length=63)]
    """Name of the listener."""

    host: Annotated[str, Field(max_length=253)]
    """Host name, or the address of the load balancer."""

    port: Port
    """Port at `host`."""

    exposure: Annotated[str, Field(max_length=32)]
    """Kind of the Service: ClusterIP, NodePort (`host` is then any node) or LoadBalancer."""


class RouterStatus(Model):
    """Observed state of a Router, from Kubernetes and from the routers themselves."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The generation of the specification this status is about."""

    conditions: Annotated[list[Condition], Field(max_length=16), ListMap("type")] | None = None
    """`Configured` (the routers run this specification), `Available` (all replicas are ready), `Meshed`
    (interior: all replicas reach each other; edge: every replica has its uplink), `Ready` (all of these),
    `Insecure` (some listener accepts clear text, peers that do not authenticate, or every certificate as a router)."""

    replicas: Annotated[int, Field(ge=0)] = 0
    """Pods that exist."""

    ready_replicas: Annotated[int, Field(ge=0)] = 0
    """Pods that are ready."""

    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of the pods, for the scale subresource."""

    neighbors: Annotated[int, Field(ge=0)] = 0
    """Number of routers outside this Router that its replicas have a direct link with."""

    instances: (
        Annotated[list[RouterInstanceStatus], Field(max_length=MAX_INSTANCE_STATUSES), ListMap("id")] | None
    ) = None
    """What each router says of itself."""

    endpoints: Annotated[list[Endpoint], Field(max_length=64)] | None = None
    """Where the listeners are reached."""

    operator_version: Annotated[str, Field(max_length=64)] | None = None
    """Version of the operator that reconciled last."""
