"""A network in memory for members that look for each other: physical addresses, DNS, gossip routers, multicast.

Frames take a random time, may be lost, come twice or overtake each other; members restart where they were, are
announced under other addresses than they listen at (NAT), and have several interfaces. Time is virtual.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random

from isthmus_router.groups.discovery.dns import Dns
from isthmus_router.groups.discovery.finder import Answer, Finder
from isthmus_router.groups.discovery.gossip import Gossip
from isthmus_router.groups.discovery.host_list import Host, HostList
from isthmus_router.groups.discovery.kinds import DiscoveryKind
from isthmus_router.groups.discovery.multicast import Multicast
from isthmus_router.groups.discovery.tunnel import Tunnel
from isthmus_router.groups.discovery.ways import Ways
from isthmus_router.groups.frames import HEADER_BYTES, FrameError, Kind, decode_header, encode_frame
from isthmus_router.groups.identity import (
    NOBODY,
    GroupName,
    MemberId,
    MemberInfo,
    PhysicalAddress,
    member_id,
    tunnel_address,
)
from isthmus_router.groups.resolver import Resolver, ResolverSettings
from isthmus_router.groups.views import View, ViewId

GROUP = GroupName("payments", "nyc", "east/nyc")
SERVICE = "members.east.svc"
PORT = 7_800
KINDS = ("multicast", "host-list", "dns", "gossip", "tunnel")


@dataclass(slots=True)
class Weather:
    """What happens to frames; probabilities, and seconds."""

    loss: float = 0.0
    duplication: float = 0.0
    delay: tuple[float, float] = (0.001, 0.001)
    """From, to: what differs overtakes."""


class Network:
    """Where frames are under way. Addresses that members announce lead to the member that listens there now."""

    def __init__(self, seed: int = 0, weather: Weather | None = None) -> None:
        self.random = Random(seed)
        self.weather = weather or Weather()
        self.now = 0.0
        self.members: list[Member] = []
        self.sent: list[tuple[float, MemberId, PhysicalAddress | None, bytes]] = []
        """When, by whom, to which address (None: multicast), and the frame."""
        self.dropped_connections: list[tuple[MemberId, PhysicalAddress]] = []
        self._listeners: dict[PhysicalAddress, Member] = {}
        self._registered: dict[MemberId, MemberInfo] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def listen(self, member: Member) -> None:
        """It is reached at what it announces."""
        for address in member.resolver.self_info.addresses:
            self._listeners[address] = member
        self._listeners[tunnel_address(member.id)] = member

    def cut(self, address: PhysicalAddress) -> None:
        """Nobody is reached there any more, and everybody who is connected notices."""
        self._listeners.pop(address, None)
        for member in self.members:
            self.later(partial(member.connection_lost, address))

    def register(self, info: MemberInfo) -> None:
        """With the gossip routers."""
        self._registered[info.id] = info

    def unregister(self, member: MemberId) -> None:
        """Its connection to them has ended."""
        self._registered.pop(member, None)

    def registered(self) -> list[MemberInfo]:
        """Whom the gossip routers know."""
        return list(self._registered.values())

    def later(self, action: Callable[[], None], *, after: float | None = None) -> None:
        """Happens in a while."""
        after = self.random.uniform(*self.weather.delay) if after is None else after
        heapq.heappush(self._events, (self.now + after, next(self._order), action))

    def send(self, sender: Member, to: PhysicalAddress, frame: bytes) -> None:
        """A frame leaves; who listens at the address when it gets there has it."""
        self.sent.append((self.now, sender.id, to, frame))
        if to not in self._listeners:
            self.later(lambda: sender.connection_lost(to))
            return
        for _ in range(self._copies()):
            self.later(lambda: self._arrive(to, frame))

    def multicast(self, sender: Member, frame: bytes) -> None:
        """A datagram to everybody who is there, on each of the interfaces."""
        self.sent.append((self.now, sender.id, None, frame))
        for member in self.members:
            for _ in member.resolver.self_info.addresses:
                for _ in range(self._copies()):
                    self.later(partial(member.arrive, frame))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            due = min((member.deadline for member in self.members), default=end)
            if self._events:
                due = min(due, self._events[0][0])
            if due > end:
                break
            self.now = max(self.now, due)
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            for member in list(self.members):
                if member.deadline <= self.now:
                    member.on_time()
        self.now = end

    def frames(
        self, kind: Kind, sender: MemberId | None = None
    ) -> list[tuple[float, PhysicalAddress | None, bytes]]:
        """What was sent of a kind, by anybody or that member."""
        return [
            (at, to, frame) for at, by, to, frame in self.sent if frame[0] == kind and sender in (None, by)
        ]

    def _copies(self) -> int:
        if self.random.random() < self.weather.loss:
            return 0
        return 2 if self.random.random() < self.weather.duplication else 1

    def _arrive(self, to: PhysicalAddress, frame: bytes) -> None:
        member = self._listeners.get(to)
        if member is not None:
            member.arrive(frame)


@dataclass(slots=True)
class Heard:
    """What a member was told."""

    answers: list[Answer] = field(default_factory=list)
    unreachable: list[tuple[float, MemberId, int]] = field(default_factory=list)
    collisions: list[tuple[str, MemberInfo]] = field(default_factory=list)
    mismatches: list[tuple[MemberId, int]] = field(default_factory=list)
    texts: list[tuple[MemberId, bytes]] = field(default_factory=list)
    """Sender and body of frames to it that are neither of discovery nor of the resolver."""
    stray: int = 0
    """Frames for somebody else."""
    malformed: int = 0


class Member:
    """A resolver and a finder on the network, as a driver and a member put them together."""

    def __init__(
        self,
        network: Network,
        name: str,
        *addresses: PhysicalAddress,
        kinds: Sequence[str] = ("multicast",),
        hosts: Sequence[Host] = (),
        group: GroupName = GROUP,
        settings: ResolverSettings | None = None,
    ) -> None:
        self.network = network
        self.id = member_id(network.random.randbytes(16))
        self.heard = Heard()
        makers: dict[str, Callable[[], DiscoveryKind]] = {
            "multicast": lambda: Multicast(self),
            "host-list": lambda: HostList(hosts, self),
            "dns": lambda: Dns(SERVICE, PORT, self),
            "gossip": lambda: Gossip(self),
            "tunnel": lambda: Tunnel(self),
        }
        self.ways = Ways([makers[kind]() for kind in kinds], self)
        info = MemberInfo(self.id, name, addresses)
        self.resolver = Resolver(info, group, self, self.ways, self, settings)
        self.finder = Finder(self.resolver, self.ways, self)
        network.members.append(self)
        network.listen(self)
        if {"gossip", "tunnel"} & set(kinds):
            network.register(info)

    @property
    def deadline(self) -> float:
        return self.resolver.deadline

    @property
    def info(self) -> MemberInfo:
        return self.resolver.self_info

    def find(self, *, initial: bool = True) -> None:
        self.finder.find(self.network.now, initial=initial)

    def install(self, view: View) -> None:
        self.resolver.view_installed(self.network.now, view)
        self.finder.view_installed(view)

    def say(self, to: MemberId, text: bytes) -> None:
        """A frame of the layers above."""
        self.resolver.send(self.network.now, to, encode_frame(Kind.UNICAST, self.id, to, text))

    def crash(self) -> None:
        """Gone without a word. Its addresses are free; who is connected notices."""
        self.network.members.remove(self)
        self.network.unregister(self.id)
        for address in (*self.info.addresses, tunnel_address(self.id)):
            self.network.cut(address)

    def close(self) -> None:
        """Gone, having said so."""
        self.finder.leave()
        self.resolver.close(self.network.now)
        self.crash()

    def arrive(self, frame: bytes) -> None:
        """As a member treats what comes in."""
        try:
            kind, sender, destination = decode_header(frame)
            if destination not in (NOBODY, self.id):
                self.heard.stray += 1
            elif kind in (Kind.DISCOVER, Kind.FOUND):
                self.finder.on_frame(self.network.now, kind, sender, frame)
            elif kind in (Kind.WHO_HAS, Kind.I_HAVE, Kind.INVALIDATE):
                self.resolver.on_frame(self.network.now, kind, sender, destination, frame)
            else:
                self.take(kind, sender, frame)
        except FrameError:
            self.heard.malformed += 1

    def take(self, kind: Kind, sender: MemberId, frame: bytes) -> None:
        """A frame of the layers above."""
        self.heard.texts.append((sender, frame[HEADER_BYTES:]))

    def connection_lost(self, address: PhysicalAddress) -> None:
        self.resolver.connection_lost(self.network.now, address)

    def on_time(self) -> None:
        self.resolver.on_time(self.network.now)

    # What its resolver and discovery ask of the driver

    def send(self, to: PhysicalAddress, frame: bytes) -> None:
        self.network.send(self, to, frame)

    def backlog(self, to: PhysicalAddress, member: MemberId) -> int:
        raise AssertionError(to)

    def multicast(self, frame: bytes) -> None:
        self.network.multicast(self, frame)

    def resolve(self, host: str) -> None:
        addresses = [each.info.addresses[0].host for each in self.network.members] if host == SERVICE else []
        self.network.later(lambda: self.finder.on_resolved(self.network.now, host, addresses))

    def ask_gossip_routers(self) -> None:
        self.network.later(lambda: self.finder.on_gossip_members(self.network.now, self.network.registered()))

    def drop(self, to: PhysicalAddress, member: MemberId) -> None:
        self.network.dropped_connections.append((self.id, to))

    # What they tell

    def found(self, now: float, answers: Sequence[Answer]) -> None:
        self.heard.answers = list(answers)

    def collision(self, now: float, domain: str, info: MemberInfo) -> None:
        self.heard.collisions.append((domain, info))

    def version_mismatch(self, now: float, sender: MemberId, version: int) -> None:
        self.heard.mismatches.append((sender, version))

    def unreachable(self, now: float, member: MemberId, frames: int) -> None:
        self.heard.unreachable.append((now, member, frames))


def at(number: int) -> PhysicalAddress:
    return PhysicalAddress(f"10.0.0.{number}", PORT)


def hosts(*numbers: int) -> tuple[Host, ...]:
    return tuple(Host(at(number).host, PORT) for number in numbers)


def start(
    network: Network,
    number: int,
    *,
    kind: str = "multicast",
    listed: Sequence[Host] = (),
    group: GroupName = GROUP,
) -> Member:
    return Member(network, f"m{number}", at(number), kinds=[kind], hosts=listed, group=group)


def view_of(number: int, *members: Member) -> View:
    return View(ViewId(number, members[0].id), tuple(member.info for member in members))


def found(member: Member) -> set[str]:
    """Names of who has answered."""
    return {answer.info.name for answer in member.heard.answers}
