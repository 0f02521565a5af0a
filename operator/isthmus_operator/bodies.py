"""The part of watched Secrets and ConfigMaps that the operator retains.

The API server sends whole objects, and kopf holds what it is processing. A tenant decides how many there are and how
large they are, so each one is reduced right after it is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .names import LABEL_MANAGED_BY, LABEL_PROFILE, LABEL_USE, MANAGER, secrets_of
from .resources.base import GROUP

_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_LABELS = (LABEL_MANAGED_BY, LABEL_PROFILE, LABEL_USE)


KINDS = ("Secret", "ConfigMap")


def retained(secret: Mapping[str, Any]) -> Mapping[str, Any]:
    """`secret`, or a ConfigMap, as it is if the operator has made it for a resource. Otherwise without its content, and
    of its metadata only what tells whether a resource may use it, and whose it is."""
    metadata = secret.get("metadata")
    if not isinstance(metadata, Mapping):
        return secret
    owner = _controller(metadata)
    labels = metadata.get("labels") or {}
    if labels.get(LABEL_MANAGED_BY) == MANAGER and owner is not None and _is_made_for(owner, metadata):
        return secret
    short: dict[str, Any] = {key: metadata[key] for key in _METADATA if key in metadata}
    short["labels"] = {key: labels[key] for key in _LABELS if key in labels}
    if owner is not None:
        short["ownerReferences"] = [owner]
    kept = {key: secret[key] for key in ("apiVersion", "kind", "type") if key in secret}
    return {**kept, "metadata": short}


def _controller(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    references = metadata.get("ownerReferences") or ()
    return next((item for item in references if item.get("controller")), None)


def _is_made_for(owner: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    group, name = str(owner.get("apiVersion")).partition("/")[0], str(owner.get("name") or "")
    return group == GROUP and bool(name) and metadata.get("name") in secrets_of(name)
