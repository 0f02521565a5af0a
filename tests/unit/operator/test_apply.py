"""Applying: what is written, what is left alone, what is never touched."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from tests.unit.operator.support import flow_log, router

from isthmus_operator.apply import covers, filled, fingerprint, owned, refusal, superfluous
from isthmus_operator.names import (
    ANNOTATION_APPLIED,
    ANNOTATION_GENERATED,
    LABEL_FLOW_LOG,
    LABEL_MANAGED_BY,
    LABEL_PROFILE,
    MANAGER,
)
from isthmus_operator.resources import FlowLog, Router, parse


def west() -> Router:
    parsed = parse(router("west"))
    assert isinstance(parsed, Router)
    return parsed


def service(**metadata: Any) -> dict[str, Any]:
    return {"kind": "Service", "metadata": {"name": "west", "namespace": "net", **metadata}, "spec": {"x": 1}}


def owner(uid: str) -> list[dict[str, Any]]:
    return [{"kind": "Router", "name": "west", "uid": uid, "controller": True}]


OURS = {LABEL_MANAGED_BY: MANAGER}


def test_an_owned_object_names_its_controller_and_what_was_applied() -> None:
    metadata = owned(service(annotations={"a": "b"}), west())["metadata"]
    assert metadata["ownerReferences"][0]["uid"] == "uid-west"
    assert metadata["ownerReferences"][0]["controller"] is True
    assert set(metadata["annotations"]) == {"a", ANNOTATION_APPLIED}


@pytest.mark.parametrize(
    ("live", "refused"),
    [
        (service(ownerReferences=owner("uid-west")), False),
        (service(labels=OURS), True),
        (service(), True),
        (service(labels={LABEL_MANAGED_BY: "Helm"}), True),
        (service(labels=OURS, ownerReferences=owner("uid-of-the-former-west")), True),
    ],
)
def test_only_our_own_objects_are_touched(live: dict[str, Any], refused: bool) -> None:
    assert (refusal(live, west()) is not None) == refused


def test_an_object_without_an_owner_is_ours_while_we_know_that_we_have_made_it() -> None:
    assert refusal(service(labels=OURS), west(), known=True) is None
    assert refusal(service(labels={LABEL_MANAGED_BY: "Helm"}), west(), known=True) is not None
    former = service(labels=OURS, ownerReferences=owner("uid-of-the-former-west"))
    assert refusal(former, west(), known=True) is not None


def test_the_claim_of_a_flow_log_has_no_owner_and_is_used_again() -> None:
    """It outlives its FlowLog, with the log in it."""
    log = parse(flow_log("flows"))
    assert isinstance(log, FlowLog)

    def claim(**labels: str) -> dict[str, Any]:
        metadata = {"name": "flows-flowlog", "namespace": "net", "labels": {**OURS, **labels}}
        return {"kind": "PersistentVolumeClaim", "metadata": metadata}

    assert refusal(claim(**{LABEL_FLOW_LOG: "flows"}), log) is None
    assert refusal(claim(**{LABEL_FLOW_LOG: "other"}), log) is not None
    assert refusal(claim(), log) is not None


@pytest.mark.parametrize(
    ("live", "desired", "covered"),
    [
        ({"a": 1, "added": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({}, {"a": 1}, False),
        ({"a": {"b": [{"c": 1, "default": 2}]}}, {"a": {"b": [{"c": 1}]}}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({}, {"a": {}}, True),
        ({}, {"a": []}, True),
        ({"cpu": "1"}, {"cpu": "1000m"}, True),
        ({"cpu": "500m"}, {"cpu": "0.5"}, True),
        ({"cpu": "2"}, {"cpu": 2}, True),
        ({"cpu": "2"}, {"cpu": "3"}, False),
        ({"a": "text"}, {"a": "other"}, False),
        ({"a": True}, {"a": False}, False),
        ({"targetPort": "snan1"}, {"targetPort": "amqp"}, False),
        ({"targetPort": "snan1"}, {"targetPort": "2"}, False),
        ({"cpu": "1e999999999"}, {"cpu": "2"}, False),
    ],
)
def test_live_covers_desired_whatever_the_api_server_added(live: Any, desired: Any, covered: bool) -> None:
    assert covers(live, desired) is covered


def with_key(value: str | None = None) -> dict[str, Any]:
    data = {} if value is None else {"data": {"key": value}}
    return {"kind": "Secret", "metadata": {"annotations": {ANNOTATION_GENERATED: "key"}}, **data}


def test_a_generated_value_is_random_and_stays() -> None:
    values = [filled(with_key(), live)["data"]["key"] for live in (None, with_key(), None)]
    assert len(set(values)) == 3
    assert {len(b64decode(value)) for value in values} == {32}
    assert filled(with_key(), with_key(values[0]))["data"] == {"key": values[0]}
    assert filled(service(), None) == service()


@pytest.mark.parametrize("value", ["", "c2hvcnQ=", "no base64!", "\N{SNOWMAN}"])
def test_a_value_that_cannot_be_used_is_generated_again(value: str) -> None:
    assert len(b64decode(filled(with_key(), with_key(value))["data"]["key"])) == 32


def test_only_objects_of_this_very_router_that_the_operator_may_delete_are_superfluous() -> None:
    live = {
        ("Service", "kept"): service(ownerReferences=owner("uid-west")),
        ("Service", "gone"): service(ownerReferences=owner("uid-west")),
        ("Service", "going"): service(
            ownerReferences=owner("uid-west"), deletionTimestamp="2026-01-01T00:00:00Z"
        ),
        ("Service", "former"): service(ownerReferences=owner("uid-old")),
        ("Service", "foreign"): service(),
        ("RoleBinding", "kept by Kubernetes"): service(ownerReferences=owner("uid-west")),
        ("Job", "forged"): service(ownerReferences=owner("uid-west"), labels={LABEL_PROFILE: "x"}),
        ("Secret", "ledger"): service(ownerReferences=owner("uid-west"), labels={LABEL_PROFILE: "x"}),
    }
    found = list(superfluous(live, [("Service", "kept")], west()))
    assert found == [("Service", "gone"), ("Job", "forged")]


def test_a_fingerprint_changes_with_what_somebody_did_and_not_by_itself() -> None:
    base = service(resourceVersion="1", generation=1)
    assert fingerprint(base) == fingerprint(
        {**service(resourceVersion="2", generation=2), "status": {"a": 1}}
    )
    assert fingerprint(base) != fingerprint({**base, "spec": {"x": 2}})
