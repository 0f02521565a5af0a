"""AMQP clients as pods: `client.py`, `application.py` and `stranger.py` in the router image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..harness.cluster import Cluster

SCRIPTS = [Path(__file__).with_name(f"{name}.py") for name in ("client", "application", "stranger")]
CONFIG = "test-clients"
LABELS = {"run": "client"}
SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


class Client:
    """One client, in a pod of its own."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.name = name

    def progress(self) -> dict[str, Any]:
        """What it said last: counts that only grow."""
        text = self._logs(tailLines="1")
        found: dict[str, Any] = json.loads(text or "{}")
        return found

    def _logs(self, **query: str) -> str:
        return self.cluster.api.read(f"/api/v1/namespaces/{self.namespace}/pods/{self.name}/log", query)

    def reaches(self, field: str, value: int, timeout: float = 150.0) -> None:
        """Waits until a count of `progress` is at least `value`."""
        self.cluster.eventually(
            f"{self.name}: {field} >= {value}",
            lambda: self.progress().get(field, 0) >= value,
            timeout=timeout,
        )

    def stop(self) -> None:
        """Lets a sender without count come to its end."""
        self.cluster.exec(self.name, "touch", "/tmp/stop", namespace=self.namespace)

    def report(self, timeout: float = 60.0) -> dict[str, Any]:
        """Waits for its end; what it has to say then."""
        self.cluster.wait(
            "jsonpath={.status.phase}=Succeeded",
            f"pod/{self.name}",
            namespace=self.namespace,
            timeout=timeout,
        )
        # Not only the last line: the runtime keeps a long one in parts, and those count as lines.
        text = self._logs()
        found: dict[str, Any] = json.loads(text.splitlines()[-1])
        assert "report" in found, found
        return found


class Clients:
    """Starts clients in a namespace."""

    def __init__(self, cluster: Cluster, namespace: str, image: str, node: str | None = None) -> None:
        """`node` is where they shall run, if that matters."""
        self.cluster = cluster
        self.namespace = namespace
        self.image = image
        self.node = {"kubernetes.io/hostname": node} if node else {}
        scripts = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONFIG},
            "data": {script.name: script.read_text() for script in SCRIPTS},
        }
        cluster.apply(scripts, namespace=namespace)

    def start(self, name: str, *arguments: str, script: str = "client") -> Client:
        """A client called `name` with these arguments of its script."""
        container = {
            "name": "client",
            "image": self.image,
            "imagePullPolicy": "Never",
            "command": ["python", "-m", f"clients.{script}", *arguments],
            "workingDir": "/client",
            "securityContext": SECURITY,
            "volumeMounts": [
                {"name": "client", "mountPath": "/client/clients"},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }
        spec = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "nodeSelector": self.node,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [{"name": "client", "configMap": {"name": CONFIG}}, {"name": "tmp", "emptyDir": {}}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": LABELS}, "spec": spec}
        self.cluster.apply(pod, namespace=self.namespace)
        return Client(self.cluster, self.namespace, name)
