"""What an address has carried, added up in steps while links and routes come and go."""

from __future__ import annotations

import pytest
from tests.unit.core.router_in_memory import RouterInMemory
from tests.unit.steps import finished

from isthmus_router.core.address import Address
from isthmus_router.core.model import Link
from isthmus_router.core.roles import Role
from isthmus_router.core.sums import LINKS_PER_STEP, sums_of

STEPS = 4


def many(router: RouterInMemory, role: Role = Role.NORMAL) -> tuple[Address, list[Link]]:
    """Consumers of one connection, with a delivery each."""
    connection = router.connection(role)
    links = [router.receiver("a", connection) for _ in range(STEPS * LINKS_PER_STEP)]
    for link in links:
        link.deliveries = 1
    return router.core.addresses["Ma"], links


def test_links_of_an_address_are_counted_in_steps() -> None:
    router = RouterInMemory()
    address, _ = many(router)
    assert sum(1 for _ in sums_of(address)) >= STEPS - 1
    assert (finished(sums_of(address)).subscribers, finished(sums_of(address)).egress) == (
        STEPS * LINKS_PER_STEP,
        STEPS * LINKS_PER_STEP,
    )


def test_few_links_are_counted_in_one_step() -> None:
    router = RouterInMemory()
    link = router.receiver("a")
    link.deliveries = 7
    with pytest.raises(StopIteration) as end:
        next(sums_of(router.core.addresses["Ma"]))
    assert (end.value.value.subscribers, end.value.value.egress) == (1, 7)


@pytest.mark.parametrize("first", [True, False])
def test_links_that_close_meanwhile_count_once(first: bool) -> None:
    """Whether their step has been taken or not."""
    router = RouterInMemory()
    address, links = many(router)
    steps = sums_of(address)
    next(steps)
    for link in links[:10] if first else links[-10:]:
        router.core.link_closed(link)
    router.receiver("a").deliveries = 3
    assert finished(steps).egress == len(links)
    again = finished(sums_of(address))
    assert (again.egress, again.subscribers) == (len(links) + 3, len(links) - 9)


def test_routes_that_end_meanwhile_count_once() -> None:
    router = RouterInMemory()
    address, _ = many(router)
    sender = router.sender("a")
    route = router.core.route_for(sender, "a")
    route.deliveries = 5
    steps = sums_of(address)
    next(steps)
    address.invalidate()
    assert not route.valid
    assert finished(steps).ingress == finished(sums_of(address)).ingress == 5


def test_containers_and_proxies_are_told_apart() -> None:
    router = RouterInMemory()
    address, links = many(router, Role.ROUTE_CONTAINER)
    proxy = router.receiver("a")
    proxy.proxy, proxy.deliveries = True, 2
    container = router.sender("a", links[0].connection)
    client = router.sender("a")
    container.deliveries, client.deliveries = 11, 13
    sums = finished(sums_of(address))
    assert (sums.subscribers, sums.egress) == (len(links), len(links) + 2)
    assert (sums.container_egress, sums.container_ingress) == (len(links), 11)
    router.core.link_closed(container)
    assert finished(sums_of(address)).container_ingress == 11
