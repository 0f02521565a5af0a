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
THREAD_CREDIT = 300.0
"""Turns. A change of a small namespace needs about 12 calls with about 20 ms of CPU time together."""


@dataclass
class Use:
    """The use of a place."""

    cost: float = 0.0
    """What it counts as beside one turn, in turns."""


class Slots:
    """`total` places, of which one namespace has at most `share` at a time. An idle namespace has `credit` turns in
    advance."""

    def __init__(self, total: int, share: int, credit: float) -> None:
        self._turns: Turns[asyncio.Future[None]] = Turns(total, share, credit)

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
        try:
            await admitted
            yield use
        finally:
            if admitted.cancelled():
                self._turns.withdraw(namespace, admitted)
            else:
                self._turns.leave(namespace, use.cost)
                self._admit()

    def _admit(self) -> None:
        while (found := self._turns.admit()) is not None:
            namespace, admitted = found
            if admitted.done():  # it was cancelled just before
                self._turns.leave(namespace)
            else:
                admitted.set_result(None)


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
