"""Whose the fields of an object are, as the API server records it in `metadata.managedFields`. Pure.

The API server records the fields of a creation (POST) under the operation `Update`. A later server-side apply of the
same manager removes only fields that are recorded under the operation `Apply`. So the operator transfers the fields of
what it has created to that operation, as `kubectl apply --server-side` does with fields of client-side applies.

Source: Kubernetes documentation, "Server-Side Apply", and the package `csaupgrade` of client-go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .names import MANAGER

_UNKNOWN = "before-first-apply"
"""The manager of fields that were there before the first server-side apply (`NewSkipNonAppliedManager` of
apimachinery)."""
_NOT_CONTENT = frozenset({"f:apiVersion", "f:kind", "f:metadata", "f:status"})
UNCLAIMED: Mapping[str, Any] = {"manager": MANAGER, "operation": "Update"}
"""An entry of `managedFields` that stands for fields which the operator has recorded under the operation `Update`."""


def is_applied(metadata: Mapping[str, Any], manager: str = MANAGER) -> bool:
    """Whether `manager` has recorded no field of the object under the operation `Update`, other than of its status."""
    return not any(_is_updated(entry, manager) for entry in metadata.get("managedFields") or ())


def is_inherited(metadata: Mapping[str, Any]) -> bool:
    """Whether fields have no known owner because somebody has removed `managedFields`. The API server records them in
    an entry of its own with the next server-side apply, which removes none of them."""
    return any(_is_updated(entry, _UNKNOWN) for entry in metadata.get("managedFields") or ())


def applied(metadata: Mapping[str, Any], manager: str = MANAGER) -> list[dict[str, Any]]:
    """The entries of `managedFields`, where what `manager` has updated counts as applied, and so does the content that
    has no known owner."""
    entries: Sequence[dict[str, Any]] = metadata.get("managedFields") or ()
    updated = [entry for entry in entries if _is_updated(entry, manager)]
    unknown = [entry for entry in entries if _is_updated(entry, _UNKNOWN)]
    if not updated and not unknown:
        return list(entries)
    ours = [*updated, *(entry for entry in entries if _is_of(entry, manager, "Apply"))]
    fields: Mapping[str, Any] = {}
    for entry in ours:
        fields = _union(fields, entry.get("fieldsV1") or {})
    for entry in unknown:
        found = entry.get("fieldsV1") or {}
        fields = _union(fields, {key: item for key, item in found.items() if key not in _NOT_CONTENT})
    others = [entry for entry in entries if entry not in ours and entry not in unknown]
    return [*others, {**(ours or unknown)[0], "manager": manager, "operation": "Apply", "fieldsV1": fields}]


def _is_updated(entry: object, manager: str) -> bool:
    return _is_of(entry, manager, "Update")


def _is_of(entry: object, manager: str, operation: str) -> bool:
    return (
        isinstance(entry, Mapping)
        and entry.get("manager") == manager
        and entry.get("operation") == operation
        and not entry.get("subresource")
    )


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two sets of fields (`FieldsV1`): objects whose keys are fields, and whose values are those below."""
    return {**one, **{key: _union(one.get(key) or {}, value) for key, value in other.items()}}
