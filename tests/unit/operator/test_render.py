"""Rendering for Kubernetes, by example: which objects there are and what is in them."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from tests.unit.operator.support import (
    connector,
    flow_analysis,
    flow_log,
    gossip_router,
    model,
    relay_site,
    router,
    tls_data,
)

from isthmus_operator.authority import own_profiles
from isthmus_operator.model import SecretView
from isthmus_operator.names import ANNOTATION_RESTART, base_name
from isthmus_operator.render import Rendered, RenderSettings, canonical, render
from isthmus_operator.render.restrictions import Restrictions
from isthmus_router.process import DRAIN_SECONDS

SETTINGS = RenderSettings(
    router_image="registry.example/router:1",
    image_pull_secrets=("pull",),
    collector_image="collector:1",
    analysis_image="analysis:1",
)
KINDS = ("GossipRouter", "FlowLog", "FlowAnalysis")
ALL = Restrictions("Any", "Any", ("*",), allowed_exposures=("NodePort", "LoadBalancer"))
OPEN = replace(SETTINGS, restrictions=ALL)
"""What an installation allows that trusts all authors of resources."""


def rendered(*manifests: dict[str, Any], secrets: Any = ()) -> Rendered:
    return render(model(*manifests, secrets=secrets), OPEN)


def objects(result: Rendered, name: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(item["kind"], item["metadata"]["name"]): item for item in result.routers[name].objects}


def workload(*manifests: dict[str, Any], name: str = "west", secrets: Any = ()) -> dict[str, Any]:
    found = objects(rendered(*manifests, secrets=secrets), name)
    return next(item for (kind, _), item in found.items() if kind in {"StatefulSet", "Deployment"})


def pod(*manifests: dict[str, Any], name: str = "west") -> dict[str, Any]:
    spec = workload(*manifests, name=name)["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def test_objects_of_an_interior_router() -> None:
    assert list(objects(rendered(router("west", replicas=2)), "west")) == [
        ("ServiceAccount", "west"),
        ("Secret", "west-config"),
        ("Service", "west"),
        ("Service", "west-mesh"),
        ("PodDisruptionBudget", "west"),
        ("NetworkPolicy", "west"),
        ("StatefulSet", "west"),
    ]


def test_objects_of_an_edge_router() -> None:
    found = objects(rendered(router("shop", mode="edge", networkPolicy="Disabled")), "shop")
    assert list(found) == [
        ("ServiceAccount", "shop"),
        ("Secret", "shop-config"),
        ("Service", "shop"),
        ("Deployment", "shop"),
    ]


ROUTERS = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "isthmus-router"}}}
CLUSTER = {"namespaceSelector": {}}


@pytest.mark.parametrize(
    ("listener", "sources"),
    [
        ({}, [CLUSTER]),
        ({"exposure": "None"}, [{"podSelector": {}}]),
        ({"exposure": "NodePort"}, None),
        ({"exposure": "LoadBalancer", "role": "inter-router"}, None),
        ({"role": "inter-router"}, [ROUTERS]),
        ({"role": "edge"}, [ROUTERS]),
        ({"role": "edge", "exposure": "None"}, [ROUTERS]),
        ({"role": "edge", "tls": {"secretName": "server"}}, [{**CLUSTER, **ROUTERS}]),
        ({"role": "edge", "tls": {"disabled": True}}, [{**CLUSTER, **ROUTERS}]),
        ({"role": "route-container"}, [CLUSTER]),
    ],
)
def test_a_port_is_admitted_from_where_its_peers_are(listener: dict[str, Any], sources: Any) -> None:
    found = objects(rendered(router("west", listeners=[{"name": "l", "port": 1000, **listener}])), "west")
    policy = found["NetworkPolicy", "west"]["spec"]
    port, health = policy["ingress"]
    assert (policy["policyTypes"], policy["podSelector"]) == (
        ["Ingress"],
        {"matchLabels": found["Service", "west-mesh"]["spec"]["selector"]},
    )
    assert port.get("from") == sources
    assert port["ports"] == [{"port": 1000, "protocol": "TCP"}]
    assert health == {"ports": [{"port": 9090, "protocol": "TCP"}]}


def test_named_namespaces_alone_reach_the_health_port() -> None:
    settings = RenderSettings(
        "router:1", operator_namespace="isthmus", monitoring_namespaces=("prometheus", "ops")
    )
    for manifest in (router("west"), gossip_router("west")):
        result = render(model(manifest), settings)
        (made,) = (*result.routers.values(), *result.gossip_routers.values())
        (policy,) = [item["spec"] for item in made.objects if item["kind"] == "NetworkPolicy"]
        key = "kubernetes.io/metadata.name"
        named = {"key": key, "operator": "In", "values": ["isthmus", "ops", "prometheus"]}
        assert policy["ingress"][-1] == {
            "ports": [{"port": 9090, "protocol": "TCP"}],
            "from": [{"podSelector": {}}, {"namespaceSelector": {"matchExpressions": [named]}}],
        }


def test_interior_replicas_start_together_and_find_each_other_before_they_are_ready() -> None:
    found = objects(rendered(router("west", replicas=3)), "west")
    assert found["StatefulSet", "west"]["spec"]["podManagementPolicy"] == "Parallel"
    assert found["StatefulSet", "west"]["spec"]["serviceName"] == "west-mesh"
    mesh = found["Service", "west-mesh"]["spec"]
    assert (mesh["clusterIP"], mesh["publishNotReadyAddresses"]) == ("None", True)
    config = b64decode(found["Secret", "west-config"]["data"]["west-2.json"]).decode()
    assert "west-0.west-mesh.net.svc" in config
    assert "west-1.west-mesh.net.svc" in config


def test_the_expected_hash_is_that_of_the_file_a_pod_reads() -> None:
    result = rendered(router("west", replicas=2), router("shop", mode="edge"))
    data = objects(result, "west")["Secret", "west-config"]["data"]
    assert (
        result.routers["west"].expected_hash("west-1") == sha256(b64decode(data["west-1.json"])).hexdigest()
    )
    assert result.routers["west"].expected_hash("west-2") is None
    data = objects(result, "shop")["Secret", "shop-config"]["data"]
    assert (
        result.routers["shop"].expected_hash("shop-7c9f")
        == sha256(b64decode(data["router.json"])).hexdigest()
    )


@pytest.mark.parametrize("manifest", [router("west", replicas=2), router("west", mode="edge")])
def test_pods_meet_the_restricted_standard(manifest: dict[str, Any]) -> None:
    spec = pod(manifest)
    restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["securityContext"] == {**restricted, "fsGroup": 10001}
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert {volume["name"]: set(volume) - {"name"} for volume in spec["volumes"]} == {
        "config": {"secret"},
        "tmp": {"emptyDir"},
    }


def test_pods_have_five_minutes_to_start() -> None:
    """On a node without processor time the kubelet restarted routers again and again after 60 seconds."""
    made = rendered(
        router("west"), router("shop", mode="edge"), gossip_router("meet"), flow_log("log", "west")
    )
    every = (*made.routers.values(), *made.gossip_routers.values(), *made.flow_logs.values())
    workloads = [
        item for one in every for item in one.objects if item["kind"] in {"StatefulSet", "Deployment"}
    ]
    assert len(workloads) == 4
    for item in workloads:
        probe = item["spec"]["template"]["spec"]["containers"][0]["startupProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] == 300


def test_the_grace_period_covers_the_drain() -> None:
    spec = pod(router("west"))
    pre_stop = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] >= pre_stop + DRAIN_SECONDS + 5


LIVE: list[tuple[str, dict[str, Any]]] = [
    ("addresses", {"addresses": [{"prefix": "a", "distribution": "multicast"}]}),
    ("listeners", {"listeners": [{"name": "other", "port": 1234, "maxFrameSize": 65536}]}),
    ("log", {"log": [{"module": "DEFAULT", "level": "debug"}]}),
    ("defaultDistribution", {"defaultDistribution": "closest"}),
]


@pytest.mark.parametrize(("name", "spec"), LIVE)
def test_a_live_change_does_not_touch_the_pod_template(name: str, spec: dict[str, Any]) -> None:
    before, after = workload(router("west")), workload(router("west", **spec))
    assert before["spec"]["template"] == after["spec"]["template"]
    hashes = [rendered(router("west", **item)).routers["west"].config_hashes for item in ({}, spec)]
    assert hashes[0] != hashes[1]


def test_connectors_and_rotated_certificates_do_not_touch_the_pod_template() -> None:
    def template(cost: int, number: int) -> Any:
        secret = SecretView("ca", tls_data(number))
        link = connector("c", "west", ("h", 1), "inter-router", cost=cost, tls={"secretName": "ca"})
        return workload(router("west"), link, secrets=[secret])["spec"]["template"]

    assert template(1, 1) == template(9, 2) == workload(router("west"))["spec"]["template"]


def test_prometheus_finds_the_pods_and_a_pod_template_can_hide_them() -> None:
    def annotations(**spec: Any) -> Any:
        return workload(router("west", **spec))["spec"]["template"]["metadata"]["annotations"]

    port, scrape = "prometheus.io/port", "prometheus.io/scrape"
    found = annotations(healthPort=9999)
    assert (found[scrape], found[port], found["prometheus.io/path"]) == ("true", "9999", "/metrics")
    assert annotations(podTemplate={"metadata": {"annotations": {scrape: "false"}}})[scrape] == "false"


@pytest.mark.parametrize(
    "spec", [{"site": "x"}, {"healthPort": 9999}, {"workers": 2}, {"flowIntervalSeconds": 0}]
)
def test_what_a_running_router_cannot_take_over_restarts_it(spec: dict[str, Any]) -> None:
    def annotation(**spec: Any) -> Any:
        return workload(router("west", **spec))["spec"]["template"]["metadata"]["annotations"][
            ANNOTATION_RESTART
        ]

    assert annotation() != annotation(**spec)


def test_another_database_of_users_restarts_the_routers_and_another_user_does_not() -> None:
    def template(name: str, content: bytes) -> Any:
        sasl = {"mechanisms": ["SCRAM-SHA-256"], "usersSecretRef": {"name": name}}
        secret = SecretView(name, {"sasldb": content})
        found = router("west", listeners=[{"name": "amqp", "port": 5672, "sasl": sasl}])
        return workload(found, secrets=[secret])["spec"]["template"]

    assert template("users", b"alice") == template("users", b"alice bob")
    assert template("users", b"alice") != template("others", b"alice")


def test_exposure_decides_the_services() -> None:
    listeners = [
        {"name": "in", "port": 1000},
        {"name": "node", "port": 1001, "exposure": "NodePort", "nodePort": 30001},
        {"name": "cloud", "port": 1002, "exposure": "LoadBalancer", "serviceAnnotations": {"k": "v"}},
        {"name": "hidden", "port": 1003, "exposure": "None"},
    ]
    found = objects(rendered(router("west", listeners=listeners)), "west")
    ports = {
        name: (item["spec"]["type"], [port["port"] for port in item["spec"].get("ports", [])])
        for (kind, name), item in found.items()
        if kind == "Service"
    }
    assert ports == {
        "west": ("ClusterIP", [1000, 1001, 1002]),
        "west-node": ("NodePort", [1001]),
        "west-cloud": ("LoadBalancer", [1002]),
        "west-mesh": ("ClusterIP", []),
    }
    assert found["Service", "west-node"]["spec"]["ports"][0]["nodePort"] == 30001
    assert found["Service", "west-cloud"]["metadata"]["annotations"] == {"k": "v"}


def test_a_pod_template_is_merged_and_cannot_take_the_selector_away() -> None:
    overlay = {
        "metadata": {"labels": {"team": "a", "app.kubernetes.io/instance": "other"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "containers": [{"name": "router", "env": [{"name": "X", "value": "1"}]}, {"name": "side"}],
            "topologySpreadConstraints": [],
        },
    }
    found = workload(router("west", podTemplate=overlay))["spec"]
    labels = found["template"]["metadata"]["labels"]
    assert labels["team"] == "a"
    assert found["selector"]["matchLabels"].items() <= labels.items()
    spec = found["template"]["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["topologySpreadConstraints"] == []
    assert [item["name"] for item in spec["containers"]] == ["router", "side"]
    assert [item["name"] for item in spec["containers"][0]["env"]] == ["POD_NAME", "X"]
    assert spec["containers"][0]["image"] == SETTINGS.router_image


def test_the_image_can_be_overridden() -> None:
    assert pod(router("west", image="mine:2"))["containers"][0]["image"] == "mine:2"
    assert pod(router("west"))["imagePullSecrets"] == [{"name": "pull"}]


def test_two_routers_cannot_have_one_node_port() -> None:
    def exposed(name: str, created: str) -> dict[str, Any]:
        listener = {"name": "amqp", "port": 5672, "exposure": "NodePort", "nodePort": 30000}
        return router(name, meta={"creationTimestamp": created}, listeners=[listener])

    result = rendered(exposed("a", "2026-01-02T00:00:00Z"), exposed("b", "2026-01-01T00:00:00Z"))
    assert set(result.routers) == {"b"}, "the older one keeps the port"
    (finding,) = result.findings
    assert (finding.name, finding.reason, finding.blocking) == ("a", "ListenerConflict", True)
    assert "30000" in finding.message
    assert '"b"' in finding.message


def test_derived_names_that_meet_are_a_conflict() -> None:
    listener = {"name": "b", "port": 5672, "exposure": "NodePort"}
    result = rendered(router("a", listeners=[listener]), router("a-b"))
    assert set(result.routers) == {"a"}
    assert [(item.name, item.reason) for item in result.findings] == [("a-b", "NameConflict")]


@pytest.mark.parametrize("exposure", ["ClusterIP", "NodePort"])
def test_two_objects_of_one_router_with_one_name_are_a_conflict(exposure: str) -> None:
    """The operator wrote the one and the other without end, 5 times in a second."""
    site = relay_site("x", "x-bridge", bridge={"expose": exposure})
    result = rendered(router("x-bridge"), site, router("x"))
    assert set(result.routers) == {"x"}
    conflicts = [item for item in result.findings if item.reason == "NameConflict"]
    assert [(item.kind, item.name, item.blocking) for item in conflicts] == [("Router", "x-bridge", True)]
    assert 'Service "x-bridge" would be made twice; rename this Router' in conflicts[0].message
    listeners = [{"name": "mesh", "port": 5672, "exposure": "NodePort"}]
    result = rendered(router("a", listeners=listeners))
    assert not result.routers
    assert 'Service "a-mesh" would be made twice' in result.findings_of("Router", "a")[0].message


def others(created: str) -> list[dict[str, Any]]:
    meta = {"creationTimestamp": created}
    return [
        gossip_router("x", meta=meta),
        flow_log("x", "hub", meta=meta),
        flow_analysis("x", "x", meta=meta),
    ]


@pytest.mark.parametrize(("suffix", "kind"), list(zip(["gossip", "flowlog", "analysis"], KINDS, strict=True)))
def test_a_derived_name_belongs_to_the_older_resource_whatever_its_kind(suffix: str, kind: str) -> None:
    hub = router("hub", meta={"creationTimestamp": "2026-01-01T00:00:00Z"})
    for created, winner in (("2026-01-03T00:00:00Z", kind), ("2026-01-01T00:00:00Z", "Router")):
        taker = router(f"x-{suffix}", meta={"creationTimestamp": created})
        result = rendered(taker, hub, *others("2026-01-02T00:00:00Z"))
        made = {(owner.kind_name, owner.name) for owner, _ in result.owners()}
        rivals = {("Router", f"x-{suffix}"), (kind, "x")}
        (loser,) = rivals - made
        assert made & rivals == {(winner, "x" if winner == kind else f"x-{suffix}")}
        assert {item.reason for item in result.findings_of(*loser)} == {"NameConflict"}


def test_the_ledger_of_certificates_with_one_name_is_first_that_of_the_older_resource() -> None:
    found = model(
        router("x-gossip", meta={"creationTimestamp": "2026-01-02T00:00:00Z"}),
        gossip_router("x", meta={"creationTimestamp": "2026-01-01T00:00:00Z"}),
    )
    own = own_profiles("net", found.routers.values(), found.gossip_routers.values(), local=False)
    assert [item.owner.kind_name for item in own.values()] == ["GossipRouter", "Router"]
    assert len({item.ledger_secret for item in own.values()}) == 1


@pytest.mark.parametrize("name", ["x" * 253, "9-lives", "a.b.c", "w" * 41, "-".join("a" * 30)])
def test_any_resource_name_gives_valid_object_names(name: str) -> None:
    listener = {"name": "l" * 24, "port": 5672, "exposure": "NodePort"}
    result = rendered(router(name, listeners=[listener]))
    for item in result.routers[name].objects:
        assert len(item["metadata"]["name"]) <= 63
        assert item["metadata"]["name"][0].isalpha()
        assert all(len(value) <= 63 for value in item["metadata"]["labels"].values())
    assert base_name(name) != base_name(name + "y")


def test_deleted_routers_are_not_rendered() -> None:
    gone = router("west", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    result = rendered(gone, router("east"), connector("c", "east", "west", "inter-router"))
    assert set(result.routers) == {"east"}
    assert [(item.name, item.reason) for item in result.findings] == [("c", "Pending")]


def test_canonical_text_ignores_the_order_of_keys() -> None:
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1})


@pytest.mark.parametrize("name", ["kubernetes", "kubernetes-service"])
def test_no_service_takes_the_variables_of_the_api_server(name: str) -> None:
    """A Router with this name and without replicas took the API server away from each new pod of the namespace."""
    result = rendered(router(name, replicas=0), router("other"))
    assert set(result.routers) == {"other"}
    [finding] = result.findings_of("Router", name)
    assert (finding.reason, finding.blocking) == ("NameConflict", True)
    assert f'Service "{name}" belongs to the API server; rename this Router' in finding.message
    exposed = {"name": "service", "port": 5672, "exposure": "NodePort"}
    assert rendered(router("kubernetes-a", replicas=0, listeners=[exposed])).routers
