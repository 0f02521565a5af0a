"""Pods of routers: where to ask, and what Kubernetes says about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kopf

from ..cluster import Manifest
from ..store import slim
from .watching import select_ours, watch


def register(registry: kopf.OperatorRegistry) -> None:
    watch(registry, "Pod", "pods", ours=True, copy=_copy)


def select(settings: kopf.OperatorSettings) -> None:
    select_ours(settings, "Pod")


def _copy(body: Mapping[str, Any]) -> Manifest:
    return slim({"metadata": body["metadata"], "status": body.get("status") or {}}, "Pod", "v1")
