"""Work of many connections that is done in turns, so that none holds up the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

TURN_SECONDS = 0.004
"""For the work of all connections, between two looks at the sockets."""


class Worker(Protocol):
    """A connection that has received more than it has dealt with."""

    def work(self, seconds: float) -> bool:
        """Deal with some of it, for so long. Returns whether some is left."""


class Turns:
    """Calls those that have work, one after the other, until they have none."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """`seconds` is the part of a turn that one of them has."""
        self._loop = loop
        self._seconds = seconds
        self._waiting: deque[Worker] = deque()

    def add(self, worker: Worker) -> None:
        """It has work, and had none before."""
        if not self._waiting:
            self._loop.call_soon(self._turn)
        self._waiting.append(worker)

    def _turn(self) -> None:
        waiting, end = self._waiting, self._loop.time() + TURN_SECONDS
        try:
            for _ in range(len(waiting)):
                if waiting[0].work(self._seconds):
                    waiting.rotate(-1)
                else:
                    waiting.popleft()
                if self._loop.time() >= end:
                    break
        finally:
            if waiting:
                self._loop.call_soon(self._turn)
