"""A real Prometheus reads the pods of a network: the dashboard has data, and alerts come and go with what they are
about.

shop (edge) --TLS-- hub (interior, site nyc) ======= far (interior, site sfo) -- collector
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.provider import Faults
from tests.cluster.support.clients import Client, Clients
from tests.cluster.support.flows import volume
from tests.cluster.support.network import USABLE, Network
from tests.cluster.support.prometheus import Prometheus, prometheus
from tests.cluster.support.sites import credentials
from tests.unit.chart.test_dashboard import queries
from tests.unit.operator.support import connector, flow_log, relay_site, router, ssl_profile

ORDERS, TRADES, SLOW = "orders", "relay/trades", "slow"
EDGE = {"name": "edge", "role": "edge", "port": 45671, "tls": {"sslProfile": "net"}}
LISTENERS = [
    {"name": "amqp", "port": 5672},
    {"name": "inter-router", "role": "inter-router", "port": 55671},
]
HUB, FAR = "amqp://hub-0.hub-mesh:5672", "amqp://far-0.far-mesh:5672"
CONFIGURATION = "far-0.json"
HOLD_S = 300
"""For how long the slow consumer keeps what it gets."""
NEVER = {
    "IsthmusNoLeader",
    "IsthmusCertificateExpires",
    "IsthmusCertificateExpired",
    "IsthmusRotationStuck",
}
"""Alerts that never have a reason here."""


@dataclass
class Stage:
    network: Network
    clients: Clients
    prometheus: Prometheus
    node: str
    """That the hub alone is on."""

    def becomes(self, what: str, check: Callable[[dict[str, list[dict[str, str]]]], bool]) -> None:
        """Waits until the alerts that fire are as they should be."""

        def looked() -> bool:
            self.prometheus.discover()
            firing = self.prometheus.firing()
            assert not NEVER & set(firing), firing
            assert check(firing), sorted(firing)
            return True

        self.network.cluster.eventually(what, looked)

    def fires(self, alert: str, **labels: str) -> None:
        self.becomes(
            f"{alert} fires for {labels}",
            lambda firing: any(labels.items() <= found.items() for found in firing.get(alert, [])),
        )

    def quiet(self, *alerts: str) -> None:
        """Waits until none of these fires; none at all, without names."""
        self.becomes(
            f"no alert of {alerts or 'any kind'} fires",
            lambda firing: not (set(alerts) & set(firing) if alerts else firing),
        )


@pytest.fixture(scope="module")
def stage(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if cluster.provider.faults is None:
        pytest.skip(f"pods cannot be reached from here, and nodes not be cut off, in {cluster.provider.what}")
    *others, node = sorted(cluster.nodes())
    hub, rest = ({"spec": {"nodeSelector": {"kubernetes.io/hostname": name}}} for name in (node, others[-1]))
    image = installation.router_image(cluster)
    with (
        installation.schemas(cluster),
        cluster.namespace("monitoring") as name,
        installation.operator(cluster, name, node=others[0]),
        volume(cluster, name) as place,
    ):
        network = Network(cluster, name)
        data = credentials(f"hub.{name}.svc")
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "net", "labels": USABLE},
            "data": encoded,
        }
        cluster.apply(secret, namespace=name)
        network.apply(
            ssl_profile("net", "net"),
            router("hub", site="nyc", listeners=[*LISTENERS, EDGE], podTemplate=hub),
            router("far", site="sfo", listeners=LISTENERS, podTemplate=rest),
            router("shop", mode="edge", podTemplate=rest),
            connector("far-hub", "far", "hub", "inter-router"),
            connector("shop-hub", "shop", "hub", "edge", tls={"sslProfile": "net"}),
            relay_site("nyc", "hub", remoteSites=[{"site": "sfo", "relaySiteRef": {"name": "sfo"}}]),
            relay_site("sfo", "far", remoteSites=[{"site": "nyc", "relaySiteRef": {"name": "nyc"}}]),
            flow_log(
                "flows",
                "far",
                volume=place,
                rotation={"seconds": 5},
                image=installation.image(cluster, installation.COLLECTOR),
                podTemplate=rest,
            ),
        )
        with prometheus(cluster, name, tmp_path_factory.mktemp("prometheus")) as found:
            network.ready(
                *(f"rtr/{name}" for name in ("hub", "far", "shop")),
                *("conn/far-hub", "conn/shop-hub", "rsite/nyc", "rsite/sfo", "flog/flows"),
            )
            clients = Clients(cluster, name, image, others[-1])
            yield Stage(network, clients, found, node)


def traffic(stage: Stage) -> list[Client]:
    """Orders from the edge to the far router, and trades between the sites, until they are stopped."""
    start = stage.clients.start
    receivers = [
        start("orders-to", "receive", FAR, ORDERS, "--stay"),
        start("trades-to", "receive", FAR, TRADES, "--stay"),
    ]
    for receiver in receivers:
        receiver.reaches("attached", True)
    return [
        *receivers,
        start("orders-from", "send", "amqp://shop:5672", ORDERS, "--rate=50", "--resend"),
        start("trades-from", "send", FAR, TRADES, "--rate=50"),
    ]


def test_all_pods_are_read_every_query_has_an_answer_and_nothing_fires(stage: Stage) -> None:
    *_, orders, trades = traffic(stage)
    orders.reaches("accepted", 100)
    trades.reaches("accepted", 100)
    pods = {
        item["metadata"]["name"]
        for item in stage.network.get("pods")["items"]
        if item["metadata"]["labels"].get("app.kubernetes.io/part-of") == "isthmus"
    }
    assert len(pods) == 5, pods

    def answered() -> bool:
        stage.prometheus.discover()
        scraped = stage.prometheus.scraped()
        assert scraped == dict.fromkeys(pods, 1.0)
        empty = [f"{title}: {asked}" for title, asked in queries() if not stage.prometheus.query(asked)]
        assert not empty, empty
        return True

    def delivered() -> bool:
        (found,) = stage.prometheus.query(
            'sum(rate(isthmus_router_delivery_outcomes_total{outcome="accepted"}[10s]))'
        )
        assert float(found["value"][1]) > 50, found
        return True

    stage.network.cluster.eventually("every query has an answer", answered)
    stage.network.cluster.eventually("messages are counted", delivered)
    stage.quiet()


def test_a_consumer_that_holds_on_to_deliveries(stage: Stage) -> None:
    """Both routers that they pass tell; when the consumer goes, it is over."""
    slow = stage.clients.start("slow-to", "receive", FAR, SLOW, f"--delay={HOLD_S}")
    slow.reaches("attached", True)
    stage.clients.start("slow-from", "send", HUB, SLOW, "--count=20")
    for pod in ("far-0", "hub-0"):
        stage.fires("IsthmusDeliveriesStuck", pod=pod, namespace=stage.network.namespace)
    stage.network.kubectl("delete", "pod/slow-to", "--now")
    stage.quiet()


def test_a_configuration_that_cannot_be_used(stage: Stage) -> None:
    network = stage.network
    network.kubectl("annotate", "rtr/far", "isthmus.dev/paused=true")
    network.becomes("rtr/far", "Unknown", "ReconciliationPaused")
    good, spoiled = configuration(network), base64.b64encode(b"not a configuration").decode()
    patch = json.dumps({"data": {CONFIGURATION: spoiled}})
    network.kubectl("patch", "secret/far-config", "--type=merge", f"--patch={patch}")
    network.kubectl("annotate", "pod/far-0", "test/kubelet=look")
    stage.fires("IsthmusRouterConfigurationRefused", pod="far-0")
    network.kubectl("annotate", "rtr/far", "isthmus.dev/paused-")
    network.cluster.eventually("the operator has mended it", lambda: configuration(network) == good)
    # The operator does not do that: the router has the right configuration in force, as ever.
    network.kubectl("annotate", "pod/far-0", "test/kubelet-")
    stage.quiet()


def configuration(network: Network) -> str:
    return str(network.get("secret/far-config")["data"][CONFIGURATION])


def test_a_node_that_is_cut_off(stage: Stage, faults: Faults) -> None:
    """That flow records were missed is known for a quarter of an hour; all other alerts end."""
    expected: dict[str, dict[str, str]] = {
        "IsthmusRouterDown": {"pod": "hub-0", "severity": "critical"},
        "IsthmusUplinkLost": {"namespace": stage.network.namespace, "severity": "critical"},
        "IsthmusLinkDown": {"role": "edge"},
        "IsthmusSiteUnreachable": {"site": "sfo", "remote_site": "nyc"},
        "IsthmusResourceNotReady": {"kind": "Router"},
    }
    faults.cut_node(stage.node)
    for alert, labels in expected.items():
        stage.fires(alert, **labels)
    faults.restore_node(stage.node)
    stage.quiet(*expected)
