"""Edge routers: their clients reach the whole network, and find another way when their interior is lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest
from proton import Message
from tests.integration.support.client import Clients, Pour, Receiver, Sender
from tests.integration.support.routers import Router, Routers, address, eventually
from tests.integration.support.topology import Network, await_everyone

MEGA = 1024 * 1024


def two_edges(routers: Routers) -> Network:
    """Two interior routers with an edge on each: E1 - A - B - E2."""
    network = Network(routers, common=(address("multicast", "multicast"), address("closest", "closest")))
    network.line("A", "B")
    network.edge("E1", "A")
    network.edge("E2", "B")
    network.start()
    for router_id in ("E1", "E2"):
        await_uplink(network[router_id])
    for router_id in ("A", "B"):
        network[router_id].await_status(
            lambda status: (
                {row["name"] for row in status["addresses"] if row["class"] == "H"} == {"E1", "E2"}
            ),
            "both edges can be reached",
        )
    return network


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """E1 - A - B - E2, for tests that leave it as they found it."""
    routers = Routers(tmp_path_factory.mktemp("edges"))
    yield two_edges(routers)
    routers.stop()


def await_uplink(edge: Router) -> None:
    """Wait until an edge is attached to some interior router."""
    edge.await_status(
        lambda status: (
            any(row["state"] == "open" for row in status["connectors"])
            and any(row["role"] == "edge" and row["active"] for row in status["connections"])
        ),
        "the edge is attached",
    )


def across(clients: Clients, source: Router, sink: Router, name: str) -> tuple[Sender, Receiver]:
    """A receiver at one router and a sender with credit at another."""
    receiver = clients.connect(sink.port).receiver(name, credit=100, accept=True)
    sender = clients.connect(source.port).sender(name)
    clients.until(lambda: sender.credit > 0, f"credit at {source.id} for a consumer at {sink.id}")
    return sender, receiver


def test_every_router_reaches_every_other(clients: Clients, network: Network) -> None:
    for source in ("E1", "A", "B", "E2"):
        for sink in ("E1", "A", "B", "E2"):
            sender, receiver = across(clients, network[source], network[sink], f"{source}/{sink}")
            assert sender.deliver("x") == "accepted"
            assert receiver.bodies() == ["x"]


def test_many_messages_from_edge_to_edge(clients: Clients, network: Network) -> None:
    sender, receiver = across(clients, network["E1"], network["E2"], "many")
    for number in range(3000):
        if sender.credit == 0:
            sender.await_credit()
        sender.send(str(number))
    clients.until(
        lambda: all(item.outcome == "accepted" for item in sender.sent.values()), "all outcomes", 30
    )
    assert [int(body) for body in receiver.bodies()] == list(range(3000))


def test_outcomes_from_edge_to_edge(clients: Clients, network: Network) -> None:
    consumer = clients.connect(network["E2"].port)
    receiver = consumer.receiver("outcomes", credit=4)
    sender = clients.connect(network["E1"].port).sender("outcomes")
    clients.until(lambda: sender.credit > 0, "credit")
    sent = [sender.send(str(number)) for number in range(4)]
    first, second, third, _ = receiver.expect(4)
    first.settle()
    second.reject("acme:no", "no thanks", {"code": 7})
    third.modify(failed=True, undeliverable=True, annotations={"x-opt-a": "b"})
    assert [sender.outcome(item) for item in sent[:3]] == ["accepted", "rejected", "modified"]
    assert sent[1].condition is not None
    assert sent[1].condition.description == "no thanks"
    assert sent[2].undeliverable
    consumer.drop()
    assert sender.outcome(sent[3], 15) == "modified"
    clients.until(lambda: sender.credit == 0, "credit is drained")


def test_request_and_reply_from_edge_to_edge(clients: Clients, network: Network) -> None:
    client, server = clients.connect(network["E1"].port), clients.connect(network["E2"].port)
    replies = client.receiver(None, dynamic=True, credit=10, accept=True)
    assert "E1" in replies.address
    service = server.receiver("service", credit=10)
    requests = client.sender("service")
    clients.until(lambda: requests.credit > 0, "credit")
    requests.send(Message(body="ping", reply_to=replies.address))
    asked = service.next()
    asked.settle()
    answers = server.sender(None).await_credit()
    assert answers.deliver(Message(address=asked.message.reply_to, body="pong")) == "accepted"
    assert replies.next().body == "pong"


def test_multicast_reaches_edges_and_interior(clients: Clients, network: Network) -> None:
    consumers = [
        clients.connect(network[router_id].port).receiver("multicast/x", credit=500, accept=True)
        for router_id in ("E1", "A", "B", "E2", "E2")
    ]
    for source in ("E1", "B"):
        sender = clients.connect(network[source].port).sender("multicast/x")
        clients.until(lambda s=sender: s.credit > 0, "credit", 15)  # type: ignore[misc]
        await_everyone(sender, consumers)
        for number in range(10):
            assert sender.deliver(str(number)) == "accepted"
        for consumer in consumers:
            assert consumer.bodies() == [str(number) for number in range(10)]
            consumer.received.clear()


def test_large_messages_from_edge_to_edge(clients: Clients, network: Network) -> None:
    sender, receiver = across(clients, network["E1"], network["E2"], "large")
    for size in (100_000, 3_000_000):
        payload = bytes(range(256)) * (size // 256)
        assert sender.deliver(Message(body=payload)) == "accepted"
        assert receiver.next().body == payload
    size = 8 * MEGA
    pour = Pour(sender, b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(4 * MEGA), finish=False)
    clients.until(lambda: receiver.received and len(receiver.received[0].data) > MEGA, "the start")
    pour.sender.abort(pour.sent)
    clients.until(lambda: receiver.received[0].aborted, "the abort")


def test_anonymous_sender_at_an_edge(clients: Clients, network: Network) -> None:
    receiver = clients.connect(network["E2"].port).receiver("anonymous", credit=10, accept=True)
    sender = clients.connect(network["E1"].port).sender(None).await_credit()
    message = Message(address="anonymous", body="x")
    eventually(lambda: sender.deliver(message) == "accepted", "the consumer is known")
    assert receiver.bodies() == ["x"]
    assert sender.deliver(Message(address="nobody", body="x")) == "released"


def test_local_consumer_of_an_edge_is_closest(clients: Clients, network: Network) -> None:
    far_sender, far = across(clients, network["E1"], network["E2"], "closest/x")
    near = clients.connect(network["E1"].port).receiver("closest/x", credit=100, accept=True)
    for _ in range(10):
        assert far_sender.deliver("x") == "accepted"
    assert (len(near.received), len(far.received)) == (10, 0)


def test_edge_changes_to_its_standby_when_the_interior_is_killed(clients: Clients, routers: Routers) -> None:
    network = Network(routers)
    network.mesh("A", "B", "C")
    network.edge("E1", "A", "B")
    network.edge("E2", "C")
    network.start()
    for router_id in ("E1", "E2"):
        await_uplink(network[router_id])
    sender, receiver = across(clients, network["E1"], network["E2"], "failover")
    back, back_receiver = across(clients, network["E2"], network["E1"], "back")
    assert sender.deliver("before") == "accepted"
    active = next(
        row["container"]
        for row in network["E1"].status()["connections"]
        if row["role"] == "edge" and row["active"]
    )
    network[active].kill()
    for link in (sender, back):
        deadline = time.monotonic() + 20
        while True:
            assert time.monotonic() < deadline
            clients.until(lambda s=link: s.credit > 0, "credit again", 20)  # type: ignore[misc]
            if link.outcome(link.send("after"), 15) == "accepted":
                break
    assert receiver.bodies()[-1] == "after"
    assert back_receiver.bodies()[-1] == "after"


def test_edge_moves_at_once_when_its_interior_stops_however_long_deliveries_take(
    clients: Clients, routers: Routers
) -> None:
    network = Network(routers)
    network.line("A", "B")
    edge = network.edge("E", "A", "B")
    network.start()
    edge.await_status(lambda status: len(status["edge"]["standbys"]) == 1, "one uplink and one in reserve")
    receiver = clients.connect(edge.port).receiver("slow", credit=10)
    sender, _ = across(clients, edge, edge, "fast")
    slow = clients.connect(network["B"].port).sender("slow")
    clients.until(lambda: slow.credit > 0, "credit")
    sent = slow.send("x")
    receiver.next()  # which keeps the message unsettled
    active = network[edge.status()["edge"]["active"]["container"]]
    assert active.process is not None
    stopped_at = time.monotonic()
    active.process.send_signal(signal.SIGTERM)
    edge.await_status(
        lambda status: status["edge"]["active"] and status["edge"]["active"]["container"] != active.id,
        "the edge has moved",
    )
    assert time.monotonic() - stopped_at < 5
    clients.until(lambda: sent.outcome is not None, "an outcome")
    assert sent.outcome == "modified"
    assert sender.deliver("still here") == "accepted"
    active.stop()


def test_edge_restarts(clients: Clients, routers: Routers) -> None:
    network = two_edges(routers)
    sender, _ = across(clients, network["E1"], network["E2"], "restart")
    network["E2"].kill()
    clients.until(lambda: sender.credit == 0, "nobody is left")
    network["E2"].start()
    await_uplink(network["E2"])
    receiver = clients.connect(network["E2"].port).receiver("restart", credit=10, accept=True)
    clients.until(lambda: sender.credit > 0, "credit again")
    assert sender.deliver("x") == "accepted"
    assert receiver.bodies() == ["x"]


def test_edge_without_uplink_serves_its_own_clients(clients: Clients, routers: Routers) -> None:
    network = Network(routers)
    network.interior("A")
    edge = network.edge("E", "A")
    edge.start()
    sender, receiver = across(clients, edge, edge, "own")
    assert sender.deliver("x") == "accepted"
    network["A"].start()
    await_uplink(edge)
    assert sender.deliver("y") == "accepted"
    assert receiver.bodies() == ["x", "y"]
    far = clients.connect(network["A"].port).sender("own")
    clients.until(lambda: far.credit > 0, "the edge's consumer is known at the interior")
    assert far.deliver("z") == "accepted"
