"""What a run is asked for, whether it is one or goes on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Of a run, and of those of a stream."""

    log: str
    """A folder or URL; so is `output`, in which each run has a folder of its own."""
    output: str
    bucket_seconds: int = 60
    """Length of the intervals of rates over time."""
    baseline_days: int = 7
    """How many earlier days say what is usual."""
    top: int = 100
    """How many are ranked."""
    keep: int | None = None
    """How many runs are kept in `output`; None: all."""
