"""`$management` on real routers: requests over AMQP, to this router and through it to others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Delivery, Message, int32, symbol
from tests.integration.support.client import Clients
from tests.integration.support.management import Manager
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, connector, eventually, listener

COUNTS = ("delivery", "presettled", "accepted", "released", "rejected", "modified")


def status(response: Message) -> int:
    code: int = response.properties["statusCode"]
    return code


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Router, Router]]:
    """Two interior routers, connected."""
    started = Routers(tmp_path_factory.mktemp("management"))
    port = free_port()
    first = started.add("A", listener(port, "inter-router", name="routers"), mode="interior")
    second = started.add("B", connector(port, name="to-A"), mode="interior")
    started.start_all()
    first.await_log("neighbour up")
    second.await_log("neighbour up")
    yield first, second
    started.stop()


@pytest.fixture
def manager(network: tuple[Router, Router], clients: Clients) -> Manager:
    return Manager(clients.connect(network[0].port).await_open())


def test_what_is_connected(manager: Manager, network: tuple[Router, Router]) -> None:
    connections = manager.query("connection")
    (between,) = [row for row in connections if row["role"] == "inter-router"]
    assert (between["container"], between["dir"], between["isEncrypted"]) == ("B", "in", False)
    (own,) = [row for row in connections if row["role"] == "normal"]
    links = manager.query("router.link", "connectionId", "linkType", "linkDir", "owningAddr", "operStatus")
    assert {row["owningAddr"] for row in links if row["connectionId"] == own["identity"]} > {"M$management"}
    kinds = [row["linkType"] for row in links if row["connectionId"] == between["identity"]]
    assert (kinds.count("router-control"), kinds.count("inter-router")) == (2, 20)


def test_deliveries_are_counted_by_their_outcome(
    manager: Manager, clients: Clients, network: tuple[Router, Router]
) -> None:
    client = clients.connect(network[0].port)
    receiver = client.receiver("counted", credit=10)
    sender = client.sender("counted", name="counting").await_credit()
    sender.send("x", settled=True)
    sent = [sender.send("x") for _ in range(5)]
    received = receiver.expect(6)
    for item, state in zip(
        received[1:],
        (Delivery.ACCEPTED, Delivery.ACCEPTED, Delivery.RELEASED, Delivery.REJECTED, Delivery.MODIFIED),
        strict=True,
    ):
        item.settle(state)
    for item in sent:
        sender.outcome(item)
    (row,) = [row for row in manager.query("router.link") if row["linkName"] == "counting"]
    counts = {name: row[f"{name}Count"] for name in COUNTS}
    assert counts == dict(zip(COUNTS, (6, 1, 2, 1, 1, 1), strict=True))


def test_the_network(manager: Manager) -> None:
    rows = manager.query("router.node", "id", "nextHop", "cost")
    assert rows == [{"id": "A", "nextHop": "(self)", "cost": None}, {"id": "B", "nextHop": None, "cost": 1}]
    assert manager.request("GET-MGMT-NODES").body == [
        "amqp:/_topo/0/A/$management",
        "amqp:/_topo/0/B/$management",
    ]


def test_another_router_is_managed_through_this_one(network: tuple[Router, Router], clients: Clients) -> None:
    remote = Manager(clients.connect(network[0].port).await_open(), "amqp:/_topo/0/B/$management")
    assert remote.query("router", "id") == [{"id": "B"}]
    (row,) = remote.query("connector")
    assert (row["name"], row["connectionStatus"]) == ("to-A", "SUCCESS")


def test_types_on_the_wire(manager: Manager) -> None:
    response = manager.request("QUERY", {"attributeNames": ["bogus"]}, entityType="listener")
    assert isinstance(response.properties["statusCode"], int32)
    assert status(response) == 404
    assert not isinstance(response.properties["statusDescription"], symbol)


def test_a_listener_comes_and_goes(manager: Manager, clients: Clients) -> None:
    port = free_port()
    created = manager.request(
        "CREATE", {"host": "localhost", "port": str(port)}, type="listener", name="extra"
    )
    assert status(created) == 201
    eventually(lambda: row(manager, "extra")["operStatus"] == "up", "the listener listens")
    through_it = clients.connect(port).await_open()
    assert status(manager.request("DELETE", type="listener", name="extra")) == 204
    through_it.await_end()
    with pytest.raises(ConnectionRefusedError):
        clients.connect(port)


def test_the_listener_of_the_probes_stays(manager: Manager, network: tuple[Router, Router]) -> None:
    (http,) = [row for row in manager.query("listener") if row["http"]]
    for properties in ({"identity": http["identity"]}, {"name": http["name"], "type": "listener"}):
        response = manager.request("DELETE", **properties)
        assert (status(response), "probes" in response.properties["statusDescription"]) == (403, True)
    assert network[0].status()["router"]["ready"]


def row(manager: Manager, name: str) -> dict[str, Any]:
    return next(row for row in manager.query("listener") if row["name"] == name)


def test_requests_sent_together_all_count(manager: Manager) -> None:
    """Each change builds on the ones before, also while those are still being applied."""
    prefixes = [f"together-{number}" for number in range(10)]
    for prefix in prefixes:
        manager.post("CREATE", {"prefix": prefix, "distribution": "multicast"}, type="router.config.address")
    responses = manager.replies.expect(len(prefixes))
    assert [status(response.message) for response in responses] == [201] * len(prefixes)
    manager.replies.received.clear()
    assert {row["prefix"] for row in manager.query("router.config.address")} >= set(prefixes)


def test_a_treatment_takes_effect(manager: Manager, clients: Clients, network: tuple[Router, Router]) -> None:
    created = manager.request(
        "CREATE", {"prefix": "managed", "distribution": "multicast"}, type="router.config.address"
    )
    assert status(created) == 201
    client = clients.connect(network[0].port).await_open()
    receivers = [client.receiver("managed/x", credit=10, accept=True) for _ in range(2)]
    assert client.sender("managed/x").deliver("to all") == "accepted"
    assert [receiver.next().body for receiver in receivers] == ["to all", "to all"]
    assert (
        status(manager.request("DELETE", type="router.config.address", identity=created.body["identity"]))
        == 204
    )


def test_a_client_connection_is_closed(
    manager: Manager, clients: Clients, network: tuple[Router, Router]
) -> None:
    victim = clients.connect(network[0].port, container="victim").await_open()
    identity = next(r["identity"] for r in manager.query("connection") if r["container"] == "victim")
    assert (
        status(manager.request("UPDATE", {"adminStatus": "deleted"}, type="connection", identity=identity))
        == 200
    )
    victim.await_end()


def test_a_router_connection_is_not_closed(manager: Manager) -> None:
    identity = next(r["identity"] for r in manager.query("connection") if r["container"] == "B")
    response = manager.request("UPDATE", {"adminStatus": "deleted"}, type="connection", identity=identity)
    assert status(response) == 403


def test_the_log(manager: Manager) -> None:
    records = manager.request("GET-LOG").body
    assert any(record[0] == "ROUTER_LS" and "neighbour up" in record[2] for record in records)


def test_a_stuck_delivery_shows_until_it_is_settled(
    manager: Manager, network: tuple[Router, Router], clients: Clients
) -> None:
    consumer = clients.connect(network[1].port)
    receiver = consumer.receiver("slow/work", credit=1)
    producer = clients.connect(network[0].port, container="producer")
    sender = producer.sender("slow/work").await_credit()
    sent = sender.send("takes its time")
    held = receiver.next()

    def row(entity: str, **match: Any) -> dict[str, Any]:
        found = [row for row in manager.query(entity) if match.items() <= row.items()]
        assert len(found) == 1
        return found[0]

    incoming = {"owningAddr": "Mslow/work", "linkType": "endpoint"}
    clients.until(lambda: row("router.link", **incoming)["deliveriesStuck"] == 1, "it counts as stuck")
    assert row("router")["deliveriesStuck"] == 2, "on the sender's link, and on the one to the other router"
    clients.until(
        lambda: row("connection", container="producer")["lastDlvSeconds"] >= 10,
        "as long ago, by the second",
        2,
    )
    held.settle()
    assert sender.outcome(sent) == "accepted"
    link = row("router.link", **incoming)
    assert (link["deliveriesStuck"], link["deliveriesDelayed10Sec"], link["deliveriesDelayed1Sec"]) == (
        0,
        1,
        0,
    )
    assert row("router")["deliveriesDelayed10Sec"] >= 1
