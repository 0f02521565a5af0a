"""Room for what large namespaces need: memory for their renderings, and time to compute them.

A rendering holds the values of all specifications of its namespace, which take many times as much memory as their text,
and the objects that the operator makes for them, which can be large where the specifications are small.
All namespaces together have a fixed amount for renderings that are large. One that was used stays until others need the
room. The largest go first, because each can be computed again. Large renderings are computed one at a time, with a
pause after each one, so that they take a fixed part of a processor. Small renderings have no part in this.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

SMALL_BYTES = 1024 * 1024
"""A rendering of this size is always retained, and never waits."""
SHARE_OF_MEMORY = 4
"""The large renderings of all namespaces have this part of the memory of the operator."""
MIN_ROOM_BYTES = 64 * 1024 * 1024
"""More than the specifications of one namespace may take (`specs.MAX_LONG_BYTES`)."""
DEFAULT_MEMORY_BYTES = 512 * 1024 * 1024
PAUSE_FACTOR = 1.0
"""The pause after a computation, as a multiple of its duration."""
MAX_PAUSE_SECONDS = 10.0
SECONDS_PER_MIB = 1.0
"""A namespace that needs one MiB more than another one goes first if it has waited for this many seconds longer."""


@dataclass
class _Place:
    size: int
    drop: Callable[[], None]
    since: float
    """When it was admitted."""
    busy: bool = True
    """A reconciliation uses the rendering, so that it cannot be dropped."""


class Room:
    """The large renderings. `memory` is that of the operator in bytes, `clock` is monotonic, in seconds."""

    def __init__(
        self, memory: int = DEFAULT_MEMORY_BYTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = max(MIN_ROOM_BYTES, memory // SHARE_OF_MEMORY)
        self._clock = clock
        self._places: dict[str, _Place] = {}
        self._queue: list[tuple[float, int, str, int, asyncio.Future[None]]] = []
        """Heap of the namespaces that wait, with the size that each one needs."""
        self._order = count()
        self._computing: str | None = None
        """The namespace whose rendering is computed."""
        self._rest_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def bytes(self) -> int:
        """Of all places."""
        return sum(place.size for place in self._places.values())

    def is_waiting(self, namespace: str) -> bool:
        """Return whether a reconciliation of the namespace waits for room."""
        return any(item[2] == namespace and not item[4].done() for item in self._queue)

    def admitted(self, namespace: str) -> float | None:
        """When the namespace was admitted, by the clock. None: its rendering is small, or there is none."""
        place = self._places.get(namespace)
        return place.since if place is not None else None

    async def enter(self, namespace: str, size: int, drop: Callable[[], None]) -> None:
        """Wait until there is room for another rendering of `namespace` of `size` bytes, instead of the one that it
        has. `drop` is called when others need the room, and no reconciliation uses the rendering."""
        self.forget(namespace)
        drop()
        if size <= SMALL_BYTES:
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due = self._clock() + SECONDS_PER_MIB * size / 1024**2
        heapq.heappush(self._queue, (due, next(self._order), namespace, size, admitted))
        self._admit()
        try:
            await admitted
        except asyncio.CancelledError:
            admitted.cancel()
            self.forget(namespace)
            raise
        self._places[namespace].drop = drop

    def rendered(self, namespace: str, size: int, drop: Callable[[], None]) -> None:
        """The rendering of `namespace` is complete, and takes `size` bytes."""
        place = self._places.get(namespace)
        if place is not None:
            place.size = size
        elif size > SMALL_BYTES:
            self._places[namespace] = _Place(size, drop, self._clock())
        self._rest(namespace)
        self._shrink(0)

    def use(self, namespace: str) -> None:
        """A reconciliation uses the rendering from now on, if there is one."""
        if (place := self._places.get(namespace)) is not None:
            place.busy = True

    def leave(self, namespace: str) -> None:
        """No reconciliation uses the rendering any more."""
        if (place := self._places.get(namespace)) is not None:
            place.busy = False
        self._rest(namespace)
        self._shrink(0)
        self._admit()

    def forget(self, namespace: str) -> None:
        """There is no rendering of `namespace` any more."""
        self._places.pop(namespace, None)
        self._rest(namespace)
        self._admit()

    def _rest(self, namespace: str) -> None:
        """Begin the pause if the rendering of `namespace` was computed."""
        if self._computing != namespace:
            return
        self._computing = None
        now, place = self._clock(), self._places.get(namespace)
        taken = now - place.since if place is not None else 0.0
        self._rest_until = now + min(MAX_PAUSE_SECONDS, PAUSE_FACTOR * taken)
        self._admit()

    def _admit(self) -> None:
        """Admit the first one in the queue if there is room."""
        while self._queue and self._queue[0][4].done():
            heapq.heappop(self._queue)
        if not self._queue or self._computing is not None:
            return
        wait = self._rest_until - self._clock()
        if wait > 0:
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(wait, self._wake)
            return
        _, _, namespace, size, admitted = self._queue[0]
        if not self._shrink(size):
            return
        heapq.heappop(self._queue)
        self._places[namespace] = _Place(size, lambda: None, self._clock())
        self._computing = namespace
        admitted.set_result(None)

    def _wake(self) -> None:
        self._timer = None
        self._admit()

    def _shrink(self, more: int) -> bool:
        """Drop renderings until there is room for `more` bytes, the largest first. Return whether there is."""
        idle = sorted((place.size, namespace) for namespace, place in self._places.items() if not place.busy)
        while self.bytes + more > self._most and idle:
            self._places.pop(idle.pop()[1]).drop()
        return self.bytes + more <= self._most or not self._places
