"""Objects of an earlier resource of the same kind and name, which the garbage collector has missed."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.operator.api_server import WholeApiServer, store_of
from tests.unit.operator.support import flow_analysis, flow_log, gossip_router, router
from tests.unit.operator.test_keeper import LEDGER, ONE, Api, look

from isthmus_operator.apply import Identity
from isthmus_operator.cluster import ENDPOINTS
from isthmus_operator.leftovers import DELETABLE, PATIENCE_SECONDS
from isthmus_operator.names import LABEL_MANAGED_BY, MANAGER
from isthmus_operator.observe import Observer
from isthmus_operator.reconcile import Operator, Reconciliation
from isthmus_operator.render import RenderSettings
from isthmus_operator.rotation.keeper import Keeper

SETTINGS = RenderSettings("r:1", "c:1", analysis_image="a:1", collector_image="f:1")
CHART = Path(__file__).parents[3] / "charts" / "isthmus"


class World(WholeApiServer):
    """A namespace. Its garbage collector examines an owner only when an object no longer blocks its deletion."""

    def __init__(self, *resources: dict[str, Any]) -> None:
        super().__init__()
        self.now = 1000.0
        self.resources = [copy.deepcopy(item) for item in resources]
        self.deleted: list[Identity] = []
        self.released: list[Identity] = []
        self.collects = True
        self.observer = Observer(lambda _: None)
        self.restart()

    def restart(self) -> None:
        """Of the operator."""
        api: Any = self
        operator = Operator(api, SETTINGS, self.observer, "1", "pod", lambda: self.now)
        self.reconciliation = Reconciliation("net", operator)

    def renew(self, uid: str = "second") -> None:
        """Each resource is deleted and made again, which the garbage collector misses."""
        for item in self.resources:
            item["metadata"]["uid"] = f"{item['metadata']['name']} {uid}"

    async def look(self, resources: Collection[dict[str, Any]] | None = None) -> None:
        known = self.resources if resources is None else resources
        for item in known:
            item["metadata"].setdefault("resourceVersion", "7")
        await self.reconciliation.look(store_of(*known, live=self.live()))

    async def looks(self, seconds: float) -> None:
        for _ in range(10):
            self.now += seconds / 10
            await self.look()

    async def pages(self, kind: str, namespace: str, **query: Any) -> AsyncIterator[list[dict[str, Any]]]:
        selector = query.get("fieldSelector", "")
        yield [
            {"metadata": item["metadata"]}
            for item in self.resources
            if item["kind"] == kind and selector == f"metadata.name={item['metadata']['name']}"
        ]

    async def delete(self, seen: dict[str, Any]) -> bool:
        self.deleted.append((seen["kind"], seen["metadata"]["name"]))
        return await super().delete(seen)

    async def merge(self, kind: str, namespace: str, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        answer = await super().merge(kind, namespace, name, patch)
        for owner in patch["metadata"].get("ownerReferences", ()):
            if not owner["blockOwnerDeletion"]:
                self.released.append((kind, name))
                self._collect(owner["uid"])
        return answer

    def _collect(self, uid: str) -> None:
        for key in self.owned(uid) if self.collects else ():
            del self.objects[key]

    def owned(self, uid: str) -> list[Identity]:
        return [
            key
            for key, item in self.objects.items()
            if [ref["uid"] for ref in item["metadata"].get("ownerReferences", ())] == [uid]
        ]

    def configured(self, kind: str, name: str) -> dict[str, Any]:
        conditions = self.statuses[kind, name]["conditions"]
        found: dict[str, Any] = next(
            item for item in conditions if item["type"] in {"Configured", "Degraded"}
        )
        return found


Worlds = Callable[..., World]


@pytest.fixture
async def worlds() -> AsyncIterator[Worlds]:
    made: list[World] = []

    def make(*resources: dict[str, Any]) -> World:
        made.append(World(*resources))
        return made[-1]

    yield make
    for world in made:
        await world.observer.close()


CASES: dict[str, tuple[dict[str, Any], ...]] = {
    "Router": (router("west", replicas=2),),
    "GossipRouter": (gossip_router("meet"),),
    "FlowLog": (router("hub"), flow_log("flows")),
    "FlowAnalysis": (router("hub"), flow_log("flows"), flow_analysis("hourly", schedule="@hourly")),
}


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("kind", CASES)
async def test_what_an_earlier_resource_has_left_is_removed(
    worlds: Worlds, kind: str, collects: bool
) -> None:
    """Five of five Routers stayed `Pending` until kube-controller-manager restarted."""
    world = worlds(*CASES[kind])
    for _ in range(3):
        await world.look()
    name = world.resources[-1]["metadata"]["name"]
    before = set(world.owned(world.resources[-1]["metadata"]["uid"]))
    assert before
    world.renew()
    world.collects = collects
    world.deleted.clear()
    await world.look()
    message = world.configured(kind, name)["message"]
    assert (
        f'belongs to an earlier {kind} "{name}", which no longer exists, and is going to be removed'
        in message
    )
    assert "rename" not in message
    await world.looks(PATIENCE_SECONDS - 1)
    assert (world.deleted, world.released) == ([], []), "the garbage collector has the time to do it"
    await world.looks(6 * PATIENCE_SECONDS)
    assert {key[0] for key in world.deleted} <= DELETABLE
    assert not {key[0] for key in world.released} & DELETABLE
    assert len(world.released) <= 6 * len(before)
    if collects:
        assert set(world.owned(f"{name} second")) == before
        assert world.owned(f"uid-{name}") == []
    else:
        left = {key[0] for key in world.owned(f"uid-{name}")}
        assert left.isdisjoint(DELETABLE - {"CronJob"}), "without its account, a CronJob is not examined"


class Secrets(Api):
    """Secrets of a namespace with an SslProfile."""

    async def pages(self, kind: str, namespace: str, **query: Any) -> AsyncIterator[list[dict[str, Any]]]:
        assert (kind, query["fieldSelector"]) == ("SslProfile", "metadata.name=net")
        yield [{"metadata": {"name": "net", "uid": "uid-net"}}]

    async def delete(self, seen: dict[str, Any]) -> bool:
        assert seen["metadata"]["resourceVersion"]
        del self.objects[seen["metadata"]["name"]]
        return True


async def test_the_ledger_of_an_earlier_profile_is_removed() -> None:
    secrets, now = Secrets(), 1000.0
    api: Any = secrets
    await look(Keeper("net", api), ONE, {})
    metadata = secrets.objects[LEDGER[1]]["metadata"]
    metadata["ownerReferences"][0]["uid"] = "earlier"
    fields = {"f:metadata": {"f:ownerReferences": {'k:{"uid":"earlier"}': {}}}}
    metadata["managedFields"] = [{"manager": MANAGER, "operation": "Update", "fieldsV1": fields}]
    keeper = Keeper("net", api, lambda: now)
    for seconds in (0.0, PATIENCE_SECONDS - 1):
        now = 1000 + seconds
        assert await look(keeper, ONE, secrets.live()) is None
        problem = keeper.facts["net"].problem
        assert problem is not None
        assert 'belongs to an earlier SslProfile "net", which no longer exists' in problem.message
        assert (problem.reason, problem.transient) == ("ObjectConflict", False)
        assert LEDGER[1] in secrets.objects
    now += 1
    await look(keeper, ONE, secrets.live())
    assert LEDGER[1] not in secrets.objects
    ledger = await look(keeper, ONE, secrets.live())
    assert ledger is not None
    assert ledger.ordinal == 1
    assert keeper.facts["net"].problem is None


async def left(world: World) -> tuple[Identity, dict[str, Any]]:
    """An object that an earlier Router has left, and that the operator has seen for long enough."""
    await world.look()
    world.renew()
    for key in list(world.objects):
        if key[0] != "Service":
            del world.objects[key]
    await world.look()
    world.deleted.clear()
    key = ("Service", "west")
    return key, world.objects[key]


def other_label(metadata: dict[str, Any]) -> None:
    del metadata["labels"][LABEL_MANAGED_BY]


def other_writer(metadata: dict[str, Any]) -> None:
    for entry in metadata["managedFields"]:
        entry["manager"] = "kubectl"


def other_reference(metadata: dict[str, Any]) -> None:
    """Which somebody else has written, while the operator has other fields."""
    for entry in metadata["managedFields"]:
        entry["fieldsV1"] = {"f:spec": {}, "f:metadata": {"f:ownerReferences": {'k:{"uid":"x"}': {}}}}


def odd_fields(metadata: dict[str, Any]) -> None:
    for entry in metadata["managedFields"]:
        entry["fieldsV1"] = {"f:metadata": ["f:ownerReferences"]}


def second_owner(metadata: dict[str, Any]) -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "theirs"}
    metadata["ownerReferences"].append(other)


def other_owner(metadata: dict[str, Any]) -> None:
    metadata["ownerReferences"][0]["name"] = "east"


def other_group(metadata: dict[str, Any]) -> None:
    metadata["ownerReferences"][0]["apiVersion"] = "example.com/v1"


@pytest.mark.parametrize(
    "change",
    [other_label, other_writer, other_reference, odd_fields, second_owner, other_owner, other_group],
)
async def test_an_object_of_somebody_else_is_not_deleted(worlds: Worlds, change: Any) -> None:
    """A tenant who may change objects, but not delete them, must not have the operator do so."""
    world = worlds(router("west"))
    key, theirs = await left(world)
    change(theirs["metadata"])
    await world.looks(6 * PATIENCE_SECONDS)
    assert key in world.objects
    assert key not in world.deleted
    assert world.released == []


async def test_an_object_of_the_next_resource_is_not_deleted(worlds: Worlds) -> None:
    """The watch may be late: to it, the present resource is still the earlier one."""
    world = worlds(router("west"))
    key, _ = await left(world)
    late = copy.deepcopy(world.resources)
    world.renew("third")
    for _ in range(10):
        world.now += PATIENCE_SECONDS
        await world.look(late)
    assert key in world.objects
    assert key not in world.deleted


async def test_a_volume_is_not_deleted(worlds: Worlds) -> None:
    world = worlds(*CASES["FlowLog"])
    for _ in range(3):
        await world.look()
    key = next(key for key in world.objects if key[0] == "PersistentVolumeClaim")
    owner = {"apiVersion": world.resources[-1]["apiVersion"], "kind": "FlowLog", "name": "flows", "uid": "x"}
    world.objects[key]["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    world.restart()
    await world.looks(6 * PATIENCE_SECONDS)
    assert key in world.objects
    assert key not in world.deleted + world.released


def test_the_chart_allows_what_is_deleted_and_nothing_more() -> None:
    rules = (CHART / "templates" / "_helpers.tpl").read_text().split('define "isthmus.rules" -}}')[1]
    lines = [line for line in rules.split("{{- end -}}")[0].splitlines() if "{{" not in line]
    deletable = {
        resource
        for rule in yaml.safe_load("\n".join(lines))
        if "delete" in rule["verbs"]
        for resource in rule["resources"]
    }
    assert deletable == {ENDPOINTS[kind].plural for kind in DELETABLE}
