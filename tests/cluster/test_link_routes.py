"""A broker in a private network, read and written by clients in another one that reach their own router only.

            public (node 1)
                 rp
               /    \\
    net-a (node 2)   net-b (node 3)
      b2 -- ra         rb -- clients, and an edge with clients of its own

Each network is a namespace on a node of its own, whose range of pod addresses is what the packet filters know it
by: the private ones do not reach each other, and clients reach nothing but their own network.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.host import CommandError
from tests.cluster.support.broker import PORT, Broker
from tests.cluster.support.clients import Client, Clients
from tests.cluster.support.network import OPERATOR, USABLE, Network
from tests.integration.support.broker import SET_UP_SECONDS
from tests.unit.operator.support import connector, link_route, router

# The first time, the broker has to be fetched.
pytestmark = pytest.mark.timeout(SET_UP_SECONDS + 300, func_only=True)

QUEUES = ("events", "restart", "rotation", "edge")
TOPIC = "news"
USER, PASSWORD, OTHER = "app", "the-first-word", "the-second-word"
MESSAGES = 200
NO_ROUTE = "No route to the destination node: no container takes links to 'b2.events' at present"
SECONDS_TO_CONNECT = 2
CONNECT = (
    f"import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), {SECONDS_TO_CONNECT})"
)


class Sites:
    """The picture above."""

    def __init__(self, cluster: Cluster, folder: Path, names: dict[str, str]) -> None:
        """`names` are those of the namespaces, by what they are."""
        self.cluster = cluster
        self.node = dict(zip(("public", "net-a", "net-b"), sorted(cluster.nodes()), strict=False))
        self.node["shop"] = self.node["net-b"]
        self.site = {what: Network(cluster, name) for what, name in names.items()}
        self.public, self.net_a, self.net_b, self.shop = self.site.values()
        self.broker = Broker(
            cluster,
            names["net-a"],
            "b2",
            node=self.node["net-a"],
            folder=folder,
            queues=QUEUES,
            users={USER: PASSWORD},
            topics=(TOPIC,),
        )
        image, node = installation.router_image(cluster), self.node["net-b"]
        self._clients = {what: Clients(cluster, names[what], image, node) for what in ("net-b", "shop")}

    def range(self, what: str) -> str:
        return self.cluster.faults.pod_range(self.node[what])

    def set_up(self) -> None:
        """The two private networks do not reach each other; the routers and the link routes."""
        self.cluster.faults.drop(self.range("net-a"), self.range("net-b"))
        self.cluster.faults.drop(self.range("net-b"), self.range("net-a"))
        self.write_password(PASSWORD)
        host, trust = f"rp.{self.public.namespace}.svc", trustme.CA()
        issued = trust.issue_cert(host)
        tls = {"tls": {"secretName": "net"}}
        data = {
            "ca.crt": trust.cert_pem.bytes().decode(),
            "tls.crt": issued.cert_chain_pems[0].bytes().decode(),
            "tls.key": issued.private_key_pem.bytes().decode(),
        }
        for site in (self.public, self.net_a, self.net_b):
            secret(site, "net", data)
        mutual = {"tls": {"secretName": "net", "requireClientCertificate": True}}
        listener = {"name": "inter-router", "role": "inter-router", "port": 55671, **mutual}
        # Of two namespaces, whose own authorities do not trust each other.
        clear = {"tls": {"disabled": True}}
        edge = {"name": "edge", "role": "edge", "port": 45672, **clear}
        known = link_route("b2", prefix="b2", containerId="b2")
        self.public.apply(self._router("rp", "public", listeners=[listener]), known)
        self.net_a.apply(
            self._router("ra", "net-a"),
            connector("ra-rp", "ra", (host, 55671), "inter-router", **tls),
            connector(
                "broker",
                "ra",
                (self.broker.host, PORT),
                "route-container",
                sasl={"credentialsSecretRef": {"name": "broker-login"}, "allowPlainWithoutTls": True},
            ),
            link_route("b2", prefix="b2", connector="broker", delExternalPrefix="b2."),
        )
        self.net_b.apply(
            self._router("rb", "net-b", listeners=[{"name": "amqp", "port": 5672}, edge]),
            connector("rb-rp", "rb", (host, 55671), "inter-router", **tls),
            known,
        )
        self.shop.apply(
            self._router("shop", "shop", mode="edge"),
            connector("shop-rb", "shop", (f"rb.{self.net_b.namespace}.svc", 45672), "edge", **clear),
        )
        self.broker.ready()
        for site in self.site.values():
            site.settled()
        self.routed()

    def _router(self, name: str, what: str, **spec: Any) -> dict[str, Any]:
        placed = {"nodeSelector": {"kubernetes.io/hostname": self.node[what]}}
        return router(name, podTemplate={"spec": placed}, **spec)

    def write_password(self, password: str) -> None:
        """The router's."""
        secret(
            self.net_a, "broker-login", {"username": USER, "password": password}, "kubernetes.io/basic-auth"
        )

    def routed(self) -> None:
        """Waits until every LinkRoute is Ready."""
        for site in (self.net_a, self.net_b, self.public):
            site.ready("lr/b2")

    def start(self, what: str, name: str, *arguments: str) -> Client:
        """A client in a private network that has its packets to the other networks dropped."""
        client = self._clients[what].start(name, *arguments)
        address = self.cluster.eventually(
            f"{name} has an address",
            lambda: client.cluster.get(f"pod/{name}", namespace=client.namespace)["status"].get("podIP"),
        )
        for other in ("public", "net-a"):
            self.cluster.faults.drop(address, self.range(other))
        return client

    def round_trip(self, what: str, url: str, queue: str) -> None:
        """Messages to a queue of the broker and from there, with a client for each way."""
        sender = self.start(what, f"send-{queue}", "send", url, f"b2.{queue}", f"--count={MESSAGES}")
        assert len(sender.report()["outcomes"]["accepted"]) == MESSAGES, "the broker has them"
        receiver = self.start(what, f"receive-{queue}", "receive", url, f"b2.{queue}")
        assert receiver.report()["numbers"] == list(range(MESSAGES))


def secret(site: Network, name: str, data: dict[str, str], kind: str = "Opaque") -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": USABLE},
        "type": kind,
    }
    site.cluster.apply({**manifest, "stringData": data}, namespace=site.namespace)


@pytest.fixture(scope="module")
def sites(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    if cluster.provider.faults is None:
        pytest.skip(f"networks cannot be separated in {cluster.provider.what}")
    folder = tmp_path_factory.mktemp("volume")
    folder.chmod(0o777)
    with contextlib.ExitStack() as stack:
        stack.enter_context(installation.schemas(cluster))
        names = {
            what: stack.enter_context(cluster.namespace(what))
            for what in ("public", "net-a", "net-b", "shop")
        }
        node = min(cluster.nodes())
        stack.enter_context(installation.operator(cluster, *names.values(), node=node))
        stack.callback(cluster.faults.undrop)
        sites = Sites(cluster, folder, names)
        stack.callback(sites.broker.remove_volume)
        sites.set_up()
        yield sites


RB = "amqp://rb:5672"


def reaches(site: Network, pod: str, host: str, port: int) -> bool:
    """Whether a pod can connect to a host, which is silent if not."""
    try:
        site.cluster.exec(pod, "python", "-c", CONNECT, host, str(port), namespace=site.namespace)
    except CommandError as error:
        if "TimeoutError" in error.output:
            return False
        raise
    return True


def test_a_client_uses_a_broker_that_it_cannot_reach(sites: Sites) -> None:
    sites.round_trip("net-b", RB, "events")
    client = sites.start("net-b", "confined", "receive", RB, "b2.events", "--stay")
    client.reaches("attached", True)
    broker, address = sites.broker, sites.broker.address()
    assert reaches(sites.net_a, "ra-0", broker.host, PORT)
    assert reaches(sites.public, "rp-0", address, PORT), "on another node, and not kept apart"
    assert reaches(sites.net_b, "confined", f"rb.{sites.net_b.namespace}.svc", 5672)
    for host, port in (
        (broker.host, PORT),
        (address, PORT),
        (f"ra.{sites.net_a.namespace}.svc", 5672),
        (f"rp.{sites.public.namespace}.svc", 55671),
    ):
        assert not reaches(sites.net_b, "confined", host, port), f"{host}:{port}"
    assert not reaches(sites.net_b, "rb-0", address, PORT), "nor does its router"

    def columns(site: Network) -> str:
        return " ".join(site.kubectl("get", "lr", "--no-headers").split()[:-1])

    sites.cluster.eventually(
        "the link is counted where the broker is",
        lambda: columns(sites.net_a) == "b2 True Ready b2 both 1 1",
    )
    assert columns(sites.net_b) == columns(sites.public) == "b2 True Ready b2 both 0 0"
    assert sites.net_a.condition("lr/b2", "Matched")["reason"] == "ContainerAttached"
    assert sites.net_b.condition("lr/b2", "Matched")["reason"] == "ContainerElsewhere"
    client.stop()
    assert client.report()["detaches"] == {}


def test_a_topic_and_a_filter_of_the_broker(sites: Sites) -> None:
    """Both receivers subscribe; the broker itself leaves out what the selector of one does not let through."""
    address = f"b2.{TOPIC}"
    all_of_it = sites.start("net-b", "reader", "receive", RB, address)
    some = sites.start("net-b", "picky", "receive", RB, address, "--selector=digit = 3", "--stay")
    for receiver in (all_of_it, some):
        receiver.reaches("attached", True)
    sender = sites.start("net-b", "publisher", "send", RB, address, f"--count={MESSAGES}")
    assert len(sender.report()["outcomes"]["accepted"]) == MESSAGES
    assert all_of_it.report()["numbers"] == list(range(MESSAGES))
    some.reaches("received", MESSAGES // 10)
    some.stop()
    assert some.report()["numbers"] == list(range(3, MESSAGES, 10))


def test_links_are_refused_while_the_broker_is_away(sites: Sites) -> None:
    receiver = sites.start("net-b", "patient", "receive", RB, "b2.events")
    receiver.reaches("attached", True)
    routers = {name: site.pods(name) for name, site in (("ra", sites.net_a), ("rb", sites.net_b))}
    sites.broker.stop()
    message = sites.net_a.becomes("lr/b2", "False", "NoContainer", "Matched")
    assert message.startswith('Connector "broker": ra-0: ')
    message = sites.net_b.becomes("lr/b2", "False", "NoContainer", "Matched")
    assert message == 'no container "b2" is connected to a router'
    refusal = sites.cluster.eventually(
        "the refusal is told of", lambda: sites.net_b.get("lr/b2")["status"].get("lastRefusal")
    )
    assert (refusal["router"], refusal["address"]) == ("rb-0", "b2.events")
    assert refusal["description"] == NO_ROUTE
    assert sites.net_b.get("lr/b2")["status"]["refusals"] > 0
    sites.broker.start()
    sites.routed()
    sender = sites.start("net-b", "back", "send", RB, "b2.events", f"--count={MESSAGES}")
    assert len(sender.report()["outcomes"]["accepted"]) == MESSAGES
    report = receiver.report()
    assert report["numbers"] == list(range(MESSAGES)), "it has attached again by itself"
    assert report["disconnects"] == []
    refused = report["detaches"].pop(f"qd:no-route-to-dest: {NO_ROUTE}")
    assert refused > 0
    assert report["detaches"], "the loss was told before"
    assert {name: site.pods(name) for name, site in (("ra", sites.net_a), ("rb", sites.net_b))} == routers


def test_no_message_is_lost_when_the_broker_restarts_under_load(sites: Sites) -> None:
    receiver = sites.start("net-b", "load-out", "receive", RB, "b2.restart")
    sender = sites.start("net-b", "load-in", "send", RB, "b2.restart", "--rate=80", "--resend")
    sender.reaches("accepted", 500)
    sites.broker.restart()
    sender.reaches("accepted", sender.progress()["accepted"] + 150)
    sender.stop()
    sent, received = sender.report(), receiver.report()
    assert sorted(sent["outcomes"]["accepted"]) == list(range(sent["sent"]))
    assert set(received["numbers"]) == set(range(sent["sent"])), "what the broker has taken, it has given"
    for report in (sent, received):
        assert report["detaches"], "the client was told"
        assert report["disconnects"] == [], "its router stays with it"


def test_a_changed_password_needs_no_restart_of_the_router(sites: Sites) -> None:
    before = sites.net_a.pods("ra")
    sites.broker.write_users({USER: OTHER})
    sites.broker.restart()
    message = sites.net_a.becomes("conn/broker", "False", "NoConnection")
    sites.cluster.eventually(
        "the reason is told",
        lambda: "uthentication" in str(sites.net_a.condition("conn/broker")["message"]),
    )
    sites.write_password(OTHER)
    sites.net_a.ready("conn/broker")
    sites.routed()
    assert sites.net_a.pods("ra") == before
    sites.round_trip("net-b", RB, "rotation")
    logs = sites.net_a.kubectl("logs", "ra-0")
    logs += sites.public.kubectl("logs", f"--selector={OPERATOR}", "--tail=-1")
    told = message + logs + sites.net_a.kubectl("get", "isthmus,events", "--output=yaml")
    assert not [word for word in (PASSWORD, OTHER) if word in told]


def test_clients_of_an_edge_in_a_namespace_of_its_own(sites: Sites) -> None:
    sites.round_trip("shop", "amqp://shop:5672", "edge")


def test_link_routes_that_cannot_be(sites: Sites) -> None:
    with pytest.raises(CommandError) as refused:
        sites.net_a.apply(link_route("two", prefix="spare", pattern="spare.*", connector="broker"))
    assert "spec.prefix" in refused.value.output
    assert "exactly one of prefix and pattern must be set" in refused.value.output
    sites.net_a.apply(
        link_route("typo", prefix="spare", connector="brokr"),
        link_route("unfit", prefix="other", connector="ra-rp"),
    )
    message = sites.net_a.becomes("lr/typo", "False", "Pending")
    assert message == 'Connector "brokr" (spec.connector) does not exist (did you mean "broker"?)'
    message = sites.net_a.becomes("lr/unfit", "False", "RoleMismatch")
    assert message == (
        'Connector "ra-rp" (spec.connector) has role inter-router; '
        "a LinkRoute needs one of role route-container"
    )
    sites.net_a.kubectl("delete", "lr", "typo", "unfit")
    sites.routed()
