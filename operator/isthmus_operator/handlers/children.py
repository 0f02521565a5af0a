"""The objects we make, watched so that drift is repaired. Secrets are in `secrets.py`."""

from __future__ import annotations

import kopf

from ..names import CHILD_KINDS
from .watching import select_ours, watch

KINDS = tuple(kind for kind in CHILD_KINDS if kind != "Secret")


def index_name(kind: str) -> str:
    """Name of the index of a kind."""
    return f"children_{kind.lower()}"


def register(registry: kopf.OperatorRegistry) -> None:
    for kind in KINDS:
        watch(registry, kind, index_name(kind), ours=True)


def select(settings: kopf.OperatorSettings) -> None:
    for kind in KINDS:
        select_ours(settings, kind)
