"""What a collector says of itself at `/status`, and Spark of a run. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .certificate_reports import Loaded
from .untrusted import FAILURES, count, flag, listed, malformed, objects, text, total

_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])"
)


@dataclass(frozen=True)
class CollectorReport:
    """One answer of a collector."""

    connected: bool
    problem: str
    """Why it does not collect, or cannot keep what it has; empty: it does."""
    routers: int
    rows_written: int = field(compare=False)
    """Since it started."""
    last_written_at: str | None = field(compare=False)
    messages_missed: int = field(compare=False)
    """These change too often to be news."""
    loaded: Loaded = field(default_factory=Loaded)

    @property
    def numbers(self) -> tuple[object, ...]:
        """What is told now and then only."""
        return self.rows_written, self.last_written_at, self.messages_missed


@dataclass(frozen=True)
class ProgressReport:
    """How far the jobs of a Spark application are."""

    stages_done: int
    stages: int
    tasks_done: int
    tasks: int
    doing: str
    """Description of the job that runs."""

    @property
    def numbers(self) -> tuple[object, ...]:
        """All of it is news."""
        return ()


def parse_collector(answer: Mapping[str, Any], now: datetime) -> CollectorReport:
    """Raises ValueError when it is not one. The collector may be hostile."""
    try:
        written = answer["lastWrittenAt"]
        return CollectorReport(
            connected=flag(answer["connected"]),
            problem=text(answer["problem"]),
            routers=count(answer["routers"]),
            rows_written=count(answer["rowsWritten"]),
            last_written_at=None if written is None else _moment(written),
            messages_missed=count(answer["messagesMissed"]),
            loaded=Loaded.of(answer),
        )
    except FAILURES as error:
        raise malformed("a collector's status", error) from None


def _moment(value: object) -> str:
    """A time as RFC 3339 has it, like the schema of the status; ISO 8601 has more forms."""
    written = text(value, 40)
    if not _RFC_3339.fullmatch(written):
        raise ValueError(f"{written} is no time of RFC 3339")
    datetime.fromisoformat(written)
    return written


def parse_progress(answer: object, now: datetime) -> ProgressReport:
    """From the jobs that Spark's user interface lists (`/api/v1/applications/.../jobs`). Raises ValueError."""
    try:
        jobs = list(objects(answer))
        running = next((job for job in jobs if job["status"] == "RUNNING"), {})
        return ProgressReport(
            stages_done=_sum(jobs, "numCompletedStages", "numSkippedStages"),
            stages=count(sum(len(listed(job["stageIds"])) for job in jobs)),
            tasks_done=_sum(jobs, "numCompletedTasks", "numSkippedTasks"),
            tasks=_sum(jobs, "numTasks"),
            doing=text(running.get("description") or "", 256),
        )
    except FAILURES as error:
        raise malformed("the jobs of a Spark application", error) from None


def _sum(jobs: list[Mapping[str, Any]], *keys: str) -> int:
    return total(count(job[key]) for job in jobs for key in keys)
