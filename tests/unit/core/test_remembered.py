"""What links remember of routes is bounded in bytes, and the link that began first forgets first."""

from __future__ import annotations

import pytest
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core import remembered
from isthmus_router.core.model import Link
from isthmus_router.core.remembered import ROUTE_BYTES, RememberedRoutes
from isthmus_router.core.routes import Route

KEY_BYTES = 100
COST = KEY_BYTES + ROUTE_BYTES


class Links:
    """Senders without a target, and routes to an address, with an equally long prefix."""

    def __init__(self, count: int) -> None:
        self.router = RouterInMemory()
        self.router.receiver("q")
        self.links = [self.router.sender(None) for _ in range(count)]

    def route(self, link: Link) -> Route:
        route = self.router.core.planner.plan(self.router.core.addresses["Mq"], link)
        route.prefix = b""
        return route


def key(number: int) -> bytes:
    return str(number).encode().ljust(KEY_BYTES)


def test_the_first_link_forgets_beyond_the_bound() -> None:
    links = Links(3)
    routes = RememberedRoutes(10 * COST)
    for number in range(5):
        for link in links.links[:2]:
            routes.remember(link, key(number), links.route(link))
    routes.remember(links.links[2], key(0), links.route(links.links[2]))
    assert [len(link.routes) for link in links.links] == [0, 5, 1]


def test_a_route_in_place_of_another_costs_nothing_more() -> None:
    links = Links(1)
    (link,) = links.links
    routes = RememberedRoutes(2 * COST)
    for _ in range(10):
        for number in range(2):
            routes.remember(link, key(number), links.route(link))
    assert len(link.routes) == 2


def test_what_is_forgotten_makes_room() -> None:
    links = Links(2)
    first, second = links.links
    routes = RememberedRoutes(4 * COST)
    for _ in range(10):
        for number in range(3):
            routes.remember(first, key(number), links.route(first))
        routes.forget(first)
        assert not first.routes
    for number in range(4):
        routes.remember(second, key(number), links.route(second))
    assert len(second.routes) == 4


def test_one_link_has_a_bound_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST_ROUTES_OF_LINK", 5)
    links = Links(1)
    (link,) = links.links
    routes = RememberedRoutes(100 * COST)
    for number in range(23):
        routes.remember(link, key(number), links.route(link))
        assert link.routes[key(number)].valid
        assert len(link.routes) <= 5
