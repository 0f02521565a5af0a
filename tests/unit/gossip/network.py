"""Gossip routers and members in simulated time: connections with delays, which are cut, fall silent, or end."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import count
from random import Random

from tests.unit.gossip.strategies import frames_of

from isthmus_router.gossip.client import Endpoint, GossipClient
from isthmus_router.gossip.table import Limits, Link, Table
from isthmus_router.groups.identity import MemberId, MemberInfo, PhysicalAddress, member_id

GROUP = "group"
LONGEST_DELAY = 0.02


class Wire:
    """One connection; also the table's link. Each end learns of what the other did after a delay, in order."""

    def __init__(self, network: Network, member: Member, endpoint: Endpoint) -> None:
        self.network, self.member, self.endpoint = network, member, endpoint
        self.table = network.tables.get(endpoint)
        self.member_open, self.router_open = True, self.table is not None
        self.silent = False
        """Nothing arrives any more, and nobody is told."""
        self._clear = {"member": 0.0, "router": 0.0}
        if self.table is None:
            self._later("member", self.closed_to_member)
        else:
            self._later("router", self._opened)
            self._later("member", self._connected)

    def _later(self, end: str, what: Callable[[], None]) -> None:
        at = self.network.now + self.network.random.uniform(0, LONGEST_DELAY)
        self._clear[end] = at = max(at, self._clear[end])
        self.network.at(at, lambda: None if self.silent else what())

    def _opened(self) -> None:
        if self.router_open and self.table is not None:
            self.table.opened(self.network.now, self)

    def _connected(self) -> None:
        if self.member_open:
            self.member.client.connected(self.network.now, self.endpoint)

    def closed_to_member(self) -> None:
        if self.member_open:
            self.member_open = False
            self.member.client.closed(self.network.now, self.endpoint)

    def closed_to_router(self) -> None:
        if self.router_open and self.table is not None:
            self.router_open = False
            self.table.closed(self.network.now, self)

    def cut(self) -> None:
        """Both ends are told."""
        self._later("router", self.closed_to_router)
        self._later("member", self.closed_to_member)

    # From the member

    def to_router(self, frame: bytes) -> None:
        def arrive() -> None:
            if self.router_open and self.table is not None:
                self.table.received(self.network.now, self, frame)

        self._later("router", arrive)

    def end_by_member(self) -> None:
        self.member_open = False
        self._later("router", self.closed_to_router)

    # From the table

    held_back = False

    def carry(self, group: bytes, frame: bytes, to: Sequence[Link]) -> None:
        for link in to:
            link.send(frame)

    def send(self, frame: bytes) -> None:
        def arrive() -> None:
            for each in frames_of(frame):
                if self.member_open:
                    self.member.client.on_frame(self.network.now, self.endpoint, each)

        if self.router_open:
            self._later("member", arrive)

    def answer(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self.send(frame)

    def close(self, reason: str) -> None:
        self.router_open = False
        self._later("member", self.closed_to_member)


class Member:
    """A client with all that it was told."""

    def __init__(self, network: Network, name: str) -> None:
        self.network = network
        self.info = MemberInfo(member_id(network.random.randbytes(16)), name, (PhysicalAddress(name, 1),))
        self.wires: dict[Endpoint, Wire] = {}
        self.frames: list[bytes] = []
        self.suspected: list[MemberId] = []
        self.seen: set[MemberId] = set()
        self.alive = True
        self.client = GossipClient(GROUP, self.info, network.endpoints, self, self, network.random)
        self.client.start(network.now)

    def crash(self) -> None:
        """The process ends; its connections with it."""
        self.alive = False
        for wire in self.wires.values():
            wire.end_by_member()

    def leave(self) -> None:
        self.client.close(self.network.now)
        self.alive = False

    # Port

    def connect(self, router: Endpoint) -> None:
        assert router not in self.wires or not self.wires[router].member_open
        self.wires[router] = Wire(self.network, self, router)

    def send(self, router: Endpoint, frame: bytes) -> None:
        assert self.wires[router].member_open
        self.wires[router].to_router(frame)

    def close(self, router: Endpoint) -> None:
        self.wires[router].end_by_member()

    # User

    def members(self, now: float, infos: Sequence[MemberInfo]) -> None:
        self.seen = {info.id for info in infos}

    def frame(self, now: float, sender: MemberId, frame: bytes) -> None:
        self.frames.append(frame)

    def suspect(self, now: float, member: MemberId) -> None:
        self.suspected.append(member)

    def refused(self, now: float, router: Endpoint, reason: str) -> None:
        pass


class Network:
    """So many routers, all up, and members to be added."""

    def __init__(self, seed: int, routers: int) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self.endpoints = [Endpoint("router", number) for number in range(routers)]
        self.tables: dict[Endpoint, Table] = {}
        self.members: list[Member] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        for endpoint in self.endpoints:
            self.start_router(endpoint)

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), what))

    def start_router(self, endpoint: Endpoint) -> None:
        self.tables[endpoint] = Table(self.now, self.random.randbytes(16), Limits())

    def stop_router(self, endpoint: Endpoint) -> None:
        """A crash: it does nothing more, and its connections end."""
        if self.tables.pop(endpoint, None) is not None:
            for member in self.members:
                if wire := member.wires.get(endpoint):
                    wire.router_open = False
                    wire.cut()

    def add(self, name: str) -> Member:
        member = Member(self, name)
        self.members.append(member)
        return member

    @property
    def living(self) -> list[Member]:
        return [member for member in self.members if member.alive]

    def run(self, seconds: float) -> None:
        """All that happens in so much time."""
        end = self.now + seconds
        while True:
            tables = list(self.tables.values())
            timed: list[Table | GossipClient] = [*tables, *(member.client for member in self.living)]
            first = min(timed, key=lambda each: each.deadline)
            event = self._events[0][0] if self._events else end
            if min(event, first.deadline) >= end:
                break
            if event <= first.deadline:
                self.now, _, what = heapq.heappop(self._events)
                what()
            else:
                self.now = max(self.now, first.deadline)
                first.on_time(self.now)
        self.now = end
