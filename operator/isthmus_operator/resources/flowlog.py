"""The `FlowLog` kind: a collector that keeps what the routers of a network tell of what flows through them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from .base import Condition, ListMap, Metadata, Model, ObjectName, Port, Rule, SecretName, Time
from .connector import ToRouterRef
from .pods import ImageName, PodTemplate, Quantity, ResourceRequirements
from .sasl import NO_PLAIN_IN_CLEAR, PLAIN_NEEDS_TLS, ConnectorSasl
from .tls import ConnectorTls, given

Glob = Annotated[str, Field(min_length=1, max_length=256)]
S3_URL = r"^s3a://[a-z0-9][-a-z0-9.]{1,61}[a-z0-9](/[^/?#$\\\x00-\x1f\x7f]+)*$"
HTTP_URL = r"^https?://[^/?#@$\\\x00-\x20\x7f]+$"


class RouterFilter(Model):
    """Which routers of the network are collected from, by their ids; `*` is any text, `?` any character."""

    include: Annotated[list[Glob], Field(min_length=1, max_length=64)] | None = None
    """Ids; all when absent."""

    exclude: Annotated[list[Glob], Field(max_length=64)] | None = None
    """Of these, ids that are left out."""


class FlowVolume(Model):
    """A folder on a volume: of a claim that is there, or of one that the operator makes."""

    claim_name: ObjectName | None = None
    """PersistentVolumeClaim of the same namespace. The installation must allow it (`restrictions.allowedClaims` of the
    chart)."""

    size: Quantity | None = None
    """Storage that a claim `<name>-flowlog` asks for. It stays when the FlowLog is deleted, with the log in it."""

    storage_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Of the claim that is made; the cluster's default when absent."""

    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = "ReadWriteMany"
    """Of the claim. With `ReadWriteOnce` all pods of analyses run on the collector's node; say so of a claim of that
    mode that is there, too."""

    rules: ClassVar = (
        Rule(
            "has(self.claimName) != has(self.size)",
            "exactly one of volume.claimName and volume.size must be set",
            ".claimName",
            lambda self: (self.claim_name is None) != (self.size is None),
        ),
        Rule(
            "has(self.size) || !has(self.storageClassName)",
            "volume.storageClassName needs volume.size",
            ".storageClassName",
            lambda self: self.size is not None or self.storage_class_name is None,
        ),
    )


class FlowBucket(Model):
    """A bucket of an object store that speaks S3."""

    url: Annotated[str, Field(max_length=1024, pattern=S3_URL)]
    """`s3a://bucket/prefix`; the log is below it."""

    endpoint: Annotated[str, Field(max_length=512, pattern=HTTP_URL)] | None = None
    """URL of the store, `https://host:port`. With `http://`, records pass in clear text. Default: the store of Amazon
    in the region."""

    region: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")] | None = None
    """Region of the bucket."""

    secret_name: SecretName | None = None
    """Secret with `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`. When absent, the pods use the identity that the
    cloud gives to them or to their node, if the installation allows it (`restrictions.cloudIdentity` of the chart)."""


class Rotation(Model):
    """When a file is complete and can be read."""

    seconds: Annotated[int, Field(ge=5, le=3600)] = 300
    """After so long, at the latest."""

    rows: Annotated[int, Field(ge=1000, le=10_000_000)] = 262_144
    """With so many rows."""


class FlowLogSpec(Model):
    """What is collected, and where it is kept."""

    router_ref: ToRouterRef
    """The Router of the same namespace that the collector connects to. It receives the flow records of all routers of
    that network. Without `listener`, `tls` and `sasl` the Router gets a listener of its own for the collectors of
    FlowLogs, which accepts their certificates and no others. With one of the three the collector uses the named
    listener, or the first one of role `normal` that fits `tls`. All clients of that listener may then receive the flow
    records of the network; the condition `Insecure` reports clients that do not authenticate."""

    routers: RouterFilter | None = None
    """Which routers are collected from; all of the network when absent."""

    tls: ConnectorTls | None = None
    """Transport security of the connection to the router. When absent: mutual TLS with a certificate of the namespace's
    own authority, or clear text if `sasl` or `routerRef.listener` is set."""

    sasl: ConnectorSasl | None = None
    """Authentication there. When absent `EXTERNAL` if the collector has a certificate, else `ANONYMOUS`."""

    volume: FlowVolume | None = None
    """The log is on a volume."""

    s3: FlowBucket | None = None
    """The log is in an object store."""

    rotation: Rotation | None = None
    """When files are complete."""

    retention_days: Annotated[int, Field(ge=1, le=3650)] = 30
    """Days after which the collector deletes records."""

    health_port: Port = 9090
    """Port of `/healthz`, `/readyz`, `/status` and `/metrics`."""

    image: ImageName | None = None
    """Image in place of the operator's default for collectors."""

    resources: ResourceRequirements | None = None
    """Compute resources of the container."""

    pod_template: PodTemplate | None = None
    """Merged over the generated pod template, as that of a Router. The container is called `collector`."""

    rules: ClassVar = (
        Rule(
            "has(self.volume) != has(self.s3)",
            "exactly one of volume and s3 must be set",
            ".volume",
            lambda self: (self.volume is None) != (self.s3 is None),
        ),
        Rule(
            NO_PLAIN_IN_CLEAR,
            PLAIN_NEEDS_TLS,
            ".sasl.allowPlainWithoutTls",
            lambda self: self.sasl is None or not self.sasl.needs_tls or given(self.tls) is not None,
        ),
    )


class FlowLogStatus(Model):
    """Observed state of a flow log."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The generation of the specification this status is about."""

    conditions: Annotated[list[Condition], Field(max_length=16), ListMap("type")] | None = None
    """`Configured` (its references resolve and its objects are as they should be), `Available` (the collector runs),
    `Collecting` (it is connected and what it hears is kept), `Ready` (all of these), `Insecure` (clients that do not
    authenticate may receive flow records, or the collector uses clear text, or accepts every server that its
    authorities certify)."""

    location: Annotated[str, Field(max_length=1100)] | None = None
    """Where the log is: `pvc:<claim>` or the URL."""

    routers: Annotated[int, Field(ge=0)] = 0
    """Routers that are heard."""

    rows_written: Annotated[int, Field(ge=0)] = 0
    """By the present collector, since it started."""

    last_written_at: Time | None = None
    """When it has completed a file last."""

    messages_missed: Annotated[int, Field(ge=0)] = 0
    """Messages of routers that it has not had; routers tell again what was in them, as far as they still know."""


class FlowLog(Model):
    """A flow log: what flows through a network of routers, collected and kept as Parquet files."""

    kind_name: ClassVar = "FlowLog"

    metadata: Metadata
    spec: FlowLogSpec
    """Desired state."""

    status: FlowLogStatus | None = None
    """Observed state, written by the operator only."""

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def own_tls(self) -> bool:
        """The collector has a certificate of the namespace's own authority, and its Router a listener for it."""
        spec = self.spec
        return spec.tls is None and spec.sasl is None and spec.router_ref.listener is None

    @property
    def uses_cloud_identity(self) -> bool:
        """Pods have no keys of the object store, and use the identity that the cloud gives to them or their node."""
        return self.spec.s3 is not None and self.spec.s3.secret_name is None
