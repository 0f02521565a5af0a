"""A network on a real cluster, from `helm install` to `helm uninstall`: messages arrive, whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.support.client import mixed_outcome
from tests.cluster.support.clients import Clients
from tests.cluster.support.network import Network, operator_metrics

EXAMPLE = installation.ROOT / "examples" / "two-sites.yaml"
EAST, WEST = "amqp://edge-east:5672", "amqp://edge-west:5672"
MESSAGES = 10_000


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[str]:
    """The chart as `helm install` gives it without any settings but the images; yields its namespace."""
    with cluster.namespace("isthmus-system") as name, installation.release(cluster, name):
        yield name


@pytest.fixture(scope="module")
def network(cluster: Cluster, release: str) -> Iterator[Network]:
    """Two sites with two interior routers and an edge each."""
    with cluster.namespace("sites") as name:
        cluster.kubectl("apply", f"--filename={EXAMPLE}", f"--namespace={name}")
        network = Network(cluster, name)
        network.settled()
        yield network


@pytest.fixture(scope="module")
def clients(cluster: Cluster, network: Network) -> Clients:
    return Clients(cluster, network.namespace, installation.router_image(cluster))


def test_the_operator_runs_twice_and_one_of_them_leads(cluster: Cluster, release: str) -> None:
    cluster.eventually(
        "one of two operators leads",
        lambda: (
            sorted(item["isthmus_operator_leader"] for item in operator_metrics(cluster, release).values())
            == [0, 1]
        ),
        timeout=30,
    )


def test_helm_test_sends_a_message_through_a_router(cluster: Cluster, release: str) -> None:
    output = cluster.helm(
        "test", installation.RELEASE, f"--namespace={release}", "--timeout=90s", "--logs", timeout=100
    )
    assert "a message went through" in output


def test_the_example_becomes_ready_and_says_so_in_columns(cluster: Cluster, network: Network) -> None:
    cluster.wait("condition=Ready", "routers,connectors", "--all", namespace=network.namespace)
    assert columns(network, "routers") == {
        "east": "True Ready interior 2 2 2",
        "west": "True Ready interior 2 2 2",
        "edge-east": "True Ready edge 1 1 1",
        "edge-west": "True Ready edge 1 1 1",
    }
    assert columns(network, "connectors") == {
        "east-west": "True Ready east west inter-router 10 2",
        "uplink-east": "True Ready edge-east east edge 1 1",
        "uplink-west": "True Ready edge-west west edge 1 1",
    }


def columns(network: Network, kind: str) -> dict[str, str]:
    """The rows of `kubectl get` without the age."""
    rows = [line.split() for line in network.kubectl("get", kind, "--no-headers").splitlines()]
    return {row[0]: " ".join(row[1:-1]) for row in rows}


@pytest.mark.parametrize("mode", ["accept", "mixed"])
def test_ten_thousand_messages_from_edge_to_far_edge(clients: Clients, mode: str) -> None:
    receiver = clients.start(
        f"receive-{mode}", "receive", WEST, f"orders.{mode}", *(["--mixed"] if mode == "mixed" else [])
    )
    sender = clients.start(f"send-{mode}", "send", EAST, f"orders.{mode}", f"--count={MESSAGES}")
    sent, received = sender.report(timeout=90), receiver.report()
    assert received["numbers"] == list(range(MESSAGES)), "every message once, in order"
    expected: dict[str, list[int]] = {name: [] for name in sent["outcomes"]}
    for number in range(MESSAGES):
        expected["accepted" if mode == "accept" else mixed_outcome(number)].append(number)
    assert {name: sorted(numbers) for name, numbers in sent["outcomes"].items()} == expected
    assert sent["conditions"] == ({} if mode == "accept" else {"test:refused: number 1": MESSAGES // 10})
    assert sent["disconnects"] == received["disconnects"] == []


def test_killed_interior_pods_lose_nothing_of_a_client_that_sends_again(
    network: Network, clients: Clients
) -> None:
    receiver = clients.start("receive-on", "receive", WEST, "orders.kill", "--delay=0.3")
    sender = clients.start("send-on", "send", EAST, "orders.kill", "--rate=500", "--resend")
    sender.reaches("accepted", 500)
    for edge in ("edge-east", "edge-west"):
        victim = uplink(network, edge)
        network.kubectl("delete", f"pod/{victim}", "--force", "--grace-period=0")
        sender.reaches("accepted", sender.progress()["accepted"] + 1000, timeout=45)
    network.settled()
    sender.stop()
    sent, received = sender.report(), receiver.report()
    arrived = Counter(received["numbers"])
    assert set(arrived) == set(range(sent["sent"])), "every number at least once"
    returned = Counter(sent["outcomes"]["released"] + sent["outcomes"]["modified"])
    assert returned, "some were under way and came back"
    assert {number for number, times in arrived.items() if times > 1} <= set(returned)
    assert sorted(sent["outcomes"]["accepted"]) == list(range(sent["sent"]))
    assert sent["outcomes"]["lost"] == sent["outcomes"]["rejected"] == []
    assert sent["disconnects"] == received["disconnects"] == [], "edges keep their clients"


def uplink(network: Network, edge: str) -> str:
    """The interior router that the one pod of an edge Router is attached to."""
    (pod,) = network.pods(edge)
    (container,) = {
        item["container"]
        for item in network.status(pod)["connections"]
        if item["role"] == "edge" and item["active"]
    }
    return str(container)
