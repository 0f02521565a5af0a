"""A stream, and all streams together, have a bound on batches that are not stable; what is refused comes later."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.groups.streams.site import REMOTE, Member, Site

from isthmus_router.groups.batch import BATCH_BYTES, MOST_MESSAGE_BYTES, GroupMessage, make_batch
from isthmus_router.groups.frames import Kind
from isthmus_router.groups.streams.user import StreamsSettings

SETTINGS = StreamsSettings(window_bytes=100_000, windows_together=1_000, linger=60.0)
MOST = 2 * SETTINGS.window_bytes + 2 * (MOST_MESSAGE_BYTES + BATCH_BYTES)
"""Bytes of a stream: one batch may exceed the bound."""


def retained(member: Member) -> int:
    """Bytes in the logs of other members and sites."""
    logs = [member.streams.log(origin) for origin in member.streams.origins() if origin != member.id]
    return sum(log.bytes for log in logs if log is not None)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_member_that_reports_no_positions_does_not_fill_the_others(reverse: bool) -> None:
    site = Site(3, settings=SETTINGS)
    first, second, hostile = site.members
    site.cut = lambda sender, _, kind: sender is hostile and kind is Kind.POSITIONS
    size = 60_000
    batches = [
        make_batch(hostile.id, number, number - 1, "NYC", None, [GroupMessage("news", bytes(size))])
        for number in range(1, 1_001)
    ]
    for at in range(0, len(batches), 100):
        for batch in reversed(batches[at : at + 100]) if reverse else batches[at : at + 100]:
            for member in (first, second):
                hostile.send(site.now, member.id, Kind.BATCH, batch.encoded)
        site.run(0.01)
    site.run(3)
    for member in (first, second):
        assert retained(member) <= MOST
        assert member.streams.snapshot().without_room > 0
    first.publish()
    site.run(0.1)
    assert second.got[first.id] == [1]


def test_what_was_refused_is_delivered_when_members_report_their_positions() -> None:
    site = Site(3, settings=SETTINGS)
    first, second, origin = site.members
    site.cut = lambda sender, _, kind: sender is origin and kind is Kind.POSITIONS
    for _ in range(350):
        origin.publish(size=60_000)
        site.run(0.002)
    assert second.streams.snapshot().without_room > 0
    assert len(second.got[origin.id]) < 350
    site.cut = lambda *_: False
    site.run(20)
    for member in (first, second):
        assert member.got[origin.id] == list(range(1, 351))
    site.check_forgotten()


def test_streams_together_have_a_bound_and_small_batches_of_others_arrive() -> None:
    settings = StreamsSettings(window_bytes=100_000, most_streams=1_000, linger=60.0)
    site = Site(12, settings=settings)
    first, second, *hostile = site.members
    site.cut = lambda sender, _, kind: sender in hostile and kind is Kind.POSITIONS
    for _ in range(10):
        for member in hostile:
            member.publish(size=60_000)
        site.run(0.01)
    site.run(1)
    most = settings.windows_together * settings.window_bytes
    assert retained(second) <= 2 * most
    assert second.streams.snapshot().without_room > 0
    for _ in range(10):
        first.publish(size=100)
        site.run(0.1)
    assert second.got[first.id] == list(range(1, 11))
    assert retained(second) <= 2 * most
    site.cut = lambda *_: False
    site.run(20)
    assert second.got[hostile[0].id] == list(range(1, 11))
    site.check_forgotten()


def test_batches_of_another_site_are_requested_again_when_there_is_room() -> None:
    site = Site(3, settings=SETTINGS)
    relay, second, last = site.members
    relay.streams.start(site.now, REMOTE, "SFO", 1, 0)
    site.run(0.01)
    site.cut = lambda sender, _, kind: sender is last and kind is Kind.POSITIONS
    number = 1
    while relay.bridged(
        make_batch(REMOTE, number, number - 1, "SFO", None, [GroupMessage("news", bytes(60_000))])
    ):
        number += 1
        site.run(0.001)
        assert number < 400
    assert retained(relay) <= MOST
    assert relay.streams.snapshot().without_room == 1
    site.cut = lambda *_: False
    site.run(5)
    for more in range(number, number + 10):
        assert relay.bridged(make_batch(REMOTE, more, more - 1, "SFO", None, [GroupMessage("news", b"")]))
    site.run(5)
    assert second.got[REMOTE] == last.got[REMOTE] == list(range(1, number + 10))
    site.check_forgotten()


@pytest.mark.parametrize("seed", range(10))
def test_members_that_are_full_of_different_streams_do_not_wait_for_each_other(seed: int) -> None:
    settings = replace(SETTINGS, window_bytes=10_000, windows_together=2)
    site = Site(6, seed=seed, settings=settings)
    first, second, *origins = site.members
    half = {origin.id for origin in origins[:2]}
    site.cut = lambda sender, to, kind: (
        to in (first.id, second.id) and (sender.id in half) == (to == second.id) and sender in origins
    )
    for origin in origins:
        while origin.streams.room > 0:
            origin.publish(size=1_000)
    site.run(0.5)
    assert all(member.streams.snapshot().without_room > 0 for member in origins)
    site.cut = lambda *_: False
    for _ in range(10):
        site.run(2)
        for origin in origins:
            if origin.streams.room > 0:
                origin.publish(size=1_000)
    site.run(20)
    for member in site.members:
        for origin in origins:
            assert member.got[origin.id] == list(range(1, origin.marks()[origin.id] + 1))
            assert origin.marks()[origin.id] >= 15
    site.check_forgotten()


def test_a_new_holder_takes_back_no_more_than_members_keep_for_other_sites() -> None:
    site = Site(4, settings=replace(SETTINGS, relayed_bytes=1_000_000))
    first, second, third, origin = site.members
    origin.needed = 0
    for _ in range(400):
        origin.publish(size=60_000)
        site.run(0.01)
    site.run(1)
    assert (third.kept(origin.id), origin.kept(origin.id)) == (0, 400)
    site.crash(first)
    site.install([second, third, origin])
    third.needed = 0
    third.streams.backfill(site.now, origin.id, 1)
    site.run(10)
    most = 1_000_000 + SETTINGS.window_bytes + 2 * (MOST_MESSAGE_BYTES + BATCH_BYTES)
    assert 0 < retained(third) <= most
    assert third.streams.snapshot().without_room > 0
    assert not third.streams.ready
    third.needed = origin.needed = 350
    site.run(10)
    assert third.streams.ready
    assert third.kept(origin.id) == 50
    assert third.got[origin.id] == list(range(1, 401))


def test_members_that_change_their_views_refuse_nothing_of_honest_origins() -> None:
    site = Site(4, settings=replace(SETTINGS, window_bytes=5_000_000), loss=0.1, delay=0.02)
    for turn in range(40):
        for member in site.members:
            for _ in range(10):
                if member.streams.room > 0:
                    member.publish(size=60_000)
        site.run(0.05)
        if turn % 8 == 3:
            site.crash(site.members[0])
            joiner = site.new("new")
            site.install([*site.members[1:], joiner], [joiner])
    site.run(60)
    assert not any(member.streams.snapshot().without_room for member in site.members)
    site.check_forgotten()
