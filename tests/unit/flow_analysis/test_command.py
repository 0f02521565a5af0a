"""The command `isthmus-flows`: what is asked for, what is said at the end, and exit codes. No Spark is started."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isthmus_flows import batch, entry, streaming
from isthmus_flows.entry import FAILED, MOST_LAST_WORDS, headline, main
from isthmus_flows.log import Window
from isthmus_flows.settings import Settings
from isthmus_flows.streaming import Stream

RUN = ["run", "--log=l", "--output=o"]
STREAM = ["stream", "--log=l", "--output=o", "--checkpoint=c/"]
SUMMARY: dict[str, Any] = {"run": "r", "totals": {"in": {"deliveries": 7}}, "findings": []}


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session, and no handler of signals that stays."""
    monkeypatch.setattr(entry, "_session", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What runs were asked for."""
    calls: list[Any] = []

    def run(spark: object, settings: Settings, window: Window, now: datetime) -> Mapping[str, Any]:
        calls.append((settings, window))
        return SUMMARY

    def catch_up(spark: object, stream: Stream) -> Mapping[str, Any]:
        calls.append(stream)
        return SUMMARY

    monkeypatch.setattr(batch, "run", run)
    monkeypatch.setattr(streaming, "catch_up", catch_up)
    return calls


def test_a_run_over_a_window(asked: list[Any], tmp_path: Path) -> None:
    said = tmp_path / "said"
    words = [
        "--from=2026-11-20T08:00:00Z",
        "--to=2026-11-20T10:00:00+01:00",
        "--bucket=5m",
        "--baseline-days=0",
    ]
    assert main([*RUN, *words, "--top=3", "--keep=9", f"--termination-log={said}"]) == 0
    ((settings, window),) = asked
    assert settings == Settings("l", "o", 300, 0, 3, 9)
    assert window == Window(datetime(2026, 11, 20, 8, tzinfo=UTC), datetime(2026, 11, 20, 9, tzinfo=UTC))
    assert json.loads(said.read_text()) == {"run": "r", "deliveries": 7}


class Session:
    """One of Spark."""

    def __init__(self, error: Exception | None = None) -> None:
        self.stops = 0
        self._error = error

    def stop(self) -> None:
        self.stops += 1
        if self._error is not None:
            raise self._error


def test_spark_is_stopped_at_the_end_of_a_run(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    monkeypatch.setattr(entry, "_session", lambda: session)
    assert main(RUN) == 0
    assert session.stops == 1


def test_spark_is_stopped_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    monkeypatch.setattr(entry, "_session", lambda: session)
    monkeypatch.setattr(batch, "run", lambda *_: 1 // 0)
    assert main(RUN) == FAILED
    assert session.stops == 1


def test_a_run_succeeds_though_spark_cannot_be_stopped(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry, "_session", lambda: Session(ConnectionError("gone")))
    assert main(RUN) == 0


def test_a_window_that_ends_now_is_of_a_day_unless_it_is_told(asked: list[Any]) -> None:
    main(RUN)
    main([*RUN, "--last=90m"])
    assert [window.seconds for _, window in asked] == [86_400, 5_400]
    assert abs(asked[0][1].end - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_stream_that_catches_up(asked: list[Any]) -> None:
    assert main([*STREAM, "--available-now", "--last=7d", "--late=6h"]) == 0
    assert asked == [Stream(Settings("l", "o"), "c", timedelta(days=7), timedelta(hours=6))]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "run|stream"),
        (["walk"], "'walk'"),
        (["run", "--log=l"], "--output"),
        ([*RUN, "--bogus"], "--bogus"),
        (
            [*RUN, "--last=5x"],
            "argument --last: '5x' is no duration; write a number and s, m, h or d, as in 24h",
        ),
        (
            [*RUN, "--from=yesterday"],
            "argument --from: 'yesterday' is no time; write it as in 2026-11-23T08:00:00Z",
        ),
        ([*RUN, "--from=2026-11-20T08:00:00"], "has no time zone"),
        ([*RUN, "--to=2026-11-20T08:00:00Z"], "--to needs --from"),
        ([*RUN, "--from=2026-11-20T08:00:00Z", "--last=1h"], "give one of them"),
        ([*RUN, "--from=2026-11-20T08:00:00Z", "--to=2026-11-20T08:00:00Z"], "is not before --to"),
        ([*RUN, "--from=2096-11-20T08:00:00Z"], "is in the future"),
        ([*RUN, "--bucket=2d"], "argument --bucket: 2d is longer than a day"),
        ([*RUN, "--baseline-days=91"], "argument --baseline-days: '91' is no number from 0 to 90"),
        ([*RUN, "--keep=0"], "argument --keep"),
        ([*STREAM[:3]], "--checkpoint"),
        ([*STREAM, "--from=2026-11-20T08:00:00Z"], "--from"),
        ([*STREAM, "--available-now", "--trigger=5s"], "--trigger"),
        (["executor"], "SPARK_DRIVER_URL is not set"),
    ],
)
def test_what_cannot_be_asked_for(
    words: list[str], message: str, asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = tmp_path / "said"
    assert main([*words, f"--termination-log={said}"]) == 2
    assert message in json.loads(said.read_text())["reason"]
    assert message in capsys.readouterr().err
    assert asked == []


def test_a_run_that_fails_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = tmp_path / "said"

    def fail(*_: object) -> None:
        raise ValueError("l does not exist\nand more")

    monkeypatch.setattr(batch, "run", fail)
    assert main([*RUN, f"--termination-log={said}"]) == 1
    assert json.loads(said.read_text()) == {"reason": "l does not exist"}


def test_a_bug_says_what_it_is() -> None:
    assert entry.reason(KeyError("x")) == "KeyError('x')"


@pytest.mark.parametrize("length", [10, 900, 5000])
def test_the_last_words_are_as_many_findings_as_there_is_room_for(length: int) -> None:
    findings = [
        {"severity": "info", "kind": "k", "text": f"{number}{'é' * length}", "value": 1}
        for number in range(50)
    ]
    told = headline({**SUMMARY, "findings": findings})
    text = json.dumps(told)
    assert len(text.encode()) <= MOST_LAST_WORDS
    kept = told.get("findings", [])
    assert kept == [
        {key: finding[key] for key in ("severity", "kind", "text")} for finding in findings[: len(kept)]
    ]
    one_more = (
        {**told, "findings": [*kept, {key: findings[len(kept)][key] for key in ("severity", "kind", "text")}]}
        if len(kept) < 50
        else None
    )
    assert one_more is None or len(json.dumps(one_more).encode()) > MOST_LAST_WORDS
