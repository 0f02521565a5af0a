"""What the author of a resource withdraws is removed although somebody has removed `managedFields` of an object."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.unit.operator.api_server import ApiServer
from tests.unit.operator.support import router

from isthmus_operator.apply import Applier, Outcome, identity, owned
from isthmus_operator.cluster import ApiError
from isthmus_operator.fields import applied, is_applied, is_inherited
from isthmus_operator.names import LABEL_MANAGED_BY, MANAGER
from isthmus_operator.resources import Router, parse

UNKNOWN = "before-first-apply"


def entry(manager: str, operation: str, manifest: dict[str, Any]) -> dict[str, Any]:
    fields = {"f:spec": {f"f:{key}": {} for key in manifest["spec"]}, "f:metadata": {"f:labels": {}}}
    return {"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": fields}


def owns(entries: list[dict[str, Any]]) -> set[str]:
    return {key for item in entries for key in item["fieldsV1"].get("f:spec", {})}


class Server(ApiServer):
    """One that records the owners of the fields of `spec`, as the API server does."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[str] = []
        self.refusals = 0

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.requests.append("create")
        made = await super().create(manifest)
        made["metadata"]["managedFields"] = [entry(MANAGER, "Update", manifest)]
        return self.put(made)

    async def claim(self, seen: dict[str, Any]) -> dict[str, Any]:
        self.requests.append("claim")
        if self.refusals:
            self.refusals -= 1
            raise ApiError(409, "Conflict", "it has been modified")
        return await super().claim(seen)

    async def apply(self, manifest: dict[str, Any], *, seen: dict[str, Any]) -> dict[str, Any]:
        self.requests.append("apply")
        found = self._seen(seen)
        entries = found["metadata"].get("managedFields") or [entry(UNKNOWN, "Update", found)]
        ours = [item for item in entries if (item["manager"], item["operation"]) == (MANAGER, "Apply")]
        others = [item for item in entries if item not in ours]
        gone = owns(ours) - owns(others) - {f"f:{key}" for key in manifest["spec"]}
        spec = {key: value for key, value in found["spec"].items() if f"f:{key}" not in gone}
        metadata = {**found["metadata"], **manifest["metadata"]}
        metadata["managedFields"] = [*others, entry(MANAGER, "Apply", manifest)]
        return self.put({**manifest, "metadata": metadata, "spec": {**spec, **manifest["spec"]}})


class World:
    """An object of a Router, of which the author of the Router decides the specification."""

    def __init__(self, kind: str = "StatefulSet") -> None:
        self.kind = kind
        self.server = Server()
        api: Any = self.server
        self.applier = Applier(api)
        found = parse(router("west"))
        assert isinstance(found, Router)
        self.owner = found

    async def want(self, **spec: Any) -> Outcome:
        metadata = {"name": "west", "namespace": "net", "labels": {LABEL_MANAGED_BY: MANAGER}}
        bare = {"apiVersion": "v1", "kind": self.kind, "metadata": metadata, "spec": spec}
        desired = owned(bare, self.owner)
        live = self.applier.current(self.server.live())
        self.server.requests.clear()
        return await self.applier.converge(self.owner, [desired], live, live.values())

    @property
    def object(self) -> dict[str, Any]:
        return self.server.objects[self.kind, "west"]

    def clear(self) -> None:
        """Somebody clears `managedFields`, and adds a field."""
        changed = copy.deepcopy(self.object)
        del changed["metadata"]["managedFields"]
        self.server.put(changed)


async def test_what_the_author_withdraws_is_removed_after_the_owners_were_cleared() -> None:
    """It stayed for good, with `Configured` True."""
    world = World()
    await world.want(replicas=1, nodeSelector="x")
    assert world.server.requests == ["create", "claim"]
    world.clear()
    await world.want(replicas=1, nodeSelector="x")
    assert world.server.requests == []
    outcome = await world.want(replicas=1)
    assert world.object["spec"] == {"replicas": 1}
    assert (outcome.problems, outcome.applied) == ([], [identity(world.object)])
    assert world.server.requests == ["apply", "claim", "apply"]
    for replicas in (1, 2):
        await world.want(replicas=replicas)
    assert world.server.requests == ["apply"], "once"
    assert world.object["spec"] == {"replicas": 2}


async def test_another_change_meanwhile_delays_the_removal_only() -> None:
    world = World()
    await world.want(replicas=1, nodeSelector="x")
    world.clear()
    world.server.refusals = 1
    await world.want(replicas=1)
    assert world.object["spec"] == {"replicas": 1}
    assert world.server.requests == ["apply", "claim", "apply", "claim", "apply"]


@pytest.mark.parametrize("kind", ["ServiceAccount", "PersistentVolumeClaim", "Job"])
async def test_what_kubernetes_adds_to_an_object_stays(kind: str) -> None:
    """The volume of a claim, the selector of a Job."""
    world = World(kind)
    await world.want(suspend=False)
    world.clear()
    changed = copy.deepcopy(world.object)
    changed["spec"]["added"] = "by Kubernetes"
    world.server.put(changed)
    await world.want(suspend=True)
    assert world.object["spec"] == {"suspend": True, "added": "by Kubernetes"}
    assert "claim" not in world.server.requests


def test_the_content_without_an_owner_counts_as_applied() -> None:
    ours = {**entry(MANAGER, "Apply", {"spec": {"a": 1}}), "time": "t"}
    unknown = entry(UNKNOWN, "Update", {"spec": {"a": 1, "b": 2}})
    unknown["fieldsV1"] |= {"f:metadata": {"f:finalizers": {}}, "f:status": {"f:replicas": {}}, "f:data": {}}
    status = {**entry(UNKNOWN, "Update", {"spec": {}}), "subresource": "status"}
    other = entry("kubectl", "Update", {"spec": {"c": 3}})
    metadata = {"managedFields": [ours, unknown, status, other]}
    assert is_applied(metadata)
    assert is_inherited(metadata)
    *others, found = applied(metadata)
    assert others == [status, other]
    assert found == {
        **ours,
        "fieldsV1": {
            "f:spec": {"f:a": {}, "f:b": {}},
            "f:metadata": {"f:labels": {}},
            "f:data": {},
        },
    }
    assert not is_inherited({"managedFields": applied(metadata)})
    assert not is_inherited({})
