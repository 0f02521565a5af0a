"""The digest of an object's content, and large objects that have it in place of their content. Pure.

The operator compares each object that it makes with what it should be. A tenant decides how large these objects are,
because they contain configurations, certificates and pod templates, and how many there are. So of a large one the
watched object has only a digest, which tells whether the content is what the operator has written. Where it is not,
or the operator has not written it since its start, it reads the object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .names import digest

_FIELD = "\0digest"
"""Field of an object in place of its content. The API server sends no such field."""
_CHANGING = frozenset({"resourceVersion", "managedFields", "generation", "deletionTimestamp"})
"""Metadata that change without the content."""
_UNCOUNTED = frozenset({"apiVersion", "kind", "metadata", "status"})
"""Fields that are not content. The items of a list have no kind."""


def fingerprint(manifest: Mapping[str, Any]) -> str:
    """The digest of an object without what changes by itself."""
    known = manifest.get(_FIELD)
    if isinstance(known, str):
        return known
    content = {key: value for key, value in manifest.items() if key not in _UNCOUNTED}
    metadata = {key: value for key, value in manifest["metadata"].items() if key not in _CHANGING}
    # kopf gives a view of a dictionary.
    return digest(json.dumps([metadata, content], sort_keys=True, separators=(",", ":"), default=dict))


def is_digested(manifest: Mapping[str, Any]) -> bool:
    """Whether the object has the digest in place of its content."""
    return _FIELD in manifest


def digested(manifest: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """`kept`, a part of `manifest`, with the digest of `manifest`."""
    return {**kept, _FIELD: fingerprint(manifest)}
