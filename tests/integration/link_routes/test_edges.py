"""Link routes and edges: containers behind an edge, and clients at one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.container import Container
from tests.integration.support.management import Manager
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, Section, eventually, listener
from tests.integration.support.topology import Network

LINK_ROUTES: list[Section] = [
    ("linkRoute", {"prefix": "b2", "direction": "both", "containerId": "shelf"}),
]


class Shores(Network):
    """E1 - A - B - E2; containers can attach to A and E2, which alone know of the link routes from the start."""

    def __init__(self, routers: Routers) -> None:
        super().__init__(routers)
        self.line("A", "B")
        self.edge("E1", "A", "B")
        self.edge("E2", "B")
        self.ports = {router_id: free_port() for router_id in ("A", "E2")}
        for router_id, port in self.ports.items():
            self[router_id].sections += [
                listener(port, "route-container", name="containers"),
                *LINK_ROUTES,
            ]
        self.start()


@pytest.fixture(scope="module")
def shores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shores]:
    """The network of most tests."""
    routers = Routers(tmp_path_factory.mktemp("shores"))
    yield Shores(routers)
    routers.stop()


def refused(clients: Clients, router: Router, address: str = "b2.x") -> str | None:
    """The condition with which a receiver's attach is refused; None if it is attached."""
    client = clients.connect(router.port)
    link = client.receiver(address).link
    try:
        if clients.round_trip() or link.remote_condition is None:
            return None
        return str(link.remote_condition.name)
    finally:
        client.close()


def await_refusals(clients: Clients, network: Network, expected: str | None, *router_ids: str) -> None:
    """Wait until attaches are refused at these routers, or no more."""
    for router_id in router_ids:
        eventually(
            lambda r=router_id: refused(clients, network[r]) == expected,  # type: ignore[misc]
            f"{router_id}: {expected}",
        )


@pytest.mark.parametrize("place", ["E2", "A"])
@pytest.mark.parametrize("at", ["E1", "E2", "A", "B"])
def test_links_find_the_container_from_everywhere(
    clients: Clients, shores: Shores, place: str, at: str
) -> None:
    await_refusals(clients, shores, "qd:no-route-to-dest", "A", "E2")
    container = Container(clients, shores.ports[place], "shelf")
    await_refusals(clients, shores, None, "E1", "E2", "A", "B")
    eventually(lambda: clients.round_trip() or not container.senders, "the links of the trials are gone")
    client = clients.connect(shores[at].port, container="buyer")
    sender = client.sender("b2.orders", name="mine").await_credit(100)
    assert sender.deliver("one") == "accepted"
    got = container.gets("b2.orders")
    assert got.link.name == "mine@buyer"
    assert got.bodies() == ["one"]
    receiver = client.receiver("b2.orders", credit=3)
    gives = container.gives("b2.orders").await_credit(3)
    sent = gives.send("two")
    receiver.expect(1)
    receiver.received[0].settle()
    clients.until(lambda: sent.settled, "the container learns")
    assert sent.outcome == "accepted"
    client.drop()
    clients.until(lambda: not container.receivers and not container.senders, "no half of a link is left")


def test_an_edge_with_a_container_counts_as_a_router_at_its_interior(
    clients: Clients, shores: Shores
) -> None:
    Container(clients, shores.ports["E2"], "shelf")
    await_refusals(clients, shores, None, "E2", "B", "A")
    for router_id, here, elsewhere in (("E2", 1, 0), ("B", 0, 1), ("A", 0, 1)):
        manager = Manager(clients.connect(shores[router_id].port).await_open())
        # The news that the container of an earlier test is gone may come late.
        eventually(
            lambda manager=manager, counts=(here, elsewhere): counts_of(manager) == {counts},  # type: ignore[misc]
            f"{router_id}: {here} here, {elsewhere} elsewhere",
        )


def counts_of(manager: Manager) -> set[tuple[int, int]]:
    """Containers and remote routers of the link routes of `b2`."""
    rows = manager.query("org.apache.qpid.dispatch.router.address")
    return {(row["containerCount"], row["remoteCount"]) for row in rows if row["name"] in ("Cb2", "Db2")}
