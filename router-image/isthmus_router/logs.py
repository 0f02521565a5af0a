"""Structured logs: one JSON object per line, by module and level as the `log` sections say.

Every logger is named after a module of the configuration (`ROUTER_LS`, `SERVER`, ...); other loggers
count as `DEFAULT`. What is passed as `extra` becomes fields of the line:

    {"ts": "2026-11-21T17:00:00.123Z", "level": "info", "module": "ROUTER_LS", "message": "neighbour up",
     "router": "B"}

The most recent records are kept for the management operation GET-LOG. Of a message that comes too often a line
is left out now and then; the next one says how many (`omitted_before`).
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

from isthmus_router.config.model import LogConfig
from isthmus_router.config.tables.router import LOG_LEVELS, LOG_MODULES
from isthmus_router.printable import printable

LEVELS: Mapping[str, int] = {
    "trace": 5,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": 25,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
"""Severity of each level, as in `logging`."""

KEPT_RECORDS = 1000
"""Records kept for GET-LOG."""

LINES_AT_ONCE = 2000
LINES_PER_SECOND = 20.0
"""Of one message of one module, once those at once are used up. Peers cause most lines: however many attaches
they have refused, connections they open or requests they get wrong, they must not fill the node's disk."""

LINE_BYTES = 512
"""A longer line counts as several: a name that a peer has chosen can make one of 12 KB."""

_MOST_ALLOWANCES = 1000

DEFAULT = "DEFAULT"

_LONGEST_FIELD = 2000
"""Characters: peers choose what links, addresses and containers are called."""
_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def enabled_levels(enable: str, default: frozenset[str]) -> frozenset[str]:
    """The levels that an `enable` value such as `debug,error+` turns on; `default` stands for `default`."""
    levels: set[str] = set()
    for word in enable.lower().split(","):
        word = word.strip()
        if word == "default":
            levels |= default
        elif word.endswith("+"):
            levels |= set(LOG_LEVELS[LOG_LEVELS.index(word[:-1]) :])
        elif word != "none":
            levels.add(word)
    return frozenset(levels)


def level_of(severity: int) -> str:
    """The level of a `logging` severity: the highest one that is not above it."""
    return next((name for name in reversed(LOG_LEVELS) if LEVELS[name] <= severity), LOG_LEVELS[0])


@dataclass(slots=True)
class _Allowance:
    """Lines of one message that may be written; `omitted` counts those that were not, since the last one."""

    at: float
    lines: float = LINES_AT_ONCE
    omitted: int = 0

    def take(self, now: float) -> bool:
        """Whether one more line may be written, at this time of a monotonic clock in seconds."""
        self.lines = min(LINES_AT_ONCE, self.lines + (now - self.at) * LINES_PER_SECOND)
        self.at = now
        if self.lines < 1:
            self.omitted += 1
            return False
        self.lines -= 1
        return True

    def charge(self, size: int) -> None:
        """Count a line of `size` bytes that was written as several if it is long."""
        self.lines -= (size - 1) // LINE_BYTES


def _cut(value: object) -> object:
    if isinstance(value, str) and len(value) > _LONGEST_FIELD:
        return f"{value[:_LONGEST_FIELD]}... ({len(value)} characters)"
    if isinstance(value, (list, tuple)):
        return _cut_list(value)
    return value


def _cut_list(values: Sequence[object]) -> list[object]:
    """The first ones, with as many characters as a text may have, and how many there are."""
    kept: list[object] = []
    left = _LONGEST_FIELD
    for value in values:
        cut = value if isinstance(value, (int, float)) or value is None else _cut(str(value))
        left -= len(str(cut)) + 1
        if left < 0 and kept:
            kept.append(f"... ({len(values)} entries)")
            break
        kept.append(cut)
    return kept


def _in_words(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


class RouterLog(logging.Handler):
    """Writes, counts and remembers log records. One per process; see `install`."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """`stream` takes the place of stderr, the default output."""
        super().__init__()
        self._stream = stream or sys.stderr
        self._levels: dict[str, frozenset[str]] = {}
        self._sources: dict[str, bool] = {}
        self._outputs: dict[str, TextIO] = {}
        self._files: dict[str, TextIO] = {}
        self._recent: deque[tuple[str, str, str, str, int, float]] = deque(maxlen=KEPT_RECORDS)
        self._recent_lock = threading.Lock()
        self._allowances: dict[tuple[str, str], _Allowance] = {}
        self.counts: Counter[tuple[str, str]] = Counter()
        """Records written, by module and level."""
        self.configure(())

    def install(self) -> None:
        """Becomes the only handler of the process."""
        for name, severity in LEVELS.items():
            logging.addLevelName(severity, name)
        logging.root.handlers = [self]

    def configure(self, logs: Iterable[LogConfig]) -> None:
        """Takes over levels and outputs; modules without a section do as DEFAULT does.

        An output file that cannot be opened is replaced by stderr, with a record that says so.
        """
        sections = {log.module: log for log in logs}
        default = sections.get(DEFAULT) or LogConfig(DEFAULT, "info+", True, None, None)
        everyday = enabled_levels("info+", frozenset())
        default_levels = enabled_levels(default.enable, everyday)
        failures: list[OSError] = []
        files: dict[str, TextIO] = {}
        assert self.lock is not None
        with self.lock:
            for module in LOG_MODULES:
                log = sections.get(module, default)
                self._levels[module] = enabled_levels(log.enable, default_levels)
                source = default.include_source if log.include_source is None else log.include_source
                self._sources[module] = bool(source)
                path = log.output_file or default.output_file
                try:
                    self._outputs[module] = self._output(path, files)
                except OSError as error:
                    failures.append(error)
                    self._outputs[module] = self._stream
            for path, file in self._files.items():
                if path not in files:
                    file.close()
            self._files = files
        for module in LOG_MODULES:
            logger = logging.root if module == DEFAULT else logging.getLogger(module)
            severities = [LEVELS[level] for level in self._levels[module]]
            logger.setLevel(min(severities, default=logging.CRITICAL + 1))
        for failure in failures:
            logging.getLogger("ROUTER").error("log file cannot be opened", extra={"reason": str(failure)})

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record if its module has its level enabled."""
        module = record.name if record.name in self._levels else DEFAULT
        level = level_of(record.levelno)
        if level not in self._levels[module]:
            return
        allowance = self._allowance(module, record.msg)
        if not allowance.take(time.monotonic()):
            return
        if allowance.omitted:
            record.omitted_before = allowance.omitted
            allowance.omitted = 0
        try:
            line, text = self._format(record, module, level)
            self.counts[module, level] += 1
            with self._recent_lock:
                self._recent.append(
                    (module, level, text, record.filename, record.lineno, record.created),
                )
            output = self._outputs[module]
            output.write(line + "\n")
            output.flush()
            allowance.charge(len(line))
        except Exception:
            self.handleError(record)

    def _allowance(self, module: str, message: object) -> _Allowance:
        key = (module, str(message))
        allowance = self._allowances.get(key)
        if allowance is None:
            if len(self._allowances) >= _MOST_ALLOWANCES:
                self._allowances.clear()
            allowance = self._allowances[key] = _Allowance(time.monotonic())
        return allowance

    def recent(self, limit: int | None) -> Sequence[Sequence[object]]:
        """`[module, level, text, file, line, seconds since the epoch]` each, oldest first."""
        with self._recent_lock:
            records = list(self._recent)
        return records if limit is None else records[max(0, len(records) - limit) :]

    def close(self) -> None:
        """Closes the output files."""
        for file in self._files.values():
            file.close()
        self._files = {}
        super().close()

    def _format(self, record: logging.LogRecord, module: str, level: str) -> tuple[str, str]:
        """The JSON line, and the text shown by GET-LOG."""
        message = record.getMessage()
        fields = {key: _cut(value) for key, value in vars(record).items() if key not in _STANDARD_ATTRIBUTES}
        entry: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat("T", "milliseconds")[:-6] + "Z",
            "level": level,
            "module": module,
            "message": message,
        }
        if self._sources[module]:
            entry["source"] = f"{record.filename}:{record.lineno}"
        for key, value in fields.items():
            entry.setdefault(key, value)
        if record.exc_info:
            entry["exception"] = logging.Formatter().formatException(record.exc_info)
        line = printable(json.dumps(entry, default=str, ensure_ascii=False, separators=(",", ":")))
        shown = (f"{key}={_in_words(value)}" for key, value in fields.items() if value is not None)
        text = printable(" ".join([message, *shown]))
        return line, text

    def _output(self, path: str | None, files: dict[str, TextIO]) -> TextIO:
        if path is None or path == "stderr":
            return self._stream
        if path == "stdout":
            return sys.stdout
        if path not in files:
            # Not closed here: the file stays open until a later configuration names another.
            files[path] = self._files.get(path) or open(path, "a", encoding="utf-8")  # noqa: SIM115
        return files[path]
