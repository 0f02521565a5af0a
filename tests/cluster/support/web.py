"""A web server that runs on a cluster of any make, to try the cluster with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..harness.cluster import Cluster

PROBE = Path(__file__).parents[1] / "harness" / "probe"
"""What its image is built from."""
SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def deploy_web(cluster: Cluster, namespace: str, image: str, replicas: int) -> None:
    labels = {"app": "web"}
    container = {
        "name": "web",
        "image": image,
        "imagePullPolicy": "Never",
        "ports": [{"containerPort": 8080}],
        "securityContext": SECURITY,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "128Mi"}},
        "readinessProbe": {"httpGet": {"path": "/word", "port": 8080}, "periodSeconds": 1},
        "volumeMounts": [{"name": "page", "mountPath": "/data"}],
    }
    apart = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    pod = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [container],
            "topologySpreadConstraints": [apart],
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "page", "secret": {"secretName": "page"}}],
        },
    }
    ports = [{"port": 80, "targetPort": 8080}]
    cluster.apply(
        secret("one"),
        service("web", {"clusterIP": "None", "selector": labels, "ports": ports}),
        service("web-any", {"selector": labels, "ports": ports}),
        service("web-node", {"type": "NodePort", "selector": labels, "ports": ports}),
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "web"},
            "spec": {
                "serviceName": "web",
                "replicas": replicas,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": pod,
            },
        },
        namespace=namespace,
    )
    cluster.wait(f"jsonpath={{.status.readyReplicas}}={replicas}", "statefulset/web", namespace=namespace)


def secret(word: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "page"}, "stringData": {"word": word}}


def service(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
