"""Events for people: transitions of `Ready` that last, never the only record of anything."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .cluster import ApiError, Cluster, Manifest
from .names import MANAGER
from .resources import API_VERSION
from .untrusted import shown

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Note:
    """What an Event says."""

    type: str
    """`Normal` or `Warning`."""
    reason: str
    text: str


_CHANGING = frozenset({"ConfigPending", "RolloutInProgress"})
"""Reasons that follow from a change of the specification: no news to who made it."""
_STARTING = frozenset(
    {
        "NoReplicaReady",
        "ReplicasMissing",
        "PeersMissing",
        "UplinkMissing",
        "NoConnection",
        "ConnectionsMissing",
        "NoContainer",
        "ScaledToZero",
        "NoMembers",
        "MembersMissing",
        "MembersSilent",
        "SendersWait",
    }
)
"""Reasons that are normal while something starts or is changed; news where all had been well, if they last."""
_PASSING = _STARTING | {
    "Pending",
    "Divided",
    "ViewChanging",
    "NameUnresolved",
    "SiteUnreachable",
    "SiteLeft",
    "RelayLagging",
}
"""Reasons that are news only when they last. What is applied or deleted with other things comes or goes
a moment before or after them, members are not told of a view all at once, and a relay takes over from another."""
LASTING_SECONDS = 10.0
MAX_NOTE_BYTES = 1024
DROPS_SECONDS = 60.0
"""Between two Events about what was dropped for sites; the next one tells what came since."""
MOST_AT_ONCE = 250
"""Events about the resources of one namespace that are posted at once."""
PER_SECOND = 2.0
"""Further ones. The API server keeps each for an hour, and one change of a tenant can be news of all its resources."""


@dataclass
class _Told:
    """What is known about one resource's condition `Ready`."""

    reason: str | None
    """The reason that was told last."""
    reached: str | None = None
    """A reason that has not been told yet, and since when it has been so."""
    since: float = 0.0
    dropped: int = 0
    """Messages dropped for other sites that were told of, or were before there was anybody to tell."""
    drops_told: float | None = None
    """When that was told last."""
    drops_wait: bool = False
    """More were dropped since."""


class Allowance:
    """How many Events one namespace may post. Times are monotonic, in seconds."""

    def __init__(self, now: float) -> None:
        self._left = float(MOST_AT_ONCE)
        self._at = now

    def take(self, now: float) -> bool:
        """Whether one more may be posted, which counts."""
        self._left = min(MOST_AT_ONCE, self._left + (now - self._at) * PER_SECOND)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Announcer:
    """Decides what is news: readiness that was lost or regained, and each new reason why it is missing.

    Times are monotonic, in seconds.
    """

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}

    def meet(self, uid: str, status: Mapping[str, Any]) -> None:
        """Takes over what is known about a resource before its first status of ours."""
        if uid not in self._told:
            reason = _ready(status).get("reason")
            told = reason if reason not in _CHANGING else None
            self._told[uid] = _Told(told, dropped=sum(_dropped(status).values()))

    def retain(self, uids: Iterable[str]) -> None:
        """Forgets resources other than these."""
        alive = set(uids)
        self._told = {uid: item for uid, item in self._told.items() if uid in alive}

    def news(self, uid: str, status: Mapping[str, Any], now: float) -> Note | None:
        """What is to be told about a resource that was met, whose status is `status`."""
        told, condition = self._told[uid], _ready(status)
        reason = condition.get("reason")
        if reason is None or reason == told.reason or self._is_usual(told, reason):
            told.reached = None
            return None
        if told.reached != reason:
            told.reached, told.since = reason, now
        if reason in _PASSING and now - told.since < LASTING_SECONDS:
            return None
        told.reason, told.reached = reason, None
        if condition["status"] == "True":
            return Note("Normal", "Ready", "all is well")
        return Note("Warning", reason, condition.get("message") or reason)

    def drops(self, uid: str, status: Mapping[str, Any], now: float) -> Note | None:
        """What is to be told of messages that a RelaySite has dropped. Members that start anew count from 0."""
        told, dropped = self._told[uid], _dropped(status)
        total = sum(dropped.values())
        told.dropped = min(told.dropped, total)
        told.drops_wait = total > told.dropped
        early = told.drops_told is not None and now < told.drops_told + DROPS_SECONDS
        if early or not told.drops_wait:
            return None
        new, told.dropped, told.drops_told, told.drops_wait = total - told.dropped, total, now, False
        sites = ", ".join(f"{number} for {site}" for site, number in dropped.items() if number)
        return Note(
            "Warning", "MessagesDropped", f"{new} more messages were dropped from the buffer; in all {sites}"
        )

    def due(self, now: float) -> float | None:
        """In how many seconds something may have lasted long enough to be news."""
        waits = [item.since + LASTING_SECONDS - now for item in self._told.values() if item.reached]
        waits += [
            item.drops_told + DROPS_SECONDS - now
            for item in self._told.values()
            if item.drops_wait and item.drops_told is not None
        ]
        return max(0.1, min(waits)) if waits else None

    def _is_usual(self, told: _Told, reason: str) -> bool:
        return reason in _CHANGING or (reason in _STARTING and told.reason != "Ready")


def _ready(status: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((item for item in status.get("conditions") or () if item["type"] == "Ready"), {})


def _dropped(status: Mapping[str, Any]) -> Mapping[str, int]:
    """Messages dropped, by remote site."""
    return {item["site"]: int(item.get("dropped", 0)) for item in status.get("remoteSites") or ()}


def _note(text: str) -> str:
    """The text of an Event in as many bytes as the API server accepts."""
    return str(shown(text)).encode()[:MAX_NOTE_BYTES].decode(errors="ignore")


async def post(cluster: Cluster, regarding: Manifest, note: Note, now: str, instance: str) -> None:
    """Posts an Event about a resource. Failure is logged only: the condition says the same."""
    metadata = regarding["metadata"]
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "generateName": f"{metadata['name'][:200].rstrip('.-')}-",
            "namespace": metadata["namespace"],
        },
        "eventTime": now,
        "reportingController": f"isthmus.dev/{MANAGER}",
        "reportingInstance": instance[:128],
        "action": "Reconcile",
        "reason": note.reason,
        "type": note.type,
        "note": _note(note.text),
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
