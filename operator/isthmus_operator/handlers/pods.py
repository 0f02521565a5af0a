"""Pods of routers: where to ask, and what Kubernetes says about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kopf

from ..cluster import Manifest
from ..names import ANNOTATION_SYNC
from ..store import slim
from .watching import select_ours, watch


def register(registry: kopf.OperatorRegistry) -> None:
    watch(registry, "Pod", "pods", ours=True, copy=copied)


def select(settings: kopf.OperatorSettings) -> None:
    select_ours(settings, "Pod")


def copied(body: Mapping[str, Any]) -> Manifest:
    """What the index holds of a pod. Of the annotations, of which anybody may give it 256 KiB, that is one."""
    metadata = dict(body["metadata"])
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {key: annotations[key] for key in (ANNOTATION_SYNC,) if key in annotations}
    return slim({"metadata": metadata, "status": body.get("status") or {}}, "Pod", "v1")
