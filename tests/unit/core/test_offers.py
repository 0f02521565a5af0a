"""The table of addresses knows those that a consumer inside the router has taken."""

from __future__ import annotations

from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.address import InProcessConsumer, SettlingConsumer


def consumer(name: str) -> SettlingConsumer:
    return SettlingConsumer(lambda payload, link, delivery: True, 0)


def taken(router: RouterInMemory) -> set[str]:
    """What it knows, which is what a look at all addresses finds."""
    addresses = router.core.addresses
    found = {key for key, item in addresses.items() if item.handler.__class__ is SettlingConsumer}
    assert {address.key for address in addresses.taken} == found
    return found


def test_taken_addresses_are_known_while_offers_and_links_come_and_go() -> None:
    router = RouterInMemory()
    before = router.receiver("relay/a")
    router.receiver("other")
    assert taken(router) == set()
    router.core.offer("relay/#", consumer)
    router.core.offer("standing", consumer)
    assert taken(router) == {"Mrelay/a", "Mstanding"}
    after = router.receiver("relay/b")
    assert taken(router) == {"Mrelay/a", "Mrelay/b", "Mstanding"}
    router.core.link_closed(before)
    assert taken(router) == {"Mrelay/b", "Mstanding"}
    router.core.register("relay/b", InProcessConsumer(lambda payload, link: None), mobile=True)
    assert taken(router) == {"Mstanding"}
    router.core.unregister("relay/b")
    router.core.withdraw("relay/#")
    router.core.withdraw("standing")
    assert taken(router) == set()
    router.core.link_closed(after)
    assert taken(router) == set()
