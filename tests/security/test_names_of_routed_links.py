"""Names of routed links: of other users, and of very many clients that use the same one.

A container knows a durable subscription by the name of its link. The client with this name receives the messages.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.integration.support.by_hand import ByHand, attach_frame, begin_frame, open_frame
from tests.integration.support.client import Clients
from tests.integration.support.container import Container
from tests.integration.support.link_routes import await_containers
from tests.integration.support.passwords import PASSWORD, use_database
from tests.integration.support.policies import ALICE, BOB
from tests.integration.support.ports import free_port
from tests.integration.support.raw import AMQP_HEADER
from tests.integration.support.routers import Routers, listener
from tests.security.support.canary import Canary, main_thread_cpu
from tests.security.support.frames import detach
from tests.security.support.small_container import SmallContainer

FEW, CONNECTIONS, TIMES = 8, 800, 50
LONG_NAME = "x" * 14_000
MOST_TIMES_THE_CPU_OF_FEW = 3
"""Of a link that comes and goes. Where all names in use are tried, it costs more than four times as much with all of
the clients as with few."""


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


def test_very_many_clients_with_one_long_name(routers: Routers) -> None:
    port = free_port()
    route = ("linkRoute", {"prefix": "q", "direction": "in", "containerId": "broker"})
    router = routers.start(
        "A", listener(port, "route-container", name="brokers"), route, idleTimeoutSeconds=0
    )
    attach = attach_frame(LONG_NAME, 0, receiver=False, target="q")
    opened = open_frame("same", "localhost")
    with SmallContainer(port, handle_max=255, channel_max=1000) as container, ExitStack() as connections:
        await_containers(router, 1, 0)
        one = connections.enter_context(ByHand(router.port, opened=opened))
        clients: list[socket.socket] = []

        def come_and_go() -> float:
            """CPU seconds for a link of a further client."""
            there = len(container.links)
            before = main_thread_cpu(router.pid)
            for _ in range(TIMES):
                one.send(attach)
                container.wait(lambda: len(container.links) > there)
                one.send(detach(0))
                container.wait(lambda: len(container.links) == there)
            return (main_thread_cpu(router.pid) - before) / TIMES

        def join(count: int) -> None:
            """Connect clients until there are so many."""
            while len(clients) < count:
                client = connections.enter_context(socket.create_connection(("localhost", router.port)))
                client.sendall(AMQP_HEADER + opened + begin_frame() + attach)
                clients.append(client)
            container.wait(lambda: len(container.links) == count)

        with Canary(router) as canary:
            join(FEW)
            with_few = come_and_go()
            join(CONNECTIONS)
            with_all = come_and_go()
        names = set(container.links.values())
    canary.report.check()
    assert names == {
        f"{LONG_NAME}@same",
        *(f"{LONG_NAME}@same.{number}" for number in range(2, CONNECTIONS + 1)),
    }
    assert with_all < MOST_TIMES_THE_CPU_OF_FEW * with_few, (with_few, with_all)
