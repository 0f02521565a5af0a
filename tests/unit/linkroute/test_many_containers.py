"""Link routes that very many containers have, or one container has very many of: bounded work for each event."""

from __future__ import annotations

from collections.abc import Sized

from tests.unit.core.router_in_memory import RouterInMemory
from tests.unit.linkroute.network import section

from isthmus_router.core.model import Connection, Link
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Direction, Terminus
from isthmus_router.linkroute.made import FEW
from isthmus_router.linkroute.routing import FEW as FEW_SECTIONS
from isthmus_router.linkroute.routing import MOST_COMPARED, LinkRouting

MANY = 3 * MOST_COMPARED


class Links(set[Link]):
    """The links of a container, which count how often they are counted."""

    looks = 0

    def __len__(self) -> int:
        Links.looks += 1
        return super().__len__()


def count(links: Sized) -> int:
    return super(Links, links).__len__() if isinstance(links, Links) else len(links)


def test_a_link_is_compared_with_a_bounded_number_of_containers_and_goes_to_the_one_with_the_fewest() -> None:
    router = RouterInMemory()
    routing = LinkRouting(router.core, lambda: 0.0, lambda *_: None)
    for number in range(MANY):
        assert routing.made.make(router.connection(), f"{number}", "q.#", Direction.IN) is None
    (route,) = routing.table.all.values()
    for key in route.containers:
        route.containers[key] = Links()
    client = router.connection()
    for number in range(2 * MANY):
        link = Link(number, client, Direction.IN, f"{number}", source=Terminus(), target=Terminus("q.x"))
        Links.looks = 0
        found = routing._container(route, link, ())
        assert found is not None
        assert Links.looks <= MOST_COMPARED
        connection, declaration = found
        assert declaration is not None
        route.containers[declaration, connection].add(link)
    numbers = sorted(map(count, route.containers.values()))
    assert len(numbers) == MANY
    assert numbers[0] >= 1
    assert numbers[-1] <= 3


def test_one_link_route_ends_in_each_step_when_a_connection_with_many_ends() -> None:
    router = RouterInMemory()
    routing = LinkRouting(router.core, lambda: 0.0, lambda *_: None)
    connection, other = router.connection(), router.connection()
    assert isinstance(connection, Connection)
    assert connection.role is Role.NORMAL
    for number in range(3 * FEW):
        assert routing.made.make(connection, f"{number}", f"q{number}", Direction.IN) is None
    assert routing.made.make(other, "other", "q0", Direction.IN) is None
    router.core.connection_closed(connection)
    assert connection not in routing.made.of
    routes = routing.table.all
    assert len(routes) == 2 * FEW + 1, "the first of them end within the event, but one that another has made"
    assert [key for route in routes.values() for _, key in route.containers] == [other], (
        "none is routed there"
    )
    while True:
        before = len(routes)
        if not router.port.step():
            break
        assert len(routes) >= before - 1
    assert len(routes) == 1
    router.core.connection_closed(other)
    assert not routes


def container(router: RouterInMemory, number: int) -> Connection:
    opened = Connection(number, Role.ROUTE_CONTAINER, incoming=True, name="peer", container="shelf")
    router.core.connection_opened(opened)
    return opened


def test_a_container_of_many_sections_comes_and_goes_in_steps() -> None:
    router = RouterInMemory()
    routing = LinkRouting(router.core, lambda: 0.0, lambda *_: None)
    routing.configure(section(f"q{number}", "in", container_id="shelf") for number in range(3 * FEW_SECTIONS))
    client = router.connection()
    link = Link(1, client, Direction.IN, "1", source=Terminus(), target=Terminus("q1"))

    def offered() -> int:
        return sum(route.offered for route in routing.table.all.values())

    first = container(router, 1001)
    assert offered() == FEW_SECTIONS
    for served in range(1, 6):
        assert router.port.step()
        assert offered() == FEW_SECTIONS + served
    routing.configure(
        section(f"q{number}", "in", container_id="shelf") for number in range(1, 2 * FEW_SECTIONS)
    )
    while router.port.step():
        pass
    assert offered() == len(routing.table.all) == 2 * FEW_SECTIONS - 1
    route = routing.table.find("q1", Direction.IN)
    assert route is not None
    assert routing._container(route, link, ()) is not None
    router.core.connection_closed(first)
    assert routing._container(route, link, ()) is None, "it is gone, and what leads there goes in steps"
    before = offered()
    assert before == FEW_SECTIONS - 1
    while router.port.step():
        assert before - 1 <= offered() <= before
        before = offered()
    assert before == 0
    router.core.connection_closed(container(router, 1002))
    while router.port.step():
        pass
    assert offered() == 0


def test_no_link_is_routed_to_a_container_whose_links_are_removed_in_steps() -> None:
    router = RouterInMemory()
    routing = LinkRouting(router.core, lambda: 0.0, lambda *_: None)
    routing.configure([section("q", "in", container_id="shelf")])
    shelf = container(router, 1001)
    (route,) = routing.table.all.values()
    assert route.offered
    router.core.connection_lost(shelf)
    assert not route.offered
    routing.configure([section("q", "in", container_id="shelf"), section("r", "in", container_id="shelf")])
    assert [route.offered for route in routing.table.all.values()] == [False, False]
    router.core.connection_closed(shelf)
