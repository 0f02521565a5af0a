"""`isthmus-flow-collector -c FILE`: composes the collector, and ends it."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import json
import logging
import os
import signal
import stat
import sys
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from isthmus_flowlog.collector.amqp import Collector
from isthmus_flowlog.collector.assembly import Assembly
from isthmus_flowlog.collector.http import Server
from isthmus_flowlog.collector.journal import Journal
from isthmus_flowlog.collector.metrics import Metrics
from isthmus_flowlog.collector.session import Session
from isthmus_flowlog.collector.settings import Settings, SettingsError, load
from isthmus_flowlog.collector.sinks import open_sink
from isthmus_flowlog.collector.store import Store
from isthmus_router.engine_log import redirect_engine_log

logger = logging.getLogger("COLLECTOR")

STOP_SECONDS = 9.0
"""From SIGTERM to the end, whatever happens."""
STUCK_SECONDS = 60.0
"""A thread that is not heard of for so long does not work any more; looking up a host's name may take half of it."""
LOOK_SECONDS = 0.5


class LockedError(Exception):
    """Another collector writes there."""


class Process:
    """One collector. OSError, LockedError when it cannot begin."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._held = ExitStack()
        self.metrics = Metrics()
        self.metrics.rotate.set(settings.rotate.seconds)
        self._lock(settings.staging_folder)
        if not settings.in_bucket:
            self._lock(Path(settings.log))
        sink = open_sink(settings)
        sink.clean()
        journal = Journal(settings.staging_folder / "journal")
        recovered = journal.recover()
        self.store = Store(settings, journal, sink, self.metrics)
        self.metrics.journal_errors.inc(recovered.unusable)
        if recovered.segments or recovered.cut:
            self.metrics.journal_cut_bytes.inc(recovered.cut_bytes)
            logger.info(
                "journal of an earlier run found",
                extra={
                    "rows": sum(segment.rows for segment in recovered.segments),
                    "cut_bytes": recovered.cut_bytes,
                },
            )
        for segment in recovered.segments:
            self.store.shipper.add(segment)
        self.collector = Collector(
            settings,
            Session(),
            Assembly(settings.wants if settings.filtered else None),
            self.metrics,
            put=self.store.queue.put,
            has_room=self.store.has_room,
            is_full=self.store.is_full,
        )
        self._failed = False
        self._thread = threading.Thread(target=self._collect, name="amqp", daemon=True)
        self._server = Server(
            settings.httpHost,
            settings.httpPort,
            not_healthy=self.not_healthy,
            not_ready=self.not_ready,
            status=self.status,
            metrics=self._exposition,
        )
        self.stopping = threading.Event()

    def _lock(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / ".lock"
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                path.unlink()  # a FIFO, for example, in a volume that others may write, too
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
        )
        file = self._held.enter_context(os.fdopen(descriptor, "w"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LockedError(
                f"another collector writes to {folder}: each needs a log and a staging folder of its own"
            ) from None

    def _collect(self) -> None:
        try:
            self.collector.run()
        except Exception:
            self._failed = True
            logger.exception("the connection's thread has ended")

    def run(self) -> int:
        """Until `stopping`, or a thread fails; the exit status."""
        self.store.start()
        self._thread.start()
        self._server.start()
        logger.info(
            "collector started", extra={"log": self._settings.log, "hosts": list(self._settings.hosts)}
        )
        while not self.stopping.wait(LOOK_SECONDS) and self._failure() is None:
            pass
        failure = self._failure()
        deadline = time.monotonic() + STOP_SECONDS
        self.collector.stopping = True
        self._thread.join(STOP_SECONDS / 3)
        left = self.store.stop(deadline)
        self._server.stop()
        self._held.close()
        logger.info("collector ended", extra={"rows_left_in_journal": left, "failure": failure})
        return 0 if failure is None else 1

    def _failure(self) -> str | None:
        if self._failed:
            return "the thread of the connection has ended"
        failed = [thread.name for thread in (self.store.writer, self.store.shipper) if thread.failed]
        return f"the thread {failed[0]} has ended" if failed else None

    def not_healthy(self) -> str | None:
        """Why the process is to be started again."""
        silent = time.monotonic() - self.collector.ticked
        stuck = (
            f"the connection's thread has been stuck for {silent:.0f} s" if silent > STUCK_SECONDS else None
        )
        return self._failure() or self.store.stuck or stuck

    def not_ready(self) -> str | None:
        """Why records are not collected, or not kept, at present."""
        reasons = [self.not_healthy(), self.store.trouble]
        if self.collector.trouble is not None:
            reasons.append(f"no connection to a router: {self.collector.trouble}")
        if not self.store.has_room():
            reasons.append("rows cannot be written as fast as they come")
        return "; ".join(filter(None, reasons)) or None

    def status(self) -> dict[str, object]:
        """For people and the operator; docs/flow-log.md says what is in it."""
        connected, written = (
            self.collector.trouble is None,
            self.metrics.value("last_written_timestamp_seconds"),
        )
        full = None if self.store.has_room() else "rows cannot be written as fast as they come"
        return {
            "connected": connected,
            "problem": self.not_healthy() or self.store.trouble or full or self.collector.trouble or "",
            "routers": int(self.metrics.value("sources")),
            "rowsWritten": int(self.metrics.value("rows_written_total")),
            "lastWrittenAt": datetime.fromtimestamp(written, UTC).isoformat("T", "seconds")[:-6] + "Z"
            if written
            else None,
            "messagesMissed": int(self.metrics.value("missed_messages_total")),
            "certificates": self.collector.certificates,
            "certificatesProblem": self.collector.certificates_problem,
        }

    def _exposition(self) -> bytes:
        self.store.observe(time.time())
        return self.metrics.exposition()


class _Json(logging.Formatter):
    """One JSON object per line, as routers log."""

    _STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        """Formatter interface."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat("T", "milliseconds")[:-6] + "Z"
        entry: dict[str, Any] = {
            "ts": moment,
            "level": record.levelname.lower(),
            "module": record.name,
            "message": record.getMessage(),
        }
        entry |= {key: value for key, value in vars(record).items() if key not in self._STANDARD}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def main(arguments: list[str] | None = None) -> int:
    """The command. 2: the settings are wrong, 1: it cannot begin, or has failed."""
    parser = argparse.ArgumentParser(
        prog="isthmus-flow-collector", description="Collects flow records of routers."
    )
    parser.add_argument("-c", "--config", required=True, type=Path, metavar="FILE", help="settings, JSON")
    parser.add_argument("--check", action="store_true", help="only read the settings")
    options = parser.parse_args(arguments)
    output = logging.StreamHandler()
    output.setFormatter(_Json())
    logging.basicConfig(level=logging.INFO, handlers=[output])
    logging.getLogger("proton").setLevel(logging.CRITICAL)
    redirect_engine_log()
    try:
        settings = load(options.config)
        if options.check:
            return 0
        process = Process(settings)
    except SettingsError as error:
        print(f"isthmus-flow-collector: {error}", file=sys.stderr)
        return 2
    except (OSError, LockedError) as error:
        print(f"isthmus-flow-collector: {error}", file=sys.stderr)
        return 1
    # Rows are many, live for a second and make no cycles, so these are to be looked for rarely.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.stopping.set())
    return process.run()
