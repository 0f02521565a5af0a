"""The table of kinds: names, printer columns and subresources of each CustomResourceDefinition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .base import GROUP, Model
from .connector import Connector
from .flowanalysis import FlowAnalysis
from .flowlog import FlowLog
from .gossiprouter import GossipRouter
from .linkroute import LinkRoute
from .relaysite import RelaySite
from .router import Router
from .sslprofile import SslProfile


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; `wide` ones only with `-o wide`."""

    name: str
    json_path: str
    type: str = "string"
    wide: bool = False
    description: str = ""


@dataclass(frozen=True)
class Kind:
    """One kind of resource."""

    model: type[Model]
    kind: str
    plural: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    scale: dict[str, str] | None = None
    selectable: tuple[str, ...] = ()

    @property
    def crd_name(self) -> str:
        return f"{self.plural}.{GROUP}"


def _condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


_READY = Column("Ready", _condition("Ready", "status"), description="Whether all is well.")
_REASON = Column("Reason", _condition("Ready", "reason"), description="Why, in a word.")
_MESSAGE = Column("Message", _condition("Ready", "message"), wide=True, description="Why, in a sentence.")
_INSECURE = Column(
    "Insecure",
    _condition("Insecure", "status"),
    description="Whether clear text or anonymous peers are accepted.",
)
_AGE = Column("Age", ".metadata.creationTimestamp", type="date")

KINDS: tuple[Kind, ...] = (
    Kind(
        model=Router,
        kind="Router",
        plural="routers",
        short_names=("rtr",),
        columns=(
            _READY,
            _REASON,
            Column("Mode", ".spec.mode"),
            Column("Replicas", ".spec.replicas", type="integer", description="Routers wanted."),
            Column("Up", ".status.readyReplicas", type="integer", description="Routers ready."),
            Column(
                "Neighbors", ".status.neighbors", type="integer", description="Routers linked from outside."
            ),
            _INSECURE,
            Column("Site", ".spec.site", wide=True),
            _MESSAGE,
            _AGE,
        ),
        scale={
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
        selectable=(".spec.mode",),
    ),
    Kind(
        model=Connector,
        kind="Connector",
        plural="connectors",
        short_names=("conn",),
        columns=(
            _READY,
            _REASON,
            Column("From", ".spec.from.routerRef.name"),
            Column("To", ".status.destination"),
            Column("Role", ".spec.role"),
            Column("Cost", ".spec.cost", type="integer"),
            Column("Open", ".status.openConnections", type="integer", description="Connections open."),
            Column(
                "Wanted", ".status.connections", type="integer", wide=True, description="Connections wanted."
            ),
            _INSECURE,
            _MESSAGE,
            _AGE,
        ),
        selectable=(".spec.role", ".spec.from.routerRef.name"),
    ),
    Kind(
        model=LinkRoute,
        kind="LinkRoute",
        plural="linkroutes",
        short_names=("lr",),
        columns=(
            _READY,
            _REASON,
            Column("Addresses", ".status.addresses", description="Prefix or pattern."),
            Column("Direction", ".spec.direction"),
            Column("Connector", ".spec.connector", wide=True),
            Column("Container", ".spec.containerId", wide=True),
            Column(
                "Destinations",
                ".status.activeDestinations",
                type="integer",
                description="Containers that take its links.",
            ),
            Column("Links", ".status.attachedLinks", type="integer", description="Links attached."),
            Column("Refusals", ".status.refusals", type="integer", wide=True, description="Links refused."),
            _MESSAGE,
            _AGE,
        ),
        selectable=(".spec.connector",),
    ),
    Kind(
        model=RelaySite,
        kind="RelaySite",
        plural="relaysites",
        short_names=("rsite",),
        columns=(
            _READY,
            _REASON,
            Column("Group", ".spec.group"),
            Column("Site", ".spec.site"),
            Column("Coordinator", ".status.coordinator"),
            Column("Members", ".status.formed", description="Members of the view, of those wanted."),
            Column("Remotes", ".status.remotes", description="Remote sites and their state."),
            Column(
                "Lag",
                ".status.lagMessages",
                type="integer",
                description="Messages not acknowledged by the remote site that is most behind.",
            ),
            _INSECURE,
            Column("Router", ".spec.routerRef.name", wide=True),
            Column("Bridge", ".status.bridge", wide=True, description="Where other sites reach it."),
            _MESSAGE,
            _AGE,
        ),
        selectable=(".spec.group", ".spec.routerRef.name"),
    ),
    Kind(
        model=GossipRouter,
        kind="GossipRouter",
        plural="gossiprouters",
        short_names=("gossip",),
        columns=(
            _READY,
            _REASON,
            Column("Replicas", ".spec.replicas", type="integer", description="Gossip routers wanted."),
            Column("Up", ".status.readyReplicas", type="integer", description="Gossip routers ready."),
            Column("Endpoint", ".status.endpoint", description="Where members reach it."),
            _INSECURE,
            _MESSAGE,
            _AGE,
        ),
        scale={
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    ),
    Kind(
        model=SslProfile,
        kind="SslProfile",
        plural="sslprofiles",
        short_names=("sslp",),
        columns=(
            _READY,
            _REASON,
            Column("Ordinal", ".status.ordinal", type="integer", description="For new connections."),
            Column(
                "Oldest", ".status.oldestValidOrdinal", type="integer", description="Oldest valid ordinal."
            ),
            Column(
                "Rotating", _condition("Rotating", "status"), description="Not all use the newest ordinal."
            ),
            Column(
                "Connections",
                ".status.connections",
                type="integer",
                description="Of listeners and connectors; those of RelaySites and GossipRouters are not counted.",
            ),
            Column("Expires", ".status.notAfter", description="When the certificate expires."),
            Column("Secret", ".spec.secretName", wide=True),
            Column("Rotation", _condition("Rotating", "message"), wide=True),
            _MESSAGE,
            _AGE,
        ),
        selectable=(".spec.secretName",),
    ),
    Kind(
        model=FlowLog,
        kind="FlowLog",
        plural="flowlogs",
        short_names=("flog",),
        columns=(
            _READY,
            _REASON,
            Column("Router", ".spec.routerRef.name", description="Router that the collector connects to."),
            Column("Routers", ".status.routers", type="integer", description="Routers that are heard."),
            Column("Rows", ".status.rowsWritten", type="integer", description="Written by the collector."),
            Column("Written", ".status.lastWrittenAt", type="date", description="Since the last file."),
            _INSECURE,
            Column("Location", ".status.location", wide=True),
            _MESSAGE,
            _AGE,
        ),
        selectable=(".spec.routerRef.name",),
    ),
    Kind(
        model=FlowAnalysis,
        kind="FlowAnalysis",
        plural="flowanalyses",
        short_names=("fan",),
        columns=(
            _READY,
            _REASON,
            Column("State", ".status.state", description="Of the newest run."),
            Column("Done", ".status.percent", type="integer", description="Tasks done, in percent."),
            Column("Log", ".spec.flowLogRef.name"),
            Column("Schedule", ".spec.schedule"),
            Column("Last", ".status.lastRunAt", type="date", description="Since the newest run began."),
            Column("Headline", ".status.headline", description="What it has found, or why it failed."),
            Column("Report", ".status.report", wide=True),
            _MESSAGE,
            _AGE,
        ),
        selectable=(".spec.flowLogRef.name",),
    ),
)

RESOURCE_KINDS = tuple(item.kind for item in KINDS)


def column_manifest(column: Column) -> dict[str, Any]:
    """`column` as in a CustomResourceDefinition."""
    manifest: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    if column.description:
        manifest["description"] = column.description
    if column.wide:
        manifest["priority"] = 1
    return manifest
