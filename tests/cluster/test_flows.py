"""What flows through a network on a real cluster, collected and analysed: a rotation and a failover of a relay site
in traffic, a collector that is killed, Spark with a driver and two executors, one of which is killed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import trustme
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.host import HarnessError
from tests.cluster.support.clients import Clients
from tests.cluster.support.flows import FlowReader, volume
from tests.cluster.support.network import USABLE, Network
from tests.cluster.support.sites import credentials
from tests.unit.operator.support import (
    connector,
    flow_analysis,
    flow_log,
    relay_site,
    router,
    ssl_profile,
)

from isthmus_flows.authentication import secret_of
from isthmus_operator.names import flow_analysis_name
from isthmus_operator.render.flows.listener import PORT_NAME

TLS = {"sslProfile": "net", "requireClientCertificate": True}
LISTENERS = [
    {"name": "amqp", "port": 5672},
    {"name": "inter-router", "role": "inter-router", "port": 55671, "tls": TLS},
]
SMALL = {
    "driver": {"memory": "1Gi", "cpu": "100m"},
    "executors": {"memory": "1Gi", "cpu": "100m"},
    "baselineDays": 0,
    "bucketSeconds": 5,
}
ORDERS, TRADES = "orders", "relay/trades"
ROUTERS = {"hub-0", "hub-1", "far-0"}
SOME = 120
"""Messages between one disturbance and the next."""
RUN_S = 900
"""Spark's, on a busy machine."""
AUTHORITY = trustme.CA()
CONNECT = """
import json, socket, ssl, sys, tempfile
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
host, port, material = sys.argv[1:]
if material:
    with tempfile.NamedTemporaryFile("w", dir="/tmp") as file:
        file.write("".join(json.loads(material).values()))
        file.flush()
        context.load_cert_chain(file.name)
connection = context.wrap_socket(socket.create_connection((host, int(port)), 30))
connection.sendall(b"AMQP\\3\\1\\0\\0")
print(connection.recv(8))
"""


@dataclass
class Stage:
    """The network, and what its clients have counted."""

    network: Network
    log: FlowReader
    clients: Clients
    counted: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    """Two members of a relay site, one of another; orders come from one of these to the other site."""
    with (
        installation.schemas(cluster),
        cluster.namespace("flows") as name,
        installation.operator(cluster, name, flows=True),
        volume(cluster, name) as place,
    ):
        network = Network(cluster, name)
        renew(network)
        network.apply(
            ssl_profile("net", "net"),
            router("hub", replicas=2, site="nyc", listeners=LISTENERS, flowIntervalSeconds=2),
            router("far", site="sfo", listeners=LISTENERS, flowIntervalSeconds=2),
            connector("far-hub", "far", "hub", "inter-router", tls={"sslProfile": "net"}),
            relay_site("nyc", "hub", remoteSites=[{"site": "sfo", "relaySiteRef": {"name": "sfo"}}]),
            relay_site("sfo", "far", remoteSites=[{"site": "nyc", "relaySiteRef": {"name": "nyc"}}]),
            flow_log("flows", volume=place, rotation={"seconds": 5}),
        )
        network.ready("rtr/hub", "rtr/far", "conn/far-hub", "rsite/nyc", "rsite/sfo", "flog/flows")
        image = installation.router_image(cluster)
        yield Stage(network, FlowReader(network, "flows"), Clients(cluster, name, image))


def renew(network: Network) -> None:
    """A new certificate for all routers."""
    where = network.namespace
    data = credentials(
        *(f"{name}.{where}.svc" for name in ("hub", "far", "*.hub-mesh", "*.far-mesh")), authority=AUTHORITY
    )
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "net", "labels": USABLE},
        "data": encoded,
    }
    network.cluster.apply(secret, namespace=where)


def url(pod: str) -> str:
    return f"amqp://{pod}.{pod.rpartition('-')[0]}-mesh:5672"


def test_the_log_says_what_it_hears(stage: Stage) -> None:
    network = stage.network

    def heard() -> bool:
        status = network.get("flog/flows")["status"]
        assert status["routers"] == len(ROUTERS)
        assert status["rowsWritten"] > 0
        return bool(status["lastWrittenAt"])

    network.cluster.eventually("three routers are heard, and rows are kept", heard)
    shown = " ".join(network.kubectl("get", "flog", "flows", "--no-headers").split())
    assert shown.startswith("flows True Ready hub 3 "), shown
    assert "flows ready 3" in " ".join(network.isthmus_status().stdout.split())


def test_an_application_does_not_reach_the_port_of_collectors(stage: Stage) -> None:
    """The port requires a certificate, and refuses one of another authority. The collector has connected before."""
    network = stage.network
    (port,) = (item["port"] for item in network.get("svc/hub")["spec"]["ports"] if item["name"] == PORT_NAME)
    secret = network.get("secret/net")["data"]
    files = {key: base64.b64decode(secret[key]).decode() for key in ("tls.crt", "tls.key")}
    for material, refusal in (("", "certificate required"), (json.dumps(files), "unknown ca")):
        with pytest.raises(HarnessError) as told:
            network.cluster.exec(
                "hub-0", "python3", "-c", CONNECT, "hub", str(port), material, namespace=network.namespace
            )
        assert refusal in str(told.value).lower(), told.value


def test_nothing_is_missing_though_all_kinds_of_things_happen(stage: Stage) -> None:
    network, cluster = stage.network, stage.network.cluster
    coordinator = str(network.get("rsite/nyc")["status"]["coordinator"])
    other = next(pod for pod in ("hub-0", "hub-1") if pod != coordinator)
    start = stage.clients.start
    orders = start("orders-to", "receive", url(other), ORDERS)
    orders.reaches("attached", True)
    trades = start("trades-to", "receive", url("far-0"), TRADES, "--stay")
    trades.reaches("attached", True)
    senders = {
        ORDERS: start("orders-from", "send", url("far-0"), ORDERS, "--rate=40"),
        TRADES: start("trades-from", "send", url(other), TRADES, "--rate=40"),
    }

    for sender in senders.values():
        sender.reaches("accepted", SOME)

    def go_on() -> None:
        counts = {sender: sender.progress().get("accepted", 0) for sender in senders.values()}
        for sender, count in counts.items():
            sender.reaches("accepted", count + SOME)

    ordinal = network.get("sslp/net")["status"]["ordinal"]
    renew(network)

    def rotated() -> bool:
        assert network.get("sslp/net")["status"]["ordinal"] == ordinal + 1
        return network.condition("sslp/net", "Rotating")["status"] == "False"

    cluster.eventually("the certificates are rotated", rotated)
    go_on()
    first = stage.log.pod()
    network.kubectl("delete", "pod", first, "--force", "--grace-period=0")
    go_on()

    def heard() -> bool:
        assert stage.log.pod() != first
        assert network.condition("flog/flows", "Collecting")["status"] == "True"
        return bool(network.get("flog/flows")["status"]["routers"] == len(ROUTERS))

    # What a router says at its end reaches a collector that hears it.
    cluster.eventually("another collector hears all routers", heard)
    before = network.pods("hub")[coordinator][0]
    network.kubectl("delete", f"pod/{coordinator}", "--wait=false")

    def replaced() -> bool:
        uid = network.pods("hub").get(coordinator, ("",))[0]
        return uid not in ("", before)

    cluster.eventually("another one is the coordinator's pod", replaced)
    network.ready("rtr/hub", "rsite/nyc", "rsite/sfo", "flog/flows")
    go_on()
    for sender in senders.values():
        sender.stop()
    sent = {address: sender.report()["outcomes"] for address, sender in senders.items()}
    received = orders.report()["numbers"]
    trades.reaches("greatest", max(sent[TRADES]["accepted"]))
    trades.stop()
    stage.counted = {
        "orders": len(sent[ORDERS]["accepted"]) + 1,  # and the message that says that it is over
        "received": len(received) + 1,
        "relayed": len(sent[TRADES]["accepted"]),
        "ordinal": ordinal + 1,
        "coordinator": coordinator,
    }
    assert stage.counted["orders"] == stage.counted["received"]

    def complete() -> bool:
        ends = {way: stage.log.delivered(ORDERS, way)["accepted"] for way in ("in", "out")}
        assert ends == {"in": stage.counted["orders"], "out": stage.counted["orders"]}, ends
        return True

    cluster.eventually("the log has every order, where it came in and where it went out", complete)


def assert_no_object_has_the_key(network: Network, analysis: str) -> None:
    """No object but the Secret has the key of an analysis, or the secret that its run derives from the key."""
    (encoded,) = network.get(f"secret/{flow_analysis_name(analysis)}")["data"].values()
    key = base64.b64decode(encoded)
    text = network.kubectl(
        "get", "pods,configmaps,services,jobs,cronjobs,events,flowanalyses", "--output=json"
    )
    pods = [item["metadata"]["uid"] for item in json.loads(text)["items"] if item["kind"] == "Pod"]
    assert len(pods) > 6, "routers, collector, driver and executors"
    for secret in (key, *(secret_of(key, uid) for uid in pods)):
        for form in (secret.hex(), base64.b64encode(secret).decode().rstrip("=")):
            assert form not in text


def run_of(network: Network, name: str) -> dict[str, Any]:
    found: dict[str, Any] = network.get(f"fan/{name}").get("status", {})
    return found


def executors(network: Network) -> list[str]:
    items = network.get("pods", "--selector=spark-role=executor", "--field-selector=status.phase=Running")[
        "items"
    ]
    return [item["metadata"]["name"] for item in items]


@pytest.mark.timeout(3 * RUN_S, func_only=True)
def test_a_scheduled_analysis_tells_what_the_clients_have_counted(stage: Stage) -> None:
    network, cluster, counted = stage.network, stage.network.cluster, stage.counted
    assert counted, "there is nothing to compare with"
    often = partial(flow_analysis, "often", schedule="* * * * *", window={"last": "1h"}, **SMALL)
    network.apply(often())

    def two_executors() -> list[str]:
        found = executors(network)
        return found if len(found) == 2 else []

    killed = cluster.eventually("driver and executors run", two_executors, timeout=90 + RUN_S)[0]
    assert_no_object_has_the_key(network, "often")
    network.apply(often(suspend=True))
    cluster.eventually("no more runs", lambda: run_of(network, "often")["state"] == "Suspended")
    cluster.eventually(
        "how far it is",
        lambda: run_of(network, "often").get("progress", {}).get("tasksDone", 0) > 0,
        timeout=RUN_S,
    )
    cluster.exec(killed, "python3", "-c", "import os; os.kill(1, 15)", namespace=network.namespace)
    cluster.wait("delete", f"pod/{killed}", namespace=network.namespace)  # by the driver

    def over() -> bool:
        assert run_of(network, "often")["runs"][0]["state"] in ("Succeeded", "Failed")
        return True

    cluster.eventually("the analysis is over", over, timeout=RUN_S)
    status = run_of(network, "often")
    (run,) = status["runs"]
    assert (run["state"], run["attempts"]) == ("Succeeded", 0), run
    assert status["headline"] == status["findings"][0]["text"]
    assert network.condition("fan/often")["status"] == "True"

    folder = run["report"].removesuffix("/report.html").partition("/")[2]
    summary = json.loads(stage.log.text(f"{folder}/summary.json"))
    page = stage.log.text(f"{folder}/report.html")
    matrix = {
        (row["site"], row["address"], row["direction"]): row
        for row in stage.log.rows(f"{folder}/tables/traffic_matrix")
    }
    assert matrix["sfo", ORDERS, "in"]["accepted"] == counted["orders"]
    assert matrix["nyc", ORDERS, "out"]["accepted"] == counted["orders"]
    assert matrix["nyc", TRADES, "in"]["accepted"] >= counted["relayed"]
    assert run["deliveries"] == summary["totals"]["in"]["deliveries"]
    assert ORDERS in page
    (pair,) = [row for row in stage.log.rows(f"{folder}/tables/relay_totals") if row["relay_site"] == "sfo"]
    assert (pair["remote_site"], pair["gaps"], pair["dropped"]) == ("nyc", 0, 0)
    assert pair["received"] >= counted["relayed"]
    rotations = stage.log.rows(f"{folder}/tables/rotations", "router", "ordinal")
    assert {row["router"] for row in rotations} == ROUTERS
    assert {row["ordinal"] for row in rotations} == {counted["ordinal"]}
    sessions = stage.log.rows(f"{folder}/tables/sessions", "kind", "router", "end_known")
    runs = [row for row in sessions if (row["kind"], row["router"]) == ("router", counted["coordinator"])]
    assert sorted(row["end_known"] for row in runs) == ["ended", "open"]
    assert stage.log.rows(f"{folder}/tables/quarantine") == []


def test_an_analysis_that_cannot_be_says_why(stage: Stage) -> None:
    network = stage.network
    network.apply(flow_analysis("never", window={"from": "2100-01-01T00:00:00Z"}, **SMALL))
    message = network.becomes("fan/never", "False", "RunFailed")
    assert "is in the future" in message, message
    (run,) = run_of(network, "never")["runs"]
    assert run["attempts"] == 1, "to try again is of no use"
