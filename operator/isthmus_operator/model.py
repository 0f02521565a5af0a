"""Everything in one namespace that rendering depends on, in memory and immutable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from .admitted_sites import admitted_sites
from .authority import Authority, Own, own_profiles, router_profile
from .names import Hints, no_room, not_allowed, reserved
from .resources import (
    Connector,
    FlowAnalysis,
    FlowLog,
    GossipRouter,
    InvalidResourceError,
    LinkRoute,
    RelaySite,
    Resource,
    Router,
    SslProfile,
    parse,
)
from .rotation.ledger import Ledger
from .seniority import Claim, Owner, juniors


@dataclass(frozen=True)
class SecretView:
    """A Secret that resources may refer to. The data never appears in a representation."""

    name: str
    data: Mapping[str, bytes] = field(repr=False)


@dataclass(frozen=True)
class InvalidManifest:
    """A stored resource that this operator's schema refuses, for example one written under an older CRD."""

    kind: str
    name: str
    message: str


@dataclass(frozen=True)
class Problem:
    """An object that could not be brought into its desired state."""

    reason: str
    message: str
    transient: bool


_MODES = {"inter-router": "interior", "edge": "edge"}
"""Role of a Connector to the mode that its Router has to have."""


@dataclass(frozen=True)
class NamespaceModel:
    """The resources of one namespace by name, and the Secrets there."""

    namespace: str
    routers: Mapping[str, Router]
    connectors: Mapping[str, Connector]
    secrets: Mapping[str, SecretView]
    profiles: Mapping[str, SslProfile] = field(default_factory=dict)
    invalid: tuple[InvalidManifest, ...] = ()
    refused_ledgers: Mapping[str, Problem] = field(default_factory=dict)
    """SslProfile to the reason why its ledger cannot be written."""
    withheld: frozenset[str] = frozenset()
    """Names of Secrets that exist, and which resources may not use."""
    too_large: frozenset[str] = frozenset()
    """Names of Secrets for whose content there is no room."""
    reserved: frozenset[str] = frozenset()
    """Names of Secrets of the operator."""
    now: datetime | None = None
    """Certificates must be valid at this time; None leaves their periods of validity out of account."""
    delivered: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict, repr=False)
    """Router to the files that its routers have been given, by file name."""
    ledgers: Mapping[str, Ledger] = field(default_factory=dict, repr=False)
    """SslProfile to its certificates in service; none for one that has none yet."""
    link_routes: Mapping[str, LinkRoute] = field(default_factory=dict)
    relay_sites: Mapping[str, RelaySite] = field(default_factory=dict)
    gossip_routers: Mapping[str, GossipRouter] = field(default_factory=dict)
    flow_logs: Mapping[str, FlowLog] = field(default_factory=dict)
    flow_analyses: Mapping[str, FlowAnalysis] = field(default_factory=dict)
    authority: Authority | None = None
    """The namespace's own certificate authority."""
    authority_problem: str = ""
    """Why there is none."""
    own: Mapping[str, Own] = field(default_factory=dict)
    """The implicit SslProfiles, whose certificates it signs, by name; they are in `profiles` as well."""
    juniors: frozenset[str] = frozenset()
    """Uids of the resources that claim an object or a port which another one of the same second controls."""
    spec_bytes: int = 0
    """Memory of the specifications."""
    hints: Hints = field(default_factory=Hints, compare=False, repr=False)
    """Of the rendering that the model is for."""

    def at(
        self, now: datetime, delivered: Mapping[str, Mapping[str, bytes]] = MappingProxyType({})
    ) -> NamespaceModel:
        """The same resources at a time, beside what was delivered before."""
        return replace(self, now=now, delivered=delivered)

    def without(
        self, withheld: Iterable[str], too_large: Iterable[str] = (), reserved: Iterable[str] = ()
    ) -> NamespaceModel:
        """The same resources, with the names of Secrets that they may not use, of those that have no room, and of
        those of the operator."""
        return replace(
            self,
            withheld=frozenset(withheld),
            too_large=frozenset(too_large),
            reserved=frozenset(reserved),
        )

    def unreadable(self, secret: str) -> tuple[Literal["SecretNotAllowed", "TooLarge"], str] | None:
        """Reason and message, if resources may not use `secret` or there is no room for its content."""
        if secret in self.reserved:
            return "SecretNotAllowed", reserved(secret)
        if secret in self.withheld:
            return "SecretNotAllowed", not_allowed(secret)
        return ("TooLarge", no_room(secret)) if secret in self.too_large else None

    def serving(
        self, ledgers: Mapping[str, Ledger], refused: Mapping[str, Problem] = MappingProxyType({})
    ) -> NamespaceModel:
        """The same resources with these certificates of SslProfiles, and why the ledgers of others are not written."""
        return replace(self, ledgers=ledgers, refused_ledgers=refused)

    def owners(self) -> Iterator[Owner]:
        """The resources for which the operator makes objects."""
        yield from self.routers.values()
        yield from self.gossip_routers.values()
        yield from self.flow_logs.values()
        yield from self.flow_analyses.values()

    def beside(self, controllers: Mapping[Claim, str]) -> NamespaceModel:
        """The same resources beside the existing objects and ports, with the uids of the controllers of these."""
        sites, _ = admitted_sites(self.relay_sites.values(), self.routers)
        return replace(self, juniors=juniors(self.owners(), sites, controllers))

    def with_authority(
        self, authority: Authority | None, problem: str = "", *, local: bool = False
    ) -> NamespaceModel:
        """The same resources with the certificates that `authority` signs, or would if there were one."""
        own = own_profiles(
            self.namespace,
            self.routers.values(),
            self.gossip_routers.values(),
            admitted_sites(self.relay_sites.values(), self.routers)[0],
            self.flow_logs.values(),
            juniors=self.juniors,
            local=local,
        )
        profiles = {**self.profiles, **{name: item.profile for name, item in own.items()}}
        return replace(self, authority=authority, authority_problem=problem, own=own, profiles=profiles)

    @cached_property
    def connectors_to(self) -> Mapping[str, Sequence[Connector]]:
        """Name of a Router to the Connectors that lead to it, without those whose own Router there is not, or may not
        have them."""
        found: dict[str, list[Connector]] = {}
        for item in self.connectors.values():
            source = self.routers.get(item.spec.from_.router_ref.name)
            if item.spec.to.router_ref is None or source is None:
                continue
            if _MODES.get(item.spec.role, source.spec.mode) == source.spec.mode:
                found.setdefault(item.spec.to.router_ref.name, []).append(item)
        return found

    @cached_property
    def router_names(self) -> Mapping[str, str]:
        """Name of a Router to the name in its certificate of the namespace's own authority, without Routers whose name
        there an older resource has."""
        return {
            item.owner.name: item.names.common
            for item in self.own.values()
            if isinstance(item.owner, Router) and item.older is None
        }

    @cached_property
    def flow_logs_of(self) -> Mapping[str, Sequence[FlowLog]]:
        """Name of a Router to the FlowLogs whose collectors connect to it."""
        found: dict[str, list[FlowLog]] = {}
        for item in self.flow_logs.values():
            found.setdefault(item.spec.router_ref.name, []).append(item)
        return found

    @cached_property
    def collectors_of(self) -> Mapping[str, tuple[str, ...]]:
        """Name of a Router to the names of those FlowLogs that use certificates of the namespace's own authority."""
        own = {
            router: tuple(item.name for item in logs if item.own_tls)
            for router, logs in self.flow_logs_of.items()
        }
        return {router: names for router, names in own.items() if names}

    @cached_property
    def relay_sites_of(self) -> Mapping[str, Sequence[RelaySite]]:
        """Name of a Router to the RelaySites that name it."""
        found: dict[str, list[RelaySite]] = {}
        for item in self.relay_sites.values():
            found.setdefault(item.spec.router_ref.name, []).append(item)
        return found

    def has_listeners_with(self, profile: str) -> bool:
        """Whether some listener presents the certificates of the SslProfile `profile`."""
        return profile in self._presented

    @cached_property
    def _presented(self) -> frozenset[str | None]:
        # Each of these FlowLogs makes a listener for collectors at its Router.
        found: set[str | None] = {
            router_profile(log.spec.router_ref.name) for log in self.flow_logs.values() if log.own_tls
        }
        for router in self.routers.values():
            for listener in router.spec.effective_listeners():
                if listener.own_tls:
                    found.add(router_profile(router.name))
                elif listener.tls is not None:
                    found.add(listener.tls.ssl_profile)
        return frozenset(found)

    @classmethod
    def of(
        cls,
        namespace: str,
        resources: Iterable[Resource],
        secrets: Iterable[SecretView] = (),
        invalid: Iterable[InvalidManifest] = (),
    ) -> NamespaceModel:
        """The model of these resources; those being deleted are left out, as their objects go with them."""
        live = [item for item in resources if item.metadata.deletion_timestamp is None]
        routers = {item.name: item for item in live if isinstance(item, Router)}
        connectors = {item.name: item for item in live if isinstance(item, Connector)}
        profiles = {item.name: item for item in live if isinstance(item, SslProfile)}
        relay_sites = {item.name: item for item in live if isinstance(item, RelaySite)}
        gossip_routers = {item.name: item for item in live if isinstance(item, GossipRouter)}
        link_routes = {item.name: item for item in live if isinstance(item, LinkRoute)}
        flow_logs = {item.name: item for item in live if isinstance(item, FlowLog)}
        flow_analyses = {item.name: item for item in live if isinstance(item, FlowAnalysis)}
        return cls(
            namespace,
            MappingProxyType(dict(sorted(routers.items()))),
            MappingProxyType(dict(sorted(connectors.items()))),
            MappingProxyType({secret.name: secret for secret in secrets}),
            MappingProxyType(dict(sorted(profiles.items()))),
            tuple(invalid),
            link_routes=MappingProxyType(dict(sorted(link_routes.items()))),
            relay_sites=MappingProxyType(dict(sorted(relay_sites.items()))),
            gossip_routers=MappingProxyType(dict(sorted(gossip_routers.items()))),
            flow_logs=MappingProxyType(dict(sorted(flow_logs.items()))),
            flow_analyses=MappingProxyType(dict(sorted(flow_analyses.items()))),
        )

    @classmethod
    def from_manifests(
        cls,
        namespace: str,
        manifests: Iterable[Mapping[str, Any]],
        secrets: Iterable[SecretView] = (),
        refused: Iterable[InvalidManifest] = (),
    ) -> NamespaceModel:
        """The model of API objects; those the schema refuses are listed in `invalid`, beside `refused`."""
        resources: list[Resource] = []
        invalid = list(refused)
        for manifest in manifests:
            try:
                resources.append(parse(manifest))
            except InvalidResourceError as error:
                name = str(manifest.get("metadata", {}).get("name", ""))
                invalid.append(InvalidManifest(str(manifest.get("kind")), name, str(error)))
        return cls.of(namespace, resources, secrets, invalid)
