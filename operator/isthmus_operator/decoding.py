"""JSON from the API server, with bounded nesting.

The API server bounds the nesting neither of a field that preserves unknown fields nor of `managedFields`. Python's
decoder, and functions that walk through an object, fail on deep nesting. This module replaces values that are nested
too deeply with null, so that the operator can read every object.

A document may contain all resources of a kind, so long ones are decoded in a thread of their own.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

from .bodies import KINDS, retained
from .resources.pods import MAX_POD_VALUES, values

MAX_LEVELS = 64
"""Most objects and arrays that one value may be nested in. Useful objects have less than 20."""

LONG_BYTES = 64 * 1024
"""A document of this length is decoded in a thread of its own."""
_TOO_MANY = {"": [0] * (MAX_POD_VALUES + 1)}
"""In place of a `podTemplate.spec` with more values than are valid: as invalid, and short."""
_LISTS = tuple(f"{kind}List" for kind in KINDS)
_Result = TypeVar("_Result")

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_TOKEN = re.compile(_STRING.pattern + rb"|[\[\]{}]", re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SQUARE = bytes.maketrans(b"{}", b"[]")


def decoded(body: bytes | str) -> Any:
    """The JSON document in `body`. Values that are nested in more than `MAX_LEVELS` others are null.

    Raises ValueError when `body` is not JSON.
    """
    found = json.loads(shallow(body if isinstance(body, bytes) else body.encode()))
    if isinstance(found, dict):
        for item in (found, found.get("object"), *_listed(found.get("items"))):
            _shorten(item)
    return found


def watched(body: bytes | str) -> Any:
    """The same of a list or an event of a watch, with the part of Secrets and ConfigMaps that is retained."""
    found = decoded(body)
    if not isinstance(found, dict):
        return found
    if found.get("kind") in _LISTS:
        found["items"] = [
            retained(item) if isinstance(item, dict) else item for item in _listed(found.get("items"))
        ]
    item = found.get("object")
    if isinstance(item, dict) and item.get("kind") in KINDS:
        found["object"] = retained(item)
    return found


async def apart(function: Callable[[bytes], _Result], body: bytes) -> _Result:
    """The result of `function` for `body`, in a thread of its own where `body` is long."""
    return function(body) if len(body) < LONG_BYTES else await asyncio.to_thread(function, body)


def line(body: bytes) -> bytes:
    """One line of a watch, as `decoded` understands it: the reader decodes it in the event loop."""
    if len(body) < LONG_BYTES:
        return shallow(body)
    try:
        return json.dumps(watched(body)).encode()
    except ValueError:
        return shallow(body)


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _shorten(manifest: object) -> None:
    """Nothing else in a resource has fields without a schema, which may have as many values as the API server takes."""
    spec = manifest.get("spec") if isinstance(manifest, dict) else None
    template = spec.get("podTemplate") if isinstance(spec, dict) else None
    if isinstance(template, dict) and values(template.get("spec"), MAX_POD_VALUES) > MAX_POD_VALUES:
        template["spec"] = _TOO_MANY


def shallow(body: bytes, levels: int = MAX_LEVELS) -> bytes:
    """The JSON text `body`, in which null replaces each object and array that is nested in `levels` others.

    The time is linear in the length of `body`.
    """
    if sum(map(body.count, (b"{", b"["))) <= levels or not _is_deeper(body, levels):
        return body
    parts: list[bytes] = []
    level = begin = 0
    for found in _TOKEN.finditer(body):
        if found[0] in (b"{", b"["):
            level += 1
            if level == levels + 1:
                parts += [body[begin : found.start()], b"null"]
        elif found[0] in (b"}", b"]"):
            if level == levels + 1:
                begin = found.end()
            level -= 1
    if level <= levels:
        parts.append(body[begin:])
    return b"".join(parts)


def _is_deeper(body: bytes, levels: int) -> bool:
    """Whether objects and arrays are nested in more than `levels` others; also where brackets do not match.

    Each pass takes away the innermost ones, without a look at each of them in Python.
    """
    rest = _STRING.sub(b"", body).translate(_SQUARE, _NO_BRACKETS)
    for _ in range(levels):
        if not rest:
            return False
        rest = rest.replace(b"[]", b"")
    return bool(rest)
