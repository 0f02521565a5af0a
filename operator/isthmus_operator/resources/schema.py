"""From pydantic models to the structural OpenAPI schema of a CustomResourceDefinition.

Kubernetes takes a subset of JSON Schema: no references, no `null` alternatives, no
`additionalProperties: false` beside `properties`. This module rewrites what pydantic produces.

Defaults in the items of lists are told in the description and left to the models: `kubectl apply` replaces
lists of custom resources as a whole, so what the API server filled in there would be a change each time.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

_DROPPED = frozenset({"title", "$defs"})


class _WithDocstrings(GenerateJsonSchema):
    """The docstrings of fields describe them. Pydantic can do that too (`use_attribute_docstrings`), but whenever a
    model is imported: a third of the time that `isthmus` takes to start."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        for name, text in _docstrings_of_fields(model).items():
            found["properties"][model.model_fields[name].alias or name].setdefault("description", text)
        return found


def _docstrings_of_fields(model: type[BaseModel]) -> dict[str, str]:
    """The docstring below each field of `model` that has one."""
    found: dict[str, str] = {}
    for base in reversed(
        [base for base in model.__mro__ if issubclass(base, BaseModel) and base is not BaseModel]
    ):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for field, docstring in zip(body.body, body.body[1:], strict=False):
            match field, docstring:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    if name in model.model_fields:
                        found[name] = inspect.cleandoc(text)
    return found


def structural_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The structural schema of `model`, with every reference resolved in place."""
    document = model.model_json_schema(by_alias=True, mode="validation", schema_generator=_WithDocstrings)
    return _structural(document, document.get("$defs", {}))


def _structural(node: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    node = _without_null(_resolved(node, defs), defs)
    if node.get("x-kubernetes-int-or-string"):
        kept = {key: value for key, value in node.items() if key not in _DROPPED}
        return {key: value for key, value in kept.items() if key != "default" or value is not None}
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key in _DROPPED:
            continue
        if key == "const":
            out["enum"] = [value]
        elif key == "description":
            out[key] = " ".join(value.split())
        elif key == "properties":
            out[key] = {name: _structural(child, defs) for name, child in value.items()}
        elif key == "items":
            out[key] = _without_defaults(_structural(value, defs))
        elif key == "additionalProperties":
            if isinstance(value, dict):
                out[key] = _structural(value, defs)
        elif key == "default" and value is None:
            continue
        elif key == "default" and isinstance(value, dict):
            out[key] = {name: item for name, item in value.items() if item is not None}
        else:
            out[key] = value
    if out.get("x-kubernetes-preserve-unknown-fields"):
        out.pop("additionalProperties", None)
    return out


def default_text(node: dict[str, Any]) -> str:
    """A sentence about the default of a field, or nothing."""
    return f" Default: `{json.dumps(node['default']).strip(chr(34))}`." if "default" in node else ""


def _without_defaults(node: dict[str, Any]) -> dict[str, Any]:
    """`node` with all defaults in its description only."""
    out = {key: value for key, value in node.items() if key != "default"}
    if "default" in node:
        out["description"] = (node.get("description", "") + default_text(node)).strip()
    if "properties" in out:
        out["properties"] = {name: _without_defaults(child) for name, child in out["properties"].items()}
    return out


def _resolved(node: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """`node` with its `$ref` replaced by the definition; keys beside the reference win."""
    if "$ref" not in node:
        return node
    target = defs[node["$ref"].removeprefix("#/$defs/")]
    return {**_resolved(target, defs), **{key: value for key, value in node.items() if key != "$ref"}}


def _without_null(node: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """An optional field is an absent one: `anyOf [X, null]` becomes X."""
    choices = node.get("anyOf")
    if not choices or node.get("x-kubernetes-int-or-string"):
        return node
    present = [choice for choice in choices if choice.get("type") != "null"]
    if len(present) != 1:
        raise TypeError(f"a union has no structural schema: {choices}")
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    return {**_resolved(present[0], defs), **rest}
