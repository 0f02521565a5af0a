"""QUERY and READ: rows, a slice at a time, so that a large router goes on forwarding meanwhile."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from isthmus_router.management.entity_types import EntityType
from isthmus_router.management.errors import ForbiddenError, NotFoundError, UnimplementedError
from isthmus_router.management.port import ManagementView
from isthmus_router.management.request import Request, Work
from isthmus_router.message.types import Encoded, EncodeError, encode

ROWS_PER_SLICE = 8
"""A row takes up to some tens of microseconds."""
BYTES_PER_SLICE = 16 * 1024
"""Of rows; a peer's own properties can make one row thousands of times as large as another."""
RESPONSE_BYTES = 4 * 1024 * 1024
"""Of rows in one QUERY response; ask for the rest by offset."""
PASSED_PER_SLICE = 32
"""Rows that are only looked at."""

Found: TypeAlias = tuple[EntityType, Any]
"""A type and one of its rows."""


def query(view: ManagementView, types: Mapping[str, EntityType], request: Request) -> Work:
    """Rows of one type, or of all that are listed, from an offset."""
    offset, count = request.paging
    names = list(dict.fromkeys(request.attribute_names))
    entity_type = request.type_queried
    if entity_type:
        asked: Sequence[EntityType] = [entity_type]
        unknown = [name for name in names if name not in entity_type.columns]
        if unknown and not entity_type.lenient:
            full_name = request.family.type_name(entity_type)
            raise NotFoundError(f"Unknown attributes {unknown} for type {full_name!r}")
    else:
        asked = [t for t in types.values() if t.listed]
    names = names or list(dict.fromkeys(name for t in asked for name in t.columns))
    readers = {t.name: [request.family.reader(t, name) for name in names] for t in asked}
    results: list[Encoded] = []
    room, left = RESPONSE_BYTES, BYTES_PER_SLICE
    rows = _rows(view, asked, offset)
    while room > 0 and (count is None or len(results) < count):
        try:
            found = next(rows)
        except StopIteration:
            break
        if found is not None:
            results.append(_encoded([read(found[1]) for read in readers[found[0].name]]))
            room -= len(results[-1])
            left -= len(results[-1])
        if found is None or len(results) % ROWS_PER_SLICE == 0 or left <= 0:
            left = BYTES_PER_SLICE
            yield
    return 200, {"attributeNames": names, "results": results}


def _rows(view: ManagementView, types: Sequence[EntityType], offset: int) -> Iterator[Found | None]:
    """Rows after the first `offset`; None when other work may have its turn first."""
    if len(types) == 1:
        yield from (None if row is None else (types[0], row) for row in types[0].rows(view, offset))
        return
    for entity_type in types:
        for row in entity_type.rows(view, 0):
            if row is None:
                yield None
            elif offset:
                offset -= 1
                if offset % PASSED_PER_SLICE == 0:
                    yield None
            else:
                yield entity_type, row


def _encoded(values: list[object]) -> Encoded:
    try:
        return Encoded(encode(values))
    except EncodeError:
        return Encoded(encode([_encodable(value) for value in values]))


def _encodable(value: object) -> object:
    """What a peer told of itself may have no encoding: it is left out."""
    try:
        encode(value)
    except EncodeError:
        return None
    return value


def find(
    view: ManagementView, types: Mapping[str, EntityType], request: Request, operation: str
) -> Generator[None, None, Found]:
    """The entity a request is about, by identity or name."""
    entity_type = request.type_asked("type")
    family = request.family
    if entity_type:
        check_operation(entity_type, operation, request)
    key, wanted = request.key
    passed = 0
    for found_type in [entity_type] if entity_type else types.values():
        if key not in found_type.columns:
            continue
        # Names that skupper-router gives are identities here, e.g. `vhost/$default`.
        keys = ("name", "identity") if key == "name" else (key,)
        reads = [family.reader(found_type, name) for name in keys]
        for row in found_type.rows(view, 0):
            if row is None:
                yield
                continue
            if any(read(row) == wanted for read in reads):
                check_operation(found_type, operation, request)
                return found_type, row
            passed += 1
            if passed % PASSED_PER_SLICE == 0:
                yield
    of_type = f" of type {family.type_name(entity_type)!r}" if entity_type else ""
    raise NotFoundError(f"No entity{of_type} with {key}={wanted!r}")


def check_operation(entity_type: EntityType, operation: str, request: Request) -> None:
    """Raises UnimplementedError, or ForbiddenError with what to do, unless the type allows the operation."""
    if operation not in entity_type.operations:
        known = ", ".join(entity_type.operations)
        full_name = request.family.type_name(entity_type)
        if operation == "DELETE" and entity_type.name in ("connection", "router.link"):
            raise ForbiddenError(f"{full_name!r} cannot be deleted: update its adminStatus to 'deleted'")
        raise UnimplementedError(f"Operation {operation!r} not implemented for {full_name!r} [{known}]")
