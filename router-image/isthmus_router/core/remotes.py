"""Destinations on other routers: what the routing engine has found out about them.

A router may announce hundreds of thousands of addresses. What a change of the paths, a restart or the loss of a router
means for them is found out in steps, and for `AT_ONCE` of them immediately. Until then, deliveries go where they went.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from isthmus_router.core.address import Address, AddressClass
from isthmus_router.core.address_table import AddressTable
from isthmus_router.core.nodes import RouterNode
from isthmus_router.core.planner import RoutePlanner
from isthmus_router.core.reachability import Reachability
from isthmus_router.core.steps import begin
from isthmus_router.core.treatment import Treatment

AT_ONCE = 256
"""Addresses that are dealt with within the event that concerns them; more of them in steps."""
REMOVED_FOR_ONE = 2
"""Addresses that are removed for each one that is added while some wait for that, so that there are never many more
than the routing engine knows."""


class Remotes:
    """The other interior routers, and the addresses for which they announced consumers."""

    def __init__(
        self,
        planner: RoutePlanner,
        addresses: AddressTable,
        reachability: Reachability,
        work: Callable[[Iterator[None]], None],
    ) -> None:
        """`work` is called with what is to be done step by step."""
        self._planner = planner
        self._nodes = planner.nodes
        self._addresses = addresses
        self._reachability = reachability
        self._work = work
        self._withdrawn: deque[tuple[RouterNode, set[Address]]] = deque()
        """What routers announced that have restarted or are gone, as far as it is not removed yet."""
        self._paths_are_reviewed = False
        self._paths_have_changed = False
        """Whether they have since the review began."""

    def node(self, router_id: str) -> RouterNode:
        """The node of another router; created unreachable."""
        node = self._nodes.get(router_id)
        if node is None:
            node = self._nodes[router_id] = RouterNode(router_id)
            self.add(node, AddressClass.ROUTER + router_id, Treatment.CLOSEST)
        return node

    def remove_node(self, router_id: str) -> None:
        """Forget a router and everything it announced."""
        node = self._nodes.pop(router_id, None)
        if node is not None:
            node.hop = None
            self._withdraw(node, set())

    def flush_node(self, node: RouterNode) -> None:
        """Forget what a router announced; the way to the router itself stays."""
        itself = self._addresses.get(AddressClass.ROUTER + node.id)
        self._withdraw(node, {itself} & node.addresses if itself is not None else set())

    def _withdraw(self, node: RouterNode, kept: set[Address]) -> None:
        withdrawn, node.addresses = node.addresses, kept
        withdrawn -= kept
        if withdrawn:
            self._withdrawn.append((node, withdrawn))
            if len(self._withdrawn) == 1:
                begin(self._work, self._remove_withdrawn(), AT_ONCE)

    def _remove_withdrawn(self) -> Iterator[None]:
        while self._withdrawn:
            self._remove_next()
            yield

    def _remove_next(self) -> None:
        """Remove an address that was withdrawn, unless its router has announced it again meanwhile."""
        node, addresses = self._withdrawn[0]
        address = addresses.pop()
        if not addresses:
            self._withdrawn.popleft()
        if address not in node.addresses and node in address.remotes:
            self._remove(node, address)

    def add(self, node: RouterNode, key: str, treatment: Treatment) -> None:
        """`node` announced consumers for `key`. A treatment configured here takes precedence over its."""
        for _ in range(REMOVED_FOR_ONE):
            if self._withdrawn:
                self._remove_next()
        known = treatment is not Treatment.UNAVAILABLE
        address = self._addresses.obtain(key, treatment if known else Treatment.BALANCED)
        node.addresses.add(address)
        if node not in address.remotes:
            address.add_remote(node)
            if address.link_route is not None:
                address.link_route.remotes_changed()
            else:
                self._reachability.destination_added(address)

    def remove(self, node: RouterNode, key: str) -> None:
        """`node` has no consumers for `key` any more."""
        address = self._addresses.get(key)
        if address is not None and node in address.remotes:
            self._remove(node, address)

    def _remove(self, node: RouterNode, address: Address) -> None:
        address.remove_remote(node)
        node.addresses.discard(address)
        if address.link_route is not None:
            address.link_route.remotes_changed()
        else:
            self._reachability.destination_removed(address)
        self._addresses.forget_if_unused(address)

    def paths_changed(self) -> None:
        """Next hops, costs, valid origins or the radius changed: every remote destination may have moved."""
        self._paths_have_changed = True
        if not self._paths_are_reviewed:
            begin(self._work, self._review_paths(), AT_ONCE)

    def _review_paths(self) -> Iterator[None]:
        """Look at all addresses that have routes, and again if the paths have changed meanwhile, however often."""
        self._paths_are_reviewed = True
        try:
            while self._paths_have_changed:
                self._paths_have_changed = False
                for address in list(self._planner.planned):
                    self._review(address)
                    yield
        finally:
            self._paths_are_reviewed = False

    def _review(self, address: Address) -> None:
        if address.link_route is not None:
            address.link_route.remotes_changed()
        elif address.remotes or address.key[0] == AddressClass.TOPOLOGICAL:
            self._planner.planned.discard(address)  # the next route to it adds it again
            self._reachability.destinations_changed(address)
