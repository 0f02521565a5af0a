"""ReplicaSets of our Deployments: they control the pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kopf

from ..cluster import Manifest
from ..store import slim
from .watching import select_ours, watch

_METADATA = ("name", "namespace", "uid", "resourceVersion", "ownerReferences")


def register(registry: kopf.OperatorRegistry) -> None:
    watch(registry, "ReplicaSet", "replica_sets", ours=True, copy=_copy)


def select(settings: kopf.OperatorSettings) -> None:
    select_ours(settings, "ReplicaSet")


def _copy(body: Mapping[str, Any]) -> Manifest:
    metadata = {key: body["metadata"][key] for key in _METADATA if key in body["metadata"]}
    return slim({"metadata": metadata}, "ReplicaSet", "apps/v1")
