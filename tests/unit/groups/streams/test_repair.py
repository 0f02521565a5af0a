"""What is missing is asked for, fetched back for the log, or given up; on a network that loses what a test says."""

from __future__ import annotations

from tests.unit.groups.streams.site import Site

from isthmus_router.groups.frames import Kind
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.streams.user import StreamsSettings


def test_the_last_batch_is_repaired_without_further_traffic() -> None:
    site = Site(3)
    first, _, last = site.members
    site.cut = lambda _, to, kind: kind is Kind.BATCH and to == last.id
    first.publish()
    site.run(0.01)
    site.cut = lambda *_: False
    site.run(0.1)
    assert last.numbers(first.id) == [1]


def test_survivors_deliver_the_same_of_a_crashed_origin() -> None:
    site = Site(4)
    first, second, third, last = site.members
    site.cut = lambda _, to, kind: kind is Kind.BATCH and to != third.id
    for _ in range(5):
        last.publish()
    site.run(0.002)
    site.crash(last)
    site.cut = lambda *_: False
    site.run(0.05)
    site.install([first, second, third])
    site.run(0.1)
    for member in site.members:
        assert member.got[last.id] == [1, 2, 3, 4, 5]
    site.run(1)
    site.check_forgotten()


def test_coordinator_and_origin_crash_with_batches_that_one_member_has() -> None:
    site = Site(4)
    first, second, third, last = site.members
    site.cut = lambda _, to, kind: kind is Kind.BATCH and to != last.id
    for _ in range(3):
        first.publish()
    site.run(0.002)
    site.crash(first)
    site.cut = lambda *_: False
    site.install([second, third, last])
    site.run(0.1)
    for member in site.members:
        assert member.got[first.id] == [1, 2, 3]


def test_what_nobody_has_is_a_gap() -> None:
    site = Site(3)
    first, second, last = site.members
    site.cut = lambda _, to, kind: kind is Kind.BATCH
    last.publish()
    last.publish(count=7)
    last.publish()
    site.cut = lambda *_: False
    last.publish()
    site.run(0.0015)
    site.crash(last)
    site.install([first, second])
    site.run(3)
    for member in site.members:
        assert member.got[last.id] == [-1, -2, -3, 4]
        assert member.gaps == [(last.id, 1, 3, 9)]
    site.check_forgotten()


def test_how_much_nobody_has_is_known_from_what_follows() -> None:
    site = Site(2)
    first, last = site.members
    site.cut = lambda _, to, kind: kind is Kind.BATCH
    last.publish(count=7)
    last.publish()
    site.cut = lambda *_: False
    last.publish()
    site.run(0.0015)
    site.crash(last)
    site.install([first])
    site.run(3)
    assert first.gaps == [(last.id, 1, 2, 8)]


def test_in_a_new_view_what_is_missing_is_asked_for_at_once() -> None:
    site = Site(3)
    first, second, last = site.members
    first.needed = last.needed = 0
    last.publish()
    site.run(1)
    site.cut = lambda _, to, kind: kind is Kind.REPAIR or (kind is Kind.BATCH and to == second.id)
    last.publish()
    second.needed = 0
    second.streams.backfill(site.now, last.id, 1)
    site.run(5)
    site.cut = lambda *_: False
    site.install(site.members)
    site.run(0.1)
    assert second.numbers(last.id) == [1, 2]
    assert second.streams.ready
    assert second.kept(last.id) == 2


def test_backfill_ends_with_what_nobody_has() -> None:
    site = Site(3)
    first, second, last = site.members
    for member in site.members:
        member.needed = 3
    for _ in range(5):
        first.publish()
    site.run(1)
    for member in site.members:
        member.needed = 0
    last.streams.is_holder = True
    last.streams.backfill(site.now, first.id, 1)
    site.run(0.04)
    assert last.streams.ready
    assert second.kept(first.id) == last.kept(first.id) == 2


def test_backfill_asks_again_for_what_others_have() -> None:
    """Though they lack what is before it."""
    site = Site(2)
    first, last = site.members
    first.needed = 3
    for _ in range(5):
        first.publish()
    site.run(1)
    last.needed = 0
    last.streams.is_holder = True
    site.cut = lambda _, to, kind: kind is Kind.BATCH
    last.streams.backfill(site.now, first.id, 1)
    site.run(0.01)
    site.cut = lambda *_: False
    site.run(0.5)
    assert last.kept(first.id) == 2


def test_where_a_stream_begins_is_not_guessed() -> None:
    site = Site(2)
    first, second = site.members
    stranger = site.new("gone")
    stranger.publish()
    stranger.publish()
    log = stranger.streams.log(stranger.id)
    assert log is not None
    second.streams.accept(site.now, next(log.batches(2)), first.id)
    site.run(5)
    assert stranger.id not in second.streams.origins()
    assert second.gaps == []


def test_what_was_lost_with_all_that_had_it_is_not_waited_for() -> None:
    site = Site(4)
    first, second, third, last = site.members
    site.cut = lambda _, to, kind: kind is Kind.REPAIR or (kind is Kind.BATCH and to != third.id)
    last.publish()
    site.run(0.3)
    site.crash(third, last)
    site.cut = lambda _, to, kind: kind is Kind.STABLE
    site.install([first, second])
    site.run(3)
    assert second.gaps == first.gaps == []


def test_a_batch_that_is_late_is_not_given_up() -> None:
    site = Site(3)
    first, second, last = site.members
    site.cut = lambda *_: True
    last.publish()
    log = last.streams.log(last.id)
    assert log is not None
    late = log.get(1)
    assert late is not None
    site.cut = lambda *_: False
    last.publish()
    site.run(0.0015)
    site.crash(last)
    site.install([first, second])
    site.run(0.4)
    second.streams.accept(site.now, late, last.id)
    site.run(1)
    for member in site.members:
        assert member.got[last.id] == [1, 2]
        assert member.gaps == []


def test_backfills_of_one_stream_are_one() -> None:
    site = Site(3)
    first, second, last = site.members
    first.needed = second.needed = 0
    for _ in range(10):
        first.publish()
    site.run(1)
    assert last.kept(first.id) == 0
    last.needed = 0
    last.streams.is_holder = True
    last.streams.backfill(site.now, first.id, 2)
    last.streams.backfill(site.now, first.id, 7)
    site.run(0.2)
    assert last.streams.ready
    assert last.kept(first.id) == 9


def test_backfill_is_given_in_parts() -> None:
    site = Site(3, settings=StreamsSettings(repair_bytes=3_000))
    first, second, last = site.members
    first.needed = second.needed = 0
    for _ in range(30):
        first.publish(size=1_200)
    site.run(1)
    last.needed = 0
    last.streams.is_holder = True
    last.streams.backfill(site.now, first.id, 1)
    site.run(0.003)
    assert last.kept(first.id) == 3
    site.run(0.3)
    assert last.kept(first.id) == 30
    log = last.streams.log(first.id)
    assert log is not None
    assert [batch.number for batch in log.batches(1)] == list(range(1, 31))


def test_who_is_in_the_middle_of_a_long_frame_is_not_asked_for_more() -> None:
    """On a slow line every answer would be the same again, behind what is under way."""
    site = Site(3)
    first, second, last = site.members
    asked: list[MemberId] = []

    def cut(sender: MemberId, to: MemberId, kind: Kind) -> bool:
        if kind is Kind.REPAIR:
            asked.append(to)
        return to == first.id and (kind is Kind.BATCH)

    def arrives(seconds: float, *senders: MemberId) -> None:
        for _ in range(int(seconds / 0.01)):
            for sender in senders:
                first.streams.heard(site.now, sender)
            site.run(0.01)

    site.cut = cut
    arrives(0.05, last.id)
    last.publish()
    arrives(3.0, last.id)
    assert set(asked) == {second.id}
    asked.clear()
    arrives(3.0, last.id, second.id)
    assert not asked
    assert not first.gaps, "nobody has said that it has not got it"
    arrives(3.0)
    assert set(asked) == {second.id, last.id}
    arrives(0.05, last.id)
    site.cut = lambda *_: False
    last.publish()
    site.run(0.01)
    assert not first.numbers(last.id)
    site.run(2.0)
    assert first.numbers(last.id) == [1, 2]


def test_what_came_early_is_delivered_in_steps() -> None:
    settings = StreamsSettings(early_bytes=1 << 30, linger=60.0)
    site = Site(2, settings=settings)
    first, second = site.members
    site.cut = lambda _, to, kind: kind in (Kind.BATCH, Kind.REPAIR)
    first.publish()
    site.cut = lambda _, to, kind: kind is Kind.REPAIR
    for _ in range(300):
        first.publish(size=20_000)
    site.run(0.1)
    assert second.got[first.id] == []
    site.cut = lambda *_: False
    steps = []
    for _ in range(1_000):
        before = len(second.got[first.id])
        site.run(0.0005)
        steps.append(len(second.got[first.id]) - before)
        if site.random.random() < 0.1:
            first.publish(size=20_000)
    site.run(0.5)
    assert 1 < max(steps) < 10
    assert second.got[first.id] == list(range(1, len(first.got[first.id]) + 1))
    assert second.streams.early == 0
    site.run(1)
    site.check_forgotten()


def test_a_hole_behind_what_is_delivered_in_steps_is_given_up_afterwards() -> None:
    settings = StreamsSettings(early_bytes=1 << 30, give_up_after=0.0, linger=60.0)
    site = Site(3, settings=settings)
    first, second, third = site.members
    lost = {1, 120}
    site.cut = lambda sender, to, kind: (
        kind is Kind.REPAIR or (kind is Kind.BATCH and len(first.got[first.id]) + 1 in lost)
    )
    for _ in range(200):
        first.publish(size=20_000)
    site.crash(first)
    site.run(0.1)
    site.install([second, third])
    site.cut = lambda *_: False
    site.run(2)
    for member in (second, third):
        assert member.got[first.id] == [-n if n in lost else n for n in range(1, 201)]
        assert [gap[1:3] for gap in member.gaps] == [(1, 1), (120, 120)]
