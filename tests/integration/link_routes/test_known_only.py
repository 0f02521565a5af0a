"""A link route that names no container: the router knows of it, and others have the containers."""

from __future__ import annotations

from tests.integration.support.client import Clients
from tests.integration.support.container import Container
from tests.integration.support.link_routes import CONTAINER, NO_ROUTE, await_containers, link_route
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, listener
from tests.integration.support.topology import Network


def test_links_go_to_containers_of_other_routers_and_are_refused_without(
    clients: Clients, routers: Routers
) -> None:
    network = Network(routers)
    network.line("A", "B")
    known = ("linkRoute", {"prefix": "b2", "direction": "both"})
    network["A"].sections.append(known)
    port = free_port()
    network["B"].sections += [known, link_route(), listener(port, "route-container")]
    network.start()
    client = clients.connect(network["A"].port)
    assert client.refusal(client.sender("b2.x", wait=False).link).name == NO_ROUTE

    container = Container(clients, port, CONTAINER)
    await_containers(network["A"], 0, 1)
    client.sender("b2.x").await_credit(100)
    container.gets("b2.x")
    network["B"].await_status(
        lambda status: (
            [(row["destinations"], row["links"]) for row in status["linkRoutes"]] == [(0, 0), (1, 1)]
        ),
        "the section without a container has none",
    )
