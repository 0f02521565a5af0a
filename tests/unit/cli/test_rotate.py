"""How far a rotation is, as `isthmus rotate` tells it."""

from __future__ import annotations

from typing import Any

from isthmus_cli.progress import progress, refusal, wanted

ROTATING = {"type": "Rotating", "status": "True", "message": "ordinal 2 since then, 1 not on it yet: east-0"}
SETTLED = {"type": "Rotating", "status": "False", "message": "ordinal 2 is in use everywhere"}


def profile(*conditions: dict[str, Any], observed: int = 3, **status: Any) -> dict[str, Any]:
    known = {"observedGeneration": observed, "ordinal": 2, "oldestValidOrdinal": 1, "handledRequest": 1}
    return {
        "metadata": {"name": "net", "generation": 3},
        "status": {**known, "conditions": list(conditions), **status},
    }


def user(pod: str, message: str = "", number: int = 1) -> dict[str, Any]:
    counts = [{"ordinal": 1, "connections": 4}, {"ordinal": 2, "connections": number}]
    return {"pod": pod, "connections": counts, "message": message}


def test_nothing_is_said_of_a_status_that_does_not_know_the_request() -> None:
    for manifest in (
        profile(SETTLED, observed=2),
        profile(SETTLED, handledRequest=0),
        {"metadata": {"name": "net", "generation": 1}},
    ):
        found = progress(manifest, 1, revoked=None)
        assert (found.ordinal, found.done, found.refused) == (None, False, None)
        assert "operator" in found.waiting


def test_a_request_that_waits_for_a_good_secret_is_refused() -> None:
    degraded = {"type": "Degraded", "status": "True", "message": "no good; the requested rotation waits"}
    found = progress(profile(SETTLED, degraded, handledRequest=0), 1, revoked=None)
    assert found.refused == "no good; the requested rotation waits"


def test_routers_that_have_followed_are_named_and_the_others_waited_for() -> None:
    users = [user("east-0", "behind"), user("west-0"), user("west-1", number=0)]
    found = progress(profile(ROTATING, users=users), 1, revoked=None)
    assert (found.ordinal, found.done) == (2, False)
    assert found.moved == (
        "west-0: 1 connection on ordinal 2",
        "west-1: ready for connections on ordinal 2",
    )
    assert found.waiting == ROTATING["message"]
    assert progress(profile(SETTLED), 1, revoked=None).done


def test_a_revocation_is_done_when_old_connections_are_closed() -> None:
    left = [{"ordinal": 1, "connections": 2}, {"ordinal": 2, "connections": 5}]
    found = progress(profile(SETTLED, oldestValidOrdinal=2, ordinals=left), 1, revoked=1)
    assert (found.done, found.waiting) == (False, "2 connections on ordinal 1 are not closed yet")
    assert progress(profile(SETTLED, oldestValidOrdinal=2, ordinals=left[1:]), 1, revoked=1).done


def test_a_revocation_that_waits_is_not_taken_back_by_another_request() -> None:
    asked = {**profile(SETTLED), "spec": {"rotation": {"request": 2, "revoke": True}}}
    assert wanted(asked, revoke=False) == {"request": 3, "revoke": True}
    done = {**profile(SETTLED, handledRequest=2), "spec": asked["spec"]}
    assert wanted(done, revoke=False) == {"request": 3, "revoke": False}
    assert wanted({**profile(SETTLED), "spec": {}}, revoke=True) == {"request": 2, "revoke": True}


def test_a_revocation_that_was_taken_back_is_not_done() -> None:
    found = progress(profile(SETTLED, ordinal=3, handledRequest=2), 1, revoked=2)
    assert not found.done
    assert found.refused is not None
    assert "ordinal 1 is still valid" in found.refused


def test_nothing_is_revoked_for_a_certificate_that_cannot_take_over() -> None:
    unfit = {
        "type": "Questionable",
        "status": "True",
        "reason": "CertificateUnfit",
        "message": "tls.crt is unfit",
    }
    for manifest in (profile(SETTLED, unfit), profile(SETTLED, {**unfit, "reason": "NumberIgnored"})):
        assert refusal(manifest, revoke=False) is None
    refused = refusal(profile(SETTLED, unfit), revoke=True)
    assert refused is not None
    assert refused.startswith("not revoked")
    assert "tls.crt is unfit" in refused
    assert refusal(profile(SETTLED, {**unfit, "status": "False"}), revoke=True) is None
    degraded = {"type": "Degraded", "status": "True", "reason": "SecretInvalid", "message": "no good"}
    assert refusal(profile(SETTLED, degraded), revoke=False) == "not rotated: SecretInvalid: no good"
