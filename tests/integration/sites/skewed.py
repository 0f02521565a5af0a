"""A router process whose wall clock is years off, and not where it was a moment ago."""

from __future__ import annotations

import itertools
import os
import sys
import time

YEARS = 365 * 86_400.0
_real = time.time
_jumps = itertools.cycle((0.0, -3600.0, 7200.0))


def _skewed() -> float:
    return _real() + float(os.environ["SKEW_YEARS"]) * YEARS + next(_jumps)


if __name__ == "__main__":
    time.time = _skewed
    time.time_ns = lambda: int(_skewed() * 1e9)
    from isthmus_router import __main__

    sys.exit(__main__.main())
