"""ReplicaSets of our Deployments: they control the pods."""

from __future__ import annotations

import kopf

from .watching import select_ours, watch


def register(registry: kopf.OperatorRegistry) -> None:
    watch(registry, "ReplicaSet", "replica_sets", ours=True)


def select(settings: kopf.OperatorSettings) -> None:
    select_ours(settings, "ReplicaSet")
