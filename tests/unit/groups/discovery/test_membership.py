"""Members that discover each other end in one view, whoever starts when, by every kind of discovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from random import Random

import pytest
from tests.unit.groups.address_network import KINDS, Member, Network, Weather, at, hosts

from isthmus_router.groups.discovery.finder import Answer
from isthmus_router.groups.discovery.host_list import Host
from isthmus_router.groups.frames import Kind, encode_frame
from isthmus_router.groups.identity import MemberId, MemberInfo, PhysicalAddress
from isthmus_router.groups.membership.membership import Membership
from isthmus_router.groups.membership.port import MembershipSettings
from isthmus_router.groups.views import View


class GroupPort:
    """What membership sends through."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member

    def send(self, now: float, to: MemberId, kind: Kind, body: bytes) -> None:
        self._member.resolver.send(now, to, encode_frame(kind, self._member.id, to, body))

    def send_all(self, now: float, kind: Kind, body: bytes) -> None:
        for member in self._member.view - {self._member.id}:
            self.send(now, member, kind, body)


class GroupMember(Member):
    """A member that joins and stays: membership on top of resolver and finder."""

    def __init__(self, network: Network, number: int, kind: str, listed: Sequence[Host] = ()) -> None:
        super().__init__(network, f"m{number}", at(number), kinds=[kind], hosts=listed)
        random = Random(network.random.randbytes(16))
        self.membership = Membership(self.info, MembershipSettings(), GroupPort(self), self, random)
        self.membership.join(network.now)

    @property
    def deadline(self) -> float:
        return min(self.resolver.deadline, self.membership.deadline)

    @property
    def view(self) -> set[MemberId]:
        return set() if self.membership.view is None else set(self.membership.view.ids)

    def take(self, kind: Kind, sender: MemberId, frame: bytes) -> None:
        self.membership.heard(self.network.now, sender)
        self.membership.on_frame(self.network.now, kind, sender, frame)

    def on_time(self) -> None:
        super().on_time()
        self.membership.on_time(self.network.now)

    def connection_lost(self, address: PhysicalAddress) -> None:
        users = self.resolver.cache.users(address)
        super().connection_lost(address)
        for member in users:
            self.membership.connection_lost(self.network.now, member, refused=True)

    def found(self, now: float, answers: Sequence[Answer]) -> None:
        self.membership.found(now, answers)

    # What membership asks and tells

    def find(self, now: float = 0.0, *, initial: bool = True) -> None:
        self.finder.find(now, initial=initial)

    def known(self, now: float, infos: Sequence[MemberInfo]) -> None:
        for info in infos:
            self.resolver.learn(now, info, own_word=False)

    def state(self, now: float) -> bytes:
        return b""

    def states(self, now: float, states: Mapping[MemberId, bytes]) -> None:
        """No streams."""

    def baseline(self, now: float) -> bytes:
        return b""

    def take_baseline(self, now: float, baseline: bytes) -> None:
        """No streams."""

    def view_installed(self, now: float, view: View, left: tuple[MemberId, ...]) -> None:
        self.install(view)

    def left(self, now: float) -> None:
        raise AssertionError("nobody leaves")


def in_one_view(members: Sequence[GroupMember]) -> bool:
    return all(member.view == {other.id for other in members} for member in members)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gap", [0.0, 0.3])
def test_started_in_any_order(kind: str, gap: float) -> None:
    for order in permutations((1, 2, 3)):
        network = Network(seed=sum(order[:1]))
        members: list[GroupMember] = []
        for number in order:
            members.append(GroupMember(network, number, kind, hosts(1, 2, 3)))
            network.run(gap)
        network.run(4.0)
        assert in_one_view(members), order


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [2, 5, 7])
@pytest.mark.parametrize("seed", range(3))
def test_many_at_once_on_a_bad_network(kind: str, count: int, seed: int) -> None:
    network = Network(seed, Weather(loss=0.1, duplication=0.1, delay=(0.001, 0.03)))
    numbers = network.random.sample(range(1, 20), count)
    members = []
    for number in numbers:
        members.append(GroupMember(network, number, kind, hosts(*numbers)))
        network.run(network.random.uniform(0.0, 0.05))
    network.run(2.0)
    network.weather = Weather()
    network.run(13.0)
    assert in_one_view(members)
    assert all(set(member.resolver.cache) >= member.view - {member.id} for member in members)


@pytest.mark.parametrize("listed", [hosts(2), hosts(8, 9, 2)])
def test_a_list_with_one_that_is_alive_is_enough(listed: Sequence[Host]) -> None:
    for order in permutations((1, 2, 3)):
        network = Network()
        members = []
        for number in order:
            members.append(GroupMember(network, number, "host-list", listed))
            network.run(0.4)
        network.run(10.0)
        assert in_one_view(members), order


def test_a_list_of_the_dead_leaves_everybody_alone_until_one_lives() -> None:
    network = Network()
    members = [GroupMember(network, number, "host-list", hosts(9)) for number in (1, 2)]
    network.run(5.0)
    assert [member.view for member in members] == [{member.id} for member in members]
    members.append(GroupMember(network, 9, "host-list", hosts(9)))
    network.run(10.0)
    assert in_one_view(members)


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_that_restarts_where_it_was_replaces_its_former_self(kind: str) -> None:
    network = Network()
    members = [GroupMember(network, number, kind, hosts(1, 2, 3)) for number in (1, 2, 3)]
    network.run(4.0)
    assert in_one_view(members)
    members[0].crash()
    members[0] = GroupMember(network, 1, kind, hosts(1, 2, 3))
    network.run(6.0)
    assert in_one_view(members)
