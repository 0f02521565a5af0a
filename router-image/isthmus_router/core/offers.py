"""What the router itself consumes: addresses of its own, and those that it offers to consume by pattern."""

from __future__ import annotations

from collections.abc import Callable

from isthmus_router.core.address import Address, AddressClass, InProcessConsumer, SettlingConsumer
from isthmus_router.core.address_table import AddressTable
from isthmus_router.core.configured import ConfiguredAddresses
from isthmus_router.core.planner import RoutePlanner
from isthmus_router.core.reachability import Reachability
from isthmus_router.core.treatment import Treatment


class Offers:
    """The consumers inside one router."""

    def __init__(
        self,
        addresses: AddressTable,
        planner: RoutePlanner,
        configured: ConfiguredAddresses,
        reachability: Reachability,
        advertise: Callable[[Address], None],
    ) -> None:
        self._addresses = addresses
        self._planner = planner
        self._configured = configured
        self._reachability = reachability
        self._advertise = advertise

    def register(self, name: str, handler: InProcessConsumer, *, mobile: bool = False) -> None:
        """Consume `name` inside the router: as `_local/...` and `_topo/.../<this router>/...`, also as mobile."""
        for key in (AddressClass.LOCAL + name, *((AddressClass.MOBILE + name,) if mobile else ())):
            # Whatever the default distribution: clients get at what the router itself offers.
            address = self._addresses.obtain(key, Treatment.CLOSEST)
            address.handler = handler
            self._addresses.taken.pop(address, None)
            self._reachability.destinations_changed(address)
            self._advertise(address)

    def unregister(self, name: str) -> None:
        """The router itself consumes `name` no longer."""
        for key in (AddressClass.LOCAL + name, AddressClass.MOBILE + name):
            address = self._addresses.get(key)
            if address is not None and address.handler is not None:
                address.handler = None
                self._addresses.taken.pop(address, None)
                self._reachability.destinations_changed(address)
                self._advertise(address)
                self._addresses.forget_if_unused(address)

    def offer(self, pattern: str, consumer_of: Callable[[str], SettlingConsumer]) -> None:
        """Consume inside the router what is sent to addresses that match, by the consumer that is made for each.

        A pattern without wildcards is an address that other routers are told of at once; any other, as soon as it has
        receivers here.
        """
        self._addresses.offers.add_pattern(pattern, consumer_of)
        if not {"*", "#"} & set(pattern.replace("/", ".").split(".")):
            self._addresses.standing.add(AddressClass.MOBILE + pattern)
            self._addresses.obtain(AddressClass.MOBILE + pattern)
        self._changed()

    def withdraw(self, pattern: str) -> None:
        """What `offer` has offered ends."""
        self._addresses.offers.remove_pattern(pattern)
        self._addresses.standing.discard(AddressClass.MOBILE + pattern)
        self._changed()

    def _changed(self) -> None:
        self._planner.unknown.invalidate()
        for address in list(self._addresses.values()):
            consumer = self._addresses.offered(address.key)
            if consumer is None and address.handler.__class__ is not SettlingConsumer:
                continue
            configured = self._configured.find(address.key)
            usual = self._configured.default if configured is None else configured.treatment
            address.handler = consumer
            if consumer is None:
                self._addresses.taken.pop(address, None)
            else:
                self._addresses.taken[address] = None
            address.standing = consumer is None or address.key in self._addresses.standing
            address.treatment = usual if consumer is None else Treatment.CLOSEST
            self._reachability.destinations_changed(address)
            self._advertise(address)
            self._addresses.forget_if_unused(address)
