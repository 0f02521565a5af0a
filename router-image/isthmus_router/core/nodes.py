"""The other interior routers, and the ways to them."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus_router.core.address import Address
from isthmus_router.core.balance import Balance
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.terms import CAPABILITY_TRUNKING


class RouterNode:
    """Another interior router of the network."""

    __slots__ = ("addresses", "cost", "hop", "id", "index", "valid_origins")

    def __init__(self, router_id: str) -> None:
        self.id = router_id
        self.hop: Hop | None = None
        """Next hop towards it; None while unreachable."""
        self.cost = 0
        self.valid_origins: frozenset[str] = frozenset()
        self.addresses: set[Address] = set()

    def __repr__(self) -> str:
        return f"<RouterNode {self.id}>"


class Hop:
    """The way to one neighbour: what forwarding sends through, whatever connection carries it just now.

    `number` is the link identifier the routing engine knows; it outlives the connection when an upgraded
    connection takes over.
    """

    __slots__ = (
        "_turn",
        "connection",
        "data_connections",
        "data_links",
        "ended",
        "neighbour",
        "number",
        "up",
    )

    def __init__(self, number: int, connection: Connection) -> None:
        self.number = number
        self.neighbour: str | None = None
        self.up = False
        """Whether the routing engine counts on it."""
        self.ended = False
        self.data_connections: tuple[Connection, ...] = ()
        """For streams; where there are none, these take the control connection as well."""
        self._turn = 0
        self.carry_by(connection)

    def carry_by(self, connection: Connection) -> None:
        """Use `connection`, of role inter-router, from now on."""
        self.connection = connection
        self.data_links = connection.data_links
        self.data_connections = ()
        connection.hop = self

    def end(self) -> None:
        """The connection is gone, and no other one takes over. Routes that lead here may last a little longer."""
        self.ended = True
        self.data_links = [None] * len(self.data_links)
        self.data_connections = ()

    def link_for(self, priority: int) -> Link | None:
        """The data link of `priority`, or of the nearest lower priority that exists, or any."""
        links = self.data_links
        link = links[priority]
        if link is not None:
            return link
        for lower in range(priority - 1, -1, -1):
            if links[lower] is not None:
                return links[lower]
        return next((link for link in links if link is not None), None)

    def connection_for_stream(self) -> Connection | None:
        """The data connections in turn; the control connection when there is none, or the peer takes none.

        None after the end.
        """
        if self.ended:
            return None
        connections = self.data_connections
        if not connections or CAPABILITY_TRUNKING not in self.connection.offered_capabilities:
            return self.connection
        self._turn = (self._turn + 1) % len(connections)
        return connections[self._turn]

    def __repr__(self) -> str:
        return f"<Hop {self.number} to {self.neighbour or '?'}>"


@dataclass(slots=True, eq=False)
class PathLoad:
    """Outstanding deliveries of one address towards one hop; `cost` is the path cost to the nearest consumer."""

    cost: int
    balance: Balance
    outstanding: int = 0
    place: int = 0
    """Where it is in a route that has all consumers of the address."""

    def burden(self) -> int:
        """What counts when the least loaded of several consumers is chosen."""
        return self.outstanding + self.cost

    def settled(self) -> None:
        """One delivery less is under way."""
        self.outstanding -= 1
        if self.balance.heeded:
            self.balance.eased(self)
