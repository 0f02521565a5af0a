"""The routes that links remember by what their messages say, within bounds on the memory that all of them use."""

from __future__ import annotations

from isthmus_router.core.model import Link
from isthmus_router.core.routes import Route

MOST_ROUTES_OF_LINK = 10_000
MOST_BYTES_OF_CLIENTS = 32 * 2**20
MOST_BYTES_BETWEEN_ROUTERS = 128 * 2**20
ROUTE_BYTES = 512
"""What a route costs besides the bytes of its key and of its prefix."""


class RememberedRoutes:
    """The routes that several links remember.

    Beyond the bound, the link that was the first to remember any forgets all of its own.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes_of: dict[Link, int] = {}
        self._bytes = 0

    def remember(self, link: Link, key: bytes, route: Route) -> None:
        """Have a link find a route by these first bytes of its messages."""
        routes = link.routes
        before = routes.get(key)
        if before is not None:
            self._count(link, -_cost(key, before))
            if before is not route:
                retire(before)
        elif len(routes) >= MOST_ROUTES_OF_LINK:
            self.forget(link)
        cost = _cost(key, route)
        while self._bytes_of and self._bytes + cost > self._most_bytes:
            self.forget(next(iter(self._bytes_of)))
        self._count(link, cost)
        routes[key] = route

    def forget(self, link: Link) -> None:
        """The link no longer remembers any route."""
        for route in link.routes.values():
            retire(route)
        link.routes.clear()
        self._bytes -= self._bytes_of.pop(link, 0)

    def _count(self, link: Link, cost: int) -> None:
        self._bytes_of[link] = self._bytes_of.get(link, 0) + cost
        self._bytes += cost


def retire(route: Route | None) -> None:
    """A link no longer holds this route."""
    if route is not None and route.owner is not None:
        route.owner.retire(route)


def _cost(key: bytes, route: Route) -> int:
    return len(key) + len(route.prefix) + ROUTE_BYTES
