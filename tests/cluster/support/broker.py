"""A broker that this project did not write, as a pod: Apache ActiveMQ Artemis with users and a volume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from tests.integration.support import broker as artemis

from ..harness import images
from ..harness.cluster import Cluster
from ..installation import JAVA
from .web import SECURITY, service

CONTEXT = Path(__file__).with_name("artemis")
HOME, FOLDER = PurePosixPath("/opt/artemis"), PurePosixPath("/broker")
PORT = 5672


def build() -> Path:
    """Builds the image of Artemis and a Java runtime and returns its archive; quick if nothing has changed."""
    base = images.base_image((*images.BASE_PACKAGES, JAVA))
    return images.build(
        "isthmus-test-broker:1", CONTEXT / "Containerfile", artemis.artemis_home(), {"BASE": base}
    )


class Broker:
    """A StatefulSet of one pod behind a Service of the same name, which keeps its messages in `folder`: one
    that exists on `node`, and that everybody may write to."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        *,
        node: str,
        folder: Path,
        queues: Sequence[str],
        users: Mapping[str, str],
        topics: Sequence[str] = (),
    ) -> None:
        self.cluster, self.namespace, self.name = cluster, namespace, name
        self.node, self.folder, self.queues, self.topics = node, folder, queues, topics
        self.volume = f"{namespace}-{name}"
        self.host, self.pod = f"{name}.{namespace}.svc", f"{name}-0"
        self.write_users(users)
        cluster.apply(*self._volume(), self._service(), self._stateful_set(), namespace=namespace)

    def write_users(self, users: Mapping[str, str]) -> None:
        """Users with their passwords, for the next start."""
        endpoint = ("0.0.0.0", PORT)  # in its pod
        files = artemis.configuration(self.name, FOLDER, endpoint, self.queues, users, self.topics)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": self.name}, "stringData": files}
        self.cluster.apply(secret, namespace=self.namespace)

    def ready(self) -> None:
        self.cluster.wait("condition=Ready", f"pod/{self.pod}", namespace=self.namespace, timeout=90)

    def stop(self) -> None:
        """Takes the pod away until `start`."""
        self._scale(0)
        self.cluster.wait("delete", f"pod/{self.pod}", namespace=self.namespace, timeout=60)

    def start(self) -> None:
        self._scale(1)
        self.ready()

    def restart(self) -> None:
        """Deletes the pod with a second to end in, and waits for the next one."""
        self.cluster.kubectl("delete", "pod", self.pod, "--now", f"--namespace={self.namespace}")
        self.ready()

    def address(self) -> str:
        """The pod's."""
        found = self.cluster.get(f"pod/{self.pod}", namespace=self.namespace)
        return str(found["status"]["podIP"])

    def remove_volume(self) -> None:
        """Volumes are of no namespace, and stay when one goes; this one goes with its last user."""
        self.cluster.kubectl("delete", "persistentvolume", self.volume, "--wait=false", "--ignore-not-found")

    def _scale(self, replicas: int) -> None:
        self.cluster.kubectl(
            "scale", f"statefulset/{self.name}", f"--replicas={replicas}", f"--namespace={self.namespace}"
        )

    def _volume(self) -> tuple[dict[str, Any], dict[str, Any]]:
        size = {"storage": "100Mi"}
        of = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        claimed_by = {"name": self.name, "namespace": self.namespace}
        volume = {"capacity": size, "hostPath": {"path": str(self.folder)}, "claimRef": claimed_by, **of}
        claim = {"resources": {"requests": size}, "volumeName": self.volume, **of}
        return (
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": self.volume},
                "spec": volume,
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": self.name},
                "spec": claim,
            },
        )

    def _service(self) -> dict[str, Any]:
        return service(self.name, {"selector": {"app": self.name}, "ports": [{"port": PORT}]})

    def _stateful_set(self) -> dict[str, Any]:
        archive = build()
        self.cluster.load(archive, self.node)
        container = {
            "name": "broker",
            "image": images.name_in(archive),
            "imagePullPolicy": "Never",
            "command": artemis.command(HOME, FOLDER),
            "ports": [{"containerPort": PORT}],
            "securityContext": SECURITY,
            "resources": {"requests": {"cpu": "10m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
            "volumeMounts": [
                {"name": "instance", "mountPath": str(FOLDER)},
                {"name": "etc", "mountPath": str(FOLDER / "etc"), "readOnly": True},
                {"name": "data", "mountPath": str(FOLDER / "data")},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }
        spec = {
            "nodeSelector": {"kubernetes.io/hostname": self.node},
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 5,
            "containers": [container],
            "volumes": [
                {"name": "instance", "emptyDir": {}},
                {"name": "etc", "secret": {"secretName": self.name}},
                {"name": "data", "persistentVolumeClaim": {"claimName": self.name}},
                {"name": "tmp", "emptyDir": {}},
            ],
        }
        labels = {"app": self.name}
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": self.name},
            "spec": {
                "serviceName": self.name,
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
