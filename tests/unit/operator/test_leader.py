"""Leader election: when a candidate takes the lease and when it must not."""

from __future__ import annotations

from typing import Any

import pytest

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
