"""Streams of origins of another site: they come to one member and go to all."""

from __future__ import annotations

import pytest
from tests.unit.groups.streams.site import REMOTE, Site

from isthmus_router.groups.batch import Batch, GroupMessage, make_batch
from isthmus_router.groups.frames import Kind
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.streams.repair import PART_BYTES
from isthmus_router.groups.streams.stream import MOST_HOLES
from isthmus_router.groups.streams.user import MEBIBYTE, StreamsSettings
from isthmus_router.groups.streams.wire import Repair, encode_repair


def remote(number: int, *, size: int = 10) -> Batch:
    """Of an origin whose batches have two messages each."""
    messages = [GroupMessage("news", bytes(size))] * 2
    return make_batch(REMOTE, number, 2 * (number - 1), "SFO", None, messages)


def started(site: Site, number: int = 1) -> None:
    """The first member has heard where the stream begins."""
    site.members[0].streams.start(site.now, REMOTE, "SFO", number, 2 * (number - 1))
    site.run(0.01)


def test_it_begins_where_the_bridge_says_and_goes_to_all() -> None:
    site = Site(3)
    relay = site.members[0]
    started(site, 7)
    assert relay.bridged(remote(7))
    assert not relay.bridged(remote(7))
    assert relay.bridged(remote(8))
    site.run(1)
    for member in site.members:
        assert member.got[REMOTE] == [7, 8]
        assert member.gaps == []
        assert member.marks("SFO") == {REMOTE: 8}
    assert relay.holds == {REMOTE: 8}
    assert site.members[1].holds == {}
    site.check_forgotten()


def test_it_is_held_when_one_other_member_has_it() -> None:
    site = Site(3)
    relay, second, _ = site.members
    started(site)
    site.cut = lambda _, to, kind: kind is Kind.BATCH
    relay.bridged(remote(1))
    site.run(0.015)
    assert relay.holds.get(REMOTE, 0) == 0
    site.cut = lambda _, to, kind: kind is Kind.BATCH and to != second.id
    site.run(0.3)
    assert relay.holds == {REMOTE: 1}
    assert relay.streams.held(REMOTE) == 1


def test_it_is_held_when_everyone_has_told_the_coordinator_that_it_has_it() -> None:
    site = Site(3, settings=StreamsSettings(relays=2, linger=60.0))
    _, relay, _ = site.members
    relay.streams.start(site.now, REMOTE, "SFO", 1, 0)
    site.cut = lambda _, to, kind: kind is Kind.POSITIONS and to == relay.id
    relay.bridged(remote(1))
    site.run(0.3)
    assert relay.holds == {REMOTE: 1}


def test_who_joins_is_given_what_only_the_relay_has() -> None:
    """It would count as one that has it, and the other site would be told that it is held."""
    site = Site(2)
    relay, second = site.members
    started(site)
    site.cut = lambda _, to, kind: kind is Kind.BATCH
    relay.bridged(remote(1))
    joiner = site.new("new")
    site.install([relay, second, joiner], [joiner])
    site.run(0.3)
    assert relay.holds == {}
    site.cut = lambda *_: False
    site.run(2)
    assert relay.holds == {REMOTE: 1}
    assert joiner.got[REMOTE] == [1]


def test_alone_it_is_held_at_once() -> None:
    site = Site(1)
    (relay,) = site.members
    started(site)
    relay.bridged(remote(1))
    assert relay.holds == {REMOTE: 1}


def test_who_is_left_alone_holds_it() -> None:
    site = Site(2)
    relay, second = site.members
    started(site)
    site.crash(second)
    relay.bridged(remote(1))
    site.run(0.5)
    assert relay.holds == {}
    site.install([relay])
    assert relay.holds == {REMOTE: 1}


def test_members_that_lag_hold_up_the_bridge_not_the_memory() -> None:
    site = Site(3, settings=StreamsSettings(window_bytes=10_000))
    relay, _, last = site.members
    started(site)
    site.cut = lambda _, to, kind: to == last.id
    for number in range(1, 20):
        relay.bridged(remote(number, size=500))
        site.run(0.01)
    assert relay.holds[REMOTE] < 12
    site.cut = lambda *_: False
    site.run(5)
    assert relay.holds[REMOTE] == 19
    assert last.got[REMOTE] == list(range(1, 20))
    site.check_forgotten()
    site.cut = lambda _, to, kind: to == last.id
    relay.bridged(remote(20))
    site.run(0.3)
    assert relay.holds[REMOTE] == 20, "there is room again for who lags"


def test_a_start_that_was_lost_is_asked_for_where_a_batch_came_from() -> None:
    site = Site(6)
    relay, second, *_ = site.members
    site.cut = lambda _, to, kind: kind is Kind.START
    started(site, 7)
    site.cut = lambda *_: False
    relay.bridged(remote(7))
    site.run(0.5)
    assert second.got[REMOTE] == [7]
    assert not any(member.sent[Kind.MISSING] for member in site.members)


def test_who_asks_for_a_start_begins_with_what_is_left() -> None:
    site = Site(2)
    relay, second = site.members
    started(site)
    for number in range(1, 6):
        relay.bridged(remote(number))
    site.run(1)
    other = site.new("other")
    site.install([relay, second, other])
    relay.bridged(remote(6))
    site.run(1)
    assert other.got[REMOTE] == [6]
    site.check_forgotten()


@pytest.mark.parametrize("known", [False, True])
def test_who_does_not_know_where_a_stream_begins_says_so(known: bool) -> None:
    """Else it would not be given up what nobody has."""
    site = Site(2)
    first, second = site.members
    site.cut = lambda _, to, kind: to == first.id
    if known:
        second.streams.accept(site.now, remote(5), first.id)
    for numbers in ((0, 0), (1, 4)):
        second.sent.clear()
        first.send(site.now, second.id, Kind.REPAIR, encode_repair(Repair(REMOTE, *numbers)))
        site.run(0.002)
        assert second.sent[Kind.MISSING] == 1


def test_where_a_stream_begins_is_asked_for_until_somebody_knows() -> None:
    site = Site(3)
    relay, second, _ = site.members
    second.streams.accept(site.now, remote(7), relay.id)
    site.run(1)
    site.cut = lambda _, to, kind: kind is Kind.START
    started(site, 7)
    site.cut = lambda *_: False
    site.run(2)
    assert second.got[REMOTE] == [7]


def test_what_those_who_have_gone_on_lack_is_lost() -> None:
    site = Site(3, settings=StreamsSettings(relays=2, linger=60.0))
    first, relay, last = site.members
    relay.streams.start(site.now, REMOTE, "SFO", 1, 0)
    site.cut = lambda _, to, kind: kind is Kind.BATCH and to == last.id
    for number in range(1, 4):
        relay.bridged(remote(number))
    site.run(0.01)
    other = site.new("other")
    site.install([first, relay, last, other], [other])
    site.crash(first, relay)
    site.cut = lambda *_: False
    site.install([last, other])
    other.bridged(remote(4))
    site.run(3)
    assert last.got[REMOTE] == [-1, -2, -3, 4]
    assert last.gaps == [(REMOTE, 1, 3, 6)]
    assert other.got[REMOTE] == [4]


def test_a_gap_of_the_bridge_is_one_of_everyone() -> None:
    site = Site(3)
    relay = site.members[0]
    started(site)
    relay.bridged(remote(1))
    site.run(0.5)
    relay.streams.skip(site.now, REMOTE, "SFO", 2, 4, 6)
    site.run(0.01)
    assert all(member.got[REMOTE] == [1, -2, -3, -4] for member in site.members)
    site.run(0.5)
    assert relay.holds == {REMOTE: 4}
    relay.bridged(remote(5))
    site.run(0.5)
    for member in site.members:
        assert member.got[REMOTE] == [1, -2, -3, -4, 5]
        assert member.gaps == [(REMOTE, 2, 4, 6)]
    site.check_forgotten()


def test_what_was_not_for_this_site_is_no_gap() -> None:
    site = Site(2)
    relay = site.members[0]
    started(site)
    relay.bridged(remote(1))
    relay.streams.skip(site.now, REMOTE, "SFO", 2, 9, 0)
    relay.bridged(remote(10))
    site.run(0.5)
    assert all(member.numbers(REMOTE) == [1, 10] for member in site.members)
    assert all(member.gaps == [] for member in site.members)


def test_a_stream_begins_once() -> None:
    site = Site(2)
    relay = site.members[0]
    started(site)
    relay.bridged(remote(1))
    started(site, 10)
    relay.bridged(remote(2))
    site.run(0.5)
    assert all(member.got[REMOTE] == [1, 2] for member in site.members)


@pytest.mark.parametrize(("lost", "before", "after"), [(8, 2, 4), (3, 2, 0), (1, 1, 0)])
def test_a_gap_skips_nothing_that_is_here(lost: int, before: int, after: int) -> None:
    """Of what it leaves out, some was not for this site."""
    site = Site(1)
    (relay,) = site.members
    started(site)
    relay.bridged(remote(1))
    relay.bridged(remote(3))
    relay.streams.skip(site.now, REMOTE, "SFO", 2, 5, lost)
    relay.bridged(remote(6))
    assert relay.numbers(REMOTE) == [1, 3, 6]
    told = [(REMOTE, 2, 2, before), (REMOTE, 4, 5, after)]
    assert relay.gaps == [gap for gap in told if gap[3]]


def test_of_many_gaps_the_next_one_counts() -> None:
    site = Site(1)
    (relay,) = site.members
    started(site)
    for number in range(3, 2 * MOST_HOLES + 3, 2):
        relay.streams.skip(site.now, REMOTE, "SFO", number, number, 2)
    assert relay.gaps == []
    relay.streams.skip(site.now, REMOTE, "SFO", 1, 1, 2)
    assert relay.gaps == [(REMOTE, 1, 1, 2)]


def test_gaps_of_what_came_all_the_same_take_no_place() -> None:
    site = Site(1)
    (relay,) = site.members
    started(site)
    for number in range(1, 2 * MOST_HOLES, 2):
        relay.streams.skip(site.now, REMOTE, "SFO", number + 1, number + 1, 2)
        relay.bridged(remote(number + 1))
        relay.bridged(remote(number))
    assert relay.gaps == []
    relay.streams.skip(site.now, REMOTE, "SFO", 2 * MOST_HOLES + 2, 2 * MOST_HOLES + 2, 2)
    relay.bridged(remote(2 * MOST_HOLES + 1))
    assert relay.got[REMOTE][-2:] == [2 * MOST_HOLES + 1, -(2 * MOST_HOLES + 2)]


def test_what_the_site_never_had_waits_for_the_bridge() -> None:
    site = Site(2)
    relay = site.members[0]
    started(site)
    relay.bridged(remote(2))
    site.run(5)
    assert relay.gaps == []
    relay.bridged(remote(1))
    site.run(1)
    assert all(member.got[REMOTE] == [1, 2] for member in site.members)


def test_the_next_relay_goes_on_and_members_are_made_equal() -> None:
    site = Site(3)
    relay, second, last = site.members
    started(site)
    site.cut = lambda _, to, kind: kind is Kind.BATCH and to == last.id
    relay.bridged(remote(1))
    relay.bridged(remote(2))
    site.run(0.01)
    site.cut = lambda *_: False
    site.crash(relay)
    site.install([second, last])
    assert second.marks("SFO") == {REMOTE: 2}
    assert not second.bridged(remote(2))
    assert second.bridged(remote(3))
    site.run(0.5)
    for member in site.members:
        assert member.got[REMOTE] == [1, 2, 3]
    assert second.holds == {REMOTE: 3}
    site.check_forgotten()


def test_origins_that_left_their_site_are_forgotten_later() -> None:
    site = Site(2)
    relay = site.members[0]
    started(site)
    relay.bridged(remote(1))
    for ids in ([REMOTE], []):
        for member in site.members:
            member.streams.site_view(site.now, "SFO", ids)
    site.run(50)
    assert relay.marks("SFO") == {REMOTE: 1}
    site.run(20)
    assert all(member.marks("SFO") == {} for member in site.members)
    relay.streams.site_view(site.now, "SFO", [REMOTE])
    started(site, 7)
    assert relay.bridged(remote(7))
    assert relay.got[REMOTE] == [1, 7]


def test_early_batches_have_a_bound() -> None:
    site = Site(1, settings=StreamsSettings(early_batches=10, early_bytes=20_000))
    (relay,) = site.members
    started(site)
    assert sum(relay.bridged(remote(number, size=2_000)) for number in range(2, 10)) == 4
    assert sum(relay.bridged(remote(number)) for number in range(10, 40)) == 6
    for number in range(1, 40):
        relay.bridged(remote(number))
    assert relay.got[REMOTE] == list(range(1, 40))


def test_batches_of_strangers_have_a_bound_and_are_forgotten() -> None:
    site = Site(2, settings=StreamsSettings(most_streams=7, linger=60.0))
    relay = site.members[0]
    for stranger in range(1, 10):
        origin = type(REMOTE)(bytes([stranger]) * 16)
        relay.bridged(make_batch(origin, 5, 0, "SFO", None, [GroupMessage("news", b"")]))
    assert relay.got == {}
    assert relay.streams.early == 2
    site.run(200)
    assert relay.streams.early == 0
    assert relay.marks("SFO") == {}
    started(site)
    assert relay.bridged(remote(1))


@pytest.mark.parametrize("lost", [0, 2])
def test_who_has_not_heard_of_gaps_is_told_when_it_asks(lost: int) -> None:
    """Also of very many, each between two batches; what was not for this site is no gap for it either."""
    site = Site(3)
    relay, _, last = site.members
    started(site)
    site.cut = lambda sender, to, kind: kind is Kind.GAP and sender is relay and to == last.id
    relay.bridged(remote(1))
    for number in range(2, 2 * MOST_HOLES + 40, 2):
        relay.streams.skip(site.now, REMOTE, "SFO", number, number, lost)
        relay.bridged(remote(number + 1))
    site.run(0.05)
    assert last.got[REMOTE] == [1]
    site.cut = lambda *_: False
    site.run(0.25)  # before anything is given up
    assert last.got[REMOTE] == relay.got[REMOTE]
    assert last.gaps == relay.gaps
    assert len(last.gaps) == (MOST_HOLES + 19 if lost else 0)
    site.run(2)
    assert last.got[REMOTE] == relay.got[REMOTE]
    site.check_forgotten()


def test_a_range_that_is_skipped_is_forgotten_when_all_have_skipped_it() -> None:
    site = Site(2)
    relay = site.members[0]
    started(site)
    for number in range(1, 40, 2):
        relay.streams.skip(site.now, REMOTE, "SFO", number, number, 0)
        relay.bridged(remote(number + 1))
    site.run(2)
    for member in site.members:
        log = member.streams.log(REMOTE)
        assert log is not None
        assert not list(log.skipped(1, 100))


@pytest.mark.parametrize("known", [False, True])
def test_who_comes_to_a_site_that_is_known_here_begins_with_its_first_batch(known: bool) -> None:
    """What it published before this member heard of it is missing here, and is to be asked for, or told of."""
    site = Site(1)
    (relay,) = site.members
    other = bytes(16)
    relay.streams.site_view(site.now, "sfo", [MemberId(other), *([REMOTE] if not known else [])])
    relay.streams.site_view(site.now, "sfo", [MemberId(other), REMOTE])
    relay.streams.start(site.now, REMOTE, "sfo", 5, 4)
    log = relay.streams.log(REMOTE)
    assert log is not None
    assert log.next == (1 if known else 5)


def test_gaps_of_a_stream_are_told_in_parts() -> None:
    """One request has no member send thousands of them."""
    site = Site(3)
    relay, second, last = site.members
    started(site)
    site.cut = lambda _, to, kind: to == last.id
    count = 3_000
    for number in range(1, 2 * count, 2):
        relay.bridged(remote(number))
        relay.streams.skip(site.now, REMOTE, "SFO", number + 1, number + 1, 1)
    site.run(0.002)
    relay.sent.clear()
    last.send(site.now, relay.id, Kind.REPAIR, encode_repair(Repair(REMOTE, 1, 2 * count)))
    site.run(0.002)
    assert 100 < relay.sent[Kind.GAP] + relay.sent[Kind.BATCH] <= MEBIBYTE // PART_BYTES
    site.cut = lambda *_: False
    site.run(2)
    assert last.got[REMOTE] == second.got[REMOTE]
