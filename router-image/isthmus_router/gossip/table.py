"""What a gossip router knows and does: who is registered in which group, by which connection, and who is sent what.

The table is never stored: after a restart members register again. An entry belongs to the connection that made it, so
that the late end of an older one does no harm to a newer registration. Sans-IO.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from isthmus_router.gossip.binding import Binding
from isthmus_router.gossip.messages import (
    MOST_BYTES,
    MOST_INFOS,
    VERSION,
    Control,
    GetMembers,
    Heartbeat,
    Hello,
    NotHere,
    Refused,
    Register,
    Suspect,
    Unregister,
    decode_control,
    encode_control,
    encode_info,
    encode_members,
    is_message,
    route_of,
)
from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import NOBODY, MemberId, MemberInfo
from isthmus_router.message.types import Encoded
from isthmus_router.places import Places

T = TypeVar("T")

SUSPECTS_AT_ONCE = 64
"""Members whose loss is encoded, or connections to which it is sent, in one step."""


class Link(Hashable, Protocol):
    """The driver's side of one connection; equal only to itself. Returns at once, and does not call back."""

    @property
    def held_back(self) -> bool:
        """Whether the driver reports no frames of the connection for now, as it has received too many."""

    def send(self, frame: bytes) -> None:
        """Queue a frame of the router itself, or several in a row; whose queue gets too long, the driver cuts off."""

    def carry(self, group: bytes, frame: bytes, to: Sequence[Link]) -> None:
        """Queue a message that this connection has sent for others. It counts for this connection until all have it."""

    def answer(self, frames: Sequence[bytes]) -> None:
        """Queue the answer to a question. The driver reports no further frame of the connection until it is sent."""

    def close(self, reason: str) -> None:
        """End the connection after what was sent. `Table.closed` may follow or not."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a table; times in seconds."""

    expiry: float = 15.0
    """A connection that is silent for longer is ended."""
    greeting: float = 5.0
    """For the first frame of a connection."""
    most_bytes: int = MOST_BYTES
    """Of a frame without its length."""
    most_connections: int = 2_000
    most_groups: int = 1_000
    most_members: int = 10_000
    """Over all groups."""
    most_registrations: int = 64
    """Of one connection."""

    @property
    def most_of_identity(self) -> int:
        """Registrations by all connections of one identity, so that nobody fills the table alone."""
        return max(self.most_registrations, self.most_members // 8)

    @property
    def most_groups_of_identity(self) -> int:
        """Groups that one identity has made, likewise."""
        return max(1, self.most_groups // 8)


@dataclass(slots=True)
class Counters:
    """Since the start."""

    registered: int = 0
    """Registrations, but for those again with other addresses."""
    taken_over: int = 0
    """Registrations that replaced one by another connection."""
    messages: int = 0
    """Accepted from members."""
    copies: int = 0
    """Passed on: more than messages where these are to everybody."""
    not_here: int = 0
    """Messages to members that are not registered."""
    not_registered: int = 0
    """Messages whose sender had not registered by the connection that they came by; not passed on."""
    suspected: int = 0
    """Members whose connection was lost."""
    expired: int = 0
    """Connections that were silent for too long."""
    refused: int = 0
    """Connections ended for what they said: malformed, another version, beyond a limit."""


@dataclass(slots=True, eq=False)
class _Client:
    link: Link
    identity: str
    names: tuple[str, ...] | None
    heard: float
    greeted: bool = False
    registered: set[tuple[bytes, MemberId]] = field(default_factory=set)


class _Entry(NamedTuple):
    client: _Client
    info: MemberInfo
    encoded: Encoded
    """As part of an answer, so that a change of one member does not cost the encoding of all."""


@dataclass(slots=True)
class _Group:
    entries: dict[MemberId, _Entry] = field(default_factory=dict)
    founder: str = ""
    """The identity that has made it; when that has left, another one that is there."""
    answer: list[bytes] | None = None
    """The frames that tell of its members, until they change."""


class Table:
    """Of one router process."""

    def __init__(self, now: float, router: bytes, limits: Limits | None = None) -> None:
        """`router`: random bytes that tell this process from others."""
        self.limits = limits or Limits()
        self.counters = Counters()
        self._router = router
        self._clients: dict[Link, _Client] = {}
        self._groups: defaultdict[bytes, _Group] = defaultdict(_Group)
        """By name; none is empty."""
        self._places = Places(self.limits.most_connections)
        """Of connections with members, by identity: others make room for new ones."""
        self._members = 0
        self._by_identity: Counter[str] = Counter()
        """Registrations."""
        self._groups_by_identity: Counter[str] = Counter()
        """Groups, by their founders."""
        self._lost: defaultdict[bytes, dict[MemberId, None]] = defaultdict(dict)
        """Members whose connections were lost, by group, until the others are told."""
        self._told: tuple[bytes, dict[MemberId, bytes]] = (b"", {})
        """The group whose connections are being told, and a frame for each of its members that were lost."""
        self._telling: Iterator[None] | None = None
        self.served = 0.0
        """Implements `turns.Worker`."""
        self.on_work: Callable[[], None] | None = None
        """Called when there is work: `work` is to be called in turns until it returns False. Without it, the table does
        all work within the event."""
        self._look_around_each = min(self.limits.expiry, self.limits.greeting) / 4
        self.deadline = now + self._look_around_each
        """When `on_time` is to be called."""

    @property
    def groups(self) -> int:
        """Groups with members."""
        return len(self._groups)

    @property
    def members(self) -> int:
        """Registrations over all groups."""
        return self._members

    @property
    def connections(self) -> int:
        """Connections that are open as far as the table goes."""
        return len(self._clients)

    def greeted(self, link: Link) -> bool:
        """Whether who has connected has said HELLO."""
        client = self._clients.get(link)
        return client is not None and client.greeted

    def registered(self, link: Link) -> bool:
        """Whether any member is registered by the connection."""
        client = self._clients.get(link)
        return client is not None and bool(client.registered)

    def group_of(self, link: Link) -> bytes:
        """A group in which a member is registered by the connection; empty if there is none."""
        client = self._clients.get(link)
        return next((group for group, _ in client.registered), b"") if client is not None else b""

    def members_of(self, group: str) -> tuple[MemberInfo, ...]:
        """Who is registered in a group."""
        known = self._groups.get(group.encode())
        return () if known is None else tuple(entry.info for entry in known.entries.values())

    # Events

    def opened(
        self, now: float, link: Link, identity: str = "", names: tuple[str, ...] | None = None
    ) -> None:
        """Somebody has connected. `identity`: the names of the certificate, or without one the network address.

        `names`: those of the certificate, None where there is no verified one.
        """
        self._clients[link] = _Client(link, identity, names, now)

    def closed(self, now: float, link: Link) -> None:
        """A connection has ended; of no effect where the table has ended it."""
        client = self._clients.pop(link, None)
        if client is not None:
            self._unregister_all(client)

    def received(self, now: float, link: Link, frame: bytes) -> bool:
        """A frame, with its length, as a `FrameReader` cuts it. Never raises for what is in it.

        Returns whether it was no message that was passed on quickly.
        """
        client = self._clients.get(link)
        if client is None:
            return True  # read together with what had it refused
        client.heard = now
        try:
            if is_message(frame):
                self._pass_on(client, frame)
                return False
            self._on_control(client, decode_control(frame))
        except FrameError as error:
            self.refuse(link, f"malformed frame: {error}")
        return True

    def taking(self, now: float, link: Link) -> None:
        """The peer takes what was sent, while the driver reports none of its frames: it is there."""
        client = self._clients.get(link)
        if client is not None:
            client.heard = now

    def refuse(self, link: Link, reason: str) -> None:
        """Ends a connection for what came by it, and tells why."""
        client = self._clients.pop(link, None)
        if client is not None:
            self.counters.refused += 1
            self._end(client, reason)

    def on_time(self, now: float) -> None:
        """`deadline` is over: whoever is silent for too long is ended."""
        limits = self.limits
        for client in list(self._clients.values()):
            if client.link.held_back:
                # It may have said something that is not read, and takes a router that says nothing for lost.
                client.heard = now
                self._tell(client, Heartbeat())
                continue
            allowed = limits.expiry if client.greeted else limits.greeting
            if now >= client.heard + allowed:
                del self._clients[client.link]
                self.counters.expired += 1
                self._end(client, f"silent for {allowed:g} s")
        self.deadline = now + self._look_around_each

    # Messages

    def _pass_on(self, client: _Client, frame: bytes) -> None:
        group, destination, sender = route_of(frame)
        if (group, sender) not in client.registered:
            self.counters.not_registered += 1
            return
        self.counters.messages += 1
        entries = self._groups[group].entries
        if destination == NOBODY:
            self._to_others(entries.values(), client, group, frame)
        elif receiver := entries.get(destination):
            self.counters.copies += 1
            client.link.carry(group, frame, (receiver.client.link,))
        else:
            self.counters.not_here += 1
            self._tell(client, NotHere(group.decode(), destination))

    def _to_others(self, entries: Iterable[_Entry], but: _Client, group: bytes, frame: bytes) -> None:
        others = {entry.client: None for entry in entries}
        others.pop(but, None)
        self.counters.copies += len(others)
        but.link.carry(group, frame, [client.link for client in others])

    # Registrations

    def _on_control(self, client: _Client, message: Control) -> None:
        if not client.greeted:
            self._greet(client, message)
            return
        match message:
            case Register(group, info, binding):
                self._register(client, group, info, binding)
            case Unregister(group, member):
                self._unregister(client, group.encode(), member)
            case GetMembers(group):
                self._answer(client, group)
            case Heartbeat():
                self._tell(client, message)
            case _:
                raise FrameError(f"{type(message).__name__} from a member")

    def _greet(self, client: _Client, message: Control) -> None:
        if not isinstance(message, Hello):
            raise FrameError(f"{type(message).__name__} before HELLO")
        limits = self.limits
        self._tell(client, Hello(VERSION, self._router, limits.expiry, limits.most_bytes))
        if message.version != VERSION:
            self.refuse(client.link, f"version {message.version} of the protocol; {VERSION} is known")
        client.greeted = True

    def _register(self, client: _Client, name: str, info: MemberInfo, binding: Binding) -> None:
        if objection := binding.objection(name, info.name, client.names):
            self.refuse(client.link, objection)
            return
        group = name.encode()
        known = self._groups.get(group)
        before = None if known is None else known.entries.get(info.id)
        if before is not None and before.client is client and before.info == info:
            return
        if before is None or before.client is not client:
            if before is not None and before.client.identity != client.identity:
                # Messages for the member would go to somebody else.
                self.refuse(client.link, f"member {info.id.hex()} is registered by another identity")
                return
            full = self._full(client, new_group=known is None, new_member=before is None)
            if not full and not client.registered and not self._places.take(client.identity):
                full = f"too many connections of {client.identity}"
            if full:
                self.refuse(client.link, full)
                return
            self.counters.registered += 1
            client.registered.add((group, info.id))
            if before is None:
                self._is_back(group, info.id)
                self._members += 1
                self._by_identity[client.identity] += 1
            else:
                self.counters.taken_over += 1
                self._no_longer(before.client, group, info.id)
        if known is None:
            self._found(self._groups[group], client.identity)
        known = self._groups[group]
        encoded = before.encoded if before is not None and before.info == info else encode_info(info)
        known.entries[info.id] = _Entry(client, info, encoded)
        if before is None or before.info != info:
            known.answer = None

    def _full(self, client: _Client, *, new_group: bool, new_member: bool) -> str | None:
        limits = self.limits
        if len(client.registered) >= limits.most_registrations:
            return f"{limits.most_registrations} registrations by one connection"
        if new_member and self._by_identity[client.identity] >= limits.most_of_identity:
            return f"{limits.most_of_identity} registrations by one identity"
        if new_group and len(self._groups) >= limits.most_groups:
            return f"{limits.most_groups} groups"
        if new_group and self._groups_by_identity[client.identity] >= limits.most_groups_of_identity:
            return f"{limits.most_groups_of_identity} groups by one identity"
        if new_member and self._members >= limits.most_members:
            return f"{limits.most_members} members"
        return None

    def _unregister(self, client: _Client, group: bytes, member: MemberId) -> None:
        if (group, member) not in client.registered:
            return
        self._no_longer(client, group, member)
        known = self._groups[group]
        del known.entries[member]
        known.answer = None
        if not known.entries:
            self._found(known, None)
            del self._groups[group]
        elif known.founder == client.identity:
            self._found(known, next(iter(known.entries.values())).client.identity)
        self._members -= 1
        self._by_identity[client.identity] -= 1
        if not self._by_identity[client.identity]:
            del self._by_identity[client.identity]

    def _no_longer(self, client: _Client, group: bytes, member: MemberId) -> None:
        """The member is not registered by that connection any more."""
        client.registered.remove((group, member))
        if not client.registered:
            self._places.leave(client.identity)

    def _found(self, group: _Group, identity: str | None) -> None:
        """The group counts for this identity from now on; None: for nobody."""
        if group.founder:
            self._groups_by_identity[group.founder] -= 1
            if not self._groups_by_identity[group.founder]:
                del self._groups_by_identity[group.founder]
        group.founder = identity or ""
        if identity:
            self._groups_by_identity[identity] += 1

    def _unregister_all(self, client: _Client) -> None:
        """Its connection is gone: who it was registered for is suspected by the others."""
        lost = list(client.registered)
        for group, member in lost:
            self._unregister(client, group, member)
            self.counters.suspected += 1
            if group in self._groups:
                self._lost[group][member] = None
        if self._lost and self._telling is None:
            self._telling = self._tell_of_lost()
            if self.on_work is not None:
                self.on_work()
            else:
                while self.work(0.0):
                    pass

    def work(self, end: float) -> bool:
        """Do one step of what is to be done, which takes less time than any turn. Returns whether some is left."""
        if self._telling is not None and next(self._telling, self) is self:
            self._telling = None
        return self._telling is not None

    def break_off(self) -> None:
        """Implements `turns.Worker`: the next loss of a connection begins again with those that nobody was told of."""
        self._telling = None

    def _tell_of_lost(self) -> Iterator[None]:
        """Send each connection of a group one piece that has all members of the group that were lost, in steps.

        Members that are lost meanwhile have a piece of their own.
        """
        while self._lost:
            group = next(iter(self._lost))
            lost, frames = self._lost.pop(group), dict[MemberId, bytes]()
            self._told = (group, frames)
            name, piece = group.decode(), b""
            frames.update(dict.fromkeys(lost, b""))
            for some in _batched(lost):
                frames.update(
                    (member, encode_control(Suspect(name, member))) for member in some if member in frames
                )
                yield
            known = self._groups.get(group)
            others = () if known is None else {entry.client: None for entry in known.entries.values()}
            for some_others in _batched(others):
                piece = b"".join(frames.values())
                for other in some_others:
                    if piece and self._clients.get(other.link) is other:
                        other.link.send(piece)
                yield
        self._told = (b"", {})

    def _is_back(self, group: bytes, member: MemberId) -> None:
        """Nobody is told any more that the member was lost: it is registered again."""
        if group in self._lost:
            self._lost[group].pop(member, None)
        if group == self._told[0]:
            self._told[1].pop(member, None)

    def _answer(self, client: _Client, group: str) -> None:
        known = self._groups.get(group.encode())
        if known is None:
            client.link.answer([encode_members(group, [], last=True)])
            return
        if known.answer is None:
            infos = [entry.encoded for entry in known.entries.values()]
            known.answer = [
                encode_members(group, infos[at : at + MOST_INFOS], last=at + MOST_INFOS >= len(infos))
                for at in range(0, len(infos), MOST_INFOS)
            ]
        client.link.answer(known.answer)

    def _end(self, client: _Client, reason: str) -> None:
        self._tell(client, Refused(reason))
        client.link.close(reason)
        self._unregister_all(client)

    def _tell(self, client: _Client, message: Control) -> None:
        client.link.send(encode_control(message))


def _batched(items: Iterable[T]) -> Iterator[list[T]]:
    """So many at a time as one step has."""
    rest = iter(items)
    while some := list(islice(rest, SUSPECTS_AT_ONCE)):
        yield some
