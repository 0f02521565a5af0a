"""The objects we make, watched so that drift is repaired. Secrets are in `secrets.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kopf

from ..bodies import retained
from ..cluster import CHILD_KINDS, Manifest
from ..store import slim
from .watching import select_ours, watch

KINDS = tuple(kind for kind in CHILD_KINDS if kind != "Secret")


def index_name(kind: str) -> str:
    """Name of the index of a kind."""
    return f"children_{kind.lower()}"


def register(registry: kopf.OperatorRegistry) -> None:
    for kind in KINDS:
        watch(registry, kind, index_name(kind), ours=True, copy=_config_map if kind == "ConfigMap" else None)


def select(settings: kopf.OperatorSettings) -> None:
    for kind in KINDS:
        select_ours(settings, kind)


def _config_map(body: Mapping[str, Any]) -> Manifest:
    return slim(retained(body), "ConfigMap", "v1")
