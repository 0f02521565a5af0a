"""The objects of a GossipRouter: a StatefulSet, since members register with each replica by its own name."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..authority import gossip_profile
from ..model import NamespaceModel
from ..names import gossip_exposed_service, gossip_labels, gossip_name, gossip_selector, scraped
from ..resources import GossipRouter
from ..resources.tls import ListenerTls, given
from ..rotation.ledger import REVOCATIONS, TLS_KEYS
from .ingress import Source, health_rule, rules
from .instances import Finding, GossipTarget
from .material import Material, MaterialError, OwnTls, certificates_digest, complaints
from .podtemplate import overlaid
from .workload import MOUNT, PRE_STOP_SECONDS, STARTUP_SECONDS, RenderSettings, pod_security

Manifest = dict[str, Any]
_TLS_OPTIONS = {
    "tls.crt": "--tls-cert",
    "tls.key": "--tls-key",
    "ca.crt": "--tls-ca",
    REVOCATIONS: "--tls-crl",
}
_CLOSE_SECONDS = 8


@dataclass(frozen=True)
class RenderedGossip:
    """The objects of one GossipRouter, in the order in which they are to be applied."""

    gossip_router: GossipRouter
    objects: tuple[Manifest, ...]
    certificates: str
    """The digest of its certificates, as its processes report it."""


def gossip_hosts(target: GossipTarget, namespace: str) -> list[str]:
    """`host:port` of each replica: a name of all of them would be one gossip router to a member."""
    name = gossip_name(target.name)
    return [f"{name}-{number}.{name}.{namespace}.svc:{target.port}" for number in range(target.replicas)]


def render_gossip(
    found: GossipRouter, model: NamespaceModel, settings: RenderSettings
) -> tuple[RenderedGossip | None, list[Finding]]:
    """Its objects. None while its certificates cannot be used: what runs stays as it is."""
    try:
        content = gossip_files(found, model)
    except MaterialError as missing:
        return None, [Finding("GossipRouter", found.name, missing.reason, str(missing), blocking=True)]
    name = gossip_name(found.name)
    objects = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": False},
        *([_secret(content)] if content else []),
        *_services(found),
        *_budget(found),
        *_network_policy(found, settings),
        _stateful_set(found, content, settings),
    ]
    for item in objects:
        metadata = {"name": name, "labels": gossip_labels(found.name), **item.get("metadata", {})}
        item["metadata"] = {**metadata, "namespace": model.namespace}
    if settings.image_pull_secrets:
        objects[0]["imagePullSecrets"] = [{"name": secret} for secret in settings.image_pull_secrets]
    findings = [
        Finding("GossipRouter", found.name, item.reason, str(item), in_effect=True)
        for item in complaints(gossip_tls(found, model), model)
    ]
    return RenderedGossip(found, tuple(objects), certificates_digest(content)), findings


def gossip_tls(found: GossipRouter, model: NamespaceModel) -> ListenerTls | OwnTls | None:
    """Where its certificates are from; None: it has none."""
    if found.own_tls:
        return OwnTls(gossip_profile(found.name)) if model.own else None
    return given(found.spec.tls)


def gossip_files(found: GossipRouter, model: NamespaceModel) -> Mapping[str, bytes]:
    """Key to content of the TLS files, under the same names whatever their ordinal: the process reads them again when
    they change. Raises MaterialError."""
    stated, tls = given(found.spec.tls), gossip_tls(found, model)
    if tls is None:
        return {}
    authenticated = stated is None or stated.require_client_certificate
    needed = ["tls.crt", "tls.key", *(["ca.crt"] if authenticated else [])]
    material = Material(model, {})
    used = material.profile(("listener", found.name), tls, needed, dialled=False)
    files, content = (
        next(item.files for item in material.profiles() if item.name == used.name),
        material.files(),
    )
    wanted = [*needed, *([REVOCATIONS] if authenticated and REVOCATIONS in files else [])]
    return {key: content[files[key]] for key in (*TLS_KEYS, REVOCATIONS) if key in wanted}


def gossip_arguments(found: GossipRouter, content: Mapping[str, bytes], folder: str) -> list[str]:
    """Of the command `isthmus-gossip-router`, whose files are in `folder`."""
    arguments = [f"--expiry={found.spec.expiry_seconds}"]
    if not content:
        return [*arguments, "--plain-text"]
    arguments += [f"{_TLS_OPTIONS[key]}={folder}/{key}" for key in content]
    stated = given(found.spec.tls)
    if stated is not None:
        arguments.append(f"--tls-minimum-version={stated.minimum_version}")
    return arguments if "ca.crt" in content else [*arguments, "--anonymous-members"]


def _secret(content: Mapping[str, bytes]) -> Manifest:
    data = {name: b64encode(value).decode() for name, value in sorted(content.items())}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data}


def _services(found: GossipRouter) -> list[Manifest]:
    spec, select = found.spec, gossip_selector(found.name)
    port: dict[str, Any] = {"name": "gossip", "port": spec.port, "targetPort": spec.port, "protocol": "TCP"}
    headless = {"type": "ClusterIP", "clusterIP": "None", "publishNotReadyAddresses": True}
    services: list[Manifest] = [
        {"apiVersion": "v1", "kind": "Service", "spec": {**headless, "selector": select, "ports": [port]}}
    ]
    if spec.expose != "ClusterIP":
        given = {"nodePort": spec.node_port} if spec.node_port is not None else {}
        metadata: dict[str, Any] = {"name": gossip_exposed_service(found.name)}
        if spec.service_annotations:
            metadata["annotations"] = dict(spec.service_annotations)
        outside = {"type": spec.expose, "selector": select, "ports": [{**port, **given}]}
        services.append({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": outside})
    return services


def _budget(found: GossipRouter) -> list[Manifest]:
    """One pod at a time. None for a single replica, which could otherwise never be evicted."""
    if found.spec.replicas < 2:
        return []
    spec = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": gossip_selector(found.name)},
    }
    return [{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": spec}]


def _network_policy(found: GossipRouter, settings: RenderSettings) -> list[Manifest]:
    """Members are routers. They are outside where the port is exposed there, and in other namespaces only where the
    certificates are not those of the namespace's own authority."""
    if found.spec.network_policy == "Disabled":
        return []
    source: Source = "routers of the namespace" if found.own_tls else "routers"
    if found.spec.expose != "ClusterIP":
        source = "anywhere"
    ingress = [*rules([(source, found.spec.port, "TCP")]), health_rule(found.spec.health_port, settings)]
    spec = {
        "podSelector": {"matchLabels": gossip_selector(found.name)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return [{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": spec}]


def _stateful_set(found: GossipRouter, content: Mapping[str, bytes], settings: RenderSettings) -> Manifest:
    name, spec = found.name, found.spec
    template = overlaid(_template(found, content, settings), spec.pod_template)
    template["metadata"]["labels"].update(gossip_labels(name))
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "spec": {
            "replicas": spec.replicas,
            "revisionHistoryLimit": 3,
            "serviceName": gossip_name(name),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            "selector": {"matchLabels": gossip_selector(name)},
            "template": template,
        },
    }


def _template(found: GossipRouter, content: Mapping[str, bytes], settings: RenderSettings) -> Manifest:
    name = gossip_name(found.name)
    pod: Manifest = {
        "serviceAccountName": name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": PRE_STOP_SECONDS + _CLOSE_SECONDS,
        "securityContext": pod_security(),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": gossip_selector(found.name)},
            }
            for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
        ],
        "containers": [_container(found, content, settings)],
    }
    if content:
        pod["volumes"] = [{"name": "tls", "secret": {"secretName": name, "defaultMode": 0o440}}]
    if settings.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in settings.image_pull_secrets]
    metadata = {"labels": gossip_labels(found.name), "annotations": scraped(found.spec.health_port)}
    return {"metadata": metadata, "spec": pod}


def _container(found: GossipRouter, content: Mapping[str, bytes], settings: RenderSettings) -> Manifest:
    spec = found.spec
    ports = [f"--port={spec.port}", f"--health-port={spec.health_port}"]
    container: Manifest = {
        "name": "gossip-router",
        "image": spec.image or settings.router_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["isthmus-gossip-router"],
        "args": [*ports, *gossip_arguments(found, content, MOUNT)],
        "ports": [
            {"name": "gossip", "containerPort": spec.port, "protocol": "TCP"},
            {"name": "health", "containerPort": spec.health_port, "protocol": "TCP"},
        ],
        "startupProbe": _probe("/healthz", periodSeconds=1, failureThreshold=STARTUP_SECONDS),
        "readinessProbe": _probe("/readyz", periodSeconds=2, failureThreshold=2),
        "livenessProbe": _probe("/healthz", periodSeconds=10, failureThreshold=3),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    if content:
        container["volumeMounts"] = [{"name": "tls", "mountPath": MOUNT, "readOnly": True}]
    if spec.resources is not None:
        container["resources"] = spec.resources.model_dump(by_alias=True, exclude_none=True)
    return container


def _probe(path: str, **timing: int) -> Manifest:
    return {"httpGet": {"path": path, "port": "health"}, "timeoutSeconds": 5, **timing}
