"""Flow records: a collector on one router hears of everything that flows through a whole network."""

from __future__ import annotations

from collections.abc import Callable

from proton import Message
from tests.integration.support.client import Clients
from tests.integration.support.collector import Collector
from tests.integration.support.routers import Routers
from tests.integration.support.topology import Network

from isthmus_router.flows.records import Attr, RecordType
from isthmus_router.flows.sketch import RELATIVE_ERROR


def a_network(routers: Routers) -> Network:
    """A - B, with the edge E at B; summaries every second."""
    network = Network(routers)
    network.line("A", "B")
    network.edge("E", "B")
    for router in routers.all.values():
        router.sections[0][1]["flowIntervalSeconds"] = 1
    return network.start()


def knows_all(collector: Collector) -> Callable[[], bool]:
    """A condition: the collector has a record of every router."""
    return lambda: {record.get(Attr.NAME) for record in collector.of(RecordType.ROUTER)} == {
        "0/A",
        "0/B",
        "0/E",
    }


def test_a_collector_hears_of_the_whole_network(clients: Clients, routers: Routers) -> None:
    network = a_network(routers)
    collector = Collector(clients, network["A"].port)
    collector.until(knows_all(collector), "records of all routers")

    receiver = clients.connect(network["A"].port, container="reader").receiver("orders", credit=100, accept=True)
    sender = clients.connect(network["E"].port, container="writer").sender("orders").await_credit()
    sizes = []
    for number in range(300):
        if sender.credit == 0:
            sender.await_credit()
        data = bytes(Message(body="x" * (number * 10)).encode())
        sender.send(data)
        sizes.append(len(data))
    clients.until(lambda: len(receiver.received) == 300, "all messages")

    def complete() -> bool:
        return all(
            collector.total(Attr.DELIVERIES, router, direction=direction, van_address="orders") == 300
            for router, direction in (("E", "in"), ("A", "out"))
        )

    collector.until(complete, "summaries of all deliveries")
    for router, direction in (("E", "in"), ("A", "out")):
        about = {"direction": direction, "van_address": "orders"}
        assert collector.total(Attr.OCTETS, router, **about) == sum(sizes)
        assert collector.total(Attr.ACCEPTED, router, **about) == 300
        told = collector.sketch(Attr.SIZES, router, **about)
        assert told.total == 300
        for share in (0.1, 0.5, 0.9, 1.0):
            exact = sorted(sizes)[round(share * 300) - 1]
            found = told.quantile(share)
            assert found is not None
            assert abs(found - exact) <= RELATIVE_ERROR * exact
        assert collector.sketch(Attr.LATENCIES, router, **about).total == 300
    # Between the routers: what the connection has carried, records and other messages of theirs included.
    for router, direction in (("B", "in"), ("B", "out"), ("A", "in"), ("E", "out")):
        assert collector.total(Attr.DELIVERIES, router, direction=direction, van_address=None) >= 300
