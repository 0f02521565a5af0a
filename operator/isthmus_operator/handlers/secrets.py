"""Secrets: those that resources refer to, and those that we made.

Which Secret a resource names is not known to a watch, so all of a namespace are watched; those that
nobody refers to (service account tokens, Helm releases) are not kept. Of those that resources may not use, and of
credentials for registries, which the kubelet reads, no content is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import kopf

from ..cluster import Manifest
from ..store import is_ours, is_usable, slim
from .watching import watch

_FOREIGN_TYPES = ("helm.sh/", "kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token")
_REGISTRY_TYPES = ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson")
_METADATA = ("name", "namespace", "uid", "resourceVersion", "labels", "deletionTimestamp")


def register(registry: kopf.OperatorRegistry, *, label_required: bool) -> None:
    copy = partial(copied, label_required=label_required)
    watch(registry, "Secret", "secrets", when=is_relevant, copy=copy)


def is_relevant(body: Mapping[str, Any], **_: Any) -> bool:
    """Whether resources may refer to a Secret of this type."""
    return not str(body.get("type", "")).startswith(_FOREIGN_TYPES)


def copied(body: Mapping[str, Any], *, label_required: bool) -> Manifest:
    """What the index holds of a Secret: without its content only whether resources may use it."""
    readable = is_ours(body) or is_usable(body, label_required=label_required)
    if readable and body.get("type") not in _REGISTRY_TYPES:
        return slim(body, "Secret", "v1")
    metadata = {key: body["metadata"][key] for key in _METADATA if key in body["metadata"]}
    return slim({"metadata": metadata, "type": body.get("type")}, "Secret", "v1")
