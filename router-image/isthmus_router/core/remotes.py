"""Destinations on other routers: what the routing engine has found out about them."""

from __future__ import annotations

from isthmus_router.core.address import Address, AddressClass
from isthmus_router.core.address_table import AddressTable
from isthmus_router.core.nodes import RouterNode
from isthmus_router.core.reachability import Reachability
from isthmus_router.core.treatment import Treatment


class Remotes:
    """The other interior routers, and the addresses for which they announced consumers."""

    def __init__(
        self, nodes: dict[str, RouterNode], addresses: AddressTable, reachability: Reachability
    ) -> None:
        self._nodes = nodes
        self._addresses = addresses
        self._reachability = reachability

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
            for address in list(node.addresses):
                self._remove(node, address)

    def flush_node(self, node: RouterNode) -> None:
        """Forget what a router announced; the way to the router itself stays."""
        for address in list(node.addresses):
            if address.key[0] != AddressClass.ROUTER:
                self._remove(node, address)

    def add(self, node: RouterNode, key: str, treatment: Treatment) -> None:
        """`node` announced consumers for `key`. A treatment configured here takes precedence over its."""
        known = treatment is not Treatment.UNAVAILABLE
        address = self._addresses.obtain(key, treatment if known else Treatment.BALANCED)
        if node not in address.remotes:
            address.add_remote(node)
            node.addresses.add(address)
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
        for address in list(self._addresses.values()):
            if address.link_route is not None:
                address.link_route.remotes_changed()
            elif address.remotes or address.key[0] == AddressClass.TOPOLOGICAL:
                self._reachability.destinations_changed(address)
