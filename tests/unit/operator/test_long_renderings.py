"""What takes seconds for thousands of resources has a thread of its own, and takes time in proportion to them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.operator.support import link_route, model, router
from tests.unit.operator.test_refused_statuses import World

from isthmus_operator import reconcile
from isthmus_operator.render.linkroutes import plan_link_routes
from isthmus_operator.store import Inputs

PATIENCE = 10.0


@pytest.mark.parametrize("place", [(reconcile, "render"), (Inputs, "model")], ids=["render", "model"])
async def test_other_tasks_go_on_meanwhile(monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str]) -> None:
    """Among them the renewal of the lease: it ended while one namespace was rendered."""
    original: Callable[..., Any] = getattr(*place)
    begun, over = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(*arguments: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        assert over.wait(PATIENCE), "nothing else ran"
        return original(*arguments)

    monkeypatch.setattr(*place, slow)
    world = World()
    look = asyncio.create_task(world.look())
    async with asyncio.timeout(PATIENCE):
        await begun.wait()
    over.set()
    await look
    assert sorted(world.api.tried) == ["bad", "good", "last"]
    await world.observer.close()


def test_routers_share_the_sections_of_link_routes_that_are_alike() -> None:
    """A section for each pair took 27 s with a thousand of both."""
    routers = [router(f"r{number}", replicas=0) for number in range(60)]
    routes = [link_route(f"l{number}", prefix=f"q{number}", containerId="mq") for number in range(40)]
    sections = plan_link_routes(model(*routers, *routes)).sections
    assert {len(found) for found in sections.values()} == {60}
    assert len({id(section) for found in sections.values() for section in found.values()}) == 40
