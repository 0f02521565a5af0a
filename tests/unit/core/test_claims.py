"""No client fills the room that other routers have for the addresses of this one."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.claims import Claims
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Direction, Terminus

ROOM = 60
CHARACTERS = 6_000


@pytest.fixture
def router() -> RouterInMemory:
    router = RouterInMemory()
    router.core.claims = Claims(ROOM, CHARACTERS)
    return router


def client(router: RouterInMemory, name: str) -> Connection:
    connection = router.connection()
    connection.client = name
    return connection


def accepted(router: RouterInMemory, link: Link) -> bool:
    if link in router.port.refused:
        assert router.port.refused[link].name == "amqp:resource-limit-exceeded"
        return False
    return link in router.port.accepted


def take(router: RouterInMemory, connection: Connection, prefix: str, most: int = 1000) -> int:
    """Receivers of so many addresses; how many are accepted."""
    links = [router.receiver(f"{prefix}{number}", connection) for number in range(most)]
    return sum(accepted(router, link) for link in links)


def test_a_client_has_as_many_addresses_as_are_left_for_others(router: RouterInMemory) -> None:
    greedy = client(router, "greedy")
    assert take(router, greedy, "a") == ROOM // 2
    assert take(router, client(router, "greedy"), "b") == 0, "by another connection"
    assert take(router, client(router, "other"), "c", 10) == 10
    assert take(router, client(router, "third"), "d") == (ROOM // 2 - 10) // 2
    assert len(router.core.addresses) == 30 + 10 + 10, "nothing is left of those that were refused"


def test_long_addresses_count_for_their_length(router: RouterInMemory) -> None:
    assert take(router, client(router, "greedy"), "x" * 999, 10) == 2
    assert take(router, client(router, "other"), "b", 10) == 10


def test_an_address_that_somebody_consumes_from_is_never_refused(router: RouterInMemory) -> None:
    first, second = client(router, "first"), client(router, "second")
    take(router, first, "a")
    assert take(router, second, "a", ROOM // 2) == ROOM // 2
    assert take(router, second, "b") == ROOM // 4, "those of others count for them"


def test_senders_need_no_room(router: RouterInMemory) -> None:
    greedy = client(router, "greedy")
    take(router, greedy, "a")
    assert router.sender("another", greedy) in router.port.accepted


def test_routers_are_not_limited(router: RouterInMemory) -> None:
    connection = router.connection(Role.EDGE)
    links = [
        router.attach(connection, Direction.OUT, Terminus(address=f"a{number}"), Terminus())
        for number in range(2 * ROOM)
    ]
    assert all(accepted(router, link) for link in links)


def test_addresses_count_for_those_who_stay(router: RouterInMemory) -> None:
    first, second = client(router, "first"), client(router, "second")
    take(router, first, "a")
    take(router, second, "a", ROOM // 2)
    router.core.connection_closed(first)
    assert take(router, second, "b") == 0
    assert take(router, client(router, "first"), "c", 10) == 10
    router.core.connection_closed(second)
    assert take(router, client(router, "third"), "d") == (ROOM - 10) // 2


def test_nothing_counts_when_all_have_left(router: RouterInMemory) -> None:
    random = Random(1)
    names = [f"client{number}" for number in range(5)]
    connections: list[Connection] = []
    links: list[Link] = []
    for _ in range(2_000):
        match random.randrange(4):
            case 0 if len(connections) < 10:
                connections.append(client(router, random.choice(names)))
            case 1 if links:
                link = links.pop(random.randrange(len(links)))
                router.core.link_closed(link)
            case 2 if connections and random.random() < 0.1:
                connection = connections.pop(random.randrange(len(connections)))
                router.core.connection_closed(connection)
                links = [link for link in links if link.connection is not connection]
            case _ if connections:
                links.append(router.receiver(f"a{random.randrange(100)}", random.choice(connections)))
    for connection in connections:
        router.core.connection_closed(connection)
    assert not router.core.addresses
    assert router.core.claims._all == (0, 0)
    assert not router.core.claims._of
