"""Objects of somebody else, under names that the operator derives: no pod of a resource may get their identity,
content or rights."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
from tests.unit.operator.api_server import ApiServer, WholeApiServer, store_of
from tests.unit.operator.support import flow_analysis, flow_log, gossip_router, model, router

from isthmus_operator.apply import Applier, Identity, Outcome, identity, owned
from isthmus_operator.cluster import ApiError
from isthmus_operator.fields import is_applied
from isthmus_operator.flow_facts import claims_beside
from isthmus_operator.model import NamespaceModel
from isthmus_operator.names import ANNOTATION_APPLIED, LABEL_MANAGED_BY, LABEL_ROUTER, MANAGER, base_name
from isthmus_operator.observe import Observer
from isthmus_operator.reconcile import Operator, Reconciliation
from isthmus_operator.render import RenderSettings, render
from isthmus_operator.report import Observation
from isthmus_operator.seniority import Owner

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


class Api(ApiServer):
    """With what an operator makes of `MODEL` there."""

    async def converge(
        self,
        owner: Owner,
        desired: list[dict[str, Any]],
        live: dict[Identity, dict[str, Any]] | None = None,
    ) -> Outcome:
        """`live` is what the operator knows, if not all."""
        live = self.live() if live is None else live
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
        *("ServiceAccount", "Secret", "PersistentVolumeClaim", "Service", "NetworkPolicy"),
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


def made() -> Iterator[tuple[str, Identity]]:
    """Name of the owner, and an object that it has."""
    yield from ((name, identity(item)) for name, (_, objects) in OWNERS.items() for item in objects)


def other(desired: dict[str, Any]) -> dict[str, Any]:
    """The same with another content."""
    changed = copy.deepcopy(desired)
    changed["metadata"]["annotations"][ANNOTATION_APPLIED] = "another"
    if desired["kind"] == "Job":
        changed["spec"]["suspend"] = not changed["spec"].get("suspend", False)
    return changed


@pytest.mark.parametrize(("name", "theirs"), list(made()), ids=str)
async def test_what_others_create_after_the_look_up_is_not_taken_over(name: str, theirs: Identity) -> None:
    owner, desired = OWNERS[name]
    api = Api()
    api.acts[theirs] = foreign(*theirs)
    outcome = await api.converge(owner, desired)
    assert api.acts == {}
    assert api.objects[theirs]["metadata"].get("labels") is None
    assert theirs not in api.written
    (problem,) = outcome.problems
    assert (problem.reason, problem.transient) == ("ObjectConflict", False)
    assert f'{theirs[0]} "{theirs[1]}" exists and was not made by the operator' in problem.message
    if (name, theirs) in set(needed()):
        assert not {kind for kind, _ in api.written} & WORKLOADS


# Claims of FlowLogs have no owner; `test_apply.py` has their rule.
@pytest.mark.parametrize(
    ("name", "theirs"), [item for item in made() if item[1][0] != "PersistentVolumeClaim"], ids=str
)
async def test_the_label_alone_makes_no_object_the_operators(name: str, theirs: Identity) -> None:
    """Anybody who may create objects can give them the label, before the operator makes its own."""
    owner, desired = OWNERS[name]
    planted = foreign(*theirs)
    planted["metadata"]["labels"] = {LABEL_MANAGED_BY: MANAGER}
    api = Api(planted)
    outcome = await api.converge(owner, desired)
    assert api.objects[theirs]["metadata"]["uid"] == "theirs"
    assert theirs not in api.written
    (problem,) = outcome.problems
    assert (problem.reason, problem.transient) == ("ObjectConflict", False)
    assert f'{theirs[0]} "{theirs[1]}" has the label of the operator and no owner' in problem.message
    if (name, theirs) in set(needed()):
        assert not {kind for kind, _ in api.written} & WORKLOADS


async def test_an_owner_that_is_taken_away_is_restored() -> None:
    """As long as the operator knows that it has made the object."""
    owner, desired = OWNERS["payments"]
    api = Api()
    stub: Any = api
    applier = Applier(stub)
    await applier.converge(owner, desired, {}, ())
    key = ("Service", "payments")
    for manifest in api.objects.values():
        del manifest["metadata"]["ownerReferences"]
        api.put(manifest)
    outcome = await applier.converge(owner, desired, api.live(), ())
    assert outcome.problems == []
    assert api.objects[key]["metadata"]["ownerReferences"][0]["uid"] == owner.metadata.uid


@pytest.mark.parametrize(("name", "theirs"), list(made()), ids=str)
async def test_what_others_have_replaced_since_it_was_seen_is_not_taken_over(
    name: str, theirs: Identity
) -> None:
    owner, desired = OWNERS[name]
    api = Api()
    await api.converge(owner, [other(item) for item in desired])
    live = api.live()
    api.acts[theirs] = foreign(*theirs)
    outcome = await api.converge(owner, desired, live)
    assert api.acts == {}
    assert api.objects[theirs]["metadata"]["uid"] == "theirs"
    assert api.objects[theirs]["metadata"].get("labels") is None
    assert [problem.reason for problem in outcome.problems] == ["ObjectConflict"]


@pytest.mark.parametrize(("name", "gone"), list(made()), ids=str)
async def test_what_is_deleted_after_it_was_seen_is_made_again(name: str, gone: Identity) -> None:
    owner, desired = OWNERS[name]
    api = Api()
    await api.converge(owner, [other(item) for item in desired])
    api.acts[gone] = None
    assert (await api.converge(owner, desired)).problems == []
    assert gone in api.objects


@pytest.mark.parametrize("name", OWNERS)
async def test_what_others_have_taken_is_not_deleted(name: str) -> None:
    owner, desired = OWNERS[name]
    api = Api()
    await api.converge(owner, desired)
    live = api.live()
    for item in desired:
        api.acts[identity(item)] = foreign(*identity(item))
    outcome = await api.converge(owner, [], live)
    assert (outcome.deleted, outcome.problems) == ([], [])
    struck = [key for key in live if key not in api.acts]
    assert struck
    assert all(api.objects[key]["metadata"]["uid"] == "theirs" for key in struck)


@pytest.mark.parametrize("kind", ["ServiceAccount", "Secret"])
async def test_no_pod_waits_for_an_object_that_somebody_else_could_create(kind: str) -> None:
    """The operator cannot make it, so whatever comes by that name is not the operator's."""
    owner, desired = OWNERS["payments"]
    api = Api()
    (key,) = [identity(item) for item in desired if item["kind"] == kind]
    api.refusing.add(key)
    outcome = await api.converge(owner, desired)
    assert [problem.reason for problem in outcome.problems] == ["ApplyFailed"]
    assert ("StatefulSet", "payments") not in api.written
    api.refusing.clear()
    assert (await api.converge(owner, desired)).problems == []
    assert ("StatefulSet", "payments") in api.written


async def test_an_operator_that_ends_after_a_creation_leaves_no_field_behind() -> None:
    """The next one claims what the first one has created, before it applies (the stub asserts it)."""
    owner, desired = OWNERS["payments"]
    api = Api()
    api.breaks = True
    assert (await api.converge(owner, desired)).problems
    assert not is_applied(api.objects["ServiceAccount", "payments"]["metadata"])
    api.breaks = False
    api.unreadable.clear()
    assert (await api.converge(owner, [other(item) for item in desired])).problems == []
    assert all(is_applied(item["metadata"]) for item in api.objects.values())


async def test_an_object_that_changes_all_the_time_is_tried_again_later() -> None:
    owner, desired = OWNERS["payments"]
    api = Restless()
    await api.converge(owner, [other(item) for item in desired])
    api.restless = True
    outcome = await api.converge(owner, desired)
    assert {(problem.reason, problem.transient) for problem in outcome.problems} == {("ApplyFailed", True)}
    api.restless = False
    assert (await api.converge(owner, desired)).problems == []


class Restless(Api):
    """Somebody else changes each object before the operator can."""

    restless = False

    def _before(self, key: Identity) -> None:
        if self.restless and key in self.objects:
            self.put(self.objects[key])


def widened() -> Iterator[tuple[str, Identity, tuple[str | int, ...]]]:
    """Objects that say for which pods they are, and a place in each where one more key gives them to others."""
    for name, (_, desired) in OWNERS.items():
        for item in desired:
            spec = item.get("spec", {})
            if item["kind"] == "Service":
                yield name, identity(item), ("spec", "selector")
            if item["kind"] == "PodDisruptionBudget":
                yield name, identity(item), ("spec", "selector", "matchLabels")
            if item["kind"] == "NetworkPolicy":
                yield name, identity(item), ("spec",)
                yield name, identity(item), ("spec", "podSelector", "matchLabels")
                for way, peers in (("ingress", "from"), ("egress", "to")):
                    if way in spec:
                        yield name, identity(item), ("spec", way, 0)
                        if peers in spec[way][0]:
                            yield name, identity(item), ("spec", way, 0, peers, 0)


@pytest.mark.parametrize(("name", "key", "place"), list(widened()))
async def test_a_key_that_widens_a_policy_or_a_selector_is_taken_away(
    name: str, key: Identity, place: tuple[str | int, ...]
) -> None:
    owner, desired = OWNERS[name]
    api = Api()
    await api.converge(owner, desired)
    made = copy.deepcopy(api.objects[key])
    changed: Any = api.objects[key]
    for step in place:
        changed = changed[step]
    changed["added"] = {"by": "somebody"}
    api.written.clear()
    await api.converge(owner, desired)
    assert api.written == [key]
    assert api.objects[key]["spec"] == made["spec"]


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


async def test_the_key_of_an_analysis_is_made_once() -> None:
    owner, desired = OWNERS["daily"]
    secret, api = ("Secret", "daily-analysis"), Api()
    await api.converge(owner, desired)
    first = api.objects[secret]["data"]
    api.written.clear()
    await api.converge(owner, desired)
    assert api.written == []
    api.objects[secret]["metadata"]["labels"]["app.kubernetes.io/component"] = "changed"
    await api.converge(owner, desired)
    assert (api.written, api.objects[secret]["data"]) == ([secret], first)
    for tamper in (lambda: api.objects.pop(secret), lambda: api.objects[secret].update(data={"key": ""})):
        tamper()
        await api.converge(owner, desired)
        assert len(api.objects[secret]["data"]["key"]) == 44
        assert api.objects[secret]["data"] != first


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


async def test_a_router_whose_name_is_taken_has_nothing_of_the_other() -> None:
    """Both names give the same label of pods. The port by which these are asked is that of their own Router."""
    older, younger = router("9a"), router("r-9a-66e23d5f", healthPort=9999)
    assert base_name("9a") == base_name("r-9a-66e23d5f") == "r-9a-66e23d5f"
    for number, item in enumerate((older, younger)):
        item["metadata"] |= {"resourceVersion": "7", "creationTimestamp": f"2026-01-0{number + 1}T00:00:00Z"}
    stub = WholeApiServer()
    api: Any = stub
    observer = Observer(lambda _: None)
    one = Reconciliation("net", Operator(api, SETTINGS, observer, "1", "pod", time.monotonic))
    await one.look(store_of(younger, older))
    workload = stub.objects["StatefulSet", "r-9a-66e23d5f"]
    pod = {
        "metadata": {
            "name": "r-9a-66e23d5f-0",
            "namespace": "net",
            "uid": "pod",
            "labels": {LABEL_ROUTER: "r-9a-66e23d5f"},
            "ownerReferences": [{"uid": workload["metadata"]["uid"], "controller": True}],
        },
        "status": {"phase": "Running", "podIP": "127.0.0.1"},
    }
    observer.watch = asked = MagicMock()  # type: ignore[method-assign]
    observer.observations = MagicMock(  # type: ignore[method-assign]
        return_value={"r-9a-66e23d5f-0": Observation(None, "does not answer")}
    )
    await one.look(store_of(younger, older, live=stub.live(), pods=[pod]))
    (_, targets), _ = asked.call_args
    assert targets["r-9a-66e23d5f-0"].port == 9090
    assert {name: status["replicas"] for (_, name), status in stub.statuses.items()} == {
        "9a": 1,
        "r-9a-66e23d5f": 0,
    }
    await observer.close()


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
    stub = WholeApiServer(foreign("Secret", secret))
    api: Any = stub
    observer = Observer(lambda _: None)
    operator = Operator(api, SETTINGS, observer, "1", "pod", time.monotonic)
    resource = {**resource, "metadata": {**resource["metadata"], "resourceVersion": "7"}}
    await Reconciliation("net", operator).look(store_of(resource))
    await observer.close()
    conditions = {item["type"]: item for item in stub.statuses[kind, name]["conditions"]}
    assert conditions["Configured"]["status"] == "False"
    assert f'Secret "{secret}"' in conditions["Configured"]["message"]
    assert f'rename {kind} "{name}"' in conditions["Configured"]["message"]


async def test_nothing_is_created_again_and_again_in_a_namespace_that_does_not_exist() -> None:
    tried: list[Identity] = []

    class Missing(Api):
        async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
            tried.append(identity(manifest))
            raise ApiError(404, "NotFound", 'namespaces "net" not found')

    api: Any = Missing()
    owner, desired = OWNERS["payments"]
    applier = Applier(api)
    for _ in range(3):
        outcome = await applier.converge(owner, desired, {}, ())
        assert outcome.problems
        assert not any(problem.transient for problem in outcome.problems)
    assert tried
    assert len(set(tried)) == len(tried)
    due = applier.due(0.0)
    assert due is not None
    assert due > 20
