"""The link routes that a router knows: by pattern and direction, with the containers and routers that take their links.

A link route is known here by a section of the configuration, by a container or an edge that made one for its own
connection, by a router of the network that announced it, or, on an edge, by the interior. Routers agree on it under
the key of an address (class and pattern, such as `Cb2`); a prefix is the pattern that ends in `#`.

Sans-IO. Source: link routes of qpid-dispatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from isthmus_router.core.address import LINK_ROUTES, Address, AddressClass, normalise
from isthmus_router.core.address_table import AddressTable
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.patterns import MANY, ONE, PatternTree, TooManyPatternsError, normal_pattern
from isthmus_router.core.terms import Direction
from isthmus_router.policy.grant import Grant

SHOWN = 200
"""Characters of an address that a peer asked for."""
MOST_STEPS = 20_000
"""Of a search for the link route of an address, about 10 ms. Edges, containers and routers choose the patterns."""
_CLASSES = {
    Direction.IN: (AddressClass.LINK_ROUTE_IN, AddressClass.PATTERN_IN),
    Direction.OUT: (AddressClass.LINK_ROUTE_OUT, AddressClass.PATTERN_OUT),
}
"""Classes of prefixes and of other patterns, by the direction of clients' links seen from the router."""


def prefix_pattern(prefix: str) -> str:
    """The pattern of a prefix: itself and everything that continues it with a whole token."""
    return f"{prefix}.{MANY}"


def route_key(pattern: str, direction: Direction) -> str:
    """The key under which routers know a link route; one for all patterns that match the same."""
    tokens = normal_pattern(pattern)
    prefix_class, pattern_class = _CLASSES[direction]
    plain = tokens[:-1]
    if plain and tokens[-1] == MANY and MANY not in plain and ONE not in plain:
        return prefix_class + ".".join(plain)
    return pattern_class + ".".join(tokens)


def direction_of(key: str) -> Direction:
    """Which links the link route of `key` is about."""
    return next(direction for direction, classes in _CLASSES.items() if key[0] in classes)


def pattern_of(key: str) -> str:
    """The pattern that the key of a link route stands for."""
    is_prefix = key[0] in {AddressClass.LINK_ROUTE_IN, AddressClass.LINK_ROUTE_OUT}
    return prefix_pattern(key[1:]) if is_prefix else key[1:]


def is_route_key(key: str) -> bool:
    """Whether that is the key of a link route, in the one form that it has."""
    return key[:1] in LINK_ROUTES and len(key) > 1 and route_key(pattern_of(key), direction_of(key)) == key


@dataclass(slots=True, eq=False)
class Declaration:
    """What says that links of some routes go to some containers: a section, or what a container said of itself."""

    connection_name: str | None
    """Of the connector or listener whose containers take the links; None: any with that container id."""
    container_id: str | None
    add_prefix: str = ""
    """Put before the address towards the container."""
    remove_prefix: str = ""
    """Taken from the address towards the container, where it begins with that."""
    pattern: str = ""
    """As it was given, where the container made it."""
    routes: tuple[LinkRoute, ...] = ()
    """One for each direction."""
    destinations: dict[Connection, set[Link]] = field(default_factory=dict)
    """Connections to containers that take links now, with those that are routed there."""

    def takes(self, connection: Connection) -> bool:
        """Whether links go to the container at the other end of a route-container connection."""
        return (
            self.connection_name in (None, connection.endpoint)
            and self.container_id in (None, connection.container)
            and (self.connection_name is not None or self.container_id is not None)
        )

    def is_allowed(self, connection: Connection) -> bool:
        """Whether the policy allows the container to have the links.

        It does where the configuration names the connector or listener alone. Nobody verifies container ids, so a
        container chosen by its id has only links to addresses that it may use itself, if it has a policy.
        """
        grant: Grant | None = connection.grant
        if self.container_id is None or grant is None:
            return True
        try:
            return all(
                grant.covers(pattern_of(route.key), route.direction is Direction.IN) for route in self.routes
            )
        except TooManyPatternsError:
            return False

    def outside(self, address: str) -> str:
        """What the container calls `address`."""
        if not self.add_prefix and not self.remove_prefix:
            return address
        return self.add_prefix + normalise(address).removeprefix(self.remove_prefix)

    def inside(self, address: str) -> str:
        """What the network calls an address of the container's."""
        if not self.add_prefix and not self.remove_prefix:
            return address
        if not address.startswith(self.add_prefix):
            return address
        return self.remove_prefix + address.removeprefix(self.add_prefix)

    def serve(self, connection: Connection) -> None:
        """The container on a connection takes links from now on."""
        links: set[Link] = set()
        self.destinations[connection] = links
        for route in self.routes:
            route.containers[self, connection] = links

    def leave(self, connection: Connection) -> bool:
        """It takes no further links. Returns whether it took some."""
        if self.destinations.pop(connection, None) is None:
            return False
        for route in self.routes:
            del route.containers[self, connection]
        return True

    @property
    def is_removed(self) -> bool:
        """Whether the routes do not have it any more."""
        return not any(self in route.declarations for route in self.routes)

    @property
    def is_own(self) -> bool:
        """Whether the container made it for its own connection."""
        return bool(self.pattern)

    @property
    def link_count(self) -> int:
        """Links that are routed to its containers."""
        return sum(map(len, self.destinations.values()))


@dataclass(slots=True, eq=False)
class Refusals:
    """Attaches that found no container, or that a container of this router has refused."""

    count: int = 0
    address: str = ""
    """Of the last one."""
    description: str = ""
    at: float = 0.0
    """When, by the router's clock."""

    def note(self, address: str, description: str, at: float) -> None:
        """One more."""
        self.count += 1
        self.address, self.description, self.at = address[:SHOWN], description[:SHOWN], at


class LinkRoute:
    """One pattern in one direction."""

    __slots__ = (
        "_changed",
        "address",
        "containers",
        "declarations",
        "direction",
        "key",
        "makers",
        "refusals",
        "routers",
        "turn",
    )

    def __init__(self, address: Address, changed: Callable[[LinkRoute], None]) -> None:
        self.address = address
        self._changed = changed
        self.key = address.key
        self.direction = direction_of(address.key)
        self.declarations: dict[Declaration, None] = {}
        self.containers: dict[tuple[Declaration, Connection], set[Link]] = {}
        """The destinations of all declarations, in the order in which they are compared when a link comes."""
        self.makers: dict[Connection, None] = {}
        """Connections of containers that made it for themselves."""
        self.routers: dict[Connection | None, bool] = {}
        """Edges below, or the interior above, that know of it; True for those by way of which there are containers.
        None stands for an interior that is away."""
        self.refusals = Refusals()
        self.turn = 0

    @property
    def in_use(self) -> bool:
        """Link-route state of an address: this router is told of it other than by routers of the network."""
        return bool(self.declarations or self.routers)

    @property
    def offered(self) -> bool:
        """Link-route state of an address: there is a container here, or at an edge."""
        return bool(self.containers) or any(self.routers.values())

    @property
    def users(self) -> Iterator[Connection]:
        """Link-route state of an address: containers that created it for themselves, and edges that have some."""
        yield from self.makers
        for router, there in self.routers.items():
            if there and router is not None:
                yield router

    def remotes_changed(self) -> None:
        """Link-route state of an address: what the network knows of it is different, or may be."""
        self._changed(self)

    @property
    def container_count(self) -> int:
        """Containers of this router that take its links."""
        return len(self.containers)

    @property
    def remote_count(self) -> int:
        """Other routers that have some."""
        return len(self.address.remotes) + sum(self.routers.values())

    def reachable_beside(self, connection: Connection) -> bool:
        """Whether there is a container other than by way of this connection to a router."""
        return (
            bool(self.containers)
            or any(node.hop is not None for node in self.address.remotes)
            or any(there for router, there in self.routers.items() if router is not connection)
        )

    def known_beside(self, connection: Connection) -> bool:
        """Whether anything but this connection's peer says that there is such a link route."""
        others = any(router is not connection for router in self.routers)
        return bool(self.declarations or self.address.remotes) or others

    def __repr__(self) -> str:
        return f"<LinkRoute {self.key}>"


class LinkRouteTable:
    """All link routes of one router; each is there as long as the address of its key."""

    def __init__(self, addresses: AddressTable, changed: Callable[[LinkRoute], None]) -> None:
        """`changed` is called when the network has containers for a link route, or no longer, or may have."""
        self._addresses = addresses
        self._changed = changed
        self._trees: dict[Direction, PatternTree[LinkRoute]] = {
            Direction.IN: PatternTree(),
            Direction.OUT: PatternTree(),
        }
        self.all: dict[str, LinkRoute] = {}
        """By key."""
        addresses.link_route_made = self._made
        addresses.link_route_forgotten = self._forgotten

    def find(self, address: str, direction: Direction) -> LinkRoute | None:
        """The link route with the most specific pattern that matches. Raises TooManyPatternsError."""
        return self._trees[direction].find(normalise(address), MOST_STEPS) if self.all else None

    def obtain(self, pattern: str, direction: Direction) -> LinkRoute:
        """The link route of a pattern, made if need be."""
        return self.by_key(route_key(pattern, direction))

    def by_key(self, key: str) -> LinkRoute:
        """The link route of a key, made if need be."""
        self._addresses.obtain(key)
        return self.all[key]

    def _made(self, address: Address) -> None:
        if not is_route_key(address.key):
            return  # of a router that does not make keys as this one does: another key has the pattern
        route = self.all[address.key] = LinkRoute(address, self._changed)
        address.link_route = route
        self._trees[route.direction].add_pattern(pattern_of(address.key), route)

    def _forgotten(self, address: Address) -> None:
        route = self.all.pop(address.key, None)
        if route is not None:
            self._trees[route.direction].remove_pattern(pattern_of(address.key))
            address.link_route = None  # both are freed now and do not wait for a collection of garbage

    def declare(self, patterns: Iterable[tuple[str, Direction]], declaration: Declaration) -> None:
        """The routes of these patterns are the declaration's from now on."""
        declaration.routes = tuple(self.obtain(pattern, direction) for pattern, direction in patterns)
        for route in declaration.routes:
            route.declarations[declaration] = None
