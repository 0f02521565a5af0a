"""Full garbage collections, which stop everything: none by itself, and no more of the time than a bounded share.

With tens of thousands of links one takes a tenth of a second. Nearly everything of AMQP connections, links and messages
is freed without it, as soon as the last reference is gone. Only objects that refer to each other wait for it, such as
those of HTTP connections.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import time
from collections.abc import Callable

SHARE = 0.01
"""Of the time, at most, goes into full collections."""
PERIOD_SECONDS = 1.0
DUE_COLLECTIONS = 10
"""Collections of the middle generation after which a full one is due, as is usual in Python."""
DUE_CONNECTIONS = 256
"""Connections that have ended, after which their memory is given back to the system."""
_NEVER = 2**31 - 1

_trim_memory: Callable[[int], int] = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)
"""Of glibc; other C libraries give memory back by themselves, or have nothing like it."""


class FullCollections:
    """Those of this process, from now on. Memory is given back to the system in the same share of the time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, finished: Callable[[], int]) -> None:
        """`finished`: how many connections have ended so far."""
        self._loop = loop
        self._finished = finished
        self._known = finished()
        """Connections that had ended when memory was given back last."""
        self._due = DUE_CONNECTIONS
        self._next = 0.0
        gc.collect()
        gc.freeze()  # modules and configuration stay: there is no point in going through them again
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)
        loop.call_later(PERIOD_SECONDS, self._look)

    def _look(self) -> None:
        self._loop.call_later(PERIOD_SECONDS, self._look)
        begun = time.monotonic()
        if begun < self._next:
            return
        finished = self._finished()
        many = finished - self._known >= self._due
        # What a few more connections leave behind, after many, is given back as well.
        self._due = 1 if many else DUE_CONNECTIONS
        if gc.get_count()[2] >= DUE_COLLECTIONS:
            gc.collect()
        if many:
            self._known = finished
            _trim_memory(0)
        ended = time.monotonic()
        self._next = ended + (ended - begun) / SHARE
