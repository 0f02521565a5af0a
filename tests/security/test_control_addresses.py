"""Clients that send to control addresses, or receive from them, of an interior router and of an edge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Message
from tests.integration.support.client import Client, Clients
from tests.integration.support.collector import Collector
from tests.integration.support.management import Manager
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, connector, listener
from tests.security.support.canary import Canary, memory

from isthmus_router.message.sections import encode_annotations

UNAUTHORIZED = "amqp:unauthorized-access"
NAMES = (
    "mc/sfe.all",
    "mc/sfe.abcde:0",
    "sfe.abcde:0",
    "_local/qdhello",
    "_topo/0/all/qdrouter",
    "_topo/0/A/qdrouter.ma",
    "_topo/0/A/$relay-bridge",
    "_topo/0/B/$management",
    "_$qd.edge_addr_tracking",
    "_$qd.link_routes",
    "_$phase.0//mc/sfe.all",
    "_$phase.1/mc/sfe.all",
    "$anything",
)
PREFIXES = ("", "/", "amqp:/", "amqp://host/", "amqp:/amqp:/", "amqp://a/amqp://b//")
BEACON = {
    "subject": "BEACON",
    "properties": {"v": 1, "sourceType": "ROUTER", "id": "forge:0", "address": "orders", "direct": "orders"},
}


class Pair:
    """Interior A and its edge E. Each has a listener for clients with the defaults, and one with every right."""

    def __init__(self, routers: Routers) -> None:
        edges = free_port()
        self.ports = {"A": free_port(), "E": free_port()}
        self.annotating = {"A": free_port(), "E": free_port()}
        own = {
            name: (
                listener(self.ports[name], name="open"),
                listener(self.annotating[name], name="annotating", stripAnnotations="no"),
            )
            for name in "AE"
        }
        self.a = routers.add("A", listener(edges, "edge", name="edges"), *own["A"], mode="interior")
        self.e = routers.add("E", connector(edges, "edge", name="uplink"), *own["E"], mode="edge")
        routers.start_all()
        self.e.await_log("connection opened")


@pytest.fixture
def pair(routers: Routers) -> Pair:
    return Pair(routers)


def spellings() -> Iterator[str]:
    for name in NAMES:
        for prefix in PREFIXES:
            yield prefix + name


def refused_attaches(client: Client) -> int:
    links = []
    for text in spellings():
        links.append(client.sender(text, wait=False).link)
        links.append(client.receiver(text, wait=False, credit=10).link)
    for link in links:
        assert client.refusal(link).name in {UNAUTHORIZED, "qd:connection-role", "amqp:not-allowed"}
    return len(links)


def refused_messages(client: Client, *, annotated: bool) -> int:
    sender = client.sender(None).await_credit()
    sent = []
    for text in spellings():
        message = bytes(Message(body="x", address="orders" if annotated else text, **BEACON).encode())
        if annotated:
            message = encode_annotations(0, text, "0/A", ("0/A",)) + message
        sent.append(sender.await_credit().send(message))
    for item in sent:
        assert sender.outcome(item) == "rejected"
    return len(sent)


def test_control_addresses_are_closed_to_clients(pair: Pair, clients: Clients) -> None:
    collector = Collector(clients, pair.a.port)
    clients.until(lambda: collector.collect() or len(collector.sources) == 2, "the sources of both routers")
    genuine = set(collector.sources)
    before = memory(pair.a.pid)
    tries = 0
    with Canary(pair.a) as canary:
        for name in "AE":
            client = clients.connect(pair.ports[name])
            tries += refused_attaches(client) + refused_messages(client, annotated=False)
            tries += refused_messages(clients.connect(pair.annotating[name]), annotated=True)
    canary.report.check()
    assert tries == 2 * 4 * len(list(spellings()))
    # What the sources send later comes after whatever a client has sent.
    heartbeats = dict(collector.heartbeats)
    clients.until(
        lambda: (
            collector.collect()
            or all(collector.heartbeats[name] > heartbeats.get(name, 0) for name in genuine)
        ),
        "heartbeats",
    )
    assert set(collector.sources) == genuine
    assert memory(pair.a.pid) < before + (32 << 20)


def test_a_response_of_management_is_no_way_to_a_control_address(pair: Pair, clients: Clients) -> None:
    collector = Collector(clients, pair.a.port)
    clients.until(lambda: collector.collect() or len(collector.sources) == 2, "the sources of both routers")
    for router in (pair.a, pair.e):
        client = clients.connect(pair.ports[router.id])
        requests = client.sender("$management").await_credit()
        for text in ("mc/sfe.all", "amqp:/amqp:/mc/sfe.all", "_local/qdhello", "$management"):
            asked = {"operation": "QUERY", "entityType": "router"}
            requests.await_credit().send(Message(reply_to=text, properties=asked, body={}), settled=True)
        assert Manager(client).query("router", "id") == [{"id": router.id}]
    clients.until(lambda: collector.collect() or collector.heartbeats, "heartbeats")
    assert all("statusCode" not in (message.properties or {}) for message in collector.messages)


def status_of(manager: Manager, operation: str, **properties: str) -> int:
    response = manager.request(
        operation, {"host": "127.0.0.1", "saslPassword": "file:/etc/hostname"}, **properties
    )
    code: int = response.properties["statusCode"]
    if code == 403:
        assert "Set the attribute 'management' of the listener" in response.properties["statusDescription"]
    return code


def entities(router: Router) -> tuple[int, int]:
    status = router.status()
    return len(status["listeners"]), len(status["connectors"])


def test_management_is_for_totals_alone_unless_a_listener_says_more(pair: Pair, clients: Clients) -> None:
    before = entities(pair.a)
    with Canary(pair.a) as canary:
        manager = Manager(clients.connect(pair.ports["A"]))
        assert manager.query("router", "id") == [{"id": "A"}]
        for kind in (
            "listener",
            "connector",
            "sslProfile",
            "router.config.autoLink",
            "router.config.linkRoute",
        ):
            assert status_of(manager, "CREATE", type=kind, name="mine") == 403
        assert status_of(manager, "UPDATE", type="router", identity="router/A") == 403
        assert status_of(manager, "DELETE", type="listener", name="clients") == 403
        for kind in ("connection", "router.link", "router.address", "router.node", "connector", "sslProfile"):
            assert status_of(manager, "QUERY", entityType=kind) == 403
        assert status_of(manager, "GET-LOG") == 403
        assert status_of(manager, "GET-MGMT-NODES") == 403
        # With the right to change, no request makes the router read a secret.
        writer = Manager(clients.connect(pair.a.port))
        for secret in ("file:/etc/hostname", "env:HOME"):
            response = writer.request("CREATE", {"saslPassword": secret}, type="connector", name="mine")
            assert response.properties["statusCode"] == 400
            assert "for the configuration file" in response.properties["statusDescription"]
    canary.report.check()
    assert entities(pair.a) == before


def test_rights_are_given_live_and_taken_with_the_connection(routers: Routers, clients: Clients) -> None:
    router = routers.start("A", management="basic", allowFlowRecords=False)
    client = clients.connect(router.port)
    assert client.refusal(client.receiver("mc/sfe.all").link).name == UNAUTHORIZED
    own = router.sections[1][1]
    own.update(allowFlowRecords=True, management="read")
    router.configure()
    router.await_status(lambda status: router.log.count("configuration applied") == 1, "further rights")
    client.attached(client.receiver("mc/sfe.all", credit=1).link)
    assert Manager(client).query("connection", "container")
    own.update(allowFlowRecords=False)
    router.configure()
    client.await_end()
    again = clients.connect(router.port)
    assert again.refusal(again.receiver("mc/sfe.all").link).name == UNAUTHORIZED


def test_the_right_to_flow_records_is_taken_from_its_users_alone(routers: Routers, clients: Clients) -> None:
    router = routers.start("A", management="basic", allowFlowRecords=True)
    reader, commander, anonymous, other = (clients.connect(router.port) for _ in range(4))
    reader.attached(reader.receiver("mc/sfe.all", credit=1).link)
    commander.attached(commander.sender("sfe.nobody:0").link)
    anonymous.attached(anonymous.sender(None).link)
    receiver = other.receiver("orders", credit=10, accept=True)
    sender = other.sender("orders")
    assert sender.deliver("before") == "accepted"
    router.sections[1][1].update(allowFlowRecords=False)
    router.configure()
    for client in (reader, commander, anonymous):
        condition = client.await_end()
        assert condition is not None
        assert condition.name == UNAUTHORIZED
    assert sender.deliver("after") == "accepted"
    clients.until(lambda: receiver.bodies() == ["before", "after"], "the other client goes on")
    assert other.refusal(other.receiver("mc/sfe.all").link).name == UNAUTHORIZED


def test_a_change_through_another_router_needs_the_right_there(pair: Pair, clients: Clients) -> None:
    there = Manager(clients.connect(pair.e.port), "amqp:/_topo/0/A/$management")
    assert there.query("router", "id") == [{"id": "A"}]
    assert status_of(there, "CREATE", type="connector", name="mine") == 403
