"""What audit logs of the cluster tests say about rights: which were used, and which requests must not be forbidden."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.rights import Findings, Right, events, findings, granted, main, verdict

OPERATOR = "system:serviceaccount:home:isthmus-operator"
DRIVER = "system:serviceaccount:home:daily-analysis"
ROLE = "isthmus-operator"
BEGIN = datetime(2026, 11, 30, 5, tzinfo=UTC)


def event(second: int, verb: str, resource: str, account: str = OPERATOR, **about: str) -> dict[str, Any]:
    """A request of somebody about which RBAC says nothing."""
    kind, _, part = resource.partition("/")
    subresource = {"subresource": part} if part else {}
    return {
        "verb": verb,
        "user": {"username": account},
        "objectRef": {"resource": kind, "namespace": "home", **subresource, **about},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": f"2026-11-30T05:00:{second:02}.000000Z",
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
    }


def allowed(
    second: int, verb: str, resource: str, account: str = OPERATOR, role: str = ROLE, **about: str
) -> dict[str, Any]:
    """A request that the API server has allowed by the role."""
    name = account.rpartition(":")[2]
    reason = f'RBAC: allowed by RoleBinding "{name}/home" of Role "{role}" to ServiceAccount "{name}/home"'
    made = event(second, verb, resource, account, **about)
    made["annotations"]["authorization.k8s.io/reason"] = reason
    return made


def forbidden(second: int, account: str = OPERATOR, **about: str) -> dict[str, Any]:
    made = event(second, "list", "pods", account, **about)
    made["responseStatus"] = {"code": 403}
    made["annotations"]["authorization.k8s.io/decision"] = "forbid"
    return made


def binding(
    second: int, verb: str, code: int = 200, kind: str = "rolebindings", **about: str
) -> dict[str, Any]:
    """A request of the administrator about the role binding of the operator, or its role."""
    named = {"name": "isthmus-operator", "apiGroup": "rbac.authorization.k8s.io", **about}
    made = event(second, verb, kind, "isthmus-test-admin", **named)
    made["responseStatus"] = {"code": code}
    return made


def test_a_right_is_used_by_a_request_that_its_role_has_allowed() -> None:
    patched = allowed(2, "patch", "routers/status", apiGroup="isthmus.dev", name="hub")
    driven = allowed(3, "create", "pods", DRIVER, "isthmus-flow-driver")
    version = event(4, "get", "")
    del version["objectRef"]
    found = findings([allowed(1, "list", "pods"), patched, driven, version, event(5, "get", "secrets")])
    assert found.used == {
        Right(ROLE, "", "pods", "list"),
        Right(ROLE, "isthmus.dev", "routers/status", "patch"),
        Right("isthmus-flow-driver", "", "pods", "create"),
    }
    assert found.forbidden == []


def test_a_cluster_role_is_a_role_as_well() -> None:
    request = event(1, "list", "pods")
    request["annotations"]["authorization.k8s.io/reason"] = (
        'RBAC: allowed by ClusterRoleBinding "isthmus-operator" of ClusterRole "isthmus-operator" '
        'to ServiceAccount "isthmus-operator/home"'
    )
    assert findings([request]).used == {Right(ROLE, "", "pods", "list")}


def test_a_forbidden_request_of_the_operator_or_of_a_driver_is_reported() -> None:
    (operator,) = findings([forbidden(1)]).forbidden
    assert operator == f"2026-11-30T05:00:01.000000Z {OPERATOR}: list pods in home"
    assert len(findings([allowed(1, "list", "pods"), forbidden(2)]).forbidden) == 1
    assert len(findings([forbidden(1, DRIVER)]).forbidden) == 1


def test_requests_of_others_may_be_forbidden() -> None:
    assert findings([forbidden(1, "system:serviceaccount:home:reader")]).forbidden == []


def test_what_admission_refuses_lacks_no_right_and_shows_no_need_of_one() -> None:
    refused = allowed(1, "patch", "pods")
    refused["responseStatus"] = {"code": 403}
    found = findings([refused])
    assert (found.forbidden, found.used) == ([], set())


@pytest.mark.parametrize(
    "deletion",
    [
        binding(2, verb, kind=kind)
        for verb in ("delete", "deletecollection")
        for kind in ("rolebindings", "roles")
    ],
)
def test_without_its_role_or_binding_the_operator_may_be_forbidden(deletion: dict[str, Any]) -> None:
    if deletion["verb"] == "deletecollection":
        del deletion["objectRef"]["name"]  # the end of a namespace
    assert findings([allowed(1, "list", "pods"), deletion, forbidden(3)]).forbidden == []


def test_the_log_may_have_a_request_before_the_deletion_that_came_at_the_same_time() -> None:
    assert findings([allowed(1, "list", "pods"), forbidden(3), binding(4, "delete")]).forbidden == []


@pytest.mark.parametrize(
    "request_about_binding",
    [
        binding(2, "delete", code=404),
        binding(2, "delete", namespace="other"),
        binding(2, "delete", name="another"),
        binding(2, "delete", kind="clusterroles"),
        binding(2, "create"),
        binding(40, "delete"),
    ],
)
def test_any_other_request_about_bindings_excuses_nothing(request_about_binding: dict[str, Any]) -> None:
    found = findings([allowed(1, "list", "pods"), request_about_binding, forbidden(3)])
    assert len(found.forbidden) == 1


def test_once_the_binding_is_back_nothing_may_be_forbidden() -> None:
    begin = [allowed(1, "list", "pods"), binding(2, "delete"), binding(5, "create")]
    assert findings([*begin, forbidden(6)]).forbidden == [], "the API server has not heard of it yet"
    assert len(findings([*begin, forbidden(16)]).forbidden) == 1


def test_the_order_of_requests_is_that_of_their_times() -> None:
    assert findings([forbidden(3), binding(2, "delete"), allowed(1, "list", "pods")]).forbidden == []


def test_rights_of_a_chart_are_those_that_requests_of_service_accounts_have() -> None:
    rules = [
        {"apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["list", "watch"]},
        {"apiGroups": ["isthmus.dev"], "resources": ["routers/finalizers"], "verbs": ["update"]},
        {"apiGroups": ["isthmus.dev"], "resources": ["flowanalyses"], "verbs": ["drive"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["bind"]},
    ]
    role = {"kind": "Role", "metadata": {"name": ROLE, "labels": {}}, "rules": rules}
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    view = {"kind": "ClusterRole", "metadata": {"name": "view", "labels": label}, "rules": rules}
    other = {"kind": "Service", "metadata": {"name": "x", "labels": {}}}
    assert granted([role, view, other]) == {
        Right(ROLE, group, "pods", verb) for group in ("", "apps") for verb in ("list", "watch")
    }


def test_the_verdict_names_the_role_and_the_right_that_nothing_uses() -> None:
    used, unused = Right(ROLE, "", "pods", "list"), Right(ROLE, "apps", "deployments", "delete")
    assert verdict({used}, Findings({used})) == []
    assert verdict({used, unused}, Findings({used}, ["x"])) == [
        "No request has used a right of the chart: isthmus-operator: delete deployments of apps",
        "A request was forbidden: x",
    ]


def test_findings_of_several_processes_are_one(tmp_path: Path) -> None:
    folder = tmp_path / "rights"
    assert Findings.read(folder) == Findings()
    one, other = Right(ROLE, "", "pods", "list"), Right(ROLE, "", "pods", "watch")
    Findings({one}, ["a"], complete=True).write(folder)
    Findings({other}, ["b"]).write(folder)
    found = Findings.read(folder)
    assert (found.used, sorted(found.forbidden), found.complete) == ({one, other}, ["a", "b"], True)


def test_a_run_of_some_tests_is_no_reason_to_complain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Findings(set(), ["x"]).write(tmp_path)
    assert main(tmp_path) == 0
    assert "not compared" in capsys.readouterr().out


def test_requests_from_before_the_tests_do_not_count(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text("".join(json.dumps(event(second, "get", "pods")) + "\n" for second in (1, 9)))
    assert [item["requestReceivedTimestamp"] for item in events([log], BEGIN.replace(second=5))] == [
        "2026-11-30T05:00:09.000000Z"
    ]
