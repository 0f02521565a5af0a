"""Gossip routers of a world, and what connects a member to them: real tables and clients, frames that take a moment."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from tests.unit.sites.world import World

from isthmus_router.gossip.client import Endpoint, GossipClient
from isthmus_router.gossip.table import Link, Table
from isthmus_router.groups.identity import MemberId, MemberInfo, PhysicalAddress, tunnel_address

DELAY = 0.001


class Registered(Protocol):
    """A member that is registered with the routers."""

    def on_frame(self, now: float, physical: PhysicalAddress | None, frame: bytes) -> None: ...
    def gossip_members(self, infos: Sequence[MemberInfo]) -> None: ...
    def gossip_suspect(self, member: MemberId) -> None: ...
    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call if it is alive then."""


class Connection:
    """Of one member to one router: the table's link."""

    def __init__(self, client: Client, router: Endpoint) -> None:
        self.client = client
        self.router = router
        self.open = True

    @property
    def held_back(self) -> bool:
        return False

    def carry(self, group: bytes, frame: bytes, to: Sequence[Link]) -> None:
        for link in to:
            link.send(frame)

    def send(self, frame: bytes) -> None:
        client = self.client
        client.user.later(DELAY, lambda: self.open and client.gossip.on_frame(client.now, self.router, frame))

    def answer(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self.send(frame)

    def close(self, reason: str) -> None:
        if self.open:
            self.open = False
            self.client.connections.pop(self.router, None)
            self.client.user.later(DELAY, lambda: self.client.gossip.closed(self.client.now, self.router))


class Routers:
    """Any number of them, that know nothing of each other."""

    def __init__(self, world: World, count: int) -> None:
        self.world = world
        self.endpoints = [Endpoint(f"gossip{number}", 7900) for number in range(count)]
        self.tables: dict[Endpoint, Table] = {}
        self.connections: list[Connection] = []
        for endpoint in self.endpoints:
            self.start(endpoint)

    def start(self, endpoint: Endpoint) -> None:
        """A new process."""
        table = Table(self.world.now, self.world.random.randbytes(16))
        self.tables[endpoint] = table
        self._tick(endpoint, table)

    def crash(self, endpoint: Endpoint) -> None:
        """Everybody who was connected sees it."""
        del self.tables[endpoint]
        for connection in [each for each in self.connections if each.router == endpoint]:
            self.connections.remove(connection)
            connection.close("the router has crashed")

    def _tick(self, endpoint: Endpoint, table: Table) -> None:
        if self.tables.get(endpoint) is table:
            if self.world.now >= table.deadline:
                table.on_time(self.world.now)
            self.world.after(1.0, lambda: self._tick(endpoint, table))


class Client:
    """A member's client, and its ports."""

    def __init__(self, routers: Routers, group: str, info: MemberInfo, user: Registered) -> None:
        self.routers = routers
        self.world = routers.world
        self.user = user
        self.connections: dict[Endpoint, Connection] = {}
        seed = self.world.random.random()
        self.gossip = GossipClient(group, info, routers.endpoints, self, self, random.Random(seed))

    @property
    def now(self) -> float:
        return self.world.now

    def crashed(self) -> None:
        """The member is gone: routers see that."""
        for connection in list(self.connections.values()):
            self.close(connection.router)

    # GossipPort

    def connect(self, router: Endpoint) -> None:
        connection = Connection(self, router)

        def made() -> None:
            if table := self.routers.tables.get(router):
                self.connections[router] = connection
                self.routers.connections.append(connection)
                table.opened(self.now, connection)
                self.gossip.connected(self.now, router)
            else:
                self.gossip.closed(self.now, router)

        self.user.later(DELAY, made)

    def send(self, router: Endpoint, frame: bytes) -> None:
        connection, table = self.connections.get(router), self.routers.tables.get(router)
        if connection and table:
            self.world.after(DELAY, lambda: connection.open and table.received(self.now, connection, frame))

    def close(self, router: Endpoint) -> None:
        connection, table = self.connections.pop(router, None), self.routers.tables.get(router)
        if connection and table:
            connection.open = False
            self.routers.connections.remove(connection)
            self.world.after(DELAY, lambda: table.closed(self.now, connection))

    # GossipUser

    def members(self, now: float, infos: Sequence[MemberInfo]) -> None:
        self.user.gossip_members(infos)

    def frame(self, now: float, sender: MemberId, frame: bytes) -> None:
        self.user.on_frame(now, tunnel_address(sender), frame)

    def suspect(self, now: float, member: MemberId) -> None:
        self.user.gossip_suspect(member)

    def refused(self, now: float, router: Endpoint, reason: str) -> None:
        raise AssertionError(f"{router} cannot be used: {reason}")
