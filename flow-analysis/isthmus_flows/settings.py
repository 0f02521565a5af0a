"""What a run is asked for, whether it is one or goes on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """In every mode."""

    log: str
    output: str
    bucket_seconds: int = 60
    baseline_days: int = 7
    top: int = 100
    keep: int | None = None
    """How many runs are kept in `output`; None: all."""
