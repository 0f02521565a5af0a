"""Full garbage collections, which stop everything: none by itself, and no more of the time than a bounded share.

With tens of thousands of links one takes a tenth of a second. Nearly everything is freed without it, as soon as the
last reference is gone; only what refers to itself in a circle, such as a connection that has ended, waits for it.
"""

from __future__ import annotations

import asyncio
import gc
import time

SHARE = 0.01
"""Of the time, at most, goes into full collections."""
PERIOD_SECONDS = 1.0
DUE_COLLECTIONS = 10
"""Collections of the middle generation after which a full one is due, as is usual in Python."""
_NEVER = 2**31 - 1


class FullCollections:
    """Those of this process, from now on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._next = 0.0
        gc.collect()
        gc.freeze()  # modules and configuration stay: there is no point in going through them again
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)
        loop.call_later(PERIOD_SECONDS, self._look)

    def _look(self) -> None:
        self._loop.call_later(PERIOD_SECONDS, self._look)
        begun = time.monotonic()
        if gc.get_count()[2] >= DUE_COLLECTIONS and begun >= self._next:
            gc.collect()
            ended = time.monotonic()
            self._next = ended + (ended - begun) / SHARE
