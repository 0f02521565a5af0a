"""Steps of logins that take milliseconds each: one after the other, between other things.

With SCRAM, whoever checks or proves a password hashes it thousands of times. The mechanism does that within one call,
so the connections of everybody else wait for it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Final

MOST_LOOKED_AT: Final = 64
"""Steps that are not due, one after the other, until all are left for later."""
AGAIN_SECONDS: Final = 1.0

Step = Callable[[], bool]
"""Returns whether it is done with; False: it waits for others, or for time to pass."""


class CostlySteps:
    """Those of all connections of a router. Hosts take turns, so that nobody waits for all steps of another host."""

    def __init__(self, work: Callable[[Iterator[None]], None], loop: asyncio.AbstractEventLoop) -> None:
        """`work` carries out a job step by step."""
        self._work = work
        self._loop = loop
        self._waiting: OrderedDict[str, deque[Step]] = OrderedDict()
        """By host."""
        self._count = 0
        self._at_work = self._comes_back = False

    def __len__(self) -> int:
        """Steps that wait."""
        return self._count

    def add(self, host: str, step: Step) -> None:
        """Do it when it is its turn."""
        self._waiting.setdefault(host, deque()).append(step)
        self._count += 1
        self.go_on()

    def go_on(self) -> None:
        """Steps that wait may be due."""
        if self._waiting and not self._at_work:
            self._at_work = True
            self._work(self._all())

    def _all(self) -> Iterator[None]:
        idle = 0
        while idle < min(self._count, MOST_LOOKED_AT):
            host, steps = self._waiting.popitem(last=False)
            step = steps.popleft()
            done = step()
            if not done:
                steps.append(step)
            if steps:
                self._waiting[host] = steps
            if done:
                self._count -= 1
                idle = 0
                yield
            else:
                idle += 1
        self._at_work = False
        if self._waiting and not self._comes_back:
            self._comes_back = True
            self._loop.call_later(AGAIN_SECONDS, self._again)

    def _again(self) -> None:
        self._comes_back = False
        self.go_on()
