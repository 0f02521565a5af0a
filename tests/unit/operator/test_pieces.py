"""A namespace with many resources does not occupy the event loop in long pieces."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.unit.operator.many_namespaces import Server, settle

from isthmus_operator.pieces import PIECE_SECONDS, TASKS_AT_ONCE, gathered, paced, results

MOST_SECONDS = 0.03
"""CPU time of one iteration of the event loop."""


@contextmanager
def iterations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """CPU times of the iterations of the event loop. Garbage collections would count with whichever they happen in."""
    found: list[float] = []
    loop = asyncio.get_running_loop()
    once = loop._run_once  # type: ignore[attr-defined]

    def measured() -> None:
        began = time.thread_time()
        once()
        found.append(time.thread_time() - began)

    gc.disable()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(loop, "_run_once", measured)
            yield found
    finally:
        gc.enable()


SPECS: dict[str, dict[str, Any]] = {
    "Router": {"replicas": 0},
    "LinkRoute": {"prefix": "p", "containerId": "x"},
}


@pytest.mark.parametrize(("kind", "number"), [("Router", 150), ("LinkRoute", 2000)])
async def test_a_reconciliation_of_many_settled_resources_is_divided(
    monkeypatch: pytest.MonkeyPatch, kind: str, number: int
) -> None:
    """500 Routers occupied the event loop for 0.35 s in each reconciliation, in one piece."""
    server = Server(0.0)
    for index in range(number):
        server.resource(kind, "net", f"r{index}", **SPECS[kind])
    while not all(server.generation(kind, "net", f"r{index}") for index in range(number)):
        await settle(server)
    await settle(server, 3.0)
    ended, publish = asyncio.Event(), server.reconciler._publisher.publish

    def published(*arguments: Any) -> None:
        publish(*arguments)
        ended.set()

    monkeypatch.setattr(server.reconciler._publisher, "publish", published)
    before = server.requests.total()
    try:
        for _ in range(2):
            ended.clear()
            with iterations(monkeypatch) as found:
                server.reconciler.trigger("net")
                await ended.wait()
            assert max(found) < MOST_SECONDS
        assert server.requests.total() - before <= 2  # a resync may be due
    finally:
        await server.reconciler.close()
        server.reconciler._publisher.forget("net")


async def test_work_begins_in_pieces_and_its_errors_come_last() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def work(number: int) -> int:
        begun.append(number)
        await asyncio.sleep(0)
        if number == 1:
            raise ValueError("second")
        ended.append(number)
        return number

    task = asyncio.create_task(gathered(map(work, range(3 * TASKS_AT_ONCE))))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(begun) == TASKS_AT_ONCE
    found = await task
    assert [item for item in found if not isinstance(item, ValueError)] == ended
    with pytest.raises(ValueError, match="second"):
        list(results(found))


async def test_work_that_has_begun_ends_with_a_cancelled_task() -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    task = asyncio.create_task(gathered(map(work, range(2))))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert ended == [0, 1]


async def test_others_have_their_turns_between_the_items_of_a_loop() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    async for _ in paced(range(5)):
        began = time.thread_time()
        while time.thread_time() - began < PIECE_SECONDS:
            pass
    other.cancel()
    assert turns == 5
