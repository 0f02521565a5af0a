"""Leader election: when a candidate takes the lease and when it must not."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from isthmus_operator import leader
from isthmus_operator.cluster import ApiError
from isthmus_operator.leader import Election, Sighting, decide

NOW = 1000.0


def lease(holder: str | None, version: str = "7", duration: int = 15) -> dict[str, Any]:
    return {
        "metadata": {"resourceVersion": version},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": duration},
    }


@pytest.mark.parametrize(
    ("found", "seen", "decision"),
    [
        (None, None, "create"),
        (lease("me"), None, "renew"),
        (lease(""), None, "take"),
        (lease(None), None, "take"),
        (lease("rival"), None, "wait"),
        (lease("rival"), Sighting("7", NOW - 14.9), "wait"),
        (lease("rival"), Sighting("7", NOW - 15.0), "take"),
        (lease("rival", version="8"), Sighting("7", NOW - 100), "wait"),
        (lease("rival", duration=60), Sighting("7", NOW - 15.0), "wait"),
        (lease("rival", duration=1), Sighting("7", NOW - 14.9), "wait"),
        (lease("rival", duration=2**31 - 1), Sighting("7", NOW - 59.9), "wait"),
        (lease("rival", duration=2**31 - 1), Sighting("7", NOW - 60.0), "take"),
    ],
)
def test_decision(found: dict[str, Any] | None, seen: Sighting | None, decision: str) -> None:
    assert decide(found, "me", seen, NOW) == decision


async def test_a_lease_that_somebody_has_deleted_is_named_with_what_makes_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Api:
        async def get(self, *_: str) -> None:
            return None

        async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
            raise ApiError(403, "Forbidden", "leases is forbidden")

    api: Any = Api()
    assert not await Election(api, "ops", "isthmus-operator", "me")._try()
    (record,) = caplog.records
    assert record.getMessage() == (
        "lease isthmus-operator: it does not exist, and the operator may not make it. Run `helm upgrade`, which makes "
        "it (leases is forbidden)"
    )


class SlowApi:
    """An API server that takes so many seconds for each request, by a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.seconds = seconds
        self.now = NOW
        self.lease = lease("me")
        self.lease["metadata"] |= {"name": "isthmus-operator", "namespace": "ops"}
        self.requests: list[str] = []
        self.stored_at: list[float] = []
        monkeypatch.setattr(leader.asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds

    async def get(self, *_: str) -> dict[str, Any]:
        self.requests.append("get")
        self.now += self.seconds
        return copy.deepcopy(self.lease)

    async def replace(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.requests.append("replace")
        if len(self.requests) > 20:
            raise ApiError(0, "Unreachable", "no answer")
        self.stored_at.append(self.now)
        self.now += self.seconds
        version = self.lease["metadata"]["resourceVersion"]
        if manifest["metadata"]["resourceVersion"] != version:
            raise ApiError(409, "Conflict", "changed")
        self.lease = copy.deepcopy(manifest)
        self.lease["metadata"]["resourceVersion"] = str(int(version) + 1)
        return copy.deepcopy(self.lease)


@pytest.mark.parametrize("seconds", [0.01, 3.0, 5.5])
async def test_a_lease_is_renewed_by_one_request_though_the_api_server_is_slow(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    api = SlowApi(monkeypatch, seconds)
    cluster: Any = api
    election = Election(cluster, "ops", "isthmus-operator", "me", clock=lambda: api.now)
    await election.acquire()
    assert api.requests == ["get", "replace"]
    await election.hold()
    assert set(api.requests[2:21]) == {"replace"}  # and none is answered then
    assert api.now < api.stored_at[-1] + leader.LEASE_SECONDS + leader.RETRY_SECONDS


async def test_a_lease_that_somebody_has_changed_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    api = SlowApi(monkeypatch, 0.01)
    cluster: Any = api
    election = Election(cluster, "ops", "isthmus-operator", "me", clock=lambda: api.now)
    await election.acquire()
    api.lease["metadata"]["resourceVersion"] = "100"
    api.requests.clear()
    assert await election._renew()
    assert api.requests == ["replace", "get", "replace"]
    api.lease["spec"]["holderIdentity"] = "rival"
    api.lease["metadata"]["resourceVersion"] = "200"
    assert not await election._renew()


async def test_a_leader_ends_when_another_holder_has_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """It went on for 8 seconds beside the other one."""
    api = SlowApi(monkeypatch, 0.01)
    cluster: Any = api
    election = Election(cluster, "ops", "isthmus-operator", "me", clock=lambda: api.now)
    await election.acquire()
    api.lease["spec"]["holderIdentity"] = "rival"
    api.lease["metadata"]["resourceVersion"] = "200"
    began = api.now
    await election.hold()
    assert api.now < began + leader.RETRY_SECONDS + 1


async def test_a_lease_with_the_largest_number_of_transitions_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The API server refused each attempt of all candidates."""
    api = SlowApi(monkeypatch, 0.01)
    cluster: Any = api
    api.lease["spec"] = {"holderIdentity": "", "leaseTransitions": 2**31 - 1}
    await Election(cluster, "ops", "isthmus-operator", "me", clock=lambda: api.now).acquire()
    assert (api.lease["spec"]["holderIdentity"], api.lease["spec"]["leaseTransitions"]) == ("me", 2**31 - 1)
