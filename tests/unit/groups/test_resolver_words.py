"""Who is believed about where a member is, and who is asked."""

from __future__ import annotations

import pytest
from tests.unit.groups.address_network import GROUP, PORT, Member, Network, at, found, hosts, start, view_of

from isthmus_router.groups.announcements import Discover, IHave, WhoHas
from isthmus_router.groups.frames import Kind, decode_header, encode_frame
from isthmus_router.groups.identity import NOBODY, MemberId, MemberInfo, PhysicalAddress, member_id

BOB = member_id(b"b" * 16)
CAT = member_id(b"c" * 16)


def bob(number: int) -> MemberInfo:
    return MemberInfo(BOB, "bob", (at(number),))


def have(sender: MemberId, to: Member, *infos: MemberInfo) -> None:
    to.arrive(encode_frame(Kind.I_HAVE, sender, to.id, IHave(GROUP, infos).encode()))


def ask(sender: MemberId, asker: MemberInfo, to: Member, *wanted: MemberId) -> None:
    to.arrive(encode_frame(Kind.WHO_HAS, sender, to.id, WhoHas(GROUP, asker, wanted).encode()))


def direct_questions(network: Network) -> list[tuple[PhysicalAddress | None, MemberId]]:
    """Where to, and for whom, WHO_HAS was sent to one member."""
    frames = [(to, decode_header(frame)[2]) for _, to, frame in network.frames(Kind.WHO_HAS)]
    return [(to, destination) for to, destination in frames if any(destination)]


def test_a_member_knows_best_where_it_is() -> None:
    a = start(Network(), 1)
    have(CAT, a, bob(2))
    assert a.resolver.address(BOB) == at(2)
    have(CAT, a, bob(3))
    assert a.resolver.address(BOB) == at(2)
    have(BOB, a, bob(4))
    assert a.resolver.address(BOB) == at(4)
    have(CAT, a, bob(2))
    assert a.resolver.address(BOB) == at(4)


def test_who_asks_says_where_it_is() -> None:
    a = start(Network(), 1)
    have(CAT, a, bob(2))
    ask(BOB, bob(3), a, CAT)
    assert a.resolver.address(BOB) == at(3)
    ask(CAT, bob(4), a, CAT)
    assert a.resolver.address(BOB) == at(3)


@pytest.mark.parametrize("kind", [Kind.DISCOVER, Kind.WHO_HAS])
def test_nobody_moves_a_member_by_multicast(kind: Kind) -> None:
    """There whoever is in the network can speak for it; but who is not known yet is believed."""
    a = start(Network(), 1)
    for number in (2, 3):
        who_has, discover = WhoHas(GROUP, bob(number), (a.id,)), Discover(GROUP, bob(number), True, None)
        if kind is Kind.DISCOVER:
            frame = encode_frame(kind, BOB, NOBODY, discover.encode())
            a.finder.on_frame(0.0, kind, BOB, frame, by_multicast=True)
        else:
            frame = encode_frame(kind, BOB, NOBODY, who_has.encode())
            a.resolver.on_frame(0.0, kind, BOB, NOBODY, frame, by_multicast=True)
        assert a.resolver.address(BOB) == at(2)


def test_names_are_as_their_members_say() -> None:
    a = start(Network(), 1)
    have(BOB, a, bob(2))
    have(CAT, a, bob(2)._replace(name="bobby"))
    assert a.resolver.names.name(BOB) == "bob"
    have(BOB, a, bob(2)._replace(name="robert"))
    assert a.resolver.names.name(BOB) == "robert"


def test_what_is_doubtful_is_not_told_to_others() -> None:
    network = Network()
    a, c = start(network, 1), start(network, 3)
    have(BOB, a, bob(2))
    ask(c.id, c.info, a, BOB)
    assert len(network.frames(Kind.I_HAVE, a.id)) == 1
    a.connection_lost(at(2))
    ask(c.id, c.info, a, BOB)
    assert len(network.frames(Kind.I_HAVE, a.id)) == 1


def test_a_member_is_not_asked_where_it_is_itself() -> None:
    network = Network()
    a, b, c = (start(network, number) for number in (1, 2, 3))
    a.install(view_of(1, a, b, c))
    a.connection_lost(at(2))
    a.say(b.id, b"anybody there?")
    network.run(0.1)
    assert direct_questions(network) == [(at(3), c.id)]


def test_a_few_of_the_view_are_asked_directly_the_oldest_first() -> None:
    network = Network()
    members = [start(network, number) for number in range(1, 8)]
    asker = members[0]
    asker.resolver.learn(0.0, MemberInfo(CAT, "cat", (at(99),)), own_word=True)
    asker.install(view_of(1, *reversed(members)))
    asker.say(BOB, b"hello")
    network.run(0.1)
    assert direct_questions(network) == [(at(number), members[number - 1].id) for number in (7, 6, 5)]


def test_who_was_found_before_it_was_asked_for_is_not() -> None:
    network = Network()
    a, b = start(network, 1), start(network, 2)
    a.say(b.id, b"hello")
    a.resolver.learn(0.0, b.info, own_word=False)
    network.run(3.0)
    assert [text for _, text in b.heard.texts] == [b"hello"]
    assert network.frames(Kind.WHO_HAS) == []


def test_who_has_asked_is_asked_in_later_rounds() -> None:
    network = Network()
    a = start(network, 1, kind="host-list")
    b = start(network, 2, kind="host-list", listed=hosts(1))
    b.find()
    network.run(0.1)
    a.find()
    network.run(0.1)
    assert found(a) == {"m2"}


def test_nothing_is_learned_after_the_end() -> None:
    network = Network()
    a = start(network, 1)
    a.say(BOB, b"hello")
    a.resolver.close(0.0)
    a.resolver.learn(0.0, bob(2), own_word=True)
    assert len(a.resolver.cache) == 0
    assert a.resolver.queued == (0, 0)
    assert a.resolver.deadline == float("inf")
    ask(CAT, MemberInfo(CAT, "cat", (PhysicalAddress("10.0.0.3", PORT),)), a, a.id)
    assert network.sent == []
