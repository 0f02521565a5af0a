"""A network on a real cluster, from `helm install` to `helm uninstall`: messages arrive, whatever happens."""

from __future__ import annotations

import functools
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import yaml
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.provider import Faults
from tests.cluster.support.client import mixed_outcome
from tests.cluster.support.clients import Client, Clients
from tests.cluster.support.network import LASTING, OURS, Network, operator_metrics

EXAMPLE = installation.ROOT / "examples" / "two-sites.yaml"
EAST, WEST = "amqp://edge-east:5672", "amqp://edge-west:5672"
SAFE = "n1"
HOSTNAME = "kubernetes.io/hostname"
MESSAGES = 3_000
SECONDS_TO_CHANGE = 20.0
SECONDS_TO_RESUME = 15.0
# An edge hears nothing of its router's death: it gives it up after the idle timeout of 16 s.
SECONDS_TO_RESUME_FROM_SILENCE = 40.0


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[str]:
    """The chart as `helm install` gives it for all namespaces, without further settings; yields its namespace.
    Helm leaves the schemas behind, on purpose."""
    schemas = f"--filename={installation.ROOT / 'crds'}"
    present = "routers.isthmus.dev" in cluster.kubectl("get", "crd", "--output=name")
    if present:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", schemas)
    words = ["--set", "watchNamespaces={*}", *(["--skip-crds"] if present else [])]
    with cluster.namespace("isthmus-system") as name, installation.release(cluster, name, *words):
        yield name
    if not present:
        cluster.kubectl("delete", schemas, "--timeout=60s")


@pytest.fixture(scope="module")
def network(cluster: Cluster, release: str) -> Iterator[Network]:
    """Two sites with two interior routers and an edge each."""
    with cluster.namespace("sites") as name:
        network = Network(cluster, name)
        network.kubectl("apply", "--filename=-", input=example(cluster))
        network.settled()
        yield network


def example(cluster: Cluster) -> str:
    """The example. Where nodes can be killed, the interior routers are kept away from SAFE, and all others
    there: so the death of a node takes one router of each site."""
    if cluster.provider.faults is None:
        return EXAMPLE.read_text()
    resources = list(yaml.safe_load_all(EXAMPLE.read_text()))
    for resource in resources:
        if resource["kind"] == "Router":
            operator = "In" if resource["spec"].get("mode") == "edge" else "NotIn"
            term = {"matchExpressions": [{"key": HOSTNAME, "operator": operator, "values": [SAFE]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            resource["spec"]["podTemplate"] = {"spec": {"affinity": {"nodeAffinity": required}}}
    return yaml.safe_dump_all(resources)


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
    )


def test_helm_test_sends_a_message_through_a_router(cluster: Cluster, release: str) -> None:
    output = cluster.helm(
        "test", installation.RELEASE, f"--namespace={release}", "--timeout=90s", "--logs", timeout=100
    )
    assert "a message went through" in output


def test_the_example_becomes_ready_and_says_so_in_columns(cluster: Cluster, network: Network) -> None:
    cluster.wait("condition=Ready", "routers,connectors", "--all", namespace=network.namespace)
    assert columns(network, "routers") == {
        "east": "True Ready interior 2 2 2 True",
        "west": "True Ready interior 2 2 2 True",
        "edge-east": "True Ready edge 1 1 1 True",
        "edge-west": "True Ready edge 1 1 1 True",
    }
    assert columns(network, "connectors") == {
        "east-west": "True Ready east west inter-router 10 4 False",
        "uplink-east": "True Ready edge-east east edge 1 1 False",
        "uplink-west": "True Ready edge-west west edge 1 1 False",
    }


def columns(network: Network, kind: str) -> dict[str, str]:
    """The rows of `kubectl get` without the age."""
    rows = [line.split() for line in network.kubectl("get", kind, "--no-headers").splitlines()]
    return {row[0]: " ".join(row[1:-1]) for row in rows}


@pytest.mark.parametrize("mode", ["accept", "mixed"])
def test_messages_from_edge_to_far_edge(clients: Clients, mode: str) -> None:
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


Crash = Callable[[Network, str], None]


def deleted(network: Network, pod: str) -> None:
    """The pod is told to end; another one takes its place."""
    network.kubectl("delete", f"pod/{pod}", "--force", "--grace-period=0")


def killed(network: Network, pod: str) -> None:
    """The router has no time for a word; it starts again in the same pod, at once."""
    if network.cluster.provider.faults is None:
        pytest.skip(f"faults cannot be made in {network.cluster.provider.what}")
    before = container_of(network, pod)
    network.cluster.faults.kill_container(network.node(pod), before["containerID"])
    network.cluster.eventually(
        f"{pod} runs again", lambda: container_of(network, pod)["restartCount"] == before["restartCount"] + 1
    )
    assert container_of(network, pod)["lastState"]["terminated"]["exitCode"] == 128 + signal.SIGKILL


def container_of(network: Network, pod: str) -> dict[str, Any]:
    """The state of a router's container."""
    (container,) = network.get(f"pod/{pod}")["status"]["containerStatuses"]
    found: dict[str, Any] = container
    return found


@pytest.mark.parametrize("crash", [deleted, killed])
def test_crashed_interior_routers_lose_nothing_of_a_client_that_sends_again(
    network: Network, clients: Clients, crash: Crash
) -> None:
    name = crash.__name__
    receiver = clients.start(f"receive-{name}", "receive", WEST, f"orders.{name}", "--delay=0.3")
    sender = clients.start(f"send-{name}", "send", EAST, f"orders.{name}", "--rate=150", "--resend")
    sender.reaches("accepted", 150)
    for edge in ("edge-east", "edge-west"):
        crash(network, network.uplink(edge))
        sender.reaches("accepted", sender.progress()["accepted"] + 300, timeout=150)
    network.settled()
    sent, returned = nothing_is_lost(sender, receiver)
    assert returned or crash is deleted, "some were under way and came back"
    print(f"interior routers {name}: {sent['stalled']} s without an acceptance at most")
    assert sent["stalled"] < SECONDS_TO_RESUME


def nothing_is_lost(sender: Client, receiver: Client) -> tuple[dict[str, Any], set[int]]:
    """Ends both. Returns the sender's report, and the numbers that came back and were sent again."""
    sender.stop()
    sent, received = sender.report(), receiver.report()
    arrived = Counter(received["numbers"])
    assert set(arrived) == set(range(sent["sent"])), "every number at least once"
    modified = set(sent["outcomes"]["modified"])
    assert {number for number, times in arrived.items() if times > 1} <= modified, "released: not arrived"
    assert sorted(sent["outcomes"]["accepted"]) == list(range(sent["sent"]))
    assert sent["outcomes"]["lost"] == sent["outcomes"]["rejected"] == []
    assert sent["disconnects"] == received["disconnects"] == [], "edges keep their clients"
    return sent, modified | set(sent["outcomes"]["released"])


def test_edges_are_scaled_up_and_down_under_traffic(network: Network, clients: Clients) -> None:
    receiver = clients.start("receive-scaled", "receive", WEST, "orders.scale")
    sender = clients.start("send-scaled", "send", EAST, "orders.scale", "--rate=60", "--resend")
    sender.reaches("accepted", 100)
    for replicas in (3, 1):
        network.kubectl("scale", "routers/edge-east", "routers/edge-west", f"--replicas={replicas}")
        network.settled()
        for edge in ("edge-east", "edge-west"):
            network.cluster.eventually(
                f"{edge} has {replicas} pods and says so",
                functools.partial(has_scaled, network, edge, replicas),
            )
            assert network.uplinks(edge).keys() == network.pods(edge).keys()
        sender.reaches("accepted", sender.progress()["accepted"] + 40)
    sender.stop()
    sent, received = sender.report(), receiver.report()
    assert sorted(sent["outcomes"]["accepted"]) == list(range(sent["sent"]))
    assert set(received["numbers"]) == set(range(sent["sent"]))


def has_scaled(network: Network, router: str, replicas: int) -> bool:
    status = network.get(f"router/{router}")["status"]
    told = (status["replicas"], status["readyReplicas"], len(status["instances"]))
    return (*told, len(network.pods(router))) == (replicas,) * 4


def test_a_treatment_and_a_cost_change_live(network: Network, clients: Clients) -> None:
    near = clients.start("quotes-near", "receive", EAST, "quotes.live", "--stay")
    far = clients.start("quotes-far", "receive", WEST, "quotes.live", "--stay")
    receiver = clients.start("receive-live", "receive", WEST, "orders.live")
    sender = clients.start("send-live", "send", EAST, "orders.live", "--rate=60", "--resend")
    for quotes in (near, far):
        quotes.reaches("attached", True)
    sender.reaches("accepted", 100)
    routers = ("east", "west", "edge-east", "edge-west")
    pods = {pod: life for name in routers for pod, life in network.pods(name).items()}
    network.cluster.eventually(
        "everyone knows both receivers",
        lambda: (
            treatments(network, pods, "quotes.live") == {"closest"}
            and consumers(network, "east-0", "quotes.live") == 2
        ),
    )
    clients.start("quotes-one", "send", EAST, "quotes.live", "--count=10").report()
    assert (near.progress()["received"], far.progress()["received"]) == (10, 0), "closest: the near one"

    hashes = {pod: network.status(pod)["router"]["configHash"] for pod in pods}
    changed = example(network.cluster).replace("distribution: closest", "distribution: multicast")
    changed = changed.replace("cost: 10", "cost: 25")
    network.kubectl("apply", "--filename=-", input=changed)
    begin = time.monotonic()
    network.cluster.eventually(
        "every router has taken the change over",
        lambda: all(network.status(pod)["router"]["configHash"] != hashes[pod] for pod in pods),
        timeout=SECONDS_TO_CHANGE,
    )
    print(f"a live change took {time.monotonic() - begin:.1f} s to reach {len(pods)} routers")
    network.cluster.eventually(
        "the address is multicast everywhere, and paths cost more",
        lambda: (
            treatments(network, pods, "quotes.live") == {"multicast"}
            and costs(network, "east-0") == {"east-1": 1, "west-0": 25, "west-1": 25}
        ),
        timeout=SECONDS_TO_CHANGE,
    )
    # Until an edge has its link for the address, a multicast reaches those on the same edge only.
    quoting = clients.start("quotes-two", "send", EAST, "quotes.live", "--rate=50")
    far.reaches("received", 10)
    quoting.stop()
    near.reaches("received", 10 + quoting.report()["sent"])
    sender.stop()
    sent, received = sender.report(), receiver.report()
    # While paths move a message may be given back, though never when it can have arrived.
    assert sorted(received["numbers"]) == list(range(sent["sent"])), "other traffic: every number once"
    assert sent["outcomes"]["modified"] == sent["outcomes"]["lost"] == []
    network.settled()
    assert {pod: life for name in routers for pod, life in network.pods(name).items()} == pods, "no restart"
    for quotes in (near, far):
        quotes.stop()
        assert quotes.report()["disconnects"] == [], "no connection was closed for it"


def treatments(network: Network, pods: Iterable[str], address: str) -> set[str]:
    """How these routers treat the address, as far as they know it."""
    return {
        item["distribution"]
        for pod in pods
        for item in network.status(pod)["addresses"]
        if (item["class"], item["name"]) == ("M", address)
    }


def consumers(network: Network, pod: str, address: str) -> int:
    """Local consumers of the address, and other routers with some, as an interior router knows them."""
    found = (item for item in network.status(pod)["addresses"] if item["name"] == address)
    return sum(item["local"] + item["remote"] for item in found if item["class"] == "M")


def costs(network: Network, pod: str) -> dict[str, int]:
    """What the paths to the other interior routers cost."""
    return {node["id"]: node["cost"] for node in network.status(pod)["nodes"]}


def test_a_killed_leader_is_replaced_and_nothing_is_lost(
    cluster: Cluster, release: str, network: Network, clients: Clients
) -> None:
    receiver = clients.start("receive-led", "receive", WEST, "orders.led")
    sender = clients.start("send-led", "send", EAST, "orders.led", "--rate=60")
    leader = leading(cluster, release)
    before = children(network)
    statuses = conditions(network)
    cluster.kubectl("delete", "pod", leader, f"--namespace={release}", "--force", "--grace-period=0")
    cluster.eventually("another one leads", lambda: leading(cluster, release) not in {"", leader})
    successor = leading(cluster, release)
    cluster.eventually(
        "it has looked at all",
        lambda: operator_metrics(cluster, release)[successor]["isthmus_operator_objects"] == 7,
    )
    looks(cluster, release, network)
    assert operator_metrics(cluster, release)[successor].get("isthmus_operator_object_writes_total", 0) == 0
    assert children(network) == before
    assert conditions(network) == statuses, "no condition has changed, not even for a moment"
    sender.stop()
    sent, received = sender.report(), receiver.report()
    assert received["numbers"] == list(range(sent["sent"]))
    network.kubectl("patch", "connector/east-west", "--type=merge", '--patch={"spec":{"cost":30}}')
    cluster.eventually("it follows changes", lambda: costs(network, "east-0")["west-0"] == 30)
    network.settled()


def leading(cluster: Cluster, release: str) -> str:
    """The operator pod that leads, or nothing."""
    metrics = operator_metrics(cluster, release)
    return "".join(pod for pod, values in metrics.items() if values["isthmus_operator_leader"] == 1)


def looks(cluster: Cluster, release: str, network: Network) -> None:
    """Makes the operator look at the namespace again, and waits until it has."""

    def looked() -> float:
        metrics = operator_metrics(cluster, release)[leading(cluster, release)]
        return metrics["isthmus_operator_reconciliations_total"]

    before = looked()
    network.kubectl("annotate", "routers", "--all", "--overwrite", f"test/looks={before}")
    cluster.eventually("the operator has looked again", lambda: looked() > before)


def children(network: Network) -> dict[str, str]:
    """Version of every object made for a Router, without what Kubernetes itself keeps in it."""
    items = network.get("svc,secret,sa,pdb", f"--selector={OURS}")["items"]
    items += network.get("sts,deploy", f"--selector={OURS}")["items"]
    return {
        f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in items
    }


def conditions(network: Network) -> dict[str, list[tuple[str, str, str]]]:
    """Status, reason and time of transition of all conditions."""
    return {
        item["metadata"]["name"]: sorted(
            (condition["type"], condition["status"], condition["lastTransitionTime"])
            for condition in item["status"]["conditions"]
        )
        for item in network.get("routers,connectors")["items"]
    }


def test_a_dead_node_is_routed_around_and_told_and_comes_back(
    cluster: Cluster, network: Network, faults: Faults
) -> None:
    clients = Clients(cluster, network.namespace, installation.router_image(cluster), SAFE)
    receiver = clients.start("receive-dead", "receive", WEST, "orders.dead", "--delay=0.3")
    sender = clients.start("send-dead", "send", EAST, "orders.dead", "--rate=150", "--resend")
    sender.reaches("accepted", 150)
    victim = network.uplink("edge-east")
    node = network.node(victim)
    before = sender.progress()["accepted"]

    faults.kill_node(node)
    message = network.becomes("router/east", "False", "ReplicasMissing")
    assert "1 of 2 replicas are ready" in message
    assert victim in message
    assert network.get("router/east")["status"]["readyReplicas"] == 1
    assert victim in network.becomes("connector/east-west", "False", "ConnectionsMissing")
    sender.reaches("accepted", before + 500, timeout=SECONDS_TO_RESUME_FROM_SILENCE)
    assert network.uplink("edge-east") != victim
    network.ready("router/edge-east", "connector/uplink-east")
    assert not cluster.nodes()[node]

    faults.start_node(node)
    network.settled()
    sent, returned = nothing_is_lost(sender, receiver)
    assert sent["outcomes"]["modified"], "what was under way may have arrived"
    print(f"a node died: {sent['stalled']} s without an acceptance, {len(returned)} numbers came back")
    assert sent["stalled"] < SECONDS_TO_RESUME_FROM_SILENCE


def test_uninstalled_routers_go_on_and_what_is_deleted_leaves_nothing(
    cluster: Cluster, release: str, network: Network, clients: Clients
) -> None:
    receiver = clients.start("receive-last", "receive", WEST, "orders.last")
    sender = clients.start("send-last", "send", EAST, "orders.last", "--rate=60")
    sender.reaches("accepted", 100)
    cluster.helm("uninstall", installation.RELEASE, f"--namespace={release}", "--wait", "--timeout=60s")
    sender.reaches("accepted", sender.progress()["accepted"] + 60)
    sender.stop()
    sent, received = sender.report(), receiver.report()
    assert received["numbers"] == list(range(sent["sent"]))
    network.kubectl("delete", "routers,connectors", "--all", "--timeout=30s")
    cluster.eventually(
        "no object of a Router is left", lambda: not network.names(f"--selector={OURS}") - LASTING
    )
    left = everything(cluster, "--selector=app.kubernetes.io/part-of=isthmus")
    assert {item for item in left if not item.startswith("customresourcedefinition.")} == LASTING

    def nothing_left() -> bool:
        left = everything(cluster, f"--namespace={release}")
        assert left <= {"configmap/kube-root-ca.crt", "serviceaccount/default", *LASTING}, (
            "helm test had a Router there"
        )
        return True

    cluster.eventually("nothing is left in the release's namespace", nothing_left)


def everything(cluster: Cluster, *where: str) -> set[str]:
    """Every object of every kind, but events and metrics."""
    scope = ["--namespaced=true"] if where[0].startswith("--namespace") else []
    kinds = cluster.kubectl("api-resources", "--verbs=list", "--output=name", *scope).split()
    listed = ",".join(kind for kind in kinds if not kind.startswith("events"))
    place = where if scope else ("--all-namespaces", *where)
    return set(cluster.kubectl("get", listed, "--output=name", *place).split())
