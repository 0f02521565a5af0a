"""`isthmus status`: the same facts as the routers give, for those who may ask them and those who may not."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.support.network import Network

RESOURCES = """
apiVersion: isthmus.dev/v1alpha1
kind: Router
metadata: {name: hub}
spec: {mode: interior, replicas: 2, site: here}
---
apiVersion: isthmus.dev/v1alpha1
kind: Router
metadata: {name: edge}
spec: {mode: edge}
---
apiVersion: isthmus.dev/v1alpha1
kind: Connector
metadata: {name: uplink}
spec: {role: edge, from: {routerRef: {name: edge}}, to: {routerRef: {name: hub}}}
"""


@pytest.fixture(scope="module")
def network(cluster: Cluster) -> Iterator[Network]:
    with (
        installation.schemas(cluster),
        cluster.namespace("status") as name,
        installation.operator(cluster, name),
    ):
        cluster.apply(RESOURCES, namespace=name)
        network = Network(cluster, name)
        network.settled()
        yield network


def document(network: Network, kubeconfig: Path | None = None) -> dict[str, Any]:
    done = network.isthmus_status("-o", "json", kubeconfig=kubeconfig)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def kubeconfig_of(network: Network, account: str, folder: Path, *roles: str) -> Path:
    """A kubeconfig for a new service account with these cluster roles in the namespace."""
    network.kubectl("create", "serviceaccount", account)
    for role in roles:
        subject = f"--serviceaccount={network.namespace}:{account}"
        network.kubectl("create", "rolebinding", f"{account}-{role}", f"--clusterrole={role}", subject)
    config = yaml.safe_load(network.cluster.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": network.kubectl("create", "token", account).strip()}
    path = folder / f"{account}.yaml"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path


def test_routers_links_and_where_they_run(network: Network) -> None:
    found = document(network)
    assert found["problems"] == []
    assert found["ready"] is True
    rows = {row["id"]: row for row in found["routers"]}
    assert rows["hub-0"]["neighbors"] == ["hub-1"]
    assert (rows["hub-0"]["site"], rows["hub-0"]["reaches"]) == ("here", 1)
    assert rows["hub-0"]["where"].startswith("pod on ")
    assert rows["hub-0"]["endpoints"] == [f"amqp://hub.{network.namespace}.svc:5672"]
    (edge,) = [row for row in found["routers"] if row["router"] == "edge"]
    assert edge["neighbors"] in (["hub-0"], ["hub-1"])
    assert {(row["connector"], row["state"]) for row in found["links"]} == {
        ("mesh/hub-0", "open"),
        ("uplink", "open"),
    }


def test_the_table_has_the_same_headline(network: Network) -> None:
    done = network.isthmus_status()
    assert f"{network.namespace} on Kubernetes: 3 of 3 routers ready, 2 of 2 links open" in done.stdout


def test_who_may_read_resources_only_sees_what_they_say(network: Network, tmp_path: Path) -> None:
    network.cluster.apply(READER, namespace=network.namespace)
    viewer = kubeconfig_of(network, "viewer", tmp_path)
    binding = ("--role=isthmus-reader", f"--serviceaccount={network.namespace}:viewer")
    network.kubectl("create", "rolebinding", "viewer-reader", *binding)
    found = document(network, viewer)
    rows = {row["id"]: row for row in found["routers"]}
    assert {row["state"] for row in rows.values()} == {"ready"}
    assert rows["hub-1"]["neighbors"][0] == "hub-0"
    assert rows["hub-1"]["clients"] is None
    assert sorted(found["problems"]) == [
        "certificates are not shown: no right to list sslprofiles",
        "flow analyses are not shown: no right to list flowanalyses",
        "flow logs are not shown: no right to list flowlogs",
        "gossip routers are not shown: no right to list gossiprouters",
        "link routes are not shown: no right to list linkroutes",
        "routers were not asked: no right to list pods; what is shown is in their resources",
        "sites are not shown: no right to list relaysites",
    ]


def test_who_may_read_nothing_is_told_what_is_missing(network: Network, tmp_path: Path) -> None:
    nobody = kubeconfig_of(network, "nobody", tmp_path)
    for namespace in (network.namespace, "nowhere"):
        done = network.isthmus_status("-n", namespace, kubeconfig=nobody)
        assert done.returncode == 1
        told = f"not allowed to read Isthmus resources in namespace {namespace}: "
        assert done.stderr.startswith(f"error: {told}")
        assert ".isthmus.dev is forbidden: " in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_namespace_that_does_not_exist(network: Network) -> None:
    done = network.isthmus_status("-n", "nowhere")
    assert (done.returncode, done.stderr) == (1, "error: namespace 'nowhere' does not exist\n")


def changed(network: Network, folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    """The tests' kubeconfig with other entries for its cluster and user; None takes one out."""
    config = yaml.safe_load(network.cluster.kubeconfig.read_text())
    for entry, changes in ((config["clusters"][0]["cluster"], cluster), (config["users"][0]["user"], user)):
        entry.update(changes)
        for key in [key for key, value in entry.items() if value is None]:
            del entry[key]
    path = folder / "changed.yaml"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path


def test_an_api_server_that_cannot_be_reached(network: Network, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    done = network.isthmus_status(
        kubeconfig=changed(network, tmp_path, {"server": f"https://127.0.0.1:{port}"}, {})
    )
    reason = f"127.0.0.1:{port}: Connection refused"
    assert (done.returncode, done.stderr) == (1, f"error: the API server cannot be reached: {reason}\n")


def test_an_api_server_of_another_authority(network: Network, tmp_path: Path) -> None:
    other = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    trust = {"certificate-authority": None, "certificate-authority-data": other}
    done = network.isthmus_status(kubeconfig=changed(network, tmp_path, trust, {}))
    assert done.returncode == 1
    assert done.stderr.startswith("error: the API server cannot be reached: ")
    assert "its certificate is not trusted: " in done.stderr
    assert "ConnectionKey" not in done.stderr


def test_credentials_that_the_api_server_does_not_know(network: Network, tmp_path: Path) -> None:
    without = dict.fromkeys(
        ("client-certificate", "client-key", "client-certificate-data", "client-key-data")
    )
    done = network.isthmus_status(kubeconfig=changed(network, tmp_path, {}, {**without, "token": "garbage"}))
    told = "the API server does not accept the credentials in the kubeconfig: Unauthorized"
    assert (done.returncode, done.stderr) == (1, f"error: {told}\n")


def test_a_resource_that_is_not_ready_is_a_problem(network: Network) -> None:
    pending = {"role": "edge", "from": {"routerRef": {"name": "edge"}}, "to": {"routerRef": {"name": "mars"}}}
    manifest = {"apiVersion": "isthmus.dev/v1alpha1", "kind": "Connector", "spec": pending}
    network.apply({**manifest, "metadata": {"name": "nowhere"}})
    try:
        network.becomes("connector/nowhere", "False", "Pending")
        problems = document(network)["problems"]
        assert any(text.startswith("Connector nowhere: Pending: ") and "mars" in text for text in problems)
    finally:
        network.kubectl("delete", "connector/nowhere")


def test_no_cluster_to_ask(tmp_path: Path) -> None:
    empty = tmp_path / "kubeconfig"
    empty.write_text("apiVersion: v1\nkind: Config\n")
    command = [sys.executable, "-m", "isthmus_cli", "status", "--kubeconfig", str(empty)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "no cluster to ask" in done.stderr


READER = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: isthmus-reader}
rules:
- apiGroups: [isthmus.dev]
  resources: [routers, connectors]
  verbs: [list]
"""
