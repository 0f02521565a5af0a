"""Heartbeats and idle time-outs of all connections of a router process.

Connections that are due together take their turns in slices, between other things: a client can have thousands of
connections that do nothing but ask for heartbeats.
"""

from __future__ import annotations

import heapq
import logging
import time
from asyncio import Handle
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection
    from isthmus_router.amqp.driver import Driver

log = logging.getLogger("SERVER")

BEATS_AT_ONCE = 32
"""Connections that are due and are written to in one step, which takes less than a millisecond."""
MOST_STALE = 100
"""Entries of ended connections that are always left in the heap."""


class Heartbeats:
    """When which connection is due."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._due: list[tuple[float, int]] = []
        """A heap of times and connections, with entries of connections that have ended or are due at another time."""
        self._times: dict[int, float] = {}
        """When each connection is due, by its id."""
        self._timer: Handle | None = None
        self._timer_at = 0.0
        self._under_way = False
        """Whether connections are being dealt with."""

    def plan(self, connection: AmqpConnection, seconds: float) -> None:
        """Have the engine of a connection look at its time-outs in `seconds`, and not as planned before."""
        at = time.monotonic() + seconds
        self._times[connection.id] = at
        heapq.heappush(self._due, (at, connection.id))
        if not self._under_way and (self._timer is None or at < self._timer_at):
            self._wait()

    def forget(self, connection: AmqpConnection) -> None:
        """The connection has ended."""
        self._times.pop(connection.id, None)
        if len(self._due) > 2 * len(self._times) + MOST_STALE:
            self._due = [(at, number) for number, at in self._times.items()]
            heapq.heapify(self._due)

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            self._timer_at = self._due[0][0]
            delay = max(0.0, self._timer_at - time.monotonic())
            self._timer = self._driver.loop.call_later(delay, self._start)

    def _start(self) -> None:
        self._timer = None
        self._under_way = True
        self._driver.work(self._beat())

    def _beat(self) -> Iterator[None]:
        try:
            while self._deal_with_some():
                yield
        except Exception as error:
            log.error("internal error", exc_info=error)
        self._under_way = False
        self._wait()

    def _deal_with_some(self) -> bool:
        """Deal with the connections that have been due for longest; whether there are more."""
        connections = self._driver.connections
        now = time.monotonic()
        left = BEATS_AT_ONCE
        while left and self._due and self._due[0][0] <= now:
            at, number = heapq.heappop(self._due)
            left -= 1
            if self._times.get(number) != at:
                continue
            del self._times[number]
            connection = connections.get(number)
            if connection is not None:
                try:
                    connection.tick()
                except Exception as error:
                    connection.broken(error)
        self._driver.flush()
        return not left
