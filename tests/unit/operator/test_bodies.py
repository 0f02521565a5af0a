"""What the operator holds of the objects that it watches by a label that anybody may give to an object."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from kopf import Body
from tests.unit.operator.test_conflicts import OWNERS

from isthmus_operator.bodies import MAX_BYTES, MAX_FINALIZERS, POD_KINDS, retained
from isthmus_operator.decoding import LONG_BYTES, line, watched
from isthmus_operator.digests import fingerprint, is_digested
from isthmus_operator.fields import is_applied
from isthmus_operator.handlers import children
from isthmus_operator.handlers.watching import copied
from isthmus_operator.names import (
    ANNOTATION_APPLIED,
    ANNOTATION_RUN,
    ANNOTATION_SYNC,
    CHILD_KINDS,
    LABEL_FLOW_LOG,
    LABEL_MANAGED_BY,
    MANAGER,
    digest,
)
from isthmus_operator.resources import RESOURCE_KINDS
from isthmus_operator.resources.base import PAUSED_ANNOTATION

OURS = {LABEL_MANAGED_BY: MANAGER}
ROUTER = {
    "apiVersion": "isthmus.dev/v1alpha1",
    "kind": "Router",
    "name": "west",
    "uid": "u",
    "controller": True,
}
MANY = [{"name": f"{number:05d}", "value": "x"} for number in range(6_000)]


def planted(kind: str, **metadata: Any) -> dict[str, Any]:
    """An object with the operator's label and much content."""
    return {
        "kind": kind,
        "metadata": {"name": "west", "uid": "u", "resourceVersion": "7", "labels": OURS, **metadata},
        "spec": {"template": {"env": MANY[:2_000]}},
        "imagePullSecrets": MANY[:2_000],
        "status": {"conditions": MANY[:2_000]},
    }


@pytest.mark.parametrize("kind", CHILD_KINDS)
@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"ownerReferences": [{**ROUTER, "apiVersion": "apps/v1", "kind": "Deployment"}]},
        {"ownerReferences": [{**ROUTER, "controller": False}]},
        {
            "ownerReferences": [ROUTER],
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["example.com/hold"] * 10_000,
        },
        {"labels": {**OURS, LABEL_FLOW_LOG: "flows"}},
    ],
    ids=["no owner", "another owner", "an owner that does not control it", "deleted", "claim"],
)
def test_of_an_object_that_somebody_else_has_made_no_content_is_held(
    kind: str, metadata: dict[str, Any]
) -> None:
    item = planted(kind, **metadata)
    for kept in (
        copied(item, kind, "v1"),
        watched(json.dumps({"kind": f"{kind}List", "items": [{**item, "kind": None}]}).encode())["items"][0],
        json.loads(line(json.dumps({"type": "ADDED", "object": item}).encode()))["object"],
    ):
        assert len(json.dumps(kept)) < 1_000
        assert kept["metadata"]["resourceVersion"] == "7"
        assert kept["metadata"]["labels"].items() <= item["metadata"]["labels"].items()
    assert len(json.dumps(item)) > LONG_BYTES


@pytest.mark.parametrize("kind", CHILD_KINDS)
def test_of_a_forged_object_of_an_owner_that_exists_no_content_is_held(kind: str) -> None:
    """Any number of them: the operator may not delete those of some kinds."""
    metadata = {"name": "forged", "uid": "u", "labels": OURS, "annotations": {"pad": "x" * 250_000}}
    forged = {"kind": kind, "metadata": {**metadata, "ownerReferences": [ROUTER]}}
    assert len(json.dumps(retained(forged, kind))) < 1_000


def test_of_a_large_claim_without_owner_no_content_is_held() -> None:
    metadata: dict[str, Any] = {
        "name": "west-flowlog",
        "uid": "u",
        "labels": {**OURS, LABEL_FLOW_LOG: "west"},
    }
    claim: dict[str, Any] = {"kind": "PersistentVolumeClaim", "metadata": metadata}
    assert retained(claim, "PersistentVolumeClaim") == claim
    metadata["annotations"] = {"pad": "x" * 250_000}
    assert len(json.dumps(retained(claim, "PersistentVolumeClaim"))) < 1_000


@pytest.mark.parametrize(
    "kind", sorted(set(CHILD_KINDS) - {"Secret", "Service", "PersistentVolumeClaim", "Job"})
)
def test_an_object_that_is_large_is_held_with_the_digest_of_its_content(kind: str) -> None:
    """185 CronJobs of 0.1 MB in each of several namespaces ended the operator."""
    item = planted(kind, ownerReferences=[ROUTER], annotations={ANNOTATION_APPLIED: "abc"})
    item |= {"status": {"replicas": 3}, "imagePullSecrets": []}
    item["spec"]["template"]["env"] = MANY[:100]
    assert retained(item, kind) == item
    assert not is_digested(retained(item, kind))
    item["spec"]["template"]["env"] = MANY
    listed = {**item, "kind": None, "metadata": {**item["metadata"], "managedFields": MANY[:100]}}
    for kept in (
        retained(item, kind),
        copied(Body(item), kind, "v1"),
        watched(json.dumps({"kind": f"{kind}List", "items": [listed]}).encode())["items"][0],
        json.loads(line(json.dumps({"type": "ADDED", "object": item}).encode()))["object"],
    ):
        assert len(json.dumps(kept)) < 1_000
        assert is_digested(kept)
        assert fingerprint(kept) == fingerprint(item)
        assert kept["metadata"]["annotations"] == {ANNOTATION_APPLIED: "abc"}
        assert kept["status"] == {"replicas": 3}
        assert copied(Body(kept), kind, "v1").items() >= {k: v for k, v in kept.items() if v}.items()
    item["spec"]["template"]["env"] = MANY[1:]
    assert fingerprint(retained(item, kind)) != fingerprint(kept)


def test_fields_that_the_operator_has_to_claim_count_as_such_in_a_large_object() -> None:
    fields = {"manager": MANAGER, "operation": "Update", "fieldsV1": {"f:spec": {}}}
    item = planted("StatefulSet", ownerReferences=[ROUTER], managedFields=[fields])
    assert not is_applied(retained(item, "StatefulSet")["metadata"])
    fields["operation"] = "Apply"
    assert is_applied(retained(item, "StatefulSet")["metadata"])


def test_a_large_status_is_not_held() -> None:
    item = planted("Deployment", ownerReferences=[ROUTER])
    assert "status" not in retained(item, "Deployment")


@pytest.mark.parametrize("name", OWNERS)
def test_all_that_the_operator_makes_is_held_whole(name: str) -> None:
    for item in OWNERS[name][1]:
        assert retained(item, item["kind"]) == item
        assert retained(Body(item), item["kind"]) == item  # as kopf gives it


def test_of_a_job_that_a_cron_job_has_made_only_the_run_is_held() -> None:
    [job] = (copy.deepcopy(item) for item in OWNERS["daily"][1] if item["kind"] == "Job")
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": "hourly-analysis",
        "uid": "c",
        "controller": True,
    }
    job["metadata"]["ownerReferences"] = [cron]
    run = {
        "startTime": "2026-01-01T00:00:00Z",
        "failed": 1,
        "conditions": [{"type": "Failed", "status": "True"}],
    }
    job["spec"]["suspend"] = True
    job["status"] = {**run, "ready": 0}
    kept = retained(job, "Job")
    assert kept["status"] == run
    assert kept["spec"] == {"suspend": True}
    job["status"]["conditions"] = MANY
    assert "status" not in retained(job, "Job")


def test_every_kind_that_the_operator_makes_is_watched_in_this_way() -> None:
    assert {*children.KINDS, "Secret"} == set(CHILD_KINDS)


def test_of_the_annotations_of_a_pod_only_the_operators_own_is_held() -> None:
    others = {f"a{number}": "x" * 2_000 for number in range(100)}
    metadata = {"name": "p", "uid": "u", "labels": OURS, "annotations": {**others, ANNOTATION_SYNC: "7"}}
    body = {"metadata": metadata, "spec": {"containers": MANY}, "status": {"phase": "Running"}}
    kept = copied(body, "Pod", "v1")
    assert kept["metadata"] == {**metadata, "annotations": {ANNOTATION_SYNC: "7"}}
    assert kept["status"] == {"phase": "Running"}
    assert "spec" not in kept


@pytest.mark.parametrize("kind", POD_KINDS)
def test_of_a_pod_and_a_replica_set_no_content_is_held_while_they_are_listed(kind: str) -> None:
    """40 pods with 45,000 variables each, or 1,000 with many finalizers and owners, ended the operator."""
    many = [
        {"apiVersion": "v1", "kind": "x" * 900, "name": f"n{number}", "uid": "u"} for number in range(200)
    ]
    labels = {**OURS, **{f"l{number}": "x" * 63 for number in range(200)}}
    item = planted(kind, ownerReferences=[*many, ROUTER], finalizers=["x" * 900] * 200, labels=labels)
    sync = {ANNOTATION_SYNC: "x" * 250_000}
    for metadata in (item["metadata"], item["metadata"] | {"annotations": sync}):
        body = json.dumps({"kind": f"{kind}List", "items": [{**item, "metadata": metadata, "kind": None}]})
        for kept in (
            copied({**item, "metadata": metadata}, kind, "v1"),
            copied(Body({**item, "metadata": metadata}), kind, "v1"),  # type: ignore[typeddict-item]
            watched(body.encode())["items"][0],
        ):
            assert len(json.dumps(kept)) < 1_000
            assert kept["metadata"]["ownerReferences"] == [ROUTER]
            assert kept["metadata"]["labels"] == OURS


@pytest.mark.parametrize("kind", [*CHILD_KINDS, *POD_KINDS])
def test_an_owner_that_is_larger_than_a_valid_one_is_not_held(kind: str) -> None:
    item = planted(kind, ownerReferences=[{**ROUTER, "apiVersion": "apps/v1", "uid": "x" * 250_000}])
    assert len(json.dumps(copied(item, kind, "v1"))) < 1_000


def test_of_the_status_of_a_pod_the_part_is_held_that_the_operator_reads() -> None:
    state = {"terminated": {"exitCode": 1, "message": "m" * 4096}}
    ready = {"type": "Ready", "status": "True"}
    container = {"name": "driver", "state": state, "lastState": {}}
    pod = planted("Pod")
    pod["status"] = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "hostIP": "10.0.0.2",
        "conditions": [{**ready, "lastProbeTime": None}, {"type": "Initialized", "status": "True"}],
        "containerStatuses": [{**container, "image": "i"}],
        "ephemeralContainerStatuses": MANY,
    }
    kept = copied(pod, "Pod", "v1")["status"]
    short = {"phase": "Running", "podIP": "10.0.0.1"}
    assert kept == {**short, "conditions": [ready], "containerStatuses": [container]}
    pod["status"]["containerStatuses"] = [container] * (MAX_BYTES // 4096 + 1)
    assert copied(pod, "Pod", "v1")["status"] == short


@pytest.mark.parametrize("kind", RESOURCE_KINDS)
def test_of_the_metadata_of_a_resource_the_part_is_held_that_the_operator_uses(kind: str) -> None:
    """300 LinkRoutes with large finalizers and owners took 0.1 GB."""
    annotations = {PAUSED_ANNOTATION: "true", ANNOTATION_RUN: "x" * 200_000, "other": "x"}
    many: dict[str, Any] = {
        "ownerReferences": [ROUTER] * 250,
        "finalizers": ["example.com/" + "f" * 63] * 250,
    }
    plain = {"name": "a", "namespace": "net", "uid": "u", "resourceVersion": "7", "generation": 3}
    item = {
        "kind": kind,
        "metadata": {**plain, **many, "annotations": annotations, "labels": {"l": "x"}},
        "spec": {},
    }
    body = json.dumps({"kind": f"{kind}List", "items": [{**item, "kind": None}]})
    for kept in (copied(item, kind, "v1"), watched(body.encode())["items"][0]):
        metadata = kept["metadata"]
        assert metadata.items() >= plain.items()
        assert len(metadata.pop("finalizers")) == MAX_FINALIZERS
        assert metadata.pop("annotations") == {
            PAUSED_ANNOTATION: "true",
            ANNOTATION_RUN: digest("x" * 200_000),
        }
        assert metadata == plain


def test_of_the_type_of_a_secret_no_long_one_is_held() -> None:
    """520 Secrets without any label, and with types of 0.9 MB, ended the operator at each start."""
    for size, held in ((253, True), (900_000, False)):
        item = {**planted("Secret", labels={}), "type": "x" * size}
        body = json.dumps({"kind": "SecretList", "items": [{**item, "kind": None}]})
        for kept in (copied(item, "Secret", "v1"), watched(body.encode())["items"][0]):
            assert ("type" in kept) is held
            assert len(json.dumps(kept)) < 1_000
