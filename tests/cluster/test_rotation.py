"""Certificates rotated on a real cluster: from the changed Secret to the routers' connections and the status."""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.support.clients import Clients
from tests.cluster.support.flows import volume
from tests.cluster.support.network import OPERATOR, USABLE, Network, operator_metrics
from tests.unit.operator.support import connector, flow_log, gossip_router, router, ssl_profile

from isthmus_operator.rotation.machine import DIAL_SECONDS

ROTATION_S = 20
"""From the changed Secret to the last connection on the new ordinal."""
PROFILE = "sslp/net"
ROOT = Path(__file__).parents[2]
MUTUAL = {"sslProfile": "net", "requireClientCertificate": True}
LISTENERS = [
    {"name": "amqp", "port": 5672},
    {"name": "amqps", "port": 5671, "tls": {"sslProfile": "net"}},
    {"name": "collectors", "port": 5673, "tls": MUTUAL},
    {"name": "inter-router", "role": "inter-router", "port": 55671, "tls": MUTUAL},
    {"name": "edge", "role": "edge", "port": 45671, "tls": MUTUAL},
]
FIRST, SECOND = trustme.CA(organization_name="first"), trustme.CA(organization_name="second")


@pytest.fixture(scope="module")
def network(cluster: Cluster) -> Iterator[Network]:
    """Two interior Routers, one of them with two replicas, an edge, a gossip router and a flow log, all with one
    profile."""
    with (
        installation.schemas(cluster),
        cluster.namespace("rotation") as name,
        installation.operator(cluster, name),
        volume(cluster, name) as place,
    ):
        network = Network(cluster, name)
        apply_secret(network, issue(network))
        tls = {"tls": {"sslProfile": "net"}}
        network.apply(
            ssl_profile("net", "net"),
            router("west", replicas=2, listeners=LISTENERS),
            router("east", listeners=LISTENERS),
            router("shop", mode="edge"),
            connector("east-west", "east", "west", "inter-router", **tls),
            connector("shop-west", "shop", "west", "edge", **tls),
            gossip_router("meet", replicas=2, **tls),
            flow_log(
                "flows",
                volume=place,
                image=installation.image(cluster, installation.COLLECTOR),
                routerRef={"name": "west", "listener": "collectors"},
                **tls,
            ),
        )
        network.ready(
            PROFILE,
            "gossip/meet",
            "flog/flows",
            "rtr/west",
            "rtr/east",
            "rtr/shop",
            "conn/east-west",
            "conn/shop-west",
        )
        network.becomes(PROFILE, "False", "Settled", "Rotating")
        yield network


def issue(network: Network, ca: trustme.CA = FIRST, *trusted: trustme.CA) -> dict[str, bytes]:
    where = network.namespace
    names = [f"{name}.{where}.svc" for name in ("west", "east", "*.west-mesh", "*.east-mesh")]
    issued = ca.issue_cert(*names)
    return {
        "ca.crt": b"".join(item.cert_pem.bytes() for item in (ca, *trusted)),
        "tls.crt": issued.cert_chain_pems[0].bytes(),
        "tls.key": issued.private_key_pem.bytes(),
    }


def apply_secret(network: Network, data: Mapping[str, bytes], name: str = "net") -> None:
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": USABLE},
        "data": encoded,
    }
    network.cluster.apply(manifest, namespace=network.namespace)


def status(network: Network) -> dict[str, Any]:
    found: dict[str, Any] = network.get(PROFILE)["status"]
    return found


def pods(network: Network) -> dict[str, tuple[str, int]]:
    return {pod: item for name in ("west", "east", "shop") for pod, item in network.pods(name).items()}


def served(network: Network, pod: str = "west-0", port: int = 5671) -> str:
    with network.cluster.port_forward(f"pod/{pod}", port, namespace=network.namespace) as near:
        return ssl.get_server_certificate(("127.0.0.1", near), timeout=10)


def settled(network: Network, ordinal: int, timeout: float = ROTATION_S) -> float:
    """Waits until all connections are on `ordinal`; returns the seconds that took."""
    begun = time.monotonic()

    def check() -> bool:
        assert status(network)["ordinal"] == ordinal
        condition = network.condition(PROFILE, "Rotating")
        assert condition["status"] == "False", condition
        return True

    network.cluster.eventually(f"all connections are on ordinal {ordinal}", check, timeout=timeout)
    return time.monotonic() - begun


def connections(network: Network, seconds: float = float("inf")) -> set[int]:
    """Ordinals of both ends of all connections between routers that are younger, as the routers say."""
    return {
        item["tlsOrdinal"]
        for pod in pods(network)
        for item in network.status(pod)["connections"]
        if item["role"] in {"inter-router", "inter-router-data", "edge"} and item["uptimeSeconds"] < seconds
    }


def paths(network: Network) -> dict[str, float]:
    """How often each interior router has computed its paths."""
    pods = ("west-0", "west-1", "east-0")
    return {pod: network.metric(pod, "isthmus_router_path_computations_total") for pod in pods}


def raised(network: Network) -> list[str]:
    """The Events that tell of a raised ordinal."""
    items = network.get("events.events.k8s.io")["items"]
    found = [item["note"] for item in items if item["reason"] == "OrdinalRaised"]
    return sorted(text.partition(":")[0] for text in found)


def isthmus(network: Network, *words: str) -> subprocess.CompletedProcess[str]:
    access = ("--kubeconfig", str(network.cluster.kubeconfig), "-n", network.namespace)
    command = [sys.executable, "-m", "isthmus_cli", *words, *access]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def test_a_changed_secret_rotates_every_connection_without_a_restart(network: Network) -> None:
    before, ordinal = pods(network), status(network)["ordinal"]
    new = issue(network)
    apply_secret(network, new)
    seconds = settled(network, ordinal + 1)
    print(f"rotated in {seconds:.1f} s")
    young = connections(network, seconds - 1)
    assert young == {ordinal + 1} or seconds > DIAL_SECONDS, "listeners come first, if they are in time"
    assert served(network) in new["tls.crt"].decode()
    assert pods(network) == before
    assert raised(network).count(f"ordinal {ordinal + 1}") == 1
    found = status(network)
    assert found["oldestValidOrdinal"] == ordinal, "one old ordinal stays valid"
    assert {item["pod"] for item in found["users"]} == set(before)
    network.settled()
    (metrics,) = operator_metrics(network.cluster, network.namespace).values()
    labels = f'{{namespace="{network.namespace}",profile="net"}}'
    assert metrics[f"isthmus_operator_ssl_profile_ordinal{labels}"] == ordinal + 1
    expiry = "isthmus_operator_ssl_profile_certificate_expiry_timestamp_seconds"
    assert metrics[expiry + labels] > time.time()
    assert metrics["isthmus_operator_ssl_profile_rotation_duration_seconds_count"] >= 1


def test_gossip_routers_present_a_certificate_before_it_is_in_use_everywhere(network: Network) -> None:
    ordinal = status(network)["ordinal"]
    new = issue(network)
    apply_secret(network, new)
    settled(network, ordinal + 1)
    for pod in ("meet-gossip-0", "meet-gossip-1"):
        assert served(network, pod, 12001) in new["tls.crt"].decode()
    network.ready("gossip/meet")


def test_a_collector_connects_with_the_new_certificate(network: Network) -> None:
    def ordinals() -> set[int]:
        found = [item for pod in ("west-0", "west-1") for item in network.status(pod)["connections"]]
        return {item["tlsOrdinal"] for item in found if item["role"] == "normal" and item["tls"]}

    ordinal = status(network)["ordinal"]
    assert ordinals()
    apply_secret(network, issue(network))
    settled(network, ordinal + 1)
    assert ordinal + 1 in ordinals(), "the profile was said to be in use everywhere"
    network.cluster.eventually("the connection with the former one ends", lambda: ordinals() == {ordinal + 1})
    network.ready("flog/flows")
    assert network.get("flog/flows")["status"].get("messagesMissed", 0) == 0


def test_whatever_uses_a_profile_says_when_its_certificate_expires(network: Network) -> None:
    seconds, tls = 60, {"sslProfile": "brief"}
    expiry = datetime.now(UTC) + timedelta(seconds=seconds)
    issued = FIRST.issue_cert("brief.example", not_after=expiry)
    data = {"ca.crt": FIRST.cert_pem, "tls.crt": issued.cert_chain_pems[0], "tls.key": issued.private_key_pem}
    apply_secret(network, {key: item.bytes() for key, item in data.items()}, "brief")
    network.apply(
        ssl_profile("brief", "brief"),
        router("brief", listeners=[{"name": "amqps", "port": 5671, "tls": tls}]),
        gossip_router("brief", replicas=1, tls=tls),
    )
    network.ready("rtr/brief", "gossip/brief", timeout=seconds)
    for resource in ("rtr/brief", "gossip/brief"):
        message = network.becomes(resource, "False", "SecretInvalid", timeout=seconds + 10)
        assert 'SslProfile "brief": the certificate in tls.crt expired' in message
    assert (datetime.now(UTC) - expiry).total_seconds() < 10
    network.kubectl("delete", "rtr/brief", "gossip/brief", "sslp/brief", "secret/brief")


def test_messages_do_not_notice(network: Network) -> None:
    """From a client of the edge over both kinds of links; neither end is told to send again."""
    clients = Clients(network.cluster, network.namespace, installation.router_image(network.cluster))
    receiver = clients.start("receive", "receive", "amqp://east:5672", "orders")
    receiver.reaches("attached", 1)
    sender = clients.start("send", "send", "amqp://shop:5672", "orders", "--rate=80")
    sender.reaches("accepted", 100)
    before = paths(network)
    for _ in range(2):
        ordinal = status(network)["ordinal"]
        apply_secret(network, issue(network))
        settled(network, ordinal + 1)
    sender.reaches("accepted", sender.progress()["accepted"] + 160)
    sender.stop()
    sent, received = sender.report(), receiver.report()
    assert sent["disconnects"] == received["disconnects"] == []
    assert len(sent["outcomes"]["accepted"]) == sent["sent"]
    assert received["numbers"] == list(range(sent["sent"])), "none lost, none twice, all in order"
    assert paths(network) == before, "the network looked the same all the time"
    print(f"stalled {sent['stalled']} s at most")


def test_a_bad_secret_changes_nothing_and_says_why(network: Network) -> None:
    ordinal = status(network)["ordinal"]
    config = network.status("west-0")["router"]["configHash"]
    good, other = issue(network), issue(network)
    apply_secret(network, {**good, "tls.key": other["tls.key"]})
    message = network.becomes(PROFILE, "True", "SecretInvalid", "Degraded")
    assert 'Secret "net": tls.key is not the private key of the certificate in tls.crt' in message
    assert f"ordinal {ordinal} stays in service" in message
    assert network.condition(PROFILE)["reason"] == "SecretInvalid"
    assert network.condition(PROFILE, "Valid")["status"] == "True"
    refused = isthmus(network, "rotate", "net")
    assert refused.returncode == 1
    assert "not rotated: SecretInvalid" in refused.stderr

    network.kubectl("delete", "secret/net")
    network.becomes(PROFILE, "True", "SecretNotFound", "Degraded")
    assert status(network)["ordinal"] == ordinal
    assert network.status("west-0")["router"]["configHash"] == config
    network.settled()

    apply_secret(network, good)
    settled(network, ordinal + 1)
    network.ready(PROFILE)


def test_the_documented_command_makes_the_secret_and_rotates_it(network: Network, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "rotation.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"```\n(kubectl create secret .*?)```", page, re.DOTALL)
    script = f'kubectl() {{ command kubectl --namespace={network.namespace} "$@"; }}\n{command}'
    environment = {**os.environ, "KUBECONFIG": str(network.cluster.kubeconfig)}
    network.apply(ssl_profile("documented", "network"))
    for ordinal in (1, 2):
        for name, content in issue(network).items():
            (tmp_path / name).write_bytes(content)
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, env=environment, timeout=60, check=True
        )
        network.cluster.eventually(
            f"the certificate has ordinal {ordinal}",
            lambda ordinal=ordinal: (
                network.get("sslp/documented").get("status", {}).get("ordinal") == ordinal
            ),  # type: ignore[misc]
        )
    network.ready("sslp/documented")


def test_a_rotation_survives_the_operator(network: Network) -> None:
    ordinal = status(network)["ordinal"]
    apply_secret(network, issue(network))
    network.kubectl("delete", "pod", f"--selector={OPERATOR}", "--grace-period=0", "--force")
    settled(network, ordinal + 1, timeout=90)
    network.kubectl("delete", "pod", f"--selector={OPERATOR}")
    network.kubectl("delete", "secret/net-sslprofile")
    network.cluster.eventually("the ledger is back", lambda: network.get("secret/net-sslprofile"))
    network.ready(PROFILE)
    assert status(network)["ordinal"] == ordinal + 1, "also when what it remembers was deleted"
    apply_secret(network, issue(network))
    settled(network, ordinal + 2, timeout=60)
    assert ordinal + 2 in connections(network)


def test_an_old_ledger_put_back_does_not_lower_the_ordinal(network: Network) -> None:
    ledger = "secret/net-sslprofile"
    ordinal, old = status(network)["ordinal"], network.get(ledger)["data"]
    apply_secret(network, issue(network))
    settled(network, ordinal + 1)
    new = network.get(ledger)["data"]
    patch = {"data": {**dict.fromkeys(new), **old}}
    network.kubectl("patch", ledger, "--type=merge", "--patch-file=/dev/stdin", input=json.dumps(patch))
    network.cluster.eventually("the ledger is right again", lambda: network.get(ledger)["data"] == new)
    network.ready(PROFILE)
    assert status(network)["ordinal"] == ordinal + 1
    network.settled()


def test_the_authority_changes_by_overlap(network: Network) -> None:
    ordinal = status(network)["ordinal"]
    before = pods(network)
    apply_secret(network, issue(network, SECOND))
    settled(network, ordinal + 1)
    assert status(network)["authorities"] == 2
    network.settled()
    apply_secret(network, issue(network, SECOND))
    settled(network, ordinal + 2)
    patch = {"spec": {"oldestValidOrdinal": ordinal + 1}}
    network.kubectl("patch", PROFILE, "--type=merge", f"--patch={json.dumps(patch)}")
    network.cluster.eventually(
        "only the new authority is trusted", lambda: status(network)["authorities"] == 1
    )
    assert status(network)["oldestValidOrdinal"] == ordinal + 1
    network.settled()
    assert pods(network) == before


def test_a_person_rotates_and_revokes(network: Network) -> None:
    ordinal = status(network)["ordinal"]
    done = isthmus(network, "rotate", "net")
    assert done.returncode == 0, done.stderr
    assert "done after" in done.stdout
    assert f"the ordinal is {ordinal + 1}" in done.stdout
    assert status(network)["oldestValidOrdinal"] <= ordinal

    done = isthmus(network, "rotate", "net", "--revoke")
    assert done.returncode == 0, done.stderr
    found = status(network)
    assert (found["ordinal"], found["oldestValidOrdinal"]) == (ordinal + 2, ordinal + 2)
    assert [item["ordinal"] for item in found["ordinals"]] == [ordinal + 2]
    assert connections(network) == {ordinal + 2}
    network.settled()
    unknown = isthmus(network, "rotate", "nobody")
    assert unknown.returncode == 1
    assert "there is no SslProfile 'nobody'" in unknown.stderr


def test_a_profile_that_does_not_exist_yet_is_waited_for(network: Network) -> None:
    listeners = [
        {"name": "amqp", "port": 5672},
        {"name": "amqps", "port": 5671, "tls": {"sslProfile": "later"}},
    ]
    network.apply(router("waiting", listeners=listeners))
    missing = 'listener "amqps": SslProfile "later" does not exist'
    network.becomes("rtr/waiting", "False", "Pending", saying=missing)
    network.apply(ssl_profile("later", "later"))
    assert 'Secret "later" does not exist' in network.becomes("sslp/later", "False", "SecretNotFound")
    network.becomes("rtr/waiting", "False", "Pending", saying='SslProfile "later" has no certificates yet')
    apply_secret(network, issue(network), "later")
    network.ready("sslp/later", "rtr/waiting")
    network.kubectl("delete", "sslp/later")
    network.becomes("rtr/waiting", "False", "Pending", saying="the routers keep the earlier certificates")
    apply_secret(network, issue(network), "later")
    network.apply(ssl_profile("later", "later"))
    network.ready("sslp/later", "rtr/waiting")
    assert network.get("sslp/later")["status"]["ordinal"] == 2, "routers have had another certificate as 1"
    network.kubectl("delete", "rtr/waiting", "sslp/later")


def test_no_key_is_told(network: Network) -> None:
    log = network.kubectl("logs", f"--selector={OPERATOR}", "--tail=-1")
    texts = (log, json.dumps(network.get(PROFILE)), json.dumps(network.get("events.events.k8s.io")))
    assert not [text for text in texts if "PRIVATE KEY" in text]
