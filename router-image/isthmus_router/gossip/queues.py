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
"""Bytes as which a shorter message counts: its receiver has work with each one, however short."""
MOST_ABSENT = 4
"""Senders of which nothing waits, and that are remembered, beside as many as have messages."""


class Message(Protocol):
    """A message that waits."""

    @property
    def frame(self) -> bytes:
        """What is written."""

    @property
    def cost(self) -> int:
        """What it counts: its bytes, and at least `LEAST_COST`."""


K = TypeVar("K", bound=Hashable)
M = TypeVar("M", bound=Message)
H = TypeVar("H", bound=Hashable)


class _Flow(Generic[M]):
    """The messages of one sender."""

    __slots__ = ("cost", "had", "messages")

    def __init__(self) -> None:
        self.messages: deque[M] = deque()
        self.cost = 0
        """Of these."""
        self.had = 0
        """The cost of those that it has had, as the queue counts it, while none waits."""


class FairQueue(Generic[K, M, H]):
    """Of one receiver: messages `M` by sender `K`; `H` is held while too much of a sender waits."""

    def __init__(self, most: int) -> None:
        """`most`: cost of the messages of one sender, from which on it is to be held."""
        self._most = most
        self._flows: dict[K, _Flow[M]] = {}
        self._turns: list[tuple[int, int, _Flow[M]]] = []
        """A heap of those with messages: by what each has had, and by the order in which they came."""
        self._number = 0
        self._had = 0
        """What a sender of which nothing waited has had at least: as much as one that has messages."""
        self._held: dict[_Flow[M], dict[H, None]] = {}
        self.released: list[H] = []
        """Those that are held no longer."""

    def put(self, key: K, message: M) -> bool:
        """Add a message of a sender. Returns whether so much of the sender waits that it is to be held."""
        flow = self._flows.get(key)
        if flow is None or not flow.messages:
            flow = self._begin(key, flow)
        flow.messages.append(message)
        flow.cost = cost = flow.cost + message.cost
        return cost >= self._most

    def _begin(self, key: K, flow: _Flow[M] | None) -> _Flow[M]:
        """A sender has messages again, or for the first time."""
        if flow is None:
            if len(self._flows) > 2 * len(self._turns) + MOST_ABSENT:
                self._forget()
            flow = self._flows[key] = _Flow()
        self._number += 1
        heappush(self._turns, (max(flow.had, self._had), self._number, flow))
        return flow

    def _forget(self) -> None:
        """Forget senders of which nothing waits, as far as it is of no effect what they have had."""
        turns, had = self._turns, self._had
        self._flows = {
            key: flow for key, flow in self._flows.items() if flow.messages or (turns and flow.had > had)
        }

    def hold(self, key: K, holder: H) -> None:
        """Of the sender waits too much: the holder is `released` when less does."""
        self._held.setdefault(self._flows[key], {})[holder] = None

    def take(self, size: int) -> list[M]:
        """The next messages: none beyond one with which they have so many bytes."""
        taken: list[M] = []
        turns = self._turns
        while turns and size > 0:
            had, number, flow = turns[0]
            messages = flow.messages
            if len(turns) == 1 and flow.cost <= size:
                cost, size = flow.cost, 0
                taken += messages
                messages.clear()
            else:
                cost = 0
                while messages and size > 0:
                    message = messages.popleft()
                    taken.append(message)
                    size -= len(message.frame)
                    cost += message.cost
                    if len(turns) > 1:
                        break
            flow.cost -= cost
            had += cost
            if messages:
                heapreplace(turns, (had, number, flow))
                self._had = had - message.cost
            else:
                heappop(turns)
                flow.had = had
                self._had = turns[0][0] if turns else had
            if self._held and flow.cost < self._most and flow in self._held:
                self.released += self._held.pop(flow)
        return taken

    def clear(self) -> list[M]:
        """Drop all messages, which it returns, and release all that are held."""
        taken = [message for _, _, flow in self._turns for message in flow.messages]
        self.released += (holder for holders in self._held.values() for holder in holders)
        self._held.clear()
        self._flows.clear()
        self._turns.clear()
        return taken
