"""Statuses of resources as the API server has stored them. Pure.

The operator reads what it has written before. A status that was stored under another schema can have values of other
types, and nobody can correct it by the API but by its deletion. So readers get only what the schema of this version
allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from .resources.kinds import KINDS


def stored_status(kind: str, value: object) -> dict[str, Any]:
    """`value`, the stored status of a resource of this kind, without fields that the schema does not have or of which
    it does not allow the values. A status that is no object, or none, is empty."""
    if not isinstance(value, Mapping):
        return {}
    model, names = _models()[kind], status_fields(kind)
    status = {key: item for key, item in value.items() if key in names}
    try:
        model.model_validate(status)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        wrong = {item["loc"][0] for item in found if item["loc"]}
        return {key: item for key, item in status.items() if key not in wrong}
    return status


@cache
def status_fields(kind: str) -> frozenset[str]:
    """The names of the fields that a status of a resource of this kind may have."""
    return frozenset(str(field.alias) for field in _models()[kind].model_fields.values())


@cache
def _models() -> Mapping[str, type[BaseModel]]:
    """The models of the statuses, by kind."""
    return {
        kind.kind: next(
            item
            for item in get_args(kind.model.model_fields["status"].annotation)
            if issubclass(item, BaseModel)
        )
        for kind in KINDS
    }
