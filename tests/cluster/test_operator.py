"""The operator on a real cluster: resources become routers, follow changes, heal, and go without trace."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.host import CommandError
from tests.cluster.harness.provider import Faults
from tests.cluster.support.network import LASTING, OURS, Network, operator_metrics
from tests.unit.operator.support import connector, gossip_router, link_route, router


@pytest.fixture(scope="module")
def network(cluster: Cluster) -> Iterator[Network]:
    with (
        installation.schemas(cluster),
        cluster.namespace("operator") as name,
        installation.operator(cluster, name),
    ):
        yield Network(cluster, name)


def metrics(network: Network) -> dict[str, float]:
    """The metrics of the one operator."""
    (found,) = operator_metrics(network.cluster, network.namespace).values()
    return found


def leads_and_has_seen(network: Network) -> tuple[float, float]:
    """Whether the one operator leads, and how many resources it has looked at."""
    found = metrics(network)
    return found["isthmus_operator_leader"], found.get("isthmus_operator_objects", 0)


@pytest.fixture(autouse=True)
def _clean(network: Network) -> Iterator[None]:
    """Every test starts without resources. Routers have nothing to drain, so nobody waits for that."""
    yield
    network.kubectl("delete", "rtr,conn,gossip,linkroute", "--all", "--wait=true", "--timeout=60s")
    ours = f"--selector={OURS}"
    network.cluster.eventually(
        "no controller makes pods", lambda: not network.kubectl("get", "sts,deploy,rs", ours, "--output=name")
    )
    network.kubectl("delete", "pods", ours, "--grace-period=0", "--force")
    network.cluster.eventually("nothing is left", lambda: not network.names(ours) - LASTING)


def test_a_status_has_every_character_of_an_address(network: Network) -> None:
    """Before, the API server refused such a status, and the resource kept the earlier one."""
    network.apply(link_route("smile", prefix="\U0001f600", containerId="broker"))
    network.cluster.wait(
        "jsonpath={.status.addresses}=\U0001f600",
        "linkroute/smile",
        namespace=network.namespace,
        timeout=30,
    )


def test_two_sites_and_an_edge_become_ready_and_say_what_they_see(network: Network) -> None:
    network.apply(
        router("west", replicas=2, site="Westen"),
        router("east", replicas=2),
        router("shop", mode="edge"),
        connector("west-east", "west", "east", "inter-router"),
        connector("shop-west", "shop", "west", "edge"),
    )
    network.ready("rtr/west", "rtr/east", "rtr/shop", "conn/west-east", "conn/shop-west")
    status = network.get("rtr/west")["status"]
    assert (status["replicas"], status["readyReplicas"], status["neighbors"]) == (2, 2, 2)
    instances = {item["id"]: item for item in status["instances"]}
    assert set(instances) == {"west-0", "west-1"}
    assert "west-1" in instances["west-0"]["neighbors"]
    nodes = {node["id"] for node in network.status("west-0")["nodes"]}
    assert {"west-1", "east-0", "east-1"} <= nodes
    link = network.get("conn/west-east")["status"]
    assert (link["connections"], link["openConnections"], link["destination"]) == (4, 4, "east")


def test_a_live_change_arrives_within_seconds_and_restarts_nothing(network: Network) -> None:
    network.apply(router("west"), router("east"), connector("west-east", "west", "east", "inter-router"))
    network.ready("rtr/west", "rtr/east", "conn/west-east")
    before = network.pods("west") | network.pods("east")
    network.apply(
        router("west", addresses=[{"prefix": "news", "distribution": "multicast"}]),
        connector("west-east", "west", "east", "inter-router", cost=7),
    )
    network.becomes("rtr/west", "True", "Applied", "Configured")
    network.becomes("conn/west-east", "True", "Applied", "Configured")
    network.cluster.eventually(
        "the routers compute with the new cost",
        lambda: {node["id"]: node["cost"] for node in network.status("west-0")["nodes"]} == {"east-0": 7},
    )
    network.ready("rtr/west", "conn/west-east")
    assert network.pods("west") | network.pods("east") == before


@pytest.mark.parametrize(
    ("kind", "manifest"), [("rtr", router("west")), ("gossip", gossip_router("west", replicas=1))]
)
def test_no_status_reports_a_change_before_the_pods_have_it(
    network: Network, kind: str, manifest: dict[str, Any]
) -> None:
    network.apply(manifest)
    network.ready(f"{kind}/west")
    changed = {**manifest, "spec": {**manifest["spec"], "resources": {"requests": {"cpu": "11m"}}}}
    with network.cluster.watch(f"{kind}/west", network.namespace) as versions:
        before = next(versions)["metadata"]["generation"]
        network.apply(changed)
        told = []
        for status in (found["status"] for found in versions):
            (configured,) = (item for item in status["conditions"] if item["type"] == "Configured")
            if status["observedGeneration"] > before:
                told.append((configured["status"], configured["reason"]))
                if configured["status"] == "True":
                    break
    assert told[0] == ("False", "RolloutInProgress")
    assert ("True", "Applied") not in told[:-1]


def test_routers_are_scaled_with_kubectl(network: Network) -> None:
    network.apply(router("west"), router("shop", mode="edge"), connector("shop-west", "shop", "west", "edge"))
    network.ready("rtr/west", "rtr/shop")
    network.kubectl("scale", "rtr/west", "rtr/shop", "--replicas=3")
    network.ready("rtr/west", "rtr/shop")
    assert len(network.pods("west")) == len(network.pods("shop")) == 3
    assert "poddisruptionbudget.policy/west" in network.names()
    network.kubectl("scale", "rtr/west", "rtr/shop", "--replicas=1")
    network.ready("rtr/west", "rtr/shop")
    network.cluster.eventually("one pod each", lambda: len(network.pods("west") | network.pods("shop")) == 2)
    assert "poddisruptionbudget.policy/west" not in network.names()


HOARDED = 40
"""ServiceAccounts of about 1 MB. Of each the operator held 3 MiB."""


def hoarded(number: int) -> str:
    """A ServiceAccount with the operator's label and as much content as the API server accepts."""
    names = [{"name": f"{index:05d}{'x' * 60}"} for index in range(9_900)]
    metadata = {"name": f"hoarded-{number}", "labels": {"app.kubernetes.io/managed-by": "isthmus-operator"}}
    manifest = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "imagePullSecrets": names}
    return json.dumps(manifest)


def test_objects_that_only_have_the_operators_label_take_little_of_its_memory(network: Network) -> None:
    network.apply(router("west"))
    network.ready("rtr/west")
    before = metrics(network)["process_resident_memory_bytes"]
    try:
        for number in range(HOARDED):
            network.kubectl("create", "--filename=-", input=hoarded(number))
        network.kubectl("delete", "sa/west")  # the operator sees this after all of them
        network.cluster.eventually(
            "the ServiceAccount is made again", lambda: "serviceaccount/west" in network.names()
        )
        grown = metrics(network)["process_resident_memory_bytes"] - before
        assert grown < HOARDED * 2**20
    finally:
        accounts = (f"sa/hoarded-{number}" for number in range(HOARDED))
        network.kubectl("delete", "--ignore-not-found", *accounts)


def test_drift_is_repaired(network: Network) -> None:
    network.apply(router("west"))
    network.ready("rtr/west")
    network.kubectl("delete", "svc/west")
    network.kubectl(
        "patch", "svc/west-mesh", "--type=merge", '-p={"spec":{"publishNotReadyAddresses":false}}'
    )
    network.kubectl("scale", "sts/west", "--replicas=0")
    network.cluster.eventually("Service is back", lambda: "service/west" in network.names())
    network.cluster.eventually(
        "changed fields are back",
        lambda: (
            network.get("svc/west-mesh")["spec"].get("publishNotReadyAddresses")
            and network.get("sts/west")["spec"]["replicas"] == 1
        ),
    )


def test_what_is_missing_is_named_and_heals_by_itself(network: Network, tmp_path: Path) -> None:
    listeners = [{"name": "amqps", "port": 5671, "tls": {"secretName": "server"}}]
    network.apply(router("west", listeners=listeners), connector("up", "shop", "west", "edge"))
    assert '"server"' in network.becomes("rtr/west", "False", "SecretNotFound")
    assert '"shop"' in network.becomes("conn/up", "False", "Pending")
    key, certificate = tmp_path / "tls.key", tmp_path / "tls.crt"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=west"]
    subprocess.run(
        [*command, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=60
    )
    network.kubectl("create", "secret", "tls", "server", f"--cert={certificate}", f"--key={key}")
    assert "kubectl label secret server" in network.becomes("rtr/west", "False", "SecretNotAllowed")
    network.kubectl("label", "secret/server", "isthmus.dev/use=true")
    network.ready("rtr/west")
    listening = {item["name"]: item["state"] for item in network.status("west-0")["listeners"]}
    assert listening["amqps"] == "listening"
    network.apply(router("shop", mode="edge"))
    assert "edge" in network.becomes("conn/up", "False", "RoleMismatch")
    network.kubectl("delete", "secret/server")


def test_credentials_of_a_registry_are_used_once_their_owner_allows_it(network: Network) -> None:
    network.apply(router("west", podTemplate={"spec": {"imagePullSecrets": [{"name": "registry"}]}}))
    assert '"registry" does not exist' in network.becomes("rtr/west", "False", "SecretNotFound")
    login = [f"--docker-{key}=x" for key in ("server", "username", "password")]
    network.kubectl("create", "secret", "docker-registry", "registry", *login)
    message = network.becomes("rtr/west", "False", "SecretNotAllowed")
    assert "kubectl label secret registry isthmus.dev/use=true" in message
    assert "west" not in network.kubectl("get", "statefulsets", "--output=name")
    network.kubectl("label", "secret/registry", "isthmus.dev/use=true")
    network.ready("rtr/west")
    assert network.get("pod/west-0")["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    network.kubectl("delete", "secret/registry")


def test_objects_of_others_are_not_touched(network: Network) -> None:
    network.kubectl("create", "service", "clusterip", "west", "--tcp=80:80")
    network.kubectl("create", "serviceaccount", "west")
    before = {kind: network.get(f"{kind}/west")["metadata"]["resourceVersion"] for kind in ("svc", "sa")}
    network.apply(router("west"))
    message = network.becomes("rtr/west", "False", "ObjectConflict")
    assert 'Service "west"' in message
    assert 'ServiceAccount "west"' in message
    assert "west-config" in network.kubectl("get", "secrets", "--output=name")
    assert "west" not in network.kubectl("get", "statefulsets", "--output=name")
    network.kubectl("delete", "rtr/west", "--wait=true")
    assert {kind: network.get(f"{kind}/west")["metadata"]["resourceVersion"] for kind in before} == before
    network.kubectl("delete", "svc/west", "sa/west")


def test_conflicts_between_routers_are_explained(network: Network) -> None:
    listener = {"name": "amqp", "port": 5672, "exposure": "NodePort", "nodePort": 30672}
    network.apply(router("first", listeners=[listener]))
    network.ready("rtr/first")
    network.apply(router("second", listeners=[listener]))
    message = network.becomes("rtr/second", "False", "ListenerConflict")
    assert "30672" in message
    assert '"first"' in message
    network.kubectl("delete", "rtr/first", "--wait=true")
    network.ready("rtr/second")


def test_a_pod_template_that_kubernetes_refuses_is_a_condition(network: Network) -> None:
    network.apply(router("west", podTemplate={"spec": {"tolerations": [{"nonsense": True}]}}))
    assert "nonsense" in network.becomes("rtr/west", "False", "ApplyFailed")
    network.apply(router("west", podTemplate={"spec": {"priorityClassName": "no-such-class"}}))
    network.becomes("rtr/west", "False", "NoReplicaReady")
    network.cluster.eventually(
        "the reason is in the message",
        lambda: "no-such-class" in str(network.condition("rtr/west")["message"]),
    )
    network.apply(router("west"))
    network.ready("rtr/west")


def test_names_too_long_for_derived_objects(network: Network) -> None:
    name = "a" * 200 + ".b"
    network.apply(router(name, replicas=2))
    network.ready(f"rtr/{name}")


def test_a_paused_router_is_left_alone(network: Network) -> None:
    paused = {"annotations": {"isthmus.dev/paused": "true"}}
    network.apply(router("west"))
    network.ready("rtr/west")
    network.apply(router("west", meta=paused, replicas=2))
    network.becomes("rtr/west", "Unknown", "ReconciliationPaused", "Configured")
    assert network.get("sts/west")["spec"]["replicas"] == 1
    network.kubectl("annotate", "rtr/west", "isthmus.dev/paused-")
    network.ready("rtr/west")
    assert len(network.pods("west")) == 2


def test_a_restarted_operator_writes_nothing_and_reports_nothing_lost(network: Network) -> None:
    network.apply(
        router("west", replicas=2),
        router("shop", mode="edge"),
        connector("shop-west", "shop", "west", "edge"),
    )
    network.ready("rtr/west", "rtr/shop", "conn/shop-west")
    before = network.get("rtr,conn")["items"]
    network.kubectl("rollout", "restart", "deploy/isthmus-operator")
    network.kubectl("rollout", "status", "deploy/isthmus-operator", "--timeout=60s")
    network.cluster.eventually(
        "the new one leads and has looked at all", lambda: leads_and_has_seen(network) == (1, 3)
    )
    network.cluster.eventually(
        "it has asked every router twice",
        lambda: metrics(network).get("isthmus_operator_router_polls_total", 0) >= 6,
    )
    assert metrics(network).get("isthmus_operator_object_writes_total", 0) == 0
    after = {item["metadata"]["name"]: item["status"] for item in network.get("rtr,conn")["items"]}
    for item in before:
        assert after[item["metadata"]["name"]]["conditions"] == item["status"]["conditions"]
    network.apply(router("west", replicas=2, site="X"))
    network.becomes("rtr/west", "True", "Applied", "Configured")


def test_deleting_resources_removes_all_they_caused_and_nothing_else(network: Network) -> None:
    before = network.names(f"--selector=!{OURS.split('=', maxsplit=1)[0]}")
    listener = {"name": "amqp", "port": 5672, "exposure": "NodePort"}
    network.apply(router("west", replicas=2, listeners=[listener, {"name": "ir", "role": "inter-router", "port": 5}],
                         networkPolicy="Ingress"))  # fmt: skip
    network.apply(router("east"))
    network.ready("rtr/west", "rtr/east")
    kept = network.pods("east")
    for kind in ("rtr", "conn"):
        assert all("finalizers" not in item["metadata"] for item in network.get(kind)["items"])
    network.kubectl("delete", "rtr/west", "--cascade=foreground", "--wait=true", "--timeout=60s")
    network.cluster.eventually(
        "all of it is gone",
        lambda: not network.names("--selector=app.kubernetes.io/instance=west"),
    )
    assert network.pods("east") == kept
    assert network.names(f"--selector=!{OURS.split('=', maxsplit=1)[0]}") == before


def test_another_instance_takes_over(network: Network) -> None:
    network.apply(router("west"))
    network.ready("rtr/west")
    network.kubectl("scale", "deploy/isthmus-operator", "--replicas=2")
    network.kubectl("rollout", "status", "deploy/isthmus-operator", "--timeout=60s")
    leader = network.get("lease/isthmus-operator")["spec"]["holderIdentity"]
    network.kubectl("delete", f"pod/{leader}", "--force", "--grace-period=0")
    network.apply(router("west", addresses=[{"prefix": "a", "distribution": "multicast"}]))
    network.becomes("rtr/west", "True", "Applied", "Configured")
    assert network.get("lease/isthmus-operator")["spec"]["holderIdentity"] != leader
    network.kubectl("scale", "deploy/isthmus-operator", "--replicas=1")


def test_routers_outlive_the_api_server_and_the_operator_catches_up(network: Network, faults: Faults) -> None:
    network.apply(router("west", replicas=2))
    network.ready("rtr/west")
    before = network.pods("west")
    faults.stop_apiserver()
    with pytest.raises(CommandError):
        network.kubectl("get", "pods", "--request-timeout=5s")
    faults.start_apiserver()
    network.apply(router("west", replicas=2, addresses=[{"prefix": "a", "distribution": "multicast"}]))
    network.becomes("rtr/west", "True", "Applied", "Configured")
    network.ready("rtr/west")
    assert network.pods("west") == before
