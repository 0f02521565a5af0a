"""The operator's requests on a real API server: what somebody else creates, replaces or changes is not taken over."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from kubernetes.aio import client, config
from tests.cluster import installation
from tests.cluster.harness import cluster as harness
from tests.unit.operator.support import (
    flow_analysis,
    flow_log,
    gossip_router,
    own_authority,
    own_ledger,
    router,
)

from isthmus_operator.apply import Applier, Identity, Outcome, identity, owned
from isthmus_operator.cluster import ApiError, Cluster, Manifest, guard
from isthmus_operator.fields import is_applied
from isthmus_operator.leftovers import DELETABLE
from isthmus_operator.model import NamespaceModel
from isthmus_operator.names import ANNOTATION_APPLIED, CHILD_KINDS, LABEL_MANAGED_BY, MANAGER
from isthmus_operator.render import RenderSettings, render
from isthmus_operator.seniority import Owner

SETTINGS = RenderSettings("router:1", collector_image="collector:1", analysis_image="analysis:1")
RESOURCES = (
    router("payments", replicas=2),
    gossip_router("meet"),
    flow_log("flows", "payments"),
    flow_analysis("daily"),
    flow_analysis("hourly", schedule="@hourly"),
)
Act = Callable[[Manifest], Awaitable[object]]


class Observed(Cluster):
    """The operator's connection; somebody else acts just before it writes an object."""

    acts: dict[Identity, Act]

    async def _before(self, manifest: Manifest) -> None:
        act = self.acts.pop(identity(manifest), None)
        if act is not None:
            await act(manifest)

    async def create(self, manifest: Manifest) -> Manifest:
        await self._before(manifest)
        return await super().create(manifest)

    async def apply(
        self, manifest: Manifest, *, seen: Manifest | None = None, subresource: str | None = None
    ) -> Manifest:
        await self._before(manifest)
        return await super().apply(manifest, seen=seen, subresource=subresource)

    async def delete(self, seen: Manifest) -> bool:
        await self._before(seen)
        return await super().delete(seen)


class World:
    """A namespace with resources and no operator."""

    def __init__(self, cluster: harness.Cluster, api: Any, namespace: str, resources: list[Manifest]) -> None:
        self.cluster = cluster
        self.operator = Observed(api)
        self.operator.acts = {}
        self.others = Cluster(api, manager="others")
        self.namespace = namespace
        model = NamespaceModel.from_manifests(namespace, resources).with_authority(own_authority())
        assert model.invalid == ()
        model = model.serving({name: own_ledger(item.names) for name, item in model.own.items()})
        self.owners = [
            (owner, [owned(item, owner) for item in objects])
            for owner, objects in render(model, SETTINGS).owners()
        ]

    def desired(self, kind: str) -> tuple[Owner, Manifest]:
        """An object of this kind, and whose it is to be."""
        return next((owner, item) for owner, items in self.owners for item in items if item["kind"] == kind)

    async def get(self, manifest: Manifest) -> Manifest | None:
        return await self.others.get(manifest["kind"], self.namespace, manifest["metadata"]["name"])

    def is_untouched(self, manifest: Manifest) -> bool:
        """The operator has written nothing of the object, which exists."""
        name = f"{manifest['kind']}/{manifest['metadata']['name']}"
        found = self.cluster.get(name, "--show-managed-fields", namespace=self.namespace)
        return all(entry["manager"] != MANAGER for entry in found["metadata"]["managedFields"])

    async def converge(self, owner: Owner, *desired: Manifest, live: Manifest | None = None) -> Outcome:
        """With an operator that knows `live`."""
        known = {identity(live): live} if live is not None else {}
        return await Applier(self.operator).converge(owner, desired, known, known.values())

    async def take(self, manifest: Manifest) -> None:
        """Somebody else creates an object of the same kind and name."""
        # A Job without labels would get those of its template.
        labels = {LABEL_MANAGED_BY: "others"}
        metadata = {"name": manifest["metadata"]["name"], "namespace": self.namespace, "labels": labels}
        await self.others.create({**copy.deepcopy(manifest), "metadata": metadata})

    async def replace(self, manifest: Manifest) -> None:
        """Somebody else deletes the object and creates one of the same kind and name."""
        await self.remove(manifest)
        await self.take(manifest)

    async def relabel(self, manifest: Manifest) -> None:
        """Somebody else makes the object his own."""
        metadata = {"labels": {LABEL_MANAGED_BY: "Helm"}, "ownerReferences": None}
        name = manifest["metadata"]["name"]
        await self.others.merge(manifest["kind"], self.namespace, name, {"metadata": metadata})

    async def remove(self, manifest: Manifest) -> None:
        while (found := await self.get(manifest)) is not None:
            await self.others.delete(found)
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def resources(cluster: harness.Cluster) -> Iterator[tuple[str, list[Manifest]]]:
    """A namespace, and the resources in it."""
    with installation.schemas(cluster), cluster.namespace("ownership") as name:
        found = []
        for item in RESOURCES:
            plain = {**item, "metadata": {"name": item["metadata"]["name"]}}
            cluster.apply(plain, namespace=name)
            kind = f"{item['kind'].lower()}.isthmus.dev/{item['metadata']['name']}"
            found.append(cluster.get(kind, namespace=name))
        yield name, found


@pytest.fixture
async def world(cluster: harness.Cluster, resources: tuple[str, list[Manifest]]) -> AsyncIterator[World]:
    configuration = client.Configuration()
    guard(configuration)
    await config.load_kube_config(  # type: ignore[no-untyped-call]
        config_file=str(cluster.provider.kubeconfig), client_configuration=configuration
    )
    world = World(cluster, client.ApiClient(configuration), *resources)
    yield world
    for _, items in world.owners:
        for item in items:
            await world.remove(item)
    await world.others.close()


@pytest.mark.parametrize("kind", CHILD_KINDS)
async def test_what_others_create_after_the_look_up_is_a_conflict(world: World, kind: str) -> None:
    owner, desired = world.desired(kind)
    world.operator.acts[identity(desired)] = world.take
    outcome = await world.converge(owner, desired)
    assert [problem.reason for problem in outcome.problems] == ["ObjectConflict"]
    assert "was not made by the operator" in outcome.problems[0].message
    assert world.is_untouched(desired)
    assert not world.operator.acts


@pytest.mark.parametrize("kind", CHILD_KINDS)
@pytest.mark.parametrize("act", ["replace", "relabel"])
async def test_what_others_have_taken_since_it_was_seen_is_a_conflict(
    world: World, kind: str, act: str
) -> None:
    owner, desired = world.desired(kind)
    before = copy.deepcopy(desired)
    before["metadata"]["annotations"][ANNOTATION_APPLIED] = "another"
    before["metadata"]["labels"]["app.kubernetes.io/version"] = "1"
    if kind == "Job":
        before["spec"]["suspend"] = True
    assert (await world.converge(owner, before)).problems == []
    live = await world.get(desired)
    assert live is not None
    world.operator.acts[identity(desired)] = getattr(world, act)
    outcome = await world.converge(owner, desired, live=live)
    assert [problem.reason for problem in outcome.problems] == ["ObjectConflict"]
    found = await world.get(desired)
    assert found is not None
    assert found["metadata"].get("labels", {}).get(LABEL_MANAGED_BY) != MANAGER
    assert world.is_untouched(desired) == (act == "replace")


@pytest.mark.parametrize("kind", sorted(set(CHILD_KINDS) - DELETABLE))
async def test_what_the_operator_may_not_delete_is_left(world: World, kind: str) -> None:
    owner, desired = world.desired(kind)
    assert (await world.converge(owner, desired)).problems == []
    live = await world.get(desired)
    outcome = await world.converge(owner, live=live)
    assert (outcome.deleted, outcome.problems) == ([], [])
    assert await world.get(desired) is not None


@pytest.mark.parametrize("kind", sorted(DELETABLE))
@pytest.mark.parametrize("act", ["replace", "relabel"])
async def test_what_others_have_taken_is_not_deleted(world: World, kind: str, act: str) -> None:
    owner, desired = world.desired(kind)
    assert (await world.converge(owner, desired)).problems == []
    live = await world.get(desired)

    async def strike(_: Manifest) -> None:
        await getattr(world, act)(desired)

    world.operator.acts[identity(desired)] = strike
    outcome = await world.converge(owner, live=live)
    assert not world.operator.acts
    assert (outcome.deleted, outcome.problems) == ([], [])
    assert await world.get(desired) is not None


@pytest.mark.parametrize("kind", CHILD_KINDS)
async def test_a_created_object_is_managed_as_an_applied_one(world: World, kind: str) -> None:
    """Later applies remove what is no longer wanted, which they cannot where the fields count as updated."""
    owner, desired = world.desired(kind)
    before = copy.deepcopy(desired)
    before["metadata"]["annotations"] |= {ANNOTATION_APPLIED: "another", "example.com/note": "x"}
    if kind == "Job":
        before["spec"]["suspend"] = True
    assert (await world.converge(owner, before)).applied == [identity(desired)]
    made = await world.get(desired)
    assert made is not None
    assert is_applied(made["metadata"])
    assert made["metadata"]["annotations"]["example.com/note"] == "x"
    assert (await world.converge(owner, before, live=made)).applied == []
    assert (await world.converge(owner, desired, live=made)).applied == [identity(desired)]
    found = await world.get(desired)
    assert found is not None
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert "example.com/note" not in found["metadata"]["annotations"]
    ours = [item for item in found["metadata"]["managedFields"] if item["manager"] == MANAGER]
    assert [item["operation"] for item in ours] == ["Apply"]


async def test_an_operator_that_ends_after_a_creation_leaves_no_field_behind(world: World) -> None:
    """The next one claims the fields before it applies."""
    owner, desired = world.desired("StatefulSet")
    before = copy.deepcopy(desired)
    before["metadata"]["annotations"][ANNOTATION_APPLIED] = "another"
    (container,) = before["spec"]["template"]["spec"]["containers"]
    container["env"] = [*container.get("env", []), {"name": "SUPERFLUOUS", "value": "x"}]
    made = await world.operator.create(before)
    assert not is_applied(made["metadata"])
    assert (await world.converge(owner, desired, live=made)).problems == []
    found = await world.get(desired)
    assert found is not None
    assert "SUPERFLUOUS" not in str(found["spec"])
    assert found["metadata"]["generation"] == 2, "one change, so one new revision of the pods"


async def test_a_uid_alone_is_a_precondition(world: World) -> None:
    """With which the operator patches annotations of pods and statuses of resources."""
    _, desired = world.desired("ServiceAccount")
    await world.take(desired)
    metadata = {"uid": "00000000-0000-0000-0000-000000000000", "annotations": {"a": "b"}}
    name = desired["metadata"]["name"]
    with pytest.raises(ApiError) as merged:
        await world.operator.merge("ServiceAccount", world.namespace, name, {"metadata": metadata})
    with pytest.raises(ApiError) as applied:
        await world.operator.apply({**desired, "metadata": {**desired["metadata"], **metadata}})
    assert (merged.value.status, applied.value.status) == (409, 409)
    assert world.is_untouched(desired)


def widening(found: Manifest) -> Manifest:
    """A merge patch that adds keys to what says for which pods the object is."""
    added = {"example.com/added": "x"}
    if found["kind"] == "Service":
        return {"spec": {"selector": added}}
    if found["kind"] == "PodDisruptionBudget":
        return {"spec": {"selector": {"matchLabels": added}}}
    ways = {way: copy.deepcopy(found["spec"][way]) for way in ("ingress", "egress") if way in found["spec"]}
    for rule in (rule for rules in ways.values() for rule in rules):
        for peer in (*rule.get("from", ()), *rule.get("to", ())):
            if "podSelector" in peer:
                peer["namespaceSelector"] = {"matchLabels": added}
    return {"spec": {"podSelector": {"matchLabels": added}, **ways}}


@pytest.mark.parametrize("kind", ["NetworkPolicy", "Service", "PodDisruptionBudget"])
async def test_keys_that_widen_policies_and_selectors_are_taken_away(world: World, kind: str) -> None:
    for owner, desired in [(owner, item) for owner, items in world.owners for item in items]:
        if desired["kind"] != kind:
            continue
        await world.converge(owner, desired)
        made = await world.get(desired)
        assert made is not None
        changed = await world.others.merge(kind, world.namespace, made["metadata"]["name"], widening(made))
        assert changed["spec"] != made["spec"]
        assert (await world.converge(owner, desired, live=changed)).applied == [identity(desired)]
        found = await world.get(desired)
        assert found is not None
        assert found["spec"] == made["spec"]
        assert (await world.converge(owner, desired, live=found)).applied == []


async def test_a_removed_object_is_made_anew_and_not_applied(world: World) -> None:
    owner, desired = world.desired("ServiceAccount")
    assert (await world.converge(owner, desired)).problems == []
    live = await world.get(desired)
    assert live is not None
    await world.remove(desired)
    with pytest.raises(ApiError) as error:
        await world.operator.apply(desired, seen=live)
    assert error.value.status == 409
    changed = copy.deepcopy(desired)
    changed["metadata"]["annotations"][ANNOTATION_APPLIED] = "another"
    assert (await world.converge(owner, changed, live=live)).applied == [identity(desired)]
    found = await world.get(desired)
    assert found is not None
    assert found["metadata"]["uid"] != live["metadata"]["uid"]
