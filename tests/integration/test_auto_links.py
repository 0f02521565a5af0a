"""Auto-links to a container that refuses, detaches and comes back; clients as waypoints; changes while running."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Condition, Endpoint, Message
from tests.integration.support.client import Client, Clients
from tests.integration.support.container import Container
from tests.integration.support.management import Manager
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, Section, listener
from tests.integration.support.topology import Network


def auto_link(direction: str, address: str = "orders", **attributes: Any) -> Section:
    """An auto-link to the container `shelf`."""
    return ("autoLink", {"address": address, "direction": direction, "containerId": "shelf", **attributes})


WAYPOINT: Section = ("address", {"prefix": "orders", "waypoint": True})


@pytest.fixture
def port() -> int:
    """Where containers connect to."""
    return free_port()


def start(routers: Routers, port: int, *sections: Section, **attributes: Any) -> Router:
    """A router that containers connect to."""
    return routers.start("A", listener(port, "route-container", name="containers", **attributes), *sections)


def row(router: Router) -> dict[str, Any]:
    """The only auto-link of a router, as `/status` has it."""
    (found,) = router.status()["autoLinks"]
    return dict(found)


def await_state(router: Router, state: str) -> str:
    """Wait for a state of the only auto-link; the message that goes with it."""
    router.await_status(lambda _: row(router)["state"] == state, f"the auto-link is {state}")
    return str(row(router)["message"])


def test_a_container_that_refuses_is_asked_again(clients: Clients, routers: Routers, port: int) -> None:
    router = start(routers, port, auto_link("out"))
    assert await_state(router, "inactive") == ""
    sender = clients.connect(router.port).sender("orders")
    shelf = Container(clients, port, "shelf")
    shelf.gets("orders")
    assert sender.deliver("x") == "accepted"
    assert await_state(router, "active") == ""
    shelf.refusal = Condition("amqp:not-allowed", "closed for stocktaking")
    shelf.gets("orders").link.close()
    clients.until(lambda: shelf.attempts >= 2, "another attempt")
    clients.until(lambda: sender.credit == 0, "the sender has no credit")
    assert await_state(router, "failed") == "amqp:not-allowed: closed for stocktaking"
    assert router.log.count("auto-link attached") == 1
    shelf.refusal = None
    assert shelf.gets("orders").link.state & Endpoint.REMOTE_ACTIVE
    assert await_state(router, "active") == ""
    assert sender.deliver("y") == "accepted"
    assert not shelf.finished


@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_link_that_is_refused_was_never_attached(
    clients: Clients, routers: Routers, port: int, direction: str
) -> None:
    router = start(routers, port, auto_link(direction))
    shelf = Container(clients, port, "shelf", Condition("amqp:not-found", "no such queue"))
    clients.until(lambda: shelf.attempts, "an attempt")
    assert await_state(router, "failed") == "amqp:not-found: no such queue"
    assert "auto-link attached" not in router.log


def test_a_link_that_is_only_detached_is_attached_again(
    clients: Clients, routers: Routers, port: int
) -> None:
    router = start(routers, port, auto_link("out"))
    shelf = Container(clients, port, "shelf")
    link = shelf.gets("orders").link
    link.condition = Condition("amqp:resource-limit-exceeded", "come back later")
    link._update_cond()  # which only close() does by itself
    link.detach()
    clients.until(lambda: link.state & Endpoint.REMOTE_CLOSED, "the link is closed")
    assert await_state(router, "failed") == "amqp:resource-limit-exceeded: come back later"
    clients.until(lambda: shelf.attempts >= 2, "another attempt")
    assert await_state(router, "active") == ""
    assert not shelf.finished


def test_a_container_that_returns_has_its_links_at_once(
    clients: Clients, routers: Routers, port: int
) -> None:
    router = start(routers, port, auto_link("in", externalAddress="queue/orders"))
    Container(clients, port, "other")
    shelf = Container(clients, port, "shelf")
    shelf.gives("queue/orders")
    shelf.drop()
    await_state(router, "inactive")
    receiver = clients.connect(router.port).receiver("orders", credit=10, accept=True)
    shelf = Container(clients, port, "shelf")
    assert shelf.gives("queue/orders").deliver("x") == "accepted"
    assert receiver.bodies() == ["x"]
    assert "retry_seconds" not in router.log


def test_the_queue_is_not_asked_before_somebody_consumes(
    clients: Clients, routers: Routers, port: int
) -> None:
    router = start(routers, port, auto_link("in"), linkCapacity=7)
    queue = Container(clients, port, "shelf").gives("orders")
    await_state(router, "active")
    clients.round_trip()
    assert queue.credit == 0
    receiver = clients.connect(router.port).receiver("orders", credit=100, accept=True)
    queue.await_credit()
    assert queue.credit == 7
    receiver.client.close()
    clients.until(lambda: queue.credit == 0, "the credit is taken back")


def test_an_anonymous_auto_link(clients: Clients, routers: Routers, port: int) -> None:
    attributes = {"direction": "in", "containerId": "shelf", "externalAddress": "queue"}
    router = start(routers, port, ("autoLink", attributes))
    receiver = clients.connect(router.port).receiver("somewhere", credit=10, accept=True)
    queue = Container(clients, port, "shelf").gives("queue")
    assert queue.deliver(Message(address="somewhere", body="x")) == "accepted"
    assert queue.deliver(Message(address="nowhere", body="y")) == "released"
    assert receiver.bodies() == ["x"]


def test_auto_links_come_and_go_with_the_file(clients: Clients, routers: Routers, port: int) -> None:
    router = start(routers, port, auto_link("out"))
    shelf = Container(clients, port, "shelf")
    kept = shelf.gets("orders")
    router.sections += [auto_link("out", "invoices", externalAddress="queue/invoices")]
    router.configure()
    shelf.gets("queue/invoices")
    router.sections.remove(auto_link("out", "invoices", externalAddress="queue/invoices"))
    router.configure()
    clients.until(lambda: len(shelf.receivers) == 1, "the second link is detached")
    assert shelf.gets("orders") is kept
    assert {item["name"] for item in router.status()["addresses"] if item["class"] == "M"} == {
        "orders",
        "$management",
    }


def test_auto_links_come_and_go_with_management(clients: Clients, routers: Routers, port: int) -> None:
    router = start(routers, port)
    shelf = Container(clients, port, "shelf")
    manager = Manager(clients.connect(router.port))
    kind = "org.apache.qpid.dispatch.router.config.autoLink"
    made = manager.request("CREATE", dict(auto_link("in")[1], phase=3), type=kind, name="mine")
    assert made.properties["statusCode"] == 201
    shelf.gives("orders")
    await_state(router, "active")
    shown = manager.request("READ", type=kind, name="mine").body
    assert (shown["operStatus"], shown["phase"], shown["direction"]) == ("active", 3, "in")
    assert manager.request("DELETE", type=kind, name="mine").properties["statusCode"] == 204
    clients.until(lambda: not shelf.senders, "the link is detached")


# Clients as waypoints


def network_of_two(routers: Routers, *common: Section) -> tuple[Router, Router, Router]:
    """E - A - B."""
    network = Network(routers, common=common)
    network.line("A", "B")
    network.edge("E", "A")
    network.start()
    return network["A"], network["B"], network["E"]


def passes_on(client: Client, capability: str) -> None:
    """A client that is a waypoint: it takes what comes in one phase, adds its name and sends it on in the next."""
    receiver = client.receiver("orders", credit=100, capability=capability)
    sender = client.sender("orders", capability=capability)

    def work() -> bool:
        while receiver.received and receiver.received[0].complete and sender.credit:
            item = receiver.received.pop(0)
            sender.send(f"{item.body} {capability}")
            item.settle()
        return False

    client.clients.background.append(work)


def test_clients_as_waypoints_one_after_the_other(clients: Clients, routers: Routers) -> None:
    rule: Section = ("address", {"prefix": "orders", "ingressPhase": 0, "egressPhase": 2})
    a, b, e = network_of_two(routers, rule)
    receiver = clients.connect(b.port).receiver("orders", credit=100, accept=True)
    passes_on(clients.connect(e.port), "qd.waypoint.2")
    passes_on(clients.connect(b.port), "qd.waypoint")
    for router in (a, b, e):
        assert clients.connect(router.port).sender("orders").deliver("via") == "accepted"
        assert (
            clients.connect(router.port).sender(None).deliver(Message(address="orders", body="also via"))
            == "accepted"
        )
        assert sorted(item.body for item in receiver.expect(2)) == [
            "also via qd.waypoint qd.waypoint.2",
            "via qd.waypoint qd.waypoint.2",
        ]
        receiver.received.clear()


def test_other_phases_than_0_for_senders(clients: Clients, routers: Routers) -> None:
    rule: Section = ("address", {"prefix": "orders", "ingressPhase": 3, "egressPhase": 3})
    a, b, e = network_of_two(routers, rule)
    receiver = clients.connect(b.port).receiver("orders", credit=100, accept=True)
    for router in (a, b, e):
        client = clients.connect(router.port)
        assert client.sender("orders").deliver("x") == "accepted"
        anonymous = client.sender(None)
        assert anonymous.deliver(Message(address="orders", body="y")) == "accepted"
    assert len(receiver.arrived()) == 6


def test_a_changed_phase_has_clients_attach_again(clients: Clients, routers: Routers) -> None:
    router = routers.start("A")
    client = clients.connect(router.port)
    sender, other = client.sender("orders"), client.receiver("other")
    receiver = client.receiver("orders")
    router.sections.append(WAYPOINT)
    router.configure()
    assert client.refusal(receiver.link).name == "amqp:link:detach-forced"
    clients.round_trip()
    for link in (sender.link, other.link):
        assert link.state & Endpoint.REMOTE_ACTIVE
    client.receiver("orders", credit=1)
    clients.round_trip()
    assert sender.credit == 0


def test_message_sizes_of_both_ends(clients: Clients, routers: Routers, port: int) -> None:
    """The container is told how much the router takes, and gets no more than it takes itself."""
    router = start(routers, port, auto_link("out"), auto_link("in", "replies"), maxMessageSize=5000)
    shelf = Container(clients, port, "shelf", max_message_size=1000)
    queue = shelf.gets("orders")
    sender = clients.connect(router.port).sender("orders")
    assert sender.deliver(Message(body="x" * 900)) == "accepted"
    assert sender.deliver(Message(body="x" * 1100)) == "rejected"
    assert len(queue.arrived()) == 1
    assert shelf.gives("replies").link.remote_max_message_size == 5000


@pytest.mark.parametrize("direction", ["in", "out"])
def test_an_answer_without_an_address_is_no_node(
    clients: Clients, routers: Routers, port: int, direction: str
) -> None:
    """As clients give it that know nothing of the links which a router opens: nothing is sent to them there."""
    router = start(routers, port, auto_link(direction))
    shelf = Container(clients, port, "shelf", names_nodes=False)
    clients.until(lambda: shelf.attempts == 1, "an attach")
    clients.round_trip()
    assert row(router)["state"] == "attaching"
    assert direction == "in" or "names no address" in row(router)["message"]
    receiver = clients.connect(router.port).receiver("orders", credit=10, accept=True)
    sender = clients.connect(router.port).sender("orders").await_credit()
    assert [sender.deliver(str(number)) for number in range(4)] == ["accepted"] * 4
    assert len(receiver.received) == 4
    if direction == "in":
        assert all(link.credit == 0 for link in shelf.senders.values()), "nothing is expected from it either"
