"""Tasks that somebody owns: ended with their owner, none forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


class Tasks:
    """What is under way."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Begin; an error of it is told by the event loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """End all of them."""
        for task in self._tasks:
            task.cancel()
