"""What the operator has written counts at once, although what it watches is older for a moment."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from tests.unit.operator.api_server import WholeApiServer, store_of
from tests.unit.operator.support import gossip_router, router

from isthmus_operator.apply import Applier, Identity
from isthmus_operator.observe import Observer
from isthmus_operator.reconcile import Operator, Reconciliation
from isthmus_operator.render import RenderSettings

SETTINGS = RenderSettings("r:1", "c:1")
Objects = dict[Identity, dict[str, Any]]


def rolled_out(api: WholeApiServer) -> Objects:
    """Lets the pods of all workloads run what they should, and returns what is watched then."""
    for (kind, _), item in api.objects.items():
        if kind == "StatefulSet":
            generation, replicas = item["metadata"]["generation"], item["spec"]["replicas"]
            counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas"), replicas)
            item["status"] = {"observedGeneration": generation, **counts}
    return api.live()


def configured(api: WholeApiServer, resource: dict[str, Any]) -> tuple[str, str, int]:
    status = api.statuses[resource["kind"], resource["metadata"]["name"]]
    (found,) = (item for item in status["conditions"] if item["type"] == "Configured")
    return found["status"], found["reason"], found["observedGeneration"]


@pytest.mark.parametrize(
    "resource", [router("west", replicas=2), gossip_router("meet")], ids=lambda item: str(item["kind"])
)
async def test_a_change_that_was_written_just_now_is_not_reported_as_applied(
    resource: dict[str, Any],
) -> None:
    api = WholeApiServer()
    stub: Any = api
    resource["metadata"]["resourceVersion"] = "7"
    observer = Observer(lambda _: None)
    one = Reconciliation("net", Operator(stub, SETTINGS, observer, "1", "pod", time.monotonic))

    await one.look(store_of(resource, live={}))
    assert configured(api, resource) == ("False", "RolloutInProgress", 1)
    watched = rolled_out(api)
    await one.look(store_of(resource, live=watched))
    assert configured(api, resource) == ("True", "Applied", 1)

    changed = copy.deepcopy(resource)
    changed["metadata"] |= {"generation": 2, "resourceVersion": "8"}
    changed["spec"]["resources"] = {"requests": {"cpu": "11m"}}
    for _ in range(2):  # the second look still has what was watched before
        await one.look(store_of(changed, live=watched))
        assert configured(api, resource) == ("False", "RolloutInProgress", 2)
    watched = rolled_out(api)
    await one.look(store_of(changed, live=watched))
    assert configured(api, resource) == ("True", "Applied", 2)
    await observer.close()


def version(number: int, uid: str = "a") -> Objects:
    metadata = {"name": "west", "namespace": "net", "uid": uid, "resourceVersion": str(number)}
    return {("Service", "west"): {"kind": "Service", "metadata": metadata}}


@pytest.mark.parametrize(
    ("watched", "seen"),
    [
        (version(3), version(4)),
        (version(4), version(4)),
        (version(5), version(5)),
        (version(3, uid="b"), version(3, uid="b")),
        ({}, {}),
    ],
    ids=["older", "same", "newer", "another", "gone"],
)
def test_an_answer_counts_as_long_as_the_same_object_is_watched_in_an_older_version(
    watched: Objects, seen: Objects
) -> None:
    none: Any = None
    applier = Applier(none)
    applier._answers = version(4)
    assert applier.answered(watched) == version(4), "right after the write"
    assert applier.current(watched) == seen
    assert applier.current(watched) == seen
