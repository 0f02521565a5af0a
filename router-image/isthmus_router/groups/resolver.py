"""Sending to a member by its id: looked up, and asked for if it is not known where it is.

Frames to somebody unknown wait, bounded by number, bytes and time, while everybody is asked WHO_HAS: by every way of
discovery, which only who is meant answers, and directly of a few members that are known, which answer for others,
too. Nothing overtakes what waits. When the own addresses change, the next frame to each member is preceded by an
I_HAVE with them. A member that closes says so to everybody it knows (INVALIDATE).

Source: the logical address design (transport, ARP-like functionality).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf
from typing import Protocol

from isthmus_router.groups.address_cache import AddressCache
from isthmus_router.groups.announcements import MOST_WANTED, IHave, Invalidate, WhoHas
from isthmus_router.groups.choosers import make_chooser
from isthmus_router.groups.frames import Kind, encode_frame
from isthmus_router.groups.identity import NOBODY, GroupName, MemberId, MemberInfo, PhysicalAddress
from isthmus_router.groups.names import Names
from isthmus_router.groups.port import NetworkPort
from isthmus_router.groups.views import View

MOST_ASKED_DIRECTLY = 3


@dataclass(frozen=True, slots=True)
class ResolverSettings:
    """Bounds; times in seconds."""

    queue_frames: int = 128
    """That wait for one member."""
    queue_bytes: int = 1 << 20
    queue_age: float = 2.0
    total_bytes: int = 16 << 20
    """That wait for all of them."""
    most_destinations: int = 2_000
    """That frames wait for."""
    ask_interval: float = 0.5
    """A member is asked for no more often."""
    cache_limit: int = 2_000
    expire_after: float = 120.0
    """Who is not in the view is forgotten, unless it is told of again."""
    avoid_for: float = 30.0
    """A physical address after a connection to it was lost, while the member has others."""
    chooser: str = "first"
    """first, rotate or same-network."""
    networks: tuple[str, ...] = ()
    """Of this machine, as CIDR; for same-network."""


@dataclass(slots=True)
class ResolverCounters:
    """Since the start."""

    waited: int = 0
    """Frames that had to wait."""
    overflowed: int = 0
    """Frames dropped as more waited than may."""
    expired: int = 0
    """Frames dropped as nobody has said where their member is, or it has said that it is gone."""
    asked: int = 0
    """Members asked for, each time."""
    foreign: int = 0
    """Announcements of other groups."""


class ResolverUser(Protocol):
    """Who sends through a resolver."""

    def unreachable(self, now: float, member: MemberId, frames: int) -> None:
        """Nobody has said where that member is; so many frames for it are dropped. To be logged."""


class Everywhere(Protocol):
    """All the ways of discovery (`discovery.ways.Ways`)."""

    def ask(self, now: float, frame: bytes, *, worth: float) -> None:
        """Send to whoever may be there, and to whom lookups find within so many seconds."""

    def learned(self, addresses: Iterable[PhysicalAddress]) -> None:
        """Somebody of the group is there."""

    def readdressed(self, addresses: Iterable[PhysicalAddress]) -> None:
        """This member's own, which it need not ask."""


@dataclass(slots=True)
class _Queue:
    expires: float
    frames: deque[bytes] = field(default_factory=deque)
    size: int = 0


class Resolver:
    """Of one member in one group."""

    def __init__(
        self,
        self_info: MemberInfo,
        group: GroupName,
        port: NetworkPort,
        ways: Everywhere,
        user: ResolverUser,
        settings: ResolverSettings | None = None,
        names: Names | None = None,
    ) -> None:
        """Raises ValueError for a chooser or networks that there are not."""
        self.self_info = self_info
        self.group = group
        self.names = Names() if names is None else names
        self.counters = ResolverCounters()
        settings = settings or ResolverSettings()
        self.cache = AddressCache(
            make_chooser(settings.chooser, settings.networks),
            limit=settings.cache_limit,
            expire_after=settings.expire_after,
            avoid_for=settings.avoid_for,
        )
        self._settings = settings
        self._port = port
        self._ways = ways
        self._user = user
        self._view: tuple[MemberId, ...] = ()
        self._queues: dict[MemberId, _Queue] = {}
        """By when they expire."""
        self._queued_bytes = 0
        self._wanted: dict[MemberId, float] = {}
        """When they are to be asked for."""
        self._asked: dict[MemberId, float] = {}
        """When they were last, longest ago first; forgotten after the interval."""
        self._changes = 0
        """Of the own addresses."""
        self._closed = False
        self.names.put(self_info.id, self_info.name)
        ways.readdressed(self_info.addresses)

    @property
    def deadline(self) -> float:
        """When `on_time` is to be called; at once after a send to somebody unknown."""
        return min(
            min(self._wanted.values(), default=inf),
            next((queue.expires for queue in self._queues.values()), inf),
            self.cache.deadline,
        )

    @property
    def queued(self) -> tuple[int, int]:
        """Frames and bytes that wait."""
        return sum(len(queue.frames) for queue in self._queues.values()), self._queued_bytes

    def address(self, member: MemberId) -> PhysicalAddress | None:
        """Where frames to it are sent."""
        entry = self.cache.get(member)
        return None if entry is None else entry.choice

    def send(self, now: float, to: MemberId, frame: bytes) -> None:
        """To a member other than oneself; the frame waits if it is not known where it is."""
        entry = self.cache.get(to)
        if entry is None:
            self._wait(now, to, frame)
            return
        if entry.told != self._changes:
            entry.told = self._changes
            self._port.send(entry.choice, self._own_announcement(to))
        if entry.doubtful:
            self._want(now, to)
        self._port.send(entry.choice, frame)

    def learn(self, now: float, info: MemberInfo, *, own_word: bool) -> None:
        """A member is there, as it says itself or others say of it. What waits for it is sent."""
        if info.id == self.self_info.id or self._closed:
            return
        if own_word or info.id not in self.cache:
            self.names.put(info.id, info.name)
        addresses = tuple(each for each in info.addresses if each not in self.self_info.addresses)
        for address in self.cache.learn(now, info.id, addresses, own_word=own_word):
            self._port.drop(address, info.id)
        entry = self.cache.get(info.id)
        if entry is None:
            return
        self._ways.learned(entry.addresses)
        if not entry.doubtful:
            self._wanted.pop(info.id, None)
        queue = self._take(info.id)
        for frame in () if queue is None else queue.frames:
            self.send(now, info.id, frame)

    def suggest(self, now: float, infos: Iterable[MemberInfo]) -> None:
        """What gossip routers know, which do not know one domain from another: taken for who is asked for."""
        for info in infos:
            if info.id in self._wanted:
                self.learn(now, info, own_word=False)

    def view_installed(self, now: float, view: View) -> None:
        """Its members are there, and are not forgotten before a later view is without them."""
        self._view = view.ids
        self.cache.keep(now, view.ids)
        for info in view.members:
            self.learn(now, info, own_word=False)

    def connection_lost(self, now: float, address: PhysicalAddress) -> None:
        """Who is there is reached at another address from now on, if it has several."""
        self.cache.lost(now, address)

    def readdressed(self, addresses: tuple[PhysicalAddress, ...]) -> None:
        """This member is elsewhere from now on; others are told with what is next sent to them."""
        self.self_info = self.self_info._replace(addresses=addresses)
        self._ways.readdressed(addresses)
        self._changes += 1

    def on_frame(
        self,
        now: float,
        kind: Kind,
        sender: MemberId,
        destination: MemberId,
        frame: bytes,
        *,
        by_multicast: bool = False,
    ) -> None:
        """WHO_HAS, I_HAVE or INVALIDATE. By multicast everybody can claim to be a member, so that what it says is
        taken as if somebody else had said it. Raises FrameError."""
        match kind:
            case Kind.WHO_HAS:
                self._on_who_has(now, sender, destination, WhoHas.decode(frame), by_multicast)
            case Kind.I_HAVE:
                have = IHave.decode(frame)
                if self._is_ours(have.group):
                    for info in have.members:
                        self.learn(now, info, own_word=info.id == sender)
            case Kind.INVALIDATE:
                invalidate = Invalidate.decode(frame)
                if self._is_ours(invalidate.group) and invalidate.gone == sender:
                    self._on_invalidate(now, sender)
            case _:
                raise ValueError(f"not of the resolver: {kind.name}")

    def on_time(self, now: float) -> None:
        """Ask for who is wanted; drop what has waited too long; forget who has left long ago."""
        self._ask(now)
        expired = [member for member, queue in self._queues.items() if queue.expires <= now]
        for member in expired:
            self._give_up(now, member)
        for member, address in self.cache.expire(now):
            self._port.drop(address, member)

    def close(self, now: float) -> None:
        """This member goes: everybody known is told. Nothing is sent or learned any more."""
        body = Invalidate(self.group, self.self_info.id).encode()
        for member in self.cache:
            self.send(now, member, encode_frame(Kind.INVALIDATE, self.self_info.id, member, body))
            self.cache.remove(member)
        self._closed = True
        self._queues.clear()
        self._queued_bytes = 0
        self._wanted.clear()

    def _wait(self, now: float, to: MemberId, frame: bytes) -> None:
        if self._closed or to == self.self_info.id or self.cache.is_gone(to):
            self.counters.expired += 1
            return
        queue = self._queues.get(to)
        limits = self._settings
        if queue is None:
            if len(self._queues) >= limits.most_destinations:
                self.counters.overflowed += 1
                return
            queue = self._queues[to] = _Queue(now + limits.queue_age)
            self._want(now, to)
        self.counters.waited += 1
        queue.frames.append(frame)
        self._resize(queue, len(frame))
        while queue.frames and (
            len(queue.frames) > limits.queue_frames
            or queue.size > limits.queue_bytes
            or self._queued_bytes > limits.total_bytes
        ):
            self._resize(queue, -len(queue.frames.popleft()))
            self.counters.overflowed += 1

    def _resize(self, queue: _Queue, by: int) -> None:
        queue.size += by
        self._queued_bytes += by

    def _take(self, member: MemberId) -> _Queue | None:
        queue = self._queues.pop(member, None)
        if queue is not None:
            self._queued_bytes -= queue.size
        return queue

    def _give_up(self, now: float, member: MemberId) -> None:
        queue = self._take(member)
        self._wanted.pop(member, None)
        if queue is not None:
            self.counters.expired += len(queue.frames)
            self._user.unreachable(now, member, len(queue.frames))

    def _want(self, now: float, member: MemberId) -> None:
        self._wanted[member] = max(now, self._asked.get(member, -inf) + self._settings.ask_interval)

    def _ask(self, now: float) -> None:
        interval = self._settings.ask_interval
        while self._asked and (first := next(iter(self._asked))) and self._asked[first] + interval <= now:
            del self._asked[first]
        due = [member for member, at in self._wanted.items() if at <= now][:MOST_WANTED]
        if not due:
            return
        for member in due:
            del self._wanted[member]
            self._asked[member] = now
            if member in self._queues:
                self._wanted[member] = now + interval
        self.counters.asked += len(due)
        body = WhoHas(self.group, self.self_info, tuple(due)).encode()
        self._ways.ask(now, encode_frame(Kind.WHO_HAS, self.self_info.id, NOBODY, body), worth=interval)
        for member in self._who_may_know(due):
            self.send(now, member, encode_frame(Kind.WHO_HAS, self.self_info.id, member, body))

    def _who_may_know(self, wanted: list[MemberId]) -> list[MemberId]:
        known = (each for each in chain(self._view, self.cache) if each in self.cache and each not in wanted)
        return list(dict.fromkeys(islice(known, MOST_ASKED_DIRECTLY)))

    def _on_who_has(
        self, now: float, sender: MemberId, destination: MemberId, who_has: WhoHas, by_multicast: bool
    ) -> None:
        if not self._is_ours(who_has.group):
            return
        self.learn(now, who_has.asker, own_word=who_has.asker.id == sender and not by_multicast)
        infos = [self.self_info] if self.self_info.id in who_has.wanted else []
        if destination == self.self_info.id:
            infos += [info for member in who_has.wanted if (info := self._known(member)) is not None]
        if infos:
            body = IHave(self.group, tuple(infos)).encode()
            self.send(now, sender, encode_frame(Kind.I_HAVE, self.self_info.id, sender, body))

    def _known(self, member: MemberId) -> MemberInfo | None:
        entry = self.cache.get(member)
        if entry is None or entry.doubtful:
            return None
        return MemberInfo(member, self.names.name(member), entry.addresses)

    def _on_invalidate(self, now: float, gone: MemberId) -> None:
        if gone == self.self_info.id:
            return
        for address in self.cache.end(now, gone):
            self._port.drop(address, gone)
        self.names.remove(gone)
        self._give_up(now, gone)

    def _is_ours(self, group: GroupName) -> bool:
        if group == self.group:
            return True
        self.counters.foreign += 1
        return False

    def _own_announcement(self, to: MemberId) -> bytes:
        body = IHave(self.group, (self.self_info,)).encode()
        return encode_frame(Kind.I_HAVE, self.self_info.id, to, body)
