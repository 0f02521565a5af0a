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

UNCLAIMED: Mapping[str, Any] = {"manager": MANAGER, "operation": "Update"}
"""An entry of `managedFields` that stands for fields which the operator has recorded under the operation `Update`."""


def is_applied(metadata: Mapping[str, Any], manager: str = MANAGER) -> bool:
    """Whether `manager` has recorded no field of the object under the operation `Update`, other than of its status."""
    return not any(_is_updated(entry, manager) for entry in metadata.get("managedFields") or ())


def applied(metadata: Mapping[str, Any], manager: str = MANAGER) -> list[dict[str, Any]]:
    """The entries of `managedFields`, where what `manager` has updated counts as applied."""
    entries: Sequence[dict[str, Any]] = metadata.get("managedFields") or ()
    updated = [entry for entry in entries if _is_updated(entry, manager)]
    if not updated:
        return list(entries)
    ours = [*updated, *(entry for entry in entries if _is_of(entry, manager, "Apply"))]
    fields: Mapping[str, Any] = {}
    for entry in ours:
        fields = _union(fields, entry.get("fieldsV1") or {})
    others = [entry for entry in entries if entry not in ours]
    return [*others, {**updated[0], "operation": "Apply", "fieldsV1": fields}]


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
