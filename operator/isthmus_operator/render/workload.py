"""The pods of a Router: a StatefulSet for interior routers, a Deployment for edge routers.

What can be changed in running routers is not part of the pod template, so that it never restarts a pod:
listeners, connectors and addresses are in the configuration Secret only. What a running router cannot
take over goes into a hash in an annotation of the template.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..names import (
    ANNOTATION_RESTART,
    base_name,
    config_secret,
    digest,
    labels,
    mesh_service,
    scraped,
    selector,
)
from ..resources import Router
from .instances import RouterInstance
from .podtemplate import overlaid
from .restrictions import SAFE, Restrictions

MOUNT = "/etc/isthmus"
USER = 10001
"""User and group of the images. The group can read the files with secrets, and nobody else can."""
STARTUP_SECONDS = 300
"""Time for a container to answer for the first time. On a node without processor time, a restart only adds load."""
PRE_STOP_SECONDS = 2
"""Time for kube-proxy to take the pod out of its Services before the router stops accepting."""
DRAIN_SECONDS = 10
"""What a stopping router takes at most to settle deliveries under way."""
CLOSE_SECONDS = 8
"""Time to close connections after the drain."""


@dataclass(frozen=True)
class RenderSettings:
    """What the operator's installation says about what it makes."""

    router_image: str
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    collector_image: str = ""
    """Of FlowLogs; empty: there is none."""
    analysis_image: str = ""
    """Of FlowAnalyses; empty: there is none."""
    restrictions: Restrictions = SAFE
    driver_role: str = "ClusterRole/isthmus-flow-driver"
    """Kind and name of the role that lets a driver of Spark make its executors."""
    operator_namespace: str = ""
    """Where the operator runs, which asks routers for their status."""
    monitoring_namespaces: tuple[str, ...] = ()
    """Namespaces that may reach the health ports of routers, beside a Router's own and the operator's; empty: all, and
    sources outside as well."""


def workload(
    router: Router, instances: tuple[RouterInstance, ...], settings: RenderSettings
) -> dict[str, Any]:
    """The StatefulSet or Deployment of `router`."""
    name, spec = router.name, router.spec
    template = overlaid(_template(router, instances, settings), spec.pod_template)
    template["metadata"]["labels"].update(labels(name, spec.mode))
    common: dict[str, Any] = {
        "replicas": spec.replicas,
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": selector(name)},
        "template": template,
    }
    metadata = {"name": base_name(name), "labels": labels(name, spec.mode)}
    if spec.mode == "edge":
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {**common, "strategy": strategy},
        }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata,
        "spec": {
            **common,
            "serviceName": mesh_service(name),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
        },
    }


def pod_security() -> dict[str, Any]:
    """Security context of a pod that reads secrets from files: `restricted`, with the group that may read them."""
    return {"runAsNonRoot": True, "fsGroup": USER, "seccompProfile": {"type": "RuntimeDefault"}}


def _template(
    router: Router, instances: tuple[RouterInstance, ...], settings: RenderSettings
) -> dict[str, Any]:
    name, spec = router.name, router.spec
    pod: dict[str, Any] = {
        "serviceAccountName": base_name(name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": PRE_STOP_SECONDS + DRAIN_SECONDS + CLOSE_SECONDS,
        "securityContext": pod_security(),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector(name)},
            }
            for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
        ],
        "containers": [_container(router, settings)],
        "volumes": [
            {"name": "config", "secret": {"secretName": config_secret(name), "defaultMode": 0o440}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}},
        ],
    }
    if settings.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in settings.image_pull_secrets]
    return {
        "metadata": {
            "labels": labels(name, spec.mode),
            "annotations": {
                ANNOTATION_RESTART: _restart_hash(router, instances),
                **scraped(spec.health_port),
            },
        },
        "spec": pod,
    }


def _container(router: Router, settings: RenderSettings) -> dict[str, Any]:
    spec = router.spec
    arguments = (
        ["-c", f"{MOUNT}/router.json", "--id", "$(POD_NAME)"]
        if spec.mode == "edge"
        else ["-c", f"{MOUNT}/$(POD_NAME).json"]
    )
    container: dict[str, Any] = {
        "name": "router",
        "image": spec.image or settings.router_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["isthmus-router"],
        "args": arguments,
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": "health", "containerPort": spec.health_port, "protocol": "TCP"}],
        "startupProbe": _probe(
            "/healthz", initialDelaySeconds=2, periodSeconds=1, failureThreshold=STARTUP_SECONDS
        ),
        "readinessProbe": _probe("/readyz", periodSeconds=2, failureThreshold=2),
        "livenessProbe": _probe("/healthz", periodSeconds=10, failureThreshold=3),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "config", "mountPath": MOUNT, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    if spec.resources is not None:
        container["resources"] = spec.resources.model_dump(by_alias=True, exclude_none=True)
    return container


def _probe(path: str, **timing: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "health"}, "timeoutSeconds": 5, **timing}


def _restart_hash(router: Router, instances: tuple[RouterInstance, ...]) -> str:
    """Hash of what a router reads at its start only."""
    spec = router.spec
    parts: Mapping[str, Any] = {
        "site": spec.site,
        "healthPort": spec.health_port,
        "workers": spec.workers,
        "flowIntervalSeconds": spec.flow_interval_seconds,
        "users": instances[0].users_file if instances else None,
    }
    return digest(json.dumps(parts, sort_keys=True))[:16]
