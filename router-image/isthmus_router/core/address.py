"""Addresses: how the text of a terminus or `to` becomes the key under which routers agree on it, and who is there.

A key is a class character and a name. Classes: `M` mobile, `L` local to this router, `T` topological (every
router), `R` next hop towards a router, `H` next hop towards an edge router; `C` to `F` stand for link routes, which
nothing is sent to.
Source: the router wire protocol's address hash (skupper-router family, no phase character); classes of link routes as
in qpid-dispatch.

A mobile address has phases 0 to 9: messages wait for consumers in the phase in which they are, and only what takes
them from one phase to another (a queue on a broker, a waypoint) joins them. Phase 0 has the plain name. The others
have a name of their own, `_$phase.1/orders`, in keys and wherever routers name an address to each other, so routers
that know no phases (skupper-router) carry them as addresses like any other. qpid-dispatch has the phase as a
character of every key instead, and shares no mobile address with this family.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, ClassVar, Protocol

from isthmus_router.core.balance import Balance
from isthmus_router.core.roles import Role
from isthmus_router.core.treatment import Treatment

if TYPE_CHECKING:
    from isthmus_router.core.model import Connection, Link
    from isthmus_router.core.nodes import Hop, PathLoad, RouterNode
    from isthmus_router.core.receivers import Receivers
    from isthmus_router.core.routes import Route

TEMPORARY_PREFIX = "temp."
PHASE_PREFIX = "_$phase."
MAX_PHASE = 9
MANAGEMENT = "$management"
_WAYPOINT = re.compile(r"qd\.waypoint(?:[._]([1-9]))?")
_PHASED = re.compile(re.escape(PHASE_PREFIX) + r"([0-9])/(.+)", re.DOTALL)
_LEADING = re.compile(r"(?:amqp:(?://[^/]*+/?)?|/)*+")
_OF_A_ROUTER = re.compile(r"(?:_local|_edge/[^/]+|_topo/[^/]+/(?!all/)[^/]+)/(.+)", re.DOTALL)
_OF_FLOW_RECORDS = ("mc/sfe.", "sfe.")
_OF_CONTROL = ("amqp:", "/", "_", "$", *_OF_FLOW_RECORDS)
"""With one of these begins every spelling of an address that is not for clients."""


class AddressClass(StrEnum):
    """First character of an address key."""

    MOBILE = "M"
    LOCAL = "L"
    TOPOLOGICAL = "T"
    ROUTER = "R"
    EDGE = "H"
    LINK_ROUTE_IN = "C"
    """A prefix; links of senders."""
    LINK_ROUTE_OUT = "D"
    """A prefix; links of receivers."""
    PATTERN_IN = "E"
    PATTERN_OUT = "F"


LINK_ROUTES = frozenset(
    {
        AddressClass.LINK_ROUTE_IN,
        AddressClass.LINK_ROUTE_OUT,
        AddressClass.PATTERN_IN,
        AddressClass.PATTERN_OUT,
    }
)
"""Classes of link routes."""


def normalise(address: str) -> str:
    """`amqp://host/x`, `amqp:/x`, `/x`, `x/` and `x` all name `x`, and so does each of these with more of the same.

    What comes out is not changed by another call: an address means the same at every router that it passes.
    """
    if address.startswith(("amqp:", "/")):
        address = address[_LEADING.match(address).end() :]  # type: ignore[union-attr]
    return address.rstrip("./") or address[:1]


class Purpose(Enum):
    """For whom an address is."""

    CLIENTS = "clients"
    """Anybody, as far as the policy says."""
    MANAGEMENT = "management"
    """Requests to a router."""
    FLOW_RECORDS = "flow records"
    """Routers and collectors of flow records."""
    ROUTERS = "routers"
    """Routers alone."""


def purpose(address: str) -> Purpose:
    """For whom `address`, in any spelling, is. Every decision about control addresses asks here."""
    if not address.startswith(_OF_CONTROL):
        return Purpose.CLIENTS
    name = normalise(address)
    phased = _PHASED.fullmatch(name)
    if phased is not None:
        name = phased[2]
        if name[0] in "_$" or name != normalise(name):
            return Purpose.ROUTERS  # no client's address has such a name in any phase
    if name.startswith(_OF_FLOW_RECORDS):
        return Purpose.FLOW_RECORDS
    if name[:1] not in {"_", "$"} or name.startswith(f"_${TEMPORARY_PREFIX}"):
        return Purpose.CLIENTS
    of_a_router = _OF_A_ROUTER.fullmatch(name)
    if of_a_router is not None:
        if of_a_router[1].startswith(TEMPORARY_PREFIX) and not name.startswith("_local/"):
            return Purpose.CLIENTS
        name = of_a_router[1]
    return Purpose.MANAGEMENT if name == MANAGEMENT else Purpose.ROUTERS


def is_temporary(address: str) -> bool:
    """Whether routers make addresses like `address`, in any spelling, for dynamic nodes."""
    name = normalise(address)
    of_a_router = _OF_A_ROUTER.fullmatch(name)
    if of_a_router is not None and not name.startswith("_local/"):
        return of_a_router[1].startswith(TEMPORARY_PREFIX)
    return name.startswith(f"_${TEMPORARY_PREFIX}")


def is_temporary_key(key: str) -> bool:
    """The same of the key of an address of this router."""
    return key.startswith(
        (AddressClass.LOCAL + TEMPORARY_PREFIX, f"{AddressClass.MOBILE}_${TEMPORARY_PREFIX}")
    )


def address_key(address: str, router_id: str, *, edge: bool) -> str:
    """The key of `address` as the router `router_id` sees it.

    On an edge router, anything addressed to another router has the key `R` alone: the way there is the uplink.
    """
    name = normalise(address)
    if not name.startswith("_"):
        return AddressClass.MOBILE + name
    if name.startswith(PHASE_PREFIX):
        return AddressClass.MOBILE + with_phase(*split_phase(name))
    head, _, rest = name.partition("/")
    if head == "_local":
        return AddressClass.LOCAL + rest
    if head == "_topo":
        _area, _, rest = rest.partition("/")
        router, _, rest = rest.partition("/")
        if router == router_id:
            return AddressClass.LOCAL + rest
        if router == "all" and not edge:
            return AddressClass.TOPOLOGICAL + rest
        return AddressClass.ROUTER + ("" if edge else router)
    if head == "_edge":
        router, _, rest = rest.partition("/")
        if router == router_id:
            return AddressClass.LOCAL + rest
        return AddressClass.ROUTER if edge else AddressClass.EDGE + router
    return AddressClass.MOBILE + name


def is_mobile(key: str) -> bool:
    """Whether the key is of the class that clients name freely."""
    return key.startswith(AddressClass.MOBILE)


def with_phase(name: str, phase: int) -> str:
    """What routers call the address `name` in a phase."""
    return f"{PHASE_PREFIX}{phase}/{name}" if phase else name


def split_phase(name: str) -> tuple[str, int]:
    """The address's own name and the phase."""
    found = _PHASED.fullmatch(name)
    return (found[2], int(found[1])) if found else (name, 0)


def waypoint_phase(capabilities: Iterable[str], *, incoming: bool) -> int | None:
    """The phase of a link whose terminus claims to be a waypoint; None when it does not.

    `qd.waypoint` is the first one: it receives in phase 0 and sends in phase 1. `qd.waypoint.2` receives in phase 1
    and sends in phase 2, and so on; `_` will do for the `.`, as with qpid-dispatch. `incoming`: the link is one on
    which the waypoint sends to this router.
    """
    for capability in capabilities:
        found = _WAYPOINT.fullmatch(capability)
        if found:
            number = int(found[1] or 1)
            return number if incoming else number - 1
    return None


class Address:
    """A key and everyone on this router, or reachable from it, who consumes or produces there."""

    __slots__ = (
        "balance",
        "claimant",
        "client_routes",
        "clients",
        "consumers",
        "container_egress_closed",
        "container_ingress_closed",
        "edges",
        "egress_closed",
        "everybody",
        "everybody_key",
        "handled_closed",
        "handler",
        "ingress_closed",
        "inlinks",
        "key",
        "known_receivers",
        "lasting_routes",
        "link_route",
        "loads",
        "name",
        "originated",
        "phase",
        "priority",
        "remotes",
        "resends",
        "routes",
        "standing",
        "transit_closed",
        "treatment",
    )

    def __init__(self, key: str, treatment: Treatment, priority: int | None = None) -> None:
        self.key = key
        self.name, self.phase = split_phase(key[1:])
        self.treatment = treatment
        self.priority = priority
        self.resends = False
        """What a receiver releases is sent to another one."""
        self.consumers: dict[Link, None] = {}
        """OUT links that consume from here, edge connections' links included."""
        self.edges: dict[Connection, int] = {}
        """Connections to edge routers, or on an edge to the interior, with the number of consumers there."""
        self.clients = 0
        """How many of these are not links of other routers."""
        self.claimant: str | None = None
        """The client for which it counts (`core.claims`)."""
        self.remotes: set[RouterNode] = set()
        """Routers that announced consumers."""
        self.inlinks: set[Link] = set()
        """IN links whose target is this address."""
        self.handler: InProcessConsumer | SettlingConsumer | None = None
        self.standing = True
        """The handler is there for its own sake; else only as long as somebody uses the address."""
        self.link_route: LinkRouteState | None = None
        """What this router itself has to do with the link route that the key stands for."""
        self.routes: set[Route] = set()
        """Those that end when a consumer comes or goes."""
        self.lasting_routes: set[Route] = set()
        """Those to `everybody`."""
        self.everybody: Receivers | None = None
        """All consumers, in an object that is kept up to date while they come and go."""
        self.everybody_key: object = None
        """The key that `everybody` would have in `known_receivers`."""
        self.client_routes: dict[tuple[str | None, bool, bool, bool], Route] = {}
        """Routes of clients by the destination in the annotations, and by whether the sender has no target, whether
        released messages are sent again, and whether deliveries are streamed."""
        self.known_receivers: dict[object, Receivers] = {}
        """Receivers that routes share, by the connections that are left out, the paths to other routers, and whether
        the uplink may be one of them."""
        self.balance = Balance()
        self.loads: dict[Hop, PathLoad] = {}
        """Outstanding deliveries by next hop; kept while routes come and go."""
        self.ingress_closed = 0
        self.transit_closed = 0
        self.egress_closed = 0
        self.handled_closed = 0
        self.container_ingress_closed = 0
        self.container_egress_closed = 0
        """Deliveries counted by routes and links that are gone (`sums.sums_of` adds those of the others); those that a
        choice among several consumers sent to another router are counted in `transit_closed` immediately."""
        self.originated = 0
        """Deliveries to this address that the router itself made."""

    @property
    def is_mobile(self) -> bool:
        """Whether clients name this address freely."""
        return self.key[0] == AddressClass.MOBILE

    @property
    def in_use(self) -> bool:
        """Whether anything still refers to the address."""
        return bool(
            self.consumers
            or self.remotes
            or self.inlinks
            or (self.handler is not None and self.standing)
            or (self.link_route is not None and self.link_route.in_use)
        )

    def add_consumer(self, link: Link) -> None:
        """An OUT link consumes from here."""
        self.consumers[link] = None
        if link.connection.role is Role.EDGE:
            self.edges[link.connection] = self.edges.get(link.connection, 0) + 1
        self.clients += not link.connection.role.is_between_routers
        self._change_everybody(link, joins=True)
        self.balance.eased(link)

    def remove_consumer(self, link: Link) -> None:
        """An OUT link no longer consumes from here."""
        del self.consumers[link]
        if link.connection.role is Role.EDGE:
            left = self.edges[link.connection] - 1
            if left:
                self.edges[link.connection] = left
            else:
                del self.edges[link.connection]
        self.clients -= not link.connection.role.is_between_routers
        self._change_everybody(link, joins=False)
        self.balance.removed(link)

    def _change_everybody(self, link: Link, *, joins: bool) -> None:
        """Keep `everybody` up to date, if possible."""
        everybody = self.everybody
        if everybody is None:
            return
        limited = everybody.is_limited
        if not (everybody.add(link) if joins else everybody.remove(link)):
            self._end_lasting_routes()
        elif everybody.is_limited is not limited:
            self._close_lasting_routes()  # whether they look at each delivery has changed

    def add_remote(self, node: RouterNode) -> None:
        """A router has announced consumers."""
        self.remotes.add(node)
        self._forget_burdens()
        self._end_lasting_routes()

    def remove_remote(self, node: RouterNode) -> None:
        """A router has withdrawn its consumers."""
        self.remotes.discard(node)
        self._forget_burdens()
        self._end_lasting_routes()

    def invalidate(self) -> None:
        """Make every holder of a route for this address ask again before the next delivery."""
        self._forget_burdens()
        self._end_lasting_routes()
        self.end_routes()

    def end_routes(self) -> None:
        """As `invalidate`, except for the routes to `everybody`, who are kept up to date."""
        for route in self.routes:
            self._close(route)
        self.routes.clear()
        self.known_receivers.clear()

    def _forget_burdens(self) -> None:
        """Another consumer may have the smallest burden now. Those that take turns are attached here anyway."""
        if self.treatment is not Treatment.CLOSEST:
            self.balance.forget()

    def _end_lasting_routes(self) -> None:
        self.everybody = self.everybody_key = None
        self._close_lasting_routes()

    def _close_lasting_routes(self) -> None:
        for route in self.lasting_routes:
            self._close(route)
        self.lasting_routes.clear()

    def follow(self, receivers: Receivers, key: object) -> None:
        """Keep these receivers, who are all consumers, up to date: routes to them last while consumers come and go."""
        self._end_lasting_routes()
        self.everybody, self.everybody_key = receivers, key

    def hold(self, route: Route) -> None:
        """Make a route invalid when something about the address changes."""
        route.owner = self
        lasts = self.everybody is not None and route.receivers is self.everybody
        (self.lasting_routes if lasts else self.routes).add(route)

    def retire(self, route: Route) -> None:
        """The holder of this route is gone."""
        for routes in (self.routes, self.lasting_routes):
            if route in routes and not route.shared:
                routes.discard(route)
                self._close(route)

    def _close(self, route: Route) -> None:
        self.ingress_closed += route.ingress
        self.transit_closed += route.transit
        self.handled_closed += route.handled
        route.end()

    def link_gone(self, link: Link) -> None:
        """A link that was bound here is closed: its deliveries still count."""
        container = link.connection.role is Role.ROUTE_CONTAINER
        if link.incoming:
            self.container_ingress_closed += link.deliveries if container else 0
        else:
            self.egress_closed += link.deliveries
            self.container_egress_closed += link.deliveries if container else 0

    def __repr__(self) -> str:
        return f"<Address {self.key} {self.treatment.name.lower()}>"


class LinkRouteState(Protocol):
    """What the core asks of a link route (`linkroute.table.LinkRoute`)."""

    @property
    def in_use(self) -> bool:
        """Whether this router is told of it other than by routers of the network."""

    @property
    def offered(self) -> bool:
        """Whether its links find a container by way of this router."""

    @property
    def users(self) -> Iterator[Connection]:
        """Connections to containers that created it, and to edges that have a container for it."""

    def remotes_changed(self) -> None:
        """Routers of the network that have containers, or the ways to them, are others now."""


@dataclass(frozen=True, slots=True, eq=False)
class InProcessConsumer:
    """A consumer inside the router; `handle` gets the whole message without its annotation section."""

    for_all: bool = field(default=False, kw_only=True)
    """Other routers send here too; else an address such as `$management` means each router itself."""
    annotated: bool = field(default=False, kw_only=True)
    """`handle` gets the annotation section as well, if there is one."""
    most_bytes: int = field(default=0, kw_only=True)
    """Of a message (0: any that the router collects). Larger ones are rejected."""
    from_uplink: ClassVar[bool] = False
    handle: Callable[[bytes, Link | None], None]

    def start(self, skip: int) -> int:
        """Where what `handle` gets starts in a message with an annotation section of `skip` bytes."""
        return 0 if self.annotated else skip

    def takes_from(self, origin: Link | None) -> bool:
        """It gets all that is sent here."""
        return True


@dataclass(frozen=True, slots=True, eq=False)
class SettlingConsumer:
    """A consumer inside the router, for the whole network, that says later what becomes of a delivery.

    Receivers of its address get nothing but what it sends them (`Port.deliver`).
    """

    take: Callable[[bytes, Link | None, object | None], bool]
    """Gets the whole message without its annotation section, where it came in (None: it originates in this router),
    and what to give to `Port.settle` (None: it is pre-settled). Whether it takes more at once: if not, the link is not
    read before `Port.read_on`."""
    most_bytes: int
    """Of a message, as senders are told when they attach (0: any); it checks what others send."""
    from_uplink: bool = field(default=False, kw_only=True)
    """On an edge: only what comes from the interior. What clients send goes there, and to nobody here."""
    for_all: ClassVar[bool] = True

    def takes_from(self, origin: Link | None) -> bool:
        """Whether it is the one that gets what comes from there."""
        return not self.from_uplink or (origin is not None and origin.connection.role is Role.EDGE)
