"""Work of many connections in turns, so that none of them holds up the event loop or the others.

All connections together have a budget of time in each iteration of the event loop. A connection that has received
something deals with it immediately while the budget lasts and no other connection waits. Otherwise it waits for its
turn, and the connection that has had the least time comes first (start-time fair queueing): each counts the CPU time
that it has had, and one that had nothing to do counts on from where those are that have. Budgets are of elapsed time,
which costs less to read. If connections counted elapsed time as well, one during whose turn other processes have the
processor would wait until each of the others had had as much.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

TURN_SECONDS = 0.004
"""Budget of all connections together, between two polls of the sockets."""
LONGEST_SECONDS = 0.002
SHORTEST_SECONDS = 0.00005
"""Bounds of the time that one connection has before others have theirs."""
UNCOUNTED_SECONDS = TURN_SECONDS / 8
"""Time used for work that is dealt with immediately, until the event loop is asked when its iteration ends."""


class Worker(Protocol):
    """A connection that has received more than it has dealt with."""

    served: float
    """CPU seconds that it has had while others waited, as `Turns` counts them. It begins with 0."""

    def work(self, end: float) -> bool:
        """Deal with it until about `end`, by the monotonic clock. Return whether some is left."""

    def break_off(self) -> None:
        """End, as `work` has raised an exception, which the event loop logs."""


class Turns:
    """Calls the workers that have something to do, each for a short time, until they have nothing left."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._waiting: list[tuple[float, int, Worker]] = []
        """A heap: by the time that each has had, and by the order in which they came."""
        self._number = 0
        self._counted = 0.0
        """What a worker that had nothing to do has had at least: as much as the one that was called last."""
        self._spent = 0.0
        """Seconds of the budget of this iteration."""
        self._scheduled = False

    def ready(self, worker: Worker) -> None:
        """The worker has something to do, and had nothing before: it begins immediately, or waits for its turn."""
        if self._waiting or self._spent > TURN_SECONDS - LONGEST_SECONDS:
            self.add(worker)
            return
        if worker.served < self._counted:
            worker.served = self._counted
        else:
            self._counted = worker.served
        start = self._clock()
        left = _work(worker, start + LONGEST_SECONDS)
        self._spent += self._clock() - start
        if left:
            worker.served += LONGEST_SECONDS
            self._wait(worker)
        elif self._spent >= UNCOUNTED_SECONDS:
            self._schedule()

    def add(self, worker: Worker) -> None:
        """The worker has something to do, and had nothing before: it waits for its turn."""
        worker.served = max(worker.served, self._counted)
        self._wait(worker)

    def _wait(self, worker: Worker) -> None:
        self._number += 1
        heappush(self._waiting, (worker.served, self._number, worker))
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """An iteration of the event loop begins."""
        self._scheduled = False
        waiting, clock, cpu_clock = self._waiting, self._clock, self._cpu_clock
        begin = now = clock()
        used = cpu_clock()
        try:
            while waiting and now < begin + TURN_SECONDS:
                part = min(LONGEST_SECONDS, max(SHORTEST_SECONDS, TURN_SECONDS / len(waiting)))
                self._counted, _, worker = heappop(waiting)
                left = _work(worker, now + part)
                now = clock()
                before, used = used, cpu_clock()
                worker.served += used - before
                if left:
                    self._wait(worker)
        finally:
            self._spent = now - begin
            if waiting or self._spent >= UNCOUNTED_SECONDS:
                self._schedule()


def _work(worker: Worker, end: float) -> bool:
    try:
        return worker.work(end)
    except Exception:
        worker.break_off()
        raise
