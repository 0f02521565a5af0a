"""Flow records: a collector on one router hears of everything that flows through a whole network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from proton import Message
from tests.integration.support.client import Clients
from tests.integration.support.collector import Collector
from tests.integration.support.links import Receiver, Sender
from tests.integration.support.rotation import RotatingNetwork
from tests.integration.support.routers import Routers, eventually
from tests.integration.support.topology import Network

from isthmus_router.flows.records import Attr, RecordType
from isthmus_router.flows.sketch import RELATIVE_ERROR

EVERYBODY = {"A", "B", "E"}


def a_network(routers: Routers) -> Network:
    """A - B, with the edge E at B; summaries every second."""
    network = Network(routers)
    network.line("A", "B")
    network.edge("E", "B")
    for router in routers.all.values():
        router.sections[0][1]["flowIntervalSeconds"] = 1
    return network.start()


def knows(collector: Collector, routers: set[str]) -> Callable[[], bool]:
    """A condition: the collector has a record of each of these routers."""
    wanted = {f"0/{router}" for router in routers}
    return lambda: {record.get(Attr.NAME) for record in collector.of(RecordType.ROUTER)} == wanted


def pour(clients: Clients, sender: Sender, receiver: Receiver, count: int) -> list[int]:
    """Send messages of rising size and wait until all are settled; their sizes."""
    sizes = []
    before = len(receiver.received)
    for number in range(count):
        data = bytes(Message(body="x" * (number * 10)).encode())
        if sender.credit == 0:
            sender.await_credit()
        sender.send(data)
        sizes.append(len(data))
    clients.until(lambda: len(receiver.received) == before + count, "all messages")
    clients.until(lambda: all(item.settled for item in sender.sent.values()), "all outcomes")
    return sizes


def test_a_collector_hears_of_the_whole_network(clients: Clients, routers: Routers) -> None:
    network = a_network(routers)
    collector = Collector(clients, network["A"].port)
    collector.until(knows(collector, EVERYBODY), "records of all routers")
    reader = clients.connect(network["A"].port, container="reader")
    receiver = reader.receiver("orders", credit=100, accept=True)
    writer = clients.connect(network["E"].port, container="writer")
    sender = writer.sender("orders").await_credit()
    sizes = pour(clients, sender, receiver, 300)

    ends = (("E", "in"), ("A", "out"))
    collector.until(
        lambda: all(
            collector.total(Attr.ACCEPTED, router, direction=direction, van_address="orders") == 300
            for router, direction in ends
        ),
        "summaries of all deliveries",
    )
    for router, direction in ends:
        about = {"direction": direction, "van_address": "orders"}
        assert collector.total(Attr.DELIVERIES, router, **about) == 300
        assert collector.total(Attr.OCTETS, router, **about) == sum(sizes)
        told = collector.sketch(Attr.SIZES, router, **about)
        assert told.total == 300
        for share in (0.1, 0.5, 0.9, 1.0):
            exact = sorted(sizes)[round(share * 300) - 1]
            found = told.quantile(share)
            assert found is not None
            assert abs(found - exact) <= RELATIVE_ERROR * exact
        assert collector.sketch(Attr.LATENCIES, router, **about).total == 300
        (link,) = collector.of(RecordType.AMQP_LINK, router, **about)
        collector.until(lambda of=link: of.get(Attr.ACCEPTED) == 300, "the link's own counters")
        assert link[Attr.DELIVERIES] == 300
        assert link[Attr.OCTETS] == sum(sizes)
        connection = collector.records[link[Attr.PARENT]]
        assert connection[Attr.CONTAINER] == {"E": "writer", "A": "reader"}[router]
        listener = collector.records[connection[Attr.PARENT]]
        assert (listener[Attr.TYPE], listener[Attr.NAME]) == (RecordType.LISTENER, "clients")
        assert Attr.END_TIME not in link
    # What connections between routers carry, the routers' own records included.
    for router, direction in (("B", "in"), ("B", "out"), ("A", "in"), ("E", "out")):
        assert collector.total(Attr.DELIVERIES, router, direction=direction, van_address=None) >= 300
    for router, name, role in (("A", "to-B", "inter-router"), ("E", "to-B", "edge")):
        (link,) = collector.of(RecordType.LINK, router, name=name)
        assert (link[Attr.ROLE], link[Attr.OPER_STATUS], link[Attr.CONTAINER]) == (role, "up", "B")
    counts = {
        record[Attr.NAME]: record[Attr.LINK_COUNT] for record in collector.of(RecordType.ROUTER_ACCESS, "B")
    }
    assert counts == {"routers": 3, "edges": 1}  # one for control, two for data
    collector.until(
        lambda: (
            [
                record.get(Attr.DELIVERIES_OUT)
                for record in collector.of(RecordType.ADDRESS, "A", van_address="orders")
            ]
            == [300]
        ),
        "the address",
    )
    events = {record[Attr.EVENT] for record in collector.of(RecordType.TOPOLOGY_EVENT, "A", subject="B")}
    assert {"router-added", "neighbour-up"} <= events
    assert min(collector.heartbeats.values()) > 0

    writer.drop()
    collector.until(
        lambda: all(
            Attr.END_TIME in record
            for kind, about in (
                (RecordType.AMQP_LINK, {"van_address": "orders"}),
                (RecordType.CONNECTION, {"container": "writer"}),
            )
            for record in collector.of(kind, "E", **about)
        ),
        "the end of link and connection",
    )


@pytest.mark.parametrize("place", ["B", "E"])
def test_nothing_is_sent_while_nobody_collects_and_nothing_is_lost(
    clients: Clients, routers: Routers, place: str
) -> None:
    network = a_network(routers)
    receiver = clients.connect(network["A"].port).receiver("orders", credit=100, accept=True)
    sender = clients.connect(network["E"].port).sender("orders").await_credit()
    pour(clients, sender, receiver, 100)
    gone = clients.connect(network["E"].port)
    pour(clients, gone.sender("orders").await_credit(), receiver, 50)
    gone.drop()
    collector = Collector(clients, network[place].port)

    def total(router: str, direction: str) -> int:
        return collector.total(Attr.DELIVERIES, router, direction=direction, van_address="orders")

    collector.until(lambda: total("E", "in") == total("A", "out") == 150, "what was before the collector")
    first = {
        message.properties["id"]: message.id for message in reversed(collector.messages) if message.properties
    }
    assert set(first.values()) == {1}, "the first message of each router was the first it ever sent"

    collector.client.drop()
    pour(clients, sender, receiver, 100)
    again = Collector(clients, network[place].port)
    again.records = collector.records
    collector = again
    collector.until(lambda: total("E", "in") == total("A", "out") == 250, "what was between the collectors")


def test_a_flush_tells_everything_again(clients: Clients, routers: Routers) -> None:
    network = a_network(routers)
    collector = Collector(clients, network["A"].port)
    collector.until(knows(collector, EVERYBODY), "records of all routers")
    receiver = clients.connect(network["B"].port).receiver("orders", credit=100, accept=True)
    pour(clients, clients.connect(network["E"].port).sender("orders").await_credit(), receiver, 20)
    collector.until(
        lambda: collector.total(Attr.ACCEPTED, "E", direction="in", van_address="orders") == 20, "a summary"
    )
    late = Collector(clients, network["B"].port)
    late.until(knows(late, EVERYBODY), "records of all routers")
    late.until(
        lambda: (
            {identity for identity, record in collector.records.items() if Attr.START_TIME in record}
            <= late.records.keys()
        ),
        "the records that the first collector has",
    )
    for identity in collector.records.keys() & late.records.keys():
        assert late.records[identity].keys() >= collector.records[identity].keys()
    assert late.total(Attr.ACCEPTED, "E", direction="in", van_address="orders") == 20


def test_a_rotation_and_a_lost_neighbour_are_on_record(
    clients: Clients, routers: Routers, tmp_path: Path
) -> None:
    network = RotatingNetwork(routers, clients, tmp_path)
    network.line("A", "B")
    network.secure("A", "B")
    network.start()
    collector = Collector(clients, network["B"].port)
    collector.until(knows(collector, {"A", "B"}), "records of both routers")
    (link,) = collector.of(RecordType.LINK, "A")
    assert link[Attr.ACTIVE_TLS_ORDINAL] == 1
    network.rotate("A", 2)
    about = {"name": "routers", "ordinal_before": 1, "active_tls_ordinal": 2}
    collector.until(
        lambda: collector.of(RecordType.UPGRADE_EVENT, "A", event="ordinal-raised", **about), "the rotation"
    )
    for router, name in (("A", "to-B"), ("B", "routers")):
        about["name"] = name
        collector.until(
            lambda of=router: collector.of(
                RecordType.UPGRADE_EVENT, of, event="connection-upgraded", **about
            ),
            f"the upgrade at {router}",
        )
    collector.until(lambda: link[Attr.ACTIVE_TLS_ORDINAL] == 2, "the link's ordinal")
    assert not collector.of(RecordType.TOPOLOGY_EVENT, "B", event="neighbour-lost")
    network["A"].kill()
    collector.until(
        lambda: collector.of(RecordType.TOPOLOGY_EVENT, "B", event="neighbour-lost", subject="A"),
        "the loss of A",
    )


def test_flow_records_can_be_turned_off(clients: Clients, routers: Routers) -> None:
    for router_id, on in (("A", False), ("B", True)):
        router = routers.add(router_id)
        router.sections[0][1]["flowRecords"] = on
    routers.start_all()
    silent, speaking = (Collector(clients, routers.all[router_id].port) for router_id in ("A", "B"))
    speaking.until(knows(speaking, {"B"}), "records of the router that has some")
    silent.collect()
    assert silent.messages == []


def test_what_a_collector_says_that_is_no_flush_is_not_heard(clients: Clients, routers: Routers) -> None:
    router = routers.start("A")
    collector = Collector(clients, router.port)
    collector.until(knows(collector, {"A"}), "records")
    (source,) = collector.sources
    sender = collector.commands[source].await_credit(4)
    for nonsense in (b"", b"\x00Sp", bytes(Message(subject="FLASH").encode()), b"\x00" * 100_000):
        sender.send(nonsense)
    eventually(lambda: clients.step() or sender.credit, "credit again")
    collector.messages.clear()
    collector.flush(source)
    collector.until(
        lambda: any(message.subject == "RECORD" for message in collector.messages), "records again"
    )


def test_the_addresses_of_flow_records_are_none_of_an_edges_clients(
    clients: Clients, routers: Routers
) -> None:
    network = a_network(routers)
    collector = Collector(clients, network["A"].port)
    collector.until(knows(collector, EVERYBODY), "records of all routers")
    clients.connect(network["E"].port).receiver("orders")
    network["E"].await_status(
        lambda status: status["edge"]["proxiedAddresses"] == 1, "only that of the client"
    )


def test_what_waits_for_a_receiver_is_told(clients: Clients, routers: Routers) -> None:
    network = a_network(routers)
    collector = Collector(clients, network["A"].port)
    collector.until(knows(collector, EVERYBODY), "records of all routers")
    idle = clients.connect(network["B"].port, container="idle").sender("nobody", wait=False)
    reader = clients.connect(network["A"].port, container="reader").receiver("orders", credit=1)
    sender = clients.connect(network["E"].port, container="writer").sender("orders").await_credit()
    for number in range(5):
        sender.send(Message(body=number))

    def told(router: str, direction: str, address: str) -> list[dict[int, object]]:
        return collector.of(RecordType.DELIVERY_SUMMARY, router, direction=direction, van_address=address)

    collector.until(
        lambda: any(
            each[Attr.UNSETTLED] == 1 and each[Attr.NO_CREDIT] >= 500_000 and each[Attr.DELIVERIES] == 0
            for each in told("A", "out", "orders")
        ),
        "one is with the receiver, which lets the others wait",
    )
    collector.until(
        lambda: any(
            each[Attr.UNSETTLED] == 5 and each[Attr.OLDEST_UNSETTLED] > 2_000_000
            for each in told("E", "in", "orders")
        ),
        "five without an outcome where they came in",
    )
    collector.until(
        lambda: any(
            each[Attr.UNSETTLED] == 5 and Attr.VAN_ADDRESS not in each
            for each in collector.of(RecordType.DELIVERY_SUMMARY, "A", direction="in")
        ),
        "between routers as well",
    )
    collector.until(
        lambda: any(each[Attr.NO_CREDIT] >= 500_000 for each in told("B", "in", "nobody")),
        "a sender that nobody receives from",
    )
    assert idle.credit == 0
    clients.until(lambda: len(reader.received) == 1, "the first one")


@pytest.mark.parametrize("stopped", ["E", "B"])
def test_a_router_that_ends_tells_all_that_was(stopped: str, clients: Clients, routers: Routers) -> None:
    network = a_network(routers)
    collector = Collector(clients, network["A"].port)
    collector.until(knows(collector, EVERYBODY), "records of all routers")
    for router in routers.all.values():
        router.sections[0][1]["flowIntervalSeconds"] = 600
    receiver = clients.connect(network["A"].port, container="reader").receiver(
        "orders", credit=100, accept=True
    )
    sender = clients.connect(network[stopped].port, container="writer").sender("orders").await_credit()
    pour(clients, sender, receiver, 50)
    network[stopped].stop()
    about = {"direction": "in", "van_address": "orders"}
    collector.until(
        lambda: collector.total(Attr.ACCEPTED, stopped, **about) == 50, "what was not told of before"
    )
    collector.until(
        lambda: all(
            Attr.END_TIME in record
            for kind in (RecordType.ROUTER, RecordType.CONNECTION, RecordType.AMQP_LINK)
            for record in collector.of(kind, stopped)
        ),
        "the end of all that it had",
    )
