"""What is kept of watched objects, and when a namespace has to be rendered anew."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.operator.support import connector, flow_analysis, router

from isthmus_operator.cluster import ApiError
from isthmus_operator.handlers.children import KINDS
from isthmus_operator.names import (
    LABEL_FLOW_ANALYSIS,
    LABEL_FLOW_LOG,
    LABEL_MANAGED_BY,
    LABEL_ROUTER,
    LABEL_USE,
    MANAGER,
    base_name,
    flow_analysis_name,
)
from isthmus_operator.status import PodView
from isthmus_operator.store import Store, secret_view, slim

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def secret(name: str, *, ours: bool = False, version: str = "1", **data: str) -> dict[str, Any]:
    labels = {LABEL_MANAGED_BY: MANAGER} if ours else {LABEL_USE: "true"}
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": version, "labels": labels}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}


def store(*resources: dict[str, Any], secrets: tuple[dict[str, Any], ...] = ()) -> Store:
    def of(kind: str) -> dict[str, list[dict[str, Any]]]:
        return {"net": [item for item in resources if item["kind"] == kind]}

    return Store(
        of("Router"),
        of("Connector"),
        of("LinkRoute"),
        of("RelaySite"),
        of("GossipRouter"),
        of("FlowLog"),
        of("FlowAnalysis"),
        of("SslProfile"),
        {"net": list(secrets)},
        {},
        {kind: {} for kind in KINDS},
    )


def test_the_model_has_the_secrets_of_others_and_live_has_ours() -> None:
    found = store(router("west"), secrets=(secret("server", a="b"), secret("west-config", ours=True)))
    assert set(found.model("net", NOW).secrets) == {"server"}
    assert set(found.live("net")) == {("Secret", "west-config")}
    assert found.model("elsewhere", NOW).routers == {}


def test_no_resource_can_name_the_key_of_the_authority() -> None:
    for ours in (True, False):
        found = store(router("west"), secrets=(secret("isthmus-authority", ours=ours, **{"tls.key": "x"}),))
        assert found.model("net", NOW).secrets == {}


def test_what_was_delivered_is_read_from_our_own_secret_only() -> None:
    own = secret("west-config", ours=True, a="b")
    found = store(router("west"), secrets=(own, secret("east-config", c="d")))
    assert found.model("net", NOW).delivered == {}, "it belongs to nobody"
    own["metadata"]["ownerReferences"] = [{"uid": "uid-west", "controller": True}]
    assert found.model("net", NOW).delivered == {"west": {"a": b"b"}}
    assert found.model("net", NOW).now == NOW


def test_a_version_changes_with_what_is_rendered_and_with_nothing_else() -> None:
    link = connector("c", "west", ("h", 1), "normal")
    base = store(router("west"), link, secrets=(secret("server"), secret("own", ours=True))).version("net")
    same = router("west", meta={"resourceVersion": "9"})
    same["status"] = {"replicas": 1}
    own = secret("own", ours=True, version="2")
    assert store(same, link, secrets=(secret("server"), own)).version("net") == base
    for changed in (
        store(router("west", meta={"generation": 2}), link, secrets=(secret("server"),)),
        store(router("west", meta={"uid": "new"}), link, secrets=(secret("server"),)),
        store(
            router("west", meta={"annotations": {"isthmus.dev/paused": "true"}}),
            link,
            secrets=(secret("server"),),
        ),
        store(
            router("west", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            link,
            secrets=(secret("server"),),
        ),
        store(router("west"), secrets=(secret("server"),)),
        store(router("west"), link, secrets=(secret("server", version="2"),)),
        store(router("west"), link),
    ):
        assert changed.version("net") != base


def test_a_secret_that_is_not_base64_loses_that_key_only() -> None:
    manifest = secret("s", good="x")
    manifest["data"]["bad"] = "%%%"
    assert dict(secret_view(manifest).data) == {"good": b"x"}


def test_a_copy_has_its_kind_and_no_bookkeeping() -> None:
    copy = slim({"metadata": {"name": "a", "managedFields": [1]}, "spec": {"x": (1, 2)}}, "Service", "v1")
    assert copy == {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"x": [1, 2]}}


def test_a_copy_has_the_owners_of_fields_that_the_operator_has_to_claim() -> None:
    entries = [{"manager": "isthmus-operator", "operation": "Update", "fieldsV1": {"f:spec": {}}}, {}]
    metadata = {"name": "a", "managedFields": entries}
    assert slim({"metadata": metadata}, "Service", "v1")["metadata"] == metadata
    entries[0]["operation"] = "Apply"
    assert slim({"metadata": metadata}, "Service", "v1")["metadata"] == {"name": "a"}


def controlled(kind: str, name: str, owner: str | None, **labels: str) -> dict[str, Any]:
    """An object with our label and `labels`, whose controller has the uid `owner`."""
    metadata: dict[str, Any] = {
        "name": name,
        "uid": f"{kind} {name}",
        "labels": {LABEL_MANAGED_BY: MANAGER, **labels},
    }
    if owner is not None:
        metadata["ownerReferences"] = [{"uid": owner, "controller": True, "kind": "any", "name": "any"}]
    return {"kind": kind, "metadata": metadata, "status": {"phase": "Running", "podIP": "10.0.0.1"}}


def test_pods_are_those_that_a_workload_of_a_resource_controls() -> None:
    """Anybody who may create pods can give them the labels of a router: the operator would poll and count them."""
    found = store(router("west"), flow_analysis("daily"))
    children = {
        "StatefulSet": [("west", "uid-west"), ("foreign", None), ("of another", "uid-east")],
        "Deployment": [("west", "uid-west"), ("foreign", None)],
        "CronJob": [(flow_analysis_name("daily"), "uid-daily")],
        "Job": [
            ("once", "uid-daily"),
            ("scheduled", f"CronJob {flow_analysis_name('daily')}"),
            ("foreign", None),
        ],
    }
    found.children = {
        **{kind: {} for kind in KINDS},
        **{kind: {"net": [controlled(kind, *item) for item in items]} for kind, items in children.items()},
    }
    replica_sets = [("west", "Deployment west"), ("foreign", "Deployment foreign"), ("alone", None)]
    found.replica_sets = {"net": [controlled("ReplicaSet", *item) for item in replica_sets]}
    ours = {
        "of a StatefulSet": "StatefulSet west",
        "of a Deployment": "ReplicaSet west",
        "of a Job": "Job once",
        "of a CronJob": "Job scheduled",
    }
    others = {
        "alone": None,
        "of a resource": "uid-west",
        "of another resource": "StatefulSet of another",
        "of nothing that exists": "StatefulSet gone",
        "of a foreign StatefulSet": "StatefulSet foreign",
        "of a Deployment itself": "Deployment west",
        "of a foreign ReplicaSet": "ReplicaSet foreign",
        "of a ReplicaSet alone": "ReplicaSet alone",
        "of a foreign Job": "Job foreign",
        "of a pod": "Pod of a Job",
    }
    found.pods = {"net": [controlled("Pod", *item) for item in (*ours.items(), *others.items())]}
    assert {item["metadata"]["name"] for item in found.pods_of("net")} == set(ours)
    assert {pod.name for pod in found.pod_views("net")} == set(ours)


def test_pods_of_forged_workloads_do_not_count() -> None:
    """Anybody who may create workloads and pods can give them our labels, and owners that exist."""
    found = store(router("west"), router("East.1"), flow_analysis("daily"))
    going = controlled("StatefulSet", base_name("East.1"), "uid-East.1")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ended = controlled("Job", "ended", "uid-daily")
    ended["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    jobs = [
        controlled("Job", "run", "uid-daily"),
        ended,
        controlled("Job", "of a Router", "uid-west"),
        controlled("Job", "of a forged CronJob", "CronJob forged"),
    ]
    found.children = {
        **{kind: {} for kind in KINDS},
        "StatefulSet": {
            "net": [
                controlled("StatefulSet", "west", "uid-west"),
                controlled("StatefulSet", "forged", "uid-west"),
                controlled("StatefulSet", "daily", "uid-daily"),
                going,
            ]
        },
        "Deployment": {"net": [controlled("Deployment", "forged", "uid-west")]},
        "CronJob": {"net": [controlled("CronJob", "forged", "uid-daily")]},
        "Job": {"net": jobs},
    }
    found.replica_sets = {"net": [controlled("ReplicaSet", "forged", "Deployment forged")]}
    of_west, of_daily = {LABEL_ROUTER: "west"}, {LABEL_FLOW_ANALYSIS: "daily"}
    pods = [
        controlled("Pod", "west-0", "StatefulSet west", **of_west),
        controlled("Pod", "driver", "Job run", **of_daily),
        controlled("Pod", "of a forged StatefulSet", "StatefulSet forged", **of_west),
        controlled("Pod", "of a StatefulSet for another kind", "StatefulSet daily", **of_daily),
        controlled("Pod", "of one that a finalizer keeps", f"StatefulSet {base_name('East.1')}"),
        controlled("Pod", "of a forged Deployment", "ReplicaSet forged", **of_west),
        controlled("Pod", "of a Job, labelled for a Router", "Job run", **of_west),
        controlled("Pod", "of a Job that is being deleted", "Job ended", **of_daily),
        controlled("Pod", "of a Job of a Router", "Job of a Router", **of_west),
        controlled("Pod", "of a Job of a forged CronJob", "Job of a forged CronJob", **of_daily),
        controlled("Pod", "labelled for another Router", "StatefulSet west", **{LABEL_ROUTER: "east"}),
        controlled("Pod", "labelled for a FlowLog", "StatefulSet west", **{LABEL_FLOW_LOG: "west"}),
    ]
    found.pods = {"net": pods}
    assert {item["metadata"]["name"] for item in found.pods_of("net")} == {"west-0", "driver"}


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        ({}, ""),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, ""),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "gone"}}}]},
            "ErrImagePull: gone",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"reason": "OOMKilled"}},
                    }
                ]
            },
            "CrashLoopBackOff: last ended with OOMKilled",
        ),
        (
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "no node",
                    }
                ]
            },
            "Unschedulable: no node",
        ),
        ({"reason": "Evicted"}, "Evicted"),
    ],
)
def test_the_trouble_of_a_pod_is_told_in_kubernetes_words(status: dict[str, Any], trouble: str) -> None:
    pod = {"metadata": {"name": "west-0", "uid": "u", "labels": {LABEL_ROUTER: "west"}}, "status": status}
    view = PodView.of(pod, LABEL_ROUTER, "sync")
    assert (view.router, view.trouble, view.ready) == ("west", trouble, False)


def test_an_ended_pod_does_not_count() -> None:
    metadata = {"name": "shop-x", "uid": "u", "labels": {LABEL_ROUTER: "shop"}}
    for phase, gone in (("Running", False), ("Pending", False), ("Failed", True), ("Succeeded", True)):
        view = PodView.of({"metadata": metadata, "status": {"phase": phase}}, LABEL_ROUTER, "sync")
        assert view.deleting is gone


@pytest.mark.parametrize(
    ("status", "transient", "concerns_object"),
    [
        (0, True, False),
        (409, True, False),
        (429, True, False),
        (500, True, True),
        (503, True, True),
        (403, False, True),
        (413, False, True),
        (422, False, True),
    ],
)
def test_which_errors_may_pass_by_themselves(status: int, transient: bool, concerns_object: bool) -> None:
    for message in (
        "unreachable",
        "failed to create typed patch object: .spec.x: field not declared in schema",
    ):
        error = ApiError(status, "", message)
        assert (error.transient, error.concerns_object) == (transient, concerns_object)
