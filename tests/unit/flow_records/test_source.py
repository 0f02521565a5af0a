"""The source of flow records: what it sends, when, how often, and what it keeps."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus_router.flows import source as limits
from isthmus_router.flows.messages import BEACONS, beacon, heartbeat, records_message
from isthmus_router.flows.records import LONGEST_STRING, Attr, Record, RecordType
from isthmus_router.flows.source import FlowSource
from isthmus_router.message.control import Message, Properties, decode_message, encode_message
from isthmus_router.message.types import ULong

RECORDS, SUMMARIES = "mc/sfe.abcde:0", "mc/sfe.abcde:0.flows"
ALL = (BEACONS, RECORDS, SUMMARIES)
TICK_US = int(limits.TICK_SECONDS * 1_000_000)
FLUSH = encode_message(Message(properties=Properties(subject="FLUSH")))


class Run:
    """A source, its time, and a collector that applies what it hears."""

    def __init__(self) -> None:
        self.now = 1_000_000_000_000_000
        self.source = FlowSource("abcde:0", {Attr.NAME: "0/A"})
        self.seen: dict[str, dict[int, Any]] = {}
        self.subjects: list[str] = []

    def ticks(self, count: int = 1, consumers: Collection[str] = ALL) -> list[Message]:
        """Let time pass; the messages that were sent."""
        found = []
        for _ in range(count):
            self.now += TICK_US
            for outgoing in self.source.on_tick(self.now, lambda name: name in consumers):
                assert outgoing.to in consumers
                message = decode_message(outgoing.payload)
                assert message.properties.to == outgoing.to
                found.append(message)
                self._hear(message)
        return found

    def _hear(self, message: Message) -> None:
        self.subjects.append(message.properties.subject or "")
        if message.properties.subject == "RECORD":
            assert isinstance(message.body, list)
            assert 0 < len(message.body) <= limits.RECORDS_PER_MESSAGE
            for changes in message.body:
                self.seen.setdefault(changes[Attr.IDENTITY], {}).update(changes)

    def begin(self, number: int = 0) -> Record:
        return self.source.begin(
            RecordType.CONNECTION, self.source.router, self.now, {Attr.NAME: f"c{number}"}
        )

    def summary(self, number: int = 1) -> None:
        values: dict[Attr, Any] = {Attr.SEQUENCE: number, Attr.SIZES: {3: 4, 400: 1}}
        self.source.past(RecordType.DELIVERY_SUMMARY, self.source.router, self.now - 5, self.now, values)


@pytest.fixture
def run() -> Run:
    return Run()


def test_messages_are_as_collectors_expect_them_and_legal() -> None:
    record = Record(RecordType.LINK, "abcde:1")
    record.update({Attr.NAME: "x" * 1000, Attr.LINK_COST: 7, Attr.SIZES: {1: 2}})
    for payload, subject in (
        (beacon(1, "abcde:0"), "BEACON"),
        (heartbeat(1, "abcde:0", 12), "HEARTBEAT"),
        (records_message(1, RECORDS, [record]), "RECORD"),
    ):
        message = decode_message(payload)
        assert message.header is None
        assert isinstance(message.properties.message_id, ULong)
        assert message.properties.subject == subject
    told = decode_message(beacon(1, "abcde:0")).application_properties
    assert told == {
        "v": 1,
        "sourceType": "ROUTER",
        "id": "abcde:0",
        "address": RECORDS,
        "direct": "sfe.abcde:0",
    }
    assert decode_message(records_message(1, RECORDS, [record])).body == [
        {0: 2, 1: "abcde:1", 30: "x" * LONGEST_STRING, 33: 7, 1010: {1: 2}}
    ]


def test_nothing_is_said_to_nobody(run: Run) -> None:
    run.begin()
    run.summary()
    assert run.ticks(200, consumers=()) == []
    assert [message.properties.message_id for message in run.ticks(1)] == [1, 2, 3]


def test_each_address_gets_its_own_only_while_somebody_is_there(run: Run) -> None:
    run.begin()
    run.summary()
    assert {message.properties.to for message in run.ticks(10, consumers=(RECORDS,))} == {RECORDS}
    (message,) = run.ticks(10, consumers=(SUMMARIES,))
    assert message.properties.to == SUMMARIES
    assert {changes[Attr.TYPE] for changes in message.body} == {RecordType.DELIVERY_SUMMARY}  # type: ignore[attr-defined]


def test_beacons_and_heartbeats_keep_time(run: Run) -> None:
    run.ticks(500)
    assert run.subjects.count("BEACON") == 11  # at once, then every ten seconds
    assert run.subjects.count("HEARTBEAT") == 50


def test_what_changes_often_is_told_once_a_second_with_its_changes_only(run: Run) -> None:
    record = run.begin()
    run.ticks(5)
    told = []
    for number in range(100):
        run.source.update(record, {Attr.OCTETS: number})
        told += [m for m in run.ticks(1) if m.properties.subject == "RECORD"]
    assert 20 <= len(told) <= 21
    assert all(m.body[0].keys() == {Attr.TYPE, Attr.IDENTITY, Attr.OCTETS} for m in told)  # type: ignore[index]
    run.ticks(5)
    assert run.seen[record.identity][Attr.OCTETS] == 99
    run.source.update(record, {Attr.OCTETS: 99, Attr.USER: None})
    assert all(m.properties.subject != "RECORD" for m in run.ticks(10))


def test_many_records_are_paced_and_none_is_forgotten(run: Run) -> None:
    records = [run.begin(number) for number in range(3000)]
    first = [m for m in run.ticks(1) if m.properties.subject == "RECORD"]
    assert len(first) == limits.MESSAGES_PER_TICK
    run.ticks(20)
    assert {record.identity for record in records} <= run.seen.keys()


def test_a_flush_tells_all_that_is_and_what_has_ended_of_late(run: Run) -> None:
    record, gone = run.begin(), run.begin()
    run.summary()
    run.source.end(gone, run.now)
    run.ticks(10)
    before, run.seen = run.seen, {}
    run.source.on_command(FLUSH)
    run.ticks(10)
    assert run.seen == before
    assert len(before) == 4
    assert record.identity in before
    assert Attr.END_TIME in before[gone.identity]


def test_a_flush_is_worked_off_in_steps_however_often_it_comes(run: Run) -> None:
    """Each record takes time, and other work of the router waits meanwhile."""
    for number in range(3000):
        run.begin(number)
    run.ticks(30)
    before, run.seen = run.seen, {}
    touched = []
    for _ in range(20):
        for _ in range(100):
            run.source.on_command(FLUSH)
        marked = sum(bool(record.changed) for record in run.source.records.values())
        assert marked <= 2 * limits.AGAIN_PER_TICK
        touched.append(len(run.seen))
        run.ticks(1)
    assert max(b - a for a, b in itertools.pairwise(touched)) <= limits.AGAIN_PER_TICK
    assert run.seen.keys() == before.keys()
    run.ticks(40)  # those who have asked meanwhile hear all once more, and then it is over
    run.seen = {}
    run.ticks(40)
    assert run.seen == {}


def test_a_flush_goes_on_where_nobody_collects_summaries(run: Run) -> None:
    for number in range(3000):
        run.summary(number)
    run.begin()
    run.ticks(10, consumers=(BEACONS, RECORDS))
    before, run.seen = run.seen, {}
    run.source.on_command(FLUSH)
    run.ticks(40, consumers=(BEACONS, RECORDS))
    assert run.seen == before


def test_records_that_wait_move_once() -> None:
    """With tens of thousands of them, to move all in each tick would take long."""
    channel = limits.Channel(RECORDS)
    records = [Record(RecordType.CONNECTION, f"{number}") for number in range(5000)]
    for record in records:
        channel.put(record, 0)
    moved = 0
    for tick in range(1, 40):
        waiting = {record: record.slot for record in records if record.slot is not None}
        taken = [record for batch in channel.take(tick) for record in batch]
        moved += sum(record.slot not in (None, slot) for record, slot in waiting.items())
        assert taken == records[: len(taken)]
        del records[: len(taken)]
    assert not records
    assert moved <= 5000


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\x00Ss\xc0", b"x" * 10_000, FLUSH[:-2]])
def test_a_command_that_is_none_is_ignored(run: Run, payload: bytes) -> None:
    run.begin()
    run.ticks(10)
    run.source.on_command(payload)
    assert all(m.properties.subject != "RECORD" for m in run.ticks(10))


def test_what_has_ended_is_kept_for_a_while_and_no_longer(run: Run) -> None:
    run.source.end(run.begin(), run.now)
    run.ticks(limits.ENDED_US // TICK_US - 1)
    assert len(run.source.ended) == 1
    run.ticks(2)
    assert not run.source.ended
    assert run.source.lost == 0


@pytest.mark.parametrize(
    ("collected", "most"), [(True, limits.ENDED_RECORDS), (False, limits.ENDED_UNCOLLECTED)]
)
def test_what_ends_while_nobody_listens_is_bounded_and_counted(run: Run, collected: bool, most: int) -> None:
    run.ticks(1, consumers=ALL if collected else ())
    for number in range(most + 100):
        run.summary(number)
    assert len(run.source.ended) == most
    assert run.source.lost == 100
    run.ticks(100)
    assert run.seen["abcde:0"][Attr.RECORDS_LOST] == 100
    told = [seen[Attr.SEQUENCE] for seen in run.seen.values() if Attr.SEQUENCE in seen]
    assert sorted(told) == list(range(100, most + 100))


def test_less_is_kept_once_the_collectors_have_been_gone_for_long(run: Run) -> None:
    run.ticks(1)
    for number in range(limits.ENDED_RECORDS):
        run.summary(number)
    run.now += limits.ENDED_US - 10 * TICK_US
    run.ticks(5, consumers=())
    assert len(run.source.ended) == limits.ENDED_RECORDS
    run.summary()
    run.ticks(10, consumers=())
    assert len(run.source.ended) == 1


def test_a_storm_of_events_is_cut_down_and_counted(run: Run) -> None:
    for _ in range(limits.EVENTS_PER_SECOND + 30):
        run.source.event(RecordType.TOPOLOGY_EVENT, run.now, {Attr.EVENT: "neighbour-up"})
    run.ticks(10)
    assert run.source.lost == 30
    run.source.event(RecordType.TOPOLOGY_EVENT, run.now, {Attr.EVENT: "neighbour-up"})
    assert run.source.lost == 30


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(0, 9)),
        st.tuples(st.just("update"), st.integers(0, 9)),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("summary"), st.integers(0, 9)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("ticks"), st.integers(1, 12)),
        st.tuples(st.just("deaf"), st.integers(1, 12)),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(STEPS)
def test_who_listens_to_the_end_knows_everything(steps: list[tuple[str, int]]) -> None:
    run = Run()
    records: list[Record] = []
    for step, number in steps:
        at = records[number % len(records)] if records else None
        if step == "begin":
            records.append(run.begin(number))
        elif step == "update" and at is not None and not at.ended:
            run.source.update(at, {Attr.OCTETS: number})
        elif step == "end" and at is not None:
            run.source.end(at, run.now)
        elif step == "summary":
            run.summary(number)
        elif step == "flush":
            run.source.on_command(FLUSH)
        elif step in {"ticks", "deaf"}:
            run.ticks(number, consumers=ALL if step == "ticks" else ())
    run.ticks(15)
    everything = {**run.source.records, **{record.identity: record for record in run.source.ended}}
    assert run.seen == {
        identity: {Attr.TYPE: record.type, Attr.IDENTITY: identity, **record.attributes}
        for identity, record in everything.items()
    }
