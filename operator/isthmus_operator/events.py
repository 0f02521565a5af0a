"""Events for people: one per transition of a condition, never the only record of anything."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .cluster import ApiError, Cluster, Manifest
from .names import MANAGER
from .resources import API_VERSION

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Note:
    """What an Event says."""

    type: str
    """`Normal` or `Warning`."""
    reason: str
    text: str


def transitions(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Iterator[Note]:
    """Notes on what changed between two statuses: readiness, and each new reason why it is missing."""
    old = {item["type"]: item for item in (before or {}).get("conditions") or ()}
    for condition in after["conditions"]:
        previous = old.get(condition["type"], {})
        same = (previous.get("status"), previous.get("reason")) == (condition["status"], condition["reason"])
        if condition["type"] != "Ready" or same:
            continue
        if condition["status"] == "True":
            yield Note("Normal", "Ready", "all is well")
        elif condition["reason"] not in (_CHANGING if previous.get("status") == "True" else _STARTING):
            yield Note("Warning", condition["reason"], condition["message"] or condition["reason"])


_CHANGING = frozenset({"ConfigPending", "RolloutInProgress"})
"""Reasons that follow from a change of the specification: no news to who made it."""
_STARTING = _CHANGING | {
    "NoReplicaReady",
    "ReplicasMissing",
    "PeersMissing",
    "UplinkMissing",
    "NoConnection",
    "ConnectionsMissing",
    "ScaledToZero",
}
"""Reasons that are normal while something starts, or asked for; news only where all had been well."""


async def creation_failure(cluster: Cluster, workload: Mapping[str, Any]) -> str:
    """Why the controller of a StatefulSet could not create pods: it says so in Events only."""
    metadata = workload["metadata"]
    selector = f"reason=FailedCreate,regarding.kind={workload['kind']},regarding.name={metadata['name']}"
    try:
        found = await cluster.list("Event", metadata["namespace"], fieldSelector=selector)
    except ApiError as error:
        logger.warning("events of %s: %s", metadata["name"], error)
        return ""
    own = [item for item in found if item.get("regarding", {}).get("uid") == metadata["uid"]]
    return str(max(own, key=_last_seen).get("note") or "") if own else ""


def _last_seen(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime") or event.get("deprecatedLastTimestamp") or event.get("eventTime")
    )


async def post(cluster: Cluster, regarding: Manifest, note: Note, now: str, instance: str) -> None:
    """Posts an Event about a resource. Failure is logged only: the condition says the same."""
    metadata = regarding["metadata"]
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name'][:200]}-", "namespace": metadata["namespace"]},
        "eventTime": now,
        "reportingController": f"isthmus.dev/{MANAGER}",
        "reportingInstance": instance[:128],
        "action": "Reconcile",
        "reason": note.reason,
        "type": note.type,
        "note": note.text[:1024],
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": regarding["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
    }
    try:
        await cluster.create(event)
    except ApiError as error:
        logger.warning("event %s not posted: %s", note.reason, error)
