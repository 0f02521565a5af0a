"""Full garbage collections, which stop everything: none by itself, and no more of the time than a bounded share.

One takes 0.1 s for ten thousand links that it examines. So most of them examine only new objects. Objects that have
survived a collection wait for a collection of everything, which is rare. So do all objects that exist when a collection
is due too early. Nearly everything is freed without a collection, as soon as the last reference is gone. Only objects
that refer to each other wait.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import time
from collections.abc import Callable

SHARE = 0.01
"""Of the time, at most, goes into full collections."""
EVERYTHING_SHARE = 0.0005
"""Likewise, into those that examine everything. With 100,000 links there is one in half an hour."""
PERIOD_SECONDS = 0.1
"""A flood of attaches makes 20,000 objects in that time, which take 5 milliseconds to examine."""
DUE_COLLECTIONS = 3
"""Collections of the middle generation after which a full one is due. It examines about 25,000 new objects, in 10
milliseconds. After 10, as is usual in Python, there are four times as many."""
DUE_CONNECTIONS = 256
"""Connections that have ended, after which their memory is given back to the system; fewer if they had much."""
_NEVER = 2**31 - 1

_trim_memory: Callable[[int], int] = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)
"""Of glibc; other C libraries give memory back by themselves, or have nothing like it."""


class FullCollections:
    """Those of this process, from now on. Memory is given back to the system in the same share of the time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, finished: Callable[[], int]) -> None:
        """`finished`: how many connections have ended so far. One that had much memory counts more."""
        self._loop = loop
        self._finished = finished
        self._known = finished()
        """Connections that had ended when memory was given back last."""
        self._due = DUE_CONNECTIONS
        self._next = 0.0
        begun = time.monotonic()
        gc.collect()
        gc.freeze()  # also modules and configuration, which stay: there is no point in going through them again
        self._everything_at = _after(begun, EVERYTHING_SHARE)
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)
        loop.call_later(PERIOD_SECONDS, self._look)

    def _look(self) -> None:
        self._loop.call_later(PERIOD_SECONDS, self._look)
        begun = time.monotonic()
        due = gc.get_count()[2] >= DUE_COLLECTIONS
        if begun < self._next:
            if due:
                gc.freeze()  # so that the next one does not take the longer, the later it comes
            return
        finished = self._finished()
        many = finished - self._known >= self._due
        # What a few more connections leave behind, after many, is given back as well.
        self._due = 1 if many else DUE_CONNECTIONS
        if due:
            self._collect(begun)
        if many:
            self._known = finished
            _trim_memory(0)
        self._next = _after(begun, SHARE)

    def _collect(self, begun: float) -> None:
        everything = begun >= self._everything_at
        if everything:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        if everything:
            self._everything_at = _after(begun, EVERYTHING_SHARE)


def _after(begun: float, share: float) -> float:
    """When what has taken from `begun` until now may be done again, so that it takes this share of the time."""
    ended = time.monotonic()
    return ended + (ended - begun) / share
