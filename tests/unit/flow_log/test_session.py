"""Sources are found, asked, lost, found again and forgotten; silence counts only while something could be heard."""

from __future__ import annotations

import itertools

import pytest
from tests.unit.flow_log.network import START, Network, at_once

from isthmus_flowlog.collector import session as does
from isthmus_flowlog.collector.session import MOST_SOURCES, MOST_UNPROVEN, REATTACH_US, SECOND, Session
from isthmus_flowlog.collector.wire import Beacon

RECORDS, SUMMARIES, DIRECT = "mc/sfe.abcde:0", "mc/sfe.abcde:0.flows", "sfe.abcde:0"
BEACON = Beacon(1, "abcde:0")


def started() -> Session:
    session = Session()
    assert session.connected(START) == [does.Receive("mc/sfe.all")]
    assert session.beacon(BEACON, START) == [does.Receive(RECORDS), does.Receive(SUMMARIES)]
    assert session.tick(START) == [does.Flush("abcde:0", DIRECT)]
    session.flushed("abcde:0", True)
    return session


def ticks(session: Session, begin: float, end: float) -> list[tuple[float, does.Action]]:
    """What is done between two times, in seconds from the start, at one tick a second."""
    found = []
    at = begin
    while at <= end:
        found += [(at, action) for action in session.tick(START + round(at * SECOND))]
        at += 1
    return found


def hear(session: Session, number: int, at: float) -> None:
    source = session.source_of(RECORDS)
    assert source is not None
    session.heard(source, number, START + round(at * SECOND))


def test_a_source_is_asked_once_and_another_beacon_changes_nothing() -> None:
    session = started()
    assert session.beacon(Beacon(2, "abcde:0"), START + SECOND) == []
    for at in range(1, 60):
        hear(session, at + 2, at)
        assert ticks(session, at, at) == []


def test_a_gap_makes_for_a_flush_but_not_too_often() -> None:
    session = started()
    numbers = [number * 3 for number in range(1, 200)]
    flushes = []
    for at, number in enumerate(numbers, 1):
        hear(session, number, at)
        flushes += [when for when, action in ticks(session, at, at) if isinstance(action, does.Flush)]
        session.flushed("abcde:0", True)
    pauses = [after - before for before, after in itertools.pairwise(flushes)]
    assert flushes[0] >= 4
    assert pauses[0] >= 10
    assert pauses[-1] == 60
    assert session.missed >= 2 * 190


def test_a_flush_that_is_not_accepted_is_sent_again() -> None:
    session = started()
    session.flushed("abcde:0", False)
    hear(session, 2, 5)
    found = ticks(session, 1, 11)
    assert [action for _, action in found] == [does.Flush("abcde:0", DIRECT)]
    assert found[0][0] >= 10


def test_silence_is_a_loss_then_oblivion() -> None:
    session = started()
    hear(session, 2, 1)
    found = ticks(session, 1, 80)
    assert [type(action) for _, action in found] == [does.Lost, does.Release, does.Forgotten]
    assert [at for at, _ in found] == [11, 71, 71]
    assert session.source_of(RECORDS) is None
    assert len(session.beacon(BEACON, START + 90 * SECOND)) == 2


def test_a_lost_source_may_be_heard_again() -> None:
    session = started()
    assert [action for _, action in ticks(session, 1, 12)] == [does.Lost("abcde:0")]
    hear(session, 2, 13)
    assert [action for _, action in ticks(session, 13, 22)] == []
    assert [action for _, action in ticks(session, 23, 24)] == [does.Lost("abcde:0")]


@pytest.mark.parametrize("why", ["connection", "credit", "stall"])
def test_while_nothing_can_be_heard_nobody_is_lost(why: str) -> None:
    session = started()
    hear(session, 2, 1)
    if why == "connection":
        session.disconnected()
        assert ticks(session, 1, 100) == []
        assert session.connected(START + 100 * SECOND) == [
            does.Receive("mc/sfe.all"),
            does.Receive(RECORDS),
            does.Receive(SUMMARIES),
        ]
        assert [action for _, action in ticks(session, 100, 100)] == [does.Flush("abcde:0", DIRECT)]
    elif why == "credit":
        session.listening(False)
        assert ticks(session, 1, 100) == []
        session.listening(True)
    else:
        ticks(session, 1, 3)
        assert ticks(session, 100, 100) == []
    found = ticks(session, 101, 112)
    assert [type(action) for _, action in found] == [does.Lost]
    assert found[0][0] >= 109


def test_a_link_that_the_router_ends_is_attached_again() -> None:
    session = started()
    session.detached(SUMMARIES, START + SECOND)
    session.detached("mc/sfe.all", START + SECOND)
    hear(session, 2, 5)
    found = ticks(session, 1, 14)
    assert [(at, action) for at, action in found if isinstance(action, does.Receive)] == [
        (1 + REATTACH_US / SECOND, does.Receive("mc/sfe.all")),
        (1 + REATTACH_US / SECOND, does.Receive(SUMMARIES)),
    ]
    assert does.Flush("abcde:0", DIRECT) in [action for _, action in found]


def test_unwanted_sources_are_released_and_forgotten_when_their_beacons_end() -> None:
    session = started()
    assert session.unwanted("abcde:0") == [does.Release((RECORDS, SUMMARIES), DIRECT)]
    assert session.unwanted("abcde:0") == []
    for at in range(10, 100, 10):
        assert session.beacon(BEACON, START + at * SECOND) == []
        assert ticks(session, at, at + 9) == []
    assert [type(action) for _, action in ticks(session, 100, 160)] == [does.Forgotten]
    session.connected(START + 161 * SECOND)
    assert session.sources == {}


def test_the_number_of_sources_is_bounded() -> None:
    session = started()
    session.proven("abcde:0")
    for number in range(MOST_SOURCES + 10):
        session.beacon(Beacon(1, f"s{number}:0"), START)
        session.proven(f"s{number}:0")
    assert len(session.sources) == MOST_SOURCES
    assert session.beacons_ignored == 11
    assert "abcde:0" in session.sources


def test_invented_sources_displace_one_another_only() -> None:
    session = started()
    session.proven("abcde:0")
    for number in range(3 * MOST_UNPROVEN):
        actions = session.beacon(Beacon(1, f"s{number}:0"), START)
        session.beacon(Beacon(2, f"s{number}:0"), START + SECOND)
        session.heard(session.sources[f"s{number}:0"], 3, START + number)
        released = [action for action in actions if isinstance(action, does.Release)]
        assert len(released) == (number >= MOST_UNPROVEN)
    assert len(session.sources) == MOST_UNPROVEN + 1
    assert session.beacons_ignored == 2 * MOST_UNPROVEN
    assert len(session.beacon(Beacon(1, "fghij:0"), START)) > 2, "another honest source finds a place"
    session.proven("fghij:0")
    for number in range(MOST_UNPROVEN):
        session.beacon(Beacon(1, f"more{number}:0"), START)
    assert {"abcde:0", "fghij:0"} <= session.sources.keys()


def test_a_real_source_is_heard_without_gaps() -> None:
    network = Network(at_once)
    network.seconds(30)
    assert network.flushes == 1
    assert network.session.missed == 0
    assert [row["type"] for row in network.rows["records"]] == ["ROUTER"]
