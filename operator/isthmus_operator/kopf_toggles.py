"""What kopf waits for at its start, in time that is linear in the number of objects.

kopf has a toggle for each object until it is indexed, and for each a task that waits until all objects are. By default
each toggle that comes or goes wakes all these tasks: with 8,000 objects of one tenant the event loop was busy for
minutes, lost the lease, and served nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from kopf._cogs.aiokits import aiotoggles

MOST_AT_ONCE = 64
"""Tasks that go on in one round of the event loop when all objects are indexed."""


class QuietToggleSet(aiotoggles.ToggleSet):
    """Wakes those who wait for the state of the set only when this state changes. They go on in turns."""

    def __init__(self, function: Callable[[Iterable[bool]], bool]) -> None:
        super().__init__(function)
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def wait_for(self, state: bool) -> None:
        await super().wait_for(state)
        async with self._turns:
            await asyncio.sleep(0)

    async def make_toggle(self, value: bool = False, *, name: str | None = None) -> aiotoggles.Toggle:
        toggle = aiotoggles.Toggle(value, name=name, condition=self._condition)
        async with self._condition:
            before = self.is_on()
            self._toggles.add(toggle)
            self._tell(before)
        return toggle

    async def drop_toggle(self, toggle: aiotoggles.Toggle) -> None:
        async with self._condition:
            before = self.is_on()
            self._toggles.discard(toggle)
            self._tell(before)

    def _tell(self, before: bool) -> None:
        if self.is_on() != before:
            self._condition.notify_all()


def install() -> None:
    """Has kopf use this class. kopf has no setting for it."""
    aiotoggles.ToggleSet = QuietToggleSet  # type: ignore[misc, assignment]
