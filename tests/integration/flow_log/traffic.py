"""Networks with traffic whose senders and receivers count for themselves."""

from __future__ import annotations

from proton import Message
from tests.integration.support.client import Clients
from tests.integration.support.flow_collector import FlowCollector
from tests.integration.support.links import Receiver, Sender
from tests.integration.support.routers import Router, Routers
from tests.integration.support.topology import Network

PATIENCE = 150.0


class Flow:
    """Messages to an address, with what they add up to."""

    def __init__(
        self, clients: Clients, sender_port: int, receiver_port: int, address: str = "orders"
    ) -> None:
        self.clients = clients
        self.address = address
        self.messages = 0
        self.octets = 0
        self.receiver: Receiver = clients.connect(receiver_port, container=f"reader of {address}").receiver(
            address, credit=1000, accept=True
        )
        self.sender: Sender = clients.connect(sender_port, container=f"writer of {address}").sender(address)

    def send(self, count: int) -> None:
        """Send, and wait until all are accepted."""
        for number in range(count):
            data = bytes(Message(body="x" * (number * 7 % 1000)).encode())
            if self.sender.credit == 0:
                self.sender.await_credit()
            self.sender.send(data)
            self.messages += 1
            self.octets += len(data)
        self.clients.until(lambda: all(item.settled for item in self.sender.sent.values()), "all outcomes")
        self.sender.sent.clear()
        self.clients.until(lambda: len(self.receiver.received) == self.messages, "all messages")


def a_network(routers: Routers) -> Network:
    """A - B, with the edge E at B; summaries every second."""
    network = Network(routers)
    network.line("A", "B")
    network.edge("E", "B")
    for router in routers.all.values():
        router.sections[0][1]["flowIntervalSeconds"] = 1
    return network.start()


def a_router(routers: Routers) -> Router:
    """One router; summaries every second."""
    router = routers.add("A")
    router.sections[0][1]["flowIntervalSeconds"] = 1
    return router.start()


def counted(collector: FlowCollector, flow: Flow, **ends: str) -> bool:
    """Whether the log has all of a flow; `ends` are routers by direction."""
    return all(
        collector.total("accepted", router=router, direction=direction, address=flow.address) == flow.messages
        for direction, router in ends.items()
    )


def await_counts(collector: FlowCollector, flow: Flow, clients: Clients, **ends: str) -> None:
    """Wait until the log has all of a flow."""
    clients.until(lambda: counted(collector, flow, **ends), "all deliveries in the log", PATIENCE)
