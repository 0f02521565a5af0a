"""What a collector says of itself at `/status`, and Spark of a run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


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
    """Raises ValueError when it is not one."""
    try:
        written = answer["lastWrittenAt"]
        return CollectorReport(
            connected=bool(answer["connected"]),
            problem=str(answer["problem"]),
            routers=int(answer["routers"]),
            rows_written=int(answer["rowsWritten"]),
            last_written_at=None if written is None else str(written),
            messages_missed=int(answer["messagesMissed"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"not a collector's status: {error!r}") from None


def parse_progress(answer: list[Mapping[str, Any]], now: datetime) -> ProgressReport:
    """From the jobs that Spark's user interface lists (`/api/v1/applications/.../jobs`). Raises ValueError."""
    try:
        done = sum(int(job["numCompletedStages"]) + int(job["numSkippedStages"]) for job in answer)
        running = next((job for job in answer if job["status"] == "RUNNING"), {})
        return ProgressReport(
            stages_done=done,
            stages=sum(len(job["stageIds"]) for job in answer),
            tasks_done=sum(int(job["numCompletedTasks"]) + int(job["numSkippedTasks"]) for job in answer),
            tasks=sum(int(job["numTasks"]) for job in answer),
            doing=str(running.get("description") or "")[:256],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"not the jobs of a Spark application: {error!r}") from None
