"""A namespace whose look takes long, or has much to tell, does not end the operator and fills nothing up."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.unit.operator.support import link_route, router
from tests.unit.operator.test_creations import Answer, Api

from isthmus_operator.cluster import MAX_MESSAGE, MAX_PARALLEL, Cluster
from isthmus_operator.events import LASTING_SECONDS, MOST_AT_ONCE, PER_SECOND, Allowance
from isthmus_operator.handlers.children import KINDS
from isthmus_operator.observe import Observer
from isthmus_operator.reconcile import Operator, Reconciliation
from isthmus_operator.render import RenderSettings
from isthmus_operator.store import Store
from isthmus_operator.workers import STUCK_SECONDS, Reconciler

SETTINGS = RenderSettings(router_image="router:1")


class Server(Api):
    """Keeps Events, and refuses StatefulSets with `refusal` if that is stated."""

    def __init__(self) -> None:
        super().__init__()
        self.refusal = ""
        self.posted: list[str] = []
        self.under_way = self.most = 0

    async def call_api(
        self, verb: str, path: str, query: dict[str, str], body: Any, **options: Any
    ) -> Answer:
        if verb == "POST" and path.endswith("/events"):
            self.posted.append(body["regarding"]["name"])
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            await asyncio.sleep(0)
            self.under_way -= 1
        if self.refusal and verb == "POST" and path.endswith("/statefulsets"):
            return Answer(422, {"reason": "Invalid", "message": self.refusal})
        if verb == "PATCH" and not path.endswith("/status"):
            body = {**body, "metadata": {"name": path.rpartition("/")[2], **body["metadata"]}}
        return await super().call_api(verb, path, query, body, **options)


def store(**indices: list[dict[str, Any]]) -> Store:
    none: dict[str, Any] = {}
    names = ("routers", "connectors", "link_routes", "relay_sites", "gossip_routers", "flow_logs")
    found = {name: {"net": indices[name]} if name in indices else none for name in names}
    children: dict[str, Any] = {kind: {} for kind in KINDS}
    for items in indices.values():
        for item in items:
            item["metadata"]["resourceVersion"] = "7"
    return Store(**found, flow_analyses=none, profiles=none, secrets=none, pods=none, children=children)


@pytest.mark.parametrize(
    ("steps", "seconds", "stuck"),
    [(20, STUCK_SECONDS / 2, False), (1, STUCK_SECONDS + 1, True)],
    ids=["many requests", "no request ends"],
)
async def test_a_look_that_gets_on_is_not_stuck(
    monkeypatch: pytest.MonkeyPatch, steps: int, seconds: float, stuck: bool
) -> None:
    """The liveness probe failed while a look at 8,000 Connectors posted their Events."""
    api = Server()

    def clock() -> float:
        return api.now

    cluster = Cluster(api, clock=clock)
    reconciler = Reconciler(cluster, SETTINGS, version="1", instance="pod", clock=clock)
    reconciler.use(store(link_routes=[link_route("r", prefix="r", containerId="x")]))
    found: list[str | None] = []
    over = asyncio.Event()

    async def look(self: Reconciliation, _: Store) -> float:
        for _ in range(steps):
            api.now += seconds
            found.append(reconciler.stuck())
            await cluster.get("Secret", "net", "x")
        over.set()
        return 0.0

    monkeypatch.setattr(Reconciliation, "look", look)
    assert not reconciler.attends("net")
    reconciler.trigger("net")
    assert reconciler.attends("net")
    async with asyncio.timeout(30):
        await over.wait()
    assert [item is not None for item in found] == [stuck] * steps
    await asyncio.sleep(0.05)
    assert reconciler.stuck() is None
    await reconciler.close()


@pytest.mark.parametrize("others", [True, False], ids=["requests of others end", "no request ends"])
async def test_a_namespace_that_waits_for_its_turn_is_not_stuck(
    monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    api = Server()

    def clock() -> float:
        return api.now

    cluster = Cluster(api, clock=clock)
    reconciler = Reconciler(cluster, SETTINGS, version="1", instance="pod", clock=clock)
    reconciler.use(store(link_routes=[link_route("r", prefix="r", containerId="x")]))
    waiting, over = asyncio.Event(), asyncio.Event()

    async def look(self: Reconciliation, _: Store) -> float:
        waiting.set()
        await cluster.get("Secret", "net", "x")
        over.set()
        return 0.0

    monkeypatch.setattr(Reconciliation, "look", look)
    async with AsyncExitStack() as places, asyncio.timeout(30):
        for number in range(MAX_PARALLEL):
            await places.enter_async_context(cluster._slots.slot(f"w{number}"))
        reconciler.trigger("net")
        await waiting.wait()
        api.now += STUCK_SECONDS + 1
        if others:
            cluster.last_end_of_any = api.now - 1
        assert (reconciler.stuck() is None) is others
    async with asyncio.timeout(30):
        await over.wait()
    await reconciler.close()


async def test_news_of_all_resources_are_a_bounded_number_of_events() -> None:
    api, observer = Server(), Observer(lambda _: None)
    routes = [link_route(f"r{number}", connector="nowhere", prefix=f"r{number}") for number in range(600)]
    operator = Operator(Cluster(api), SETTINGS, observer, "1", "pod", lambda: api.now)
    one, known = Reconciliation("net", operator), store(link_routes=routes)
    await one.look(known)
    api.now += LASTING_SECONDS + 1
    await one.look(known)
    assert len(api.statuses) == len(routes), "all have their statuses"
    assert MOST_AT_ONCE <= len(set(api.posted)) == len(api.posted) <= MOST_AT_ONCE + 1
    assert api.most > 1, "one after the other takes minutes"
    await observer.close()


def test_events_may_be_posted_again_later() -> None:
    allowance = Allowance(5.0)
    assert sum(allowance.take(5.0) for _ in range(1000)) == MOST_AT_ONCE
    assert sum(allowance.take(15.0) for _ in range(1000)) == 10 * PER_SECOND
    assert sum(allowance.take(1e6) for _ in range(1000)) == MOST_AT_ONCE


async def test_nothing_is_kept_of_the_problems_of_resources_that_are_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api, observer = Server(), Observer(lambda _: None)
    api.refusal = f'spec.template.spec.nodeSelector: Invalid value: "{"x" * 200_000}"'
    operator = Operator(Cluster(api), SETTINGS, observer, "1", "pod", lambda: api.now)
    one = Reconciliation("net", operator)
    with caplog.at_level(logging.INFO):
        for name in ("east", "west"):
            await one.look(store(routers=[router(name)]))
            messages = [item["message"] for item in api.statuses[name]["conditions"]]
            assert any("nodeSelector" in item for item in messages)
            assert max(map(len, messages)) < MAX_MESSAGE + 200
    assert max(len(record.getMessage()) for record in caplog.records) < MAX_MESSAGE + 200
    assert list(one._problems) == ["router west"]
    await one.look(store(link_routes=[link_route("r", prefix="r", containerId="x")]))
    assert not one._problems
    await observer.close()
