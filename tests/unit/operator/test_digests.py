"""Large objects of the operator: what is held of them does not grow, and they are maintained like small ones."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from tests.unit.operator.api_server import ApiServer, WholeApiServer, store_of
from tests.unit.operator.support import flow_analysis, flow_log, model, router

from isthmus_operator.apply import Applier, Identity, Outcome, by_controller, identity, owned
from isthmus_operator.digests import fingerprint, is_digested
from isthmus_operator.fields import is_applied
from isthmus_operator.names import LABEL_MANAGED_BY, MANAGER
from isthmus_operator.observe import Observer
from isthmus_operator.reconcile import Operator, Reconciliation
from isthmus_operator.render import RenderSettings, render
from isthmus_operator.render.restrictions import Restrictions

SETTINGS = RenderSettings(
    "r:1",
    "c:1",
    analysis_image="a:1",
    collector_image="f:1",
    restrictions=Restrictions(allowed_metadata=("example.com/",)),
)
CRON_JOB = ("CronJob", "daily-analysis")
HOLD = {"deletionTimestamp": "2026-11-29T00:00:00Z", "finalizers": ["example.com/hold"]}


class Api(ApiServer):
    """With the objects of a FlowAnalysis whose CronJob is large; counts what is read."""

    def __init__(self, text: str = "x" * 65_000) -> None:
        super().__init__()
        self.read: list[Identity] = []
        template = {"metadata": {"annotations": {"example.com/text": text}}}
        resources = flow_log("flows"), flow_analysis("daily", schedule="@hourly", podTemplate=template)
        [(self.owner, objects)] = (
            (owner, objects)
            for owner, objects in render(model(*resources), SETTINGS).owners()
            if owner.name == "daily"
        )
        self.desired = [owned(item, self.owner) for item in objects]
        stub: Any = self
        self.applier = Applier(stub)

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        self.read.append((kind, name))
        return await super().get(kind, namespace, name)

    async def look(self) -> Outcome:
        """One convergence from what is watched. `read` and `written` are about this one."""
        self.read, self.written = [], []
        live = self.applier.current(self.live())
        return await self.applier.converge(
            self.owner, self.desired, live, by_controller(live.values()).get(self.owner.metadata.uid, ())
        )

    def restart(self) -> None:
        stub: Any = self
        self.applier = Applier(stub)

    def change(self, key: Identity, **metadata: Any) -> None:
        """What somebody else does to an object."""
        found = copy.deepcopy(self.objects[key])
        found["metadata"] |= metadata
        self.put(found)


async def test_a_large_object_is_read_once_after_a_start_and_never_again() -> None:
    api = Api()
    assert (await api.look()).problems == []
    assert CRON_JOB in api.written
    assert is_digested(api.live()[CRON_JOB])
    await api.look()
    assert (api.read, api.written) == ([], []), "this process has written it"
    api.restart()
    for expected in ([CRON_JOB], [], []):
        assert (await api.look()).problems == []
        assert (api.read, api.written) == (expected, [])


async def test_what_an_answer_says_of_a_large_object_is_not_held() -> None:
    api = Api()
    await api.look()
    assert len(str(api.applier.answered({})[CRON_JOB])) < 3_000


async def test_a_large_object_that_somebody_changes_is_put_right() -> None:
    api = Api()
    await api.look()
    api.objects[CRON_JOB]["spec"]["schedule"] = "@yearly"
    api.change(CRON_JOB)
    await api.look()
    assert (api.read, api.written) == ([CRON_JOB], [CRON_JOB])
    assert api.objects[CRON_JOB]["spec"]["schedule"] == "@hourly"
    await api.look()
    assert (api.read, api.written) == ([], [])


async def test_what_an_admission_plugin_adds_to_a_large_object_is_left_alone() -> None:
    api = Api()
    await api.look()
    api.restart()
    api.objects[CRON_JOB]["spec"]["timeZone"] = "Etc/UTC"
    api.change(CRON_JOB)
    await api.look()
    assert (api.read, api.written) == ([CRON_JOB], [])
    await api.look()
    assert (api.read, api.written) == ([], [])


async def test_the_fields_of_a_large_object_are_claimed_after_an_interruption() -> None:
    api = Api()
    api.breaks = True
    assert (await api.look()).problems
    api.breaks = False
    api.unreadable.clear()
    api.restart()
    await api.look()
    assert all(is_applied(item["metadata"]) for item in api.objects.values())
    api.restart()
    cron_job = api.objects[CRON_JOB]
    entry = {"manager": MANAGER, "operation": "Update", "fieldsV1": {"f:spec": {}}}
    api.change(CRON_JOB, managedFields=[entry])
    await api.look()
    assert is_applied(api.objects[CRON_JOB]["metadata"])
    assert api.objects[CRON_JOB]["spec"] == cron_job["spec"]


async def test_a_large_object_that_cannot_be_read_is_a_problem_and_not_written() -> None:
    api = Api()
    await api.look()
    api.restart()
    api.unreadable.add(CRON_JOB)
    (problem,) = (await api.look()).problems
    assert problem.transient
    assert api.written == []


KEPT = [identity(item) for item in Api("").desired]


@pytest.mark.parametrize("key", KEPT, ids=str)
@pytest.mark.parametrize("text", ["", "x" * 65_000], ids=["small", "large"])
async def test_an_object_that_is_being_deleted_is_reported_and_stays_what_it_should_be(
    key: Identity, text: str
) -> None:
    """A Service that somebody had changed and deleted, and that a finalizer held, sent clients to other pods for good,
    and the Router was `Ready`."""
    api = Api(text)
    await api.look()
    changed = api.objects[key]
    changed.pop("spec", None)
    changed.pop("data", None)
    changed["metadata"]["annotations"].pop("isthmus.dev/applied-hash")
    api.change(key, **HOLD)
    for _ in range(2):
        (problem,) = (await api.look()).problems
        assert (problem.reason, problem.transient) == ("ObjectDeleting", False)
        assert (
            f'{key[0]} "{key[1]}" is being deleted, and finalizers hold it: example.com/hold'
            in problem.message
        )
    assert api.written == []
    (wanted,) = (item for item in api.desired if identity(item) == key)
    assert api.objects[key].get("spec") == wanted.get("spec")
    del api.objects[key]
    assert (await api.look()).problems == []
    assert key in api.objects


async def test_an_unwanted_service_that_a_finalizer_holds_is_reported() -> None:
    api = Api()
    await api.look()
    (policy,) = (item for item in api.desired if item["kind"] == "NetworkPolicy")
    api.desired.remove(policy)
    api.change(identity(policy), **HOLD)
    (problem,) = (await api.look()).problems
    assert problem.reason == "ObjectDeleting"


async def test_a_router_with_a_service_that_is_being_deleted_is_not_reported_as_applied() -> None:
    api = WholeApiServer()
    resource = router("west", listeners=[{"name": "amqp", "port": 5672}])
    resource["metadata"]["resourceVersion"] = "7"
    observer = Observer(lambda _: None)
    stub: Any = api
    one = Reconciliation("net", Operator(stub, SETTINGS, observer, "1", "pod", time.monotonic))
    await one.look(store_of(resource, live=api.live()))
    (name,) = (name for kind, name in api.objects if kind == "Service" and not name.endswith("-mesh"))
    found = api.objects["Service", name]
    found["spec"]["selector"] = {"app": "evil"}
    found["metadata"] |= HOLD
    api.put(found)
    await one.look(store_of(resource, live=api.live()))
    (condition,) = (
        item for item in api.statuses["Router", "west"]["conditions"] if item["type"] == "Configured"
    )
    assert (condition["status"], condition["reason"]) == ("False", "ObjectDeleting")
    assert api.objects["Service", name]["spec"]["selector"] != {"app": "evil"}
    await observer.close()


async def test_routers_keep_what_they_were_given_in_a_large_configuration() -> None:
    """The next configuration follows from the last one, such as the ordinals of certificates."""
    addresses = [{"prefix": f"a{n}/{'x' * 230}", "distribution": "closest"} for n in range(128)]
    resource = router("west", addresses=addresses, replicas=3)
    resource["metadata"]["resourceVersion"] = "7"
    api = WholeApiServer()
    observer = Observer(lambda _: None)
    stub: Any = api

    def operator() -> Reconciliation:
        return Reconciliation("net", Operator(stub, SETTINGS, observer, "1", "pod", time.monotonic))

    await operator().look(store_of(resource, live=api.live()))
    key = ("Secret", "west-config")
    assert is_digested(api.live()[key])
    one = operator()
    await one.look(store_of(resource, live=api.live()))
    assert one._rendering is not None
    delivered = one._rendering.model.delivered["west"]
    assert set(delivered) == set(api.objects[key]["data"])
    await observer.close()


def test_the_digest_of_an_object_is_that_of_its_content() -> None:
    item = {
        "kind": "Service",
        "metadata": {"name": "a", "labels": {LABEL_MANAGED_BY: MANAGER}},
        "spec": {"x": 1},
    }
    same = {
        "spec": {"x": 1},
        "metadata": {
            "labels": {LABEL_MANAGED_BY: MANAGER},
            "name": "a",
            **dict.fromkeys(("resourceVersion", "managedFields", "generation", "deletionTimestamp"), "1"),
        },
        "status": {"y": 2},
    }
    assert fingerprint(item) == fingerprint(same)
    assert fingerprint(item) != fingerprint({**item, "spec": {"x": 2}})
    assert fingerprint(item) != fingerprint({**item, "metadata": {"name": "b"}})
