"""Places that the tasks of all namespaces share: namespaces take turns (`turns.py`)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from .turns import Key, Turn, Turns

_Result = TypeVar("_Result")

MAX_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""Threads that asyncio has by default."""
THREAD_SECONDS = 0.001
"""CPU time that counts as one turn: most calls take less, and some take seconds."""
SLOW_SECONDS = 1.0
"""A namespace with a use that takes longer is slow, from then on."""
SLOW_MEMORY = 10.0
"""It is slow until this many times as long as the use took have passed since its end. So slow namespaces that pause, or
that have quick uses in between, have more than their part of the places for less than a tenth of the time. A namespace
that only waits meanwhile stays slow."""
THREAD_CREDIT = 300.0
"""Turns. A change of a small namespace needs about 12 calls with about 20 ms of CPU time together."""


@dataclass
class Use:
    """The use of a place."""

    cost: float = 0.0
    """What it counts as beside one turn, in turns."""


class CutError(Exception):
    """The use of a place was ended because it took long, as did many others."""


@dataclass
class _Slow:
    """What is known of a slow namespace."""

    late: int = 0
    """Uses under way that take long."""
    until: float = 0.0
    """By the clock of the event loop."""
    has_quick: bool = False
    """Whether a use has ended in time since the last one that took long."""
    timer: asyncio.TimerHandle | None = None


class Slots:
    """`total` places, of which one namespace has at most `share` at a time, and all slow namespaces together at most
    `slow_share`, if it is stated. `late_share` uses that take long, although their namespaces were not slow, go on
    without a place, and others are cut. An idle namespace has `credit` turns in advance."""

    def __init__(
        self,
        total: int,
        share: int,
        credit: float,
        slow_share: int | None = None,
        late_share: int = 0,
    ) -> None:
        self._turns: Turns[asyncio.Future[Turn[Any]]] = Turns(total, share, credit, slow_share, late_share)
        self._watches = slow_share is not None
        self._slow: dict[Key, _Slow] = {}

    @property
    def idle(self) -> bool:
        """Whether nobody uses or awaits a place."""
        return self._turns.idle

    def is_waiting(self, namespace: Key) -> bool:
        """Return whether the namespace waits for its turn."""
        return self._turns.is_waiting(namespace)

    def begin(self, namespace: Key, early: int) -> None:
        """The namespace begins a piece of work. Its first `early` uses count less, so that short pieces go first."""
        self._turns.begin(namespace, early)

    def forget(self, namespace: Key) -> None:
        """The namespace begins no more work."""
        self._turns.forget(namespace)

    @asynccontextmanager
    async def slot(self, namespace: Key) -> AsyncIterator[Use]:
        """A place for the time of the context. Waits for the turn of the namespace. Raises CutError."""
        admitted: asyncio.Future[Turn[Any]] = asyncio.get_running_loop().create_future()
        self._turns.wait(namespace, admitted)
        self._admit()
        use = Use()
        try:
            turn = await admitted
            if self._watches:
                async with self._watched(turn):
                    yield use
            else:
                yield use
        finally:
            if admitted.cancelled():
                self._turns.withdraw(namespace, admitted)
            else:
                self._turns.leave(admitted.result(), use.cost)
                self._admit()

    def _admit(self) -> None:
        while (turn := self._turns.admit()) is not None:
            if turn.ticket.done():  # it was cancelled just before
                self._turns.leave(turn)
            else:
                turn.ticket.set_result(turn)

    @asynccontextmanager
    async def _watched(self, turn: Turn[Any]) -> AsyncIterator[None]:
        """The use of a place in this context may take long. Raises CutError."""
        loop = asyncio.get_running_loop()
        began, end = loop.time(), asyncio.timeout(None)
        slow: _Slow | None = None

        def late() -> None:
            nonlocal slow
            slow = self._slow.setdefault(turn.key, _Slow())
            slow.late += 1
            self._turns.slow(turn.key)
            if self._turns.late(turn):
                self._admit()
            else:
                end.reschedule(loop.time())

        timer = loop.call_later(SLOW_SECONDS, late)
        try:
            async with end:
                yield
        except TimeoutError as error:
            raise (CutError() if end.expired() else error) from None
        finally:
            timer.cancel()
            if slow is not None:
                slow.late -= 1
                slow.has_quick = False
                slow.until = max(slow.until, loop.time() + SLOW_MEMORY * (loop.time() - began))
                self._review(turn.key)
            elif turn.key in self._slow:
                self._slow[turn.key].has_quick = True

    def _review(self, namespace: Key) -> None:
        """A namespace is slow no more, or it may be so later."""
        slow, loop = self._slow[namespace], asyncio.get_running_loop()
        if slow.timer is not None:
            slow.timer.cancel()
            slow.timer = None
        if slow.late:
            return
        if loop.time() >= slow.until and self.is_waiting(namespace) and not slow.has_quick:
            slow.until = loop.time() + SLOW_MEMORY * SLOW_SECONDS
        if loop.time() < slow.until:
            slow.timer = loop.call_at(slow.until, self._review, namespace)
            return
        del self._slow[namespace]
        self._turns.quick(namespace)
        self._admit()


_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, Slots] = WeakKeyDictionary()
"""The threads of asyncio: each event loop has its own."""


def waits_for_thread(namespace: Key) -> bool:
    """Return whether the namespace waits for a thread."""
    return any(slots.is_waiting(namespace) for slots in list(_threads.values()))


async def in_thread(namespace: Key, function: Callable[..., _Result], *arguments: object) -> _Result:
    """The result of `function`, which a thread computes for the namespace. One namespace has one thread at a time."""
    loop = asyncio.get_running_loop()
    threads = _threads.get(loop)
    if threads is None:
        threads = _threads[loop] = Slots(MAX_THREADS, 1, THREAD_CREDIT)
    async with threads.slot(namespace) as use:
        return await asyncio.to_thread(_counted, use, partial(function, *arguments))


def _counted(use: Use, function: Callable[[], _Result]) -> _Result:
    """The result of `function`, whose CPU time is counted."""
    began = time.thread_time()
    try:
        return function()
    finally:
        use.cost = (time.thread_time() - began) / THREAD_SECONDS
