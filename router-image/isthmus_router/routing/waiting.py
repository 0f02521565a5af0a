"""Updates of addresses that are read in steps: those that wait, and whose turn it is.

Updates of one router are read in the order in which they came, those of different routers in turns. What comes on one
control link is read at a bounded rate, and waits within a bound: it is asked for again when there is room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .nodes import RouterNode

STEP = 64
"""Addresses that are read, or taken over, in one piece."""
MOST_UPDATES = 64
"""Of one router that wait."""
MOST_WAITING_BYTES, MOST_WAITING_BYTES_OF_ALL = 2**25, 2**27
"""In updates of one control link, and of all."""
ADDRESSES_READ = 20_000
"""In a second of one control link, each counted when it is read and when it is taken over."""
SECONDS_OF_READING = 100.0
"""Seconds' worth of that may be read at a time: a router that joins learns the addresses of all others at once."""


@dataclass(slots=True)
class _Update:
    node: RouterNode
    life: int
    link: int
    size: int
    steps: Iterator[bool]


class WaitingUpdates:
    """Those of all other routers."""

    def __init__(self, is_known: Callable[[RouterNode], bool]) -> None:
        self._is_known = is_known
        self._queues: dict[str, deque[_Update]] = {}
        """By router, the one first whose turn is next."""
        self._bytes: dict[int, int] = {}
        """In what waits, by control link."""
        self._read_at: dict[int, float] = {}
        """When all that has been read of a control link would have been, at the rate that is allowed."""

    def add(self, node: RouterNode, link: int, size: int, steps: Iterator[bool]) -> bool:
        """Have an update wait; False: there is no room."""
        queue = self._queues.get(node.id, ())
        of_link = self._bytes.get(link, 0)
        if (
            len(queue) >= MOST_UPDATES
            or of_link + size > MOST_WAITING_BYTES
            or sum(self._bytes.values()) + size > MOST_WAITING_BYTES_OF_ALL
        ):
            return False
        self._bytes[link] = of_link + size
        update = _Update(node, node.mobile.life, link, size, steps)
        self._queues.setdefault(node.id, deque()).append(update)
        node.updating += 1
        return True

    def ready(self, now: float) -> bool:
        """Whether one can be read on."""
        return any(self._at(queue[0]) <= now for queue in self._queues.values())

    def due(self, now: float) -> float:
        """When the next one can, that cannot now; infinity without one."""
        times = (self._at(queue[0]) for queue in self._queues.values())
        return min((at for at in times if at > now), default=float("inf"))

    def _at(self, update: _Update) -> float:
        return self._read_at.get(update.link, 0.0) - SECONDS_OF_READING

    def next(self, now: float) -> tuple[RouterNode, int, Iterator[bool]] | None:
        """Whose turn it is. What is of a router that is forgotten, or of a former life, is dropped."""
        for router in list(self._queues):
            queue = self._queues[router]
            update = queue[0]
            if not self._is_known(update.node) or update.life != update.node.mobile.life:
                self.done(router)
            elif self._at(update) <= now:
                self._queues[router] = self._queues.pop(router)
                self._read_at[update.link] = (
                    max(self._read_at.get(update.link, now), now) + STEP / ADDRESSES_READ
                )
                return update.node, update.link, update.steps
        return None

    def done(self, router: str) -> None:
        """The first update of a router has been read, or is dropped."""
        queue = self._queues[router]
        update = queue.popleft()
        update.node.updating -= 1
        self._bytes[update.link] -= update.size
        if not self._bytes[update.link]:
            del self._bytes[update.link]
        if not queue:
            del self._queues[router]
