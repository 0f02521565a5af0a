"""The platform-neutral half of rendering: which router processes there are and what each one does.

`plan` turns a model into `RouterInstance`s, one per replica, and findings: what could not be done yet
and why. Nothing here knows addresses, paths or Kubernetes; `config.py` adds those through a resolver.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from ..names import failure, instance_id
from ..resources.autolink import AutoLink
from ..resources.linkroute import Direction
from ..resources.listener import Role
from ..resources.policy import RouterPolicy
from ..resources.relaysite import RelaySiteSpec
from ..resources.router import AddressTreatment, Distribution, LogLevel, Mode

logger = logging.getLogger(__name__)

Value = str | int | bool | Mapping[str, object]
"""Of an attribute in a section of the configuration."""


@dataclass(frozen=True)
class TlsProfile:
    """Key material of one Secret or SslProfile, as files beside the configuration."""

    name: str
    """Name of the `sslProfile` section."""

    files: Mapping[str, str]
    """Secret key (`ca.crt`, `tls.crt`, `tls.key`, and `ca.crl` of an SslProfile) to file name; only keys that the
    Secret has."""

    protocols: str | None = None
    """Allowed TLS versions, space separated."""

    resource: str | None = None
    """Name of its SslProfile."""

    ordinals: tuple[int, int] | None = None
    """Of an SslProfile: the ordinal, and the oldest one that is valid."""

    uid_format: str | None = None
    """Of an SslProfile: how users are named."""


@dataclass(frozen=True)
class ListenerInstance:
    """A listener of one router."""

    name: str
    role: Role
    port: int
    """Port asked for; the resolver decides the one bound."""
    host: str
    attributes: Mapping[str, str | int | bool]
    """All other attributes of the `listener` section."""
    tls: str | None
    """Name of its TlsProfile."""


@dataclass(frozen=True)
class InstanceTarget:
    """A listener of another router of the same model."""

    router: str
    """Name of the Router resource."""
    ordinal: int
    """The replica to prefer."""
    listener: str
    port: int
    """The listener's port as asked for."""
    any_replica: bool
    """Any replica will do, so a load-balanced address is right where there is one."""


@dataclass(frozen=True)
class HostTarget:
    """A host outside the model."""

    host: str
    port: int


@dataclass(frozen=True)
class ConnectorInstance:
    """A connector of one router."""

    name: str
    """The Connector resource's name, with `/2` for its second connection, or `mesh/<id>` for the links between
    interior replicas."""
    role: Role
    target: InstanceTarget | HostTarget
    attributes: Mapping[str, str | int | bool]
    """All other attributes of the `connector` section."""
    resource: str | None = None
    """Name of its Connector; None for the links between interior replicas."""
    tls: str | None = None
    password_file: str | None = None
    """Name of the file that holds the SASL password."""
    auto_links: tuple[AutoLink, ...] = ()


@dataclass(frozen=True)
class LinkRouteInstance:
    """A link route of one router."""

    name: str
    """The LinkRoute's."""
    direction: Direction
    prefix: str | None
    pattern: str | None
    connection: str | None
    """Name of the connector, in the router that has it."""
    container_id: str | None
    add_external_prefix: str | None = None
    del_external_prefix: str | None = None


@dataclass(frozen=True)
class SiteTarget:
    """A RelaySite of the same model, as others reach its bridge."""

    name: str
    router: str
    replicas: int
    port: int


@dataclass(frozen=True)
class GossipTarget:
    """A GossipRouter of the same model."""

    name: str
    replicas: int
    port: int


@dataclass(frozen=True)
class SiteInstance:
    """A RelaySite as the routers of one Router are its members."""

    name: str
    """The RelaySite's."""
    router: str
    domain: str
    """What tells it from another one of the same group and site: `namespace/name`."""
    replicas: int
    spec: RelaySiteSpec
    targets: Mapping[str, SiteTarget]
    """Remote sites that are RelaySites of the same model."""
    gossip: GossipTarget | None
    earlier_discovery: Mapping[str, Any] | None = None
    """Attributes about discovery as the members have them, while the GossipRouter cannot be used."""
    tls: str | None = None
    """Name of the TlsProfile between members; of those towards other sites and gossip routers below."""
    bridge_tls: str | None = None
    gossip_tls: str | None = None
    own_tls: bool = False
    """The certificates between members are those of the namespace's own authority."""
    own_bridges: Mapping[str, str] = field(default_factory=dict)
    """With such certificates between sites: the other sites of the namespace, and the names in their certificates."""
    own_bridge_tls: bool = False
    """The certificates between sites are those of the namespace's own authority."""

    @property
    def discovery(self) -> str:
        """How the members find each other, as `type` of `spec.discovery`."""
        return str((self.earlier_discovery or {}).get("discovery", self.spec.discovery.type))

    @property
    def through_gossip(self) -> bool:
        """The members connect to gossip routers."""
        return self.discovery in {"gossipRouter", "tunnel"}


@dataclass(frozen=True)
class RouterInstance:
    """One router process."""

    id: str
    """Router id: `<router>-<ordinal>`."""
    router: str
    """Name of the Router resource."""
    ordinal: int
    mode: Mode
    site: str | None
    default_distribution: Distribution
    health_port: int
    workers: int
    flow_interval_seconds: int
    """0: no flow records."""
    listeners: tuple[ListenerInstance, ...]
    connectors: tuple[ConnectorInstance, ...]
    addresses: tuple[AddressTreatment, ...]
    policy: RouterPolicy | None
    log: tuple[LogLevel, ...]
    tls: tuple[TlsProfile, ...]
    users_file: str | None
    """Name of the file with the users for password mechanisms."""
    files: Mapping[str, bytes] = field(repr=False)
    """File name to content, to be put into the directory of the configuration: certificates, passwords."""
    link_routes: tuple[LinkRouteInstance, ...] = ()
    relay: SiteInstance | None = None
    """The RelaySite that it is a member of."""
    collectors: tuple[str, ...] = ()
    """Users of the listener for collectors of flow records."""

    @cached_property
    def sections_of_profiles(self) -> Mapping[str, Sequence[str]]:
        """SslProfile to the names of its sections."""
        return _grouped((item.resource, item.name) for item in self.tls)

    @cached_property
    def listeners_by_section(self) -> Mapping[str, Sequence[ListenerInstance]]:
        """Name of an `sslProfile` section to the listeners that use it."""
        return _grouped((item.tls, item) for item in self.listeners)

    @cached_property
    def connectors_by_section(self) -> Mapping[str, Sequence[ConnectorInstance]]:
        """Name of an `sslProfile` section to the connectors that use it."""
        return _grouped((item.tls, item) for item in self.connectors)


@dataclass(frozen=True)
class Finding:
    """Something about a resource that is not as it should be, for its `Configured` condition."""

    kind: str
    name: str
    reason: str
    message: str
    blocking: bool = False
    """The resource's objects must not be made or changed because of it."""
    in_effect: bool = False
    """What it is about runs all the same, with what was delivered before."""

    @classmethod
    def failed(cls, kind: str, name: str, error: Exception) -> Finding:
        """An error that nothing expects; the objects of the resource stay as they are. Logs it."""
        logger.error("%s %s cannot be rendered", kind, name, exc_info=error)
        return cls(kind, name, "ApplyFailed", failure(error), blocking=True)


@dataclass(frozen=True)
class Plan:
    """The instances of every Router, and the findings, both in a stable order."""

    instances: Mapping[str, tuple[RouterInstance, ...]]
    findings: tuple[Finding, ...]
    expiries: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    """Router and Secret to the end of validity of the certificate that is delivered."""
    link_routes: Mapping[str, Mapping[str, LinkRouteInstance]] = field(default_factory=dict)
    """LinkRoute and Router to the section there."""

    relay_sites: Mapping[str, SiteInstance] = field(default_factory=dict)
    """By the name of the RelaySite, those that are in effect."""

    def findings_of(self, kind: str, name: str) -> Sequence[Finding]:
        return self._grouped.get((kind, name), ())

    @cached_property
    def _grouped(self) -> Mapping[tuple[str, str], Sequence[Finding]]:
        return _grouped(((item.kind, item.name), item) for item in self.findings)


_Key = TypeVar("_Key")
_Item = TypeVar("_Item")


def _grouped(items: Iterable[tuple[_Key | None, _Item]]) -> Mapping[_Key, Sequence[_Item]]:
    """The second values by the first ones; those with None are left out."""
    found: dict[_Key, list[_Item]] = {}
    for key, item in items:
        if key is not None:
            found.setdefault(key, []).append(item)
    return found


def mesh_connector_name(router: str, ordinal: int) -> str:
    """Name of the connector to a fellow replica. A resource's name has no slash, so they never clash."""
    return f"mesh/{instance_id(router, ordinal)}"
