"""The requests and threads of a namespace leave room for those of others, for the lease and for the watchdog."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from isthmus_operator.cluster import MAX_PARALLEL, MAX_PARALLEL_PER_NAMESPACE, Cluster
from isthmus_operator.leader import Election
from isthmus_operator.resources.base import API_VERSION
from isthmus_operator.slots import MAX_THREADS, Slots, in_thread


class SlowApi:
    """Answers a request after some turns of the event loop; until `go`, none of the namespace `busy`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.under_way = 0
        self.most = 0
        self.answered: list[str] = []

    async def param_serialize(self, verb: str, path: str, **_: Any) -> tuple[Any, ...]:
        return verb, path, {}, None, None

    async def call_api(self, verb: str, path: str, *_: Any, **__: Any) -> Any:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if "/busy/" in path:
            await self.go.wait()
        for _turn in range(5):
            await asyncio.sleep(0)
        self.under_way -= 1
        self.answered.append(path)
        return Answer()


class Answer:
    status = 200
    reason = "OK"

    async def read(self) -> bytes:
        return b'{"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "me"}}'


def status(namespace: str, name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": API_VERSION, "kind": "LinkRoute", "metadata": metadata, "status": {}}


@pytest.fixture
def api() -> SlowApi:
    return SlowApi()


async def test_another_namespace_does_not_wait_for_thousands_of_writes(api: SlowApi) -> None:
    cluster = Cluster(api)
    writes = [
        asyncio.create_task(cluster.apply(status("busy", f"l{number}"), subresource="status"))
        for number in range(4500)
    ]
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        for number in range(10):
            await cluster.apply(status("other", f"l{number}"), subresource="status")
        assert not any(task.done() for task in writes)
        api.go.set()
        await asyncio.gather(*writes)
    assert api.most <= MAX_PARALLEL


async def test_a_waiting_namespace_has_its_turn_after_a_part_of_each_other_one(api: SlowApi) -> None:
    api.go.set()
    cluster = Cluster(api)
    writes = [
        asyncio.create_task(cluster.apply(status(f"n{number % 3}", f"l{number}"), subresource="status"))
        for number in range(900)
    ]
    await asyncio.sleep(0)
    before = len(api.answered)
    async with asyncio.timeout(60):
        await cluster.apply(status("other", "l"), subresource="status")
        assert len(api.answered) - before <= 2 * 3 * MAX_PARALLEL_PER_NAMESPACE + MAX_PARALLEL
        await asyncio.gather(*writes)
    assert api.most == MAX_PARALLEL


async def test_the_lease_is_renewed_while_all_slots_are_taken(api: SlowApi) -> None:
    cluster = Cluster(api)
    writes = [
        asyncio.create_task(cluster.apply(status(f"{number}/busy", f"l{number}"), subresource="status"))
        for number in range(100)
    ]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(60):
            await Election(cluster.apart(), "ops", "operator", "me").acquire()
            assert not any(task.done() for task in writes)
    finally:
        for task in writes:
            task.cancel()
        await asyncio.gather(*writes, return_exceptions=True)


async def test_those_who_give_up_leave_nothing_behind() -> None:
    slots = Slots(1, 1, 1.0)

    async def use(namespace: str) -> None:
        async with slots.slot(namespace):
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(use(name)) for name in "aabc"]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert slots.idle
    async with asyncio.timeout(60), slots.slot("a"):
        pass


async def test_one_who_gives_up_when_the_turn_comes_leaves_the_place_to_the_next() -> None:
    slots = Slots(1, 1, 1.0)
    order: list[str] = []

    async def use(namespace: str) -> None:
        async with slots.slot(namespace):
            order.append(namespace)
            await asyncio.sleep(0)

    async with slots.slot("first"):
        tasks = [asyncio.create_task(use(name)) for name in ("second", "third")]
        await asyncio.sleep(0)
        early = asyncio.create_task(use("fourth"))
        await asyncio.sleep(0)
        early.cancel()  # its turn may come before it ends
    tasks[0].cancel()  # its turn has come
    await asyncio.gather(*tasks, early, return_exceptions=True)
    assert order == ["third"]
    assert slots.idle


async def test_a_namespace_waits_for_one_call_in_a_thread_of_each_other_one() -> None:
    """With one queue, a call came after all those that waited: here 100 of each other namespace."""
    ended: list[str] = []

    def call(namespace: str) -> None:
        time.sleep(0.001)
        ended.append(namespace)

    async def calls(namespace: str, number: int) -> None:
        await asyncio.gather(*(in_thread(namespace, call, namespace) for _ in range(number)))

    others = [asyncio.create_task(calls(f"w{number}", 100)) for number in range(20)]
    async with asyncio.timeout(60):
        while len(ended) < 400:  # noqa: ASYNC110 -- calls end in threads
            await asyncio.sleep(0.001)
        before = len(ended)
        for _ in range(5):
            await in_thread("canary", call, "canary")
        assert len(ended) - before <= 5 * (2 * MAX_THREADS + 20)
        await asyncio.gather(*others)


async def test_a_namespace_has_one_thread_at_a_time() -> None:
    under_way, most = 0, 0

    def call() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        time.sleep(0.002)
        under_way -= 1

    await asyncio.gather(*(in_thread("busy", call) for _ in range(20)))
    assert most == 1
