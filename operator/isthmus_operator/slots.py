"""Places that the tasks of all namespaces share: namespaces take turns (`turns.py`)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

from .turns import Key, Turns

_Result = TypeVar("_Result")

MAX_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""Threads that asyncio has by default."""
THREAD_SECONDS = 0.001
"""CPU time that counts as one turn: most calls take less, and some take seconds."""
SLOW_SECONDS = 1.0
"""A namespace with a use that takes longer is slow, from then on."""
SLOW_MEMORY = 10.0
"""It is slow until this many times as long as the use took have passed since its end. So slow namespaces that pause, or
that have quick uses in between, have more than their part of the places for less than a tenth of the time."""
THREAD_CREDIT = 300.0
"""Turns. A change of a small namespace needs about 12 calls with about 20 ms of CPU time together."""


@dataclass
class Use:
    """The use of a place."""

    cost: float = 0.0
    """What it counts as beside one turn, in turns."""


class Slots:
    """`total` places, of which one namespace has at most `share` at a time, and all slow namespaces together at most
    `slow_share`, if it is stated. An idle namespace has `credit` turns in advance."""

    def __init__(self, total: int, share: int, credit: float, slow_share: int | None = None) -> None:
        self._turns: Turns[asyncio.Future[None]] = Turns(total, share, credit, slow_share)
        self._watches = slow_share is not None

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
        """A place for the time of the context. Waits for the turn of the namespace."""
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.wait(namespace, admitted)
        self._admit()
        use = Use()
        watch: _Watch | None = None
        try:
            await admitted
            watch = _Watch(self, namespace) if self._watches else None
            yield use
        finally:
            if watch is not None:
                watch.end()
            if admitted.cancelled():
                self._turns.withdraw(namespace, admitted)
            else:
                self._turns.leave(namespace, use.cost)
                self._admit()

    def slow(self, namespace: Key) -> None:
        """A use of the namespace takes long."""
        self._turns.slow(namespace)

    def quick(self, namespace: Key) -> None:
        """A use that took long is so long ago that it does not count any more."""
        self._turns.quick(namespace)
        self._admit()

    def _admit(self) -> None:
        while (found := self._turns.admit()) is not None:
            namespace, admitted = found
            if admitted.done():  # it was cancelled just before
                self._turns.leave(namespace)
            else:
                admitted.set_result(None)


class _Watch:
    """The duration of a use of a place."""

    def __init__(self, slots: Slots, namespace: Key) -> None:
        self._slots, self._namespace = slots, namespace
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._is_slow = False
        self._timer = self._loop.call_later(SLOW_SECONDS, self._slow)

    def end(self) -> None:
        """The use has ended."""
        self._timer.cancel()
        if self._is_slow:
            memory = SLOW_MEMORY * (self._loop.time() - self._began)
            self._loop.call_later(memory, self._slots.quick, self._namespace)

    def _slow(self) -> None:
        self._is_slow = True
        self._slots.slow(self._namespace)


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
