"""Discovery: whoever is there is found, by every kind and in any order of starts, and nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest
from tests.unit.groups.address_network import (
    GROUP,
    KINDS,
    PORT,
    Member,
    Network,
    Weather,
    at,
    found,
    hosts,
    start,
    view_of,
)

from isthmus_router.groups.announcements import Discover, Found
from isthmus_router.groups.discovery.finder import MOST_ANSWERS, Answer
from isthmus_router.groups.discovery.host_list import Host
from isthmus_router.groups.frames import PROTOCOL_VERSION, Kind, encode_body, encode_frame
from isthmus_router.groups.identity import NOBODY, GroupName, MemberInfo, PhysicalAddress, member_id

STRANGER = MemberInfo(member_id(b"s" * 16), "stranger", (PhysicalAddress("10.9.9.9", PORT),))


@pytest.mark.parametrize("kind", KINDS)
def test_everybody_finds_everybody_else(kind: str) -> None:
    network = Network()
    members = [start(network, number, kind=kind, listed=hosts(1, 2, 3)) for number in (1, 2, 3)]
    for member in members:
        member.find()
    network.run(0.1)
    for member in members:
        others = {other.id for other in members if other is not member}
        assert {answer.info.id for answer in member.heard.answers} == others
        assert not any(answer.is_member for answer in member.heard.answers)
        assert set(member.resolver.cache) == others


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("listed", [hosts(1, 2, 3, 4), hosts(2), hosts(9, 3)])
def test_started_in_any_order_all_can_reach_all(kind: str, listed: Sequence[Host]) -> None:
    """A list may name one that is alive; who that one has met is found by the others through its view."""
    for order in permutations((1, 2, 3, 4)):
        network = Network(weather=Weather(loss=0.1, delay=(0.001, 0.02)))
        members: list[Member] = []
        for number in order:
            members.append(start(network, number, kind=kind, listed=listed))
            for _ in range(2):
                members[-1].find()
                network.run(0.03)
        for _ in range(4):
            for member in members:
                member.find()
            network.run(0.1)
        hub = max(members, key=lambda member: len(member.resolver.cache))
        assert set(hub.resolver.cache) == {member.id for member in members} - {hub.id}
        view = view_of(1, *members)
        network.weather = Weather()
        for member in members:
            member.install(view)
            assert set(member.resolver.cache) == set(view.ids) - {member.id}
            for other in members:
                if other is not member:
                    member.say(other.id, b"hello")
        network.run(0.1)
        assert all(len(member.heard.texts) == len(members) - 1 for member in members)


def test_a_list_of_dead_hosts_finds_nobody_until_one_of_them_lives() -> None:
    network = Network()
    a, b = (start(network, number, kind="host-list", listed=hosts(8, 9)) for number in (1, 2))
    for _ in range(3):
        a.find()
        b.find()
        network.run(0.25)
    assert found(a) == found(b) == set()
    start(network, 9, kind="host-list", listed=hosts(8, 9))
    a.find()
    b.find()
    network.run(0.25)
    assert found(a) == found(b) == {"m9"}


def test_a_member_answers_with_its_view_and_the_coordinator_can_be_reached() -> None:
    network = Network()
    coordinator = start(network, 1, kind="host-list")
    second = start(network, 2, kind="host-list")
    view = view_of(4, coordinator, second)
    coordinator.install(view)
    second.install(view)
    joiner = start(network, 3, kind="host-list", listed=hosts(2))
    joiner.find()
    network.run(0.1)
    assert joiner.heard.answers == [Answer(second.info, True, view.id, coordinator.id)]
    assert joiner.resolver.address(second.id) == at(2)
    assert joiner.resolver.address(coordinator.id) == at(1)
    joiner.say(coordinator.id, b"let me in")
    network.run(0.1)
    assert coordinator.heard.texts == [(joiner.id, b"let me in")]


def test_who_looks_for_other_views_hears_nothing_of_its_own() -> None:
    network = Network()
    members = [start(network, number) for number in (1, 2, 3, 4)]
    a, b, c, d = members
    for member in (a, b):
        member.install(view_of(1, a, b))
    c.install(view_of(1, c))
    a.find(initial=False)
    network.run(0.1)
    assert found(a) == {"m3", "m4"}
    a.find(initial=True)
    d.find()
    network.run(0.1)
    assert found(a) == {"m2", "m3", "m4"}
    assert found(d) == {"m1", "m2", "m3"}


def test_a_new_round_starts_with_no_answers() -> None:
    network = Network()
    a, b = start(network, 1), start(network, 2)
    a.find()
    network.run(0.1)
    assert found(a) == {"m2"}
    b.crash()
    c = start(network, 3)
    a.find()
    network.run(0.1)
    assert found(a) == {c.info.name}


def test_who_leaves_neither_asks_nor_answers() -> None:
    network = Network()
    a, b = start(network, 1), start(network, 2)
    b.finder.leave()
    a.find()
    b.find()
    network.run(0.1)
    assert found(a) == found(b) == set()
    assert len(network.frames(Kind.DISCOVER)) == 1
    assert network.frames(Kind.FOUND) == []


@pytest.mark.parametrize(
    ("group", "collides"),
    [
        (GROUP._replace(group="orders"), False),
        (GROUP._replace(site="sfo"), False),
        (GROUP._replace(domain="west/nyc"), True),
    ],
)
def test_other_groups_are_not_found(group: GroupName, collides: bool) -> None:
    network = Network()
    ours, theirs = start(network, 1), start(network, 2, group=group)
    theirs.find()
    network.run(0.1)
    body = Found(group, theirs.info, None, None).encode()
    ours.arrive(encode_frame(Kind.FOUND, theirs.id, ours.id, body))
    assert network.frames(Kind.FOUND) == []
    assert len(ours.resolver.cache) == 0
    assert ours.resolver.names.ids("m2") == ()
    assert ours.heard.answers == []
    assert ours.resolver.counters.foreign > 0
    assert set(ours.heard.collisions) == ({("west/nyc", theirs.info)} if collides else set())


def test_another_version_is_reported_and_not_answered() -> None:
    network = Network()
    member = start(network, 1)
    body = encode_body(PROTOCOL_VERSION + 1, "unknown")
    member.arrive(encode_frame(Kind.DISCOVER, STRANGER.id, NOBODY, body))
    assert member.heard.mismatches == [(STRANGER.id, PROTOCOL_VERSION + 1)]
    assert network.sent == []


def test_nobody_speaks_for_another() -> None:
    member = start(Network(), 1)
    other = member_id(b"o" * 16)
    for kind, body in (
        (Kind.DISCOVER, Discover(GROUP, STRANGER, True, None).encode()),
        (Kind.FOUND, Found(GROUP, STRANGER, None, None).encode()),
    ):
        member.arrive(encode_frame(kind, other, NOBODY, body))
    assert member.heard.malformed == 2
    assert len(member.resolver.cache) == 0


def test_the_own_request_is_not_answered() -> None:
    """By multicast, and by addresses that lead back without being known as the own (NAT)."""
    network = Network()
    member = start(network, 1)
    member.find()
    network.run(0.1)
    assert len(network.frames(Kind.DISCOVER)) == 1
    assert network.frames(Kind.FOUND) == []
    assert member.resolver.counters.expired == 0


def test_answers_are_bounded() -> None:
    member = start(Network(), 1)
    for number in range(MOST_ANSWERS + 2):
        info = STRANGER._replace(id=member_id(number.to_bytes(16, "little")))
        member.arrive(encode_frame(Kind.FOUND, info.id, member.id, Found(GROUP, info, None, None).encode()))
    assert len(member.heard.answers) == MOST_ANSWERS


def test_a_member_with_many_interfaces_is_one() -> None:
    network = Network()
    a = Member(network, "a", at(1), at(2), at(3))
    b = Member(network, "b", at(4), at(5))
    a.find()
    network.run(0.1)
    assert [answer.info.id for answer in a.heard.answers] == [b.id]
    assert set(b.resolver.cache) == {a.id}
