"""Hints at names that were probably meant cost a namespace a bounded part of a rendering."""

from __future__ import annotations

import time

import pytest
from tests.unit.operator.support import router

from isthmus_operator.model import NamespaceModel
from isthmus_operator.names import MAX_COMPARISONS, Hints, nearest
from isthmus_operator.render import RenderSettings, render
from isthmus_operator.resources.base import API_VERSION


def link_route(name: str, **spec: object) -> dict[str, object]:
    metadata = {"name": name, "namespace": "net", "uid": f"uid-{name}"}
    return {"apiVersion": API_VERSION, "kind": "LinkRoute", "metadata": metadata, "spec": spec}


def test_a_name_that_is_nearly_another() -> None:
    assert nearest("rooter", ["router", "other"]) == "router"
    assert Hints().nearest("rooter", ["router", "other"]) == "router"
    assert nearest("rooter", ["nothing-like-it"]) is None


def test_long_names_and_many_names_have_no_hint() -> None:
    assert nearest("r" * 64, ["r" * 63]) == "r" * 63
    assert nearest("r" * 65, ["r" * 64]) is None
    assert nearest("r" * 64, ["r" * 65]) is None
    assert nearest("r", ["rr", *(f"x{number}" for number in range(199))]) == "rr"
    assert nearest("r", ["rr", *(f"x{number}" for number in range(200))]) is None


def test_comparisons_are_counted() -> None:
    hints = Hints()
    known = [f"name-{number}" for number in range(100)]
    found = [hints.nearest("nam-1", known) for _ in range(MAX_COMPARISONS)]
    assert found[0] == "name-1"
    assert sum(item is not None for item in found) <= MAX_COMPARISONS / len(known)


@pytest.mark.parametrize("length", [60, 199])
def test_missing_routers_of_many_link_routes(length: int) -> None:
    """Names that are alike, so that each comparison is a full one: 512,000 of them would take minutes."""

    def name(number: int) -> str:
        bits = f"{number * 2654435761 % 2**40:040b}".replace("0", "a").replace("1", "b")
        return f"a{bits * 5}"[:length]

    manifests = [
        *(router(name(number), replicas=0) for number in range(80)),
        *(
            link_route(
                f"l{number}",
                prefix=f"p{number}",
                containerId="x",
                routers=[name(1000 + 64 * number + missing) for missing in range(64)],
            )
            for number in range(100)
        ),
    ]
    model = NamespaceModel.from_manifests("net", manifests)
    assert not model.invalid
    begun = time.process_time()
    rendered = render(model, RenderSettings(router_image="router:1"))
    assert time.process_time() - begun < 30
    assert rendered.findings == render(model, RenderSettings(router_image="router:1")).findings
    assert any("does not exist" in finding.message for finding in rendered.findings)
