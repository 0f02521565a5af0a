"""Which producers reach anybody: told of each change of an address, it finds those whom that concerns."""

from __future__ import annotations

from collections.abc import Callable

from isthmus_router.core.address import Address
from isthmus_router.core.model import Link
from isthmus_router.core.planner import RoutePlanner
from isthmus_router.core.routes import RouteKind


class Reachability:
    """Gives producers new routes; `changed` is called with each for which deliveries have become possible, or not."""

    def __init__(self, planner: RoutePlanner, changed: Callable[[Link, bool], None]) -> None:
        self._planner = planner
        self._changed = changed

    def destination_added(self, address: Address) -> None:
        """One more destination: only producers that had none can have changed reachability."""
        address.invalidate()
        if address.handler is None and self._had_clients(address):
            return  # whoever produces here has reached one of them
        self._review(address, [link for link in address.inlinks if not _reachable(link)])

    @staticmethod
    def _had_clients(address: Address) -> bool:
        """Whether the newest consumer is not the first client that consumes here."""
        clients = (link for link in address.consumers if not link.connection.role.is_between_routers)
        return next(clients, None) is not None and next(clients, None) is not None

    def destination_removed(self, address: Address) -> None:
        """One destination less. While a client consumes here, whoever could reach the address still can."""
        address.invalidate()
        client = next(
            (link for link in address.consumers if not link.connection.role.is_between_routers), None
        )
        if (client is None and address.handler is None) or (address.handler and address.handler.from_uplink):
            self._review(address, list(address.inlinks))

    def destinations_changed(self, address: Address) -> None:
        """Anything about the destinations may be different."""
        address.invalidate()
        self._review(address, list(address.inlinks))

    def _review(self, address: Address, links: list[Link]) -> None:
        """New routes for these producers of the address."""
        for link in links:
            was_reachable = _reachable(link)
            link.route = self._planner.plan(address, link)
            reachable = _reachable(link)
            if reachable != was_reachable:
                self._changed(link, reachable)


def _reachable(link: Link) -> bool:
    return link.route is not None and link.route.kind is not RouteKind.NONE
