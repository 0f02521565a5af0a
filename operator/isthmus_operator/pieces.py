"""Work of the event loop in short pieces, so that other tasks have their turns in between.

A tenant decides how many resources a namespace has. A loop over all of them, or a task for each of them, would occupy
the event loop in one piece, and the Lease, the probes and all other namespaces would wait meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

PIECE_SECONDS = 0.004
"""CPU time after which other tasks have their turns."""
TASKS_AT_ONCE = 4
"""Tasks that begin in one iteration of the event loop. Each works until it awaits something for the first time."""


async def paced(items: Iterable[_Item]) -> AsyncIterator[_Item]:
    """Yield `items`. Other tasks have their turns each time that the work on them has taken `PIECE_SECONDS`."""
    began = time.thread_time()
    for item in items:
        yield item
        if time.thread_time() - began >= PIECE_SECONDS:
            await asyncio.sleep(0)
            began = time.thread_time()


async def gathered(work: Iterable[Coroutine[Any, Any, _Result]]) -> list[_Result | BaseException]:
    """The results and exceptions of `work`, which runs concurrently and begins in pieces."""
    tasks: list[asyncio.Task[_Result]] = []
    remaining = iter(work)
    try:
        while piece := list(islice(remaining, TASKS_AT_ONCE)):
            tasks += map(asyncio.create_task, piece)
            await asyncio.sleep(0)
        return await asyncio.gather(*tasks, return_exceptions=True)
    except BaseException:
        for task in tasks:
            task.cancel()
        raise


def results(outcomes: Iterable[_Result | BaseException]) -> Iterator[_Result]:
    """The results of `gathered`. Raises the first exception."""
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        yield outcome
