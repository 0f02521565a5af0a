"""The watched objects of all namespaces, as kopf's indices hold them.

The indices are complete before any event handler runs, so a model is never made from half a namespace.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from . import specs
from .apply import Identity, controller, identity
from .authority import AUTHORITY_SECRET
from .cluster import Manifest
from .decoding import MAX_LEVELS
from .fields import is_applied
from .model import NamespaceModel, SecretView
from .names import (
    ANNOTATION_SYNC,
    CHILD_KINDS,
    LABEL_FLOW_ANALYSIS,
    LABEL_FLOW_LOG,
    LABEL_MANAGED_BY,
    LABEL_ROUTER,
    LABEL_USE,
    MANAGER,
    base_name,
    config_secret,
    flow_analysis_name,
    flow_log_name,
    gossip_name,
)
from .status import PodView

_REGISTRY_TYPES = ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson")

Index = Mapping[Any, Iterable[Any]]
"""Namespace to objects; kopf keeps it up to date."""


def slim(body: Mapping[str, Any], kind: str, api_version: str) -> Manifest:
    """A plain copy of a watched object, without what nobody reads. Items of a list carry no kind. Owners of fields of
    objects that the operator makes are in it as long as the operator has to claim some."""
    metadata = dict(body["metadata"])
    if kind not in CHILD_KINDS or is_applied(metadata):
        metadata.pop("managedFields", None)
    manifest: Manifest = _plain({**body, "metadata": metadata}, MAX_LEVELS)
    return {"apiVersion": api_version, "kind": kind, **manifest}


def _plain(value: Any, levels: int) -> Any:
    """A copy that has null in place of values nested in more than `levels` others.

    It never fails, because the watchdog would report an object without a copy as missing.
    """
    if isinstance(value, Mapping):
        return {key: _plain(item, levels - 1) for key, item in value.items()} if levels else None
    if isinstance(value, list | tuple):
        return [_plain(item, levels - 1) for item in value] if levels else None
    return value


def is_ours(manifest: Mapping[str, Any]) -> bool:
    return (manifest["metadata"].get("labels") or {}).get(LABEL_MANAGED_BY) == MANAGER


def is_reserved(secret: Mapping[str, Any]) -> bool:
    """Whether a Secret belongs to the operator. Resources may not use such a Secret, whatever its labels are.

    The Secret of the authority is reserved also when the operator did not create it: its key must reach no pod.
    """
    return is_ours(secret) or secret["metadata"]["name"] == AUTHORITY_SECRET


def is_usable(secret: Mapping[str, Any], *, label_required: bool = True) -> bool:
    """Whether Isthmus resources may use a Secret: it is not reserved, and it has the label if one is required."""
    if is_reserved(secret):
        return False
    return not label_required or (secret["metadata"].get("labels") or {}).get(LABEL_USE) == "true"


def is_for_registries(secret: Mapping[str, Any]) -> bool:
    """Whether a Secret has credentials for registries, which the kubelet reads. The operator needs no content of it."""
    return secret.get("type") in _REGISTRY_TYPES


def secret_view(manifest: Manifest) -> SecretView:
    """A Secret as resources refer to it."""
    data = {}
    for key, value in (manifest.get("data") or {}).items():
        try:
            data[key] = base64.b64decode(value or "", validate=True)
        except (binascii.Error, ValueError):
            continue
    return SecretView(manifest["metadata"]["name"], data)


@dataclass(frozen=True)
class Inputs:
    """Resources and Secrets of a namespace at one moment, as API objects."""

    namespace: str
    resources: list[Manifest]
    secrets: list[Manifest]
    label_required: bool
    too_large: frozenset[str] = frozenset()
    """Names of Secrets for whose content there is no room."""

    def model(self, now: datetime) -> NamespaceModel:
        """What the rendering at `now` starts from."""
        usable, withheld, reserved = [], [], {AUTHORITY_SECRET}
        for item in self.secrets:
            if item["metadata"]["name"] in self.too_large:
                continue
            if is_usable(item, label_required=self.label_required):
                usable.append(secret_view(item))
            elif is_reserved(item):
                reserved.add(item["metadata"]["name"])
            else:
                withheld.append(item["metadata"]["name"])
        refused = specs.refused(self.resources)
        model = NamespaceModel.from_manifests(
            self.namespace,
            (specs.unpacked(item) for item in self.resources if item["metadata"]["uid"] not in refused),
            usable,
            refused.values(),
        )
        model = replace(
            model.without(withheld, self.too_large, reserved), spec_bytes=specs.taken(self.resources)
        )
        own = {item["metadata"]["name"]: item for item in self.secrets if is_ours(item)}
        delivered = {
            router.name: secret_view(found).data
            for router in model.routers.values()
            if (found := own.get(config_secret(router.name))) is not None
            and (controller(found) or {}).get("uid") == router.metadata.uid
        }
        return model.at(now, delivered)


@dataclass
class Store:
    """Reads the indices. Keys of `children` are kinds."""

    routers: Index
    connectors: Index
    link_routes: Index
    relay_sites: Index
    gossip_routers: Index
    flow_logs: Index
    flow_analyses: Index
    profiles: Index
    secrets: Index
    pods: Index
    children: Mapping[str, Index]
    replica_sets: Index = field(default_factory=dict)
    label_required: bool = True
    """Resources may use only Secrets with the label `isthmus.dev/use: "true"`."""
    unreadable: Collection[str] = frozenset()
    """Namespaces of which the indices may lack objects, so that no resource there counts."""

    def namespaces(self) -> set[str]:
        """Namespaces that have a resource of ours."""
        return {namespace for index in self._own for namespace in index}.difference(self.unreadable)

    def has_resources(self, namespace: str) -> bool:
        """Whether the namespace has a resource of ours."""
        return namespace not in self.unreadable and any(namespace in index for index in self._own)

    def resources(self, namespace: str) -> list[Manifest]:
        """Resources of all kinds, as API objects."""
        if namespace in self.unreadable:
            return []
        return [item for index in self._own for item in _items(index, namespace)]

    @property
    def _own(self) -> tuple[Index, ...]:
        return (
            self.routers,
            self.connectors,
            self.link_routes,
            self.relay_sites,
            self.gossip_routers,
            self.flow_logs,
            self.flow_analyses,
            self.profiles,
        )

    def model(self, namespace: str, now: datetime) -> NamespaceModel:
        """What the rendering at `now` starts from."""
        return self.inputs(namespace).model(now)

    def inputs(self, namespace: str) -> Inputs:
        """What a model is made from, for use in another thread: the indices change meanwhile, their items never do."""
        return Inputs(
            namespace, self.resources(namespace), _items(self.secrets, namespace), self.label_required
        )

    def version(self, namespace: str) -> frozenset[tuple[str, ...]]:
        """Changes whenever something changes that `model` depends on, and not with a mere status."""
        found: list[tuple[str, ...]] = []
        for item in self.resources(namespace):
            metadata = item["metadata"]
            found.append(
                (
                    item["kind"],
                    metadata["uid"],
                    str(metadata.get("generation")),
                    str(metadata.get("deletionTimestamp")),
                    str(metadata.get("annotations")),
                )
            )
        for item in _items(self.secrets, namespace):
            if not is_ours(item):
                found.append(("Secret", item["metadata"]["uid"], item["metadata"]["resourceVersion"]))
        return frozenset(found)

    def live(self, namespace: str) -> dict[Identity, Manifest]:
        """Every object there that bears our label."""
        found = [
            item
            for kind in CHILD_KINDS
            if kind != "Secret"
            for item in _items(self.children[kind], namespace)
        ]
        found += [item for item in _items(self.secrets, namespace) if is_ours(item)]
        return {identity(item): item for item in found}

    def pods_of(self, namespace: str) -> list[Manifest]:
        """Every pod there that bears our label and that a workload of ours controls. Anybody who may create pods and
        workloads can give them the label."""
        workloads = self._workloads(namespace)
        return [
            item
            for item in _items(self.pods, namespace)
            if (owner := workloads.get(_controller_uid(item))) is not None and _is_labelled_for(item, owner)
        ]

    def pod_views(self, namespace: str) -> list[PodView]:
        """Those of routers and gossip routers, and others that a workload of ours controls."""
        views = [PodView.of(item, LABEL_ROUTER, ANNOTATION_SYNC) for item in self.pods_of(namespace)]
        return sorted(views, key=lambda pod: pod.name)

    def _workloads(self, namespace: str) -> dict[str, _Owner]:
        """What controls pods, by uid, and the resource that each one is for: StatefulSets, ReplicaSets of Deployments,
        and Jobs, those of CronJobs included.

        A StatefulSet, Deployment or CronJob counts if it has the name that the operator gives it, and is not being
        deleted: a finalizer keeps a forged one that the operator has deleted. So does a Job of a FlowAnalysis that is
        not being deleted."""
        resources = {
            str(item["metadata"]["uid"]): _Owner(item["kind"], item["metadata"]["name"])
            for item in self.resources(namespace)
        }

        def under(owners: Mapping[str, _Owner], index: Index) -> Iterator[tuple[Manifest, _Owner]]:
            for item in _items(index, namespace):
                owner = owners.get(_controller_uid(item))
                if owner is not None:
                    yield item, owner

        def made(kind: str) -> dict[str, _Owner]:
            return {
                _uid(item): owner
                for item, owner in under(resources, self.children[kind])
                if item["metadata"]["name"] == owner.workload(kind)
                and item["metadata"].get("deletionTimestamp") is None
            }

        replicas = under(made("Deployment"), self.replica_sets)
        runs = {uid: owner for uid, owner in resources.items() if owner.kind == "FlowAnalysis"}
        jobs = [
            (item, owner)
            for item, owner in under(runs | made("CronJob"), self.children["Job"])
            if item["metadata"].get("deletionTimestamp") is None
        ]
        return made("StatefulSet") | {_uid(item): owner for item, owner in (*replicas, *jobs)}


@dataclass(frozen=True)
class _Owner:
    """A resource for which the operator makes a workload."""

    kind: str
    name: str

    def workload(self, kind: str) -> str | None:
        """The name of the workload of this kind, or None if the operator makes none."""
        names = {
            ("Router", "StatefulSet"): base_name,
            ("Router", "Deployment"): base_name,
            ("GossipRouter", "StatefulSet"): gossip_name,
            ("FlowLog", "Deployment"): flow_log_name,
            ("FlowAnalysis", "CronJob"): flow_analysis_name,
        }
        name = names.get((self.kind, kind))
        return name(self.name) if name is not None else None


_OF_KINDS = {LABEL_ROUTER: "Router", LABEL_FLOW_LOG: "FlowLog", LABEL_FLOW_ANALYSIS: "FlowAnalysis"}
"""Labels of pods that name the resource they are for, and its kind."""


def _is_labelled_for(pod: Manifest, owner: _Owner) -> bool:
    """Return whether the labels of a pod name no other resource than `owner`."""
    labels = pod["metadata"].get("labels") or {}
    return all(
        labels[label] == base_name(owner.name) and kind == owner.kind
        for label, kind in _OF_KINDS.items()
        if label in labels
    )


def _uid(manifest: Manifest) -> str:
    return str(manifest["metadata"]["uid"])


def _controller_uid(manifest: Manifest) -> str:
    return str((controller(manifest) or {}).get("uid"))


def _items(index: Index, namespace: str) -> list[Manifest]:
    return list(index[namespace]) if namespace in index else []
