"""Documents of pods: what is read, what is refused, and what gets no further."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus_operator.flow_reports import parse_collector, parse_progress
from isthmus_operator.report import parse_report
from isthmus_operator.untrusted import (
    MAX_DEPTH,
    MAX_NUMBER,
    clean,
    document,
    scrubbed,
    shown,
    text,
    total,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
    lambda items: st.lists(items, max_size=4) | st.dictionaries(st.text(), items, max_size=4),
    max_leaves=20,
)
SECTIONS = ("nodes", "neighbors", "connectors", "listeners", "linkRoutes", "sslProfiles", "relay", "edge")


@given(JSON)
def test_whatever_is_well_formed_and_small_is_read_as_it_is(value: Any) -> None:
    body = json.dumps(value)
    if "NaN" in body or "Infinity" in body:
        return
    assert document(body.encode()) == json.loads(body)


@given(st.binary() | st.text(alphabet='[]{}",:\\1a ', max_size=200).map(str.encode))
def test_anything_else_is_a_value_error(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        document(body)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_depth_is_bounded(opening: str) -> None:
    ends = {"[": "]", '{"a":': "}"}
    for levels, fits in ((MAX_DEPTH, True), (MAX_DEPTH + 1, False)):
        body = (opening * levels + "1" + ends[opening] * levels).replace("[1]", "[]").encode()
        if fits:
            document(body)
        else:
            with pytest.raises(ValueError, match=f"more than {MAX_DEPTH} levels"):
                document(body)


def test_brackets_and_commas_in_texts_do_not_count() -> None:
    value = {"address": "[" * 1000 + '\\"' + "," * 300_000}
    assert document(json.dumps(value).encode()) == value


def test_the_number_of_values_is_bounded() -> None:
    with pytest.raises(ValueError, match="more than 10 values"):
        document(b"[" + b"1," * 10 + b"1]", elements=10)


def test_texts_lose_what_terminals_and_the_api_server_do_not_take() -> None:
    assert text("a\x1b[2Jb\n\ud800\u202e\0") == "a\ufffd[2Jb\ufffd\ufffd\ufffd\ufffd"
    assert text("Zürich \N{NO-BREAK SPACE}東京") == "Zürich \N{NO-BREAK SPACE}東京"
    assert clean("x" * 5000, 1024) == "x" * 1024
    assert scrubbed({"a\x1b": ["\x07"]}) == {"a\ufffd": ["\ufffd"]}


@given(st.dictionaries(st.sampled_from(SECTIONS), JSON), JSON)
def test_no_document_gets_a_report_of_unexpected_types(sections: dict[str, Any], identity: Any) -> None:
    """Whatever is not refused can be encoded, and its numbers are numbers of the schema."""
    try:
        report = parse_report({"router": {"id": identity}, **sections}, NOW)
    except ValueError:
        return
    repr(report).encode()
    assert all(len(name) <= 253 for name in (report.id, *report.nodes, *report.neighbors))


@given(JSON)
def test_collectors_and_drivers_are_not_believed_everything(answer: Any) -> None:
    for parse in (parse_collector, parse_progress):
        try:
            parse(answer, NOW)
        except ValueError:
            continue


@pytest.mark.parametrize(
    "change",
    [
        {"rowsWritten": 2**62},
        {"routers": -1},
        {"routers": True},
        {"lastWrittenAt": "yesterday"},
        {"lastWrittenAt": "2026-01-01"},
        {"lastWrittenAt": "2026-W01-1"},
        {"lastWrittenAt": "2026-01-01T00:00:00"},
        {"lastWrittenAt": "20260101T000000Z"},
        {"lastWrittenAt": "2026-13-01T00:00:00Z"},
        {"lastWrittenAt": "2026-01-01T00:00:00+23:59"},
        {"problem": {}},
    ],
)
def test_values_of_a_collector_are_checked(change: dict[str, Any]) -> None:
    answer = {"connected": True, "problem": "", "routers": 1, "rowsWritten": 1, "messagesMissed": 0}
    parse_collector({**answer, "lastWrittenAt": None}, NOW)
    with pytest.raises(ValueError, match="not a collector's status"):
        parse_collector({**answer, "lastWrittenAt": None, **change}, NOW)


def test_a_member_is_listed_once() -> None:
    member = {"id": "a", "name": "n", "relay": True}
    relay = {"group": "g", "site": "s", "view": 1, "members": [member, member], "remotes": []}
    found = parse_report({"router": {"id": "r"}, "relay": {**relay, "problems": [], "accepts": True}}, NOW)
    assert found.relay is not None
    assert len(found.relay.members) == 1


@pytest.mark.parametrize("written", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123+01:00"])
def test_times_of_rfc_3339_are_taken(written: str) -> None:
    answer = {"connected": True, "problem": "", "routers": 1, "rowsWritten": 1, "messagesMissed": 0}
    assert parse_collector({**answer, "lastWrittenAt": written}, NOW).last_written_at == written


def test_sums_stay_in_the_range_of_numbers() -> None:
    assert total([1, 2]) == 3
    assert total([MAX_NUMBER] * 20_000) == MAX_NUMBER
    denials = {str(number): MAX_NUMBER for number in range(10)}
    found = parse_report({"router": {"id": "r"}, "policyDenials": denials}, NOW)
    assert found.policy_denials == MAX_NUMBER
    job = {"status": "RUNNING", "stageIds": [1], "numCompletedStages": 1, "numSkippedStages": 0}
    job |= {"numCompletedTasks": MAX_NUMBER, "numSkippedTasks": MAX_NUMBER, "numTasks": 1}
    assert parse_progress([job, job], NOW).tasks_done == MAX_NUMBER


def test_the_texts_of_a_status_are_shown_on_one_line_and_hide_nothing() -> None:
    status = {"a": [{"message": "x\n\ty\x1b\x9b\u202e\ud800 ü", "n": 1}], "b": None, "c": True, "d": "e"}
    assert shown(status) == {
        "a": [{"message": "x  y\ufffd\ufffd\ufffd\ufffd ü", "n": 1}],
        "b": None,
        "c": True,
        "d": "e",
    }
    assert shown(None) is None


@pytest.mark.parametrize("item", ["[]", '{"":0}', "1.2345678901234567e-300"])
def test_other_threads_run_while_the_longest_document_is_decoded(item: str) -> None:
    """The event loop stood still for 0.1 to 0.3 s with each answer of a pod."""
    body = f"[{','.join([item] * (199_000 // (1 + item.count('[') + item.count('{'))))}]".encode()
    ended = threading.Event()

    def decode() -> None:
        document(body)
        ended.set()

    thread = threading.Thread(target=decode)
    longest = 0.0
    thread.start()
    last = time.monotonic(), time.process_time()
    while not ended.wait(0.0005):
        moment = time.monotonic(), time.process_time()
        longest = max(longest, moment[1] - last[1])
        last = moment
    thread.join()
    assert longest < 0.05
