"""A router core whose port records what the core asks for."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Mapping

from isthmus_router.core.configured import ConfiguredAddress
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.nodes import Hop
from isthmus_router.core.port import SessionClass
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.routes import Route
from isthmus_router.core.terms import Condition, Direction, LinkType, Terminus
from isthmus_router.core.treatment import Treatment

_numbers = itertools.count(1)


class RecordingPort:
    """Remembers the last word on each link: accepted or refused, with credit or drained."""

    def __init__(self) -> None:
        self.accepted: dict[Link, tuple[Terminus, Terminus]] = {}
        self.refused: dict[Link, Condition] = {}
        self.credit: dict[Link, bool] = {}
        self.forwarded: list[tuple[Route, bytes]] = []
        self.closed: list[Connection] = []
        self.jobs: deque[Iterator[None]] = deque()
        """Long pieces of work, which a test moves on by `step`."""

    def work(self, job: Iterator[None]) -> None:
        self.jobs.append(job)

    def step(self) -> bool:
        """Move the next piece of work on by a step; whether there was one."""
        if not self.jobs:
            return False
        job = self.jobs.popleft()
        for _ in job:
            self.jobs.append(job)
            break
        return True

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
        link = Link(
            next(_numbers), connection, direction, "own", link_type=link_type, source=source, target=target
        )
        if capacity is not None:
            link.set_capacity(capacity)
        connection.links.add(link)
        return link

    def accept_link(self, link: Link, source: Terminus, target: Terminus) -> None:
        self.accepted[link] = (source, target)

    def refuse_link(self, link: Link, condition: Condition) -> None:
        self.refused[link] = condition

    def detach_link(self, link: Link, condition: Condition | None = None) -> None:
        raise AssertionError("nothing here detaches")

    def top_up(self, link: Link) -> None:
        self.credit[link] = True

    def drain(self, link: Link) -> None:
        self.credit[link] = False

    def send(self, link: Link, payload: bytes, *, settled: bool) -> None:
        raise AssertionError("nothing here sends on a link")

    def forward(self, route: Route, payload: bytes, *, priority: int) -> None:
        self.forwarded.append((route, payload))

    def close_connection(self, connection: Connection, condition: Condition | None) -> None:
        self.closed.append(connection)


class RouterInMemory:
    """A core, its port, and clients and neighbours of it."""

    def __init__(self, *, edge: bool = False, treatments: Mapping[str, Treatment] | None = None) -> None:
        self.core = RouterCore("ME", edge=edge)
        self.port = RecordingPort()
        self.core.attach_port(self.port)
        for prefix, treatment in (treatments or {}).items():
            self.core.configured.patterns.add_prefix(prefix, ConfiguredAddress(treatment))

    def connection(self, role: Role = Role.NORMAL) -> Connection:
        connection = Connection(next(_numbers), role, incoming=True, name="peer")
        self.core.connection_opened(connection)
        return connection

    def sender(self, target: str | None, connection: Connection | None = None) -> Link:
        """A client's sender: an IN link of the router."""
        return self.attach(connection, Direction.IN, Terminus(), Terminus(address=target))

    def receiver(self, source: str | None, connection: Connection | None = None) -> Link:
        """A client's receiver: an OUT link of the router."""
        return self.attach(connection, Direction.OUT, Terminus(address=source), Terminus())

    def attach(
        self, connection: Connection | None, direction: Direction, source: Terminus, target: Terminus
    ) -> Link:
        """The peer attaches a link."""
        connection = connection or self.connection()
        number = next(_numbers)
        link = Link(number, connection, direction, f"link-{number}", source=source, target=target)
        self.core.link_attached(link)
        return link

    def neighbour(self, router: str, cost: int = 1, *, via: Hop | None = None, origins: str = "") -> Hop:
        """Another router that can be reached; without `via` it is a neighbour on a hop of its own."""
        node = self.core.remotes.node(router)
        if via is None:
            via = Hop(next(_numbers), self.connection(Role.INTER_ROUTER))
            via.neighbour = router
        node.hop, node.cost, node.valid_origins = via, cost, frozenset(origins.split())
        self.core.radius = 3
        self.core.remotes.paths_changed()
        return via

    def consumers_at(self, router: str, key: str, treatment: Treatment = Treatment.BALANCED) -> None:
        """`router` announces consumers."""
        self.core.remotes.add(self.core.remotes.node(router), key, treatment)
