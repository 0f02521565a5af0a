"""Routers whose configuration no Secret can hold are refused before it is made in many copies."""

from __future__ import annotations

import sys
import tracemalloc
from base64 import b64decode
from dataclasses import replace

import pytest
import trustme
from tests.unit.operator.support import (
    connector,
    flow_analysis,
    flow_log,
    gossip_router,
    link_route,
    model,
    router,
    tls_data,
)

from isthmus_operator.model import NamespaceModel, SecretView
from isthmus_operator.render import LargeError, Rendered, RenderSettings, kubernetes, linkroutes, render

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
    assert "of the namespace have more than 32 MiB" in finding.message


def too_large(found: Rendered) -> dict[str, str]:
    return {item.name: item.message for item in found.findings if item.reason == "TooLarge"}


@pytest.mark.parametrize(("mode", "number", "fits"), [("interior", 129, False), ("edge", 129, True)])
def test_connectors_for_which_no_secret_has_room(mode: str, number: int, *, fits: bool) -> None:
    role = "route-container"
    found = rendered(
        router("r", mode=mode, replicas=32),
        router("other"),
        *(connector(f"c{item}", "r", ("host", 5672), role) for item in range(number)),
    )
    assert set(found.routers) == ({"r", "other"} if fits else {"other"})
    assert fits or "129 Connectors make more than 4096 sections" in too_large(found)["r"]


def test_parts_of_all_routers_of_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["isthmus_operator.render.plan"], "MAX_PARTS", 10)
    young, old = ({"creationTimestamp": f"2029-01-0{day}T00:00:00Z"} for day in (2, 1))
    found = rendered(
        router("a", replicas=4, meta=young), router("z", replicas=3, meta=old), router("none", replicas=0)
    )
    assert set(found.routers) == {"z", "none"}  # of 6 parts and of none; the other one has 10
    assert "are more than 10; have fewer" in too_large(found)["a"]
    assert found.plan.instances["a"] == ()


def test_sections_of_all_link_routes_of_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linkroutes, "MAX_SECTIONS", 5)
    found = rendered(
        router("a"),
        router("b"),
        *(link_route(f"l{item}", prefix=f"p{item}", containerId="x") for item in range(3)),
        link_route("small", prefix="p", containerId="x", routers=["a"]),
    )
    assert set(found.plan.link_routes) == {"l0", "l1", "small"}
    assert "name fewer Routers in spec.routers" in too_large(found)["l2"]


def test_secrets_of_gossip_routers_and_flow_logs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "MAX_CONFIGURATION_BYTES", 30_000)
    monkeypatch.setattr(kubernetes, "_MAX_RENDERED_BYTES", 60_000)
    authorities = b"".join(trustme.CA().cert_pem.bytes() for _ in range(20))
    bundle = SecretView("s", {**tls_data(), "ca.crt": authorities})
    size = sum(map(len, bundle.data.values()))
    assert 10_000 < size < 15_000
    tls = {"secretName": "s", "requireClientCertificate": True}
    found = NamespaceModel.from_manifests(
        "net", [gossip_router(f"g{item}", tls=tls) for item in range(9)], [bundle]
    )
    assert not found.invalid
    made = render(found, SETTINGS)
    assert set(made.gossip_routers) == {"g0", "g1"}
    assert set(too_large(made)) == {f"g{item}" for item in range(2, 9)}


def test_pod_templates_with_large_annotations_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 FlowAnalyses with annotations of 100 KB took 0.4 GB of memory."""
    monkeypatch.setattr(kubernetes, "MAX_CONFIGURATION_BYTES", 1_000_000)
    large = {"podTemplate": {"metadata": {"annotations": {"a": "x" * 40_000, "b": "x" * 40_000}}}}
    settings = replace(SETTINGS, collector_image="collector:1", analysis_image="analysis:1")
    analyses = [
        flow_analysis(f"a{item}", schedule="0 * * * *", meta=created(item + 1), **large) for item in range(20)
    ]
    hub, young = router("hub", meta=created(0)), router("young", meta=created(23), **large)
    resources = model(hub, flow_log("flows", meta=created(0)), *analyses, young)
    assert not resources.invalid
    found = render(resources, settings)
    assert {"a0", "a1"} <= set(found.flow_analyses)
    assert 4 < len(found.flow_analyses) < 12
    assert set(found.routers) == {"hub"}
    assert "pod templates of all Routers" in too_large(found)["young"]
    assert set(too_large(found)) == {"young", *(f"a{item}" for item in range(len(found.flow_analyses), 20))}


def created(hour: int) -> dict[str, str]:
    return {"creationTimestamp": f"2026-01-01T{hour:02}:00:00Z"}


@pytest.mark.parametrize(
    ("routers", "replicas", "mode", "connectors"),
    [(20, 32, "interior", 0), (60, 0, "interior", 0), (20, 100, "edge", 0), (10, 32, "interior", 50)],
)
def test_the_memory_of_a_rendering_is_estimated(
    routers: int, replicas: int, mode: str, connectors: int
) -> None:
    """The specifications have a few bytes, and 20 Routers with 32 replicas took 13 MB."""
    manifests = [router(f"r{index}", replicas=replicas, mode=mode) for index in range(routers)]
    manifests += [
        connector(f"c{source}-{index}", f"r{source}", ("host", 5672), "route-container")
        for source in range(routers)
        for index in range(connectors)
    ]
    resources = model(*manifests)
    render(resources, SETTINGS)
    tracemalloc.start()
    try:
        found = render(resources, SETTINGS)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < found.bytes < 4 * size
    with pytest.raises(LargeError) as error:
        render(resources, SETTINGS, size // 4)
    assert size // 4 < error.value.size < 2 * found.bytes
