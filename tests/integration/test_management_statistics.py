"""What management's columns say of deliveries: numbers that can be counted by hand, on an edge and two interiors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Delivery, Message
from tests.integration.support.client import Clients
from tests.integration.support.management import Manager
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, address, connector, eventually, listener

Row = dict[str, Any]
OUTCOMES = ("delivery", "presettled", "accepted", "rejected", "released", "modified")


class Network:
    """Edge E on interior A, next to interior B."""

    def __init__(self, routers: Routers) -> None:
        between, edge = free_port(), free_port()
        common = (address("copies", "multicast"), address("near", "closest"))
        self.a = routers.add(
            "A", listener(between, "inter-router"), listener(edge, "edge"), *common, mode="interior"
        )
        self.b = routers.add("B", connector(between), *common, mode="interior")
        self.e = routers.add("E", connector(edge, role="edge"), *common, mode="edge")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    started = Routers(tmp_path_factory.mktemp("statistics"))
    network = Network(started)
    started.start_all()
    network.a.await_log("neighbour up")
    network.b.await_log("neighbour up")
    network.e.await_log("uplink")
    yield network
    started.stop()


def manager(clients: Clients, router: Router) -> Manager:
    return Manager(clients.connect(router.port).await_open())


def counted(manager: Manager, name: str) -> tuple[int, ...]:
    """`in`, `out` and `thru` of a mobile address."""
    for row in manager.query("router.address"):
        if row["key"] == f"M{name}":
            return row["deliveriesIngress"], row["deliveriesEgress"], row["deliveriesTransit"]
    return (0, 0, 0)


def totals(manager: Manager) -> Row:
    (row,) = manager.query("routerMetrics")
    return row


@pytest.mark.parametrize("prefix", ["balanced", "near"])
def test_a_delivery_is_counted_where_it_enters_passes_and_leaves(
    network: Network, clients: Clients, prefix: str
) -> None:
    name = f"{prefix}/path"
    receiver = clients.connect(network.b.port).receiver(name, credit=10, accept=True)
    sender = clients.connect(network.e.port).sender(name).await_credit()
    before = totals(manager(clients, network.a))["deliveriesTransit"]
    for _ in range(3):
        assert sender.deliver("x") == "accepted"
    receiver.expect(3)
    assert counted(manager(clients, network.e), name) == (3, 3, 0), "from a client, to the uplink"
    assert counted(manager(clients, network.a), name) == (3, 0, 3), "from the edge, to B"
    assert counted(manager(clients, network.b), name) == (0, 3, 0), "from A, to a client"
    managed = manager(clients, network.a)
    # Between two counts the router reports the last one.
    eventually(lambda: totals(managed)["deliveriesTransit"] > before, "they are counted")
    assert totals(managed)["deliveriesTransit"] == before + 3, "control messages are none"


def test_copies_are_counted_each(network: Network, clients: Clients) -> None:
    here, there = clients.connect(network.a.port), clients.connect(network.b.port)
    receivers = [here.receiver("copies/x", credit=9, accept=True) for _ in range(2)]
    receivers.append(there.receiver("copies/x", credit=9, accept=True))
    sender = here.sender("copies/x").await_credit()
    managed = manager(clients, network.a)
    clients.until(
        lambda: any(
            row["key"] == "Mcopies/x" and row["remoteCount"] for row in managed.query("router.address")
        ),
        "B's consumer is known",
    )
    assert sender.deliver("x") == "accepted"
    for receiver in receivers:
        receiver.next()
    assert counted(managed, "copies/x") == (1, 2, 1)


def test_a_balanced_choice_counts_what_went_to_the_other_router(network: Network, clients: Clients) -> None:
    here, there = clients.connect(network.a.port), clients.connect(network.b.port)
    near = here.receiver("balanced/two", credit=100)
    far = there.receiver("balanced/two", credit=100)
    managed = manager(clients, network.a)
    clients.until(
        lambda: any(
            row["key"] == "Mbalanced/two" and row["remoteCount"] for row in managed.query("router.address")
        ),
        "B's consumer is known",
    )
    sender = here.sender("balanced/two").await_credit(20)
    for _ in range(20):
        sender.send("x")
    clients.until(lambda: len(near.received) + len(far.received) == 20, "all arrive")
    assert len(far.received) > 0
    assert counted(managed, "balanced/two") == (20, len(near.received), len(far.received))
    tracked = next(r for r in managed.query("router.address") if r["key"] == "Mbalanced/two")
    assert tracked["trackedDeliveries"] == len(far.received), "those without an outcome yet"


def test_both_ends_of_a_link_count_outcomes(network: Network, clients: Clients) -> None:
    client = clients.connect(network.a.port)
    receiver = client.receiver("counted/out", credit=20)
    sender = client.sender("counted/out", name="counted-in").await_credit()
    sender.send("x", settled=True)
    sent = [sender.send("x") for _ in range(7)]
    received = receiver.expect(8)
    states = [Delivery.ACCEPTED] * 3 + [Delivery.RELEASED] * 2 + [Delivery.REJECTED, Delivery.MODIFIED]
    for item, state in zip(received[1:], states, strict=True):
        item.settle(state)
    for item in sent:
        sender.outcome(item)
    rows = [
        row for row in manager(clients, network.a).query("router.link") if row["owningAddr"] == "Mcounted/out"
    ]
    assert {row["linkDir"] for row in rows} == {"in", "out"}
    for row in rows:
        assert tuple(row[f"{name}Count"] for name in OUTCOMES) == (8, 1, 3, 1, 2, 1), row["linkDir"]


def test_a_sender_without_consumers_is_blocked(network: Network, clients: Clients) -> None:
    client = clients.connect(network.a.port)
    client.attached(client.sender("nobody/here", name="waits").link)
    managed = manager(clients, network.a)

    def blocked() -> int:
        (row,) = [row for row in managed.query("router.link") if row["linkName"] == "waits"]
        seconds: int = row["zeroCreditSeconds"]
        return seconds

    clients.until(lambda: blocked() >= 1, "time passes without credit")
    client.receiver("nobody/here", credit=1)
    clients.until(lambda: blocked() == 0, "there is a consumer")


def test_what_the_router_consumes_and_says_itself(network: Network, clients: Clients) -> None:
    managed = manager(clients, network.a)

    def own(key: str) -> tuple[int, int]:
        (row,) = [row for row in managed.query("router.address") if row["key"] == key]
        return row["deliveriesToContainer"], row["deliveriesFromContainer"]

    before, _ = own("M$management")
    assert own("M$management") == (before + 1, 0)
    replies = "L" + managed.replies.address.rpartition("/")[2]
    assert own(replies) == (0, 2), "the two responses before this one"


def test_totals_leave_out_what_routers_say_to_each_other(network: Network, clients: Clients) -> None:
    managed = manager(clients, network.b)
    row = totals(managed)
    (requests,) = [r for r in managed.query("router.address") if r["key"] == "M$management"]
    assert row["presettledDeliveries"] <= requests["deliveriesToContainer"], (
        "the tests' requests, nothing else"
    )
    assert row["connectionCounters"]["amqp"] == 1
    assert row["memoryUsage"] > row["residentMemoryUsage"] > 0


def test_links_between_routers_are_named(network: Network, clients: Clients) -> None:
    rows = manager(clients, network.a).query("router.link")
    named = {row["owningAddr"] for row in rows}
    assert "M_$qd.edge_addr_tracking" in named
    assert {row["priority"] for row in rows if row["linkType"] == "router-control"} == {9}


def test_own_end_of_a_connection(network: Network, clients: Clients) -> None:
    rows = manager(clients, network.a).query("connection")
    ports = {row["localSocket"].rpartition(":")[2] for row in rows if row["role"] == "normal"}
    assert ports == {str(network.a.port)}


def test_dropped_for_want_of_anybody(network: Network, clients: Clients) -> None:
    managed = manager(clients, network.a)
    before = totals(managed)["droppedPresettledDeliveries"]
    client = clients.connect(network.a.port)
    sender = client.sender(None, name="into-nothing").await_credit()
    for prefix in ("copies", "near", "balanced"):
        sender.send(Message(address=f"{prefix}/void", body="x"), settled=True)
        sender.send(Message(address=f"{prefix}/void", body=bytes(1_500_000)), settled=True)
    clients.round_trip()

    def dropped() -> int:
        (row,) = [row for row in managed.query("router.link") if row["linkName"] == "into-nothing"]
        assert row["presettledCount"] == row["deliveryCount"]
        number: int = row["droppedPresettledCount"]
        return number

    clients.until(lambda: dropped() == 6, "each is counted")
    assert totals(managed)["droppedPresettledDeliveries"] == before + 6
    client.detach(sender.link)
    assert totals(managed)["droppedPresettledDeliveries"] == before + 6, "also when the link is gone"


def test_what_waits_is_sent_or_was_dropped_adds_up(network: Network, clients: Clients) -> None:
    client = clients.connect(network.a.port)
    receiver = client.receiver("slow/presettled", credit=2)
    sender = client.sender("slow/presettled").await_credit()
    for _ in range(300):
        sender.await_credit().send("x", settled=True)
    receiver.expect(2)
    clients.round_trip()
    rows = manager(clients, network.a).query("router.link")
    (row,) = [row for row in rows if row["owningAddr"] == "Mslow/presettled" and row["linkDir"] == "out"]
    assert (row["deliveryCount"], row["undeliveredCount"]) == (2, 250)
    assert (row["presettledCount"], row["droppedPresettledCount"]) == (50, 48)
