"""The addresses of one router: made when they are first named, forgotten when nothing refers to them any more."""

from __future__ import annotations

from collections.abc import Callable

from isthmus_router.core.address import LINK_ROUTES, Address, AddressClass, SettlingConsumer, is_mobile
from isthmus_router.core.configured import ConfiguredAddresses, is_of_flow_records
from isthmus_router.core.patterns import PatternTree
from isthmus_router.core.planner import RoutePlanner
from isthmus_router.core.treatment import Treatment


class AddressTable(dict[str, Address]):
    """Addresses in use by key, in the order in which they appeared."""

    def __init__(self, configured: ConfiguredAddresses, planner: RoutePlanner) -> None:
        super().__init__()
        self._configured = configured
        self._planner = planner
        self.offers: PatternTree[Callable[[str], SettlingConsumer]] = PatternTree()
        """What makes the consumer inside this router of an address."""
        self.standing: set[str] = set()
        """Keys of addresses that are there for the sake of such a consumer; others only while somebody uses them."""
        self.taken: dict[Address, None] = {}
        """The addresses that have such a consumer."""
        self.link_route_made: Callable[[Address], None] | None = None
        """Called when the address of a link route is first named."""
        self.link_route_forgotten: Callable[[Address], None] | None = None

    def obtain(self, key: str, treatment: Treatment | None = None) -> Address:
        """The address of `key`, made if need be.

        It gets the treatment that is configured for it; without any, `treatment`, and without that the default.
        """
        return self.get(key) or self._make(key, treatment)

    def _make(self, key: str, treatment: Treatment | None) -> Address:
        priority, configured = None, None
        if is_mobile(key):
            configured = self._configured.find(key)
            if configured is not None:
                treatment, priority = configured.treatment, configured.priority
            elif treatment is None:
                treatment = self._configured.default
        elif key[0] == AddressClass.TOPOLOGICAL:
            treatment = Treatment.MULTICAST
        elif key[0] == AddressClass.EDGE:
            treatment = Treatment.BALANCED
        address = Address(key, Treatment.CLOSEST if treatment is None else treatment, priority)
        address.resends = configured is not None and configured.resends
        consumer = self.offered(key)
        if consumer is not None:
            address.handler, address.treatment = consumer, Treatment.CLOSEST
            address.standing = key in self.standing
            self.taken[address] = None
        self[key] = address
        if key[0] in LINK_ROUTES:
            self._planner.planned.add(address)
            if self.link_route_made is not None:
                self.link_route_made(address)
        else:
            self._planner.unknown.invalidate()
        return address

    def offered(self, key: str) -> SettlingConsumer | None:
        """A consumer inside this router for the address, if it offers to be one.

        Of what is between routers and each client (`$management`, temporary addresses, flow records) there is none.
        """
        name = key[1:]
        if not is_mobile(key) or name.startswith(("$", "_")) or is_of_flow_records(key):
            return None
        offer = self.offers.find(name)
        return None if offer is None else offer(name)

    def forget_if_unused(self, address: Address) -> None:
        """Nothing may refer to the address any more."""
        if not address.in_use and self.get(address.key) is address:
            address.invalidate()
            address.client_routes.clear()  # which refer to it: all would wait for a full collection of garbage
            self._planner.planned.discard(address)
            self._planner.concerned.discard(address)
            self.taken.pop(address, None)
            del self[address.key]
            if address.key[0] in LINK_ROUTES and self.link_route_forgotten is not None:
                self.link_route_forgotten(address)
