"""What the NetworkPolicies of all resources admit together: the connections of the network, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.operator.pods import NAMESPACE, Network, Pod, network, secret
from tests.unit.operator.support import (
    flow_analysis,
    flow_log,
    gossip_router,
    model,
    opaque_secret,
    relay_site,
    router,
    tls_secret,
)

from isthmus_operator.render import RenderSettings, render
from isthmus_operator.render.flows.place import KEYS
from isthmus_operator.render.restrictions import Restrictions

ROOT = Path(__file__).parents[3]
EXAMPLES, HARDENING = ROOT / "examples", ROOT / "docs" / "hardening.md"
SETTINGS = RenderSettings(
    "router:1", collector_image="collector:1", analysis_image="analysis:1", operator_namespace="isthmus"
)
OPERATOR = Pod("isthmus", "operator", {"app.kubernetes.io/name": "isthmus-operator"})
CLIENTS, HEALTH = 5672, 9090


def example(name: str) -> list[dict[str, Any]]:
    """The resources of a file in `examples/`, as the API server has them."""
    documents = list(yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text()))
    for item in documents:
        uid = f"uid-{item['kind']}-{item['metadata']['name']}"
        item["metadata"] |= {"namespace": NAMESPACE, "uid": uid, "generation": 1}
    return documents


def gossiping(way: str, **spec: Any) -> list[dict[str, Any]]:
    """A site whose members find each other through gossip routers."""
    discovery = {"type": way, "gossipRouterRef": {"name": "g"}}
    site = relay_site("nyc", "east", discovery=discovery)
    return [router("east", replicas=2), gossip_router("g", replicas=2, **spec), site]


def everything() -> list[dict[str, Any]]:
    """Every kind of port, with certificates of the namespace's own authority."""
    return [*example("edges"), *example("sites"), *gossiping("gossipRouter"), *flows()]


def flows() -> list[dict[str, Any]]:
    return [router("hub", mode="edge"), flow_log("flows"), flow_analysis("daily")]


def rendered(*manifests: dict[str, Any], **settings: Any) -> Network:
    secrets = (tls_secret("net"), opaque_secret("keys", *KEYS))
    found = render(model(*manifests, secrets=secrets), replace(SETTINGS, **settings))
    assert [item for item in found.findings if item.blocking] == []
    return network(found)


def opened(found: Network) -> Iterator[tuple[Pod, str, int]]:
    """The connections that the configurations of the pods ask for: from where, to which host and port."""
    for pod in found.pods.values():
        kind, name = pod.labels["app.kubernetes.io/name"], pod.labels["app.kubernetes.io/instance"]
        if kind == "isthmus-flow-collector":
            document = secret(found, f"{name}-flowlog", "collector.json")
            yield from ((pod, host, document["port"]) for host in document["hosts"])
        if kind == "isthmus-router":
            file = (
                "router.json" if pod.labels["app.kubernetes.io/component"] == "edge" else f"{pod.name}.json"
            )
            for section, attributes in secret(found, f"{name}-config", file):
                yield from ((pod, *end) for end in _ends(section, attributes))


def _ends(section: str, attributes: dict[str, Any]) -> Iterator[tuple[str, int]]:
    if section == "connector":
        yield attributes["host"], int(attributes["port"])
        more = attributes.get("failoverUrls", "")
        assert not more
    hosts = {"relaySite": "discoveryHosts", "relayRemote": "endpoints"}.get(section, "")
    for host in filter(None, attributes.get(hosts, "").split(", ")):
        name, _, port = host.partition(":")
        yield name, int(port or attributes["memberPort"])


@pytest.mark.parametrize(
    ("manifests", "least"),
    [
        (example("router"), 1),
        (example("two-sites"), 8),
        (example("edges"), 8),
        (example("sites"), 12),
        (example("flows"), 3),
        (gossiping("gossipRouter"), 4),
        (gossiping("tunnel"), 4),
        (gossiping("gossipRouter", tls={"disabled": True}), 4),
    ],
    ids=["router", "two-sites", "edges", "sites", "flows", "gossipRouter", "tunnel", "clear"],
)
def test_connections_that_configurations_open_are_admitted(
    manifests: list[dict[str, Any]], least: int
) -> None:
    found = rendered(*manifests, monitoring_namespaces=("prometheus",))
    connections = 0
    for source, host, port in opened(found):
        for pod in found.resolve(host):
            assert found.admits(source, pod, port), (source.name, host, port)
            connections += 1
    assert connections >= least


def documented() -> list[dict[str, Any]]:
    """The NetworkPolicies of docs/hardening.md."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", HARDENING.read_text(), re.MULTILINE | re.DOTALL)
    return [item for block in blocks for item in yaml.safe_load_all(block)]


@pytest.mark.parametrize("way", ["Ingress", "Egress"])
@pytest.mark.parametrize("name", ["two-sites", "edges", "sites", "flows"])
def test_a_network_works_in_a_namespace_that_denies_all_connections(name: str, way: str) -> None:
    """For outgoing connections, with the policy of docs/hardening.md."""
    nothing = {"podSelector": {}, "policyTypes": [way], way.lower(): []}
    found = rendered(*example(name), *gossiping("gossipRouter"))
    more = [{"kind": "NetworkPolicy", "spec": nothing}, *(documented() if way == "Egress" else [])]
    found = replace(found, objects=(*found.objects, *more))
    for source, host, port in opened(found):
        assert all(found.admits(source, pod, port) for pod in found.resolve(host)), (source.name, host, port)
        assert found.leave(source, "10.96.0.10", 53, "UDP")
        assert found.leave(source, "10.96.0.10", 53)
    for pod in found.pods.values():
        analysis = pod.labels["app.kubernetes.io/name"] == "isthmus-flow-analysis"
        assert found.admits(OPERATOR, pod, 4040 if analysis else HEALTH), pod.name


def test_members_reach_each_other_however_they_find_each_other() -> None:
    ways: list[dict[str, Any]] = [
        {"type": "dns"},
        {"type": "hostList", "hosts": ["east-0.east-mesh"]},
        {"type": "multicast"},
        {"type": "gossipRouter", "gossipRouterRef": {"name": "g"}},
        {"type": "tunnel", "gossipRouterRef": {"name": "g"}},
    ]
    for discovery in ways:
        site = relay_site("nyc", "east", discovery=discovery)
        found = rendered(router("east", replicas=2), gossip_router("g"), site)
        one, other = (found.pods[f"east-{number}"] for number in range(2))
        assert found.admits(one, other, 7800) == (discovery["type"] != "tunnel"), discovery
        assert found.admits(one, other, 7800, "UDP") == (discovery["type"] == "multicast")
        assert not found.admits(replace(one, namespace="other"), other, 7800), "members are of one Router"


def reached(found: Network, source: Pod) -> set[tuple[str, int]]:
    """Kinds of pods, and their ports, to which `source` may connect."""
    return {
        (pod.labels["app.kubernetes.io/name"].removeprefix("isthmus-"), port)
        for pod in found.pods.values()
        for port in PORTS
        if found.admits(source, pod, port)
    }


PORTS = (CLIENTS, HEALTH, 55672, 45672, 35672, 7800, 7900, 12001, 7078, 4040)
OPEN = {("router", CLIENTS), *((kind, HEALTH) for kind in ("router", "gossip-router", "flow-collector"))}
DRIVER = ("flow-analysis", 4040)


def test_pods_without_labels_reach_listeners_for_clients_and_health_ports_alone() -> None:
    found = rendered(*everything())
    for namespace in (NAMESPACE, "other"):
        assert reached(found, Pod(namespace, "stranger", {})) == OPEN


def test_labels_of_routers_are_of_no_use_in_other_namespaces() -> None:
    found = rendered(*everything())
    kinds = {pod.labels["app.kubernetes.io/name"] for pod in found.pods.values()}
    assert len(kinds) == 4
    for pod in found.pods.values():
        assert reached(found, replace(pod, namespace="other")) == OPEN, pod.name


def test_pods_of_the_network_reach_what_they_need() -> None:
    found = rendered(*everything())
    ends = {*(("router", port) for port in (55672, 45672, 7800, 7900)), ("gossip-router", 12001)}
    for name, more in {
        "core-0": ends,
        "g-gossip-0": set(),
        "flows-flowlog-0": {("router", 35672)},
        "daily-analysis-executor": {("flow-analysis", port) for port in PORTS},
    }.items():
        assert reached(found, found.pods[name]) == OPEN | more, name
    assert reached(found, OPERATOR) == OPEN | {DRIVER}


def test_named_namespaces_alone_reach_health_ports() -> None:
    found = rendered(*everything(), monitoring_namespaces=("prometheus",))
    for namespace in (NAMESPACE, "prometheus"):
        assert reached(found, Pod(namespace, "any", {})) == OPEN
    assert reached(found, Pod("other", "any", {})) == {("router", CLIENTS)}
    assert reached(found, OPERATOR) == OPEN | {DRIVER}


def test_certificates_of_others_open_ports_to_routers_of_other_namespaces() -> None:
    tls = {"tls": {"secretName": "net"}}
    hub = router("hub", listeners=[{"name": "e", "role": "edge", "port": 45672, **tls}])
    site = relay_site("nyc", "hub", bridge=tls, **tls)
    found = rendered(hub, site, gossip_router("g", **tls))
    foreign = replace(found.pods["hub-0"], namespace="other")
    assert reached(found, foreign) == {
        ("router", 45672),
        ("router", 7900),
        ("router", HEALTH),
        ("gossip-router", 12001),
        ("gossip-router", HEALTH),
    }


@pytest.mark.parametrize(("expose", "open_to"), [("None", 0), ("ClusterIP", 1), ("LoadBalancer", 3)])
def test_a_bridge_is_open_as_it_is_exposed(expose: str, open_to: int) -> None:
    allowed = Restrictions(allowed_exposures=("LoadBalancer",))
    site = relay_site("nyc", "east", bridge={"expose": expose})
    found = rendered(router("east"), router("west"), site, restrictions=allowed)
    west, target = found.pods["west-0"], found.pods["east-0"]
    sources = (west, replace(west, namespace="other"), Pod("", "outside", {}, address="192.0.2.1"))
    assert sum(found.admits(source, target, 7900) for source in sources) == open_to


METADATA = (
    *("169.254.169.254", "169.254.169.252", "169.254.170.23", "169.254.42.42", "169.254.0.23"),
    *("100.100.100.200", "168.63.129.16", "192.0.0.192", "fe80::a9fe:a9fe"),
    *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42"),
)


def test_collectors_drivers_and_executors_reach_all_but_metadata_services() -> None:
    for place in ({}, {"s3": {"url": "s3a://bucket/a", "secretName": "keys"}}):
        found = rendered(router("hub"), flow_log("flows", **place), flow_analysis("daily"))
        for name in ("flows-flowlog-0", "daily-analysis-executor"):
            pod = found.pods[name]
            for address in METADATA:
                for port in (80, 443, 988):
                    assert not found.leave(pod, address, port), (name, address)
            for address in ("169.254.20.10", "169.254.169.253", "10.96.0.10", "fd00:ec2::253"):
                assert found.leave(pod, address, 53, "UDP"), "DNS, also of a cache on the node"
                assert found.leave(pod, address, 53)
            for address in ("10.96.0.1", "192.0.2.1", "2001:db8::1", "fd00::1"):
                assert found.leave(pod, address, 443), "the API server and object stores"
            assert found.admits(pod, Pod("store", "minio", {}), 9000)
