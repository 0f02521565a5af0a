"""Where a flow log is: what pods that read or write it need for that."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model import SecretView
from ...names import flow_log_labels, flow_log_name, flow_log_selector, store_keys
from ...resources import FlowLog
from ..workload import USER

Manifest = dict[str, Any]
FOLDER = "/var/isthmus/flows"
"""Where the volume is mounted."""
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@dataclass(frozen=True)
class Place:
    """Of one FlowLog."""

    flow_log: FlowLog

    @property
    def claim(self) -> str | None:
        """Name of the PersistentVolumeClaim; None: it is in an object store."""
        volume = self.flow_log.spec.volume
        if volume is None:
            return None
        return volume.claim_name or flow_log_name(self.flow_log.name)

    @property
    def url(self) -> str:
        """As pods see it: a folder or `s3a://...`."""
        s3 = self.flow_log.spec.s3
        return s3.url if s3 is not None else FOLDER

    @property
    def location(self) -> str:
        """As people see it."""
        return self.url if self.claim is None else f"pvc:{self.claim}"

    @property
    def one_node(self) -> bool:
        """All pods that use it have to be on one node."""
        volume = self.flow_log.spec.volume
        return volume is not None and volume.access_mode == "ReadWriteOnce"

    def volumes(self) -> list[Manifest]:
        """Of a pod."""
        claim = self.claim
        return [] if claim is None else [{"name": "flows", "persistentVolumeClaim": {"claimName": claim}}]

    def mounts(self) -> list[Manifest]:
        """Of a container."""
        return [] if self.claim is None else [{"name": "flows", "mountPath": FOLDER}]

    def keys(self, owner: str, secrets: Mapping[str, SecretView]) -> list[Manifest]:
        """The Secret with the keys of the object store for the pods of `owner`; none where they need none.

        It is a copy: pods that refer to a Secret of others would get what is put there later, also without its label.
        """
        s3 = self.flow_log.spec.s3
        if s3 is None or s3.secret_name is None:
            return []
        content = secrets[s3.secret_name].data
        return [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": store_keys(owner)},
                "type": "Opaque",
                "data": {key: b64encode(content[key]).decode() for key in KEYS},
            }
        ]

    def environment(self, owner: str) -> list[Manifest]:
        """Of a container of `owner`: the keys of the object store, by reference."""
        s3 = self.flow_log.spec.s3
        if s3 is None:
            return []
        region = [{"name": "AWS_REGION", "value": s3.region}] if s3.region else []
        if s3.secret_name is None:
            return region
        return [
            *region,
            *(
                {"name": key, "valueFrom": {"secretKeyRef": {"name": store_keys(owner), "key": key}}}
                for key in KEYS
            ),
        ]

    def affinity(self) -> Mapping[str, Any] | None:
        """Of pods beside the collector: on its node, if the volume can only be there."""
        if not self.one_node:
            return None
        beside = {
            "labelSelector": {"matchLabels": flow_log_selector(self.flow_log.name)},
            "topologyKey": "kubernetes.io/hostname",
        }
        return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [beside]}}

    def claims(self, namespace: str) -> list[Manifest]:
        """The PersistentVolumeClaim to be made. It belongs to nobody, so that no deletion takes the log away."""
        volume = self.flow_log.spec.volume
        if volume is None or volume.size is None:
            return []
        spec: Manifest = {
            "accessModes": [volume.access_mode],
            "resources": {"requests": {"storage": str(volume.size)}},
        }
        if volume.storage_class_name is not None:
            spec["storageClassName"] = volume.storage_class_name
        metadata: Manifest = {
            "name": self.claim,
            "namespace": namespace,
            "labels": flow_log_labels(self.flow_log.name),
            "ownerReferences": [],
        }
        return [{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}]


def pod_security() -> Manifest:
    """Security context of pods that use it: `restricted`, and the volume is writable."""
    return {
        "runAsNonRoot": True,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Manifest:
    """Security context of their containers."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
