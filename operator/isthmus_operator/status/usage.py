"""What is known of an SslProfile, and who uses which ordinal of it, from the plan and from what pods report.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ..model import NamespaceModel, Problem
from ..render import ConnectorInstance, InstanceTarget, RouterInstance, collector_tls, gossip_tls
from ..report import RouterReport
from ..resources import FlowLog, GossipRouter, SslProfile
from ..rotation import Change, Ledger, Refusal, Seen
from ..untrusted import MAX_NUMBER
from .certificate_user import CertificateUser
from .inputs import PodView, RouterFacts

_ROUTER_ROLES = frozenset({"inter-router", "edge"})
MESH = "mesh"
"""Stands for the connectors between the replicas of a Router."""

Dial = Callable[[RouterInstance, InstanceTarget], str]
"""Name by which a router reaches another."""


@dataclass(frozen=True)
class PodUsage:
    """The use that one router makes of a profile."""

    pod: str
    router: str
    listeners: tuple[str, ...]
    connectors: tuple[str, ...]
    """By Connector, or `MESH`."""
    connections: Mapping[int, int]
    """Ordinal to number of open connections."""
    behind: tuple[str, ...] = ()
    """What does not use the newest ordinal yet, and why: sentences that begin with the pod."""
    served: bool = True
    """Its listeners present the certificate of the newest ordinal."""


@dataclass(frozen=True)
class Usage:
    """The use that all pods make of a profile."""

    pods: tuple[PodUsage, ...] = ()
    behind: tuple[str, ...] = field(default=())
    """What does not use the newest ordinal yet."""
    unheard: bool = False
    """Some pod has yet to be asked for the first time."""
    hosts: tuple[str, ...] = ()
    """Names by which connectors of routers reach the listeners that present the certificate, and verify it."""
    relay_sites: tuple[str, ...] = ()
    gossip_routers: tuple[str, ...] = ()
    """RelaySites and GossipRouters that name the profile."""

    @property
    def served(self) -> bool:
        """All listeners present the certificate of the newest ordinal."""
        return all(pod.served for pod in self.pods)

    @property
    def connections(self) -> Mapping[int, int]:
        """Ordinal to number of open connections."""
        total: Counter[int] = Counter()
        for pod in self.pods:
            total.update(pod.connections)
        return {ordinal: min(number, MAX_NUMBER) for ordinal, number in sorted(total.items())}

    def seen(self, ordinal: int) -> Seen | None:
        """What decisions about the newest `ordinal` depend on; None while not all have been asked."""
        return None if self.unheard else Seen(ordinal, self.served, not self.behind)


@dataclass(frozen=True)
class ProfileFacts:
    """Everything known about one SslProfile at one moment."""

    profile: SslProfile
    ledger: Ledger | None
    """As it is written."""
    refusal: Refusal | None = None
    """Why what the Secret offers is not in service."""
    problem: Problem | None = None
    """Why the ledger could not be written."""
    usage: Usage = field(default_factory=Usage)
    due: datetime | None = None
    """When something will be to do, if nothing else happens."""
    changes: tuple[Change, ...] = ()
    """What was written since the last look."""


class Users:
    """Who uses which SslProfile, found in one pass over everything that was rendered."""

    def __init__(
        self, model: NamespaceModel, plan: Mapping[str, tuple[RouterInstance, ...]], dial: Dial
    ) -> None:
        """`plan`: Router to its instances."""
        routers: dict[str, dict[str, None]] = {}
        hosts: dict[str, dict[str, None]] = {}
        for router, instances in plan.items():
            for profile in instances[0].sections_of_profiles if instances else ():
                routers.setdefault(profile, {})[router] = None
        # All replicas of a Router have the same listeners, those of an edge Router also the same connectors.
        presented: dict[tuple[str, str], set[str]] = {}
        for instances in plan.values():
            for instance in instances[:1] if instances and instances[0].mode == "edge" else instances:
                for connector in instance.connectors:
                    target = connector.target
                    if not isinstance(target, InstanceTarget) or not connector.attributes.get(
                        "verifyHostname"
                    ):
                        continue
                    peers = plan.get(target.router, ())
                    if target.ordinal >= len(peers):
                        continue
                    key = (target.router, target.listener)
                    if key not in presented:
                        presented[key] = _presented(peers[target.ordinal], target.listener)
                    for profile in presented[key]:
                        hosts.setdefault(profile, {})[dial(instance, target)] = None
        sites: dict[str, list[str]] = {}
        for name, site in model.relay_sites.items():
            used = (site.spec.tls, site.spec.bridge.tls, site.spec.discovery.gossip_tls)
            for profile in {tls.ssl_profile for tls in used if tls is not None and tls.ssl_profile}:
                sites.setdefault(profile, []).append(name)
        gossip: dict[str, list[str]] = {}
        for name, item in model.gossip_routers.items():
            tls = gossip_tls(item, model)
            if tls is not None and tls.ssl_profile is not None:
                gossip.setdefault(tls.ssl_profile, []).append(name)
        logs: dict[str, list[str]] = {}
        for name, log in model.flow_logs.items():
            credentials = collector_tls(log)
            if credentials is not None and credentials.ssl_profile is not None:
                logs.setdefault(credentials.ssl_profile, []).append(name)
        self.routers = {profile: tuple(names) for profile, names in routers.items()}
        self.hosts = {profile: tuple(names) for profile, names in hosts.items()}
        self.relay_sites = {profile: tuple(names) for profile, names in sites.items()}
        self.gossip_routers = {profile: tuple(names) for profile, names in gossip.items()}
        self.flow_logs = {profile: tuple(names) for profile, names in logs.items()}

    def others(self, profile: str) -> set[tuple[str, str]]:
        """Kind and name of what uses `profile` without being a Router."""
        found = {(GossipRouter.kind_name, name) for name in self.gossip_routers.get(profile, ())}
        return found | {(FlowLog.kind_name, name) for name in self.flow_logs.get(profile, ())}


def _presented(instance: RouterInstance, listener: str) -> set[str]:
    """The SslProfiles whose certificate the listener presents."""
    sections = {item.tls for item in instance.listeners if item.name == listener}
    return {item.resource for item in instance.tls if item.resource is not None and item.name in sections}


def usage(
    profile: str,
    ordinal: int,
    facts: Mapping[str, RouterFacts],
    users: Users,
    others: Iterable[CertificateUser],
) -> Usage:
    """The use of `profile`, whose newest ordinal is `ordinal`. `others` are all GossipRouters and FlowLogs; what is
    delivered to them is of that ordinal."""
    pods: list[PodUsage] = []
    behind: list[str] = []
    unheard = False
    for item in (facts[name] for name in users.routers.get(profile, ()) if name in facts):
        unheard = unheard or item.unheard
        if item.router.metadata.paused:
            behind.append(f"reconciliation of Router {item.router.name} is paused")
        for pod in item.serving:
            instance = _instance(item, pod)
            if instance is not None and profile in instance.sections_of_profiles:
                pods.append(_pod_usage(profile, ordinal, item, pod, instance))
    behind += [text for pod in pods for text in pod.behind]
    named = users.others(profile)
    for other in others:
        resource = other.resource
        if (resource.kind_name, resource.name) not in named:
            continue
        unheard = unheard or other.unheard
        if resource.metadata.paused:
            behind.append(f"reconciliation of {resource.kind_name} {resource.name} is paused")
        behind += other.outdated
    return Usage(
        tuple(pods),
        tuple(behind),
        unheard,
        users.hosts.get(profile, ()),
        users.relay_sites.get(profile, ()),
        users.gossip_routers.get(profile, ()),
    )


def _instance(facts: RouterFacts, pod: PodView) -> RouterInstance | None:
    """What `pod` runs; the replicas of an edge Router are alike."""
    if facts.router.spec.mode == "edge":
        return facts.instances[0]
    return facts.by_id.get(pod.name)


def _pod_usage(
    profile: str, ordinal: int, facts: RouterFacts, pod: PodView, instance: RouterInstance
) -> PodUsage:
    sections = instance.sections_of_profiles[profile]
    listeners = [item for name in sections for item in instance.listeners_by_section.get(name, ())]
    connectors = [item for name in sections for item in instance.connectors_by_section.get(name, ())]
    report, served = facts.report(pod), not listeners
    if report is None:
        behind = [facts.silence(pod)]
    else:
        presented = {item.tls for item in listeners if item.tls is not None}
        served = not listeners or _taken_over(facts, report, presented, ordinal)
        behind = [f"{pod.name}: {text}" for text in _behind(report, connectors, ordinal)]
        if not served or not (behind or _taken_over(facts, report, sections, ordinal)):
            behind = [f"{pod.name}: {report.config_error or f'has not loaded ordinal {ordinal} yet'}"]
    return PodUsage(
        pod.name,
        facts.router.name,
        tuple(item.name for item in listeners),
        tuple(dict.fromkeys(item.resource or MESH for item in connectors)),
        _connections(report, sections, connectors) if report is not None else {},
        tuple(behind),
        served,
    )


def _behind(report: RouterReport, connectors: Iterable[ConnectorInstance], ordinal: int) -> list[str]:
    """Why connections of routers do not use `ordinal` yet."""
    out = []
    for item in connectors:
        state = report.connectors.get(item.name)
        where = f'connector "{item.name}"'
        if item.role not in _ROUTER_ROLES:
            continue
        if state is None or (state.state != "open" and not state.message):
            out.append(f"{where} is not open")
        elif state.state != "open":
            out.append(f"{where}: {state.message}")
        elif state.ordinal is None or state.ordinal < ordinal:
            used = "an older ordinal" if state.ordinal is None else f"ordinal {state.ordinal}"
            out.append(f"{where} uses {used}" + (f": {state.message}" if state.message else ""))
    return out


def _taken_over(facts: RouterFacts, report: RouterReport, sections: Iterable[str], ordinal: int) -> bool:
    """Whether the router has read these sections with `ordinal`."""
    known = report.profiles
    if known:
        return all(name in known and known[name].ordinal >= ordinal for name in sections)
    return facts.rendered is not None and report.config_hash == facts.rendered.expected_hash(report.id)


def _connections(
    report: RouterReport, sections: Iterable[str], connectors: Iterable[ConnectorInstance]
) -> Mapping[int, int]:
    total: Counter[int] = Counter()
    for name in sections:
        if name in report.profiles:
            total.update(report.profiles[name].connections)
    if not report.profiles:
        states = (report.connectors.get(item.name) for item in connectors)
        total.update(
            item.ordinal for item in states if item is not None and item.state == "open" and item.ordinal
        )
    return {ordinal: min(number, MAX_NUMBER) for ordinal, number in sorted(total.items()) if number}
