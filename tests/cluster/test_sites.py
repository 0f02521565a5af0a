"""RelaySites and GossipRouters on a real cluster: their objects, what becomes of them, and how they go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.support.clients import Clients
from tests.cluster.support.network import Network
from tests.cluster.support.sites import ADDRESS, REPLICAS, Site
from tests.cluster.support.traffic import MORE, RATE, Traffic
from tests.unit.operator.support import connector, gossip_router, relay_site, router

STATE = "trades/state"


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


def test_a_pod_without_a_certificate_reaches_no_port_of_routers_and_members(network: Network) -> None:
    network.apply(
        router("west", replicas=2),
        relay_site("nyc", "west", remoteSites=[{"site": "sfo", "endpoints": ["sfo.example"]}]),
    )
    network.ready("rtr/west")
    network.becomes("rsite/nyc", "True", "Formed", kind="Formed")
    address = network.get("pod/west-0")["status"]["podIP"]
    ports = {"amqp": 5672, "inter-router": 55672, "edge": 45672, "members": 7800, "bridge": 7900}
    places = {name: f"{address}:{port}" for name, port in ports.items()}
    clients = Clients(network.cluster, network.namespace, installation.router_image(network.cluster))
    report = clients.start("stranger", "trades", "nyc", *places.values(), script="stranger").report(150)
    opened = report[places.pop("amqp")]
    assert opened["opened"] == 1, "the port for applications takes clear text: the stranger can connect"
    for name, place in places.items():
        assert report[place] == {"connections": 4, "opened": 0, "greeted": 0}, name
    network.ready("rtr/west")
    assert network.condition("rsite/nyc", "Formed")["status"] == "True"


def test_a_second_site_of_the_same_name_says_which_one_was_first(network: Network) -> None:
    network.apply(router("west"), router("east"))
    network.apply(relay_site("nyc", "west"))
    twin = relay_site("twin", "east")
    twin["spec"]["site"] = "nyc"
    network.apply(twin)
    message = network.becomes("rsite/twin", "False", "SiteConflict")
    assert message == 'RelaySite "nyc" is site "nyc" of group "trades" already; change spec.site'


def test_sites_in_one_network_of_routers(network: Network) -> None:
    """One of them comes later: an application there gets the state, then all that is not in it."""
    image = installation.router_image(network.cluster)
    nodes = sorted(network.cluster.nodes())
    nyc, sfo = (
        Site(network.cluster, network.namespace, name, node, image)
        for name, node in zip(("nyc", "sfo"), nodes[-2:], strict=True)
    )
    network.apply(
        *(router(site.name, replicas=REPLICAS) for site in (nyc, sfo)),
        connector("sfo-nyc", "sfo", "nyc", "inter-router"),
        over("nyc", "sfo"),
    )
    message = network.becomes(nyc.resource, "False", "SiteUnreachable")
    assert message.startswith("site sfo is not connected yet"), message
    first = nyc.start("first", nyc.url("nyc-0"), STATE, script="application")
    first.reaches("attached", True)
    sender = nyc.start("sender", "send", nyc.url("nyc-1"), ADDRESS, f"--rate={RATE}")
    first.reaches("received", MORE)
    network.apply(over("sfo", "nyc"))
    network.ready(nyc.resource, sfo.resource)
    later = sfo.start("later", sfo.url("sfo-0"), STATE, "--ask", script="application")
    later.reaches("greatest", sender.progress()["accepted"] + MORE)
    sender.stop()
    sent = sender.report()
    everything = list(range(sent["sent"]))
    assert sorted(sent["outcomes"]["accepted"]) == everything
    for application in (first, later):
        application.reaches("greatest", sent["sent"] - 1)
    assert (first.progress()["requests"], later.progress()["requests"]) == (1, 0)
    for application in (first, later):
        application.stop()
        assert application.report()["numbers"] == everything

    with Traffic("over", nyc, sfo, asker=nyc.pods[-1], server=sfo.pods[-1]) as traffic:
        relays = {site: site.coordinator() for site in (nyc, sfo)}
        before = {site: network.pods(site.name) for site in relays}
        network.kubectl("delete", "pods", *relays.values(), "--wait=false")
        for site, relay in relays.items():
            site.replaced([relay], before[site])
        network.ready(nyc.resource, sfo.resource)
        traffic.advance()
        traffic.end(interrupted=[relays[sfo]])


def over(site: str, other: str) -> dict[str, Any]:
    remote = {"site": other, "over": "bridges/trades"}
    return relay_site(site, site, remoteSites=[remote], stateAddress=STATE)
