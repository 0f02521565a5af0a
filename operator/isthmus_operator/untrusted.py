"""Documents that pods send: JSON with bounds, and values of a checked type, range and length. Pure.

The sender may be hostile. Nothing here costs more than a small multiple of the number of bytes received.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from isthmus_router.printable import replaced

from .collecting import uncollected

MAX_DEPTH = 24
"""Of arrays and objects in each other; a router's status has seven."""
MAX_ELEMENTS = 200_000
"""Values in one document."""
MAX_ENTRIES = 20_000
"""Entries of one list that a report is made from."""
MAX_NUMBER = 2**53
"""Beyond it, not all programs that read JSON have the same number."""
MAX_INTEGER = 2**64
MAX_NAME = 253
MAX_TEXT = 1024

FAILURES = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What reading a document of the wrong form raises."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or the rest of a document whose last string does not end: a match at every quote keeps this linear."""
_NESTING = re.compile(rb"[\[\]{}]")


def document(body: bytes, *, depth: int = MAX_DEPTH, elements: int = MAX_ELEMENTS) -> Any:
    """The JSON document in `body`. Raises ValueError, also for one that is too deep or has too many values."""
    bare = _STRING.sub(b"", body)
    if sum(map(bare.count, (b",", b"[", b"{"))) >= elements:
        raise ValueError(f"more than {elements} values")
    level = 0
    for found in _NESTING.finditer(bare):
        level += 1 if found[0] in b"[{" else -1
        if level > depth:
            raise ValueError(f"more than {depth} levels")
    try:
        with uncollected():
            return json.loads(body, parse_float=_number, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None


def _number(text: str) -> float:
    """A number with a fraction or an exponent. Other threads run between two calls of a function of Python."""
    return float(text)


def _no_constant(text: str) -> Any:
    raise ValueError(text)


def malformed(what: str, error: Exception) -> ValueError:
    """The error about a document that is not `what`, without more of its content than an excerpt."""
    return ValueError(f"not {what}: {clean(repr(error), 200)}")


def text(value: object, limit: int = MAX_TEXT) -> str:
    """A string without control characters, cut to `limit`; a number is written out. Raises ValueError."""
    if not isinstance(value, str):
        if isinstance(value, int | float):
            return str(value)[:limit]
        raise ValueError(f"{type(value).__name__} instead of a text")
    return clean(value, limit)


def name(value: object) -> str:
    """A text as long as names in Kubernetes may be. Raises ValueError."""
    return text(value, MAX_NAME)


def optional_name(value: object) -> str | None:
    """The same, or None."""
    return None if value is None else name(value)


def clean(value: str, limit: int) -> str:
    """`value` in at most `limit` characters. Control and invisible characters and surrogates, which terminals or the
    API server do not accept, are replaced."""
    return replaced(value[:limit])


_ENDS_OF_LINES = str.maketrans("\t\n\r", "   ")


def shown(value: Any) -> Any:
    """A status with all its texts as `clean` makes them, on one line each."""
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else replaced(value.translate(_ENDS_OF_LINES))
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return value


def scrubbed(value: Any) -> Any:
    """A document from `document` with all its texts and keys clean, and all its numbers finite. Raises ValueError."""
    if isinstance(value, str):
        return clean(value, MAX_TEXT)
    if isinstance(value, list):
        return [scrubbed(item) for item in listed(value)]
    if isinstance(value, dict):
        return {clean(key, MAX_TEXT): scrubbed(item) for key, item in mapping(value).items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number that is not finite")
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ValueError("a number that is too large")
    return value


def count(value: object, highest: int = MAX_NUMBER) -> int:
    """A whole number from 0 to `highest`. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
        raise ValueError(f"{clean(repr(value)[:40], 40)} instead of a number from 0 to {highest}")
    return value


def total(counts: Iterable[int]) -> int:
    """The sum of counts; what is more than `MAX_NUMBER` is that number."""
    return min(sum(counts), MAX_NUMBER)


def optional_count(value: object, highest: int = MAX_NUMBER) -> int | None:
    """The same, or None."""
    return None if value is None else count(value, highest)


def seconds(value: object) -> float:
    """A duration of at most some 30 years. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{type(value).__name__} instead of a number of seconds")
    if not math.isfinite(value) or not 0 <= value <= 1e9:
        raise ValueError(f"{value:.3g} instead of a number of seconds")
    return float(value)


def flag(value: object) -> bool:
    """Raises ValueError."""
    if not isinstance(value, bool):
        raise ValueError(f"{type(value).__name__} instead of true or false")
    return value


def mapping(value: object) -> Mapping[str, Any]:
    """An object. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"{type(value).__name__} instead of an object")
    if len(value) > MAX_ENTRIES:
        raise ValueError(f"more than {MAX_ENTRIES} entries")
    return value


def listed(value: object) -> list[Any]:
    """A list with a bounded number of entries; none for null. Raises ValueError."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{type(value).__name__} instead of a list")
    if len(value) > MAX_ENTRIES:
        raise ValueError(f"more than {MAX_ENTRIES} entries")
    return value


def objects(value: object) -> Iterator[Mapping[str, Any]]:
    """The entries of a list of objects. Raises ValueError."""
    return map(mapping, listed(value))
