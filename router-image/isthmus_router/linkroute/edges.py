"""What an edge and its interior tell each other of link routes, each of those that it knows not from the other.

The edge attaches two links to a reserved address, one for each direction. On either, all is told that there is to
tell, then an empty list, then what changes. The interior tells of every link route that it knows, and whether there is
a container for it: so an edge decides by itself, at once, what becomes of an attach, and refuses what is without a
container, also while it has no uplink. The edge tells of those that it has containers for.

Both ends are Isthmus routers; they see by an offered capability whether the other one takes part. A message is short,
and read in one event. Everything that concerns many link routes is done in steps between other work: a peer may have
100,000 of them. So routing may find an edge whose connection has ended; it does not use it.
Sans-IO; a link handler and an observer of the core. Source: docs/link-routes.md; qpid-dispatch has edges ask for each
address instead.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator

from isthmus_router.core.address import normalise
from isthmus_router.core.mesh import MOST_CONNECTIONS
from isthmus_router.core.model import MOST_UNREAD_BYTES, Connection, Link
from isthmus_router.core.port import CallLater, SessionClass
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import CAPABILITY_LINK_ROUTES, Condition, Direction, LinkType, Terminus
from isthmus_router.linkroute.messages import (
    AT_ONCE,
    CHARACTERS_AT_ONCE,
    LINK_ROUTES_ADDRESS,
    LONGEST_KEY,
    LinkRouteMessageError,
    LinkRouteNews,
    decode_link_routes,
    encode_link_routes,
)
from isthmus_router.linkroute.routing import LinkRouting
from isthmus_router.linkroute.table import LinkRoute

log = logging.getLogger("ROUTER_CORE")

CREDIT = 100
UNREAD_ALLOWANCE = 10_000
"""Messages; a peer that has not read so many loses the link, and is told everything afresh on a new one."""
MOST_ROUTES = 100_000
"""What one peer may tell of; more are ignored. An edge may tell its interior of as many as are left for others. Those
that it has containers for count as addresses of its client as well (`core.claims`)."""
MOST_ROUTES_OF_ALL = 200_000
"""Which a router knows of, when edges tell of further ones; it may announce as many to the network."""
MOST_CHARACTERS, MOST_CHARACTERS_OF_ALL = 2**24, 2**26
"""In the keys of those of one peer, and of all peers."""
MOST_NEWS = 10_000
"""Changed link routes that wait until peers are told of them. When there are more, peers are told of all that differs
from what they know: a peer may tell of new link routes faster than hundreds of others can be told."""
REPAIR_SECONDS = 5.0

WRONG_PEER = Condition("qd:connection-role", "Connection does not support link routes of edges")
TWICE = Condition("amqp:not-allowed", "There is such a link on this connection")
TOO_MANY = Condition(
    "amqp:resource-limit-exceeded",
    f"An edge may send its link routes on at most {MOST_CONNECTIONS} connections",
)
NOT_READ = Condition("amqp:resource-limit-exceeded", "Too many messages about link routes are not read")


class Exchange:
    """What is told and heard on one edge connection."""

    __slots__ = ("characters", "complete", "connection", "full", "heard", "hears", "tells", "told")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.tells: Link | None = None
        self.hears: Link | None = None
        self.told: dict[str, bool] = {}
        """What the peer knows from here, by key."""
        self.heard: dict[LinkRoute, None] = {}
        """What the peer has told of."""
        self.characters = 0
        """In the keys of these."""
        self.complete = False
        """Whether that is all that it had to tell."""
        self.full = False
        """Whether it has told of a link route for which there was no room."""


class EdgeLinkRoutes:
    """The exchanges of one router: with its edges, or with its interiors."""

    def __init__(self, core: RouterCore, routing: LinkRouting, call_later: CallLater) -> None:
        self.core = core
        self.exchanges: dict[Connection, Exchange] = {}
        self._of_id: dict[str, dict[Exchange, None]] = {}
        """By the id of the edge, or of the interior."""
        self._routing = routing
        self._call_later = call_later
        self._uplink: Connection | None = None
        self._characters = 0
        """In the keys of all that peers have told of, what is not forgotten yet included."""
        self._leaving: dict[Connection, dict[LinkRoute, bool]] = {}
        """Link routes of which the peer has told, and that are forgotten in steps; True: they are still known."""
        self._news: dict[str, None] = {}
        """Keys of link routes that have changed and that no message to all peers has been about since."""
        self._news_of_all = False
        """Whether any link route may be one of these."""
        self._tells_news = False
        self.ignored: Counter[str] = Counter()
        """Link routes that peers have told of, by why they were not stored; whole messages count as one."""
        self._warned = False
        """Of messages that are invalid: once is enough."""
        routing.changed = self._changed
        core.link_handlers.insert(0, self._take_link)
        core.observers.append(self)

    # The links

    def use(self, uplink: Connection) -> None:
        """On an edge: this connection is the uplink from now on."""
        self._uplink = uplink
        if CAPABILITY_LINK_ROUTES not in uplink.offered_capabilities:
            return
        exchange = self._exchange(uplink)
        if exchange.hears is None:
            exchange.hears = self._open(uplink, Direction.IN)
            exchange.hears.on_delivery = self._on_message
        if exchange.tells is None:
            self._tell_all(exchange, self._open(uplink, Direction.OUT))

    def _open(self, uplink: Connection, direction: Direction) -> Link:
        terminus = Terminus(LINK_ROUTES_ADDRESS)
        incoming = direction is Direction.IN
        link = self.core.port.open_link(
            uplink,
            direction,
            link_type=LinkType.ENDPOINT,
            source=terminus if incoming else Terminus(),
            target=Terminus() if incoming else terminus,
            session=SessionClass.EDGE_CORE,
            capacity=CREDIT if incoming else None,
        )
        link.proxy = True
        link.note_standing()
        return link

    def _take_link(self, link: Link) -> bool:
        terminus = link.target if link.incoming else link.source
        if terminus.address is None or normalise(terminus.address) != LINK_ROUTES_ADDRESS:
            return False
        connection = link.connection
        if connection.role is not Role.EDGE or self.core.edge:
            self.core.refuse(link, WRONG_PEER)
            return True
        if not self._has_connection_left(connection):
            self.core.refuse(link, TOO_MANY)
            return True
        exchange = self._exchange(connection)
        if (exchange.hears if link.incoming else exchange.tells) is not None:
            self.core.refuse(link, TWICE)
            return True
        if link.incoming:
            self._forget(exchange, kept=False)
            exchange.hears = link
            link.set_capacity(CREDIT)
            link.on_delivery = self._on_message
            self.core.port.accept_link(link, link.source, link.target)
            if connection not in self._leaving:  # otherwise when all of it is forgotten
                self.core.port.top_up(link)
        else:
            self.core.port.accept_link(link, link.source, link.target)
            self._tell_all(exchange, link)
        return True

    def _has_connection_left(self, connection: Connection) -> bool:
        """Whether the edge may tell of its link routes on this connection as well: its user has a bounded number."""
        if connection in self.exchanges:
            return True
        others = self._of_id.get(connection.container, {})
        return sum(other.connection.user == connection.user for other in others) < MOST_CONNECTIONS

    def _exchange(self, connection: Connection) -> Exchange:
        exchange = self.exchanges.get(connection)
        if exchange is None:
            exchange = self.exchanges[connection] = Exchange(connection)
            self._of_id.setdefault(connection.container, {})[exchange] = None
        return exchange

    def _remove(self, exchange: Exchange) -> None:
        del self.exchanges[exchange.connection]
        same_id = self._of_id[exchange.connection.container]
        del same_id[exchange]
        if not same_id:
            del self._of_id[exchange.connection.container]

    # Telling

    def _tell_all(self, exchange: Exchange, link: Link) -> None:
        exchange.tells = link
        exchange.told.clear()
        self.core.port.work(self._tell_all_in_steps(exchange, link))

    def _tell_all_in_steps(self, exchange: Exchange, link: Link) -> Iterator[None]:
        """Send all link routes that are known now. Later changes follow in messages of their own."""
        if exchange.tells is link:
            for keys in _messages(list(self._routing.table.all)):
                self._tell(exchange, keys)
                yield
                if exchange.tells is not link:
                    return
            self._send(exchange, ())

    def _changed(self, route: LinkRoute) -> None:
        self._news[route.key] = None
        if len(self._news) > MOST_NEWS:
            self._news.clear()
            self._news_of_all = True
        if not self._tells_news:
            self._tells_news = True
            self.core.port.work(self._tell_news())

    def _tell_news(self) -> Iterator[None]:
        """Tell all peers of what has changed, until nothing more has."""
        try:
            while self._news or self._news_of_all:
                if self._news_of_all:
                    self._news_of_all = False
                    yield from self._tell_differences()
                news, self._news = self._news, {}
                for keys in _messages(news):
                    for exchange in list(self.exchanges.values()):
                        if exchange.tells is not None:
                            self._tell(exchange, keys)
                            yield
        finally:
            self._tells_news = False

    def _tell_differences(self) -> Iterator[None]:
        """Tell all peers of what they do not know as it is now, what they know and is not there any more included."""
        for exchange in list(self.exchanges.values()):
            for keys in _messages([*self._routing.table.all, *exchange.told]):
                if exchange.tells is None:
                    break  # a new link begins with all link routes
                self._tell(exchange, keys)
                yield

    def _tell(self, exchange: Exchange, keys: Iterable[str]) -> None:
        """Tell the peer of these link routes, as far as it does not know them as they are now."""
        news: list[tuple[str, bool | None]] = []
        for key in keys:
            route = self._routing.table.all.get(key)
            known = route is not None and len(key) <= LONGEST_KEY
            state = self._state_for(exchange, route) if route is not None and known else None
            if state is exchange.told.get(key):
                continue
            if state is None:
                del exchange.told[key]
            else:
                exchange.told[key] = state
            news.append((key, state))
        if news:
            self._send(exchange, news)

    def _state_for(self, exchange: Exchange, route: LinkRoute) -> bool | None:
        """Whether there is a container, for all that the peer has not said itself; None: nothing is known."""
        if route.reachable_beside(exchange.connection):
            return True
        return False if not self.core.edge and route.known_beside(exchange.connection) else None

    def _send(self, exchange: Exchange, news: Iterable[tuple[str, bool | None]]) -> None:
        link = exchange.tells
        if link is None:
            return
        if link.load() > UNREAD_ALLOWANCE or link.parked_bytes > MOST_UNREAD_BYTES:
            log.warning("link routes are not read", extra={"connection": link.connection.id})
            self.core.port.detach_link(link, NOT_READ)
            return
        self.core.port.send(link, encode_link_routes(news), settled=False)

    # Hearing

    def _on_message(self, link: Link, payload: bytes) -> None:
        exchange = self.exchanges.get(link.connection)
        if exchange is None or exchange.hears is not link:
            return
        try:
            news = decode_link_routes(payload)
        except LinkRouteMessageError as error:
            self._invalid(link, str(error))
            return
        for item in news:
            if item is not None:
                self._hear(exchange, item)
            else:
                self._invalid(link, "not the key of a link route and whether there is a container for it")
        if not news and not exchange.complete:
            exchange.complete = True
            if self.core.edge:
                self._forget_others(exchange)
            else:
                self._forget_former(exchange)

    def _invalid(self, link: Link, reason: str) -> None:
        self.ignored["invalid"] += 1
        if not self._warned:
            self._warned = True
            details = {"connection": link.connection.id, "reason": reason}
            log.warning("message about link routes ignored", extra=details)

    def _hear(self, exchange: Exchange, item: LinkRouteNews) -> None:
        table, connection = self._routing.table, exchange.connection
        if item.reachable is None:
            route = table.all.get(item.key)
            if route is not None and connection in route.routers:
                self._unhear(exchange, route)
                del route.routers[connection]
                self.core.claims.removed(connection, route.address)
                self._routing.route_changed(route)
        elif not self._has_room(exchange, item.key):
            self._ignore(exchange)
        else:
            route = table.by_key(item.key)
            if item.reachable and self.core.claims.refusal(connection, route.address) is not None:
                self.core.addresses.forget_if_unused(route.address)
                self._ignore(exchange)
                return
            self._unhear(exchange, route)
            exchange.heard[route] = None
            exchange.characters += len(item.key)
            self._characters += len(item.key)
            route.routers[connection] = item.reachable
            if item.reachable:
                self.core.claims.added(connection, route.address)
            else:
                self.core.claims.removed(connection, route.address)
            self._routing.route_changed(route)

    def _ignore(self, exchange: Exchange) -> None:
        """The peer has told of a link route for which there is no room."""
        self.ignored["no-room"] += 1
        if not exchange.full:
            exchange.full = True
            log.warning("no room for link routes", extra={"connection": exchange.connection.id})

    def _unhear(self, exchange: Exchange, route: LinkRoute) -> None:
        """What the peer has told of a link route no longer counts, now or before."""
        if route in exchange.heard:
            del exchange.heard[route]
            exchange.characters -= len(route.key)
        elif self._leaving.get(exchange.connection, {}).pop(route, None) is None:
            return
        self._characters -= len(route.key)

    def _has_room(self, exchange: Exchange, key: str) -> bool:
        """Whether the peer may tell of a link route; of what it has told of, always."""
        route = self._routing.table.all.get(key)
        if route is not None and route in exchange.heard:
            return True
        return (
            len(exchange.heard) < MOST_ROUTES
            and (route is not None or self._has_share(exchange))
            and exchange.characters + len(key) <= MOST_CHARACTERS
            and self._characters + len(key) <= MOST_CHARACTERS_OF_ALL
        )

    def _has_share(self, exchange: Exchange) -> bool:
        """Whether there is room for a link route that nobody else has told of."""
        free = MOST_ROUTES_OF_ALL - len(self._routing.table.all)
        return free > (0 if self.core.edge else len(exchange.heard))

    def _forget_others(self, exchange: Exchange) -> None:
        """The uplink has told all: what others have told before no longer counts."""
        self.core.port.work(self._forget_unreachable(exchange))
        for other in [other for other in self.exchanges.values() if other is not exchange]:
            self._forget(other, kept=False)
            for link in (other.tells, other.hears):
                if link is not None:
                    self.core.port.detach_link(link)

    def _forget_unreachable(self, exchange: Exchange) -> Iterator[None]:
        """Those link routes that are known from an earlier uplink only; as long as this one has told all."""
        for route in list(self._routing.table.all.values()):
            if not exchange.complete:
                return
            if route.routers.pop(None, None) is not None:
                self._routing.route_changed(route)
            yield

    def _forget_former(self, exchange: Exchange) -> None:
        """The edge has told all on a new connection: what it told on others, and is over there, no longer counts."""
        for other in [other for other in self._of_same_edge(exchange) if other.hears is None]:
            self._forget(other, kept=False)
            self._drop(other)

    def _of_same_edge(self, exchange: Exchange) -> Iterator[Exchange]:
        """Its exchanges on other connections. Routers that tell of link routes prove their mesh when they connect."""
        for other in self._of_id.get(exchange.connection.container, ()):
            if other is not exchange and other.connection.is_of_same_edge(exchange.connection):
                yield other

    def _is_followed(self, exchange: Exchange) -> bool:
        """On an interior: whether the edge is about to tell all on another connection. Till then this one leads there:
        what arrives first, the end here or the news there, is chance."""
        return not self.core.edge and any(
            other.connection.id > exchange.connection.id and not other.complete
            for other in self._of_same_edge(exchange)
        )

    def _drop(self, exchange: Exchange) -> None:
        if exchange.hears is None and exchange.tells is None and not exchange.heard:
            self._remove(exchange)

    def _forget(self, exchange: Exchange, *, kept: bool) -> None:
        """What the peer has told no longer holds. `kept`: that there are such link routes still counts."""
        heard, exchange.heard = exchange.heard, {}
        exchange.characters = 0
        connection = exchange.connection
        if connection in self._leaving:
            self._leaving[connection].update(dict.fromkeys(heard, kept))
        elif heard:
            self._leaving[connection] = dict.fromkeys(heard, kept)
            self.core.port.work(self._forget_in_steps(connection))

    def _forget_in_steps(self, connection: Connection) -> Iterator[None]:
        leaving = self._leaving[connection]
        while leaving:
            route, kept = leaving.popitem()
            self._characters -= len(route.key)
            route.routers.pop(connection, None)
            self.core.claims.removed(connection, route.address)
            if kept and not route.routers and not self._is_complete:
                route.routers[None] = False
            self._routing.route_changed(route)
            yield
        del self._leaving[connection]
        exchange = self.exchanges.get(connection)
        if exchange is not None and exchange.hears is not None:
            self.core.port.top_up(exchange.hears)

    @property
    def _is_complete(self) -> bool:
        """On an edge: whether the uplink has told all."""
        exchange = self.exchanges.get(self._uplink) if self._uplink is not None else None
        return exchange is not None and exchange.complete

    # Observer of the core

    def link_unbound(self, link: Link) -> None:
        """A link of an exchange is gone, by itself or with its connection."""
        exchange = self.exchanges.get(link.connection)
        if exchange is None:
            return
        if link is exchange.hears:
            exchange.hears = None
            exchange.complete = False
            if not self._is_followed(exchange):
                self._forget(exchange, kept=self.core.edge and self._uplink is exchange.connection)
        elif link is exchange.tells:
            exchange.tells = None
        else:
            return
        self._drop(exchange)
        if self.core.edge:
            self._call_later(REPAIR_SECONDS, lambda: self._repair(link.connection))

    def _repair(self, connection: Connection) -> None:
        if connection is self._uplink and not connection.leaving:
            self.use(connection)

    def connection_opened(self, connection: Connection) -> None:
        """Observer interface: the edge attaches the links on its uplink."""

    def connection_closed(self, connection: Connection) -> None:
        """Observer interface: every link was unbound before; what was left until the edge tells it anew is not there
        any more."""
        exchange = self.exchanges.get(connection)
        if exchange is not None:
            self._remove(exchange)
            self._forget(exchange, kept=False)

    def link_bound(self, link: Link) -> None:
        """Observer interface: nothing to do."""

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        """Observer interface: nothing to do."""


def _messages(keys: Iterable[str]) -> Iterator[list[str]]:
    """The keys of which one message after the other tells."""
    some: list[str] = []
    characters = 0
    for key in keys:
        if some and (len(some) == AT_ONCE or characters + len(key) > CHARACTERS_AT_ONCE):
            yield some
            some, characters = [], 0
        some.append(key)
        characters += len(key)
    if some:
        yield some
