"""JSON from the API server, with bounded nesting and a bounded number of values.

The API server bounds neither the nesting nor the number of values of a field that preserves unknown fields, of
`managedFields`, labels, finalizers and owners. Python's decoder, and functions that walk through an object, fail on
deep nesting, and a value takes up to 25 times as much memory as its text. This module replaces values that are nested
too deeply with null, and leaves out the parts of an object that have too many values, so that the operator can read
every object.

A document may contain many resources of a kind. Their values exist one object at a time before they are shortened, and
one thread decodes all long documents, so that they do not need this memory at the same time.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from .bodies import POD_KINDS, described, retained
from .collecting import uncollected
from .names import CHILD_KINDS, LABEL_MANAGED_BY, MANAGER
from .resources import RESOURCE_KINDS
from .resources.base import GROUP
from .resources.pods import MAX_POD_VALUES, values
from .specs import packed

MAX_LEVELS = 64
"""Most objects and arrays that one value may be nested in. Useful objects have less than 20."""

LONG_BYTES = 64 * 1024
"""A document of this length is decoded in a thread of its own."""
MAX_QUICK_VALUES = 5_000
"""So is one with more values. Useful objects of less than `LONG_BYTES` have less than half."""

LIST_CHUNK = 10
"""Objects in one answer to a list, of which each may have several MiB."""

MAX_KEYS = 256
"""Labels, annotations, finalizers or owners of an object. Pods that the operator describes have less than 100."""
MAX_OWNERSHIP_VALUES = 5_000
"""In `managedFields` of an object of the operator; those of other objects are never retained."""
MAX_SPEC_VALUES = 100_000
"""In `spec`; the schema of a Router allows 91,079."""
MAX_PART_VALUES = 20_000
"""In any other part of an object, or of a status."""
MAX_CONTAINERS = 20_000
"""Objects and arrays that the decoder makes in one call, during which no other thread runs. The configurations and
policies of useful resources have less than a tenth."""
_TOO_MANY = {"": [0] * (MAX_POD_VALUES + 1)}
"""In place of a `spec` or a `podTemplate.spec` with more values than are valid: as invalid, and short."""
_WALKED = frozenset({"object", "metadata", "spec", "podTemplate", "status"})
"""Fields whose own fields are decoded one by one in a document with many objects and arrays."""
_WALKED_LEVELS = 6
"""Of these in each other: `spec.podTemplate.spec` of the object in an event or of an item of a list."""
_LISTS = {f"{kind}List": kind for kind in (*CHILD_KINDS, *POD_KINDS, *RESOURCE_KINDS)}
"""Kind of a list to that of its items, which do not state it."""
_OUR_KEYS = (f"{GROUP}/", "app.kubernetes.io/")
_LONG_DOCUMENTS = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decoding")
_JSON = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_Result = TypeVar("_Result")

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_TOKEN = re.compile(_STRING.pattern + rb"|[\[\]{}]", re.DOTALL)
_TEXT_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SQUARE = bytes.maketrans(b"{}", b"[]")


def decoded(body: bytes | str) -> Any:
    """The JSON document in `body`: an object, a list of objects, or an event of a watch with one.

    Values that are nested in more than `MAX_LEVELS` others of their object are null, and parts of objects with too many
    values are left out. Raises ValueError when `body` is not JSON.
    """
    text = body if isinstance(body, str) else _text(body)
    levels = _WALKED_LEVELS if sum(map(text.count, "[{")) > MAX_CONTAINERS else 1
    mark, at = _next(text, 0)
    with uncollected():
        found, at = _fields(text, at, levels) if mark == "{" else _value(text, at)
        if _next(text, at)[0]:
            raise ValueError("more than one document")
        if isinstance(found, dict):
            _shorten(found)
            _shorten(found.get("object"))
        return _cut(found)


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        # That error holds the document, which may contain the keys of Secrets, and would bring it into the log.
        raise ValueError(f"no UTF-8 at {error.start}") from None


def watched(body: bytes | str) -> Any:
    """The same of a list or an event of a watch, with the part of the objects that is retained."""
    found = decoded(body)
    if not isinstance(found, dict):
        return found
    kind = _LISTS.get(str(found.get("kind")))
    if kind is not None:
        items = _listed(found.get("items"))
        for at, item in enumerate(items):  # one by one, so that not all of them are there twice
            items[at] = _held(item, kind)
        found["items"] = items
    item = found.get("object")
    if isinstance(item, dict):
        found["object"] = _held(item, str(item.get("kind")))
    return found


def _held(item: Any, kind: str) -> Any:
    """The part of an object of this kind that is retained."""
    if isinstance(item, dict) and kind in (*CHILD_KINDS, *POD_KINDS):
        return retained(item, kind)
    if isinstance(item, dict) and kind in RESOURCE_KINDS:
        return packed(described(item, kind))
    return item


async def apart(function: Callable[[bytes], _Result], body: bytes) -> _Result:
    """The result of `function` for `body`. One thread computes those of long documents, one at a time."""
    if not _is_long(body):
        return function(body)
    return await asyncio.get_running_loop().run_in_executor(_LONG_DOCUMENTS, function, body)


def _is_long(body: bytes) -> bool:
    return len(body) >= LONG_BYTES or sum(map(body.count, (b"[", b"{", b","))) > MAX_QUICK_VALUES


def line(body: bytes) -> bytes:
    """One line of a watch, as `decoded` understands it: the reader decodes it in the event loop."""
    if not _is_long(body):
        return shallow(body)
    try:
        return json.dumps(watched(body)).encode()
    except ValueError:
        return shallow(body)


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _next(text: str, at: int) -> tuple[str, int]:
    """The first character from `at` on that is no space, and where it is. Empty at the end."""
    found = _SPACE.match(text, at)
    at = found.end() if found is not None else at
    return text[at : at + 1], at


def _fields(text: str, at: int, levels: int, *, of_spec: bool = False) -> tuple[dict[str, Any], int]:
    """The object that begins at `at`, and where it ends. Its `items` are decoded and shortened one by one. With more
    than one of `levels`, so are the fields of objects in it, and those with too many objects and arrays are not."""
    found: dict[str, Any] = {}
    mark, at = _next(text, at + 1)
    while mark != "}":
        if mark != '"':
            raise ValueError(f"no JSON at {at}")
        key, at = _value(text, at)
        colon, at = _next(text, at)
        if colon != ":":
            raise ValueError(f"no JSON at {at}")
        mark, at = _next(text, at + 1)
        of_spec_too = of_spec or key == "spec"
        if (key, mark) == ("items", "[") and not of_spec:
            found[key], at = _items(text, at, levels)
        elif levels > 1 and mark == "{" and key in _WALKED:
            found[key], at = _fields(text, at, levels - 1, of_spec=of_spec_too)
        # The API server requires so much text of each owner that an object has few of them.
        elif levels > 1 and key != "ownerReferences" and (end := _end_of_many(text, at)) is not None:
            at = end
            if of_spec_too:
                found[key] = _TOO_MANY
        else:
            found[key], at = _value(text, at)
        mark, at = _after(text, at, "}")
    return found, at + 1


def _items(text: str, at: int, levels: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    mark, at = _next(text, at + 1)
    while mark != "]":
        item, at = _fields(text, at, levels - 1) if levels > 1 and mark == "{" else _value(text, at)
        _shorten(item)
        found.append(_cut(item))
        mark, at = _after(text, at, "]")
    return found, at + 1


def _after(text: str, at: int, end: str) -> tuple[str, int]:
    """What follows a value of an object or an array: the next one, or the `end`."""
    mark, at = _next(text, at)
    if mark == ",":
        return _next(text, at + 1)
    if mark != end:
        raise ValueError(f"no JSON at {at}")
    return mark, at


def _value(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at `at`, and where it ends."""
    try:
        return _JSON.raw_decode(text, at)
    except RecursionError:
        end = _end(text, at)
        assert end is not None
        return json.loads(shallow(text[at:end].encode("utf-8", "surrogatepass"))), end


def _end(text: str, at: int, most: int = -1) -> int | None:
    """Where the object or array ends that begins at `at`. None: there are at most `most` objects and arrays in it."""
    level = count = 0
    for found in _TEXT_TOKEN.finditer(text, at):
        if found[0] in "[{":
            level += 1
            count += 1
        elif found[0] in "]}":
            level -= 1
            if not level:
                return found.end() if count > most else None
    raise ValueError("no JSON: an object does not end")


def _end_of_many(text: str, at: int) -> int | None:
    """Where the value ends that begins at `at`, if it has more objects and arrays than the decoder may make at once."""
    return _end(text, at, MAX_CONTAINERS) if text[at] in "[{" else None


def _shorten(manifest: object) -> None:
    """Leaves out the parts of an object that have more values than valid ones have."""
    if not isinstance(manifest, dict):
        return
    metadata = manifest.get("metadata")
    if isinstance(metadata, dict):
        _shorten_metadata(metadata)
    spec = manifest.get("spec")
    template = spec.get("podTemplate") if isinstance(spec, dict) else None
    if isinstance(template, dict) and _has_more(template.get("spec"), MAX_POD_VALUES):
        template["spec"] = _TOO_MANY
    status = manifest.get("status")
    if isinstance(status, dict):
        _leave_out(status, MAX_PART_VALUES)
    if _has_more(spec, MAX_SPEC_VALUES):
        manifest["spec"] = _TOO_MANY
    _leave_out(manifest, MAX_PART_VALUES, ("metadata", "spec", "status", "items", "object"))


def _shorten_metadata(metadata: dict[str, Any]) -> None:
    for kind in ("labels", "annotations"):
        keys = metadata.get(kind)
        if isinstance(keys, dict) and len(keys) > MAX_KEYS:
            ours = [key for key in keys if key.startswith(_OUR_KEYS)]
            metadata[kind] = {key: keys[key] for key in ours[:MAX_KEYS]}
    for kind in ("finalizers", "ownerReferences"):
        items = metadata.get(kind)
        if isinstance(items, list) and len(items) > MAX_KEYS:
            controllers = [item for item in items if isinstance(item, dict) and item.get("controller")]
            metadata[kind] = [*controllers[:1], *items[:MAX_KEYS]]
    labels = metadata.get("labels")
    is_ours = isinstance(labels, dict) and labels.get(LABEL_MANAGED_BY) == MANAGER
    if not is_ours or _has_more(metadata.get("managedFields"), MAX_OWNERSHIP_VALUES):
        metadata.pop("managedFields", None)


def _leave_out(manifest: dict[str, Any], most: int, other_than: tuple[str, ...] = ()) -> None:
    for key in [key for key in manifest if key not in other_than and _has_more(manifest[key], most)]:
        del manifest[key]


def _has_more(value: Any, most: int) -> bool:
    return values(value, most) > most


def _cut(value: Any) -> Any:
    """`value`, in which null has replaced each object and array that is nested in `MAX_LEVELS` others."""
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_LEVELS - 1):
        level = [child for item in level for child in _children(item) if isinstance(child, dict | list)]
        if not level:
            return value
    for item in level:
        for key, child in list(item.items() if isinstance(item, dict) else enumerate(item)):
            if isinstance(child, dict | list):
                item[key] = None
    return value


def _children(item: dict[str, Any] | list[Any]) -> Any:
    return item.values() if isinstance(item, dict) else item


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
