"""What takes seconds for thousands of resources has a thread of its own, and takes time in proportion to them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.operator.support import link_route, model, router, ssl_profile
from tests.unit.operator.test_refused_statuses import Api, World

from isthmus_operator import reconcile, rendering
from isthmus_operator.authority import Authority
from isthmus_operator.authority import keeper as authority_keeper
from isthmus_operator.reconcile import Reconciliation
from isthmus_operator.render.linkroutes import plan_link_routes
from isthmus_operator.render.material import Delivered
from isthmus_operator.rotation import keeper
from isthmus_operator.store import Inputs

PATIENCE = 10.0


class Cluster(Api):
    """Stores what is created."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[tuple[str, str], dict[str, Any]] = {}

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return self.stored.get((kind, name))

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        metadata = {**manifest["metadata"], "uid": f"uid-{len(self.stored)}", "resourceVersion": "1"}
        if "name" in metadata:
            self.stored[manifest["kind"], metadata["name"]] = {**manifest, "metadata": metadata}
        return {**manifest, "metadata": metadata}

    async def merge(
        self, kind: str, namespace: str, name: str, patch: dict[str, Any], *, subresource: str | None = None
    ) -> dict[str, Any]:
        if subresource is not None:
            return await super().merge(kind, namespace, name, patch, subresource=subresource)
        stored = self.stored[kind, name]
        stored["metadata"] |= {"resourceVersion": str(int(stored["metadata"]["resourceVersion"]) + 1)}
        stored["data"] = {key: value for key, value in patch["data"].items() if value is not None}
        return stored


def add_router(world: World) -> None:
    """Add a Router with certificates of the namespace's own authority, and an SslProfile without any."""
    api: Any = Cluster()
    world.api = api
    world.operator = replace(world.operator, cluster=api)
    world.reconciliation = Reconciliation("net", world.operator)
    resources = [router("west", mode="edge"), ssl_profile("profile", "missing")]
    for item in resources:
        item["metadata"]["resourceVersion"] = "7"
    world.store.routers, world.store.profiles = {"net": resources[:1]}, {"net": resources[1:]}


@pytest.mark.parametrize(
    "place",
    [
        *((Inputs, "model"), (rendering, "render"), (Delivered, "of"), (keeper, "adopt"), (Authority, "of")),
        *((authority_keeper, "renewed"), (reconcile, "router_facts"), (reconcile, "usage")),
        *((reconcile, "router_status"), (reconcile, "sslprofile_status"), (reconcile, "next_change")),
    ],
    ids=lambda place: place[1],
)
async def test_other_tasks_go_on_meanwhile(monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str]) -> None:
    """Among them the renewal of the lease: it ended while one namespace was rendered."""
    original: Callable[..., Any] = getattr(*place)
    begun, over = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(*arguments: Any, **named: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        assert over.wait(PATIENCE), "nothing else ran"
        return original(*arguments, **named)

    monkeypatch.setattr(*place, slow)
    world = World()
    add_router(world)
    look = asyncio.create_task(world.look())
    async with asyncio.timeout(PATIENCE):
        await begun.wait()
    over.set()
    await look
    assert sorted(world.api.tried) == ["bad", "good", "last", "profile", "west"]
    await world.observer.close()


def test_routers_share_the_sections_of_link_routes_that_are_alike() -> None:
    """A section for each pair took 27 s with a thousand of both."""
    routers = [router(f"r{number}", replicas=0) for number in range(60)]
    routes = [link_route(f"l{number}", prefix=f"q{number}", containerId="mq") for number in range(40)]
    sections = plan_link_routes(model(*routers, *routes)).sections
    assert {len(found) for found in sections.values()} == {60}
    assert len({id(section) for found in sections.values() for section in found.values()}) == 40
