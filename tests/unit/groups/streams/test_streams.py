"""Streams of a site on a network without faults."""

from __future__ import annotations

import math

import pytest
from tests.unit.groups.streams.site import Site

from isthmus_router.groups.batch import GroupMessage, make_batch
from isthmus_router.groups.frames import FrameError, Kind, encode_frame
from isthmus_router.groups.identity import MemberInfo, member_id
from isthmus_router.groups.streams.streams import MOST_GONE, UNKNOWN_SECONDS
from isthmus_router.groups.streams.user import StreamsSettings
from isthmus_router.groups.streams.wire import Stable, Start, encode_stable
from isthmus_router.groups.views import View, ViewId


def test_everyone_delivers_in_order_and_nothing_is_kept() -> None:
    site = Site(3)
    for _ in range(20):
        for member in site.members:
            member.publish()
        site.run(0.003)
    site.run(1)
    for member in site.members:
        for origin in site.members:
            assert member.got[origin.id] == list(range(1, 21))
        assert member.protects == 20
    site.check_forgotten()
    assert not any(member.sent[Kind.REPAIR] for member in site.members)


def test_a_batch_is_protected_when_a_holder_besides_its_origin_has_it() -> None:
    site = Site(4)
    first, second, _, last = site.members
    site.cut = lambda _, to, kind: kind is Kind.BATCH and to in {first.id, second.id}
    last.publish()
    site.run(0.015)
    assert last.protects == 0
    site.cut = lambda _, to, kind: kind is Kind.BATCH and to == first.id
    last.publish()
    site.run(0.2)
    assert second.numbers(last.id) == [1, 2]
    assert last.protects == 2
    assert first.numbers(last.id) == []


def test_alone_nothing_is_protected_before_another_member_has_it() -> None:
    site = Site(1)
    (member,) = site.members
    member.publish()
    member.publish()
    site.run(1)
    assert member.protects == 0
    joiner = site.new("b")
    site.install([member, joiner], [joiner])
    site.run(1)
    assert member.protects == 2
    assert joiner.got[member.id] == [1, 2]
    site.check_forgotten()


def test_alone_what_is_not_protected_takes_room() -> None:
    site = Site(1, settings=StreamsSettings(window_bytes=1_000))
    (member,) = site.members
    member.publish(size=2_000)
    site.run(1)
    assert member.streams.room < 0
    joiner = site.new("b")
    site.install([member, joiner], [joiner])
    site.run(1)
    assert member.streams.room == 1_000


def test_alone_what_another_site_has_is_protected() -> None:
    site = Site(1)
    (member,) = site.members
    member.publish()
    member.publish()
    member.elsewhere_to = 1
    site.run(0.1)
    assert member.protects == 1
    member.elsewhere_to = 2
    site.run(0.1)
    assert member.protects == 2


def test_nobody_else_speaks_for_a_member() -> None:
    site = Site(2)
    first, second = site.members
    forged = make_batch(first.id, 1, 0, "NYC", None, [GroupMessage("news", b"")])
    assert not first.streams.accept(site.now, forged, second.id)
    assert first.got == {}


def test_one_copy_is_protected_at_once() -> None:
    site = Site(1, settings=StreamsSettings(copies=1))
    (member,) = site.members
    member.publish()
    member.publish()
    assert member.protects == 2
    site.run(1)
    site.check_forgotten()


def test_window_closes_while_a_member_is_silent_and_opens_when_it_is_removed() -> None:
    site = Site(3, settings=StreamsSettings(window_bytes=10_000))
    first, second, last = site.members
    site.crash(last)
    while first.streams.room > 0:
        first.publish(size=1_000)
    site.run(2)
    assert first.streams.room <= 0
    assert first.rooms == 0
    assert first.kept(first.id) == second.kept(first.id) > 0
    site.install([first, second])
    site.run(0.1)
    assert first.rooms == 1
    site.check_forgotten()


def test_under_pressure_room_comes_back_faster_than_the_timer() -> None:
    settings = StreamsSettings(window_bytes=600_000, tell_every=5)
    site = Site(3, settings=settings)
    (first, *_) = site.members
    for _ in range(100):
        first.publish(count=5, size=12_000)
        site.run(0.01)
    assert first.streams.room > 0


def test_a_joiner_begins_where_the_coordinator_was_and_misses_nothing_after() -> None:
    site = Site(3)
    (first, second, third) = site.members
    for _ in range(5):
        third.publish()
    site.run(0.5)
    joiner = site.new("new")
    site.cut = lambda _, to, kind: kind is Kind.BATCH and to == first.id
    third.publish()
    site.run(0.001)
    site.cut = lambda *_: False
    site.install([first, second, third, joiner], [joiner])
    third.publish()
    site.run(1)
    assert joiner.got[third.id] == [6, 7]
    assert first.got[third.id] == [1, 2, 3, 4, 5, 6, 7]
    joiner.publish()
    site.run(1)
    assert all(member.got[joiner.id] == [1] for member in site.members)
    site.check_forgotten()


def test_the_next_coordinator_is_told_what_the_former_one_knew() -> None:
    site = Site(4)
    first, second, third, last = site.members
    site.cut = lambda sender, to, kind: kind is Kind.STABLE and to != last.id
    last.publish()
    site.run(1)
    assert (last.kept(last.id), second.kept(last.id)) == (0, 1)
    site.cut = lambda *_: False
    site.crash(first)
    site.install([second, third, last], [last])  # how far it is was not said with the change of view
    site.run(5)
    site.check_forgotten()


def test_batches_of_a_joiner_that_come_before_its_view_are_kept() -> None:
    site = Site(2)
    first, second = site.members
    joiner = site.new("new")
    joiner.view = (first.id, second.id, joiner.id)
    joiner.publish()
    site.run(0.1)
    assert first.got[joiner.id] == []
    joiner.publish()
    site.run(0.01)
    site.install([first, second, joiner], [joiner])
    site.run(0.5)
    assert all(member.got[joiner.id] == [1, 2] for member in site.members)


def test_holders_and_the_origin_keep_what_is_to_be_relayed() -> None:
    site = Site(4)
    first, second, third, last = site.members
    for member in site.members:
        member.needed = 0
    for _ in range(10):
        last.publish()
    site.run(1)
    assert [member.kept(last.id) for member in site.members] == [10, 10, 0, 10]
    for member in site.members:
        member.needed = 4
    site.run(0.1)
    assert [member.kept(last.id) for member in site.members] == [6, 6, 0, 6]
    log = first.streams.log(last.id)
    assert log is not None
    assert (log.low, log.next, [batch.number for batch in log.batches(8)]) == (5, 11, [8, 9, 10])
    site.crash(second)
    site.install([first, third, last])
    assert third.streams.is_holder
    third.streams.backfill(site.now, last.id, 5)
    assert not third.streams.ready
    site.run(0.1)
    assert third.streams.ready
    assert third.kept(last.id) == 6
    assert third.got[last.id] == list(range(1, 11))
    for member in site.members:
        member.needed = math.inf
    site.run(0.1)
    site.check_forgotten()


def test_streams_of_those_who_left_are_forgotten_later() -> None:
    site = Site(3)
    first, second, last = site.members
    last.publish()
    site.run(0.5)
    site.install([first, second])
    site.run(50)
    assert last.id in first.streams.origins()
    site.run(20)
    assert last.id not in first.streams.origins()
    assert last.id not in second.streams.origins()


def test_streams_of_invented_members_are_few_and_are_forgotten_early() -> None:
    site = Site(3, settings=StreamsSettings(linger=3_600.0))
    first, second, last = site.members
    last.publish()
    site.run(0.5)
    for number in range(20):
        invented = [MemberInfo(member_id(site.random.randbytes(16)), f"x{each}", ()) for each in range(1_000)]
        members = [MemberInfo(member.id, member.name, ()) for member in (first, second)]
        view = View(ViewId(10 + number, first.id), (*members, *invented))
        first.streams.view_installed(site.now, view)
        first.streams.flush(site.now)
        assert first.streams.snapshot().streams <= 3 + 1_000 + MOST_GONE
    site.install([first, second])
    assert first.streams.snapshot().streams <= 3 + MOST_GONE
    site.run(UNKNOWN_SECONDS + 1)
    assert first.streams.snapshot().streams == 3
    site.install([first, second, last])
    last.publish()
    site.run(1)
    assert first.got[last.id] == [1, 2]


def test_a_member_that_publishes_as_it_leaves_and_comes_back_is_not_delivered_twice() -> None:
    site = Site(3, settings=StreamsSettings(linger=3_600.0))
    first, second, last = site.members
    site.install([first, second])
    last.publish()
    site.run(UNKNOWN_SECONDS + 10)
    assert first.got[last.id] == [1]
    site.install([first, second, last])
    last.publish()
    site.run(1)
    assert first.got[last.id] == second.got[last.id] == [1, 2]


def test_they_are_not_while_another_site_is_to_get_something_of_them() -> None:
    site = Site(3)
    first, second, last = site.members
    first.needed = second.needed = 0
    last.publish()
    site.run(0.5)
    site.crash(last)
    site.install([first, second])
    site.run(200)
    assert (first.kept(last.id), second.kept(last.id)) == (1, 1)
    first.needed = second.needed = math.inf
    site.run(100)
    assert last.id not in first.streams.origins()
    assert last.id not in second.streams.origins()


def test_nothing_is_sent_when_nothing_happens() -> None:
    site = Site(3)
    site.members[2].publish()
    site.run(5)
    for member in site.members:
        member.sent.clear()
    site.run(60)
    assert not any(sum(member.sent.values()) for member in site.members)


def test_a_new_holder_tells_origins_at_once_what_it_has() -> None:
    site = Site(4, settings=StreamsSettings(tell_every=5))
    first, _, third, last = site.members
    site.cut = lambda _, to, kind: kind is Kind.BATCH and to != third.id
    last.publish()
    site.run(0.1)
    assert last.protects == 0
    site.install([first, third, last])
    site.run(0.002)
    assert last.protects == 1


def test_an_origin_is_told_by_a_holder_that_had_its_batch_from_another_member() -> None:
    site = Site(3, settings=StreamsSettings(tell_every=5))
    first, second, last = site.members
    site.cut = lambda _, to, kind: kind is Kind.BATCH
    last.publish()
    site.cut = lambda *_: False
    log = last.streams.log(last.id)
    assert log is not None
    second.streams.accept(site.now, next(log.batches(1)), first.id)
    second.streams.flush(site.now)
    site.run(0.002)
    assert last.protects == 1


def test_only_the_coordinator_says_what_is_stable() -> None:
    site = Site(3)
    first, second, last = site.members
    site.cut = lambda sender, _, kind: sender is first and kind is Kind.STABLE
    second.publish()
    site.run(0.1)
    body = encode_stable([Stable(second.id, 1, 1, second.id)])
    last.send(site.now, second.id, Kind.STABLE, body)
    site.run(0.1)
    assert second.kept(second.id) == 1
    site.cut = lambda *_: False
    first.send(site.now, second.id, Kind.STABLE, body)
    site.run(0.01)
    assert second.kept(second.id) == 0


def test_what_is_stable_is_told_again_to_who_has_not_heard() -> None:
    site = Site(3)
    _, second, last = site.members
    site.cut = lambda _, to, kind: kind is Kind.STABLE and to == last.id
    second.publish()
    site.run(2)
    assert last.kept(second.id) == 1
    site.cut = lambda *_: False
    site.run(3)
    site.check_forgotten()


def test_a_stream_of_one_who_left_long_ago_is_forgotten_again() -> None:
    site = Site(2)
    second = site.members[1]
    stranger = site.new("gone")
    second.streams._on_start(site.now, Start(stranger.id, 5, 4, "NYC"))
    site.run(1)
    assert stranger.id in second.streams.origins()
    site.run(100)
    assert stranger.id not in second.streams.origins()


@pytest.mark.parametrize(
    "kind", [Kind.BATCH, Kind.REPAIR, Kind.MISSING, Kind.POSITIONS, Kind.STABLE, Kind.START, Kind.GAP]
)
def test_malformed_frames_are_refused_whatever_is_in_them(kind: Kind) -> None:
    site = Site(2)
    first, second = site.members
    with pytest.raises(FrameError):
        second.streams.on_frame(site.now, kind, first.id, encode_frame(kind, first.id, second.id, b"short"))
    for _ in range(2_000):
        body = site.random.randbytes(site.random.randrange(120))
        try:
            second.streams.on_frame(site.now, kind, first.id, encode_frame(kind, first.id, second.id, body))
        except FrameError:
            continue
        second.streams.flush(site.now)
    first.publish()
    site.run(1)
    assert second.numbers(first.id) == [1]
