"""Namespaces whose requests are answered slowly leave places to others. Time is simulated."""

from __future__ import annotations

import asyncio
import itertools
import selectors
import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from isthmus_operator.cluster import (
    MAX_PARALLEL,
    MAX_PARALLEL_LATE,
    MAX_PARALLEL_PER_NAMESPACE,
    MAX_PARALLEL_SLOW,
    Cluster,
)
from isthmus_operator.resources.base import API_VERSION
from isthmus_operator.slots import SLOW_MEMORY

QUICK_SECONDS = 0.005


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Its time passes only while it waits, and then immediately."""

    def __init__(self) -> None:
        self.now = 0.0
        loop = self

        class Selector(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> Any:
                assert timeout is not None, "nothing would ever happen"
                loop.now += timeout
                return super().select(0)

        super().__init__(Selector())

    def time(self) -> float:
        return self.now


def simulated(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(work())


class Api:
    """Answers writes of objects, other than statuses, in the namespaces of `delays` late."""

    def __init__(self, **delays: float) -> None:
        self.delays = delays
        self.default = QUICK_SECONDS
        self.under_way: Counter[str] = Counter()
        self.most = 0
        self.cut = 0
        self.answered: Counter[str] = Counter()

    async def param_serialize(self, verb: str, path: str, **_: Any) -> tuple[Any, ...]:
        return verb, path, {}, None, None

    async def call_api(self, verb: str, path: str, *_: Any, **__: Any) -> Any:
        namespace = path.split("/namespaces/")[1].partition("/")[0]
        late = not path.endswith("/status")
        self.under_way[namespace] += 1
        self.most = max(self.most, self.under_way.total())
        try:
            await asyncio.sleep(self.delays.get(namespace, self.default) if late else self.default)
        except asyncio.CancelledError:
            self.cut += 1
            raise
        finally:
            self.under_way[namespace] -= 1
        self.answered[namespace] += 1
        return Answer()


class Answer:
    status = 200
    reason = "OK"

    async def read(self) -> bytes:
        return b'{"metadata": {"resourceVersion": "1"}}'


def manifest(namespace: str, name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": API_VERSION, "kind": "LinkRoute", "metadata": metadata}


async def busy(cluster: Cluster, namespace: str, resources: int) -> None:
    """For each of the resources, an object and then a status, without end."""

    async def write(name: str) -> None:
        while True:
            await cluster.apply(manifest(namespace, name))
            await cluster.apply(manifest(namespace, name), subresource="status")

    await asyncio.gather(*(write(f"r{number}") for number in range(resources)))


async def change(cluster: Cluster, namespace: str = "canary") -> float:
    """A change of a small namespace. Return how many seconds it takes."""
    began = asyncio.get_running_loop().time()
    cluster.begin(namespace)
    for number in range(5):
        await cluster.apply(manifest(namespace, f"c{number}"))
    return asyncio.get_running_loop().time() - began


async def beside(api: Api, work: Callable[[Cluster], Awaitable[None]], *namespaces: str) -> None:
    """`work` while these namespaces are busy."""
    cluster = Cluster(api, clock=asyncio.get_running_loop().time)
    tasks = [asyncio.create_task(busy(cluster, name, 30)) for name in namespaces]
    try:
        await work(cluster)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def changes(cluster: Cluster, number: int) -> list[float]:
    """The durations of changes, one every two seconds."""
    found = []
    for _ in range(number):
        found.append(await change(cluster))
        await asyncio.sleep(2)
    return found


@pytest.mark.parametrize(("slow", "delay"), [(2, 20.0), (4, 10.0), (16, 1.5)])
def test_changes_of_others_do_not_wait_for_slow_namespaces(slow: int, delay: float) -> None:
    """Before, the median of these changes was 18, 8 and 1 s."""
    api = Api(**{f"slow{number}": delay for number in range(slow)})

    async def work() -> None:
        async def measure(cluster: Cluster) -> None:
            await asyncio.sleep(2 * delay)  # they take all places before it is known that they are slow
            durations = await changes(cluster, 100)
            assert statistics.median(durations) < 10 * QUICK_SECONDS
            assert max(durations) <= delay

        await beside(api, measure, *api.delays)

    simulated(work)


def test_slow_namespaces_go_on_in_equal_parts() -> None:
    api = Api(slow0=10.0, slow1=10.0, slow2=10.0)

    async def work() -> None:
        async def measure(cluster: Cluster) -> None:
            await asyncio.sleep(1200)

        await beside(api, measure, *api.delays)

    simulated(work)
    assert min(api.answered.values()) > 0.7 * max(api.answered.values())
    assert sum(api.answered.values()) > 2 * 0.9 * MAX_PARALLEL_SLOW * 1200 / 10


def test_quick_namespaces_use_all_places() -> None:
    api = Api()

    async def work() -> None:
        async def measure(cluster: Cluster) -> None:
            await asyncio.sleep(5)

        await beside(api, measure, "a", "b", "c")

    simulated(work)
    assert sum(api.answered.values()) > 0.95 * MAX_PARALLEL * 5 / QUICK_SECONDS


def test_an_api_server_that_is_slow_for_all_serves_all_equally() -> None:
    api = Api()
    api.default = 2.0

    async def work() -> None:
        async def measure(cluster: Cluster) -> None:
            await asyncio.sleep(600)
            small = await change(cluster)
            assert small <= 5 * 2 * api.default, "a small change waits for one request of others each time"

        await beside(api, measure, *(f"n{number}" for number in range(20)))

    simulated(work)
    found = [api.answered[f"n{number}"] for number in range(20)]
    assert min(found) > 0.9 * MAX_PARALLEL_SLOW * 600 / api.default / 20, (
        "an equal part of the places of slow ones"
    )


def test_a_namespace_that_is_quick_again_has_its_places_again() -> None:
    api = Api(slow=2.0, other=2.0)
    api.default = quick = 4 * QUICK_SECONDS

    async def work() -> None:
        async def measure(cluster: Cluster) -> None:
            await asyncio.sleep(30)
            api.delays = dict.fromkeys(api.delays, quick)
            await asyncio.sleep((SLOW_MEMORY + 1) * 2 + 1)
            before = api.answered.total()
            await asyncio.sleep(3)
            assert api.answered.total() - before > 0.95 * MAX_PARALLEL * 3 / quick

        await beside(api, measure, *api.delays)

    simulated(work)


def test_pauses_and_quick_requests_give_a_slow_namespace_few_places() -> None:
    """Bursts of slow requests in two namespaces at a time, each after others that were quick."""
    api = Api(**{f"slow{number}": 10.0 for number in range(2)})

    async def work() -> None:
        cluster = Cluster(api, clock=asyncio.get_running_loop().time)

        async def bursts() -> None:
            for burst in itertools.count():
                for name in api.delays:
                    for _ in range(20):
                        await cluster.apply(manifest(name, "r"), subresource="status")
                await asyncio.gather(
                    *(
                        cluster.apply(manifest(name, f"{burst} {number}"))
                        for name in api.delays
                        for number in range(MAX_PARALLEL_PER_NAMESPACE)
                    )
                )

        task = asyncio.create_task(bursts())
        await asyncio.sleep(25)
        durations = await changes(cluster, 300)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert max(durations) < 10 * QUICK_SECONDS

    simulated(work)


@pytest.mark.parametrize("slow", [24, 160])
def test_many_namespaces_that_become_slow_by_turns_delay_others_by_a_second(slow: int) -> None:
    """Each write of two further namespaces takes 20 s, and 20 s later those of the next two."""
    names = [f"slow{number}" for number in range(slow)]
    api = Api(**dict.fromkeys(names, 20.0))

    async def work() -> None:
        async def rotate(cluster: Cluster) -> None:
            for pair in itertools.cycle(zip(names[::2], names[1::2], strict=True)):
                tasks = [asyncio.create_task(busy(cluster, name, 20)) for name in pair]
                await asyncio.sleep(20)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        cluster = Cluster(api, clock=asyncio.get_running_loop().time)
        task = asyncio.create_task(rotate(cluster))
        durations = await changes(cluster, 400)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert statistics.median(durations) < 10 * QUICK_SECONDS
        assert max(durations) <= 5 * 1.1

    simulated(work)


@pytest.mark.parametrize("slow", [30, 160])
def test_many_namespaces_that_are_slow_at_once_delay_others_by_a_second(slow: int) -> None:
    api = Api(**{f"slow{number}": 20.0 for number in range(slow)})

    async def work() -> None:
        async def measure(cluster: Cluster) -> None:
            durations = await changes(cluster, 400)
            assert statistics.median(durations) < 10 * QUICK_SECONDS
            assert max(durations[1:]) <= 5 * 1.1
            assert durations[0] <= 5 + slow / MAX_PARALLEL, "each of them begins 8 requests of a second"
            await asyncio.sleep(20 * slow)

        await beside(api, measure, *api.delays)

    simulated(work)
    assert api.most <= MAX_PARALLEL + MAX_PARALLEL_SLOW + MAX_PARALLEL_LATE
    part = MAX_PARALLEL_SLOW * (2 * 400 + 20 * slow) / 20 / slow
    assert min(api.answered[name] for name in api.delays) > 0.5 * part


def test_requests_that_are_cut_are_sent_again_until_they_are_answered() -> None:
    api = Api(**{f"slow{number}": 5.0 for number in range(20)})

    async def work() -> None:
        cluster = Cluster(api, clock=asyncio.get_running_loop().time)
        writes = (
            cluster.apply(manifest(name, f"r{number}"))
            for name in api.delays
            for number in range(MAX_PARALLEL_PER_NAMESPACE)
        )
        await asyncio.gather(*writes)
        assert cluster._slots.idle

    simulated(work)
    assert api.answered == dict.fromkeys(api.delays, MAX_PARALLEL_PER_NAMESPACE)
    assert api.cut > 0
    assert api.most <= MAX_PARALLEL + MAX_PARALLEL_SLOW + MAX_PARALLEL_LATE


def test_a_request_that_is_given_up_is_not_sent_again() -> None:
    api = Api(**{f"slow{number}": 5.0 for number in range(20)})

    async def work() -> None:
        cluster = Cluster(api, clock=asyncio.get_running_loop().time)
        writes = [
            asyncio.create_task(cluster.apply(manifest(name, f"r{number}")))
            for name in api.delays
            for number in range(MAX_PARALLEL_PER_NAMESPACE)
        ]
        await asyncio.sleep(3.5)
        for write in writes:
            write.cancel()
        ended = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(item, asyncio.CancelledError) for item in ended)
        assert cluster._slots.idle
        assert not api.under_way.total()

    simulated(work)


def test_a_namespace_that_only_waits_stays_slow() -> None:
    """So many namespaces are slow that each one waits for longer than it is slow."""
    api = Api(**{f"slow{number}": 20.0 for number in range(160)})

    async def work() -> None:
        async def measure(cluster: Cluster) -> None:
            await asyncio.sleep(100)
            for _ in range(200):
                await asyncio.sleep(10)
                assert api.under_way.total() <= MAX_PARALLEL_SLOW

        await beside(api, measure, *api.delays)

    simulated(work)
