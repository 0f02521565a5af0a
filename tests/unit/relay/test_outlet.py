"""What goes to one site, frame by frame: from where on, what is repeated, and what is told to be lost."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import cast

import pytest

from isthmus_router.groups.batch import GroupMessage, decode_batch, make_batch
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.streams.log import Log
from isthmus_router.relay.buffer import Buffer
from isthmus_router.relay.messages import BridgeKind, Position, Range, kind_of, unpack, unpack_numbers
from isthmus_router.relay.outlet import (
    GIVE_UP_AFTER,
    MOST_BACKLOG,
    MOST_REPEATED,
    REPEAT_BYTES,
    REPEAT_INTERVAL,
    REPEAT_LEAST,
    REPEAT_PAUSE,
    TURN_BYTES,
    Outlet,
)
from isthmus_router.relay.port import SiteStreams
from isthmus_router.relay.settings import RelaySettings, RemoteSite, Window

A, B = MemberId(b"a" * 16), MemberId(b"b" * 16)


class Rig:
    """Streams of two origins, whose batches have two messages each, and an outlet to sfo."""

    def __init__(self, *, most: int = 1_000, window: int = 1_000_000) -> None:
        self.logs = {A: Log("nyc", 1, 0), B: Log("nyc", 1, 0)}
        self.ready = True
        self.asked: list[int] = []
        self.sent: list[tuple[object, ...]] = []
        self.backlog = 0
        sites = {"sfo": RemoteSite()}
        self.buffer = Buffer(RelaySettings("g", "nyc", "ns/nyc", sites, buffer_messages=most))
        self.outlet = Outlet("sfo", cast(SiteStreams, self), self.buffer)
        self.outlet.window = Window(window)

    def log(self, origin: MemberId) -> Log:
        return self.logs[origin]

    def backfill(self, now: float, origin: MemberId, number: int) -> None:
        self.asked.append(number)

    def publish(self, count: int, origin: MemberId = A, *, size: int = 1, to: str = "sfo") -> None:
        log = self.logs[origin]
        for _ in range(count):
            messages = [GroupMessage("a", bytes(size))] * 2
            batch = make_batch(origin, log.next, log.messages, "nyc", (to,), messages)
            log.append(batch)
            self.buffer.take(0.0, batch)
            log.trim(self.buffer.relayed(origin))

    def acknowledge(self, number: int, now: float = 0.0) -> None:
        self.buffer.acknowledge("sfo", A, number)
        self.logs[A].trim(number)
        self.outlet.acknowledge(now, A, number)

    def begin(self, *known: Position, origins: tuple[MemberId, ...] = (A,)) -> None:
        self.outlet.begin(0.0, self.send, lambda: self.backlog, known, origins)

    def drained(self) -> bool:
        return self.outlet.drained

    def send(self, frame: bytes) -> None:
        kind = kind_of(frame)
        if kind is BridgeKind.BATCH:
            batch = decode_batch(frame, 1)
            self.sent.append((batch.number,) if batch.origin == A else (batch.origin, batch.number))
        elif kind is BridgeKind.PING:
            self.sent.append((kind, *(number for _, number in unpack_numbers(frame))))
        else:
            self.sent.append((kind, *unpack(frame, 1)[1:]))

    def taken(self) -> list[tuple[object, ...]]:
        """What has been sent since this was asked."""
        sent, self.sent = self.sent, []
        return sent

    def repeated(self) -> list[tuple[object, ...]]:
        """What is sent until nothing is to be repeated any more."""
        now = 0.0
        while (now := max(now, self.outlet.deadline)) < REPEAT_INTERVAL:
            self.outlet.on_time(now)
        return self.taken()


def test_a_relay_that_lags_behind_its_site_is_sent_what_the_site_lacks() -> None:
    """The rest its own members give it: to be told that it is lost would be false."""
    rig = Rig()
    rig.publish(7)
    rig.acknowledge(5)
    rig.begin(Position(A, 3, 4))
    assert rig.taken() == [(6,), (7,)]
    rig.publish(1)
    rig.outlet.more(0.0, A)
    assert (rig.outlet.sent_messages, rig.outlet.replayed) == (6, 4)


def test_of_what_was_dropped_it_is_told_no_more_than_that() -> None:
    rig = Rig(most=6)
    rig.buffer.contacted.add("sfo")
    rig.publish(5)
    rig.acknowledge(4)
    rig.publish(5)
    rig.begin(Position(A, 3, 4))
    assert rig.taken() == [(BridgeKind.GAP, 5, 7, 6), (8,), (9,), (10,)]
    assert rig.outlet.gaps == 6


def test_what_it_lacks_though_its_site_had_it_is_given_up_after_a_while() -> None:
    rig = Rig()
    rig.publish(7)
    rig.acknowledge(5)
    rig.begin(Position(A, 3, 4))
    rig.taken()
    missing = Range(A, 3, 7, 4)
    rig.outlet.repeat(1.0, missing)
    rig.outlet.repeat(1.0 + GIVE_UP_AFTER / 2, missing)
    assert rig.taken() == []
    rig.outlet.repeat(1.0 + GIVE_UP_AFTER, missing)
    assert rig.taken() == [(BridgeKind.GAP, 3, 5, 6), (6,), (7,)]
    rig.outlet.repeat(2.0 + GIVE_UP_AFTER, Range(A, 5, 7, 8))
    assert rig.taken() == [], "it has got on since"


def test_what_is_here_is_repeated_though_the_site_had_it() -> None:
    rig = Rig()
    rig.publish(3)
    rig.begin(Position(A, 1, 0))
    rig.buffer.acknowledge("sfo", A, 2)
    rig.taken()
    rig.outlet.repeat(0.0, Range(A, 1, 3, 0))
    assert rig.taken() == [(1,), (2,), (3,)]


def test_what_was_not_for_the_site_is_skipped_and_a_stream_begins_once() -> None:
    rig = Rig()
    rig.publish(1, to="lon")
    rig.publish(1)
    rig.publish(1, to="lon")
    rig.publish(1)
    rig.begin()
    assert rig.taken() == [(BridgeKind.GAP, 1, 1, 0), (2,), (BridgeKind.GAP, 3, 3, 0), (4,)]
    rig.outlet.repeat(0.0, Range(A, 1, 4, 0))
    assert rig.taken() == [(BridgeKind.GAP, 1, 1, 0), (2,), (BridgeKind.GAP, 3, 3, 0), (4,)]


def test_where_a_stream_begins_is_told_before_anything_of_it_and_again() -> None:
    rig = Rig()
    rig.publish(1, B)
    rig.begin(origins=(A, B))
    start = (BridgeKind.START, 1, 0)
    assert rig.taken() == [start, start, (B, 1)]
    rig.publish(1)
    rig.outlet.more(0.0, A)
    assert rig.taken() == [(1,)]
    rig.outlet.repeat(0.0, Range(A, 0, 0, 0))
    assert rig.taken() == [start]


def test_a_stream_that_a_site_does_not_know_goes_on_behind_what_it_has_acknowledged() -> None:
    """Its former members had that."""
    rig = Rig()
    rig.publish(7)
    rig.acknowledge(5)
    rig.begin()
    assert rig.taken() == [(BridgeKind.START, 6, 10), (6,), (7,)]


@pytest.mark.parametrize("contacted", [False, True])
def test_what_is_gone_is_missed_by_sites_that_were_there_before(contacted: bool) -> None:
    rig = Rig()
    if contacted:
        rig.buffer.contacted.add("sfo")
    rig.publish(9)
    rig.logs[A].trim(7)
    rig.begin()
    first = (BridgeKind.GAP, 1, 7, 14) if contacted else (BridgeKind.START, 8, 14)
    assert rig.taken() == [first, (8,), (9,)]


def test_a_relay_that_is_fed_nothing_is_told_where_streams_go_on_if_nothing_of_them_is_gone() -> None:
    rig = Rig()
    rig.publish(7)
    rig.acknowledge(5)
    rig.outlet.tell_starts(rig.send, [A, B])
    assert rig.taken() == [(BridgeKind.START, 6, 10), (BridgeKind.START, 1, 0)]
    rig.logs[A].trim(6)
    rig.outlet.tell_starts(rig.send, [A])
    assert rig.taken() == []


def test_what_another_relay_of_the_own_site_has_sent_is_not_sent_again() -> None:
    rig = Rig(window=1)
    rig.begin(Position(A, 1, 0))
    rig.publish(9)
    rig.outlet.more(0.0, A)
    assert rig.taken() == [(1,)]
    rig.acknowledge(7)
    assert rig.taken() == [(8,)]


def test_nor_is_it_counted_as_lost() -> None:
    rig = Rig(window=1, most=4)
    rig.begin(Position(A, 1, 0))
    rig.publish(1)
    rig.outlet.more(0.0, A)
    rig.publish(9)
    rig.outlet.more(0.0, A)
    rig.acknowledge(7)
    assert rig.taken() == [(1,), (BridgeKind.GAP, 8, 8, 2), (9,)]


def test_what_others_have_is_waited_for() -> None:
    rig = Rig()
    rig.publish(4)
    (first, second, *_) = rig.logs[A].batches(1)
    rig.logs[A].trim(2)
    rig.ready = False
    rig.begin(Position(A, 1, 0))
    rig.outlet.more(0.0, A)
    assert (rig.asked, rig.taken()) == ([1], [])
    rig.logs[A].insert(first)
    rig.logs[A].insert(second)
    rig.ready = True
    rig.outlet.on_time(REPEAT_INTERVAL)
    assert rig.taken() == [(1,), (2,), (3,), (4,)]
    rig.acknowledge(4)
    rig.outlet.on_time(2 * REPEAT_INTERVAL)
    assert rig.outlet.deadline == inf
    rig.publish(2)
    rig.logs[A].trim(5)
    rig.outlet.more(1.0, A)
    assert (rig.asked, rig.taken()) == ([1, 5], [(BridgeKind.GAP, 5, 5, 2), (6,)])


@pytest.mark.parametrize("stop", [Outlet.drain, Outlet.end, lambda outlet: outlet.keep(set())])
def test_it_is_waited_for_no_longer_than_it_is_to_be_sent(stop: Callable[[Outlet], None]) -> None:
    rig = Rig()
    rig.publish(4)
    rig.logs[A].trim(2)
    rig.ready = False
    rig.begin(Position(A, 1, 0))
    stop(rig.outlet)
    rig.ready = True
    if not rig.outlet.open:
        rig.begin(origins=())
    rig.outlet.on_time(REPEAT_INTERVAL)
    assert rig.taken() == []


def test_what_others_have_not_either_is_lost() -> None:
    rig = Rig()
    rig.publish(6)
    (_, second, *_) = rig.logs[A].batches(1)
    rig.logs[A].trim(4)
    rig.logs[A].insert(second)
    rig.begin(Position(A, 1, 0))
    assert rig.taken() == [(BridgeKind.GAP, 1, 1, 2), (2,), (BridgeKind.GAP, 3, 4, 4), (5,), (6,)]


def test_what_was_dropped_after_it_was_sent_is_lost_if_it_is_asked_for() -> None:
    rig = Rig(most=6)
    rig.publish(3)
    rig.begin(Position(A, 1, 0))
    rig.publish(1)
    rig.taken()
    rig.outlet.repeat(0.0, Range(A, 1, 3, 0))
    assert rig.taken() == [(BridgeKind.GAP, 1, 1, 2), (2,), (3,)]
    rig.publish(3)
    rig.outlet.repeat(0.0, Range(A, 1, 3, 0))
    assert rig.taken() == [(BridgeKind.GAP, 1, 3, 6)]


def test_what_is_repeated_for_one_request_has_a_bound() -> None:
    rig = Rig(most=10_000)
    rig.publish(MOST_REPEATED + 9)
    rig.begin(Position(A, 1, 0))
    rig.taken()
    rig.outlet.repeat(0.0, Range(A, 1, MOST_REPEATED + 9, 0))
    assert len(rig.taken()) == REPEAT_BYTES // REPEAT_LEAST
    rig.outlet.repeat(REPEAT_PAUSE, Range(A, 1, MOST_REPEATED + 9, 0))
    assert rig.repeated() == [(number,) for number in range(1, MOST_REPEATED + 1)]


def large(count: int, *origins: MemberId) -> Rig:
    """A session by which so many batches of each origin were sent; four of them are more than is repeated at once."""
    rig = Rig(window=1 << 30)
    for origin in origins:
        rig.publish(count, origin, size=REPEAT_BYTES // 7)
    rig.begin(*(Position(origin, 1, 0) for origin in origins), origins=origins)
    assert len(rig.taken()) == count * len(origins)
    return rig


def test_large_batches_are_repeated_a_few_at_a_time_and_all_of_them() -> None:
    rig = large(40, A)
    rig.outlet.repeat(0.0, Range(A, 1, 40, 0))
    assert rig.taken() == [(1,), (2,), (3,), (4,)]
    rig.outlet.on_time(REPEAT_PAUSE)
    assert rig.taken() == [], "it was a little more than that"
    assert REPEAT_PAUSE < rig.outlet.deadline < 2 * REPEAT_PAUSE
    rig.outlet.on_time(rig.outlet.deadline)
    assert rig.taken() == [(5,), (6,), (7,), (8,)]
    assert rig.repeated() == [(number,) for number in range(9, 41)]


def test_requests_that_come_at_once_have_no_more_repeated() -> None:
    rig = large(40, A)
    for number in (1, 2, 5) * 100:
        rig.outlet.repeat(0.0, Range(A, number, 40, 0))
    assert rig.taken() == [(1,), (2,), (3,), (4,)]
    assert rig.repeated() == [(number,) for number in range(5, 41)], "what it lacked last"
    rig.outlet.acknowledge(1.0, A, 40)
    assert rig.outlet.deadline == inf


def test_what_is_repeated_of_several_origins_has_one_bound() -> None:
    rig = large(6, A, B)
    for origin in (A, B):
        rig.outlet.repeat(0.0, Range(origin, 1, 6, 0))
    assert rig.taken() == [(1,), (2,), (3,), (4,)]
    rig.outlet.on_time(rig.outlet.deadline)
    assert rig.taken() == [(5,), (6,), (B, 1), (B, 2)]
    assert rig.repeated() == [(B, 3), (B, 4), (B, 5), (B, 6)]


def test_nothing_is_repeated_while_much_waits_at_the_session() -> None:
    rig = large(8, A)
    rig.backlog = MOST_BACKLOG
    rig.outlet.repeat(0.0, Range(A, 1, 8, 0))
    rig.outlet.on_time(REPEAT_PAUSE)
    assert rig.taken() == []
    rig.backlog -= 1
    assert rig.repeated() == [(number,) for number in range(1, 9)]


def test_batches_that_are_not_for_the_site_are_skipped_a_few_at_a_time() -> None:
    rig = Rig(most=10_000)
    rig.publish(1)
    rig.publish(600, to="lon")
    rig.publish(1)
    rig.begin(Position(A, 1, 0))
    rig.taken()
    rig.outlet.repeat(0.0, Range(A, 1, 602, 0))
    first = rig.taken()
    assert first == [(1,), (BridgeKind.GAP, 2, REPEAT_BYTES // REPEAT_LEAST, 0)]
    *gaps, last = rig.repeated()
    assert [gap[1] for gap in gaps] == [257, 513]
    assert gaps[-1] == (BridgeKind.GAP, 513, 601, 0)
    assert last == (602,)


@pytest.mark.parametrize("stop", [Outlet.end, lambda outlet: outlet.keep(set())])
def test_repeating_ends_with_the_session_or_with_the_task(stop: Callable[[Outlet], None]) -> None:
    rig = large(8, A)
    rig.outlet.repeat(0.0, Range(A, 1, 8, 0))
    rig.taken()
    stop(rig.outlet)
    rig.outlet.on_time(2 * REPEAT_PAUSE)
    assert rig.taken() == []


def test_a_batch_that_is_longer_is_repeated_and_a_longer_pause_follows() -> None:
    rig = Rig(window=1 << 30, most=10)
    rig.publish(2, size=9 * REPEAT_BYTES // 10)
    rig.begin(Position(A, 1, 0))
    rig.taken()
    rig.outlet.repeat(0.0, Range(A, 1, 2, 0))
    assert rig.taken() == [(1,)]
    assert 1.8 * REPEAT_PAUSE < rig.outlet.deadline < 1.9 * REPEAT_PAUSE
    assert rig.repeated() == [(2,)]


def test_how_far_it_has_sent_is_told_until_all_is_acknowledged() -> None:
    rig = Rig()
    rig.publish(3)
    rig.begin(Position(A, 1, 0))
    rig.taken()
    for number in (1, 2):
        rig.acknowledge(number)
        rig.outlet.on_time(REPEAT_INTERVAL * number)
        assert rig.taken() == [(BridgeKind.PING, 3)]
        assert not rig.drained()
    rig.acknowledge(3)
    rig.outlet.on_time(1.0)
    assert rig.taken() == []
    assert rig.drained()


def test_what_a_site_has_and_has_not_acknowledged_is_not_sent_again_but_asked_for() -> None:
    rig = Rig()
    rig.publish(3)
    rig.begin(Position(A, 4, 6))
    assert not rig.drained()
    rig.outlet.on_time(REPEAT_INTERVAL)
    assert rig.taken() == [(BridgeKind.PING, 3)]
    rig.acknowledge(3)
    assert rig.drained()


def test_who_drains_sends_nothing_more() -> None:
    rig = Rig(window=1)
    rig.publish(2)
    rig.begin(Position(A, 1, 0))
    rig.outlet.drain()
    rig.outlet.more(0.0, A)
    assert not rig.drained()
    rig.acknowledge(1)
    assert rig.drained()
    assert rig.taken() == [(1,)]


def test_origins_take_turns() -> None:
    rig = Rig()
    for origin in (A, B):
        rig.publish(3, origin, size=TURN_BYTES // 2)
    rig.begin(Position(A, 1, 0), Position(B, 1, 0), origins=(A, B))
    assert rig.taken() == [(1,), (B, 1), (2,), (B, 2), (3,), (B, 3)]


def test_what_another_relay_sends_from_now_on_takes_no_room() -> None:
    rig = Rig(window=1)
    rig.publish(2)
    rig.publish(2, B)
    rig.begin(Position(A, 1, 0), Position(B, 1, 0), origins=(A, B))
    assert rig.taken() == [(1,)]
    rig.outlet.keep({B})
    rig.outlet.more(0.0, B)
    assert rig.taken() == [(B, 1)]
    rig.outlet.on_time(REPEAT_INTERVAL)
    assert rig.taken() == [(BridgeKind.PING, 1)]
    for number in (1, 2):
        rig.outlet.acknowledge(0.0, B, number)
    assert rig.taken() == [(B, 2)]
    rig.outlet.keep({B})
    rig.publish(1, B)
    rig.outlet.acknowledge(0.0, B, 2)
    rig.outlet.more(0.0, B)
    assert rig.taken() == [(B, 3)], "it goes on where it was"


def test_a_session_begins_with_what_the_site_says_then() -> None:
    rig = Rig(window=1)
    rig.publish(3)
    rig.begin(Position(A, 1, 0))
    rig.outlet.drain()
    rig.taken()
    rig.begin(Position(A, 4, 6))
    rig.publish(1)
    rig.outlet.more(0.0, A)
    assert rig.taken() == [(4,)]


def test_without_a_session_nothing_is_sent_or_waited_for() -> None:
    rig = Rig()
    rig.publish(3)
    rig.begin(Position(A, 1, 0))
    rig.taken()
    rig.outlet.end()
    rig.publish(1)
    rig.outlet.more(0.0, A)
    rig.outlet.on_time(1.0)
    assert not rig.outlet.open
    assert rig.outlet.deadline == inf
    assert rig.drained()
    assert rig.taken() == []
