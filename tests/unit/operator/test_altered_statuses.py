"""Admission policies that change the statuses that the operator writes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from prometheus_client import REGISTRY
from tests.unit.operator.test_refused_statuses import Told, World

from isthmus_operator import reconcile
from isthmus_operator.contests import FIRST_PAUSE_SECONDS, MOST_CHANGES, PERIOD_SECONDS
from isthmus_operator.reconcile import MAX_STATUS_PAUSE_SECONDS

Change = Callable[[dict[str, Any], int], Any]


class AlteredWorld(World):
    """One whose API server changes the status of the resource `good` with each write, and reports it to the watch."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        apply = self.api.apply

        async def changed(manifest: dict[str, Any], *, subresource: str | None = None) -> dict[str, Any]:
            answer = await apply(manifest, subresource=subresource)
            if manifest["metadata"]["name"] == "good":
                change(answer["status"], self.written("good"))
            for item in self.store.link_routes["net"]:
                if item["metadata"]["name"] == manifest["metadata"]["name"]:
                    item["status"] = answer["status"]
                    item["metadata"]["resourceVersion"] = answer["metadata"]["resourceVersion"]
            return answer

        self.api.apply = changed  # type: ignore[method-assign]
        del self.store.link_routes["net"][0]  # the API server refuses its status

    def written(self, name: str) -> int:
        return self.api.tried.count(name)


def other_reason(status: dict[str, Any], number: int) -> None:
    status["conditions"][0]["reason"] = f"X{number}"


def other_status(status: dict[str, Any], number: int) -> None:
    status["conditions"][0]["status"] = "Unknown"


def fewer_fields(status: dict[str, Any], number: int) -> None:
    del status["observedGeneration"]


def other_times(status: dict[str, Any], number: int) -> None:
    status["conditions"][0]["lastTransitionTime"] = f"2026-01-01T00:00:{number:02}Z"


@pytest.fixture
async def worlds() -> AsyncIterator[Callable[[Change], AlteredWorld]]:
    made: list[AlteredWorld] = []

    def make(change: Change) -> AlteredWorld:
        made.append(AlteredWorld(change))
        return made[-1]

    yield make
    for world in made:
        await world.observer.close()


@pytest.mark.parametrize("change", [other_reason, other_status, fewer_fields, other_times])
async def test_a_status_that_was_stored_otherwise_is_not_written_again(
    worlds: Callable[[Change], AlteredWorld], change: Change
) -> None:
    """With a reason that was another one in each answer, 60 Routers had 150 statuses written each second."""
    world = worlds(change)
    for _ in range(20):
        await world.look()
        world.now += 1
    assert (world.written("good"), world.written("last")) == (1, 1)
    world.store.link_routes["net"][0]["status"]["conditions"] = []
    world.store.link_routes["net"][0]["metadata"]["resourceVersion"] = "99"
    await world.look()
    assert world.written("good") == 2, "a change by somebody else is corrected"


@pytest.mark.parametrize("change", [other_status, fewer_fields])
async def test_a_constant_change_delays_no_status(
    worlds: Callable[[Change], AlteredWorld], monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    """As with CustomResourceDefinitions of an earlier version, which lack a field."""
    told = Told(monkeypatch)
    status = told._status
    monkeypatch.setattr(reconcile, "status_of_link_route", lambda *_: status() | {"observedGeneration": 1})
    world = worlds(change)
    for number in range(4 * MOST_CHANGES):
        told.reason = f"Reason{number}"
        await world.look()
        assert (world.written("good"), world.written("last")) == (number + 1, number + 1)


async def test_a_status_that_follows_from_what_was_stored_is_written_with_pauses(
    worlds: Callable[[Change], AlteredWorld],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Some fields depend on those before, such as the runs of a FlowAnalysis."""

    def told(_: Any, __: Any, ___: Any, ____: Any, before: Any, now: str) -> dict[str, Any]:
        reasons = [item["reason"] for item in before.get("conditions") or ()]
        condition = {"type": "Ready", "status": "False", "message": "", "lastTransitionTime": now}
        return {"conditions": [condition | {"reason": f"After{(reasons or ['Nothing'])[0]}"[:40]}]}

    monkeypatch.setattr(reconcile, "status_of_link_route", told)
    labels = {"kind": "LinkRoute"}
    pauses = REGISTRY.get_sample_value("isthmus_operator_contests_total", labels) or 0.0
    world = worlds(other_reason)
    caplog.set_level(logging.WARNING)
    for _ in range(50):
        await world.look()
        world.now += 0.1
    assert world.written("good") == MOST_CHANGES + 2
    assert [item.getMessage() for item in caplog.records] == [
        "LinkRoute good: another writer, such as an admission policy, changes its status each time after the operator "
        "has written it; the operator waits up to 4 minutes before it writes it again"
    ]
    assert REGISTRY.get_sample_value("isthmus_operator_contests_total", labels) == pauses + 1
    due = await world.look()
    assert due is not None
    assert 0 < due <= FIRST_PAUSE_SECONDS
    for _ in range(60):
        world.now += 20
        await world.look()
    assert world.written("good") <= MOST_CHANGES + 2 + 8, "20 minutes"
    monkeypatch.undo()
    written = world.written("good")
    world.now += PERIOD_SECONDS + MAX_STATUS_PAUSE_SECONDS + 1
    for _ in range(10):
        await world.look()
        world.now += 1
    assert world.written("good") == written + 1
