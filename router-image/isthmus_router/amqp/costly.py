"""Steps of logins that take milliseconds each: one after the other, between other things.

In a login with SCRAM, both ends hash the password thousands of times. The SASL library does that in one call, and all
other connections wait meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Final

MOST_LOOKED_AT: Final = 64
"""Lines whose first steps are not due, one after the other, until all are left for later."""
AGAIN_SECONDS: Final = 1.0

Step = Callable[[], bool]
"""Returns whether it is done with; False: it waits for others, or for time to pass."""


class CostlySteps:
    """Those of all connections of a router, in lines that take turns: nobody waits for all steps of another line."""

    def __init__(self, work: Callable[[Iterator[None]], None], loop: asyncio.AbstractEventLoop) -> None:
        """`work` carries out a job step by step."""
        self._work = work
        self._loop = loop
        self._lines: OrderedDict[str, deque[Step]] = OrderedDict()
        self._at_work = self._comes_back = False

    def __len__(self) -> int:
        """Steps that wait."""
        return sum(map(len, self._lines.values()))

    def add(self, line: str, step: Step) -> None:
        """Do it when it is its turn, after others of the line."""
        self._lines.setdefault(line, deque()).append(step)
        self.go_on()

    def go_on(self) -> None:
        """Steps that wait may be due."""
        if self._lines and not self._at_work:
            self._at_work = True
            self._work(self._all())

    def _all(self) -> Iterator[None]:
        idle = 0
        while idle < min(len(self._lines), MOST_LOOKED_AT):
            line, steps = next(iter(self._lines.items()))
            self._lines.move_to_end(line)
            if not steps[0]():
                idle += 1
                continue
            steps.popleft()
            if not steps:
                del self._lines[line]
            idle = 0
            yield
        self._at_work = False
        if self._lines and not self._comes_back:
            self._comes_back = True
            self._loop.call_later(AGAIN_SECONDS, self._again)

    def _again(self) -> None:
        self._comes_back = False
        self.go_on()
