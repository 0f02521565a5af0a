"""The command `isthmus-flows`: one run over a window, or runs that go on from where the last one was.

Exit codes: 0; 2 if what is asked for cannot be (to try again is of no use); 1 if it has failed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from isthmus_flows import batch, executor, streaming
from isthmus_flows.authentication import write_secret
from isthmus_flows.log import NoLogError, Window, parse_duration, parse_moment
from isthmus_flows.session import end_of_spark, spark_session
from isthmus_flows.settings import Settings
from isthmus_flows.storage import said

LOG = logging.getLogger("isthmus-flows")
FAILED, BAD_ARGUMENTS, TERMINATED = 1, 2, 128 + signal.SIGTERM
MOST_LAST_WORDS = 4096
"""Bytes that Kubernetes shows of a termination message."""
MOST_BUCKET = timedelta(days=1)
_TOLD_FROM_OUTSIDE = ("SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME")
_ON_THIS_MACHINE = {
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
}
"""Of a session whose surroundings say nothing of it."""
_GONE = "FILE_NOT_EXIST"
"""In Spark's message about a file that was there when the folder was listed."""


class BadArgumentsError(Exception):
    """What is asked for cannot be; the text says which option, and what to write."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadArgumentsError(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        if given[:1] == ["executor"]:
            executor.run()
        options = parser().parse_args(given)
        if options.command == "run":
            work: Callable[[SparkSession], Mapping[str, Any]] = _batch(options)
        else:
            work = _stream(options)
        write_secret(os.environ, os.environ.get("POD_UID", ""))
    except (BadArgumentsError, ValueError) as error:
        print(f"isthmus-flows: {error}\nisthmus-flows --help tells more", file=sys.stderr)
        _last_words(_termination_log(given), {"reason": str(error)})
        return BAD_ARGUMENTS
    signal.signal(signal.SIGTERM, _terminated)
    session: SparkSession | None = None
    try:
        session = _session()
        told = work(session)
    except Exception as error:
        # What Java says itself is no sign that it has ended.
        lost = isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError)
        why = (end_of_spark() if lost else None) or reason(error)
        LOG.error("failed: %s", why, exc_info=not isinstance(error, NoLogError | OSError))
        _last_words(options.termination_log, {"reason": why})
        if not lost:
            _stop(session)
        return FAILED
    _last_words(options.termination_log, headline(told))
    LOG.info("%s", json.dumps(headline(told)))
    _stop(session)
    return 0


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    top = _Parser(
        prog="isthmus-flows", description="What flowed through a network of routers, from its flow log."
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="run|stream", parser_class=_Parser)
    run = commands.add_parser("run", help="one run over a window")
    _add_common(run)
    run.add_argument(
        "--from", dest="start", type=_moment, help="beginning of the window, 2026-11-23T08:00:00Z"
    )
    run.add_argument("--to", dest="end", type=_moment, help="its end; now if it is left out")
    stream = commands.add_parser(
        "stream", help="runs that read only what is new, over a window that ends now"
    )
    _add_common(stream)
    stream.add_argument(
        "--checkpoint",
        required=True,
        help="folder or s3a URL for what is known of earlier runs; of this stream alone",
    )
    when = stream.add_mutually_exclusive_group()
    when.add_argument(
        "--trigger",
        type=_duration,
        default=timedelta(seconds=60),
        help="how often to look for what is new (60s)",
    )
    when.add_argument("--available-now", action="store_true", help="read what is there, tell, and end")
    stream.add_argument(
        "--late", type=_duration, default=timedelta(hours=24),
        help="hours that are so much older than the newest are closed; what comes of them is only counted (24h)",
    )  # fmt: skip
    return top


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--log", required=True, help="the flow log, a folder or s3a URL")
    command.add_argument(
        "--output", required=True, help="folder or s3a URL; each run makes one of its own in it"
    )
    command.add_argument("--last", type=_duration, help="length of a window that ends now (24h)")
    command.add_argument("--bucket", type=_bucket, default=60, help="interval of rates over time (1m)")
    command.add_argument(
        "--baseline-days",
        type=_number(0, 90),
        default=7,
        help="earlier days that say what is usual (7); 0: none",
    )
    command.add_argument("--top", type=_number(1, 10_000), default=100, help="how many are ranked (100)")
    command.add_argument(
        "--keep",
        type=_number(1, 100_000),
        help="how many runs (and event logs in _events) to keep in the output (all)",
    )
    command.add_argument("--termination-log", type=Path, help="file for one line of JSON at the end")


def _batch(options: argparse.Namespace) -> Callable[[SparkSession], Mapping[str, Any]]:
    now = datetime.now(UTC)
    window = _window(options, now)
    settings = _settings(options)

    def work(spark: SparkSession) -> Mapping[str, Any]:
        try:
            return batch.run(spark, settings, window, now)
        except (PySparkException, Py4JError) as error:
            if _GONE not in str(error):
                raise
            LOG.warning("a file was merged or deleted meanwhile; once again: %s", reason(error))
            return batch.run(spark, settings, window, now)

    return work


def _stream(options: argparse.Namespace) -> Callable[[SparkSession], Mapping[str, Any]]:
    stream = streaming.Stream(
        _settings(options), options.checkpoint.rstrip("/"), options.last or timedelta(days=1), options.late
    )
    if options.available_now:
        return lambda spark: streaming.catch_up(spark, stream)

    def follow(spark: SparkSession) -> Mapping[str, Any]:
        def told(summary: Mapping[str, Any]) -> None:
            LOG.info("%s", json.dumps(headline(summary)))

        query = streaming.follow(spark, stream, options.trigger, told)
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return {}

    return follow


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(
        options.log, options.output, options.bucket, options.baseline_days, options.top, options.keep
    )


def _window(options: argparse.Namespace, now: datetime) -> Window:
    if options.start is None:
        if options.end is not None:
            raise BadArgumentsError("--to needs --from; a window that ends now is --last 24h")
        return Window.last(options.last or timedelta(days=1), now)
    if options.last is not None:
        raise BadArgumentsError(
            "--last is a window that ends now, --from one that begins then: give one of them"
        )
    if options.start >= now:
        raise BadArgumentsError(
            f"--from {options.start.isoformat()} is in the future; nothing has flowed yet"
        )
    end = options.end or now
    if options.start >= end:
        raise BadArgumentsError(f"--from {options.start.isoformat()} is not before --to, {end.isoformat()}")
    return Window(options.start, end)


def _session() -> SparkSession:
    if any(name in os.environ for name in _TOLD_FROM_OUTSIDE):
        return spark_session()
    return spark_session(master="local[*]", settings=_ON_THIS_MACHINE)


def _stop(session: SparkSession | None) -> None:
    """Have the driver delete its executors, which remain as long as its own pod otherwise: the JVM ends together with
    this process, without a chance to do so."""
    if session is None:
        return
    try:
        session.stop()
    except Exception as error:
        LOG.warning("Spark could not be stopped: %s", reason(error))


def headline(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What is told at the end: the run, how many deliveries, and as many findings as there is room for."""
    if not summary:
        return {}
    known = {"run": summary["run"], "deliveries": summary["totals"]["in"]["deliveries"]}
    findings = [
        {key: finding[key] for key in ("severity", "kind", "text")} for finding in summary["findings"]
    ]
    while findings and len(json.dumps({**known, "findings": findings}).encode()) > MOST_LAST_WORDS:
        findings.pop()
    return {**known, "findings": findings} if findings else known


def reason(error: BaseException) -> str:
    """Why something failed, in a line."""
    if isinstance(error, Py4JError):
        return said(error)
    text = str(error).strip().splitlines()
    return text[0] if text and isinstance(error, OSError | ValueError | PySparkException) else repr(error)


def _last_words(path: Path | None, told: Mapping[str, Any]) -> None:
    if path is None or not told:
        return
    text = json.dumps(told)
    if len(text) > MOST_LAST_WORDS:
        text = json.dumps({"reason": str(told.get("reason", ""))[: MOST_LAST_WORDS // 8]})
    try:
        path.write_text(f"{text}\n")
    except OSError as error:
        LOG.warning("--termination-log %s could not be written: %s", path, error)


def _termination_log(given: Sequence[str]) -> Path | None:
    """From arguments that are not understood otherwise."""
    known = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    known.add_argument("--termination-log", type=Path)
    try:
        found: Path | None = known.parse_known_args(list(given))[0].termination_log
    except argparse.ArgumentError:
        return None
    return found


def _terminated(number: int, frame: object) -> NoReturn:
    raise SystemExit(TERMINATED)


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _moment(text: str) -> datetime:
    try:
        return parse_moment(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _bucket(text: str) -> int:
    length = _duration(text)
    if length > MOST_BUCKET:
        raise argparse.ArgumentTypeError(f"{text} is longer than a day; 1m is usual")
    return int(length.total_seconds())


def _number(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
        return int(text)

    return parse
