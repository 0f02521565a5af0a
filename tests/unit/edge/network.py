"""A network of router cores in memory: edges and interiors whose frames wait in queues until a test moves them.

Each connection has a queue per direction. Nothing is lost or reordered within one, as with TCP, but tests decide
which queue moves next, when connections break, and how much of what was under way still arrives.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from isthmus_router.core.model import Connection, Link
from isthmus_router.core.port import SessionClass
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.routes import Route
from isthmus_router.core.terms import Condition, Direction, LinkType, Terminus
from isthmus_router.edge import EdgeSide, InteriorSide, install_edge, install_tracking

Frame = Callable[[], None]


@dataclass(eq=False)
class End:
    """One router's end of a connection; `inbox` is what the other end has sent."""

    router: Router
    connection: Connection
    inbox: deque[Frame] = field(default_factory=deque)
    other: End | None = None
    broken: bool = False

    def send(self, frame: Frame) -> None:
        """Queue a frame for the other end."""
        assert self.other is not None
        if not self.other.broken:
            self.other.inbox.append(frame)


class MemoryPort:
    """The port of one core: turns its commands into frames, and remembers what clients would see."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.credit: dict[Link, int] = {}
        """Credit of OUT links, as given by the peer; of clients' IN links, as given by this router."""
        self.granted: dict[Link, int] = {}
        """Outstanding credit of IN links between routers."""
        self.peers: dict[Link, Link] = {}
        self.refused: dict[Link, Condition] = {}
        self.opened: list[Link] = []
        self.detached: list[Link] = []
        self.handed_over: list[tuple[Link, Link]] = []

    def _end(self, link: Link) -> End | None:
        return self.router.ends.get(link.connection)

    def open_link(
        self,
        connection: Connection,
        direction: Direction,
        *,
        link_type: LinkType,
        source: Terminus,
        target: Terminus,
        session: SessionClass,
        priority: int = 4,
        capacity: int | None = None,
    ) -> Link:
        end = self.router.ends[connection]
        assert connection.id in self.router.core.connections, "link opened on a connection that is not open"
        assert not connection.leaving, "link opened on a connection that has ended"
        link = self.router.network.link(connection, direction, source, target)
        link.type = link_type
        if capacity is not None:
            link.set_capacity(capacity)
        connection.links.add(link)
        self.opened.append(link)
        end.send(lambda: self._attach_at_peer(end, link))
        if direction is Direction.IN:
            self.granted[link] = 0
            self.top_up(link)
        else:
            self.credit[link] = 0
        return link

    def _attach_at_peer(self, end: End, link: Link) -> None:
        assert end.other is not None
        there = end.other.router
        mirrored = Direction.IN if link.direction is Direction.OUT else Direction.OUT
        peer = there.network.link(end.other.connection, mirrored, link.source, link.target)
        self.peers[link] = peer
        there.port.peers[peer] = link
        (there.port.credit if mirrored is Direction.OUT else there.port.granted)[peer] = 0
        there.core.link_attached(peer)

    def accept_link(self, link: Link, source: Terminus, target: Terminus) -> None:
        end = self._end(link)
        if end is None:
            self.credit.setdefault(link, 0)
        else:
            end.send(lambda: self._answered_at_peer(link))

    def _answered_at_peer(self, link: Link) -> None:
        peer = self.peers[link]
        if peer in peer.connection.links and peer.on_answered is not None:
            peer.on_answered(peer)

    def refuse_link(self, link: Link, condition: Condition) -> None:
        self.refused[link] = condition
        end = self._end(link)
        if end is not None:
            end.send(lambda: self._close_at_peer(link, condition))

    def detach_link(self, link: Link, condition: Condition | None = None) -> None:
        assert link in link.connection.links
        self.detached.append(link)
        end = self._end(link)
        if end is not None:
            end.send(lambda: self._close_at_peer(link, condition))
        link.unsettled.clear()
        link.parked.clear()
        self.router.core.link_closed(link)

    def _close_at_peer(self, link: Link, condition: Condition | None) -> None:
        peer = self.peers[link]
        if peer not in peer.connection.links:
            return
        if condition is not None and peer.on_refused is not None:
            peer.on_refused(peer, condition)
        peer.connection.io.close_link(peer)

    def top_up(self, link: Link) -> None:
        end = self._end(link)
        if end is None:
            self.credit[link] = link.capacity
            return
        more = link.capacity - self.granted[link]
        self.granted[link] += more
        end.send(lambda: self._flow_at_peer(link, more))

    def _flow_at_peer(self, link: Link, more: int) -> None:
        peer = self.peers[link]
        there = peer.connection.io.port
        if peer in peer.connection.links:
            there.credit[peer] += more
            there.unpark(peer)

    def drain(self, link: Link) -> None:
        end = self._end(link)
        if end is None:
            self.credit[link] = 0
            return
        end.send(lambda: self._drain_at_peer(link))

    def _drain_at_peer(self, link: Link) -> None:
        peer = self.peers[link]
        there = peer.connection.io.port
        if peer not in peer.connection.links:
            return
        given_back = there.credit[peer]
        there.credit[peer] = 0

        def drained() -> None:
            self.granted[link] -= given_back

        there.router.ends[peer.connection].send(drained)

    def has_credit(self, link: Link) -> bool:
        return self.granted[link] > 0

    def release_parked(self, link: Link) -> None:
        link.parked.clear()

    def hand_over(self, pairs: Sequence[tuple[Link, Link]]) -> None:
        for old, new in pairs:
            new.parked.extendleft(reversed(old.parked))
            old.parked.clear()
            if new.parked:
                self.unpark(new)
            self.handed_over.append((old, new))

    def send(self, link: Link, payload: bytes, *, settled: bool) -> None:
        link.parked.append(payload)
        self.unpark(link)

    def unpark(self, link: Link) -> None:
        """Send what waits, as far as credit goes. Router messages are all unsettled here."""
        end = self._end(link)
        assert end is not None
        while link.parked and self.credit[link] > 0:
            payload = link.parked.popleft()
            self.credit[link] -= 1
            number = next(self.router.network.numbers)
            link.unsettled[number] = payload
            end.send(lambda payload=payload, number=number: self._transfer_at_peer(link, payload, number))

    def _transfer_at_peer(self, link: Link, payload: bytes, number: int) -> None:
        peer = self.peers[link]
        there: MemoryPort = peer.connection.io.port
        if peer not in peer.connection.links:
            return
        there.granted[peer] -= 1
        back = there.router.ends[peer.connection]
        back.send(lambda: link.unsettled.pop(number, None))
        there.top_up(peer)
        assert peer.on_delivery is not None
        peer.on_delivery(peer, payload)

    def work(self, job: Iterator[None]) -> None:
        self.router.network.jobs.append(job)

    def forward(self, route: Route, payload: bytes, *, priority: int) -> None:
        raise AssertionError("no router messages are forwarded here")

    def close_connection(self, connection: Connection, condition: Condition | None) -> None:
        raise AssertionError("no connection is closed by the edge systems")


class Router:
    """A core with its port, the systems under test, and one connection for its clients."""

    def __init__(self, network: Network, router_id: str, *, edge: bool) -> None:
        self.network = network
        self.core = RouterCore(router_id, edge=edge)
        self.port = MemoryPort(self)
        self.core.attach_port(self.port)
        self.ends: dict[Connection, End] = {}
        self.edge: EdgeSide | None = install_edge(self.core, network.call_later) if edge else None
        self.interior: InteriorSide | None = None if edge else install_tracking(self.core, network.call_later)
        self.clients = Connection(next(network.numbers), Role.NORMAL, incoming=True, name="client", io=self)
        self.core.connection_opened(self.clients)

    def attach(self, direction: Direction, address: str | None, connection: Connection | None = None) -> Link:
        """A client attaches a link: IN when it sends, OUT when it receives."""
        terminus = Terminus(address)
        source, target = (Terminus(), terminus) if direction is Direction.IN else (terminus, Terminus())
        link = self.network.link(connection or self.clients, direction, source, target)
        self.core.link_attached(link)
        return link

    def close_link(self, link: Link) -> None:
        """A link is gone on the wire."""
        link.unsettled.clear()
        link.parked.clear()
        self.core.link_closed(link)

    def close_connection(self, connection: Connection) -> None:
        """A connection is lost, as its driver reports it: all at a time, or link by link."""
        if connection.role is Role.EDGE and (connection.incoming or self.network.uplinks_go_in_steps):
            for link in sorted(connection.links, key=lambda link: link.id):
                if link.stands:
                    self.close_link(link)
            self.core.connection_lost(connection)
            self.port.work(self._leave(connection))
        else:
            for _ in self._leave(connection):
                pass

    def _leave(self, connection: Connection) -> Iterator[None]:
        while connection.links:
            self.close_link(min(connection.links, key=lambda link: link.id))
            yield
        self.core.connection_closed(connection)
        self.ends.pop(connection, None)

    def consumers(self, key: str) -> list[Link]:
        """Links that consume from an address just now."""
        address = self.core.addresses.get(key)
        return list(address.consumers) if address is not None else []


class Network:
    """Routers, the connections between them, and time."""

    def __init__(self) -> None:
        self.numbers: Iterator[int] = itertools.count(1)
        self.routers: dict[str, Router] = {}
        self.ends: list[End] = []
        self.now = 0.0
        self.uplinks_go_in_steps = False
        """Whether an edge removes the links of a lost uplink one after the other, as those of other connections."""
        self.jobs: deque[Iterator[None]] = deque()
        """Long pieces of work of all routers."""
        self._timers: list[tuple[float, int, Callable[[], None]]] = []

    def add(self, router_id: str, *, edge: bool) -> Router:
        """A further router."""
        router = self.routers[router_id] = Router(self, router_id, edge=edge)
        return router

    def link(self, connection: Connection, direction: Direction, source: Terminus, target: Terminus) -> Link:
        """A link with a name of its own."""
        number = next(self.numbers)
        return Link(number, connection, direction, f"link.{number}", source=source, target=target)

    def connect(self, edge: Router, interior: Router, ordinal: int | None = None, cost: int = 1) -> End:
        """The edge dials the interior; the edge's end."""
        near = End(edge, self._connection(edge, interior, incoming=False, ordinal=ordinal, cost=cost))
        far = End(interior, self._connection(interior, edge, incoming=True, ordinal=ordinal, cost=cost))
        near.other, far.other = far, near
        self.ends += [near, far]

        def opened() -> None:
            interior.ends[far.connection] = far
            interior.core.connection_opened(far.connection)
            far.send(answered)

        def answered() -> None:
            edge.ends[near.connection] = near
            edge.core.connection_opened(near.connection)

        near.send(opened)
        return near

    def _connection(
        self, owner: Router, peer: Router, *, incoming: bool, ordinal: int | None, cost: int
    ) -> Connection:
        return Connection(
            next(self.numbers),
            Role.EDGE,
            incoming=incoming,
            name=peer.core.id,
            container=peer.core.id,
            tls_ordinal=ordinal,
            cost=cost,
            proven_mesh_id=peer.core.mesh_id,
            io=owner,
        )

    def cut(self, end: End, arriving: int = 0) -> None:
        """Break a connection; each end still gets up to `arriving` of the frames under way, then the news."""
        assert end.other is not None
        for side in (end, end.other):
            while len(side.inbox) > arriving:
                side.inbox.pop()
            side.inbox.append(lambda side=side: self._broken(side))
            side.broken = True

    def _broken(self, side: End) -> None:
        side.inbox.clear()
        self.ends.remove(side)
        if side.connection in side.router.ends:
            side.router.close_connection(side.connection)

    def step(self, end: End) -> None:
        """Let the next frame arrive."""
        if end.inbox:
            end.inbox.popleft()()

    def work_on(self) -> None:
        """Do the next step of some piece of work."""
        if self.jobs:
            job = self.jobs.popleft()
            for _ in job:
                self.jobs.append(job)
                break

    def settle(self) -> None:
        """Let every frame arrive, however many more they cause, and bring all work to its end."""
        for _ in range(100_000):
            busy = [end for end in self.ends if end.inbox]
            if not busy and not self.jobs:
                return
            self.work_on()
            for end in busy:
                self.step(end)
        raise AssertionError("the network does not come to rest")

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        """The timer service of the systems under test."""
        self.call_at(self.now + delay, callback)

    def call_at(self, time: float, callback: Callable[[], None]) -> None:
        """The same for a point in time."""
        heapq.heappush(self._timers, (time, next(self.numbers), callback))

    def advance(self, seconds: float) -> None:
        """Let time pass; frames stay where they are."""
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            self.now, _, callback = heapq.heappop(self._timers)
            callback()
        self.now = until


def proxies(router: Router, direction: Direction) -> list[str]:
    """Addresses of the proxy links that exist on all of a router's uplinks."""
    links = [
        link
        for connection in router.ends
        for link in connection.links
        if link.direction is direction and link.type is LinkType.ENDPOINT
    ]
    names = [(link.source if direction is Direction.IN else link.target).address for link in links]
    return sorted(name for name in names if name is not None and not name.startswith("_$qd."))


def credit(router: Router, link: Link) -> bool:
    """Whether the sender on an IN link has any."""
    return router.port.credit[link] > 0
