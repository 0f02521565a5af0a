"""The queue of messages that wait for one receiver. Its senders have turns, so that none delays the others. Sans-IO.

Messages of one sender keep their order. Of several senders, the one that has had the least has its turn (start-time
fair queueing): each counts the cost of the messages that it has had, and a sender of which nothing waited counts on
from where those are that have messages. A sender of which too much waits can be held until less does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from heapq import heappop, heappush, heapreplace
from typing import Generic, Protocol, TypeVar

LEAST_COST = 512
"""Bytes as which a short message counts: its receiver has work with each one, however short."""
MOST_ABSENT = 64
"""Senders of which nothing waits, and whose count is kept, beside as many as have messages."""


class Message(Protocol):
    """A message that waits."""

    @property
    def size(self) -> int:
        """Its bytes."""

    @property
    def cost(self) -> int:
        """What it counts: `cost_of` its bytes."""


K = TypeVar("K", bound=Hashable)
M = TypeVar("M", bound=Message)
H = TypeVar("H", bound=Hashable)


def cost_of(size: int) -> int:
    """What a message of so many bytes counts."""
    return size if size > LEAST_COST else LEAST_COST


class _Flow(Generic[M, H]):
    """The messages of one sender."""

    __slots__ = ("cost", "had", "held", "messages")

    def __init__(self, had: int) -> None:
        self.messages: deque[M] = deque()
        self.cost = 0
        """Of these."""
        self.had = had
        """The cost of those that it has had, as the queue counts it, while none waits."""
        self.held: dict[H, None] = {}


class FairQueue(Generic[K, M, H]):
    """Of one receiver: messages `M` by sender `K`; `H` is held while too much of a sender waits."""

    def __init__(self, most: int) -> None:
        """`most`: cost of the messages of one sender, from which on it is to be held."""
        self._most = most
        self._flows: dict[K, _Flow[M, H]] = {}
        self._turns: list[tuple[int, int, _Flow[M, H]]] = []
        """A heap of those with messages: by what each has had, and by the order in which they came."""
        self._number = 0
        self._had = 0
        """What a sender of which nothing waited has had at least: as much as the one of the last turn had before."""
        self._released: list[H] = []

    def __bool__(self) -> bool:
        return bool(self._turns)

    def put(self, key: K, message: M) -> bool:
        """Add a message of a sender. Returns whether so much of the sender waits that it is to be held."""
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = _Flow(0)
        if not flow.messages:
            self._number += 1
            heappush(self._turns, (max(flow.had, self._had), self._number, flow))
        flow.messages.append(message)
        flow.cost += message.cost
        return flow.cost >= self._most

    def hold(self, key: K, holder: H) -> None:
        """`released` is to return the holder when less of the sender waits, of which too much does."""
        self._flows[key].held[holder] = None

    def released(self) -> list[H]:
        """Those that are held no longer, since the last call."""
        released, self._released = self._released, []
        return released

    def take(self, size: int) -> list[M]:
        """The next messages: none beyond one with which they have so many bytes."""
        taken: list[M] = []
        turns = self._turns
        while turns and size > 0:
            self._had, number, flow = turns[0]
            messages, alone = flow.messages, len(turns) == 1
            cost = 0
            while messages and size > 0:
                message = messages.popleft()
                taken.append(message)
                size -= message.size
                cost += message.cost
                if not alone:
                    break
            flow.cost -= cost
            if messages:
                heapreplace(turns, (self._had + cost, number, flow))
            else:
                heappop(turns)
                flow.had = self._had + cost
            if flow.held and flow.cost < self._most:
                self._released += flow.held
                flow.held.clear()
        self._forget()
        return taken

    def clear(self) -> list[M]:
        """Drop all messages, which it returns, and release all that are held."""
        taken = [message for _, _, flow in self._turns for message in flow.messages]
        self._released += (holder for _, _, flow in self._turns for holder in flow.held)
        self._flows.clear()
        self._turns.clear()
        return taken

    def _forget(self) -> None:
        """Forget what those have had of which nothing waits, where that is of no effect any more."""
        if not self._turns:
            self._flows.clear()
            self._had = 0
        elif len(self._flows) > 2 * len(self._turns) + MOST_ABSENT:
            self._flows = {
                key: flow for key, flow in self._flows.items() if flow.messages or flow.had > self._had
            }
