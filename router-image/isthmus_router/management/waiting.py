"""Requests to `$management` that wait: connections have their turns, so that none of them holds back the others.

A connection to a router brings requests of many: within it, the routers at which they entered the network take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from isthmus_router.management.port import Requester

MOST_BYTES = 4 * 1024 * 1024
LARGEST_BYTES = 256 * 1024
"""Of a request: a part of the work on it takes time by its size, and is not divided."""
MOST_REQUESTS = 1000
MOST_OF_ONE = 100
"""Requests that wait of one client's connection, or of one router at which they entered the network."""
MOST_ORIGINS = 128
"""Routers of one connection that are told apart; the others count as one."""

Waiting = tuple[bytes, Requester]


class WaitingRequests:
    """A queue for each connection and router of origin; the connections take turns, and so do the routers of each."""

    def __init__(self) -> None:
        self._queues: dict[int | None, dict[str, deque[Waiting]]] = {}
        """By connection and origin, in the order of their turns. None is empty."""
        self._bytes = 0
        self._requests = 0

    def __len__(self) -> int:
        return self._requests

    def add(self, payload: bytes, requester: Requester) -> list[str]:
        """Let a request wait, if need be in place of others.

        Returns why a request is dropped, once for each: this one, or the last of the connection that has the most
        requests or bytes waiting.
        """
        own, size = requester.waits_with, len(payload)
        if size > LARGEST_BYTES:
            return [f"more than {LARGEST_BYTES} bytes"]
        origins = self._queues.get(own, {})
        origin = requester.origin if requester.origin in origins or len(origins) < MOST_ORIGINS else ""
        if len(origins.get(origin, ())) >= MOST_OF_ONE:
            return [f"{MOST_OF_ONE} requests of one connection or router wait"]
        dropped: list[str] = []
        while (full := self._bytes + size > MOST_BYTES) or self._requests >= MOST_REQUESTS:
            measure, more = (_size, size) if full else (_count, 1)
            found = {connection: sum(map(measure, of.values())) for connection, of in self._queues.items()}
            longest = max(found, key=lambda connection: found[connection])
            if found[longest] > found.get(own, 0) + more:
                self._take_from(longest, self._longest_of(longest, measure), last=True)
                dropped.append("requests of other connections wait")
                continue
            # The connection itself has most: one of its routers may have less than another.
            origins = self._queues.get(own, {})
            longest_origin = self._longest_of(own, measure) if origins else origin
            if (
                not origins
                or measure(origins[longest_origin]) <= measure(origins.get(origin, deque())) + more
            ):
                return [*dropped, "too many requests wait"]
            self._take_from(own, longest_origin, last=True)
            dropped.append("requests of other routers wait")
        self._queues.setdefault(own, {}).setdefault(origin, deque()).append((payload, requester))
        self._requests += 1
        self._bytes += size
        return dropped

    def _longest_of(self, connection: int | None, measure: Callable[[deque[Waiting]], int]) -> str:
        origins = self._queues[connection]
        return max(origins, key=lambda origin: measure(origins[origin]))

    def take(self) -> Waiting:
        """The next request: the first one of the connection, and of its router, whose turn it is."""
        connection = next(iter(self._queues))
        origins = self._queues[connection]
        origin = next(iter(origins))
        request = self._take_from(connection, origin)
        if (queue := origins.pop(origin, None)) is not None:
            origins[origin] = queue
        if origins:
            self._queues[connection] = self._queues.pop(connection)
        return request

    def _take_from(self, connection: int | None, origin: str, *, last: bool = False) -> Waiting:
        origins = self._queues[connection]
        queue = origins[origin]
        request = queue.pop() if last else queue.popleft()
        self._requests -= 1
        self._bytes -= len(request[0])
        if not queue:
            del origins[origin]
            if not origins:
                del self._queues[connection]
        return request


def _count(queue: deque[Waiting]) -> int:
    return len(queue)


def _size(queue: deque[Waiting]) -> int:
    return sum(len(payload) for payload, _ in queue)
