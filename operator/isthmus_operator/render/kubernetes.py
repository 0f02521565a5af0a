"""The Kubernetes half of rendering: the objects around every Router's instances."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..model import NamespaceModel
from ..names import (
    Hints,
    base_name,
    bridge_service,
    config_secret,
    digest,
    instance_id,
    labels,
    mesh_service,
)
from ..resources import FlowAnalysis, FlowLog, GossipRouter, Router
from ..seniority import Owner, oldest_first
from .config import config_bytes, instance_files, router_config
from .flows import RenderedAnalysis, RenderedLog, render_analysis, render_log
from .flows.listener import CollectorsListener, collectors_listener
from .gossip import RenderedGossip, gossip_hosts, render_gossip
from .instances import (
    Finding,
    GossipTarget,
    InstanceTarget,
    ListenerInstance,
    Plan,
    RouterInstance,
    SiteInstance,
    SiteTarget,
)
from .plan import plan
from .policies import disruption_budget, network_policy, service_account
from .restrictions import refused, refused_log, refused_pulls, restrained
from .services import services
from .sizes import (
    CONFIGURATION_COPIES,
    GROWTH,
    MAX_SECRET_BYTES,
    LargeError,
    least_bytes,
    objects_bytes,
    planned_bytes,
)
from .workload import MOUNT, RenderSettings, workload

Manifest = dict[str, Any]

MAX_CONFIGURATION_BYTES = 32 * 1024 * 1024
"""Of the Secrets of all Routers, GossipRouters and FlowLogs of a namespace, and of objects that are larger than
`PLAIN_BYTES`. The operator holds each of them in several copies."""
PLAIN_BYTES = 64 * 1024
"""Memory of the objects of one resource other than Secrets, that does not count. Those without a large template of pods
have less than half of it."""


_MAX_RENDERED_BYTES = 4 * MAX_CONFIGURATION_BYTES
"""Of the configurations of a namespace, with those that are refused because they are too large."""


_SERVICES_OF_OTHERS = ("kubernetes", "kubernetes-service")
"""Names that give a Service of any namespace the variables `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`, by
which pods find the API server."""


class _TooLargeError(Exception):
    """The configuration of a Router has more than so many bytes, of which `size` have been rendered."""

    def __init__(self, message: str, size: int = 0) -> None:
        super().__init__(message)
        self.size = size


_ALL_TOO_LARGE = (
    "the configurations and pod templates of all Routers, GossipRouters, FlowLogs and FlowAnalyses of the namespace "
    "have more than "
    f"{MAX_CONFIGURATION_BYTES >> 20} MiB; have fewer of them, or move some to another namespace"
)


class KubernetesResolver:
    """Addresses inside the cluster: pod names of the mesh Service, or the Router's own Service."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def bind(self, instance: RouterInstance, listener: ListenerInstance) -> tuple[str, int]:
        return listener.host, listener.port

    def health(self, instance: RouterInstance) -> tuple[str, int]:
        return "", instance.health_port

    def dial(self, instance: RouterInstance, target: InstanceTarget) -> tuple[str, int]:
        if target.any_replica:
            return f"{base_name(target.router)}.{self._namespace}.svc", target.port
        pod = instance_id(target.router, target.ordinal)
        return f"{pod}.{mesh_service(target.router)}.{self._namespace}.svc", target.port

    def path(self, instance: RouterInstance, file: str) -> str:
        return f"{MOUNT}/{file}"

    def member(self, instance: RouterInstance, site: SiteInstance) -> tuple[str, int]:
        return "", site.spec.member_port

    def bridge(self, instance: RouterInstance, site: SiteInstance) -> tuple[str, int]:
        return "", site.spec.bridge.port

    def members(self, instance: RouterInstance, site: SiteInstance) -> tuple[str, list[str]]:
        if site.spec.discovery.hosts is not None:
            return "hostList", list(site.spec.discovery.hosts)
        return "dns", [f"{mesh_service(instance.router)}.{self._namespace}.svc"]

    def bridges(self, target: SiteTarget) -> list[str]:
        return [f"{bridge_service(target.name)}.{self._namespace}.svc:{target.port}"]

    def gossip(self, target: GossipTarget) -> list[str]:
        return gossip_hosts(target, self._namespace)


@dataclass(frozen=True)
class RenderedRouter:
    """The objects of one Router, in the order in which they are to be applied."""

    router: Router
    objects: tuple[Manifest, ...]
    config_hashes: Mapping[str, str]
    """Name of the configuration file to the hash that routers reading it report."""
    configuration_bytes: int = 0
    """Of its Secret."""

    @cached_property
    def content_digest(self) -> str:
        """Of the content of its Secret."""
        secret = next(item for item in self.objects if item["kind"] == "Secret")
        return digest(canonical(secret["data"]))[:16]

    def expected_hash(self, router_id: str) -> str | None:
        """The `configHash` that the router `router_id` reports when it runs this configuration."""
        file = "router.json" if self.router.spec.mode == "edge" else f"{router_id}.json"
        return self.config_hashes.get(file)


@dataclass(frozen=True)
class Rendered:
    """Desired state of a namespace. Routers with a blocking finding have no entry in `routers`."""

    plan: Plan
    routers: Mapping[str, RenderedRouter]
    findings: tuple[Finding, ...]
    gossip_routers: Mapping[str, RenderedGossip] = field(default_factory=dict)
    """Those with a blocking finding have no entry."""
    flow_logs: Mapping[str, RenderedLog] = field(default_factory=dict)
    flow_analyses: Mapping[str, RenderedAnalysis] = field(default_factory=dict)
    bytes: int = 0
    """Memory that it takes, about, with the model."""

    def owners(self) -> Iterator[tuple[Owner, tuple[Manifest, ...]]]:
        """Every resource that has objects, with these."""
        yield from ((item.router, item.objects) for item in self.routers.values())
        yield from ((item.gossip_router, item.objects) for item in self.gossip_routers.values())
        yield from ((item.flow_log, item.objects) for item in self.flow_logs.values())
        yield from ((item.analysis, item.objects) for item in self.flow_analyses.values())

    def findings_of(self, kind: str, name: str) -> Sequence[Finding]:
        return self._grouped.get((kind, name), ())

    @cached_property
    def _grouped(self) -> Mapping[tuple[str, str], Sequence[Finding]]:
        grouped: dict[tuple[str, str], list[Finding]] = {}
        for item in self.findings:
            grouped.setdefault((item.kind, item.name), []).append(item)
        return grouped


def render(model: NamespaceModel, settings: RenderSettings, most: int | None = None) -> Rendered:
    """Desired objects of all resources of `model` that have some. Raises LargeError if they take more than `most` bytes
    of memory, if stated."""
    used = planned_bytes(model)
    estimate = used + least_bytes(model, MAX_CONFIGURATION_BYTES)
    if most is not None and estimate > most:
        raise LargeError(estimate)
    allowed_sites, unallowed = restrained(model.relay_sites, settings.restrictions)
    model = replace(model, hints=Hints(), relay_sites=allowed_sites)
    planned = plan(model)
    findings = [*planned.findings, *unallowed]
    sites = {item.router: item for item in planned.relay_sites.values()}
    taken = dict.fromkeys((("Service", name) for name in _SERVICES_OF_OTHERS), "the API server")
    node_ports: dict[int, str] = {}
    routers: dict[str, RenderedRouter] = {}
    gossip: dict[str, RenderedGossip] = {}
    flow_logs: dict[str, RenderedLog] = {}
    analyses: dict[str, RenderedAnalysis] = {}
    left, unrendered, refused_bytes = MAX_CONFIGURATION_BYTES, _MAX_RENDERED_BYTES, 0
    # Names and ports that several want belong to the oldest one, whatever its kind.
    for owner in oldest_first(model.owners(), model.juniors):
        made: RenderedRouter | RenderedGossip | RenderedLog | RenderedAnalysis | None
        problems: list[Finding]
        held = used + CONFIGURATION_COPIES * (MAX_CONFIGURATION_BYTES - left + refused_bytes)
        if most is not None and held > most:
            raise LargeError(GROWTH * most)
        try:
            denied = refused(owner, settings.restrictions)
            denied += refused_pulls(owner, model, settings.restrictions, settings.image_pull_secrets)
            if isinstance(owner, FlowAnalysis):
                log = model.flow_logs.get(owner.spec.flow_log_ref.name)
                denied += refused_log(owner, log, settings.restrictions)
            if denied:
                findings += denied
                continue
            if isinstance(owner, Router):
                if any(item.blocking for item in planned.findings_of("Router", owner.name)):
                    continue
                instances = planned.instances[owner.name]
                try:
                    if unrendered <= 0:
                        raise _TooLargeError(_ALL_TOO_LARGE)
                    made, problems = (
                        _router(
                            owner,
                            instances,
                            sites.get(owner.name),
                            collectors_listener(owner, model),
                            model.namespace,
                            settings,
                            left,
                        ),
                        [],
                    )
                except _TooLargeError as error:
                    unrendered -= error.size
                    refused_bytes = max(refused_bytes, error.size)
                    made, problems = None, [_too_large(owner, str(error))]
            elif unrendered <= 0:
                made, problems = None, [_too_large(owner, _ALL_TOO_LARGE)]
            elif isinstance(owner, GossipRouter):
                made, problems = render_gossip(owner, model, settings)
            elif isinstance(owner, FlowLog):
                made, problems = render_log(owner, model, settings)
            else:
                made, problems = render_analysis(owner, model, settings)
            objects = objects_bytes(made.objects) if made is not None else 0
            size = max(0, objects - PLAIN_BYTES)
            if isinstance(made, RenderedRouter):
                size += made.configuration_bytes
            elif made is not None:
                size += _secret_bytes(made.objects)
            if size > min(left, unrendered):
                unrendered -= size
                refused_bytes = max(refused_bytes, size)
                made, problems = None, [_too_large(owner, _ALL_TOO_LARGE)]
            if made is not None:
                problems += _name_conflicts(owner, made.objects, taken)
                problems += _port_conflicts(owner, made.objects, node_ports)
        except Exception as error:  # it concerns this resource alone
            findings.append(Finding.failed(owner.kind_name, owner.name, error))
            continue
        findings += problems
        if made is None or any(item.blocking for item in problems):
            continue
        title = f'{owner.kind_name} "{owner.name}"'
        taken.update({_identity(item): title for item in made.objects})
        node_ports.update({port: title for port, _ in _node_ports(made.objects)})
        used += objects
        left -= size
        unrendered -= size
        if isinstance(made, RenderedRouter):
            routers[owner.name] = made
        elif isinstance(made, RenderedGossip):
            gossip[owner.name] = made
        elif isinstance(made, RenderedLog):
            flow_logs[owner.name] = made
        else:
            analyses[owner.name] = made
    findings.sort(key=lambda item: (item.kind, item.name, item.reason, item.message))
    used += CONFIGURATION_COPIES * (MAX_CONFIGURATION_BYTES - left + refused_bytes)
    return Rendered(planned, routers, tuple(findings), gossip, flow_logs, analyses, used)


def _too_large(owner: Owner, message: str) -> Finding:
    return Finding(owner.kind_name, owner.name, "TooLarge", message, blocking=True)


def _secret_bytes(objects: Iterable[Manifest]) -> int:
    """Of the contents of Secrets: each FlowLog that names a Secret has a copy."""
    contents = [
        value for item in objects if item["kind"] == "Secret" for value in item.get("data", {}).values()
    ]
    return sum(map(len, contents)) * 3 // 4


def _router(
    router: Router,
    instances: tuple[RouterInstance, ...],
    site: SiteInstance | None,
    collectors: CollectorsListener | None,
    namespace: str,
    settings: RenderSettings,
    left: int,
) -> RenderedRouter:
    """Raises _TooLargeError."""
    beside = instance_files(instances[0], KubernetesResolver(namespace)) if instances else {}
    content: dict[str, bytes] = dict(beside)
    files: dict[str, bytes] = {}
    size = sum(map(len, beside.values()))
    # One after the other, so that what is refused has not been held as a whole.
    for name, data in _config_files(router, instances, namespace):
        content[name] = files[name] = data
        size += len(data)
        if size > MAX_SECRET_BYTES:
            raise _TooLargeError(
                f"the configuration of its {router.spec.replicas} replicas has more than "
                f"{MAX_SECRET_BYTES >> 20} MiB, which no Secret can hold; shorten policy, addresses or LinkRoutes, or "
                "have fewer replicas",
                size,
            )
        if size > left:
            raise _TooLargeError(_ALL_TOO_LARGE, size)
    objects = [
        service_account(router, settings),
        _secret(router, content),
        *services(router, site, collectors),
        *disruption_budget(router),
        *network_policy(router, settings, site, collectors),
        workload(router, instances, settings),
    ]
    for item in objects:
        item["metadata"]["namespace"] = namespace
    hashes = {name: digest(data) for name, data in files.items()}
    return RenderedRouter(router, tuple(objects), hashes, size)


def _config_files(
    router: Router, instances: tuple[RouterInstance, ...], namespace: str
) -> Iterator[tuple[str, bytes]]:
    """One file per interior replica; edge replicas are alike and share one."""
    resolver = KubernetesResolver(namespace)
    if router.spec.mode == "edge":
        if instances:
            yield "router.json", config_bytes(router_config(instances[0], resolver, with_id=False))
        return
    for instance in instances:
        yield f"{instance.id}.json", config_bytes(router_config(instance, resolver))


def _secret(router: Router, content: Mapping[str, bytes]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": config_secret(router.name), "labels": labels(router.name, router.spec.mode)},
        "type": "Opaque",
        "data": {name: b64encode(data).decode() for name, data in sorted(content.items())},
    }


def _identity(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _name_conflicts(
    owner: Owner,
    objects: Iterable[Manifest],
    taken: Mapping[tuple[str, str], str],
) -> Iterator[Finding]:
    """Derived names can meet: Router `a` with a listener `b` of type NodePort, and Router `a-b`; Router `a-bridge` and
    its RelaySite `a`."""
    own = "Router, its listener or its RelaySite" if isinstance(owner, Router) else owner.kind_name
    made: set[tuple[str, str]] = set()
    for item in objects:
        identity = _identity(item)
        kind, name = identity
        whose = f"belongs to {taken[identity]}" if identity in taken else "would be made twice"
        if identity in taken or identity in made:
            message = f'{kind} "{name}" {whose}; rename this {own}'
            yield Finding(owner.kind_name, owner.name, "NameConflict", message, blocking=True)
        made.add(identity)


def _node_ports(objects: Iterable[Manifest]) -> Iterator[tuple[int, str]]:
    """Of listeners, of the bridge of a site, of a gossip router: the port and the Service."""
    for item in objects:
        if item["kind"] == "Service":
            for port in item["spec"].get("ports", ()):
                if "nodePort" in port:
                    yield port["nodePort"], item["metadata"]["name"]


def _port_conflicts(
    owner: Owner, objects: Iterable[Manifest], node_ports: Mapping[int, str]
) -> Iterator[Finding]:
    own: dict[int, str] = {}
    kind, reason = (
        ("Router", "ListenerConflict") if isinstance(owner, Router) else (owner.kind_name, "PortConflict")
    )
    for port, service in _node_ports(objects):
        other = f'Service "{own[port]}"' if port in own else node_ports.get(port)
        own[port] = service
        if other is not None:
            message = f'Service "{service}": nodePort {port} is used by {other} already'
            yield Finding(kind, owner.name, reason, message, blocking=True)


def canonical(manifest: Manifest) -> str:
    """A manifest as text that is equal exactly when the manifest is."""
    return json.dumps(manifest, sort_keys=True, separators=(",", ":"))
