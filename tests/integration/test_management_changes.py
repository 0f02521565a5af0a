"""What management changes takes effect on a running router, and stays apart from what the file says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Message
from tests.integration.support.client import Clients
from tests.integration.support.management import Manager
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, address, connector, eventually, listener

FAMILIES = ("io.skupper.router.", "org.apache.qpid.dispatch.")


def status(response: Message) -> int:
    code: int = response.properties["statusCode"]
    return code


class Pair:
    """Interior A, and B that connects to it by `to-A`."""

    def __init__(self, routers: Routers) -> None:
        between = free_port()
        self.a = routers.add("A", listener(between, "inter-router", name="routers"), mode="interior")
        self.b = routers.add("B", connector(between, name="to-A"), mode="interior")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    started = Routers(tmp_path_factory.mktemp("changes"))
    pair = Pair(started)
    started.start_all()
    pair.a.await_log("neighbour up")
    pair.b.await_log("neighbour up")
    yield pair
    started.stop()


@pytest.fixture
def manager(pair: Pair, clients: Clients) -> Manager:
    return Manager(clients.connect(pair.a.port).await_open())


def row(manager: Manager, entity_type: str, name: str) -> dict[str, Any]:
    return next(row for row in manager.query(entity_type) if row["name"] == name)


@pytest.mark.parametrize("prefix", FAMILIES)
def test_every_configured_type_is_made_read_changed_and_removed(manager: Manager, prefix: str) -> None:
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("listener", {"host": "localhost", "port": str(free_port())}, {"linkCapacity": 7}),
        (
            "connector",
            {"host": "localhost", "port": str(free_port()), "role": "route-container"},
            {"cost": 3},
        ),
        ("sslProfile", {}, {"ordinal": 2}),
        (
            "router.config.address",
            {"prefix": "made", "distribution": "closest"},
            {"distribution": "multicast"},
        ),
        (
            "router.config.autoLink",
            {"address": "q", "direction": "in", "containerId": "c"},
            {"direction": "out"},
        ),
        (
            "router.config.linkRoute",
            {"prefix": "q", "direction": "in", "containerId": "c"},
            {"direction": "out"},
        ),
    ]
    for short_name, attributes, change in cases:
        entity = {"type": prefix + short_name, "name": "made"}
        created = manager.request("CREATE", attributes, **entity)
        assert status(created) == 201, (short_name, created.properties)
        assert status(manager.request("CREATE", attributes, **entity)) == 409, short_name
        by_identity = {"type": prefix + short_name, "identity": created.body["identity"]}
        updated = manager.request("UPDATE", change, **by_identity)
        assert status(updated) == 200, (short_name, updated.properties)
        for one in (entity, {"type": prefix + short_name, "identity": updated.body["identity"]}):
            read = manager.request("READ", **one)
            assert (status(read), read.body["type"]) == (200, prefix + short_name)
            assert change.items() <= read.body.items(), short_name
        assert "made" in {found["name"] for found in manager.query(prefix + short_name)}
        assert status(manager.request("DELETE", **entity)) == 204
        assert status(manager.request("DELETE", **entity)) == 404
        assert status(manager.request("READ", **entity)) == 404
        assert "made" not in {found["name"] for found in manager.query(prefix + short_name)}


def test_the_treatment_of_attached_links_changes(manager: Manager, clients: Clients, pair: Pair) -> None:
    created = manager.request("CREATE", {"prefix": "news"}, type="router.config.address", name="news")
    assert status(created) == 201
    client = clients.connect(pair.a.port)
    receivers = [client.receiver("news/today", credit=10, accept=True) for _ in range(2)]
    sender = client.sender("news/today").await_credit()
    assert sender.deliver("to one") == "accepted"
    assert sum(len(receiver.received) for receiver in receivers) == 1
    change = {"distribution": "multicast"}
    assert status(manager.request("UPDATE", change, type="router.config.address", name="news")) == 200
    assert found(manager, "Mnews/today")["distribution"] == "multicast"
    assert sender.deliver("to both") == "accepted"
    assert all(receiver.received[-1].body == "to both" for receiver in receivers)
    manager.request("DELETE", type="router.config.address", name="news")


def found(manager: Manager, key: str) -> dict[str, Any]:
    return next(row for row in manager.query("router.address") if row["key"] == key)


def test_the_cost_of_an_open_connection_changes(clients: Clients, pair: Pair) -> None:
    managed = Manager(clients.connect(pair.b.port).await_open())
    before = {row["identity"] for row in managed.query("connection") if row["container"] == "A"}
    assert status(managed.request("UPDATE", {"cost": 7}, type="connector", name="to-A")) == 200
    eventually(lambda: [r["cost"] for r in managed.query("router.node") if r["id"] == "A"] == [7], "cost 7")
    assert before == {row["identity"] for row in managed.query("connection") if row["container"] == "A"}
    assert status(managed.request("UPDATE", {"cost": 1}, type="connector", name="to-A")) == 200
    eventually(lambda: [r["cost"] for r in managed.query("router.node") if r["id"] == "A"] == [1], "cost 1")


def test_what_the_router_does_by_default_changes(manager: Manager, clients: Clients, pair: Pair) -> None:
    change = {"defaultDistribution": "unavailable", "metadata": "blue"}
    assert status(manager.request("UPDATE", change, type="router", identity="router/A")) == 200
    eventually(lambda: manager.query("router", "metadata") == [{"metadata": "blue"}], "metadata")
    client = clients.connect(pair.a.port)
    assert client.refusal(client.sender("by/default").link).name == "amqp:not-found"
    change = {"defaultDistribution": "balanced"}
    assert status(manager.request("UPDATE", change, type="router", identity="router/A")) == 200
    refused = manager.request("UPDATE", {"mode": "standalone"}, type="router", identity="router/A")
    assert status(refused) == 400


def test_management_cannot_lock_itself_out(routers: Routers, clients: Clients) -> None:
    """The default distribution is for addresses of clients, whenever it is set."""
    router = routers.start("A")
    manager = Manager(clients.connect(router.port))
    asked = manager.request(
        "UPDATE", {"defaultDistribution": "unavailable"}, type="router", identity="router/A"
    )
    assert status(asked) == 200
    client = clients.connect(router.port)
    assert client.refusal(client.sender("anything", wait=False).link).name == "amqp:not-found"
    assert status(Manager(client).request("QUERY", entityType="router")) == 200


def test_more_is_logged(manager: Manager, pair: Pair) -> None:
    levels = {row["module"]: row["enable"] for row in manager.query("log")}
    assert levels["ROUTER_LS"] == "default"
    change = {"enable": "debug+"}
    assert status(manager.request("UPDATE", change, type="log", identity="log/ROUTER_LS")) == 200
    assert row(manager, "log", "log/ROUTER_LS")["enable"] == "debug+"
    assert status(manager.request("DELETE", type="log", identity="log/ROUTER_LS")) == 204
    assert row(manager, "log", "log/ROUTER_LS")["enable"] == "default"


def test_one_listener_goes_and_the_others_stay(manager: Manager, clients: Clients, pair: Pair) -> None:
    ports = {"first": free_port(), "second": free_port()}
    for name, port in ports.items():
        body = {"host": "localhost", "port": str(port)}
        assert status(manager.request("CREATE", body, type="listener", name=name)) == 201
        eventually(lambda name=name: row(manager, "listener", name)["operStatus"] == "up", "it listens")
    stays = clients.connect(ports["second"]).await_open()
    goes = clients.connect(ports["first"]).await_open()
    assert status(manager.request("DELETE", type="listener", name="first")) == 204
    goes.await_end()
    receiver = stays.receiver("still/here", credit=1, accept=True)
    assert stays.sender("still/here").deliver("x") == "accepted"
    assert receiver.next().body == "x"
    assert status(manager.request("DELETE", type="listener", name="second")) == 204


@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_link_is_detached(manager: Manager, clients: Clients, pair: Pair, direction: str) -> None:
    client = clients.connect(pair.a.port)
    receiver = client.receiver("cut/off", credit=1)
    sender = client.sender("cut/off").await_credit()
    links = [
        r for r in manager.query("router.link") if r["owningAddr"] == "Mcut/off" and r["linkDir"] == direction
    ]
    change = {"adminStatus": "deleted"}
    link = {"type": "router.link", "identity": links[0]["identity"]}
    assert status(manager.request("UPDATE", change, **link)) == 200
    ended = sender.link if direction == "in" else receiver.link
    assert client.refusal(ended).name == "amqp:link:detach-forced"
    assert status(manager.request("UPDATE", change, **link)) == 404
    assert client.opened


def test_links_to_other_routers_are_not_detached(manager: Manager) -> None:
    link = next(row for row in manager.query("router.link") if row["linkType"] == "inter-router")
    refused = manager.request(
        "UPDATE", {"adminStatus": "deleted"}, type="router.link", identity=link["identity"]
    )
    assert status(refused) == 403


def test_a_reload_leaves_what_management_made(routers: Routers, clients: Clients) -> None:
    port = free_port()
    router: Router = routers.start("A", address("a", "closest"), listener(port, name="of-the-file"))
    base = router.sections[:3]
    managed = Manager(clients.connect(router.port).await_open())
    made = {"host": "localhost", "port": str(free_port())}
    assert status(managed.request("CREATE", made, type="listener", name="made")) == 201
    eventually(lambda: row(managed, "listener", "made")["operStatus"] == "up", "it listens")
    through = clients.connect(int(made["port"])).await_open()
    body = {"prefix": "b", "distribution": "multicast"}
    assert status(managed.request("CREATE", body, type="router.config.address")) == 201
    assert status(managed.request("DELETE", type="listener", name="of-the-file")) == 204
    router.sections = [*base, address("c", "closest"), listener(port, name="of-the-file")]
    router.configure()
    eventually(
        lambda: {r["prefix"] for r in managed.query("router.config.address")} == {"b", "c"}, "file and made"
    )
    eventually(lambda: row(managed, "listener", "of-the-file")["operStatus"] == "up", "it is back")
    assert row(managed, "listener", "made")["operStatus"] == "up"
    assert through.opened
    router.sections = [*base, address("b", "closest")]
    router.configure()
    eventually(
        lambda: [r["distribution"] for r in managed.query("router.config.address")] == ["closest"],
        "the file's comes first",
    )
    assert through.opened


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_client_may_detach_the_links_of_its_own_request(
    clients: Clients, pair: Pair, direction: str, settled: bool
) -> None:
    client = clients.connect(pair.a.port, container="own").await_open()
    managed = Manager(client)
    (connection,) = [r["identity"] for r in managed.query("connection") if r["container"] == "own"]
    links = managed.query("router.link", "identity", "connectionId", "linkDir")
    (own,) = [r["identity"] for r in links if (r["connectionId"], r["linkDir"]) == (connection, direction)]
    request = Message(
        reply_to=managed.replies.address,
        properties={"operation": "UPDATE", "type": "router.link", "identity": own},
        body={"adminStatus": "deleted"},
    )
    managed.requests.await_credit().send(request, settled=settled)
    ended = managed.requests.link if direction == "in" else managed.replies.link
    assert client.refusal(ended).name == "amqp:link:detach-forced"
    assert client.opened
    assert Manager(client).query("router", "id") == [{"id": "A"}]


def test_a_client_may_close_its_own_connection(clients: Clients, pair: Pair) -> None:
    client = clients.connect(pair.a.port, container="own").await_open()
    managed = Manager(client)
    (own,) = [r["identity"] for r in managed.query("connection") if r["container"] == "own"]
    managed.post("UPDATE", {"adminStatus": "deleted"}, type="connection", identity=own)
    condition = client.await_end()
    assert condition is not None
    assert condition.name == "amqp:connection:forced"
    others = Manager(clients.connect(pair.a.port).await_open()).query("connection", "container")
    assert {"container": "own"} not in others
