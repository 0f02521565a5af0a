"""Rotated certificates: routed links stay on the connections that they have, new ones go on the new connections."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.support.client import Clients, Receiver, Sender
from tests.integration.support.container import Container
from tests.integration.support.link_routes import CONTAINER, LOST, link_route
from tests.integration.support.management import Manager
from tests.integration.support.ports import free_port
from tests.integration.support.rotation import RotatingNetwork
from tests.integration.support.routers import Routers, listener


class Rotating(RotatingNetwork):
    """A - B, and an edge E of A; a container at one router, a client at another."""

    def __init__(self, routers: Routers, clients: Clients, folder: Path, container: str, client: str) -> None:
        super().__init__(routers, clients, folder)
        self.line("A", "B")
        self.edge("E", "A")
        port = free_port()
        self[container].sections.append(listener(port, "route-container", name="containers"))
        for router_id in (container, client):
            self[router_id].sections.append(link_route())
        self.secure("A", "B", "E")
        self.start()
        self.container = Container(clients, port, CONTAINER)
        self.await_status(
            client, lambda status: bool(status["linkRoutes"][0]["remote"]), "the link route is known"
        )
        self.client = clients.connect(self[client].port)

    def link(self, address: str) -> tuple[Sender, Receiver]:
        """A link of the client's that sends to the container."""
        sender = self.client.sender(address).await_credit()
        return sender, self.container.gets(address)

    def await_told_anew(self) -> None:
        """Wait until the edge and its interior tell each other of link routes on one connection only."""
        manager = Manager(self.clients.connect(self["A"].port))

        def connections() -> set[str]:
            rows = manager.query("router.link", "owningAddr", "connectionId")
            return {row["connectionId"] for row in rows if row["owningAddr"] == "M_$qd.link_routes"}

        self.clients.until(lambda: len(connections()) == 1, "the old uplink has given way")
        manager.requests.client.close()


def works(link: tuple[Sender, Receiver]) -> bool:
    """Whether a message passes."""
    before = len(link[1].received)
    return link[0].deliver("one more") == "accepted" and len(link[1].received) == before + 1


@pytest.mark.parametrize(
    ("container", "client", "rotates"), [("B", "A", "A"), ("A", "E", "E"), ("E", "B", "E")]
)
def test_links_outlive_a_rotation(
    routers: Routers, clients: Clients, tmp_path: Path, container: str, client: str, rotates: str
) -> None:
    network = Rotating(routers, clients, tmp_path, container, client)
    links = [network.link("b2.1")]
    for ordinal in (2, 3):
        network.rotate(rotates, ordinal)
        network.await_rotated(rotates, ordinal)
        network.await_told_anew()
        assert all(map(works, links))
        links.append(network.link(f"b2.{ordinal}"))
        assert works(links[-1])
    network.retire(rotates, 3)
    for sender, _ in links[:2]:
        assert network.client.refusal(sender.link).name == LOST
    assert works(links[2])
    assert works(network.link("b2.4"))
