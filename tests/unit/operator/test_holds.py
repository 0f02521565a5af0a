"""Objects that the API server does not write: each is tried again later and later, and the others are written."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.unit.operator.test_conflicts import OWNERS, Api, other

from isthmus_operator.apply import Applier, Identity, Outcome
from isthmus_operator.cluster import ApiError
from isthmus_operator.holds import FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS, REFUSED_SECONDS, Holds

TEXTS = [
    "etcdserver: request is too large",
    "failed to create typed patch object",
    "Ein Webhook antwortet nicht",
    "",
]


class Failing(Api):
    """Fails to write objects of one kind."""

    def __init__(self, kind: str, error: ApiError) -> None:
        super().__init__()
        self.kind = kind
        self.error = error
        self.attempts = 0

    def _before(self, key: Identity) -> None:
        if key[0] == self.kind:
            self.attempts += 1
            raise self.error
        super()._before(key)


class World:
    def __init__(self, api: Api) -> None:
        self.now = 100.0
        self.api = api
        anything: Any = api
        self.applier = Applier(anything, lambda: self.now)
        self.owner, self.desired = copy.deepcopy(OWNERS["payments"])

    async def look(self) -> Outcome:
        live = self.api.live()
        self.applier.retain(live, self.desired)
        return await self.applier.converge(self.owner, self.desired, live, live.values())

    def due(self) -> float | None:
        return self.applier.due(self.now)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_an_object_that_fails_is_tried_with_growing_pauses_whatever_the_text(
    text: str, status: int
) -> None:
    api = Failing("PodDisruptionBudget", ApiError(status, "", text))
    world = World(api)
    pauses = []
    for attempt in range(1, 10):
        outcome = await world.look()
        assert api.attempts == attempt
        assert [(item.reason, item.transient) for item in outcome.problems] == [("ApplyFailed", False)]
        assert outcome.problems[0].message == f'PodDisruptionBudget "payments": {text}'
        due = world.due()
        assert due is not None
        world.now += due - 0.05
        assert (await world.look()).problems == outcome.problems, "the condition states it meanwhile"
        assert api.attempts == attempt
        world.now += 0.1
        pauses.append(round(due))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    kinds = {kind for kind, _ in api.written}
    assert kinds >= {"Secret", "Service", "StatefulSet", "NetworkPolicy"}, "the others are written"
    assert len(api.written) == len(world.desired) - 1, "once"


async def test_an_object_that_was_written_begins_with_the_first_pause_again() -> None:
    api = Failing("PodDisruptionBudget", ApiError(500, "", ""))
    world = World(api)
    for _ in range(3):
        await world.look()
        world.now += MAX_RETRY_SECONDS
    api.kind = ""
    assert (await world.look()).problems == []
    assert world.due() is None
    api.kind = "PodDisruptionBudget"
    world.desired = [other(item) for item in world.desired]
    await world.look()
    assert world.due() == pytest.approx(FIRST_RETRY_SECONDS)


async def test_a_changed_object_is_tried_at_once() -> None:
    api = Failing("PodDisruptionBudget", ApiError(500, "", ""))
    world = World(api)
    await world.look()
    world.desired = [other(item) for item in world.desired]
    await world.look()
    assert api.attempts == 2


async def test_an_object_that_cannot_be_deleted_is_tried_with_growing_pauses() -> None:
    api = Failing("", ApiError(500, "", ""))
    world = World(api)
    await world.look()
    world.desired = [item for item in world.desired if item["kind"] != "PodDisruptionBudget"]
    api.kind = "PodDisruptionBudget"
    for pause in (1.0, 2.0, 4.0):
        await world.look()
        assert world.due() == pytest.approx(pause)
        attempts = api.attempts
        assert len((await world.look()).problems) == 1
        assert api.attempts == attempts
        world.now += pause
    api.kind = ""
    assert (await world.look()).deleted == [("PodDisruptionBudget", "payments")]


def test_what_is_invalid_is_tried_again_after_one_pause() -> None:
    now = 5.0
    holds = Holds(lambda: now)
    for _ in range(3):
        holds.add("west", "v1", ApiError(422, "Invalid", ""))
        assert holds.due(now) == REFUSED_SECONDS
    now += REFUSED_SECONDS
    assert holds.refusal("west", "v1") is None


def test_a_pause_that_had_ended_before_is_no_reason_to_look_again() -> None:
    now = 5.0
    holds = Holds(lambda: now)
    holds.add("west", "v1", ApiError(500, "", ""))
    now += 2 * FIRST_RETRY_SECONDS
    assert holds.due(since=5.0) == pytest.approx(0.1), "it ended during the reconciliation"
    assert holds.due(since=now) is None


def test_objects_that_are_gone_are_forgotten() -> None:
    holds = Holds(lambda: 5.0)
    for name in ("west", "east"):
        holds.add(name, "v1", ApiError(500, "", ""))
    holds.retain({"east"})
    assert (len(holds), holds.refusal("west", "v1")) == (1, None)


async def test_a_refusal_does_not_concern_a_resource_that_is_made_anew() -> None:
    """A namespace that was deleted and made again had no objects for 30 seconds."""
    api = Failing("PodDisruptionBudget", ApiError(403, "Forbidden", "the namespace is being terminated"))
    world = World(api)
    assert (await world.look()).problems
    await world.look()
    assert api.attempts == 1
    former = world.owner
    metadata = former.metadata.model_copy(update={"uid": "uid-payments-2"})
    world.owner = former.model_copy(update={"metadata": metadata})
    for item in world.desired:
        reference = {**item["metadata"]["ownerReferences"][0], "uid": "uid-payments-2"}
        item["metadata"] = {**item["metadata"], "ownerReferences": [reference]}
    api.objects.clear()
    assert (await world.look()).problems
    assert api.attempts == 2
