"""A network of routers in memory whose links are routed, with the clients and containers at its ends.

Each connection has a queue per direction: nothing is lost or reordered within one, as with TCP, but tests decide which
queue moves next, when connections break, and how much of what was under way still arrives. What passes along the
links is passed on by the simplest of kernels; the real one has its own tests.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from tests.unit.linkroute.peers import ABSENT, IN, OUT, End, Peer, PeerLink

from isthmus_router.config.model import LinkRouteConfig, LinkRouteDirection
from isthmus_router.core.address import LINK_ROUTES, Address
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.nodes import Hop
from isthmus_router.core.port import SessionClass
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import CAPABILITY_LINK_ROUTES, Condition, Direction, LinkType, Terminus
from isthmus_router.core.treatment import Treatment
from isthmus_router.linkroute.edges import EdgeLinkRoutes
from isthmus_router.linkroute.routing import LinkRouting


def section(prefix: str | None = "b2", direction: str = "both", **values: str | None) -> LinkRouteConfig:
    """A `linkRoute` section."""
    settings: dict[str, Any] = {
        "name": None,
        "pattern": None,
        "container_id": None,
        "connection": None,
        "distribution": "linkBalanced",
        "add_external_prefix": None,
        "del_external_prefix": None,
        **values,
    }
    return LinkRouteConfig(prefix=prefix, direction=LinkRouteDirection(direction), **settings)


FULL = Condition("amqp:resource-limit-exceeded", "no room")


class MemoryPort:
    """What one core asks of its driver about links."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def route_link(
        self, link: Link, connection: Connection, name: str, address: str | None
    ) -> Link | Condition:
        router = self._router
        end = router.ends[connection]
        if router.full is not None:
            router.tried.append(connection)
            if router.full(end.other):
                return FULL
        source, target = link.source, link.target
        if address is not None and link.incoming:
            target = replace(target, address=address)
        elif address is not None:
            source = replace(source, address=address)
        far = router.link(end, OUT if link.incoming else IN, name, source, target)
        far.partner, link.partner = link, far
        end.send("attach", far.io[1], name, link.direction, source, target)
        return far

    def answer_routed(self, link: Link, address: str | None) -> None:
        assert link.partner is not None
        source, target = link.partner.source, link.partner.target
        if address is not None and link.incoming:
            target = replace(target, address=address)
        elif address is not None:
            source = replace(source, address=address)
        self.accept_link(link, source, target)

    def accept_link(self, link: Link, source: Terminus, target: Terminus) -> None:
        assert link not in self._router.answered, "a link is attached once"
        self._router.answered.add(link)
        end, number = link.io
        end.send("answer", number, source, target)

    def detach_routed(self, link: Link, condition: Condition | None, *, closed: bool) -> None:
        router = self._router
        assert link in link.connection.links
        assert link not in router.told, "a link is detached once"
        router.told.add(link)
        if link.by_peer and link not in router.answered:
            self.accept_link(link, ABSENT, ABSENT)
        end, number = link.io
        end.send("detach", number, condition, closed)

    def end_routed(self, link: Link) -> None:
        assert link in self._router.told & self._router.heard, "both ends have to say so"
        self._router.forget(link)

    def open_link(
        self,
        connection: Connection,
        direction: Direction,
        *,
        link_type: LinkType,
        source: Terminus,
        target: Terminus,
        session: SessionClass,
        capacity: int | None = None,
    ) -> Link:
        end = self._router.ends[connection]
        link = self._router.link(end, direction, f"own.{next(self._router.network.numbers)}", source, target)
        link.routed = False
        end.send("attach", link.io[1], link.name, OUT if direction is IN else IN, source, target)
        return link

    def send(self, link: Link, payload: bytes, *, settled: bool) -> None:
        end, number = link.io
        end.send("message", number, payload)

    def refuse_link(self, link: Link, condition: Condition) -> None:
        end, number = link.io
        del end.links[number]
        end.send("answer", number, ABSENT, ABSENT)
        end.send("detach", number, condition, True)

    def detach_link(self, link: Link, condition: Condition | None = None) -> None:
        end, number = link.io
        end.send("detach", number, condition, True)
        self._router.forget(link)

    def work(self, job: Iterator[None]) -> None:
        self._router.network.jobs.append(job)

    def top_up(self, link: Link) -> None:
        """Links that are not routed have no credit here."""

    def drain(self, link: Link) -> None:
        """Links that are not routed have no credit here."""


class Router:
    """A core with link routing, as its driver runs it."""

    def __init__(
        self, network: Network, router_id: str, sections: Iterable[LinkRouteConfig], *, edge: bool = False
    ) -> None:
        self.network = network
        self.ends: dict[Connection, End] = {}
        self.hops: dict[str, Hop] = {}
        self.told: set[Link] = set()
        self.heard: set[Link] = set()
        self.answered: set[Link] = set()
        self.full: Callable[[End], bool] | None = None
        """Whether the peer at an end allows no more links; None: all of them do."""
        self.tried: list[Connection] = []
        """Connections on which links were to be attached, while some peers are full."""
        self.known: set[str] = set()
        """Keys of link routes that the network has been told of."""
        self.core = RouterCore(router_id, edge=edge)
        self.core.attach_port(MemoryPort(self))  # type: ignore[arg-type]
        if not edge:
            self.core.advertised = self._advertised
        self.core.radius = 10
        self.routing = LinkRouting(self.core, lambda: 0.0, lambda *_: None)
        self.exchange = EdgeLinkRoutes(self.core, self.routing, network.call_later)
        self.routing.configure(sections)

    def link(self, end: End, direction: Direction, name: str, source: Terminus, target: Terminus) -> Link:
        """A link that this router attaches."""
        assert end.connection is not None
        assert end.connection.id in self.core.connections, "attached on a connection that is gone"
        number = next(self.network.numbers)
        link = Link(number, end.connection, direction, name, source=source, target=target, io=(end, number))
        link.routed = True
        end.links[number] = link
        end.connection.links.add(link)
        return link

    @property
    def uplinks(self) -> list[Connection]:
        """Of an edge."""
        return [connection for connection in self.ends if connection.role is Role.EDGE]

    def _advertised(self, address: Address) -> None:
        there = self.core.has_local_consumers(address)
        if address.key[0] in LINK_ROUTES and there != (address.key in self.known):
            (self.known.add if there else self.known.remove)(address.key)
            for other in self.network.routers.values():
                if other is not self and not other.core.edge:
                    self.network.news.setdefault((self, other), deque()).append((address.key, there))

    # What the driver would report

    def opened(self, end: End) -> None:
        """Both sides have opened."""
        assert end.connection is not None
        self.ends[end.connection] = end
        if end.connection.role is Role.INTER_ROUTER:
            assert isinstance(end.other.node, Router)
            name = end.other.node.core.id
            self.hops[name] = Hop(end.connection.id, end.connection)
            self.hops[name].neighbour = name
        self.core.connection_opened(end.connection)
        if end.connection.role is Role.EDGE and self.core.edge:
            self.exchange.use(end.connection)

    def lost(self, end: End) -> None:
        """The connection is gone."""
        assert end.connection is not None
        for link in list(end.links.values()):
            self.forget(link)
        self.core.connection_closed(end.connection)
        del self.ends[end.connection]
        for name, hop in list(self.hops.items()):
            if hop.connection is end.connection:
                del self.hops[name]
        for node in self.core.nodes.values():
            if node.hop is not None and node.hop.connection is end.connection:
                node.hop = None
        self.core.remotes.paths_changed()

    def forget(self, link: Link) -> None:
        """A link is gone on the wire."""
        end, number = link.io
        del end.links[number]
        if link.partner is not None:
            link.partner.partner = link.partner = None
        self.core.link_closed(link)

    def on_attach(
        self, end: End, number: int, name: str, direction: Direction, source: Terminus, target: Terminus
    ) -> None:
        """The peer attaches a link: `direction` as this end sees it."""
        assert end.connection is not None
        names = {(link.direction, link.name) for link in end.links.values()}
        assert (direction, name) not in names, "the name of a link is that of no other one"
        link = Link(number, end.connection, direction, name, source=source, target=target, io=(end, number))
        link.by_peer = True
        end.links[number] = link
        self.core.link_attached(link)

    def on_answer(self, end: End, number: int, source: Terminus, target: Terminus) -> None:
        link = end.links.get(number)
        if link is not None:
            link.source, link.target = source, target
            if link.on_answered is not None:
                link.on_answered(link)

    def on_message(self, end: End, number: int, payload: bytes) -> None:
        """On a link of the exchange about link routes."""
        link = end.links.get(number)
        if link is not None:
            link.on_delivery(link, payload)

    def on_detach(self, end: End, number: int, condition: Condition | None, closed: bool) -> None:
        link = end.links.get(number)
        if link is None:
            return
        self.heard.add(link)
        if link.on_detached is not None:
            link.on_detached(link, condition, closed)
        else:
            end.send("detach", number, None, closed)
            self.forget(link)

    def _pass_on(self, end: End, what: str, number: int, *details: Any) -> None:
        link = end.links.get(number)
        if link is not None and link.partner is not None and link.partner not in self.told:
            beyond, there = link.partner.io
            beyond.send(what, there, *details)

    def on_flow(self, end: End, *details: Any) -> None:
        self._pass_on(end, "flow", *details)

    def on_transfer(self, end: End, *details: Any) -> None:
        self._pass_on(end, "transfer", *details)

    def on_settle(self, end: End, *details: Any) -> None:
        self._pass_on(end, "settle", *details)


class Network:
    """Routers, peers and the connections between them."""

    def __init__(
        self, routers: Iterable[str], sections: Iterable[LinkRouteConfig], *, edges: Iterable[str] = ()
    ) -> None:
        self.numbers: Iterator[int] = itertools.count(1)
        self.sections = tuple(sections)
        self.ends: list[End] = []
        self.news: dict[tuple[Router, Router], deque[tuple[str, bool]]] = {}
        """What routers have told each other of link routes and is on its way."""
        self.jobs: deque[Iterator[None]] = deque()
        """Long pieces of work of all routers."""
        self.later: list[Callable[[], None]] = []
        self.routers: dict[str, Router] = {}
        for router_id in routers:
            self.routers[router_id] = Router(self, router_id, self.sections)
        for router in self.routers.values():
            for other in self.routers:
                if other != router.core.id:
                    router.core.remotes.node(other)
        for router_id in edges:
            self.routers[router_id] = Router(self, router_id, self.sections, edge=True)
        self.peers: list[Peer] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        """The timer service of the routers: what is left for later is done when all is at rest."""
        self.later.append(callback)

    def _join(self, near: End, far: End) -> None:
        near.other, far.other = far, near
        self.ends += [near, far]
        for end in (near, far):
            end.node.opened(end)

    def _connection(self, role: Role, container: str, endpoint: str) -> Connection:
        return Connection(
            next(self.numbers),
            role,
            incoming=True,
            name=container,
            container=container,
            endpoint=endpoint,
            offered_capabilities=frozenset({CAPABILITY_LINK_ROUTES} if role is Role.EDGE else ()),
            proven_mesh_id=self.routers[container].core.mesh_id if role is Role.EDGE else None,
        )

    def connect(self, one: str, other: str) -> None:
        """Join two routers, unless they are; an edge comes second."""
        near, far = self.routers[one], self.routers[other]
        if far.core.edge:
            if not far.uplinks:
                self.join_edge(one, other)
            return
        if other not in near.hops and one not in far.hops:
            self._join(
                End(near, self._connection(Role.INTER_ROUTER, other, "")),
                End(far, self._connection(Role.INTER_ROUTER, one, "")),
            )

    def join_edge(self, interior: str, edge: str) -> None:
        """One more uplink of an edge, which it uses from now on."""
        self._join(
            End(self.routers[interior], self._connection(Role.EDGE, edge, "")),
            End(self.routers[edge], self._connection(Role.EDGE, interior, "")),
        )

    def peer(self, router: str, name: str, *, container: bool = False, endpoint: str = "listener") -> Peer:
        """A client, or a container on a route-container connection."""
        peer = Peer(self, name, endpoint)
        role = Role.ROUTE_CONTAINER if container else Role.NORMAL
        node = self.routers[router]
        self._join(peer.end, End(node, self._connection(role, name, endpoint)))
        self.peers.append(peer)
        return peer

    def cut(self, end: End, arriving: int = 0) -> None:
        """Break a connection; each end still gets up to `arriving` of the frames under way, then the news."""
        for side in (end, end.other):
            if not side.broken:
                while len(side.inbox) > arriving:
                    side.inbox.pop()
                side.inbox.append(("lost",))
                side.broken = True

    def step(self, end: End) -> None:
        """Let the next frame arrive."""
        what, *details = end.inbox.popleft()
        if what == "lost":
            self.ends.remove(end)
            end.inbox.clear()
            end.node.lost(end)
        else:
            getattr(end.node, f"on_{what}")(end, *details)

    def hear(self, way: tuple[Router, Router]) -> None:
        """Let the next word about a link route arrive."""
        teller, hearer = way
        key, there = self.news[way].popleft()
        node = hearer.core.remotes.node(teller.core.id)
        if there:
            hearer.core.remotes.add(node, key, Treatment.BALANCED)
        else:
            hearer.core.remotes.remove(node, key)

    def work_on(self) -> None:
        """Do the next step of some piece of work."""
        if self.jobs:
            job = self.jobs.popleft()
            for _ in job:
                self.jobs.append(job)
                break

    def find_paths(self, router: Router) -> None:
        """Have one router know the shortest paths."""
        ways: dict[str, tuple[Hop, int]] = {}
        waiting = deque((name, hop, 1) for name, hop in sorted(router.hops.items()))
        while waiting:
            name, hop, cost = waiting.popleft()
            if name in ways or name == router.core.id:
                continue
            ways[name] = hop, cost
            waiting += [(further, hop, cost + 1) for further in sorted(self.routers[name].hops)]
        before = [(node.hop, node.cost) for node in router.core.nodes.values()]
        for name, node in router.core.nodes.items():
            node.hop, node.cost = ways.get(name, (None, 0))
        if before != [(node.hop, node.cost) for node in router.core.nodes.values()]:
            router.core.remotes.paths_changed()

    def settle(self) -> None:
        """Let everything arrive, and everyone answer what is to be answered."""
        for router in self.routers.values():
            self.find_paths(router)
        for _ in range(20_000):
            busy = [end for end in self.ends if end.inbox]
            news = [way for way, queue in self.news.items() if queue]
            due = [peer for peer in self.peers if peer.due]
            self.work_on()
            if not (busy or news or due or self.jobs):
                if not self.later:
                    return
                later, self.later = self.later, []
                for callback in later:
                    callback()
            for end in busy:
                if end.inbox:
                    self.step(end)
            for way in news:
                self.hear(way)
            for peer in due:
                if peer.due:
                    peer.act()
            if any(end.broken for end in self.ends) or busy:
                for router in self.routers.values():
                    self.find_paths(router)
        raise AssertionError("the network does not come to rest")

    # Looking at it

    def beyond(self, link: PeerLink) -> PeerLink | None:
        """The other end of a routed link, if it can be reached along the halves in the routers."""
        end, number = link.end.other, link.number
        for _ in range(len(self.routers) + 1):
            if isinstance(end.node, Peer):
                found: PeerLink | None = end.links.get(number)
                return found
            half = end.links.get(number)
            if half is None or half.partner is None:
                return None
            own, number = half.partner.io
            end = own.other
        raise AssertionError("a link that goes in circles")

    def check(self) -> None:
        """What holds when all is at rest."""
        for router in self.routers.values():
            exchanges = router.exchange.exchanges.values()
            assert not router.exchange._leaving
            assert not router.exchange._news
            assert not router.exchange._news_of_all
            heard = [route for exchange in exchanges for route in exchange.heard]
            assert router.exchange._characters == sum(len(route.key) for route in heard)
            for key, route in router.routing.table.all.items():
                there = [peer for peer in route.routers if peer is not None]
                assert set(there) == {one.connection for one in exchanges if route in one.heard}
                for exchange in exchanges:
                    assert exchange.told.get(key) is router.exchange._state_for(exchange, route)
            routing = router.routing
            halves = [half for end in router.ends.values() for half in end.links.values() if half.on_detached]
            assert set(routing.routed) == set(halves)
            own = [
                link
                for exchange in router.exchange.exchanges.values()
                for link in (exchange.tells, exchange.hears)
            ]
            assert None not in own, "an exchange has both its links"
            for half in halves:
                routed = routing.routed[half]
                assert routed.chain.attached
                assert half.connection.id in router.core.connections
                assert half in half.connection.links
                assert half.partner is routed.link(routed.half(half).other)
            far = {routed.far: routed.declaration for routed in routing.routed.values()}
            names = routing._names
            assert names._used.keys() == {(link.connection, link.direction, link.name) for link in far}
            given = sum(numbers.bit_count() - 2 for numbers in names._numbers.values())
            assert given == sum(number > 0 for number in names._used.values())
            for entry in routing.sections.values():
                there = {link for links in entry.destinations.values() for link in links}
                assert there == {link for link, of in far.items() if of is entry}
                assert set(entry.destinations) == {
                    end.connection
                    for end in router.ends.values()
                    if end.connection is not None
                    and end.connection.role is Role.ROUTE_CONTAINER
                    and entry.takes(end.connection)
                }
            for other in self.routers.values():
                node = router.core.nodes.get(other.core.id)
                if node is not None and not other.core.edge:
                    told = {found.key for found in node.addresses if found.key[0] in LINK_ROUTES}
                    assert told == other.known
        for peer in self.peers:
            for link in peer.links if peer.open else ():
                assert link.answered, "every attach is answered"
                assert link.told == link.heard, "every detach is answered"
                if not link.attached or not _is_routed(link):
                    continue
                there = self.beyond(link)
                assert there is not None, "half a link"
                assert there.attached
                assert there.sends is not link.sends
                assert (there.credit, there.deliveries) == (link.credit, link.deliveries)
                assert set(there.unsettled) == set(link.unsettled)


def _is_routed(link: PeerLink) -> bool:
    half = link.end.other.links[link.number]
    return half.on_detached is not None
