"""A member's side of the gossip routers: registered with all of them, so that losing one is not noticed.

What goes through the routers sticks to one for each destination, which keeps its order, and changes to another when
that one is lost or does not have the destination. A member counts as lost when every router that is known to have had
it has said so: a router that loses its own connections says nothing about members.

Source: the logical address design (register, get members, tunnel); rules for several routers are our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import NamedTuple, Protocol

from isthmus_router.gossip.binding import Binding
from isthmus_router.gossip.messages import (
    LENGTH_BYTES,
    VERSION,
    Control,
    GetMembers,
    Heartbeat,
    Hello,
    Members,
    NotHere,
    Refused,
    Register,
    Suspect,
    Unregister,
    decode_control,
    encode_control,
    encode_message,
    is_message,
    payload_of,
    route_of,
)
from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import LONGEST_NAME_BYTES, NOBODY, MemberId, MemberInfo

MOST_MEMBERS = 10_000
"""Remembered of each router, and to be asked about."""


class Endpoint(NamedTuple):
    """Where a gossip router listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Times in seconds."""

    heartbeat: float = 3.0
    """Between heartbeats, or a third of what the router allows; a router silent for three of them is lost."""
    greeting: float = 5.0
    """For making a connection and being greeted on it."""
    least_pause: float = 0.1
    """Before a connection is made again; doubled each time up to `most_pause`."""
    most_pause: float = 5.0


class GossipPort(Protocol):
    """The driver: at most one connection to each router."""

    def connect(self, router: Endpoint) -> None:
        """Make a connection; told by `connected`, or `closed` where there is none."""

    def send(self, router: Endpoint, frame: bytes) -> None:
        """Send on it. What is too much for it may be dropped."""

    def close(self, router: Endpoint) -> None:
        """End it after what was sent, or stop making it. No event of it comes any more, not even `closed`."""


class GossipUser(Protocol):
    """Who is told. Called from within the client's events; may call `ask` and `send` then."""

    def members(self, now: float, infos: Sequence[MemberInfo]) -> None:
        """Whom one of the routers has, without this member itself."""

    def frame(self, now: float, sender: MemberId, frame: bytes) -> None:
        """Another member has sent this through a router; one to everybody may come more than once."""

    def suspect(self, now: float, member: MemberId) -> None:
        """All routers that are known to have had it have lost its connection."""

    def refused(self, now: float, router: Endpoint, reason: str) -> None:
        """A router, or what claims to be one, cannot be used; it is tried again. For the log."""


class _State(Enum):
    WAITING = auto()
    """For the time to connect."""
    CONNECTING = auto()
    GREETING = auto()
    """The router is to say HELLO."""
    REGISTERED = auto()


@dataclass(slots=True, eq=False)
class _Router:
    endpoint: Endpoint
    state: _State = _State.WAITING
    at: float = math.inf
    """When something is to be done: connect, give up, send a heartbeat."""
    pause: float = 0.0
    heard: float = 0.0
    heartbeat: float = 0.0
    id: bytes = b""
    most_bytes: int = 0
    asked: int = 0
    """GET_MEMBERS without their last answers."""
    members: set[MemberId] = field(default_factory=set)
    """Whom it has as far as is known; kept while the connection is lost."""
    answer: list[MemberInfo] = field(default_factory=list)


class GossipClient:
    """Of one member in one group."""

    def __init__(
        self,
        group: str,
        self_info: MemberInfo,
        routers: Sequence[Endpoint],
        port: GossipPort,
        user: GossipUser,
        random: Random,
        settings: ClientSettings | None = None,
        binding: Binding | None = None,
    ) -> None:
        """`group`: names everything that must not mix. ValueError if it has more than 255 bytes.

        `binding`: which certificates the members of the group have; None: any.
        """
        self._binding = binding or Binding()
        group = self._binding.group(group)
        if len(group.encode()) > LONGEST_NAME_BYTES:
            raise ValueError(f"group of more than {LONGEST_NAME_BYTES} bytes: {group}")
        self._group = group
        self._info = self_info
        self._port = port
        self._user = user
        self._random = random
        self._settings = settings or ClientSettings()
        self._routers = {endpoint: _Router(endpoint) for endpoint in routers}
        self._routes: dict[MemberId, _Router] = {}
        """The router that messages to a member go through."""
        self._doubted: dict[MemberId, None] = {}
        """A router has lost them, and another may have them."""
        self.dropped = 0
        """Messages that no router could take."""
        self.malformed = 0
        """Frames of routers that made no sense."""

    @property
    def registered(self) -> tuple[Endpoint, ...]:
        """Routers that know this member now."""
        return tuple(router.endpoint for router in self._usable())

    @property
    def deadline(self) -> float:
        """When `on_time` is to be called."""
        return min((router.at for router in self._routers.values()), default=math.inf)

    def start(self, now: float) -> None:
        """Connects to every router, and again whenever a connection is lost."""
        for router in self._routers.values():
            self._connect(now, router)

    def close(self, now: float) -> None:
        """Unregisters everywhere; nothing happens any more until another `start`."""
        for router in self._routers.values():
            if router.state is _State.REGISTERED:
                self._tell(router, Unregister(self._group, self._info.id))
            if router.state is not _State.WAITING:
                self._port.close(router.endpoint)
            self._forget_connection(router)
            router.at, router.pause = math.inf, 0.0
        self._doubted.clear()

    def readdressed(self, now: float, info: MemberInfo) -> None:
        """This member's addresses have changed."""
        self._info = info
        for router in self._usable():
            self._tell(router, self._registration())

    def ask(self, now: float) -> None:
        """Asks every router that is connected for the members; others are asked as soon as they are."""
        for router in self._usable():
            self._ask(router)

    def send(self, now: float, to: MemberId, frame: bytes) -> bool:
        """Sends to a member through a router, or to everybody (NOBODY) through all of them.

        False, and counted, if no router can take it. It may be lost later without a word.
        """
        if to == NOBODY:
            chosen = self._usable()
        else:
            route = self._routes.get(to) or self._choose(to)
            chosen = [] if route is None else [route]
        message = encode_message(self._group, to, self._info.id, frame)
        chosen = [router for router in chosen if len(message) - LENGTH_BYTES <= router.most_bytes]
        for router in chosen:
            self._port.send(router.endpoint, message)
        self.dropped += not chosen
        return bool(chosen)

    # Events of connections

    def connected(self, now: float, router: Endpoint) -> None:
        """The connection asked for is there, or another in its place."""
        known = self._routers[router]
        self._forget_connection(known)
        known.state, known.at = _State.GREETING, now + self._settings.greeting
        self._tell(known, Hello(VERSION))

    def closed(self, now: float, router: Endpoint) -> None:
        """The connection has ended, or could not be made."""
        self._lost(now, self._routers[router])

    def heard(self, now: float, router: Endpoint) -> None:
        """A part of a long frame of a router, which nothing can overtake: the router is there."""
        known = self._routers[router]
        if known.state is _State.REGISTERED:
            known.heard = now

    def on_frame(self, now: float, router: Endpoint, frame: bytes) -> None:
        """A frame of a router, with its length, as a `FrameReader` cuts it. Never raises for what it says."""
        known = self._routers[router]
        if known.state not in (_State.GREETING, _State.REGISTERED):
            return  # read together with one for which the connection was given up
        known.heard = now
        try:
            if not is_message(frame):
                self._on_control(now, known, decode_control(frame))
                return
            group, destination, sender = route_of(frame)
        except FrameError as error:
            self.malformed += 1
            self._give_up(now, known, f"malformed frame: {error}")
            return
        ours = group == self._group.encode() and destination in (self._info.id, NOBODY)
        if ours and sender != self._info.id and known.state is _State.REGISTERED:
            self._has(known, sender)
            self._user.frame(now, sender, payload_of(frame))

    def on_time(self, now: float) -> None:
        """`deadline` is over."""
        for router in self._routers.values():
            if router.at > now:
                continue
            if router.state is _State.WAITING:
                self._connect(now, router)
            elif router.state is not _State.REGISTERED:
                self._give_up(now, router, "no greeting in time")
            elif now >= router.heard + 3 * router.heartbeat:
                self._give_up(now, router, "silent")
            else:
                self._tell(router, Heartbeat())
                router.at = now + router.heartbeat

    # What routers say

    def _on_control(self, now: float, router: _Router, message: Control) -> None:
        match message:
            case Refused(reason):
                self._give_up(now, router, reason)
            case Hello() if router.state is _State.GREETING:
                self._greeted(now, router, message)
            case Members(group, infos, last) if group == self._group and router.asked:
                router.answer.extend(infos[: MOST_MEMBERS - len(router.answer)])
                if last:
                    self._answered(now, router)
            case Suspect(group, member) if group == self._group and member != self._info.id:
                self._lost_by(now, router, member)
            case NotHere(group, member) if group == self._group:
                router.members.discard(member)
                if self._routes.get(member) is router:
                    del self._routes[member]
                    self._choose(member, but=router)
            case _:
                pass

    def _greeted(self, now: float, router: _Router, hello: Hello) -> None:
        if hello.version != VERSION:
            self._give_up(now, router, f"version {hello.version} of the protocol; {VERSION} is known")
        elif any(other.id == hello.router for other in self._usable()):
            # The same process would have this member by the newer connection only, and lose it with that.
            self._give_up(now, router, "another name of a router that is connected")
            router.at = now + self._settings.most_pause
        else:
            router.id, router.most_bytes = hello.router, hello.most_bytes
            limit = hello.expiry_seconds / 3 if hello.expiry_seconds > 0 else math.inf
            router.heartbeat = max(0.1, min(self._settings.heartbeat, limit))
            router.state, router.at = _State.REGISTERED, now + router.heartbeat
            self._tell(router, self._registration())
            self._ask(router)

    def _answered(self, now: float, router: _Router) -> None:
        router.asked -= 1
        router.pause = 0.0
        infos = [info for info in router.answer if info.id != self._info.id]
        router.answer = []
        router.members = {info.id for info in infos}
        for member in router.members:
            self._doubted.pop(member, None)
        self._user.members(now, infos)
        self._settle(now)

    def _lost_by(self, now: float, router: _Router, member: MemberId) -> None:
        router.members.discard(member)
        if self._routes.get(member) is router:
            del self._routes[member]
        if len(self._doubted) < MOST_MEMBERS:
            self._doubted[member] = None
        for other in self._usable():
            # An answer under way will do: should it be older than another loss, that router tells of it after it.
            if other is not router and not other.asked:
                self._ask(other)
        self._settle(now)

    def _settle(self, now: float) -> None:
        """Tells of those in doubt that nobody has, once every router that can be asked has answered."""
        if not self._doubted or any(router.asked for router in self._usable()):
            return
        held = set().union(*(router.members for router in self._routers.values()))
        lost = [member for member in self._doubted if member not in held]
        for member in lost:
            del self._doubted[member]
        for member in lost:
            self._user.suspect(now, member)

    # Connections

    def _usable(self) -> list[_Router]:
        return [router for router in self._routers.values() if router.state is _State.REGISTERED]

    def _choose(self, to: MemberId, but: _Router | None = None) -> _Router | None:
        """The router for a member from now on: one that has it, or any; not `but` if there is another."""
        usable = self._usable()
        others = [router for router in usable if router is not but] or usable
        if not others:
            return None
        if len(self._routes) >= MOST_MEMBERS:
            self._routes.clear()
        route = self._random.choice([router for router in others if to in router.members] or others)
        self._routes[to] = route
        return route

    def _has(self, router: _Router, member: MemberId) -> None:
        if len(router.members) < MOST_MEMBERS:
            router.members.add(member)

    def _connect(self, now: float, router: _Router) -> None:
        router.state, router.at = _State.CONNECTING, now + self._settings.greeting
        self._port.connect(router.endpoint)

    def _tell(self, router: _Router, message: Control) -> None:
        self._port.send(router.endpoint, encode_control(message))

    def _registration(self) -> Register:
        return Register(self._group, self._info, self._binding)

    def _ask(self, router: _Router) -> None:
        router.asked += 1
        self._tell(router, GetMembers(self._group))

    def _give_up(self, now: float, router: _Router, reason: str) -> None:
        self._port.close(router.endpoint)
        self._lost(now, router)
        self._user.refused(now, router.endpoint, reason)

    def _forget_connection(self, router: _Router) -> None:
        router.state = _State.WAITING
        router.asked, router.answer = 0, []
        self._routes = {to: route for to, route in self._routes.items() if route is not router}

    def _lost(self, now: float, router: _Router) -> None:
        self._forget_connection(router)
        least, most = self._settings.least_pause, self._settings.most_pause
        router.pause = min(most, max(least, 2 * router.pause))
        router.at = now + router.pause * self._random.uniform(0.5, 1.0)
        self._settle(now)
