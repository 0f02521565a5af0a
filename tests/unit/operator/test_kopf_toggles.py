"""kopf's start costs time in proportion to the number of objects, and does not end before all are indexed."""

from __future__ import annotations

import asyncio

import pytest
from kopf._cogs.aiokits import aiotoggles
from kopf._core.reactor import orchestration

from isthmus_operator import kopf_toggles

OBJECTS = 500


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiotoggles, "ToggleSet", aiotoggles.ToggleSet)
    kopf_toggles.install()


@pytest.fixture
def wakes(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry for each time that a task which waits has looked whether it may go on."""
    found: list[None] = []
    predicate = aiotoggles.ToggleSet.is_on

    def counted(self: aiotoggles.ToggleSet) -> bool:
        found.append(None)
        return predicate(self)

    monkeypatch.setattr(aiotoggles.ToggleSet, "is_on", counted)
    return found


async def index(toggles: aiotoggles.ToggleSet, number: int) -> list[asyncio.Task[None]]:
    """What kopf's watchers do with as many objects, ten in each answer."""

    async def work(toggle: aiotoggles.Toggle) -> None:
        await asyncio.sleep(0)  # the object is indexed
        await toggles.drop_toggle(toggle)
        await toggles.wait_for(True)

    tasks = []
    for count in range(number):
        toggle = await toggles.make_toggle(name=str(count))
        tasks.append(asyncio.create_task(work(toggle)))
        if count % 10 == 9:
            for _ in range(5):
                await asyncio.sleep(0)
    return tasks


async def test_an_object_wakes_no_task_that_waits_for_all_of_them(installed: None, wakes: list[None]) -> None:
    toggles = aiotoggles.ToggleSet(all)
    kind = await toggles.make_toggle(name="the kind")
    tasks = await index(toggles, OBJECTS)
    assert not any(task.done() for task in tasks)
    assert len(wakes) < 10 * OBJECTS
    await toggles.drop_toggle(kind)
    async with asyncio.timeout(30):
        await asyncio.gather(*tasks)
    assert len(wakes) < 20 * OBJECTS


async def test_the_tasks_go_on_in_turns(installed: None) -> None:
    """With 8,000 objects one round of the event loop took a second of CPU."""
    toggles = aiotoggles.ToggleSet(all)
    kind = await toggles.make_toggle(name="the kind")
    tasks = await index(toggles, OBJECTS)
    await toggles.drop_toggle(kind)
    done, most = 0, 0
    async with asyncio.timeout(30):
        while done < len(tasks):
            await asyncio.sleep(0)
            before, done = done, sum(task.done() for task in tasks)
            most = max(most, done - before)
    assert most <= 2 * kopf_toggles.MOST_AT_ONCE


async def test_kopf_waits_with_it(installed: None) -> None:
    assert orchestration.aiotoggles.ToggleSet is kopf_toggles.QuietToggleSet


async def test_who_waits_for_either_state_is_told(installed: None) -> None:
    toggles = aiotoggles.ToggleSet(any)
    first = await toggles.make_toggle()
    on = asyncio.create_task(toggles.wait_for(True))
    await asyncio.sleep(0)
    await first.turn_to(True)
    await asyncio.wait_for(on, 5)
    off = asyncio.create_task(toggles.wait_for(False))
    await asyncio.sleep(0)
    await toggles.drop_toggle(first)
    await asyncio.wait_for(off, 5)
    on = asyncio.create_task(toggles.wait_for(True))
    await asyncio.sleep(0)
    await toggles.make_toggle(True)
    await asyncio.wait_for(on, 5)
