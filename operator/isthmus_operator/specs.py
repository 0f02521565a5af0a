"""Long specifications of resources: their sizes, and how many a namespace may have.

A value takes many times as much memory as its text, and an author of resources decides how many values there are. kopf
holds all objects at its start until it has listed them. So the watched objects have only the size of a long
specification, and `spec_texts.py` reads it when a namespace is rendered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from .model import InvalidManifest

MAX_PLAIN_BYTES = 64 * 1024
"""Memory of a specification that is held with the watched object. Useful ones take less."""
MAX_LONG_BYTES = 48 * 1024 * 1024
"""Memory for the values of the long specifications of a namespace."""
VALUE_BYTES = 96
"""Memory of a value, beside its text."""
_NOT_LATIN = re.compile(r"\\u(?!00)")
"""A character beyond the first 256, in JSON."""
_SUPPLEMENTARY = re.compile(r"\\u[dD][89abAB]")
"""A character beyond the first 65,536, in JSON."""
_SIZE = "\0"
"""Field of a specification in place of all others: its size. The API server accepts no such field."""
_TEXT = "\1"
"""The text of the specification, beside its size."""
_TOO_LARGE = (
    f"the long specifications of the namespace take more than {MAX_LONG_BYTES >> 20} MiB of memory; shorten or delete "
    "some, such as policies with many users. The oldest resources count first"
)


def packed(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """`manifest` with the size of its specification in place of one that is long."""
    spec = manifest.get("spec")
    if not isinstance(spec, Mapping):
        return manifest
    size = text_bytes(spec)
    return manifest if size <= MAX_PLAIN_BYTES else {**manifest, "spec": {_SIZE: size}}


def long_bytes(manifest: Mapping[str, Any]) -> int:
    """Memory of a long specification. 0: it is not long."""
    spec = manifest.get("spec")
    size = spec.get(_SIZE) if isinstance(spec, Mapping) else None
    return size if isinstance(size, int) else 0


def unpacked(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """`manifest` with the values of the specification of which `with_text` has put in the text."""
    text = manifest["spec"].get(_TEXT) if long_bytes(manifest) else None
    return manifest if text is None else {**manifest, "spec": json.loads(text)}


def with_text(manifest: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """`manifest`, whose specification is long, with the text of `spec`."""
    return {**manifest, "spec": {_SIZE: long_bytes(manifest), _TEXT: _text(spec)}}


def refused(manifests: Iterable[Mapping[str, Any]]) -> Mapping[str, InvalidManifest]:
    """Resources for whose specifications a namespace has no room, by uid."""
    found: dict[str, InvalidManifest] = {}
    left = MAX_LONG_BYTES
    for manifest in sorted(manifests, key=_age):
        size = long_bytes(manifest)
        if size > left:
            metadata = manifest["metadata"]
            found[metadata["uid"]] = InvalidManifest(manifest["kind"], metadata["name"], _TOO_LARGE)
        else:
            left -= size
    return found


def needed(manifests: Iterable[Mapping[str, Any]]) -> int:
    """Memory for the values of the long specifications that are not refused."""
    items = list(manifests)
    out = refused(items)
    return sum(long_bytes(item) for item in items if item["metadata"]["uid"] not in out)


def taken(manifests: Iterable[Mapping[str, Any]]) -> int:
    """Memory for the values of all specifications that are not refused."""
    items = list(manifests)
    plain = (item["spec"] for item in items if not long_bytes(item) and isinstance(item.get("spec"), Mapping))
    return needed(items) + sum(map(text_bytes, plain))


def text_bytes(value: Mapping[str, Any]) -> int:
    """Memory of a value of JSON."""
    return _size(_text(value))


def _text(spec: Mapping[str, Any]) -> str:
    return json.dumps(spec, separators=(",", ":"), default=dict)  # kopf gives a view of a dictionary


def _size(text: str) -> int:
    # Python holds all characters of a string in as many bytes as its widest one needs.
    width = 4 if _SUPPLEMENTARY.search(text) else 2 if _NOT_LATIN.search(text) else 1
    return len(text) * width + VALUE_BYTES * sum(map(text.count, ",[{"))


def _age(manifest: Mapping[str, Any]) -> tuple[str, str]:
    metadata = manifest["metadata"]
    return str(metadata.get("creationTimestamp") or ""), str(metadata["name"])
