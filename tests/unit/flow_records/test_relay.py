"""What flow records tell of relay sites: membership, intervals of other sites, events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from isthmus_router.flows.records import Attr, RecordType
from isthmus_router.flows.relay import MemberFigures, RelayRecorder, RemoteFigures
from isthmus_router.flows.source import FlowSource

PARIS = RemoteFigures("paris", "up", 10, 2, 30, 1, 0, 0, 0.25, 4, 400, 0.5, 0.02)
MEMBER = MemberFigures("trades", "london", "a", 2, coordinator=True, relays=True, remotes=[PARIS])


class Told:
    """A recorder and what it has said."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.source = FlowSource("abcde:0", {Attr.START_TIME: self.now})
        self.recorder = RelayRecorder(self.source, lambda: self.now)

    def of(self, record_type: RecordType) -> list[dict[Attr, Any]]:
        records = [*self.source.records.values(), *self.source.ended]
        return [record.attributes for record in records if record.type is record_type]

    def interval(self, figures: MemberFigures) -> None:
        self.now += 1_000_000
        self.recorder.interval_ends(figures)


def joined() -> Told:
    told = Told()
    told.recorder.joins("trades", "london", "a")
    return told


def test_summaries_say_what_happened_in_the_interval_and_how_it_is() -> None:
    told = joined()
    told.interval(MEMBER)
    later = replace(PARIS, sent=15, received=37, dropped=3, gaps=2, held_back_seconds=1.0, lag_seconds=1.5)
    told.interval(replace(MEMBER, remotes=[later]))
    first, second = told.of(RecordType.RELAY_SUMMARY)
    (member,) = told.of(RecordType.RELAY_MEMBER)
    assert (first[Attr.SENT], first[Attr.RECEIVED], first[Attr.HELD_BACK]) == (10, 30, 250_000)
    assert first[Attr.START_TIME] == member[Attr.START_TIME]
    assert {attribute: second[attribute] for attribute in later.counts} == {
        Attr.SENT: 5,
        Attr.REPLAYED: 0,
        Attr.RECEIVED: 7,
        Attr.DUPLICATES: 0,
        Attr.DROPPED: 3,
        Attr.GAPS: 2,
        Attr.HELD_BACK: 750_000,
    }
    assert (second[Attr.LAG_MESSAGES], second[Attr.LAG_BYTES], second[Attr.LAG]) == (4, 400, 1_500_000)
    assert (second[Attr.ROUND_TRIP], second[Attr.OPER_STATUS], second[Attr.SEQUENCE]) == (20_000, "up", 2)
    assert (second[Attr.RELAY_GROUP], second[Attr.RELAY_SITE]) == ("trades", "london")
    assert second[Attr.SUBJECT] == "paris"
    assert second[Attr.START_TIME] == first[Attr.END_TIME]


def test_who_does_not_relay_tells_only_what_is_new_to_it() -> None:
    told = joined()
    idle = replace(
        MEMBER, relays=False, remotes=[replace(PARIS, sent=0, replayed=0, received=0, duplicates=0)]
    )
    told.interval(idle)
    told.interval(idle)
    assert [each[Attr.OPER_STATUS] for each in told.of(RecordType.RELAY_SUMMARY)] == ["up"]
    down = replace(idle.remotes[0], state="unreachable", round_trip_seconds=None)
    told.interval(replace(idle, remotes=[down]))
    assert told.of(RecordType.RELAY_SUMMARY)[-1][Attr.OPER_STATUS] == "unreachable"
    assert Attr.ROUND_TRIP not in told.of(RecordType.RELAY_SUMMARY)[-1]
    told.interval(replace(idle, remotes=[replace(down, dropped=6)]))
    assert told.of(RecordType.RELAY_SUMMARY)[-1][Attr.DROPPED] == 6
    told.interval(replace(idle, remotes=[replace(down, dropped=6)]))
    assert len(told.of(RecordType.RELAY_SUMMARY)) == 3


def test_a_site_that_is_configured_again_is_counted_anew() -> None:
    told = joined()
    told.interval(MEMBER)
    told.interval(replace(MEMBER, remotes=[]))
    told.interval(replace(MEMBER, remotes=[replace(PARIS, sent=1)]))
    assert told.of(RecordType.RELAY_SUMMARY)[-1][Attr.SENT] == 1


def test_the_membership_and_who_relays() -> None:
    told = joined()
    told.recorder.look(replace(MEMBER, relays=False, coordinator=False))
    told.recorder.look(MEMBER)
    (member,) = told.of(RecordType.RELAY_MEMBER)
    assert (member[Attr.NAME], member[Attr.LINK_COUNT], member[Attr.COORDINATOR]) == ("a", 2, 1)
    told.recorder.look(replace(MEMBER, relays=False))
    assert [event[Attr.EVENT] for event in told.of(RecordType.RELAY_EVENT)] == [
        "relaying-begins",
        "relaying-ends",
    ]
    told.recorder.leaves()
    assert told.of(RecordType.RELAY_MEMBER)[0][Attr.END_TIME] == told.now
    told.recorder.event("site-up", "paris")
    told.interval(MEMBER)
    assert len(told.of(RecordType.RELAY_EVENT)) == 2, "who is no member has nothing to tell"
    assert told.of(RecordType.RELAY_SUMMARY) == []


def test_joining_again_is_another_membership() -> None:
    told = joined()
    told.interval(MEMBER)
    told.recorder.joins("trades", "leeds", "a")
    told.interval(replace(MEMBER, site="leeds"))
    first, second = sorted(told.of(RecordType.RELAY_MEMBER), key=lambda record: record[Attr.START_TIME])
    assert (Attr.END_TIME in first, Attr.END_TIME in second) == (True, False)
    assert [each[Attr.SENT] for each in told.of(RecordType.RELAY_SUMMARY)] == [10, 10]


def test_events_say_where_and_how_many() -> None:
    told = joined()
    told.recorder.event("messages-dropped", "paris", 7)
    told.recorder.event("session-ended", "paris", reason="reset")
    first, second = told.of(RecordType.RELAY_EVENT)
    assert (first[Attr.SUBJECT], first[Attr.LINK_COUNT], first[Attr.RELAY_SITE]) == ("paris", 7, "london")
    assert (second[Attr.REASON], Attr.LINK_COUNT in second) == ("reset", False)
