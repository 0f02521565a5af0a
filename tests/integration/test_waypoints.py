"""Waypoints: messages pass a queue on a broker on their way through the network. The broker is Apache Artemis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from tests.integration.support.broker import SET_UP_SECONDS, Broker
from tests.integration.support.client import Clients, Receiver, Sender
from tests.integration.support.links import TIMEOUT_SECONDS
from tests.integration.support.management import Manager
from tests.integration.support.routers import Router, Routers, Section, connector, eventually
from tests.integration.support.topology import Network

pytestmark = pytest.mark.timeout(SET_UP_SECONDS + 120)  # the first time, the broker has to be fetched

WAYPOINT: Section = ("address", {"prefix": "orders", "distribution": "balanced", "waypoint": True})


def auto_links(broker: str, address: str = "orders", **attributes: Any) -> list[Section]:
    """The queue takes what comes to the address, and gives it back."""
    return [
        ("autoLink", {"address": address, "direction": direction, "connection": broker, **attributes})
        for direction in ("out", "in")
    ]


def to_broker(broker: Broker) -> Section:
    """The connection to it."""
    return connector(broker.port, "route-container", name=broker.name)


def await_attached(router: Router, count: int = 2) -> None:
    """Wait until all auto-links of a router are attached."""
    router.await_status(
        lambda status: [row["state"] for row in status["autoLinks"]] == ["active"] * count,
        f"{count} auto-links are attached",
    )


def state_of(router: Router, direction: str = "out") -> tuple[str, str]:
    """State of the auto-link in a direction, and why it is not attached."""
    row = next(row for row in router.status()["autoLinks"] if row["direction"] == direction)
    return row["state"], row["message"]


def send(sender: Sender, *bodies: str) -> None:
    """Send messages that the broker is to keep, and wait until it has them."""
    for body in bodies:
        assert sender.deliver(Message(body=body, durable=True)) == "accepted", body


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for tests that leave its queues empty."""
    started = Broker(tmp_path_factory.mktemp("broker"), "shelf", "orders", "by-edge", "elsewhere").start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def network(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """E1 - A - B - E2, with the broker at A, and another queue of it at E2."""
    routers = Routers(tmp_path_factory.mktemp("waypoints"))
    by_edge: Section = ("address", {"pattern": "by-edge", "waypoint": True})
    network = Network(routers, common=(WAYPOINT, by_edge))
    network.line("A", "B")
    network.edge("E1", "A")
    network.edge("E2", "B")
    network["A"].sections += [to_broker(broker), *auto_links("shelf")]
    network["E2"].sections += [to_broker(broker), *auto_links("shelf", "by-edge")]
    network.start()
    await_attached(network["A"])
    await_attached(network["E2"])
    yield network
    routers.stop()


def await_nobody_consumes(clients: Clients, router: Router) -> None:
    """Wait until the broker's router knows that the consumers of the test before are gone.

    What it sends to one that is gone comes back to the queue, where it may find itself behind others.
    """
    manager = Manager(clients.connect(router.port))

    def credit() -> int:
        links = {row["identity"]: row for row in manager.query("io.skupper.router.router.link")}
        rows = manager.query("io.skupper.router.router.config.autoLink")
        (linked,) = [row["linkRef"] for row in rows if row["direction"] == "in"]
        return int(links[linked]["creditAvailable"])

    eventually(lambda: credit() == 0, "the queue keeps its messages")


@pytest.mark.parametrize("address", ["orders", "by-edge"])
@pytest.mark.parametrize(
    ("source", "sink"),
    [("A", "A"), ("B", "B"), ("A", "B"), ("E1", "E1"), ("E2", "E1"), ("E1", "E2"), ("B", "E2")],
)
def test_the_queue_keeps_messages_until_somebody_wants_them(
    clients: Clients, network: Network, source: str, sink: str, address: str
) -> None:
    await_nobody_consumes(clients, network["A" if address == "orders" else "E2"])
    sender = clients.connect(network[source].port).sender(address)
    bodies = [str(number) for number in range(20)]
    send(sender, *bodies)
    receiver = clients.connect(network[sink].port).receiver(address, credit=100, accept=True)
    receiver.expect(20)
    clients.round_trip()
    assert receiver.bodies() == bodies


def test_a_consumer_that_is_there_gets_nothing_past_the_queue(clients: Clients, network: Network) -> None:
    receiver = clients.connect(network["B"].port).receiver("orders", credit=10, accept=True)
    manager = Manager(clients.connect(network["A"].port))
    before = counts(manager)
    send(clients.connect(network["B"].port).sender("orders"), "one")
    assert receiver.next().body == "one"
    (to, back), (to_before, back_before) = counts(manager), before
    assert (to, back) == (to_before + 1, back_before + 1)


def counts(manager: Manager) -> tuple[int, int]:
    """Deliveries to the broker in phase 0 of `orders`, and from there in phase 1."""
    rows = {row["name"]: row for row in manager.query("io.skupper.router.router.address")}
    return (
        rows["Morders"]["deliveriesEgressRouteContainer"],
        rows["M_$phase.1/orders"]["deliveriesIngressRouteContainer"],
    )


@pytest.mark.parametrize("source", ["A", "B", "E1", "E2"])
def test_an_anonymous_sender_passes_the_queue_too(clients: Clients, network: Network, source: str) -> None:
    sender = clients.connect(network[source].port).sender(None)
    assert sender.deliver(Message(address="orders", body="anonymous")) == "accepted"
    receiver = clients.connect(network["B"].port).receiver("orders", credit=10, accept=True)
    assert receiver.next().body == "anonymous"


def test_what_a_consumer_gives_back_is_in_the_queue_again(clients: Clients, network: Network) -> None:
    send(clients.connect(network["E1"].port).sender("orders"), "again")
    first = clients.connect(network["B"].port).receiver("orders", credit=1)
    first.expect(1)[0].modify(failed=True, undeliverable=False)
    first.client.close()
    second = clients.connect(network["E2"].port).receiver("orders", credit=1, accept=True)
    assert second.next().body == "again"


def test_a_large_message_passes_the_queue(clients: Clients, network: Network) -> None:
    body = "x" * 3_000_000
    send(clients.connect(network["E1"].port).sender("orders"), body)
    receiver = clients.connect(network["E2"].port).receiver("orders", credit=1, accept=True)
    assert receiver.next(60).body == body


def test_management_shows_auto_links(clients: Clients, network: Network) -> None:
    manager = Manager(clients.connect(network["A"].port))
    rows = {row["direction"]: row for row in manager.query("org.apache.qpid.dispatch.router.config.autoLink")}
    links = {row["identity"]: row for row in manager.query("org.apache.qpid.dispatch.router.link")}
    for direction, phase in (("out", 0), ("in", 1)):
        row = rows[direction]
        assert (row["operStatus"], row["phase"], row["lastError"]) == ("active", phase, None)
        assert links[row["linkRef"]]["linkDir"] == direction
    for family, expected in (
        ("io.skupper.router.", {"Morders", "M_$phase.1/orders"}),
        ("org.apache.qpid.dispatch.", {"M0orders", "M1orders"}),
    ):
        assert expected <= {row["name"] for row in manager.query(f"{family}router.address")}


# Brokers that come and go


def alone(routers: Routers, *brokers: Broker, **attributes: Any) -> Router:
    """One router with brokers behind one address."""
    sections = [
        section
        for broker in brokers
        for section in (to_broker(broker), *auto_links(broker.name, **attributes))
    ]
    return routers.start("A", WAYPOINT, *sections, mode="interior")


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[Broker]]:
    """Brokers of one test, ended with it."""
    made = [Broker(tmp_path, name, "orders") for name in ("one", "two")]
    yield made
    for broker in made:
        broker.stop()


def test_a_broker_that_crashes_keeps_what_it_had_accepted(
    clients: Clients, routers: Routers, brokers: list[Broker]
) -> None:
    broker = brokers[0].start()
    router = alone(routers, broker)
    await_attached(router)
    sender = clients.connect(router.port).sender("orders")
    send(sender, "1", "2", "3")
    broker.kill()
    router.await_status(lambda _: state_of(router)[0] == "inactive", "the auto-link is inactive")
    clients.until(lambda: sender.credit == 0, "the sender has no credit")
    receiver = clients.connect(router.port).receiver("orders", credit=10, accept=True)
    broker.start()
    assert [item.body for item in receiver.expect(3)] == ["1", "2", "3"]
    send(sender, "4")
    receiver.expect(4)


def test_a_refused_auto_link_says_why_and_is_tried_again(
    clients: Clients, routers: Routers, brokers: list[Broker]
) -> None:
    broker = brokers[0]
    broker.queues.clear()
    broker.start()
    router = alone(routers, broker)
    router.await_status(lambda _: state_of(router)[0] == "failed", "the broker refuses")
    assert state_of(router)[1].startswith("amqp:not-found: ")
    sender = clients.connect(router.port).sender("orders")
    clients.round_trip()
    assert sender.credit == 0
    broker.stop()
    broker.queues.append("orders")
    broker.start()
    await_attached(router)
    assert state_of(router) == ("active", "")
    send(sender, "at last")


def test_a_queue_in_shards(clients: Clients, routers: Routers, brokers: list[Broker]) -> None:
    router = alone(routers, *[broker.start() for broker in brokers])
    await_attached(router, 4)
    sender = clients.connect(router.port).sender("orders")
    bodies = [str(number) for number in range(40)]
    send(sender, *bodies)
    held = [clients.connect(broker.port).receiver("orders", credit=100) for broker in brokers]
    shards = [receiver_has(receiver) for receiver in held]
    assert all(shards)
    assert sorted(shards[0] + shards[1]) == sorted(bodies)
    for receiver in held:
        receiver.client.drop()
    receiver = clients.connect(router.port).receiver("orders", credit=100, accept=True)
    assert sorted(item.body for item in receiver.expect(40)) == sorted(bodies)
    brokers[0].kill()
    send(sender, *bodies)
    receiver.expect(80)


def receiver_has(receiver: Receiver) -> list[str]:
    """All that the broker has for a consumer."""
    receiver.drain(0)
    receiver.client.clients.until(
        lambda: not receiver.link.credit, "the broker has sent all that it has", TIMEOUT_SECONDS
    )
    return [item.body for item in receiver.arrived()]
