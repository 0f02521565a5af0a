"""Link routes that a container makes for its own connection, by management."""

from __future__ import annotations

from proton import Endpoint
from tests.integration.support.client import Client, Clients
from tests.integration.support.container import Container
from tests.integration.support.link_routes import Shore
from tests.integration.support.management import Manager
from tests.integration.support.routers import eventually

MADE = "router.connection.linkRoute"


def test_a_container_makes_its_own_link_route(clients: Clients, shore: Shore) -> None:
    container = Container(clients, shore["C"].port, "stall")
    manager = Manager(container)
    for direction in ("in", "out"):
        body = {"pattern": "c3.#", "direction": direction}
        assert manager.request("CREATE", body, type=MADE, name=direction).properties["statusCode"] == 201
    client = clients.connect(shore["A"].port, container="buyer")
    eventually(lambda: _attaches(clients, client, "c3.x", container), "A knows it")
    assert manager.request("DELETE", type=MADE, name="in").properties["statusCode"] == 204
    assert manager.request("DELETE", type=MADE, name="out").properties["statusCode"] == 204
    eventually(lambda: not _attaches(clients, client, "c3.x", container), "A knows that it is gone")


def _attaches(clients: Clients, client: Client, address: str, container: Container) -> bool:
    before = container.attempts
    link = client.receiver(address).link
    clients.round_trip()
    if link.state & Endpoint.REMOTE_ACTIVE:
        client.detach(link)
    return container.attempts > before
