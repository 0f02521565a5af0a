"""A router process whose wall clock is years off, and not where it was a moment ago."""

from __future__ import annotations

import itertools
import os
import time

from isthmus_router import __main__

YEARS = 365 * 86_400.0
_real = time.time
_jumps = itertools.cycle((0.0, -3600.0, 7200.0))


def _skewed() -> float:
    return _real() + float(os.environ["SKEW_YEARS"]) * YEARS + next(_jumps)


def main(arguments: list[str]) -> int:
    """As that of `isthmus_router`, with the clock moved."""
    time.time = _skewed
    time.time_ns = lambda: int(_skewed() * 1e9)
    return __main__.main(arguments)
