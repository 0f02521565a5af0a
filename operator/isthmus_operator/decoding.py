"""JSON from the API server, with bounded nesting. Pure.

The API server bounds the nesting neither of a field that preserves unknown fields nor of `managedFields`. Python's
decoder, and functions that walk through an object, fail on deep nesting. This module replaces values that are nested
too deeply with null, so that the operator can read every object.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAX_LEVELS = 64
"""Most objects and arrays that one value may be nested in. Useful objects have less than 20."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_TOKEN = re.compile(_STRING.pattern + rb"|[\[\]{}]", re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


def decoded(body: bytes | str) -> Any:
    """The JSON document in `body`. Values that are nested in more than `MAX_LEVELS` others are null.

    Raises ValueError when `body` is not JSON.
    """
    return json.loads(shallow(body if isinstance(body, bytes) else body.encode()))


def shallow(body: bytes, levels: int = MAX_LEVELS) -> bytes:
    """The JSON text `body`, in which null replaces each object and array that is nested in `levels` others.

    The time is linear in the length of `body`.
    """
    if sum(map(body.count, (b"{", b"["))) <= levels or _depth(body) <= levels:
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


def _depth(body: bytes) -> int:
    level = deepest = 0
    for found in _BRACKET.finditer(_STRING.sub(b"", body)):
        level += 1 if found[0] in b"[{" else -1
        deepest = max(deepest, level)
    return deepest
