"""Objects of somebody else, under names that the operator derives: no pod of a resource may get their identity,
content or rights."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.operator.support import flow_analysis, flow_log, gossip_router, model, router

from isthmus_operator.apply import Applier, Identity, Outcome, Owner, identity, owned
from isthmus_operator.cluster import CHILD_KINDS, ApiError
from isthmus_operator.flow_facts import claims_beside
from isthmus_operator.model import NamespaceModel
from isthmus_operator.names import LABEL_MANAGED_BY, MANAGER
from isthmus_operator.observe import Observer
from isthmus_operator.reconcile import Operator, Reconciliation
from isthmus_operator.render import RenderSettings, render
from isthmus_operator.store import Store

WORKLOADS = {"StatefulSet", "Deployment", "Job", "CronJob"}
RESOURCES = (
    router("payments", replicas=2),
    router("leaf", mode="edge"),
    gossip_router("meet"),
    router("hub"),
    flow_log("flows"),
    flow_analysis("daily"),
    flow_analysis("hourly", schedule="@hourly"),
)
SETTINGS = RenderSettings("r:1", "c:1", analysis_image="a:1", collector_image="f:1")


def everything() -> tuple[NamespaceModel, dict[str, tuple[Owner, list[dict[str, Any]]]]]:
    found = model(*copy.deepcopy(RESOURCES))
    owners = render(found, SETTINGS).owners()
    return found, {owner.name: (owner, [owned(item, owner) for item in objects]) for owner, objects in owners}


MODEL, OWNERS = everything()


class Api:
    """What the API server has of one namespace."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.objects = {identity(item): item for item in copy.deepcopy(objects)}
        self.unreadable: set[Identity] = set()
        self.written: list[Identity] = []

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        if (kind, name) in self.unreadable:
            raise ApiError(0, "Unreachable", "no answer")
        return self.objects.get((kind, name))

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        made = copy.deepcopy(manifest)
        made["metadata"] |= {"uid": f"uid of {identity(manifest)}"}
        self.objects[identity(made)] = made
        self.written.append(identity(made))
        return made

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> bool:
        self.written.append((kind, name))
        return self.objects.pop((kind, name), None) is not None

    async def converge(self, owner: Owner, desired: list[dict[str, Any]]) -> Outcome:
        live = {
            key: item
            for key, item in self.objects.items()
            if (item["metadata"].get("labels") or {}).get(LABEL_MANAGED_BY) == MANAGER
        }
        mine = [
            item
            for item in live.values()
            if any(ref["uid"] == owner.metadata.uid for ref in item["metadata"].get("ownerReferences", ()))
        ]
        api: Any = self
        return await Applier(api).converge(owner, desired, live, mine, claims_beside(owner, MODEL))


def foreign(kind: str, name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": MODEL.namespace, "uid": "theirs"}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def needed() -> Iterator[tuple[str, Identity]]:
    """Name of the owner, and an object that its pods have or depend on."""
    for name, (owner, objects) in OWNERS.items():
        for key in [*claims_beside(owner, MODEL), *map(identity, objects)]:
            if key[0] not in WORKLOADS | {"PodDisruptionBudget"}:
                yield name, key


def test_every_kind_that_pods_depend_on_is_there() -> None:
    kinds = {kind for _, (kind, _) in needed()}
    assert kinds == {
        *("ServiceAccount", "Secret", "ConfigMap", "PersistentVolumeClaim", "Service", "NetworkPolicy"),
        "RoleBinding",
    }


@pytest.mark.parametrize(("name", "theirs"), list(needed()), ids=str)
async def test_nothing_runs_with_an_object_of_somebody_else(name: str, theirs: Identity) -> None:
    owner, desired = OWNERS[name]
    api = Api(foreign(*theirs))
    outcome = await api.converge(owner, desired)
    made = {kind for kind, _ in api.written}
    assert not made & WORKLOADS
    assert theirs not in api.written
    if theirs[0] == "ServiceAccount":
        assert "RoleBinding" not in made
    (problem,) = outcome.problems
    assert (problem.reason, problem.transient) == ("ObjectConflict", False)
    assert f'{theirs[0]} "{theirs[1]}"' in problem.message
    renamed = claims_beside(owner, MODEL).get(theirs, owner)
    assert f'rename {renamed.kind_name} "{renamed.name}", or delete the {theirs[0]}' in problem.message
    del api.objects[theirs]
    assert (await api.converge(owner, desired)).problems == []
    assert identity(desired[-1]) in api.written


@pytest.mark.parametrize("name", OWNERS)
async def test_a_workload_that_runs_stays_as_it_is(name: str) -> None:
    owner, desired = OWNERS[name]
    api = Api()
    await api.converge(owner, desired)
    theirs = next(identity(item) for item in desired if item["kind"] == "ServiceAccount")
    api.objects[theirs] = foreign(*theirs)
    before, api.written = copy.deepcopy(api.objects), []
    changed = copy.deepcopy(desired)
    changed[-1]["metadata"]["name"] = "another"  # so that the one that runs is no longer wanted
    outcome = await api.converge(owner, changed)
    assert [problem.reason for problem in outcome.problems] == ["ObjectConflict"]
    assert api.objects == before


async def test_a_foreign_disruption_budget_keeps_nothing_from_running() -> None:
    owner, desired = OWNERS["payments"]
    api = Api(foreign("PodDisruptionBudget", "payments"))
    outcome = await api.converge(owner, desired)
    assert [problem.reason for problem in outcome.problems] == ["ObjectConflict"]
    assert ("StatefulSet", "payments") in api.written


async def test_nothing_runs_with_an_object_that_could_not_be_read() -> None:
    owner, desired = OWNERS["payments"]
    api = Api()
    api.unreadable.add(("ServiceAccount", "payments"))
    outcome = await api.converge(owner, desired)
    assert [problem.reason for problem in outcome.problems] == ["ApplyFailed"]
    assert ("StatefulSet", "payments") not in api.written
    api.unreadable.clear()
    assert (await api.converge(owner, desired)).problems == []
    assert ("StatefulSet", "payments") in api.written


STORED = (
    *("Router", "Connector", "LinkRoute", "RelaySite", "GossipRouter", "FlowLog", "FlowAnalysis"),
    "SslProfile",
)


class Ledgers(Api):
    """The same for the whole operator."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        super().__init__(*objects)
        self.statuses: dict[Identity, dict[str, Any]] = {}

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        if identity(manifest) in self.objects:
            raise ApiError(409, "AlreadyExists", "it is there")
        made = copy.deepcopy(manifest)
        made["metadata"] |= {"uid": "new", "resourceVersion": "1"}
        self.objects[identity(made)] = made
        return made

    async def apply(self, manifest: dict[str, Any], *, subresource: str | None = None) -> dict[str, Any]:
        if subresource is None:
            return await super().apply(manifest)
        self.statuses[manifest["kind"], manifest["metadata"]["name"]] = manifest["status"]
        return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": "9"}}


@pytest.mark.parametrize(
    ("resource", "secret"),
    [
        (router("payments", replicas=2), "payments-certificates"),
        (gossip_router("meet"), "meet-gossip-certificates"),
    ],
    ids=str,
)
async def test_a_foreign_secret_in_place_of_the_certificates_is_named(
    resource: dict[str, Any], secret: str
) -> None:
    kind, name = resource["kind"], resource["metadata"]["name"]
    stub = Ledgers(foreign("Secret", secret))
    api: Any = stub
    observer = Observer(lambda _: None)
    operator = Operator(api, SETTINGS, observer, "1", "pod", time.monotonic)
    resource = {**resource, "metadata": {**resource["metadata"], "resourceVersion": "7"}}
    none: dict[str, Any] = {}
    indices = {item: {"net": [resource]} if item == kind else none for item in STORED}
    children: dict[str, Any] = {item: {} for item in CHILD_KINDS}
    store = Store(*(indices[item] for item in STORED), none, none, children)
    await Reconciliation("net", operator).look(store)
    await observer.close()
    conditions = {item["type"]: item for item in stub.statuses[kind, name]["conditions"]}
    assert conditions["Configured"]["status"] == "False"
    assert f'Secret "{secret}"' in conditions["Configured"]["message"]
    assert f'rename {kind} "{name}"' in conditions["Configured"]["message"]
