"""Pods of routers: where to ask, and what Kubernetes says about them."""

from __future__ import annotations

import kopf

from .watching import select_ours, watch


def register(registry: kopf.OperatorRegistry) -> None:
    watch(registry, "Pod", "pods", ours=True)


def select(settings: kopf.OperatorSettings) -> None:
    select_ours(settings, "Pod")
