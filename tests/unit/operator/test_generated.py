"""The published schemas and reference page are those of the models, and what Kubernetes accepts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus_operator.resources.generate import crd, outputs, reference_page
from isthmus_operator.resources.kinds import KINDS, Kind

ROOT = Path(__file__).parents[3]


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from nodes(node["additionalProperties"], f"{path}{{}}")


def schema_nodes(kind: Kind) -> list[tuple[str, dict[str, Any]]]:
    return list(nodes(crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))


def test_generated_files_are_current() -> None:
    stale = [
        str(path) for path, text in outputs(ROOT).items() if not path.exists() or path.read_text() != text
    ]
    assert stale == [], "run `python -m isthmus_operator.resources.generate`"


def test_the_page_says_which_fields_are_required() -> None:
    rows = [line for line in reference_page().splitlines() if line.startswith("| `")]
    required = {row.split("`")[1] for row in rows if row.endswith(" Required. |")}
    assert {"addresses[].distribution", "from.routerRef.name", "secretName"} <= required
    assert not {"mode", "addresses[].prefix", "conditions[].type"} & required


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_a_list_of_many_texts_is_no_set(kind: Kind) -> None:
    """The API server records the owner of each item of a set: 20,000 users of a policy took more than 1 s of its CPU
    with each change of a Router, annotations included."""
    for path, node in schema_nodes(kind):
        if node.get("x-kubernetes-list-type") == "set":
            assert node["maxItems"] <= 64, path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_field_is_typed_described_and_bounded(kind: Kind) -> None:
    for path, node in schema_nodes(kind):
        if path in {"", ".apiVersion", ".kind", ".metadata"}:
            continue
        quantity = node.get("x-kubernetes-int-or-string")
        assert quantity or "type" in node, path
        if not path.endswith(("[]", "{}")):
            assert node.get("description"), path
        if node.get("type") == "string" and "enum" not in node:
            assert "maxLength" in node, path
        if node.get("type") == "integer":
            assert "minimum" in node, path
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_schemas_are_structural(kind: Kind) -> None:
    for path, node in schema_nodes(kind):
        assert not {"$ref", "$defs", "title", "const", "not", "oneOf"} & node.keys(), path
        assert "anyOf" not in node or node.get("x-kubernetes-int-or-string"), path
        assert node.get("additionalProperties") is not False, path
        for rule in node.get("x-kubernetes-validations", []):
            assert rule["message"], path
            assert rule["fieldPath"].startswith("."), path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_items_of_lists_have_no_defaults_that_would_differ_from_what_is_applied(kind: Kind) -> None:
    found = {path for path, node in schema_nodes(kind) if "default" in node}
    assert found, "fields outside of lists have them"
    assert [path for path in found if "[]" in path] == []
