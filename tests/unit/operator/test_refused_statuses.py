"""Statuses that are written: one that the API server refuses concerns its resource alone, and none hides anything."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.operator.support import link_route

from isthmus_operator import reconcile
from isthmus_operator.cluster import ApiError
from isthmus_operator.contests import FIRST_PAUSE_SECONDS, MOST_CHANGES, PERIOD_SECONDS
from isthmus_operator.events import LASTING_SECONDS
from isthmus_operator.handlers.children import KINDS
from isthmus_operator.holds import REFUSED_SECONDS
from isthmus_operator.observe import Observer
from isthmus_operator.reconcile import LATE_SECONDS, MAX_STATUS_PAUSE_SECONDS, Operator, Reconciliation
from isthmus_operator.render import RenderSettings
from isthmus_operator.resources import LinkRoute
from isthmus_operator.store import Store
from isthmus_operator.stored import status_fields


class Api:
    """Refuses the status of the resource `bad`."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.noted: set[str] = set()
        """Names of the resources with Events."""
        self.statuses: dict[str, dict[str, Any]] = {}
        self.merged: list[dict[str, Any]] = []
        self.error = ApiError(422, "Invalid", "status.replayed: must be less than 9223372036854775807")

    async def apply(self, manifest: dict[str, Any], *, subresource: str | None = None) -> dict[str, Any]:
        assert subresource == "status"
        name = manifest["metadata"]["name"]
        self.tried.append(name)
        self.statuses[name] = manifest["status"]
        if name == "bad":
            raise self.error
        answer = copy.deepcopy(manifest)
        answer["metadata"]["resourceVersion"] = str(8 + len(self.tried))
        return answer

    async def merge(
        self, kind: str, namespace: str, name: str, patch: dict[str, Any], *, subresource: str | None = None
    ) -> dict[str, Any]:
        assert (kind, namespace, subresource) == ("LinkRoute", "net", "status")
        assert patch["metadata"] == {"uid": name}
        self.merged.append(patch["status"])
        metadata = {"uid": name, "name": name, "namespace": namespace, "resourceVersion": "99"}
        stored = {key: value for key, value in patch["status"].items() if value is not None}
        return {"kind": kind, "metadata": metadata, "status": stored}

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.noted.add(manifest["regarding"]["name"])
        return manifest


class World:
    def __init__(self, **odd: Any) -> None:
        """`odd`: further fields of the resource `last`."""
        self.now = 1000.0
        self.api = Api()
        self.observer = Observer(lambda _: None)
        settings = RenderSettings(router_image="router:1")
        api: Any = self.api
        self.operator = Operator(api, settings, self.observer, "1", "pod", lambda: self.now)
        self.reconciliation = Reconciliation("net", self.operator)
        routes = [link_route(name, prefix=name, containerId="x") for name in ("bad", "good", "last")]
        routes[-1]["spec"] |= odd
        for item in routes:
            item["metadata"] |= {"resourceVersion": "7", "uid": item["metadata"]["name"]}
        none: dict[str, Any] = {}
        children: dict[str, Any] = {kind: {} for kind in KINDS}
        self.store = Store(none, none, {"net": routes}, *([none] * 7), children)

    async def look(self) -> float | None:
        return await self.reconciliation.look(self.store)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.observer.close()


async def test_the_others_are_written_and_it_is_tried_again_later(world: World) -> None:
    due = await world.look()
    assert due is not None
    assert due <= REFUSED_SECONDS
    assert sorted(world.api.tried) == ["bad", "good", "last"]
    assert sum(world.reconciliation.readiness.values()) == 3
    world.now += 1
    await world.look()
    assert len(world.api.tried) == 3
    world.now += REFUSED_SECONDS
    await world.look()
    assert world.api.tried[3:] == ["bad"]


async def test_an_api_server_that_does_not_answer_is_asked_again_soon(world: World) -> None:
    world.api.error = ApiError(0, "Unreachable", "the API server cannot be reached")
    with pytest.raises(ApiError):
        await world.look()
    assert sorted(world.api.tried) == ["bad", "good", "last"]
    world.now += LASTING_SECONDS + 1
    with pytest.raises(ApiError):
        await world.look()
    assert world.api.noted >= {"good", "last"}, "the others have their Events"
    assert sum(world.reconciliation.readiness.values()) == 3


@pytest.mark.parametrize("status", [500, 503, 504])
async def test_a_status_that_the_api_server_fails_to_store_is_tried_again_alone_and_more_and_more_rarely(
    world: World, status: int
) -> None:
    """etcd answers so to one that is too large, and for a moment without a leader: nothing tells the two apart."""
    world.api.error = ApiError(status, "", "etcdserver: request is too large")
    for pause in (1.0, 2.0, 4.0, 8.0, 16.0):
        due = await world.look()
        tried = len(world.api.tried)
        assert due is not None
        assert due <= pause
        world.now += pause - 0.1
        await world.look()
        assert len(world.api.tried) == tried
        world.now += 0.2
    assert world.api.noted >= {"good", "last"}, "the others have their Events"
    assert world.api.tried.count("good") == world.api.tried.count("last") == 1
    assert world.api.tried.count("bad") == 5


async def test_a_status_of_a_resource_that_does_not_exist_is_tried_again_rarely(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator still holds a resource whose deletion it has not received."""
    world.api.error = ApiError(404, "NotFound", 'linkroutes.isthmus.dev "bad" not found')
    for _ in range(10):
        due = await world.look()
        assert due is not None
        assert due <= REFUSED_SECONDS
        world.now += 1
    assert world.api.tried.count("bad") == 1
    assert "refused" not in caplog.text
    world.now += REFUSED_SECONDS
    await world.look()
    assert world.api.tried.count("bad") == 2


async def test_the_time_of_a_refused_condition_does_not_end_its_pause(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A condition that was never stored has the present time, which is another one in each second."""
    seconds = count()
    monkeypatch.setattr(reconcile, "_timestamp", lambda **_: f"2026-01-01T00:00:{next(seconds):02}Z")
    for _ in range(3):
        await world.look()
        world.now += 1
    assert world.api.tried.count("bad") == 1


async def test_a_message_with_what_somebody_wrote_has_no_control_characters() -> None:
    world = World(containerId="\x9b2J\u202e\ninto")
    await world.look()
    messages = [item["message"] for item in world.api.statuses["last"]["conditions"]]
    assert any("\ufffd2J\ufffd into" in message for message in messages), messages
    assert all(message.isprintable() for message in messages)
    await world.observer.close()


async def test_a_pod_that_may_not_be_annotated_is_logged_and_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(*_: Any) -> None:
        raise ApiError(403, "Forbidden", "a policy of the cluster refuses it")

    pods = [SimpleNamespace(uid=name, name=name) for name in ("west-0", "west-1")]
    sync = SimpleNamespace(
        forget=lambda _: None, touches=lambda _: [(pod, {}) for pod in pods], waiting=lambda _: False
    )
    monkeypatch.setattr(world.api, "merge", refuse, raising=False)
    monkeypatch.setattr(world.reconciliation, "_sync", sync)
    facts: Any = [SimpleNamespace(router=SimpleNamespace(metadata=SimpleNamespace(paused=False)))]
    assert not await world.reconciliation._deliver(facts, [], [])
    assert [pod.name in caplog.text for pod in pods] == [True, True]


async def test_a_status_that_cannot_be_computed_concerns_its_resource_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = reconcile.status_of_link_route

    def fail(route: LinkRoute, *arguments: Any) -> Any:
        if route.name == "bad":
            raise TypeError("unhashable type: 'list'")
        return original(route, *arguments)

    monkeypatch.setattr(reconcile, "status_of_link_route", fail)
    due = await world.look()
    assert due is not None
    assert due <= REFUSED_SECONDS
    await world.look()
    assert sorted(world.api.tried) == ["good", "last"]
    assert caplog.text.count("LinkRoute bad: its status cannot be computed") == 1


async def test_a_resource_that_a_finalizer_holds_is_not_ready(world: World) -> None:
    """Its pods and its objects may be gone: its status is not that of before."""
    held = world.store.link_routes["net"][1]
    held["metadata"] |= {"deletionTimestamp": "2029-01-01T00:00:00Z", "finalizers": ["example.com/hold"]}
    held["status"] = {
        "activeDestinations": 3,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": ""}],
    }
    await world.look()
    status = world.api.statuses["good"]
    assert "activeDestinations" not in status
    assert {(item["type"], item["status"], item["reason"]) for item in status["conditions"]} == {
        ("Configured", "Unknown", "Deleting"),
        ("Ready", "Unknown", "Deleting"),
    }
    assert "finalizers hold it: example.com/hold" in status["conditions"][0]["message"]


async def test_a_status_of_which_nothing_but_messages_change_is_written_less_and_less_often(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that answered each attempt of 300 Connectors with another text had 33 statuses written each second."""
    reason, number = "First", 0

    def told(route: LinkRoute, *_: Any) -> dict[str, Any]:
        condition = {
            "type": "Ready",
            "status": "False",
            "reason": reason,
            "message": f"{route.name} {number}",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
        return {"conditions": [condition]}

    monkeypatch.setattr(reconcile, "status_of_link_route", told)

    def written() -> int:
        return world.api.tried.count("good")

    for number in range(6):
        await world.look()
        assert written() == number + 1
        world.now += 10
    for number in range(6, 126):  # noqa: B007 - `told` uses it
        due = await world.look()
        assert due is not None
        assert due <= MAX_STATUS_PAUSE_SECONDS
        world.now += 10
    assert 9 <= written() <= 6 + 8, "20 minutes"
    before = written()
    reason, number = "Second", 127
    await world.look()
    assert written() == before + 1, "a condition that changes is written at once"
    assert world.api.statuses["good"]["conditions"][0]["message"] == "good 127"
    world.now += PERIOD_SECONDS + MAX_STATUS_PAUSE_SECONDS + 1
    number = 128
    await world.look()
    assert written() == before + 2


class Told:
    """What the statuses of all LinkRoutes tell."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reason, self.message = "First", ""
        monkeypatch.setattr(reconcile, "status_of_link_route", self._status)

    def _status(self, *_: Any) -> dict[str, Any]:
        condition = {"type": "Ready", "status": "False", "reason": self.reason, "message": self.message}
        return {"conditions": [condition | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}


async def test_changes_of_conditions_do_not_delay_the_messages_that_follow(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(monkeypatch)
    for number in range(2 * MOST_CHANGES):
        told.reason = f"Reason{number}"
        await world.look()
        world.now += 1
    told.message = "another one"
    await world.look()
    assert world.api.statuses["good"]["conditions"][0]["message"] == "another one"


async def test_a_message_that_waits_is_written_when_the_pause_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    del world.store.link_routes["net"][0]  # the operator tries it again every 30 seconds
    told = Told(monkeypatch)
    for number in range(MOST_CHANGES + 2):
        told.message = f"message {number}"
        await world.look()
    world.now += LASTING_SECONDS + 1
    await world.look()  # Events of lasting conditions are posted
    told.message = "the last one"
    due = await world.look()
    assert world.api.statuses["good"]["conditions"][0]["message"] != "the last one"
    assert due is not None
    assert 0 < due <= FIRST_PAUSE_SECONDS
    world.now += due
    await world.look()
    assert world.api.statuses["good"]["conditions"][0]["message"] == "the last one"


async def test_messages_of_resources_that_are_gone_are_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(monkeypatch)
    for told.message in ("one", "two"):
        await world.look()
    assert len(world.reconciliation._dampening) == 2
    del world.store.link_routes["net"][1:]
    await world.look()
    assert len(world.reconciliation._dampening) == 0


@pytest.mark.parametrize(("error", "looks"), [(422, 1), (413, 1), (500, 4)])
async def test_a_refused_status_is_written_without_messages_and_lists_by_a_merge_patch(
    world: World, error: int, looks: int
) -> None:
    """A specification of 1.5 MiB left no room for another status, nor for the `managedFields` of server-side apply; and
    no apply fits where a stored specification has a value of another type than the schema."""
    world.api.error = ApiError(error, "", "etcdserver: request is too large")
    for number in range(looks):
        assert len(world.api.merged) == 0, number
        await world.look()
        world.now += REFUSED_SECONDS + 1
    (short,) = world.api.merged
    whole = world.api.statuses["bad"]
    assert [item["status"] for item in short["conditions"]] == [
        item["status"] for item in whole["conditions"]
    ]
    assert not [item for item in short["conditions"] if "message" in item]
    assert short["observedGeneration"] == whole["observedGeneration"]
    assert set(short) == status_fields("LinkRoute"), "no field of the stored status stays"
    assert not [key for key, item in short.items() if isinstance(item, list | dict) and key != "conditions"]
    tried = world.api.tried.count("bad")
    for _ in range(5):
        await world.look()
        world.now += 2 * REFUSED_SECONDS + 1
    assert len(world.api.merged) == 1, "once"
    assert world.api.tried.count("bad") > tried, "the whole status is tried again"


async def test_a_restored_status_is_corrected(world: World) -> None:
    """The versions of a restored etcd are older than those that the operator has seen, and stay so."""
    await world.look()
    good = world.store.link_routes["net"][1]
    conditions = [
        {**item, "status": "True", "reason": "Ready"} for item in world.api.statuses["good"]["conditions"]
    ]
    good["status"] = {**world.api.statuses["good"], "conditions": conditions}
    good["metadata"]["resourceVersion"] = "5"
    world.api.tried.clear()
    world.now += LATE_SECONDS - 1
    await world.look()
    assert "good" not in world.api.tried  # a watch that is late
    world.now += 1
    await world.look()
    assert world.api.tried.count("good") == 1
    await world.look()
    assert world.api.tried.count("good") == 1
