"""A client attaches to a container with the container id and the link name of another user.

A container knows a durable subscription by the name of its link. The client with this name receives the messages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.support.client import Clients
from tests.integration.support.container import Container
from tests.integration.support.link_routes import await_containers
from tests.integration.support.passwords import PASSWORD, use_database
from tests.integration.support.policies import ALICE, BOB
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, listener
from tests.security.support.canary import Canary


def test_the_name_of_a_link_of_another_user(routers: Routers, passwords: Path, clients: Clients) -> None:
    port = free_port()
    route = ("linkRoute", {"prefix": "q", "direction": "out", "containerId": "broker"})
    router = routers.add("A", listener(port, "route-container", name="brokers"), route)
    use_database(router, passwords)
    router.start()
    container = Container(clients, port, "broker")
    await_containers(router, 1, 0)

    def name_of(link: str, container_id: str, user: str | None = None) -> Any:
        """The name that the container gets for the link of a new connection, which ends again."""
        login = {} if user is None else {"user": user, "password": PASSWORD, "mechanisms": "PLAIN"}
        client = clients.connect(router.port, container=container_id, **login)
        client.receiver("q.orders", name=link)
        (name,) = container.senders
        client.close()
        clients.until(lambda: not container.senders, "the link is gone")
        return name

    with Canary(router, rate=50) as canary:
        mine = name_of("mine", "shop", ALICE)
        assert name_of("mine", "shop", ALICE) == mine
        forged = [
            name_of("mine", "shop", BOB),
            name_of("mine", "shop"),
            name_of("mine", mine.removeprefix("mine@")),
            name_of(mine.rpartition("@")[0], mine.rpartition("@")[2]),
            name_of("mine", mine.removeprefix("mine@"), BOB),
        ]
    assert mine not in forged
    assert forged[1] == "mine@shop"
    canary.report.check(at_least=1)
