"""JSON from the API server, with bounded nesting. Pure.

The server bounds nothing below a field that preserves unknown fields, nor what a client puts into `managedFields`.
What is too deep for Python's decoder and for whoever walks through an object is left out, so that an object is watched
and judged whatever its author has written into it.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAX_LEVELS = 64
"""Of objects and arrays in each other. Objects that are any use have less than 20."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_TOKEN = re.compile(_STRING.pattern + rb"|[\[\]{}]", re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


def decoded(body: bytes | str) -> Any:
    """The document in `body`, with null for everything deeper than `MAX_LEVELS`. Raises ValueError."""
    return json.loads(shallow(body if isinstance(body, bytes) else body.encode()))


def shallow(body: bytes, levels: int = MAX_LEVELS) -> bytes:
    """`body` with null for every object and array in more than `levels` of others. In linear time."""
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
