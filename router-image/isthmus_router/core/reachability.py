"""Which producers reach anybody: told of each change of an address, it finds those whom that concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from isthmus_router.core.address import Address
from isthmus_router.core.model import Link
from isthmus_router.core.planner import RoutePlanner
from isthmus_router.core.receivers import RouteKind
from isthmus_router.core.roles import Role
from isthmus_router.core.routes import Route

AT_ONCE, MOST_PAIRS = 16, 16_000
"""Producers of an address that are looked at within the event that concerns them, and pairs of them and consumers; more
of them in steps."""


class Reachability:
    """Gives producers new routes.

    `changed` is called with each for which deliveries have become possible, or not, `confirmed` with each link of an
    edge for which nothing is different, and `work` with a long piece of work, to be done step by step.
    """

    def __init__(
        self,
        planner: RoutePlanner,
        changed: Callable[[Link, bool], None],
        confirmed: Callable[[Link, bool], None],
        work: Callable[[Iterator[None]], None],
    ) -> None:
        self._planner = planner
        self._changed = changed
        self._confirmed = confirmed
        self._work = work
        self._under_review: dict[Address, bool] = {}
        """Addresses whose producers are looked at in steps: whether something has changed since the first of them."""

    def judge(self, address: Address, link: Link) -> bool:
        """Give a producer a route, and say whether deliveries from there find anybody."""
        link.route = self._planner.plan(address, link)
        link.reachable = link.route.kind is not RouteKind.NONE
        return link.reachable

    def ask(self, address: Address, link: Link) -> Route:
        """A route for a producer whose route is not valid any more and that has a delivery."""
        link.route = route = self._planner.plan(address, link)
        if (route.kind is not RouteKind.NONE) is not link.reachable:
            link.reachable = None  # credit may get lost before its turn in the review comes
        return route

    def destination_added(self, address: Address) -> None:
        """One more destination: only producers that had none can have changed reachability."""
        address.end_routes()
        if address.handler is None and address.clients > 1:
            return  # whoever produces here has reached one of them
        self._review(address, unreachable_only=True)

    def destination_removed(self, address: Address) -> None:
        """One destination less. While a client consumes here, whoever could reach the address still can."""
        address.end_routes()
        if (not address.clients and address.handler is None) or (
            address.handler and address.handler.from_uplink
        ):
            self._review(address)

    def destinations_changed(self, address: Address) -> None:
        """Anything about the destinations may be different."""
        address.invalidate()
        self._review(address)

    def _review(self, address: Address, *, unreachable_only: bool = False) -> None:
        """New routes for the producers of the address."""
        producers = len(address.inlinks)
        if producers <= AT_ONCE and producers * len(address.consumers) <= MOST_PAIRS:
            for link in list(address.inlinks):
                if not (unreachable_only and link.reachable):
                    self._look_at(address, link)
        elif address in self._under_review:
            self._under_review[address] = True
        else:
            self._under_review[address] = True
            self._work(self._review_in_steps(address))

    def _review_in_steps(self, address: Address) -> Iterator[None]:
        """Look at all producers one by one, and again if something has changed meanwhile, however often."""
        try:
            while self._under_review[address]:
                self._under_review[address] = False
                for link in list(address.inlinks):
                    if link in address.inlinks:
                        self._look_at(address, link)
                        yield
        finally:
            del self._under_review[address]

    def _look_at(self, address: Address, link: Link) -> None:
        before = link.reachable
        reachable = self.judge(address, link)
        if reachable is not before:
            self._changed(link, reachable)
        elif link.connection.role is Role.EDGE:
            # The edge may have been told something else because of an earlier link, which has ended.
            self._confirmed(link, reachable)
