"""Requests to `$management` that wait: connections have their turns, so that none of them holds back the others."""

from __future__ import annotations

from collections import deque

from isthmus_router.management.port import Requester

MOST_BYTES = 4 * 1024 * 1024
MOST_REQUESTS = 1000
MOST_OF_ONE = 100
"""Requests that one connection has waiting; all that come from other routers count as one connection."""


class WaitingRequests:
    """A queue for each connection; the connections take turns."""

    def __init__(self) -> None:
        self._queues: dict[int | None, deque[tuple[bytes, Requester]]] = {}
        """By connection, in the order of their turns. None is empty."""
        self._bytes = 0
        self._requests = 0

    def __len__(self) -> int:
        return self._requests

    def add(self, payload: bytes, requester: Requester) -> list[str]:
        """Let a request wait, if need be in place of others.

        Returns why a request is dropped, once for each: this one, or the last of the connection that has the most
        requests or bytes waiting.
        """
        own, size = requester.connection_id, len(payload)
        if size > MOST_BYTES:
            return [f"more than {MOST_BYTES} bytes"]
        if len(self._queues.get(own, ())) >= MOST_OF_ONE:
            return [f"{MOST_OF_ONE} requests of one connection wait"]
        dropped: list[str] = []
        while (full := self._bytes + size > MOST_BYTES) or self._requests >= MOST_REQUESTS:
            measure, more = (self._size, size) if full else (self._count, 1)
            longest = max(self._queues, key=measure)
            if measure(longest) <= measure(own) + more:
                return [*dropped, "too many requests wait"]
            self._take_from(longest, last=True)
            dropped.append("requests of other connections wait")
        self._queues.setdefault(requester.connection_id, deque()).append((payload, requester))
        self._requests += 1
        self._bytes += len(payload)
        return dropped

    def _count(self, connection: int | None) -> int:
        return len(self._queues.get(connection, ()))

    def _size(self, connection: int | None) -> int:
        return sum(len(payload) for payload, _ in self._queues.get(connection, ()))

    def take(self) -> tuple[bytes, Requester]:
        """The next request: the first one of the connection whose turn it is."""
        connection = next(iter(self._queues))
        request = self._take_from(connection)
        if (queue := self._queues.pop(connection, None)) is not None:
            self._queues[connection] = queue
        return request

    def _take_from(self, connection: int | None, *, last: bool = False) -> tuple[bytes, Requester]:
        queue = self._queues[connection]
        request = queue.pop() if last else queue.popleft()
        self._requests -= 1
        self._bytes -= len(request[0])
        if not queue:
            del self._queues[connection]
        return request
