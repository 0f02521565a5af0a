"""Link routes that clients create and edges announce count as their shares of the addresses of a router."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.linkroute.network import Network, Router, section

from isthmus_router.core.claims import Claims
from isthmus_router.core.model import Connection
from isthmus_router.core.terms import Direction
from isthmus_router.linkroute.messages import encode_link_routes
from isthmus_router.linkroute.table import route_key
from isthmus_router.view import RouterView

ROOM = 60
IN = Direction.IN


@pytest.fixture
def network() -> Network:
    network = Network("A", (), edges="EF")
    network.routers["A"].core.claims = Claims(ROOM, 100 * ROOM)
    return network


def container(network: Network, client: str) -> Connection:
    """A connection of a client."""
    connection = network.peer("A", client).end.other.connection
    assert connection is not None
    connection.client = client
    return connection


def edge(network: Network, name: str) -> Connection:
    """The interior's connection to an edge, which announces link routes by it."""
    network.connect("A", name)
    network.settle()
    router = network.routers["A"]
    (connection,) = (
        one for one in router.ends if one.container == name and one.id in router.core.connections
    )
    connection.client = name
    return connection


def create(router: Router, connection: Connection, prefix: str, count: int = 1000) -> int:
    """Link routes that a client creates; how many it may."""
    return sum(
        router.routing.made.make(connection, f"{prefix}{number}", f"{prefix}{number}.*", IN) is None
        for number in range(count)
    )


def announce(router: Router, connection: Connection, keys: Iterable[str], *, reachable: bool | None) -> None:
    """A message of the edge with these link routes arrives."""
    link = router.exchange.exchanges[connection].hears
    assert link is not None
    assert link.on_delivery is not None
    link.on_delivery(link, encode_link_routes((key, reachable) for key in keys))


def patterns(prefix: str, count: int = 100) -> list[str]:
    """Keys of link routes."""
    return [route_key(f"{prefix}{number}.*", IN) for number in range(count)]


def test_client_creates_as_many_link_routes_as_are_left_for_others(network: Network) -> None:
    router = network.routers["A"]
    greedy = container(network, "greedy")
    assert create(router, greedy, "a") == ROOM // 2
    refusal = router.routing.made.make(container(network, "greedy"), "another", "another", IN)
    assert refusal is not None
    assert refusal.name == "amqp:resource-limit-exceeded"
    assert refusal.description.startswith("This client has 30 addresses and link routes of ")
    assert create(router, container(network, "other"), "b", 10) == 10
    assert len(router.routing.table.all) == ROOM // 2 + 10, "nothing is left of those that were refused"
    assert len(router.known) == ROOM // 2 + 10


def test_link_route_that_the_router_has_anyway_is_not_refused() -> None:
    network = Network("A", (section("shared"),))
    router = network.routers["A"]
    router.core.claims = Claims(ROOM, 100 * ROOM)
    greedy, other = container(network, "greedy"), container(network, "other")
    assert create(router, greedy, "a") == ROOM // 2
    assert create(router, other, "b", 1) == 1
    assert router.routing.made.make(greedy, "as other", "b0.*", IN) is None
    router.routing.made.unmake(other, "b0")
    assert router.core.claims._of["greedy"][0] == ROOM // 2 + 1, "it counts for the client that stays"
    assert "other" not in router.core.claims._of


def test_link_routes_count_until_they_end(network: Network) -> None:
    router = network.routers["A"]
    first, second = container(network, "first"), container(network, "second")
    assert create(router, first, "a") == ROOM // 2
    assert create(router, second, "b") == ROOM // 4
    router.routing.made.unmake(first, "a0")
    assert create(router, first, "c") == 0, "others have had what was free"
    network.cut(next(end for end in network.ends if end.connection is first))
    network.settle()
    assert create(router, second, "c") > 0
    network.cut(next(end for end in network.ends if end.connection is second))
    network.settle()
    assert not router.routing.table.all
    assert router.core.claims._all == (0, 0)


def test_edge_announces_as_many_link_routes_as_are_left_for_others(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    router = network.routers["A"]
    first, second = edge(network, "E"), edge(network, "F")
    announce(router, first, patterns("e"), reachable=True)
    assert len(router.known) == ROOM // 2
    assert router.exchange.ignored["no-room"] == 100 - ROOM // 2
    assert len([record for record in caplog.records if record.message == "no room for link routes"]) == 1
    announce(router, first, patterns("x"), reachable=False)
    assert len(router.known) == ROOM // 2, "those without a container are announced to no router"
    announce(router, first, patterns("x"), reachable=True)
    assert len(router.known) == ROOM // 2
    announce(router, second, patterns("f", 10), reachable=True)
    assert len(router.known) == ROOM // 2 + 10
    announce(router, first, patterns("e", 5), reachable=None)
    announce(router, first, patterns("e")[5:10], reachable=False)
    assert router.core.claims._of["E"][0] == ROOM // 2 - 10


def test_nothing_counts_when_all_have_left(network: Network) -> None:
    random = Random(1)
    router = network.routers["A"]
    containers = [container(network, f"client{number % 3}") for number in range(5)]
    edges = [edge(network, "E"), edge(network, "F")]
    for _ in range(1_000):
        number = random.randrange(50)
        if random.random() < 0.5:
            announce(
                router,
                random.choice(edges),
                patterns("q")[number : number + 5],
                reachable=random.choice([True, False, None]),
            )
            continue
        connection = random.choice(containers)
        if f"{number}" in router.routing.made.of.get(connection, {}):
            router.routing.made.unmake(connection, f"{number}")
        else:
            router.routing.made.make(connection, f"{number}", f"q{number}.*", IN)
        counted = {route.address.claimant for route in router.routing.table.all.values() if route.offered}
        assert None not in counted
    for end in list(network.ends):
        network.cut(end)
    network.settle()
    assert router.core.claims._all == (0, 0)
    assert not router.core.claims._of


def test_rows_of_link_routes_that_clients_created(network: Network) -> None:
    """A row is made for none but those that are asked for."""
    router = network.routers["A"]
    connections = [container(network, "client") for _ in range(3)]
    for number, connection in enumerate(connections):
        create(router, connection, f"{number}-", 2 + number)
    process: Any = SimpleNamespace(core=router.core, link_routing=router.routing)
    view = RouterView(process)
    names = [row.name for row in view.connection_link_routes()]
    assert names == ["0-0", "0-1", "1-0", "1-1", "1-2", "2-0", "2-1", "2-2", "2-3"]
    for offset in range(len(names) + 2):
        assert [row.name for row in view.connection_link_routes(offset)] == names[offset:]
    own = view.link_routes_of(connections[1].id)
    assert [(row.name, row.pattern, row.incoming) for row in own] == [
        (name, f"{name}.*", True) for name in ("1-0", "1-1", "1-2")
    ]
    assert view.link_routes_of(0) == ()
