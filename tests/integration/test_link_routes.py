"""Link routes: links of clients go, end to end, to a container somewhere in the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from proton import Delivery, Endpoint, Message
from tests.integration.support.client import Clients
from tests.integration.support.container import Container
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, Section, listener
from tests.integration.support.topology import Network

CONTAINER = "shelf"
WAYS = [("A", "A"), ("C", "A"), ("A", "C")]


def link_route(prefix: str = "b2", direction: str = "both", **attributes: object) -> Section:
    """A `linkRoute` section for the container."""
    attributes = attributes or {"containerId": CONTAINER}
    return ("linkRoute", {"prefix": prefix, "direction": direction, **attributes})


class Shore(Network):
    """A - B - C; containers can attach to A and C."""

    def __init__(self, routers: Routers) -> None:
        super().__init__(routers, common=(link_route(),))
        self.line("A", "B", "C")
        self.ports = {router_id: free_port() for router_id in "AC"}
        for router_id, port in self.ports.items():
            self[router_id].sections.append(listener(port, "route-container", name="containers"))
        self.start()

    def container(self, clients: Clients, at: str = "C", **options: object) -> Container:
        """A container attaches, and the whole network knows."""
        self._await(lambda row: not row["destinations"] + row["remote"], "that of the test before is gone")
        container = Container(clients, self.ports[at], CONTAINER, **options)  # type: ignore[arg-type]
        self._await(lambda row: row["destinations"] + row["remote"], "the link routes are known")
        return container

    def _await(self, condition: Callable[[dict[str, Any]], Any], what: str) -> None:
        for router_id in "ABC":
            self[router_id].await_status(lambda status: all(map(condition, status["linkRoutes"])), what)


@pytest.fixture(scope="module")
def shore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shore]:
    """The network of most tests."""
    routers = Routers(tmp_path_factory.mktemp("link-routes"))
    yield Shore(routers)
    routers.stop()


def test_a_sender_is_attached_to_the_container(clients: Clients, shore: Shore) -> None:
    container = shore.container(clients)
    client = clients.connect(shore["A"].port, container="buyer")
    sender = client.sender("b2.orders", name="mine")
    got = container.gets("b2.orders")
    assert got.link.name == "mine@buyer"
    sender.await_credit(100)
    assert sender.credit == 100
    assert sender.deliver(Message(body="one")) == "accepted"
    assert got.bodies() == ["one"]
    client.detach(sender.link)
    clients.until(lambda: not container.receivers, "the container sees the link closed")


def test_a_receiver_is_attached_to_the_container(clients: Clients, shore: Shore) -> None:
    container = shore.container(clients)
    client = clients.connect(shore["A"].port, container="buyer")
    receiver = client.receiver("b2.orders", credit=7)
    gives = container.gives("b2.orders")
    gives.await_credit(7)
    clients.round_trip()
    assert gives.credit == 7
    sent = gives.send("one")
    receiver.expect(1)
    assert receiver.received[0].delivery.tag == "1"
    receiver.received[0].settle(Delivery.RELEASED)
    clients.until(lambda: sent.settled, "the container learns")
    assert sent.outcome == "released"
    assert gives.credit == 6


def test_there_is_no_route_without_a_container(clients: Clients, shore: Shore) -> None:
    client = clients.connect(shore["A"].port)
    for link in (client.sender("b2.x", wait=False).link, client.receiver("b2/x", wait=False).link):
        condition = client.refusal(link)
        assert condition.name == "qd:no-route-to-dest"
        assert "'b2" in condition.description
    sender = client.sender("b2x")
    assert sender.link.state & Endpoint.REMOTE_ACTIVE
