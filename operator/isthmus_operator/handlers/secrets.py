"""Secrets: those that resources refer to, and those that we made.

Which Secret a resource names is not known to a watch, so all of a namespace are watched; those that
nobody refers to (service account tokens, Helm releases) are not kept.
"""

from __future__ import annotations

from typing import Any

import kopf

from .watching import watch

_FOREIGN_TYPES = (
    "helm.sh/",
    "kubernetes.io/service-account-token",
    "kubernetes.io/dockercfg",
    "kubernetes.io/dockerconfigjson",
    "bootstrap.kubernetes.io/token",
)


def register(registry: kopf.OperatorRegistry) -> None:
    watch(registry, "Secret", "secrets", when=_is_relevant)


def _is_relevant(body: kopf.Body, **_: Any) -> bool:
    return not str(body.get("type", "")).startswith(_FOREIGN_TYPES)
