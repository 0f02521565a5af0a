"""Edge Routers of many replicas: they come and go without the network noticing, and lose no request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.support.clients import Clients
from tests.cluster.support.network import Network

ADDRESSES = (("news", "multicast"), ("jobs", "balanced"), ("calls", "closest"))
RESOURCES = """
apiVersion: isthmus.dev/v1alpha1
kind: Router
metadata: {name: core}
spec: {mode: interior, replicas: 2, addresses: ADDRESSES}
---
apiVersion: isthmus.dev/v1alpha1
kind: Router
metadata: {name: reserve}
spec: {mode: interior}
---
apiVersion: isthmus.dev/v1alpha1
kind: Connector
metadata: {name: core-reserve}
spec: {role: inter-router, cost: 5, from: {routerRef: {name: core}}, to: {routerRef: {name: reserve}}}
---
apiVersion: isthmus.dev/v1alpha1
kind: Router
metadata: {name: shop}
spec: {mode: edge, replicas: 3, addresses: ADDRESSES}
---
apiVersion: isthmus.dev/v1alpha1
kind: Router
metadata: {name: depot}
spec: {mode: edge, replicas: 3, addresses: ADDRESSES}
---
apiVersion: isthmus.dev/v1alpha1
kind: Connector
metadata: {name: shop-core}
spec: {role: edge, from: {routerRef: {name: shop}}, to: {routerRef: {name: core}}}
---
apiVersion: isthmus.dev/v1alpha1
kind: Connector
metadata: {name: shop-reserve}
spec: {role: edge, cost: 2, from: {routerRef: {name: shop}}, to: {routerRef: {name: reserve}}}
---
apiVersion: isthmus.dev/v1alpha1
kind: Connector
metadata: {name: depot-core}
spec: {role: edge, from: {routerRef: {name: depot}}, to: {routerRef: {name: core}}}
""".replace(
    "ADDRESSES", str([{"prefix": prefix, "distribution": distribution} for prefix, distribution in ADDRESSES])
)
SHOP, DEPOT = "amqp://shop:5672", "amqp://depot:5672"
SECONDS_TO_FAIL_BACK = 90.0
SECONDS_TO_RESUME = 5.0


@pytest.fixture(scope="module")
def network(cluster: Cluster) -> Iterator[Network]:
    with (
        installation.schemas(cluster),
        cluster.namespace("edges") as name,
        installation.operator(cluster, name),
    ):
        cluster.apply(RESOURCES, namespace=name)
        network = Network(cluster, name)
        network.settled()
        yield network


@pytest.fixture(scope="module")
def clients(cluster: Cluster, network: Network) -> Clients:
    return Clients(cluster, network.namespace, installation.router_image(cluster))


def instances(network: Network, router: str) -> list[dict[str, Any]]:
    """What the status of a Router says of each replica."""
    found: list[dict[str, Any]] = network.get(f"router/{router}")["status"]["instances"]
    return found


def uplinks(network: Network, router: str) -> list[tuple[str | None, list[str]]]:
    """For each replica the Connector in use, and those in reserve, as the Router's status has them."""
    return [
        (item.get("uplink", {}).get("connector"), [standby["connector"] for standby in item["standbys"]])
        for item in instances(network, router)
    ]


def path_computations(network: Network, *routers: str) -> dict[str, float]:
    """How often each interior router has computed its paths."""
    pods = [pod for router in routers for pod in network.pods(router)]
    return {pod: network.metric(pod, "isthmus_router_path_computations_total") for pod in pods}


def test_scaling_edges_computes_no_paths(network: Network) -> None:
    before = path_computations(network, "core", "reserve")
    assert len(before) == 3
    assert all(before.values())
    for replicas in (6, 1, 3):
        network.kubectl("scale", "routers/shop", "routers/depot", f"--replicas={replicas}")
        network.settled()
        network.cluster.eventually(
            f"{replicas} edges each are attached",
            lambda count=replicas: len(network.uplinks("shop")) == len(network.uplinks("depot")) == count,
        )
    assert path_computations(network, "core", "reserve") == before


@pytest.mark.parametrize("address", [prefix for prefix, _ in ADDRESSES])
def test_every_distribution_works_between_replicas_behind_services(
    network: Network, clients: Clients, address: str
) -> None:
    receivers = [
        clients.start(f"{address}-{number}", "receive", DEPOT, address, "--stay", "--delay=0.3")
        for number in range(4)
    ]
    for receiver in receivers:
        receiver.reaches("attached", True)
    network.cluster.eventually(
        "the interior routers know every edge with a receiver", lambda: edges_are_known(network, address)
    )
    senders = [
        clients.start(f"{address}-from-{number}", "send", SHOP, address, "--rate=30", "--resend")
        for number in range(3)
    ]
    for sender in senders:
        sender.reaches("accepted", 200)
        sender.stop()
    sent = [sender.report() for sender in senders]
    numbers = Counter(number for report in sent for number in range(report["sent"]))
    copies = len(receivers) if address == "news" else 1
    for receiver in receivers:
        receiver.stop()
    received = [Counter(receiver.report()["numbers"]) for receiver in receivers]
    assert sum(received, Counter()) == Counter({number: copies * count for number, count in numbers.items()})
    if address == "news":
        assert all(report == numbers for report in received), "a copy for each"
    if address == "jobs":
        assert sum(bool(report) for report in received) > 1, "others help a consumer that falls behind"


def edges_are_known(network: Network, address: str) -> bool:
    def local(router: str) -> list[int]:
        return [
            item["local"]
            for pod in network.pods(router)
            for item in network.status(pod)["addresses"]
            if (item["class"], item["name"]) == ("M", address) and item["local"]
        ]

    depots, known = local("depot"), local("core")
    return sum(depots) == 4 and sum(known) == len(depots)


def test_requests_survive_a_rolling_restart_of_the_interior(network: Network, clients: Clients) -> None:
    servers = [clients.start(f"serve-{number}", "serve", DEPOT, "prices") for number in range(2)]
    requesters = [
        clients.start(f"request-{number}", "request", SHOP, "prices", "--rate=15") for number in range(3)
    ]
    for requester in requesters:
        requester.reaches("answered", 100)
    edges = {pod: life for name in ("shop", "depot") for pod, life in network.pods(name).items()}
    interior = network.pods("core")
    network.kubectl("rollout", "restart", "statefulset/core")
    network.kubectl("rollout", "status", "statefulset/core", "--timeout=180s")
    assert not set(interior.values()) & set(network.pods("core").values()), "both have been replaced"
    for requester in requesters:
        requester.reaches("answered", requester.progress()["answered"] + 40)
        requester.stop()
    for requester in requesters:
        report = requester.report()
        asked = set(range(report["sent"]))
        assert set(report["answered"]) == asked, "every request is answered at last"
        assert sorted(report["outcomes"]["accepted"]) == sorted(asked)
        assert report["outcomes"]["lost"] == report["outcomes"]["rejected"] == report["under_way"] == []
        assert report["disconnects"] == [], "edges keep their clients"
        assert report["stalled"] < SECONDS_TO_RESUME
        returned = len(report["outcomes"]["released"]) + len(report["outcomes"]["modified"])
        print(f"{len(asked)} requests, {returned} came back, {report['stalled']} s without an answer at most")
    for server in servers:
        server.stop()
        assert server.report()["disconnects"] == []
    network.settled()
    assert {pod: life for name in ("shop", "depot") for pod, life in network.pods(name).items()} == edges


def test_the_preferred_uplink_is_in_use_and_the_status_says_so(network: Network, clients: Clients) -> None:
    receiver = clients.start("receive-preferred", "receive", DEPOT, "goods", "--stay")
    sender = clients.start("send-preferred", "send", SHOP, "goods", "--rate=30", "--resend")
    sender.reaches("accepted", 100)
    in_order = [("shop-core", ["shop-reserve"])] * 3
    network.cluster.eventually(
        "the status shows the preferred uplink", lambda: uplinks(network, "shop") == in_order
    )
    assert {item["uplink"]["router"] for item in instances(network, "shop")} <= {"core-0", "core-1"}
    network.cluster.eventually(
        "the status shows that an address is proxied",
        lambda: sum(item["proxiedAddresses"] for item in instances(network, "shop")) == 1,
    )
    preferred = network.get("connector/shop-core")
    network.kubectl("delete", "connector/shop-core")
    network.cluster.eventually(
        "the reserve is in use", lambda: uplinks(network, "shop") == [("shop-reserve", [])] * 3
    )
    sender.reaches("accepted", sender.progress()["accepted"] + 40)
    network.apply(preferred)
    network.cluster.eventually(
        "the preferred one is in use again",
        lambda: uplinks(network, "shop") == in_order,
        timeout=SECONDS_TO_FAIL_BACK,
    )
    sender.reaches("accepted", sender.progress()["accepted"] + 40)
    sender.stop()
    sent = sender.report()
    receiver.stop()
    received = receiver.report()
    assert sorted(sent["outcomes"]["accepted"]) == list(range(sent["sent"]))
    assert set(received["numbers"]) == set(range(sent["sent"]))
    assert sent["disconnects"] == received["disconnects"] == []
