"""Sites of whole members in one world: messages, views, and what survives whom."""

from __future__ import annotations

from operator import itemgetter

import pytest
from tests.unit.sites import properties
from tests.unit.sites.sites import PORT, Net, Sent
from tests.unit.sites.world import World

from isthmus_router.core.terms import Outcome
from isthmus_router.groups.batch import GroupMessage
from isthmus_router.groups.frames import FrameError, Kind, encode_body, encode_frame
from isthmus_router.groups.identity import NOBODY, PhysicalAddress
from isthmus_router.groups.unicast import UnicastSettings


@pytest.fixture
def net() -> Net:
    """Two sites of three."""
    net = Net(World(1), {"nyc": 3, "sfo": 3})
    net.start_all()
    return net


def test_a_message_reaches_every_member_of_every_site_once(net: Net) -> None:
    sender = net.named("nyc2")
    sender.publish(100)
    net.world.run(5.0)
    for node in net.nodes:
        assert [number for _, number, _ in node.deliveries] == list(range(100)), node
    properties.everything(net)


def test_a_member_that_is_reached_elsewhere_stays_the_same_member(net: Net) -> None:
    moved = net.named("nyc1")
    old, new = moved.process.host.name, "10.9.9.9"
    net.world.hosts[new] = moved.process.host
    views = {node: len(node.views) for node in net.nodes}
    moved.member.readdressed((PhysicalAddress(new, PORT),))
    moved.publish()
    net.world.run(1.0)
    del net.world.hosts[old]
    for node in net.of("nyc"):
        node.publish(10)
    net.world.run(5.0)
    for node in net.of("nyc"):
        if node is not moved:
            assert node.member.resolver.address(moved.id) == PhysicalAddress(new, PORT)
        assert len(node.views) == views[node]
        assert len(node.deliveries) == 31
    properties.ordered_once(net)


def test_a_message_to_oneself_arrives_after_the_call(net: Net) -> None:
    one = net.named("nyc2")
    one.member.send_to(one.id, GroupMessage("", b"hello"), None)
    sent = one.send_to(one.id, b"and again")
    assert not one.replies
    assert sent.accepted is None
    net.world.run(0.1)
    assert [text for _, text in one.replies] == [b"hello", b"and again"]
    assert sent.accepted is not None


def test_a_message_that_is_refused_is_told_of_after_the_call(net: Net) -> None:
    one = net.named("nyc2")
    most = UnicastSettings().queue_messages
    for _ in range(most):
        one.member.send_to(one.id, GroupMessage("", b"hello"), None)
    sent = Sent(one, -1, net.world.now)
    one.member.send_to(one.id, GroupMessage("", b"one too many"), [sent])
    assert sent.failed is None
    net.world.turned(one.process)
    net.world.run(0.1)
    assert sent.failed is Outcome.RELEASED
    assert len(one.replies) == most


def test_settled_messages_to_one_member_that_are_dropped_are_counted_and_told(net: Net) -> None:
    one, other = net.named("nyc2"), net.named("sfo2")
    net.world.cut(["nyc"], ["sfo"])
    most = UnicastSettings().queue_messages
    for _ in range(most + 3):
        one.member.send_to(other.id, GroupMessage("", b"hello"), None)
    assert one.member.dropped == 3
    net.world.run(20.0)
    assert one.member.snapshot(one.now).unicasts_dropped == most + 3, "the member is out of reach"
    told = [fields["messages"] for name, fields in one.events if name.startswith("pre-settled messages")]
    assert told == [most + 3]


def test_what_is_for_a_member_out_of_reach_asks_nobody_where_it_is(net: Net) -> None:
    one, other = net.named("nyc2"), net.named("sfo2")
    net.world.cut(["nyc"], ["sfo"])
    net.world.run(2.5)
    sent = one.send_to(other.id, b"hello")
    net.world.run(5.0)
    assert sent.failed is Outcome.MODIFIED
    assert one.member.resolver.counters.asked == 0
    assert one.member.resolver.counters.expired == 0


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.DISCOVER, Kind.WHO_HAS)])
def test_by_multicast_a_member_is_only_asked(net: Net, kind: Kind) -> None:
    """A datagram can be anybody's, whatever certificates members show each other on their connections."""
    target, other = net.of("nyc")[:2]
    with pytest.raises(FrameError, match=f"{kind.name} by multicast"):
        target.member.on_frame(net.world.now, None, encode_frame(kind, other.id, NOBODY, encode_body()))
    net.world.run(1.0)
    assert other.id in target.views[-1].ids


def test_a_member_that_its_site_goes_on_without_keeps_its_name(net: Net) -> None:
    alone = net.of("nyc")[-1]
    alone.publish(100)
    net.world.pause(alone.process, 4.0)
    others = net.of("sfo")
    assert net.world.run(
        4.0, lambda: all(alone.id not in map(itemgetter(0), node.everyone) for node in others)
    )
    net.world.run(10.0)
    assert net.is_settled()
    for node in others:
        assert len(node.deliveries) == 100
        assert not node.misnamed
    properties.everything(net, gaps_allowed=True)


def test_senders_are_told_when_a_member_is_closed(net: Net) -> None:
    one, other = net.named("nyc2"), net.named("sfo2")
    accepted = one.publish(5)
    net.world.run(1.0)
    net.world.cut(["nyc"], ["sfo"])
    for node in net.of("nyc"):
        if node is not one:
            net.crash(node)
    open_ = [*one.publish(3), one.send_to(other.id, b"hello")]
    net.world.run(0.5)
    assert all(sent.accepted for sent in accepted)
    assert not any(sent.accepted or sent.failed for sent in open_)
    one.member.close(one.now)
    assert {sent.failed for sent in open_} == {Outcome.MODIFIED}
