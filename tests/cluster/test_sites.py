"""RelaySites and GossipRouters on a real cluster: their objects, what becomes of them, and how they go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.support.network import Network
from tests.unit.operator.support import gossip_router, relay_site, router


@pytest.fixture(scope="module")
def network(cluster: Cluster) -> Iterator[Network]:
    with (
        installation.schemas(cluster),
        cluster.namespace("sites") as name,
        installation.operator(cluster, name),
    ):
        yield Network(cluster, name)


@pytest.fixture(autouse=True)
def _clean(network: Network) -> Iterator[None]:
    yield
    network.kubectl("delete", "rsite,gossip,rtr", "--all", "--wait=true", "--timeout=60s")


def test_gossip_routers_start_and_one_that_is_lost_comes_back(network: Network) -> None:
    network.apply(gossip_router("g", networkPolicy="Ingress"))
    network.ready("gossip/g")
    status = network.get("gossip/g")["status"]
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)
    assert status["endpoint"] == f"g-gossip.{network.namespace}.svc:12001"
    before = network.get("pod/g-gossip-0")["metadata"]["uid"]
    network.kubectl("delete", "pod/g-gossip-0", "--wait=false")
    network.cluster.eventually(
        "another one has taken its name",
        lambda: network.get("pod/g-gossip-0")["metadata"]["uid"] != before,
    )
    network.ready("gossip/g")
    network.kubectl("delete", "gossip/g")
    network.cluster.eventually(
        "its pods are gone", lambda: not network.kubectl("get", "sts", "--output=name")
    )


def test_a_site_is_added_to_its_routers_and_taken_from_them_without_a_restart(network: Network) -> None:
    network.apply(router("west", replicas=2))
    network.ready("rtr/west")
    before = network.pods("west")
    network.apply(relay_site("nyc", "west", remoteSites=[{"site": "sfo", "endpoints": ["sfo.example"]}]))
    network.cluster.eventually(
        "its Service is there", lambda: "nyc-bridge" in network.kubectl("get", "service", "--output=name")
    )
    network.ready("rtr/west")
    mesh = network.get("service/west-mesh")["spec"]
    assert {item["port"] for item in mesh["ports"]} == {55672, 7800}
    assert network.get("endpointslices", "--selector=kubernetes.io/service-name=nyc-bridge")["items"]
    network.kubectl("delete", "rsite/nyc")
    network.cluster.eventually(
        "its Service is gone", lambda: "nyc-bridge" not in network.kubectl("get", "service", "--output=name")
    )
    network.ready("rtr/west")
    assert network.pods("west") == before


def test_a_second_site_of_the_same_name_says_which_one_was_first(network: Network) -> None:
    network.apply(router("west"), router("east"))
    network.apply(relay_site("nyc", "west"))
    twin = relay_site("twin", "east")
    twin["spec"]["site"] = "nyc"
    network.apply(twin)
    message = network.becomes("rsite/twin", "False", "SiteConflict")
    assert message == 'RelaySite "nyc" is site "nyc" of group "trades" already; change spec.site'
