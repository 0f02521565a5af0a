"""Log lines are JSON, modules have levels of their own, and the latest records are kept."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus_router.config.model import LogConfig
from isthmus_router.logs import (
    KEPT_RECORDS,
    LINE_BYTES,
    LINES_AT_ONCE,
    LINES_PER_SECOND,
    RouterLog,
    enabled_levels,
    level_of,
)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(stream: io.StringIO, unchanged_logging: None) -> Iterator[RouterLog]:
    router_log = RouterLog(stream)
    router_log.install()
    yield router_log
    router_log.close()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def section(
    module: str, enable: str = "info+", output: str | None = None, source: bool | None = None
) -> LogConfig:
    return LogConfig(module, enable, True, source, output)


def test_a_line_has_fields(log: RouterLog, stream: io.StringIO) -> None:
    logging.getLogger("ROUTER_LS").info("neighbour %s", "up", extra={"router": "B", "cost": 3})
    (line,) = lines(stream)
    assert str(line.pop("ts")).endswith("Z")
    assert line == {
        "level": "info",
        "module": "ROUTER_LS",
        "message": "neighbour up",
        "router": "B",
        "cost": 3,
    }


def test_a_field_cannot_replace_the_level(log: RouterLog, stream: io.StringIO) -> None:
    logging.getLogger("SERVER").warning("text", extra={"level": "none", "ts": 0})
    assert lines(stream)[0]["level"] == "warning"


def test_what_a_peer_calls_something_does_not_fill_the_log(log: RouterLog, stream: io.StringIO) -> None:
    logging.getLogger("ROUTER_CORE").info("link refused", extra={"link": "x" * 16_000})
    (line,) = lines(stream)
    assert line["link"] == "x" * 2000 + "... (16000 characters)"
    assert len(stream.getvalue()) < 2500


def test_lists_of_what_peers_call_themselves_do_not_fill_the_log(log: RouterLog, stream: io.StringIO) -> None:
    names = [f"m{number}" for number in range(3)]
    logger = logging.getLogger("RELAY")
    logger.info("view installed", extra={"members": names, "numbers": (1, 2), "nothing": []})
    logger.info("view installed", extra={"members": ["x" * 200] * 1_000})
    logger.info("view installed", extra={"members": ["x" * 16_000, "a"]})
    logger.info("view installed", extra={"members": [names * 10_000]})
    first, second, third, fourth = lines(stream)
    assert (first["members"], first["numbers"], first["nothing"]) == (names, [1, 2], [])
    assert second["members"] == ["x" * 200] * 9 + ["... (1000 entries)"]
    assert third["members"] == ["x" * 2000 + "... (16000 characters)", "... (2 entries)"]
    assert "characters)" in str(fourth["members"])
    assert all(len(str(record[2])) < 2_500 for record in log.recent(None))
    assert all(len(line) < 2_500 for line in stream.getvalue().splitlines())


def test_exceptions_stay_on_one_line(log: RouterLog, stream: io.StringIO) -> None:
    try:
        raise ValueError("broken\nhere")
    except ValueError:
        logging.getLogger("SERVER").exception("failed")
    (line,) = lines(stream)
    assert "ValueError: broken\nhere" in str(line["exception"])


def test_levels_per_module(log: RouterLog, stream: io.StringIO) -> None:
    log.configure([section("ROUTER_LS", "debug,error+"), section("SERVER", "none")])
    for module in ("ROUTER_LS", "SERVER", "AGENT", "some.library"):
        for level in (logging.DEBUG, logging.INFO, logging.ERROR):
            logging.getLogger(module).log(level, "text")
    assert [(line["module"], line["level"]) for line in lines(stream)] == [
        ("ROUTER_LS", "debug"),
        ("ROUTER_LS", "error"),
        ("AGENT", "info"),
        ("AGENT", "error"),
        ("DEFAULT", "info"),
        ("DEFAULT", "error"),
    ]
    assert not logging.getLogger("SERVER").isEnabledFor(logging.CRITICAL)


def test_modules_without_section_do_as_default(log: RouterLog, stream: io.StringIO) -> None:
    log.configure([section("DEFAULT", "error+"), section("AGENT", "default,debug")])
    logging.getLogger("SERVER").warning("text")
    logging.getLogger("AGENT").debug("text")
    logging.getLogger("AGENT").warning("text")
    logging.getLogger("AGENT").error("text")
    assert [line["level"] for line in lines(stream)] == ["debug", "error"]
    log.configure([])
    logging.getLogger("SERVER").warning("text")
    assert len(lines(stream)) == 3


@pytest.mark.parametrize(
    ("enable", "levels"),
    [
        ("error+", {"error", "critical"}),
        ("trace, NOTICE", {"trace", "notice"}),
        ("none", set()),
        ("default", {"info"}),
    ],
)
def test_enabled_levels(enable: str, levels: set[str]) -> None:
    assert enabled_levels(enable, frozenset({"info"})) == levels


def test_severities_between_levels() -> None:
    assert [level_of(n) for n in (0, 5, 19, 20, 25, 29, 99)] == [
        "trace",
        "trace",
        "debug",
        "info",
        "notice",
        "notice",
        "critical",
    ]


def test_output_files_and_sources(log: RouterLog, stream: io.StringIO, tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    log.configure([section("AGENT", output=str(path), source=True)])
    logging.getLogger("AGENT").info("to the file")
    logging.getLogger("SERVER").info("to the stream")
    (line,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert line["message"] == "to the file"
    assert str(line["source"]).startswith("test_logs.py:")
    assert [line["message"] for line in lines(stream)] == ["to the stream"]
    log.configure([])
    logging.getLogger("AGENT").info("to the stream again")
    assert len(lines(stream)) == 2


def test_an_unusable_output_file_is_reported(log: RouterLog, stream: io.StringIO) -> None:
    log.configure([section("AGENT", output="/nowhere/agent.log")])
    logging.getLogger("AGENT").info("text")
    reported, line = lines(stream)
    assert reported["message"] == "log file cannot be opened"
    assert line["message"] == "text"


def test_recent_records_are_kept_and_bounded(log: RouterLog) -> None:
    logger = logging.getLogger("AGENT")
    for number in range(KEPT_RECORDS + 5):
        logger.info("number", extra={"n": number})
    assert len(log.recent(None)) == KEPT_RECORDS
    (record,) = log.recent(1)
    assert record[:4] == ("AGENT", "info", f"number n={KEPT_RECORDS + 4}", "test_logs.py")
    assert log.recent(0) == []
    assert log.counts["AGENT", "info"] == KEPT_RECORDS + 5


def test_recent_records_say_nothing_of_what_is_absent(log: RouterLog) -> None:
    logging.getLogger("AGENT").info("opened", extra={"http": True, "user": None, "credit": 0})
    ((*_, text, _, _, _),) = log.recent(1)
    assert text == "opened http=true credit=0"


def test_values_that_are_not_json(log: RouterLog, stream: io.StringIO) -> None:
    logging.getLogger("AGENT").info("text", extra={"path": Path("/x"), "key": b"y"})
    assert lines(stream)[0]["path"] == "/x"


def test_a_flood_of_lines_is_cut_and_counted(
    log: RouterLog, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("isthmus_router.logs.time.monotonic", lambda: now)
    server, core = logging.getLogger("SERVER"), logging.getLogger("ROUTER_CORE")
    for number in range(LINES_AT_ONCE + 500):
        server.info("connection failed", extra={"connection": number})
    core.info("link refused")
    assert [line["message"] for line in lines(stream)] == ["connection failed"] * LINES_AT_ONCE + [
        "link refused"
    ]
    now += 1.0
    for number in range(500):
        server.info("connection failed", extra={"connection": number})
    written = lines(stream)[LINES_AT_ONCE + 1 :]
    assert len(written) == LINES_PER_SECOND
    assert [line.get("omitted_before") for line in written[:2]] == [500, None]
    assert log.counts["SERVER", "info"] == LINES_AT_ONCE + LINES_PER_SECOND
    assert log.counts["ROUTER_CORE", "info"] == 1


def test_strings_of_peers_make_no_lines_and_move_no_cursor(log: RouterLog, stream: io.StringIO) -> None:
    evil = 'a\x1b[2J\x9b0m\u2028\u0085{"level":"error"}\n\u202e'
    logging.getLogger("SERVER").info("link attached", extra={"link": evil})
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert written.rstrip("\n").isprintable()
    (line,) = (json.loads(item) for item in written.split("\n")[:-1])
    assert line["link"] == evil
    assert str(log.recent(1)[0][2]).isprintable()


def test_a_long_line_counts_as_several(
    log: RouterLog, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A character that is escaped takes six."""
    monkeypatch.setattr("isthmus_router.logs.time.monotonic", lambda: 100.0)
    for _ in range(LINES_AT_ONCE):
        logging.getLogger("SERVER").info("connection opened", extra={"container": "\u202e" * 4000})
    written = len(stream.getvalue())
    assert 0.9 < written / (LINES_AT_ONCE * LINE_BYTES) < 1.1
    assert log.counts["SERVER", "info"] < LINES_AT_ONCE // 20
