"""Large renderings of all namespaces: their memory, and their order."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from tests.unit.operator.support import router
from tests.unit.operator.test_large_namespaces import Server, store
from tests.unit.operator.test_specs import crowded, listed

from isthmus_operator import room as rooms
from isthmus_operator.cluster import Cluster
from isthmus_operator.observe import Observer
from isthmus_operator.reconcile import Operator, Reconciliation
from isthmus_operator.render import Plan, RenderSettings, kubernetes, plan
from isthmus_operator.resources.base import PAUSED_ANNOTATION
from isthmus_operator.room import SMALL_BYTES, Room
from isthmus_operator.workers import STUCK_SECONDS, Reconciler

MIB = 1024 * 1024


class Kept:
    """Renderings in a room of 100 MiB."""

    def __init__(self) -> None:
        self.now = 0.0
        self.room = Room(400 * MIB, lambda: self.now)
        self.names: set[str] = set()

    async def enter(self, name: str, mib: int) -> None:
        await self.room.enter(name, mib * MIB, lambda: self.names.discard(name))
        self.names.add(name)
        self.room.rendered(name, mib * MIB, lambda: self.names.discard(name))

    async def keep(self, name: str, mib: int) -> None:
        await self.enter(name, mib)
        self.room.leave(name)


async def test_the_largest_renderings_go_when_others_need_the_room() -> None:
    kept = Kept()
    for name, mib in (("a", 40), ("b", 5), ("c", 50), ("d", 20)):
        await kept.keep(name, mib)
        assert kept.room.bytes <= 100 * MIB
    assert kept.names == {"a", "b", "d"}
    await kept.keep("small", 1)
    assert (kept.names, kept.room.bytes) == ({"a", "b", "d", "small"}, 65 * MIB)


async def test_a_namespace_waits_while_the_others_use_the_room_and_the_smallest_goes_first() -> None:
    kept = Kept()
    for name in ("a", "b"):
        await kept.enter(name, 45)
    large = asyncio.create_task(kept.keep("large", 48))
    await asyncio.sleep(0)
    little = asyncio.create_task(kept.keep("little", 12))
    await asyncio.sleep(0)
    await kept.keep("small", 1)
    assert kept.room.is_waiting("large")
    assert kept.room.is_waiting("little")
    kept.room.leave("b")
    async with asyncio.timeout(5):
        await asyncio.gather(large, little)
    assert "b" not in kept.names
    assert kept.room.bytes <= 100 * MIB


async def test_a_reconciliation_that_is_canceled_or_fails_gives_its_place_to_the_next_one() -> None:
    kept = Kept()
    await kept.room.enter("failed", 90 * MIB, lambda: None)
    waiting = asyncio.create_task(kept.enter("canceled", 90))
    last = asyncio.create_task(kept.enter("last", 90))
    await asyncio.sleep(0)
    waiting.cancel()
    kept.room.leave("failed")
    async with asyncio.timeout(5):
        await last
    assert kept.room.bytes == 90 * MIB


async def test_large_renderings_are_computed_one_at_a_time_with_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rooms, "PAUSE_FACTOR", 0.01)
    kept = Kept()
    await kept.room.enter("a", 2 * SMALL_BYTES, lambda: None)
    second = asyncio.create_task(kept.keep("b", 2))
    await asyncio.sleep(0.01)
    assert not second.done()
    kept.now += 5.0
    kept.room.rendered("a", 2 * SMALL_BYTES, lambda: None)
    await asyncio.sleep(0)
    assert not second.done()
    kept.now += 0.06
    async with asyncio.timeout(5):
        await second


async def test_a_namespace_that_waits_for_room_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "PAUSE_FACTOR", 0.0)
    api = Reading()
    reconciler = Reconciler(
        Cluster(api),
        RenderSettings(router_image="router:1"),
        version="1",
        instance="pod",
        clock=lambda: api.now,
    )
    reconciler.use(store(routers=listed(crowded("a"), crowded("b"))))
    room = reconciler._operator.room
    await room.enter("other", 120 * MIB, lambda: None)
    reconciler.trigger("net")
    for _ in range(1000):
        if room.is_waiting("net"):
            break
        await asyncio.sleep(0.01)
    assert room.is_waiting("net")
    api.now += STUCK_SECONDS + 1
    assert reconciler.stuck() is None
    room.leave("other")
    assert (room.admitted("net"), reconciler.stuck()) == (api.now, None)
    await reconciler.close()


class Reading(Server):
    """Has Routers with long policies."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def call_api(self, verb: str, path: str, query: dict[str, str], body: Any, **options: Any) -> Any:
        if verb == "GET" and path.endswith("/routers"):
            self.reads += 1
            name = query["fieldSelector"].partition("=")[2]
            found = await super().call_api("POST", path, {}, crowded(name, users=64))
            found._content["metadata"]["uid"] = f"uid-{name}"
            found._content = {"items": [found._content]}
            return found
        return await super().call_api(verb, path, query, body, **options)


async def test_only_as_many_renderings_stay_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 56 Routers with 65,536 users took 5 MB as long as the operator ran."""
    monkeypatch.setattr(rooms, "SMALL_BYTES", 1)
    monkeypatch.setattr(rooms, "MIN_ROOM_BYTES", 1)
    monkeypatch.setattr(rooms, "PAUSE_FACTOR", 0.0)
    api, observer = Reading(), Observer(lambda _: None)
    held = listed(crowded("a", users=64), crowded("b", users=64))
    assert len(json.dumps(held)) < 2000, "the watched objects have no long specification"
    one = sum(item["spec"]["\0"] for item in held)
    operator = Operator(
        Cluster(api),
        RenderSettings(router_image="router:1"),
        observer,
        "1",
        "pod",
        lambda: api.now,
        Room(9 * one),
    )
    known = store(routers=held)
    spaces = [Reconciliation("net", operator)]
    for name in ("n1", "n2", "n3"):
        known.routers[name] = known.routers["net"]  # type: ignore[index]
        spaces.append(Reconciliation(name, operator))
    for item in spaces:
        await item.look(known)
    assert api.reads == 2 * len(spaces)
    assert sum(item._rendering is not None for item in spaces) == 2
    assert set(api.statuses) == {"a", "b"}
    reasons = {item["reason"] for status in api.statuses.values() for item in status["conditions"]}
    assert "InvalidSpec" not in reasons
    await observer.close()


def spaces_with(
    resources: list[dict[str, Any]], number: int, api: Server
) -> tuple[list[Reconciliation], Any]:
    """Namespaces that have these Routers."""
    observer = Observer(lambda _: None)
    operator = Operator(
        Cluster(api), RenderSettings(router_image="router:1"), observer, "1", "pod", lambda: api.now
    )
    known = store(routers=resources)
    for index in range(1, number):
        known.routers[f"n{index}"] = known.routers["net"]  # type: ignore[index]
    names = ["net", *(f"n{index}" for index in range(1, number))]
    return [Reconciliation(name, operator) for name in names], known


async def test_large_renderings_of_small_specifications_are_computed_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """100 Routers with 32 replicas each, in each of 8 namespaces, ended the operator."""
    active, most, planned = 0, 0, 0
    lock = threading.Lock()

    def counted(model: Any) -> Plan:
        nonlocal active, most, planned
        with lock:
            active, planned = active + 1, planned + 1
            most = max(most, active)
        time.sleep(0.05)
        with lock:
            active -= 1
        return plan(model)

    monkeypatch.setattr(kubernetes, "plan", counted)
    paused = {"annotations": {PAUSED_ANNOTATION: "true"}}
    routers = [router(f"r{index}", meta=paused, replicas=32) for index in range(4)]
    spaces, known = spaces_with(routers, 4, Server())
    async with asyncio.timeout(60):
        await asyncio.gather(*(item.look(known) for item in spaces))
    assert (most, planned) == (1, len(spaces))
    room = spaces[0]._operator.room
    assert room.bytes == sum(item._rendering.rendered.bytes for item in spaces if item._rendering is not None)
    assert room.bytes > 4 * SMALL_BYTES


async def test_a_rendering_that_takes_more_than_estimated_begins_again_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned = 0

    def counted(model: Any) -> Plan:
        nonlocal planned
        planned += 1
        return plan(model)

    monkeypatch.setattr(kubernetes, "plan", counted)
    monkeypatch.setattr(rooms, "PAUSE_FACTOR", 0.0)
    addresses = [{"prefix": f"p{index}", "distribution": "closest"} for index in range(100)]
    meta = {"annotations": {PAUSED_ANNOTATION: "true"}}
    routers = [router(f"r{index}", meta=meta, replicas=8, addresses=addresses) for index in range(6)]
    (space,), known = spaces_with(routers, 1, Server())
    await space.look(known)
    assert planned == 2
    room = space._operator.room
    assert SMALL_BYTES < room.bytes < 4 * SMALL_BYTES
    routers[0]["metadata"]["generation"] = 2
    await space.look(known)
    assert planned == 3, "it remembers the size"
