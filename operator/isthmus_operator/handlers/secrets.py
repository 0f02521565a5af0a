"""Secrets: those that resources refer to, and those that we made.

Which Secret a resource names is not known to a watch, so all of a namespace are watched; those that
nobody refers to (service account tokens, Helm releases) are not kept. Content is kept of our own Secrets only.
`contents.py` reads that of Secrets which resources name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kopf

from .watching import watch

_FOREIGN_TYPES = ("helm.sh/", "kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token")


def register(registry: kopf.OperatorRegistry) -> None:
    watch(registry, "Secret", "secrets", when=is_relevant)


def is_relevant(body: Mapping[str, Any], **_: Any) -> bool:
    """Whether resources may refer to a Secret of this type."""
    return not str(body.get("type", "")).startswith(_FOREIGN_TYPES)
