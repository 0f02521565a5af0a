"""Sending to members by their id: who is not known is asked for, and what is sent to it waits, in order and bounded."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.unit.groups.address_network import GROUP, PORT, Member, Network, Weather

from isthmus_router.groups.announcements import IHave, Invalidate, WhoHas
from isthmus_router.groups.frames import Kind, encode_frame
from isthmus_router.groups.identity import NOBODY, GroupName, MemberInfo, PhysicalAddress, member_id
from isthmus_router.groups.resolver import ResolverSettings
from isthmus_router.groups.views import View, ViewId

NOWHERE = member_id(bytes(16))


def at(number: int, port: int = PORT) -> PhysicalAddress:
    return PhysicalAddress(f"10.0.0.{number}", port)


def view_of(number: int, *members: Member) -> View:
    return View(ViewId(number, members[0].id), tuple(member.info for member in members))


def pair(network: Network, settings: ResolverSettings | None = None) -> tuple[Member, Member]:
    """Two that do not know of each other."""
    return Member(network, "a", at(1), settings=settings), Member(network, "b", at(2))


def texts(member: Member) -> list[bytes]:
    return [text for _, text in member.heard.texts]


def test_what_is_sent_before_the_address_is_known_arrives_first() -> None:
    network = Network(weather=Weather(delay=(0.01, 0.01)))
    a, b = pair(network)
    for number in range(10):
        a.say(b.id, b"%d" % number)
    network.run(0.0205)
    assert texts(b) == []
    assert a.resolver.address(b.id) == at(2)
    for number in range(10, 20):
        a.say(b.id, b"%d" % number)
    network.run(0.01)
    assert texts(b) == [b"%d" % number for number in range(20)]
    assert a.resolver.queued == (0, 0)
    assert a.resolver.names.name(b.id) == "b"
    assert b.resolver.address(a.id) == at(1), "who asks is known to who answers"


def test_it_is_asked_for_no_more_often_than_allowed() -> None:
    network = Network()
    a = Member(network, "a", at(1))
    for step in range(100):
        network.later(lambda: a.say(NOWHERE, b"?"), after=step * 0.05)
    network.run(8.0)
    asked = [when for when, to, _ in network.frames(Kind.WHO_HAS, a.id) if to is None]
    assert 9 <= len(asked) <= 14
    assert all(later - earlier >= 0.5 for earlier, later in pairwise(asked))
    assert a.resolver.counters.asked == len(asked)
    assert a.resolver.counters.expired == 100
    assert sum(frames for _, _, frames in a.heard.unreachable) == 100
    assert all(later[0] - earlier[0] >= 2.0 for earlier, later in pairwise(a.heard.unreachable))
    assert a.resolver.deadline == float("inf")


def test_it_is_asked_again_while_something_waits() -> None:
    network = Network(weather=Weather(loss=1.0))
    a, b = pair(network)
    a.say(b.id, b"hello")
    network.run(1.2)
    network.weather = Weather()
    network.run(0.4)
    assert texts(b) == [b"hello"]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        (ResolverSettings(queue_frames=3), 3),
        (ResolverSettings(queue_bytes=400), 3),
        (ResolverSettings(total_bytes=400), 3),
    ],
)
def test_what_waits_is_bounded_and_the_oldest_is_dropped(settings: ResolverSettings, kept: int) -> None:
    network = Network()
    a, b = pair(network, settings)
    for number in range(8):
        a.say(b.id, b"%d" % number * 100)
        frames, size = a.resolver.queued
        assert frames <= kept
        assert size <= 400
    assert a.resolver.counters.overflowed == 8 - kept
    network.run(0.1)
    assert texts(b) == [b"%d" % number * 100 for number in range(8 - kept, 8)]


def test_one_that_is_not_found_takes_no_room_of_others() -> None:
    network = Network()
    settings = ResolverSettings(total_bytes=1_000, most_destinations=2)
    a, b = pair(network, settings)
    a.say(b.id, b"first")
    for _ in range(30):
        a.say(NOWHERE, bytes(200))
    a.say(member_id(b"x" * 16), b"third destination")
    network.run(0.1)
    assert texts(b) == [b"first"]
    assert a.resolver.queued[1] <= 1_000
    assert a.resolver.counters.overflowed == 27
    network.run(3.0)
    assert a.resolver.queued == (0, 0)
    assert a.resolver.counters.expired == 4
    assert [(member, frames) for _, member, frames in a.heard.unreachable] == [(NOWHERE, 4)]


def test_a_frame_above_the_bound_is_dropped() -> None:
    network = Network()
    a, b = pair(network, ResolverSettings(queue_bytes=100))
    a.say(b.id, bytes(200))
    a.say(b.id, b"small")
    network.run(0.1)
    assert texts(b) == [b"small"]
    assert a.resolver.counters.overflowed == 1


def test_members_that_are_known_answer_for_others_if_asked_directly() -> None:
    network = Network()
    a = Member(network, "a", at(1), kinds=())
    b = Member(network, "b", at(2), kinds=())
    c = Member(network, "c", at(3), kinds=())
    a.resolver.learn(0.0, b.info, own_word=False)
    b.resolver.learn(0.0, c.info, own_word=True)
    a.say(c.id, b"hello")
    network.run(0.1)
    assert texts(c) == [b"hello"]
    assert a.resolver.names.name(c.id) == "c"


def test_the_crowd_answers_only_for_itself() -> None:
    network = Network()
    members = [Member(network, f"m{number}", at(number)) for number in range(1, 30)]
    asker, target = Member(network, "asker", at(100)), members[0]
    for member in members:
        member.install(view_of(1, *members))
    asker.say(target.id, b"hello")
    network.run(0.1)
    assert texts(target) == [b"hello"]
    assert len(network.frames(Kind.I_HAVE)) == 1


def test_members_with_one_name_are_told_apart() -> None:
    network = Network()
    a = Member(network, "a", at(1))
    twins = [Member(network, "twin", at(number)) for number in (2, 3)]
    for twin in twins:
        a.say(twin.id, twin.id)
    network.run(0.1)
    assert [texts(twin) for twin in twins] == [[twin.id] for twin in twins]
    assert set(a.resolver.names.ids("twin")) == {twin.id for twin in twins}


def test_a_member_that_moves_tells_with_the_next_frame() -> None:
    network = Network()
    a, b = pair(network)
    a.install(view_of(1, a, b))
    b.install(view_of(1, a, b))
    a.resolver.readdressed((at(9),))
    network.listen(a)
    network.cut(at(1))
    a.say(b.id, b"one")
    a.say(b.id, b"two")
    network.run(0.1)
    assert texts(b) == [b"one", b"two"]
    assert b.resolver.address(a.id) == at(9)
    assert (b.id, at(1)) in network.dropped_connections
    assert len(network.frames(Kind.I_HAVE, a.id)) == 1, "it is told once"
    b.say(a.id, b"back")
    network.run(0.1)
    assert texts(a) == [b"back"]
    assert len(b.resolver.cache) == 1


def test_a_member_is_told_again_if_it_may_not_have_heard() -> None:
    network = Network()
    a, b = pair(network)
    a.install(view_of(1, a, b))
    a.resolver.readdressed((at(9),))
    network.listen(a)
    network.weather = Weather(loss=1.0)
    a.say(b.id, b"lost")
    a.connection_lost(at(2))
    network.weather = Weather()
    a.say(b.id, b"seen")
    network.run(0.1)
    assert texts(b) == [b"seen"]
    assert b.resolver.address(a.id) == at(9)
    assert len(network.frames(Kind.I_HAVE, a.id)) == 2


def test_another_interface_is_used_when_one_goes_down() -> None:
    network = Network()
    a = Member(network, "a", at(1))
    b = Member(network, "b", at(2), at(2, 7_900))
    a.install(view_of(1, a, b))
    network.cut(at(2))
    network.run(0.1)
    a.say(b.id, b"by the other")
    network.run(0.1)
    assert texts(b) == [b"by the other"]
    assert a.resolver.counters.asked == 0


def test_who_is_not_reached_any_more_is_asked_for_while_frames_are_sent_to_it() -> None:
    """A member behind an address that changed without its being able to say so."""
    network = Network()
    a, b = pair(network)
    a.install(view_of(1, a, b))
    network.cut(at(2))
    b.resolver.readdressed((at(8),))
    network.listen(b)
    network.run(0.1)
    a.say(b.id, b"lost")
    network.run(0.1)
    a.say(b.id, b"seen")
    network.run(0.1)
    assert texts(b) == [b"seen"]
    assert len([to for _, to, _ in network.frames(Kind.WHO_HAS, a.id) if to is None]) == 1


def test_members_behind_nat_are_reached_where_they_say() -> None:
    """The network hands frames for the announced address over to who is behind it; nobody looks at where from."""
    network = Network()
    outside = PhysicalAddress("203.0.113.7", 30_001)
    a, b = Member(network, "a", at(1)), Member(network, "b", outside)
    a.say(b.id, b"in")
    network.run(0.1)
    b.say(a.id, b"out")
    network.run(0.1)
    assert (texts(a), texts(b)) == ([b"out"], [b"in"])
    assert a.resolver.address(b.id) == outside


@pytest.mark.parametrize("in_view", [False, True])
def test_a_restarted_member_is_another_one(in_view: bool) -> None:
    """Same name, same physical address, at once: what is meant for the former self reaches nobody."""
    network = Network()
    a, former = pair(network)
    a.say(former.id, b"hello")
    network.run(0.1)
    if in_view:
        a.install(view_of(1, a, former))
    network.members.remove(former)
    now = Member(network, "b", at(2))
    a.say(former.id, b"late")
    now.find()
    network.run(0.1)
    a.say(now.id, b"new")
    a.say(former.id, b"later")
    network.run(0.1)
    assert texts(now) == [b"new"]
    assert a.resolver.address(now.id) == at(2)
    assert (a.resolver.address(former.id) is None) is not in_view
    assert now.heard.stray == 1 + in_view
    a.install(view_of(2, a, now))
    network.run(121.0)
    assert set(a.resolver.cache) == {now.id}


def test_who_has_left_is_still_reached_for_a_while_and_then_forgotten() -> None:
    network = Network()
    a, b = pair(network)
    a.install(view_of(1, a, b))
    network.run(500.0)
    a.install(view_of(2, a))
    a.say(b.id, b"bye")
    network.run(1.0)
    assert texts(b) == [b"bye"]
    network.run(119.1)
    assert b.id not in a.resolver.cache
    assert (a.id, at(2)) in network.dropped_connections


def test_who_closes_is_forgotten_by_everybody() -> None:
    network = Network()
    members = [Member(network, f"m{number}", at(number)) for number in (1, 2, 3)]
    a, b, c = members
    for member in members:
        member.install(view_of(1, *members))
    b.close()
    b.say(a.id, b"after the end")
    network.run(0.1)
    for member in (a, c):
        assert b.id not in member.resolver.cache
        assert member.resolver.names.ids("m2") == ()
        assert (member.id, at(2)) in network.dropped_connections
    assert texts(a) == []
    asked = a.resolver.counters.asked
    a.resolver.learn(network.now, b.info, own_word=False)
    a.say(b.id, b"nobody waits")
    network.run(3.0)
    assert b.id not in a.resolver.cache
    assert a.resolver.counters.asked == asked
    assert a.resolver.counters.expired == 1


def test_others_cannot_have_a_member_forgotten() -> None:
    network = Network()
    a, b = pair(network)
    a.install(view_of(1, a, b))
    stranger = Member(network, "c", at(3))
    a.resolver.learn(0.0, stranger.info, own_word=False)
    for sender, gone in (
        (NOWHERE, b.id),
        (NOWHERE, a.id),
        (a.id, a.id),
        (NOWHERE, stranger.id),
        (b.id, stranger.id),
    ):
        body = Invalidate(GROUP, gone).encode()
        a.arrive(encode_frame(Kind.INVALIDATE, sender, a.id, body))
    assert a.resolver.names.name(a.id) == "a"
    assert set(a.resolver.cache) == {b.id, stranger.id}


def test_what_waits_for_who_says_that_it_goes_is_dropped() -> None:
    network = Network(weather=Weather(loss=1.0))
    a, b = pair(network)
    a.say(b.id, b"hello")
    a.arrive(encode_frame(Kind.INVALIDATE, b.id, a.id, Invalidate(GROUP, b.id).encode()))
    assert a.resolver.queued == (0, 0)
    assert [(member, frames) for _, member, frames in a.heard.unreachable] == [(b.id, 1)]


@pytest.mark.parametrize(
    "group",
    [GROUP._replace(group="orders"), GROUP._replace(site="sfo"), GROUP._replace(domain="west/nyc")],
)
def test_nothing_is_learned_of_other_groups(group: GroupName) -> None:
    network = Network()
    a, b = pair(network)
    other = MemberInfo(NOWHERE, "x", (at(5),))
    a.resolver.learn(0.0, b.info, own_word=True)
    for kind, body in (
        (Kind.WHO_HAS, WhoHas(group, other, (a.id,)).encode()),
        (Kind.I_HAVE, IHave(group, (other,)).encode()),
        (Kind.INVALIDATE, Invalidate(group, b.id).encode()),
    ):
        sender = b.id if kind is Kind.INVALIDATE else NOWHERE
        a.arrive(encode_frame(kind, sender, NOBODY, body))
    assert set(a.resolver.cache) == {b.id}
    assert a.resolver.names.ids("x") == ()
    assert a.resolver.counters.foreign == 3
    assert network.frames(Kind.I_HAVE) == []


def test_the_own_address_is_nobody_elses() -> None:
    """A former self at the own physical address is not to be dialled."""
    network = Network()
    a = Member(network, "a", at(1))
    a.resolver.learn(0.0, MemberInfo(NOWHERE, "a", (at(1),)), own_word=False)
    assert NOWHERE not in a.resolver.cache
    a.resolver.learn(0.0, MemberInfo(NOWHERE, "a", (at(1), at(2))), own_word=False)
    assert a.resolver.address(NOWHERE) == at(2)
    a.resolver.learn(0.0, a.info, own_word=True)
    a.say(a.id, b"myself")
    assert a.id not in a.resolver.cache
    assert a.resolver.deadline == 120.0


def test_gossip_routers_are_believed_only_of_who_is_asked_for() -> None:
    network = Network()
    a = Member(network, "a", at(1), kinds=("gossip",))
    b = Member(network, "b", at(2), kinds=("gossip",))
    Member(network, "other group", at(3), kinds=("gossip",), group=GROUP._replace(domain="west/nyc"))
    a.say(b.id, b"hello")
    network.run(0.1)
    assert texts(b) == [b"hello"]
    assert set(a.resolver.cache) == {b.id}


def test_what_gossip_routers_know_is_an_answer() -> None:
    """Its member itself need not be reached for that."""
    network = Network(weather=Weather(loss=1.0))
    a, b = Member(network, "a", at(1), kinds=()), Member(network, "b", at(2), kinds=())
    a.say(b.id, b"hello")
    a.finder.on_gossip_members(0.0, [b.info])
    assert a.resolver.address(b.id) == at(2)
    assert a.resolver.queued == (0, 0)


def test_many_are_asked_for_at_once() -> None:
    network = Network()
    a = Member(network, "a", at(1))
    many = [member_id(number.to_bytes(16, "big")) for number in range(1, 700)]
    for member in dict.fromkeys(many):
        a.say(member, b"?")
    network.run(0.1)
    asked = [WhoHas.decode(frame) for _, to, frame in network.frames(Kind.WHO_HAS) if to is None]
    assert [len(each.wanted) for each in asked] == [500, 199]
    assert {member for each in asked for member in each.wanted} == set(many)
