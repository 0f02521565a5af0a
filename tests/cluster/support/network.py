"""One namespace of a cluster: its resources, what the operator made of them, what the routers say."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.integration.support.isthmus import run_isthmus

from ..harness.cluster import Cluster

CHILDREN = "sts,deploy,svc,secret,sa,pdb,netpol,pods"
OURS = "app.kubernetes.io/managed-by=isthmus-operator"
USABLE = {"isthmus.dev/use": "true"}
"""Labels of a Secret that resources may use."""
OPERATOR = "app.kubernetes.io/name=isthmus-operator"


LASTING = {"secret/isthmus-authority"}
"""What the operator makes for a namespace, and not for one of its resources: it stays when these are deleted."""


class Network:
    """The resources, objects and routers of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def apply(self, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            metadata = manifest["metadata"]
            kept = {key: metadata[key] for key in ("name", "annotations") if key in metadata}
            self.cluster.apply({**manifest, "metadata": kept}, namespace=self.namespace)

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        return self.cluster.kubectl(*arguments, f"--namespace={self.namespace}", input=input)

    def get(self, resource: str, *arguments: str) -> dict[str, Any]:
        return self.cluster.get(resource, *arguments, namespace=self.namespace)

    def isthmus_status(self, *words: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        """`isthmus status` about this namespace, 80 columns wide."""
        access = ("--kubeconfig", str(kubeconfig or self.cluster.kubeconfig), "-n", self.namespace)
        environment = {**os.environ, "COLUMNS": "80"}
        return run_isthmus("status", *access, *words, environment=environment, timeout=60)

    def condition(self, resource: str, kind: str = "Ready") -> dict[str, Any]:
        found = self.get(resource)
        conditions = found.get("status", {}).get("conditions", [])
        matching: list[dict[str, Any]] = [item for item in conditions if item["type"] == kind]
        assert matching, f"no condition {kind} yet"
        (condition,) = matching
        assert condition["observedGeneration"] == found["metadata"]["generation"], "not judged yet"
        return condition

    def becomes(
        self,
        resource: str,
        status: str,
        reason: str,
        kind: str = "Ready",
        timeout: float = 150,
        saying: str = "",
    ) -> str:
        """Waits for a condition of the current generation whose message contains `saying`; returns the message."""

        def check() -> dict[str, Any] | None:
            condition = self.condition(resource, kind)
            assert (condition["status"], condition["reason"]) == (status, reason), condition
            assert saying in str(condition["message"]), condition
            return condition

        found = self.cluster.eventually(f"{resource}: {kind} {status} {reason}", check, timeout=timeout)
        assert found is not None
        return str(found["message"])

    def ready(self, *resources: str, timeout: float = 150) -> None:
        for resource in resources:
            self.becomes(resource, "True", "Ready", timeout=timeout)

    def settled(self, timeout: float = 150) -> None:
        """Waits until every Router and Connector is Ready in its current generation."""

        def check() -> bool:
            found = self.get("routers,connectors")["items"]
            for item in found:
                conditions = item.get("status", {}).get("conditions", [])
                ready = [condition for condition in conditions if condition["type"] == "Ready"]
                assert ready, f"{item['metadata']['name']} has no condition"
                assert ready[0]["observedGeneration"] == item["metadata"]["generation"], item["metadata"]
                assert ready[0]["status"] == "True", ready[0]
            return bool(found)

        self.cluster.eventually("all Routers and Connectors are Ready", check, timeout=timeout)

    def status(self, pod: str) -> dict[str, Any]:
        """What a router says of itself."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}:9090/proxy/status"
        found: dict[str, Any] = json.loads(self.cluster.api.read(path))
        return found

    def metric(self, pod: str, name: str) -> float:
        """A metric of a router; samples with different labels are added up."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}:9090/proxy/metrics"
        return metric_values(self.cluster.api.read(path))[name]

    def uplinks(self, router: str) -> dict[str, str]:
        """The pods of an edge Router that are attached to an interior router, and to which."""
        return {
            pod: item["container"]
            for pod in self.pods(router)
            for item in self.status(pod)["connections"]
            if item["role"] == "edge" and item["active"]
        }

    def uplink(self, router: str) -> str:
        """The interior router that the one pod of an edge Router is attached to."""
        (container,) = self.uplinks(router).values()
        return container

    def node(self, pod: str) -> str:
        """Where a pod runs."""
        return str(self.get(f"pod/{pod}")["spec"]["nodeName"])

    def pods(self, name: str) -> dict[str, tuple[str, int]]:
        """Uid and restarts of a Router's pods."""
        items = self.get("pods", f"--selector=app.kubernetes.io/instance={name},{OURS}")["items"]
        return {
            item["metadata"]["name"]: (
                item["metadata"]["uid"],
                sum(status["restartCount"] for status in item["status"].get("containerStatuses", [])),
            )
            for item in items
        }

    def names(self, *arguments: str) -> set[str]:
        """Kinds and names of the objects that an operator makes, and of pods."""
        return set(self.kubectl("get", CHILDREN, "--output=name", *arguments).split())


def operator_metrics(cluster: Cluster, namespace: str) -> dict[str, dict[str, float]]:
    """The metrics of each running operator pod in `namespace`: by pod name, the result of `metric_values`."""
    found: dict[str, dict[str, float]] = {}
    pods = cluster.get("pods", f"--selector={OPERATOR}", namespace=namespace)["items"]
    for pod in (item["metadata"]["name"] for item in pods if "deletionTimestamp" not in item["metadata"]):
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}:8080/proxy/metrics"
        found[pod] = metric_values(cluster.api.read(path))
    return found


def metric_values(text: str) -> dict[str, float]:
    """The values in a Prometheus exposition. Keys are full series (`name{label="x"}`) and names, which have the sum of
    their series."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            for key in {series, series.partition("{")[0]}:
                values[key] = values.get(key, 0.0) + float(value)
    return values
