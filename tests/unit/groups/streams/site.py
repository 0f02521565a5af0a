"""A site in memory: members' streams on a network that loses, repeats and reorders, with a virtual clock."""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Callable

from isthmus_router.groups.batch import Batch, GroupMessage
from isthmus_router.groups.frames import Kind, encode_frame
from isthmus_router.groups.identity import MemberId, MemberInfo, member_id
from isthmus_router.groups.streams.streams import Streams
from isthmus_router.groups.streams.user import StreamsSettings
from isthmus_router.groups.views import View, ViewId

REMOTE = member_id(b"R" * 16)


class Member:
    """Port and user of its streams."""

    def __init__(self, site: Site, name: str, settings: StreamsSettings) -> None:
        self.site = site
        self.name = name
        self.id = member_id(site.random.randbytes(16))
        self.view: tuple[MemberId, ...] = (self.id,)
        self.alive = True
        self.got: dict[MemberId, list[int]] = defaultdict(list)
        """Numbers of batches delivered, and of those in gaps as negative ones."""
        self.gaps: list[tuple[MemberId, int, int, int]] = []
        self.protects = 0
        self.elsewhere_to = 0
        """Another site has its batches up to this one."""
        self.holds: dict[MemberId, int] = {}
        self.rooms = 0
        self.needed: float = math.inf
        """What `relayed` says."""
        self.sent: dict[Kind, int] = defaultdict(int)
        self.streams = Streams(self.id, "NYC", settings, self, self, random.Random(site.random.random()))

    def send(self, now: float, to: MemberId, kind: Kind, body: bytes) -> None:
        self.sent[kind] += 1
        self.site.carry(self, to, kind, encode_frame(kind, self.id, to, body))

    def send_all(self, now: float, kind: Kind, body: bytes) -> None:
        for member in self.view:
            if member != self.id:
                self.send(now, member, kind, body)

    def delivered(self, now: float, batch: Batch) -> None:
        assert len(list(batch.messages())) == batch.count
        self.got[batch.origin].append(batch.number)

    def gap(self, now: float, origin: MemberId, site: str, first: int, last: int, lost: int) -> None:
        self.gaps.append((origin, first, last, lost))
        self.got[origin] += [-number for number in range(first, last + 1)]

    def protected(self, now: float, number: int) -> None:
        assert number > self.protects
        self.protects = number

    def held(self, now: float, origin: MemberId, number: int) -> None:
        assert number > self.holds.get(origin, -1)
        self.holds[origin] = number

    def room_changed(self, now: float) -> None:
        self.rooms += 1

    def relayed(self, origin: MemberId) -> float:
        return self.needed

    def elsewhere(self, number: int) -> int:
        return max(number, self.elsewhere_to)

    def publish(self, count: int = 1, size: int = 100) -> int:
        """One batch."""
        messages = [GroupMessage("news", bytes(size)) for _ in range(count)]
        number = self.streams.publish(self.site.now, messages)
        self.streams.flush(self.site.now)
        return number

    def bridged(self, batch: Batch) -> bool:
        """A batch from the bridge."""
        new = self.streams.accept(self.site.now, batch, None, disseminate=True)
        self.streams.flush(self.site.now)
        return new

    def numbers(self, origin: MemberId) -> list[int]:
        """Of delivered batches."""
        return [number for number in self.got[origin] if number > 0]

    def marks(self, site: str = "NYC") -> dict[MemberId, int]:
        """How far it is with each origin of a site."""
        logs = {origin: self.streams.log(origin) for origin in self.streams.origins()}
        return {origin: log.next - 1 for origin, log in logs.items() if log and log.site == site}

    def kept(self, origin: MemberId) -> int:
        """Batches in the log."""
        log = self.streams.log(origin)
        return log.count if log else 0


class Site:
    """Members and what is between them."""

    def __init__(
        self,
        count: int,
        *,
        seed: int = 1,
        loss: float = 0,
        repeat: float = 0,
        delay: float = 0.001,
        settings: StreamsSettings | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.loss, self.repeat, self.delay = loss, repeat, delay
        self.settings = settings or StreamsSettings(linger=60.0)
        self.now = 100.0
        self.queue: list[tuple[float, int, Member, Kind, MemberId, bytes]] = []
        self.count = 0
        self.cut: Callable[[Member, MemberId, Kind], bool] = lambda *_: False
        """Frames that are lost."""
        self.view_number = 0
        self.by_id: dict[MemberId, Member] = {}
        self.members = [self.new(f"m{index}") for index in range(count)]
        self.install(self.members)

    def new(self, name: str) -> Member:
        """A member in no view."""
        member = Member(self, name, self.settings)
        self.by_id[member.id] = member
        return member

    def carry(self, sender: Member, to: MemberId, kind: Kind, frame: bytes) -> None:
        """A frame sets off."""
        if not sender.alive or to not in self.by_id or self.cut(sender, to, kind):
            return
        for _ in range(2 if self.random.random() < self.repeat else 1):
            if self.random.random() >= self.loss:
                self.count += 1
                at = self.now + self.delay * (self.random.random() if self.loss or self.repeat else 1)
                heapq.heappush(self.queue, (at, self.count, self.by_id[to], kind, sender.id, frame))

    def install(self, members: list[Member], joiners: list[Member] | None = None) -> None:
        """A view of these; `joiners` get the first one's baseline before."""
        self.members = members
        self.view_number += 1
        infos = tuple(MemberInfo(member.id, member.name, ()) for member in members)
        view = View(ViewId(self.view_number, members[0].id), infos)
        first = members[0]
        for member in members[1:]:
            if member not in (joiners or []):
                first.streams.take_positions(self.now, member.id, member.streams.positions())
        baseline = first.streams.baseline()
        for joiner in joiners or []:
            joiner.streams.take_baseline(self.now, baseline)
        for member in members:
            member.view = view.ids
            member.streams.view_installed(self.now, view)
            member.streams.flush(self.now)

    def crash(self, *members: Member) -> None:
        """They stop; what they sent may still arrive."""
        for member in members:
            member.alive = False

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            alive = [member for member in self.by_id.values() if member.alive]
            timer = min((member.streams.deadline for member in alive), default=math.inf)
            at = min(self.queue[0][0] if self.queue else math.inf, timer)
            if at > end:
                break
            self.now = max(self.now, at)
            while self.queue and self.queue[0][0] <= self.now:
                _, _, to, kind, sender, frame = heapq.heappop(self.queue)
                if to.alive:
                    to.streams.on_frame(self.now, kind, sender, frame)
                    to.streams.flush(self.now)
            for member in alive:
                if member.streams.deadline <= self.now:
                    member.streams.on_time(self.now)
                    assert member.streams.deadline > self.now
        self.now = end

    def check_forgotten(self) -> None:
        """At quiescence nothing is kept, nothing wanted, and no timer runs for it."""
        for member in self.members:
            for origin in member.streams.origins():
                assert member.kept(origin) == 0, (member.name, origin)
            assert member.streams.early == 0
            assert member.streams.room == self.settings.window_bytes
