"""Members that look for each other while the network does its worst: what holds always, and once it is quiet."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
from tests.unit.groups.address_network import PORT, Member, Network, Weather

from isthmus_router.groups.announcements import WhoHas
from isthmus_router.groups.discovery.host_list import Host
from isthmus_router.groups.frames import Kind, decode_header
from isthmus_router.groups.identity import NOBODY, MemberId, PhysicalAddress
from isthmus_router.groups.resolver import ResolverSettings
from isthmus_router.groups.views import View, ViewId

KINDS = ("multicast", "host-list", "dns", "gossip", "tunnel")
PLACES = tuple(range(1, 6))
INTERFACES = 2
SETTINGS = ResolverSettings(queue_frames=8, queue_bytes=2_000, total_bytes=5_000, chooser="rotate")
STORM = Weather(loss=0.2, duplication=0.2, delay=(0.0005, 0.05))


def place(number: int, interface: int = 0) -> PhysicalAddress:
    return PhysicalAddress(f"10.{interface}.0.{number}", PORT)


class Run:
    """A random run; places hold one member each, which is restarted there, moves its port, or loses an interface."""

    def __init__(self, seed: int, kind: str) -> None:
        self.network = Network(seed, STORM)
        self.random = self.network.random
        self.kind = kind
        self.at: dict[int, Member] = {}
        self.everybody: list[Member] = []
        self.views = 0
        self.said = 0
        for number in PLACES:
            self.start(number)

    def start(self, number: int) -> None:
        addresses = [place(number, interface) for interface in range(INTERFACES)]
        member = Member(
            self.network,
            f"m{number}",
            *addresses,
            kinds=[self.kind],
            hosts=[Host(place(each).host, PORT) for each in PLACES],
            settings=SETTINGS,
        )
        self.at[number] = member
        self.everybody.append(member)
        member.find()

    def happens(self) -> None:
        """One thing."""
        number = self.random.choice(PLACES)
        member = self.at[number]
        match self.random.randrange(10):
            case 0 | 1 | 2 | 3:
                self.said += 1
                to = self.random.choice(self.everybody)
                if to is not member:
                    member.say(to.id, to.id + b"%d" % self.said)
            case 4:
                member.find(initial=self.random.random() < 0.5)
            case 5:
                self.install()
            case 6 if self.random.random() < 0.5:
                member.crash()
                self.start(number)
            case 7 if self.random.random() < 0.5:
                member.close()
                self.start(number)
            case 8:
                self.move(member)
            case _:
                self.network.cut(self.random.choice(member.info.addresses))
                self.network.listen(member)

    def move(self, member: Member) -> None:
        """It has other ports from now on."""
        old = member.info.addresses
        port = self.random.randint(8_000, 9_000)
        member.resolver.readdressed(tuple(address._replace(port=port) for address in old))
        self.network.listen(member)
        if self.kind in ("gossip", "tunnel"):
            self.network.register(member.info)
        for address in old:
            self.network.cut(address)

    def install(self) -> None:
        """Everybody who lives has a new view of everybody who lives."""
        self.views += 1
        members = sorted(self.at.values(), key=self.everybody.index)
        view = View(ViewId(self.views, members[0].id), tuple(member.info for member in members))
        for member in members:
            member.install(view)

    def check(self) -> None:
        """What always holds."""
        for member in self.everybody:
            frames, size = member.resolver.queued
            assert frames <= SETTINGS.queue_frames * len(self.everybody)
            assert size <= SETTINGS.total_bytes
            for other in member.resolver.cache:
                assert not member.resolver.cache.is_gone(other)
            assert member.id not in member.resolver.cache
            assert all(text.startswith(member.id) for _, text in member.heard.texts)
            assert member.heard.malformed == 0

    def check_questions(self) -> None:
        """Nobody asks whom it may ask for anybody more than once in the interval."""
        asked: dict[tuple[MemberId, PhysicalAddress | None, MemberId], list[float]] = defaultdict(list)
        for at, to, frame in self.network.frames(Kind.WHO_HAS):
            _, sender, destination = decode_header(frame)
            if destination == NOBODY:
                for wanted in WhoHas.decode(frame).wanted:
                    asked[sender, to, wanted].append(at)
        assert asked
        for times in asked.values():
            assert all(later - earlier >= SETTINGS.ask_interval - 1e-9 for earlier, later in pairwise(times))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_any_order(seed: int, kind: str) -> None:
    run = Run(seed, kind)
    network = run.network
    for _ in range(120):
        run.happens()
        network.run(run.random.choice((0.0, 0.01, 0.2)))
        run.check()
    network.weather = Weather()
    run.install()
    network.run(3.0)
    run.check()
    if kind in ("multicast", "host-list"):  # Others wait for lookups, some longer than others.
        run.check_questions()
    members = list(run.at.values())
    # A move that was told in a lost frame is noticed when every old address has failed; then it is asked for.
    for _ in range(INTERFACES + 1):
        for member in members:
            for other in members:
                if other is not member:
                    member.say(other.id, other.id + b"round")
        network.run(3.0)
    for member in members:
        member.heard.texts.clear()
        assert member.resolver.queued == (0, 0)
    for member in members:
        for other in members:
            if other is not member:
                assert member.resolver.address(other.id) in other.info.addresses
                for number in range(3):
                    member.say(other.id, other.id + b"%d" % number)
    network.run(0.1)
    for member in members:
        by_sender: dict[MemberId, list[bytes]] = defaultdict(list)
        for sender, text in member.heard.texts:
            by_sender[sender].append(text)
        expected = [member.id + b"%d" % number for number in range(3)]
        assert by_sender == {other.id: expected for other in members if other is not member}
    network.run(125.0)
    for member in members:
        assert set(member.resolver.cache) == {other.id for other in members if other is not member}
