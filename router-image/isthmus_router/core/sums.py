"""What the links and routes of an address have carried, added up in steps: clients attach 100,000 links to one address.

Links and routes count their own deliveries, so that nothing else has to be counted for each delivery.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from isthmus_router.core.roles import Role

if TYPE_CHECKING:
    from isthmus_router.core.address import Address
    from isthmus_router.core.model import Link

LINKS_PER_STEP = 1024
"""About 0.1 milliseconds."""
_CONTAINER = Role.ROUTE_CONTAINER


@dataclass(slots=True)
class AddressSums:
    """Consumers and deliveries of an address, those of routes and links that are gone included."""

    subscribers: int
    """Links of clients, containers, edges and other routers that consume here; not the proxies of an edge router."""
    ingress: int
    """Deliveries to the address from clients, containers and edges."""
    transit: int
    """Deliveries to the address that were sent to other interior routers."""
    handled: int
    """Deliveries to the address that the router itself consumed."""
    egress: int
    """Deliveries sent to consumers attached to this router: clients, containers and edges."""
    container_ingress: int
    """Deliveries from route containers."""
    container_egress: int
    """Deliveries to route containers."""


def sums_of(address: Address) -> Generator[None, None, AddressSums]:
    """Return the sums of `address`, in steps of at most `LINKS_PER_STEP` links.

    The links are those that are bound here when the first step begins. A link that is closed before its step comes
    retains its number of deliveries, so it counts, once. Routes lose their numbers when they end, and are all counted
    in the first step; an address has at most `planner.MOST_ROUTES`.
    """
    sums = AddressSums(
        0,
        address.ingress_closed,
        address.transit_closed,
        address.handled_closed,
        address.egress_closed,
        address.container_ingress_closed,
        address.container_egress_closed,
    )
    consumers, producers = list(address.consumers), list(address.inlinks)
    for route in chain(address.routes, address.lasting_routes):
        if route.deliveries:
            sums.ingress += route.ingress
            sums.transit += route.transit
            sums.handled += route.handled
    yield from _count_consumers(sums, consumers)
    yield from _count_producers(sums, producers)
    return sums


def _count_consumers(sums: AddressSums, links: list[Link]) -> Iterator[None]:
    for at in range(0, len(links), LINKS_PER_STEP):
        if at:
            yield
        for link in links[at : at + LINKS_PER_STEP]:
            sums.subscribers += not link.proxy
            if link.deliveries:
                sums.egress += link.deliveries
                if link.connection.role is _CONTAINER:
                    sums.container_egress += link.deliveries


def _count_producers(sums: AddressSums, links: list[Link]) -> Iterator[None]:
    for at in range(0, len(links), LINKS_PER_STEP):
        if at:
            yield
        for link in links[at : at + LINKS_PER_STEP]:
            if link.deliveries and link.connection.role is _CONTAINER:
                sums.container_ingress += link.deliveries
