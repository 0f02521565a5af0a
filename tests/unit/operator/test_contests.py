"""Two writers of one object: single changes are corrected at once, an endless contest is not."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY
from tests.unit.operator.support import router
from tests.unit.operator.test_refused_statuses import World

from isthmus_operator.apply import Applier, Outcome, identity, owned
from isthmus_operator.contests import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, MOST_CHANGES, PERIOD_SECONDS
from isthmus_operator.names import ANNOTATION_APPLIED, LABEL_MANAGED_BY, MANAGER
from isthmus_operator.resources import Router, parse


class Server:
    """One object, which an applier and somebody else write."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.version = self.writes = 0
        self.live: dict[str, Any] | None = None
        api: Any = self
        self.applier = Applier(api, lambda: self.now)
        found = parse(router("west"))
        assert isinstance(found, Router)
        self.owner = found
        self.desired = self.service(1)

    def service(self, port: int) -> dict[str, Any]:
        metadata = {"name": "west", "namespace": "net", "labels": {LABEL_MANAGED_BY: MANAGER}}
        bare = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"port": port}}
        return owned(bare, self.owner)

    def store(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        uid = self.live["metadata"]["uid"] if self.live is not None else f"uid-{self.version}"
        self.live = copy.deepcopy(manifest)
        self.live["metadata"] |= {"uid": uid, "resourceVersion": str(self.version)}
        return self.live

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return self.live

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        return self.store(manifest)

    async def apply(self, manifest: dict[str, Any], *, seen: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        return self.store(manifest)

    async def look(self) -> Outcome:
        live = {identity(self.live): self.live} if self.live is not None else {}
        live = self.applier.current(live)
        self.applier.retain(live, [self.desired])
        return await self.applier.converge(self.owner, [self.desired], live, live.values())

    def other(self) -> None:
        self.store(self.service(2))

    def delete(self) -> None:
        self.live = None


@pytest.mark.parametrize("act", [Server.other, Server.delete])
async def test_an_endless_contest_ends_in_pauses_that_grow(act: Any) -> None:
    server = Server()
    await server.look()
    for number in range(MOST_CHANGES):
        act(server)
        assert not (await server.look()).problems
        assert server.writes == number + 2, "a single change is corrected at once"
        server.now += 1
    pause = FIRST_PAUSE_SECONDS
    for _ in range(8):
        act(server)
        writes, end = server.writes, server.now + pause
        for _ in range(3):
            [problem] = (await server.look()).problems
        assert (problem.reason, problem.transient) == ("ContestedObject", False)
        assert "watchNamespaces" in problem.message
        due = server.applier.due(server.now)
        assert due is not None
        assert end - server.now - 0.01 <= due <= pause
        server.now = end - 1
        await server.look()
        assert server.writes == writes
        server.now = end
        assert [item.reason for item in (await server.look()).problems] in ([], ["ContestedObject"])
        assert server.writes == writes + 1
        [problem] = (await server.look()).problems
        assert problem.reason == "ContestedObject", "also while the object is as it should be"
        pause = min(MAX_PAUSE_SECONDS, 2 * pause)
    server.now += PERIOD_SECONDS + 1
    assert not (await server.look()).problems
    act(server)
    assert not (await server.look()).problems


async def test_a_resource_that_is_made_anew_again_and_again_is_no_contest() -> None:
    """Kubernetes deletes the objects of the earlier resource. The seventh new Router had no pods for two minutes."""
    server = Server()
    for number in range(4 * MOST_CHANGES):
        found = parse(router("west", meta={"uid": f"uid-west-{number}"}))
        assert isinstance(found, Router)
        server.owner = found
        server.desired = server.service(1)
        server.delete()
        assert not (await server.look()).problems
        assert server.writes == number + 1
        server.now += 1


async def test_a_new_resource_does_not_inherit_a_contest() -> None:
    server = Server()
    await server.look()
    for _ in range(MOST_CHANGES + 1):
        server.other()
        problems = (await server.look()).problems
    assert problems
    found = parse(router("west", meta={"uid": "uid-west-2"}))
    assert isinstance(found, Router)
    server.owner = found
    server.desired = server.service(1)
    server.delete()
    assert not (await server.look()).problems
    assert server.live is not None


async def test_changes_that_are_far_apart_are_corrected_at_once() -> None:
    server = Server()
    await server.look()
    for number in range(4 * MOST_CHANGES):
        server.other()
        assert not (await server.look()).problems
        assert server.writes == number + 2
        server.now += PERIOD_SECONDS / 3


async def test_own_changes_are_no_contest() -> None:
    server = Server()
    for port in range(4 * MOST_CHANGES):
        server.desired = server.service(port)
        assert not (await server.look()).problems
        assert server.writes == port + 1


async def test_a_status_that_somebody_else_changes_again_and_again_is_written_with_pauses() -> None:
    world = World()
    known: Any = world.store.link_routes
    for number in range(50):
        await world.look()
        for item in known["net"]:
            if item["metadata"]["name"] == "good":
                item["status"] = {"conditions": [], "observedGeneration": number}
                item["metadata"]["resourceVersion"] = str(10 + number)
        written = world.reconciliation._written
        for uid, item in written.items():
            if uid == "good":
                written[uid] = replace(item, resource_version=9 + number)
        world.now += 0.1
    assert world.api.tried.count("good") == MOST_CHANGES + 1
    await world.observer.close()


def other_hash(metadata: dict[str, Any], version: int) -> None:
    metadata["annotations"][ANNOTATION_APPLIED] = str(version)


def other_fields(metadata: dict[str, Any], version: int) -> None:
    metadata["managedFields"] = [{"manager": MANAGER, "operation": "Update", "time": version}]


def other_label(metadata: dict[str, Any], version: int) -> None:
    metadata["labels"]["version"] = str(version)


@pytest.mark.parametrize(("change", "most"), [(other_hash, 7), (other_fields, 48), (other_label, 1)])
async def test_an_object_that_an_admission_policy_changes_with_each_write_is_written_with_pauses(
    change: Any, most: int
) -> None:
    class Altering(Server):
        def store(self, manifest: dict[str, Any]) -> dict[str, Any]:
            live = super().store(manifest)
            change(live["metadata"], self.version)
            return copy.deepcopy(live)

        async def claim(self, seen: dict[str, Any]) -> dict[str, Any]:
            self.writes += 1
            return self.store(seen)

    kind = {"kind": "Service"}
    before = REGISTRY.get_sample_value("isthmus_operator_contests_total", kind) or 0.0
    server = Altering()
    for _ in range(50):
        outcome = await server.look()
    assert server.writes <= most
    reasons = [item.reason for item in outcome.problems]
    assert reasons == (["ContestedObject"] if most > 1 else [])
    pauses = REGISTRY.get_sample_value("isthmus_operator_contests_total", kind) or 0.0
    assert pauses - before == (most > 1)
