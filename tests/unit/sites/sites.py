"""Sites of members in a world of their own, with senders and receivers that write down what happens to them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from tests.unit.sites.gossip_routers import Client, Routers
from tests.unit.sites.world import Process, World

from isthmus_router.core.terms import Outcome
from isthmus_router.groups.batch import GroupMessage, decode_batch
from isthmus_router.groups.discovery.dns import Dns
from isthmus_router.groups.discovery.gossip import Gossip
from isthmus_router.groups.discovery.host_list import Host, HostList
from isthmus_router.groups.discovery.kinds import DiscoveryKind
from isthmus_router.groups.discovery.multicast import Multicast
from isthmus_router.groups.discovery.tunnel import Tunnel
from isthmus_router.groups.frames import FrameError, Kind
from isthmus_router.groups.identity import (
    GroupName,
    MemberId,
    MemberInfo,
    PhysicalAddress,
    member_id,
    tunnel_address,
)
from isthmus_router.groups.port import NetworkPort
from isthmus_router.groups.views import View
from isthmus_router.relay.messages import BridgeKind
from isthmus_router.relay.settings import Endpoint, RelaySettings, RemoteSite
from isthmus_router.sites.member import Member
from isthmus_router.sites.port import SiteMember
from isthmus_router.sites.settings import MemberSettings

PORT = 7800
TOPIC = "relay/trades"


@dataclass(slots=True)
class Sent:
    """One message that a sender has sent."""

    node: Node
    number: int
    at: float
    accepted: float | None = None
    failed: Outcome | None = None


class Node:
    """A member in a world, from its start to its end; and its clients."""

    def __init__(self, net: Net, process: Process, name: str, site: str) -> None:
        self.net = net
        self.world = net.world
        self.process = process
        self.name = name
        self.site = site
        info = MemberInfo(
            member_id(net.world.random.randbytes(16)), name, (PhysicalAddress(process.host.name, PORT),)
        )
        self.id = info.id
        self.bridge = BridgeOf(self)
        self.skew = net.skew()
        self.gossip: Client | None = None
        if net.gossip is not None:
            if net.discovery == "tunnel":
                info = info._replace(addresses=(tunnel_address(info.id),))
            self.gossip = Client(net.gossip, site, info, self)
        self.member = Member(
            info,
            net.settings(site),
            self,
            self.bridge,
            self,
            lambda: self.now,
            random.Random(net.world.random.random()),
        )
        self.member.user = self
        self.sent: list[Sent] = []
        self.outbox: list[GroupMessage] = []
        self.outbox_tokens: list[Sent] = []
        self.deliveries: list[tuple[MemberId, int, float]] = []
        """Origin, number of its message, time."""
        self.asked: list[tuple[Node, bytes, Sent]] = []
        """Messages to one member."""
        self.replies: list[tuple[SiteMember, bytes]] = []
        self.gaps: dict[MemberId, int] = defaultdict(int)
        self.misnamed: set[str] = set()
        """Origins that are called something else than they are."""
        self.views: list[View] = []
        self.viewed_at: list[float] = []
        self.everyone: list[SiteMember] = []
        self.events: list[tuple[str, dict[str, object]]] = []
        self.frame_errors = 0
        self.gone = False
        self.first_view: float | None = None
        self.connected = float("inf")
        """When it first knew members of every site."""
        self.member.start(self.now)
        if self.gossip:
            self.gossip.gossip.start(self.world.now)

    @property
    def now(self) -> float:
        """What its own clock says."""
        return self.world.now + self.skew

    @property
    def alive(self) -> bool:
        return self.process.alive and not self.gone

    # Senders

    def publish(self, count: int = 1, size: int = 0, address: str = TOPIC) -> list[Sent]:
        """Send messages now."""
        made = []
        for _ in range(count):
            sent = Sent(self, len(self.sent), self.world.now)
            self.sent.append(sent)
            made.append(sent)
            self.outbox.append(GroupMessage(address, f"{sent.number:010d}".encode() + bytes(size)))
            self.outbox_tokens.append(sent)
        self.world.turned(self.process)
        return made

    def send_to(self, member: MemberId, text: bytes) -> Sent:
        """A message to one member."""
        sent = Sent(self, -1, self.world.now)
        self.member.send_to(member, GroupMessage("", text), [sent])
        self.world.turned(self.process)
        return sent

    def reply(self, other: Node) -> None:
        """A numbered message to one member, if it is known here."""
        if other.id in self.member.members:
            text = f"{len(self.asked):06d}".encode()
            self.asked.append((other, text, self.send_to(other.id, text)))

    # What a world calls

    @property
    def deadline(self) -> float:
        due = self.member.deadline - self.skew
        return min(due, self.gossip.gossip.deadline) if self.gossip else due

    def on_frame(self, now: float, physical: PhysicalAddress | None, frame: bytes) -> None:
        self._try(lambda: self.member.on_frame(self.now, physical, frame))

    def connection_lost(self, now: float, physical: PhysicalAddress, refused: bool) -> None:
        self.member.connection_lost(self.now, physical, refused)

    def on_resolved(self, now: float, host: str, addresses: tuple[str, ...]) -> None:
        self.member.on_resolved(self.now, host, addresses)

    def on_time(self, now: float) -> None:
        if self.gossip and self.gossip.gossip.deadline <= now:
            self.gossip.gossip.on_time(now)
        if self.member.deadline - self.skew <= now:
            # Not earlier than it asked for, whatever the difference of the clocks rounds to.
            self.member.on_time(max(self.now, self.member.deadline))

    def flush(self, now: float) -> None:
        if self.outbox and self.member.room > 0 and self.member.membership.view is not None:
            messages, tokens, self.outbox, self.outbox_tokens = self.outbox, self.outbox_tokens, [], []
            self.member.publish(messages, tokens)
        self.member.flush(self.now)
        for call in self.net.watched:
            call(self)

    def bridge_opened(self, now: float, session: int, names: tuple[str, ...]) -> None:
        self.member.bridge_opened(self.now, session, names)

    def bridge_frame(self, now: float, session: int, frame: bytes) -> None:
        self.bridge.got(session, frame)
        self._try(lambda: self.member.bridge_frame(self.now, session, frame))

    def bridge_closed(self, now: float, session: int, reason: str) -> None:
        self.member.bridge_closed(self.now, session, reason)

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except FrameError:
            self.frame_errors += 1

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        def due() -> None:
            if self.process.alive:
                call()
                self.world.turned(self.process)

        self.world.after(seconds, due)

    def gossip_members(self, infos: Sequence[MemberInfo]) -> None:
        self.member.on_gossip_members(self.now, infos)

    def gossip_suspect(self, member: MemberId) -> None:
        self.member.on_gossip_suspect(self.now, member)

    # NetworkPort

    def send(self, to: PhysicalAddress, frame: bytes) -> None:
        with self.net.passing(self, Kind(frame[0]).name):
            if not to.tunnelled:
                self.world.send(self.process, to, frame)
            elif self.gossip and self.process.alive:
                self.gossip.gossip.send(self.world.now, MemberId(bytes.fromhex(to.host)), frame)

    def backlog(self, to: PhysicalAddress, member: MemberId) -> int:
        return 0

    def multicast(self, frame: bytes) -> None:
        self.world.multicast(self.process, frame)

    def resolve(self, host: str) -> None:
        self.world.resolve(self.process, host)

    def ask_gossip_routers(self) -> None:
        if self.gossip:
            self.gossip.gossip.ask(self.world.now)

    def drop(self, to: PhysicalAddress, member: MemberId) -> None:
        self.world.drop(self.process, to)

    # MemberObserver

    def view_installed(self, view: View) -> None:
        self.views.append(view)
        self.viewed_at.append(self.world.now)
        if self.first_view is None:
            self.first_view = self.world.now

    def left(self) -> None:
        self.gone = True
        self.world.after(0.0, lambda: self.process.alive and self.net.crash(self))

    def problem(self, who: str, reason: str) -> None:
        pass

    def event(self, name: str, **fields: object) -> None:
        self.events.append((name, fields))

    # SiteUser

    def protected(self, token: object) -> None:
        for sent in token if self.process.alive else ():  # type: ignore[attr-defined]
            assert (sent.accepted, sent.failed) == (None, None)
            sent.accepted = self.world.now

    def failed(self, token: object, outcome: Outcome) -> None:
        for sent in token if self.process.alive else ():  # type: ignore[attr-defined]
            assert (sent.accepted, sent.failed) == (None, None)
            sent.failed = outcome

    def room_changed(self) -> None:
        self.world.turned(self.process)

    def deliver(self, origin: SiteMember, messages: Sequence[GroupMessage], number: int) -> None:
        self._called(origin)
        for message in messages if self.process.alive else ():
            self.deliveries.append((origin.id, int(message.payload[:10]), self.world.now))

    def received(self, sender: SiteMember, message: GroupMessage) -> None:
        if self.process.alive:
            self.replies.append((sender, message.payload))

    def gap(self, origin: SiteMember, messages: int) -> None:
        self._called(origin)
        self.gaps[origin.id] += messages

    def behind(self, now: float) -> bool:
        return False

    def _called(self, origin: SiteMember) -> None:
        if not any((node.id, node.name) == (origin.id, origin.name) for node in self.net.nodes):
            self.misnamed.add(origin.label)

    def members_changed(self, members: Sequence[SiteMember]) -> None:
        self.everyone = list(members)
        if {member.site for member in members} == set(self.net.sizes):
            self.connected = min(self.connected, self.world.now)

    def __repr__(self) -> str:
        return f"<{self.site}/{self.name}>"


class BridgeOf:
    """BridgePort of a node. Over a loss-free bridge no batch goes twice by one session, or without its order."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._sent: dict[int, dict[MemberId, int]] = {}
        self._asked: set[int] = set()
        """Sessions whose other end lacks what others of its site have acknowledged."""

    def got(self, session: int, frame: bytes) -> None:
        """A frame has come."""
        if frame[:1] == bytes((BridgeKind.NAK,)):
            self._asked.add(session)

    def dial(self, session: int, site: str, endpoint: Endpoint) -> None:
        self._node.world.dial(
            self._node.process,
            session,
            PhysicalAddress(endpoint.host, PORT),
            lossy=self._node.net.lossy_bridge,
        )

    def send(self, session: int, frame: bytes) -> None:
        node, kind = self._node, BridgeKind(frame[0])
        if kind is BridgeKind.BATCH and session not in self._asked and not node.net.lossy_bridge:
            batch = decode_batch(frame, 1)
            assert batch.site == node.site, f"{node} relays a batch of {batch.site}"
            last = self._sent.setdefault(session, {})
            before = last.get(batch.origin, 0)
            assert batch.number > before, (
                f"{node} relays {batch.number} of {batch.origin.hex()} after {before}"
            )
            last[batch.origin] = batch.number
        with node.net.passing(node, f"bridge {kind.name}"):
            node.world.bridge_send(node.process, session, frame)

    def close(self, session: int, reason: str) -> None:
        self._node.world.bridge_close(self._node.process, session, reason)

    def backlog(self, session: int) -> int:
        return 0

    def splice(self, session: int, endpoint: Endpoint, first: bytes) -> None:
        self._node.world.bridge_splice(
            self._node.process, session, PhysicalAddress(endpoint.host, PORT), first
        )


@dataclass(slots=True, eq=False)
class Trap:
    """What happens to a node the n-th time that it is about to send a frame of some kind, or has sent it."""

    who: Callable[[Node], bool]
    point: str
    count: int
    spring: Callable[[Node], None]


@dataclass
class Net:
    """Sites, what they are set to, and all members that there have been."""

    world: World
    sizes: dict[str, int]
    """Members by site."""
    relays: int = 1
    lossy_bridge: bool = False
    change: Callable[[MemberSettings], MemberSettings] = lambda settings: settings
    nodes: list[Node] = field(default_factory=list)
    discovery: str = "hosts"
    skewed: bool = False
    """Clocks of members differ by hours."""
    gossip: Routers | None = None
    traps: list[Trap] = field(default_factory=list)
    watched: list[Callable[[Node], None]] = field(default_factory=list)
    """Called at the end of each turn of each node."""

    def __post_init__(self) -> None:
        if self.discovery in ("gossip", "tunnel"):
            self.gossip = Routers(self.world, 2)
        for site in self.sizes:
            self.world.names[f"{site}.members"] = tuple(self.hosts(site))

    def skew(self) -> float:
        """Of the next member."""
        return self.world.random.choice((0.0, 3600.0, 86_400.0, -600.0)) if self.skewed else 0.0

    @contextmanager
    def passing(self, node: Node, what: str) -> Iterator[None]:
        """A node does something that it may be crashed at."""
        self._spring(node, f"before {what}")
        yield
        self._spring(node, f"after {what}")

    def _spring(self, node: Node, point: str) -> None:
        for trap in self.traps:
            if trap.point == point and node.process.alive and trap.who(node):
                trap.count -= 1
                if trap.count <= 0:
                    self.traps.remove(trap)
                    trap.spring(node)
                    return

    def hosts(self, site: str) -> list[str]:
        return [self.ip(f"{site}{number}") for number in range(self.sizes[site])]

    def ip(self, name: str) -> str:
        """Where a member of that name lives."""
        site = name.rstrip("0123456789")
        return f"10.{list(self.sizes).index(site)}.0.{int(name[len(site) :]) + 1}"

    def settings(self, site: str) -> MemberSettings:
        remotes = {
            other: RemoteSite(tuple(Endpoint(host, PORT) for host in self.hosts(other)))
            for other in self.sizes
            if other != site
        }
        relay = RelaySettings(
            "trades",
            site,
            f"{site}/trades",
            remotes,
            relays=self.relays,
            initial_members=self.sizes[site],
        )
        settings = MemberSettings(
            GroupName("trades", site, f"{site}/trades"), (self._discovery(site),), relay
        )
        settings = replace(settings, streams=replace(settings.streams, relays=self.relays))
        return self.change(settings)

    def _discovery(self, site: str) -> Callable[[NetworkPort], DiscoveryKind]:
        match self.discovery:
            case "dns":
                return partial(Dns, f"{site}.members", PORT)
            case "multicast":
                return Multicast
            case "gossip":
                return Gossip
            case "tunnel":
                return Tunnel
        return partial(HostList, [Host(host, PORT) for host in self.hosts(site)])

    def start(self, name: str) -> Node:
        """Start a member; its site is what its name begins with."""
        site = name.rstrip("0123456789")
        host = self.world.host(self.ip(name), site)
        made: list[Node] = []

        def make(process: Process) -> Node:
            made.append(Node(self, process, name, site))
            return made[0]

        self.world.start(host, PORT, make)
        self.nodes.append(made[0])
        return made[0]

    def start_all(self, pause: float = 0.02) -> None:
        """Every member of every site, and wait until they know each other."""
        for number in range(max(self.sizes.values())):
            for site, size in self.sizes.items():
                if number < size:
                    self.start(f"{site}{number}")
                    self.world.run(pause)
        assert self.settled(30.0), self.describe()

    @property
    def alive(self) -> list[Node]:
        return [node for node in self.nodes if node.alive]

    def of(self, site: str) -> list[Node]:
        """Alive, the coordinator first."""
        nodes = [node for node in self.alive if node.site == site]
        views = [node.member.membership.view for node in nodes]
        if nodes and views[0] is not None:
            order = views[0].ids
            nodes.sort(key=lambda node: order.index(node.id) if node.id in order else len(order))
        return nodes

    def named(self, name: str) -> Node:
        return next(node for node in self.alive if node.name == name)

    def crash(self, node: Node) -> None:
        self.world.crash(node.process)
        if node.gossip:
            node.gossip.crashed()

    def leave(self, node: Node) -> None:
        node.member.leave(node.now)
        self.world.turned(node.process)

    def is_settled(self) -> bool:
        """Whether everybody alive has the right views and nothing is under way."""
        everyone = {node.id for node in self.alive}
        for node in self.alive:
            view = node.member.membership.view
            site = {other.id for other in self.alive if other.site == node.site}
            if view is None or set(view.ids) != site:
                return False
            if {member.id for member in node.everyone} != everyone:
                return False
        return True

    def settled(self, seconds: float) -> bool:
        return self.world.run(seconds, self.is_settled)

    def describe(self) -> str:
        lines = [f"at {self.world.now:.3f}"]
        for node in self.alive:
            view = node.member.membership.view
            lines.append(f"{node}: view {view}, everyone {[member.label for member in node.everyone]}")
        return "\n".join(lines)
