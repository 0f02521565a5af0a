"""Routers whose configuration no Secret can hold are refused before it is made in many copies."""

from __future__ import annotations

import tracemalloc
from base64 import b64decode

import pytest
from tests.unit.operator.support import router

from isthmus_operator.model import NamespaceModel
from isthmus_operator.render import Rendered, RenderSettings, kubernetes, render

SETTINGS = RenderSettings(router_image="router:1")


def users(number: int) -> dict[str, object]:
    names = [f"{index:04d}{'u' * 996}" for index in range(number)]
    return {"policy": {"groups": [{"name": "g", "users": names}]}}


def rendered(*manifests: dict[str, object]) -> Rendered:
    model = NamespaceModel.from_manifests("net", manifests)
    assert not model.invalid
    return render(model, SETTINGS)


def secret_bytes(found: Rendered, name: str) -> int:
    [secret] = [item for item in found.routers[name].objects if item["kind"] == "Secret"]
    return sum(len(b64decode(item)) for item in secret["data"].values())


def test_a_configuration_that_no_secret_can_hold() -> None:
    """1 MB of policy for each of 32 replicas, ten times: in all 330 MB, and 440 MB in base64."""
    manifests = [router(f"r{number}", replicas=32, **users(1024)) for number in range(10)]
    model = NamespaceModel.from_manifests("net", [*manifests, router("good", replicas=3)])
    tracemalloc.start()
    try:
        found = render(model, SETTINGS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024 * 1024
    assert list(found.routers) == ["good"]
    assert {item.name for item in found.findings if item.reason == "TooLarge" and item.blocking} == {
        f"r{number}" for number in range(10)
    }
    [finding] = [item for item in found.findings_of("Router", "r0") if item.reason == "TooLarge"]
    assert "32 replicas has more than 1 MiB" in finding.message


@pytest.mark.parametrize(("replicas", "fits"), [(1, True), (2, False)])
def test_the_bound_is_that_of_the_api_server(replicas: int, fits: bool) -> None:
    found = rendered(router("r", replicas=replicas, **users(700)))
    assert ("r" in found.routers) is fits
    if fits:
        assert 700_000 < secret_bytes(found, "r") <= 1024 * 1024


def test_replicas_of_an_edge_share_one_file() -> None:
    found = rendered(router("r", mode="edge", replicas=100, **users(700)))
    assert secret_bytes(found, "r") < 1024 * 1024


def test_all_routers_of_a_namespace_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that came first keep theirs."""
    monkeypatch.setattr(kubernetes, "MAX_CONFIGURATION_BYTES", 2 * 1024 * 1024)
    manifests = [router(f"r{number}", **users(700)) for number in range(4)]
    for number, item in enumerate(manifests):
        item["metadata"]["creationTimestamp"] = f"2026-01-0{4 - number}T00:00:00Z"
    found = rendered(*manifests, router("small"))
    assert sorted(found.routers) == ["r2", "r3", "small"]
    [finding] = [item for item in found.findings_of("Router", "r0") if item.reason == "TooLarge"]
    assert "all Routers of the namespace" in finding.message
