"""Long specifications of resources, which the operator holds as text.

A value takes many times as much memory as its text, and an author of resources decides how many values there are. kopf
holds all objects at its start until it has listed them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from .model import InvalidManifest

MAX_PLAIN_BYTES = 16 * 1024
"""Text of a specification that is held as values. Useful ones have less."""
MAX_LONG_BYTES = 48 * 1024 * 1024
"""Memory for the values of the long specifications of a namespace."""
VALUE_BYTES = 96
"""Memory of a value, beside its text."""
_TEXT = "\0"
"""Field of a specification in place of all others. The API server accepts no such field."""
_TOO_LARGE = (
    f"the long specifications of the namespace take more than {MAX_LONG_BYTES >> 20} MiB of memory; shorten or delete "
    "some, such as policies with many users. The oldest resources count first"
)


def packed(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """`manifest` with its specification as text if that is long."""
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping):
        return manifest
    text = json.dumps(spec, separators=(",", ":"))
    return manifest if len(text) <= MAX_PLAIN_BYTES else {**manifest, "spec": {_TEXT: text}}


def unpacked(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The manifest of which `packed` has made `manifest`."""
    text = _long(manifest)
    return manifest if text is None else {**manifest, "spec": json.loads(text)}


def refused(manifests: Iterable[Mapping[str, Any]]) -> Mapping[str, InvalidManifest]:
    """Resources for whose specifications a namespace has no room, by uid."""
    found: dict[str, InvalidManifest] = {}
    left = MAX_LONG_BYTES
    for manifest in sorted(manifests, key=_age):
        text = _long(manifest)
        if text is None:
            continue
        size = len(text) + VALUE_BYTES * sum(map(text.count, ",[{"))
        if size > left:
            metadata = manifest["metadata"]
            found[metadata["uid"]] = InvalidManifest(manifest["kind"], metadata["name"], _TOO_LARGE)
        else:
            left -= size
    return found


def _long(manifest: Mapping[str, Any]) -> str | None:
    spec = manifest.get("spec")
    text = spec.get(_TEXT) if isinstance(spec, Mapping) else None
    return text if isinstance(text, str) else None


def _age(manifest: Mapping[str, Any]) -> tuple[str, str]:
    metadata = manifest["metadata"]
    return str(metadata.get("creationTimestamp") or ""), str(metadata["name"])
