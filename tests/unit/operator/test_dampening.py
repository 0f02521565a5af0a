"""Statuses that change again and again are written less and less often, and claim no more than is true meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import cycle, islice
from typing import Any

import pytest
from tests.unit.operator.test_refused_statuses import World

from isthmus_operator import reconcile
from isthmus_operator.contests import PERIOD_SECONDS
from isthmus_operator.dampening import (
    MAX_DETAILS_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    MAX_RETURN_PAUSE_SECONDS,
    MOST_AT_ONCE,
    Dampening,
)

LOOK_SECONDS = 3.0
UP, DOWN, HALF = ("True", "ConnectionsOpen"), ("False", "NoConnection"), ("False", "ConnectionsMissing")


def status(truth: tuple[str, str], number: int = 0, generation: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "observedGeneration": generation,
        "conditions": [
            {
                "type": kind,
                "status": truth[0],
                "reason": truth[1],
                "message": f"{number} connections",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind in ("Operational", "Ready")
        ],
        "openConnections": number,
        **fields,
    }


class Flapping:
    """A resource whose status should be what is `told`, at each look."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.told: dict[str, Any] = {}
        del world.store.link_routes["net"][0]  # the API server refuses its status
        monkeypatch.setattr(reconcile, "status_of_link_route", lambda *_: self.told)

    @property
    def stored(self) -> dict[str, Any]:
        return self.world.api.statuses["good"]

    @property
    def writes(self) -> int:
        return self.world.api.tried.count("good")

    async def tell(self, *told: dict[str, Any]) -> int:
        """Return the number of writes."""
        before = self.writes
        for self.told in told:
            due = await self.world.look()
            assert due is not None
            assert due <= MAX_PAUSE_SECONDS
            if is_good(self.stored):
                assert is_good(self.told), "the stored status claims more than is true"
            self.world.now += LOOK_SECONDS
        return self.writes - before


def is_good(found: dict[str, Any]) -> bool:
    return bool(found["conditions"][0]["status"] == "True")


@pytest.fixture
async def flapping(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Flapping]:
    world = World()
    yield Flapping(world, monkeypatch)
    await world.observer.close()


@pytest.mark.parametrize(
    "states",
    [
        [status(UP, 2), status(DOWN)],
        [status(UP, 2), status(UP, 2), status(HALF, 1)],
        [status(UP, 2), status(HALF, 1), status(DOWN), status(HALF, 1)],
        [status(HALF, 1), status(DOWN)],
    ],
)
async def test_a_condition_that_comes_and_goes_is_written_less_and_less_often(
    flapping: Flapping, states: list[dict[str, Any]]
) -> None:
    """A host that accepted and closed the connections of 300 Connectors had 32 statuses written each second."""
    changes = cycle(states)
    ten_minutes = int(600 / LOOK_SECONDS)
    await flapping.tell(*islice(changes, ten_minutes))
    assert await flapping.tell(*islice(changes, ten_minutes)) <= 3 * (600 / MAX_RETURN_PAUSE_SECONDS + 1)
    for item in states:
        before = flapping.writes
        flapping.world.now += MAX_RETURN_PAUSE_SECONDS
        await flapping.tell(item, item)
        assert flapping.stored == item
        assert flapping.writes <= before + 1


async def test_the_first_changes_are_written_at_once(flapping: Flapping) -> None:
    """Several changes within minutes are also what maintenance looks like."""
    for number in range(MOST_AT_ONCE + 1):
        for item in (status(UP, 2), status(DOWN)):
            assert await flapping.tell(item) == 1, number


async def test_the_loss_is_written_at_once_and_the_return_when_the_pause_ends(flapping: Flapping) -> None:
    for _ in range(40):
        await flapping.tell(status(DOWN), status(UP, 2))
    await flapping.tell(status(DOWN))
    flapping.world.now += MAX_RETURN_PAUSE_SECONDS
    assert await flapping.tell(status(UP, 2)) == 1
    assert await flapping.tell(status(DOWN)) == 1
    flapping.told = status(UP, 2)
    waited = 0.0
    due = await flapping.world.look()
    while not is_good(flapping.stored):
        assert due is not None
        assert 0 < due <= MAX_RETURN_PAUSE_SECONDS
        flapping.world.now += due
        waited += due
        due = await flapping.world.look()
    assert MAX_RETURN_PAUSE_SECONDS - 3 * LOOK_SECONDS < waited <= MAX_RETURN_PAUSE_SECONDS
    flapping.world.now += PERIOD_SECONDS + MAX_RETURN_PAUSE_SECONDS
    for item in (status(DOWN), status(UP, 2)):
        assert await flapping.tell(item) == 1, "after a quiet time, it begins again"


async def test_a_reason_that_was_not_there_for_minutes_is_written_at_once(flapping: Flapping) -> None:
    for _ in range(40):
        await flapping.tell(status(DOWN), status(UP, 2))
    assert await flapping.tell(status(("False", "RouterNotConfigured"))) == 1


async def test_a_change_of_the_specification_ends_the_pause(flapping: Flapping) -> None:
    for _ in range(40):
        await flapping.tell(status(DOWN), status(UP, 2))
    for item in (status(HALF, 1), status(DOWN), status(HALF, 1)):
        await flapping.tell(item)
    assert await flapping.tell(status(DOWN, generation=2)) == 1
    assert await flapping.tell(status(UP, 2, generation=2)) == 1


async def test_numbers_that_change_without_end_are_up_to_a_minute_old(flapping: Flapping) -> None:
    numbers = iter(range(1_000_000))
    minutes = 10
    looks = int(60 * minutes / LOOK_SECONDS)
    assert await flapping.tell(*(status(HALF, next(numbers)) for _ in range(MOST_AT_ONCE))) == MOST_AT_ONCE
    await flapping.tell(*(status(HALF, next(numbers)) for _ in range(looks)))
    assert await flapping.tell(*(status(HALF, next(numbers)) for _ in range(looks))) <= minutes + 1
    last = next(numbers)
    flapping.world.now += MAX_DETAILS_PAUSE_SECONDS
    await flapping.tell(status(HALF, last))
    assert flapping.stored["openConnections"] == last


async def test_numbers_that_the_observer_reports_from_time_to_time_are_written_each_time(
    flapping: Flapping,
) -> None:
    await flapping.tell(status(UP))
    for number in range(200):
        flapping.world.now += 15 - LOOK_SECONDS + 1
        assert await flapping.tell(status(UP, number + 1)) == 1


async def test_runs_of_an_analysis_are_written_each_time(flapping: Flapping) -> None:
    done: list[dict[str, str]] = []
    for number in range(100):
        for state in ("Pending", "Running", "Succeeded"):
            runs = [{"name": f"nightly-{number}", "state": state}, *done]
            found = status(("True", "RunSucceeded"), state=state, runs=runs)
            assert await flapping.tell(found) == 1
        done = runs[:9]
        flapping.world.now += 60 - 3 * LOOK_SECONDS


def test_insecure_is_written_at_once() -> None:
    def told(truth: str) -> dict[str, Any]:
        return {"conditions": [{"type": "Insecure", "status": truth, "reason": truth, "message": ""}]}

    now = 0.0
    dampening = Dampening(lambda: now)
    for version in range(100):
        now += 1
        if not dampening.holds("x", told("True"), told("False")):
            dampening.written("x", told("True"), told("False"), version)
    assert dampening.holds("x", told("True"), told("False"))
    assert not dampening.holds("x", told("False"), told("True"))
    dampening.retain(())
    assert len(dampening) == 0
    assert not dampening.holds("x", told("True"), told("False"))
