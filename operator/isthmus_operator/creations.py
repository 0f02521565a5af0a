"""Why the controllers of StatefulSets and Jobs create no pods. They state it in Events only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from .cluster import ApiError, Cluster
from .untrusted import MAX_TEXT

logger = logging.getLogger(__name__)

AGE_SECONDS = 10.0
"""Pause between two readings of the Events of a namespace."""
MAX_READING_SECONDS = 2.0
"""A reading begins no further page after this time."""
MAX_PAGES = 100
"""Pages of `LIST_CHUNK` Events in one reading."""
_SELECTOR = "reason=FailedCreate,regarding.kind!=ReplicaSet"
"""Deployments state in their status what their ReplicaSets report."""


class CreationFailures:
    """The newest failure of each StatefulSet and Job of one namespace. One list of Events serves all of them.

    Anybody who may write Events of the namespace decides how many there are and how long they are. So a reading is
    bounded in pages and in time, and may miss workloads whose Events the API server lists last."""

    def __init__(self, namespace: str, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._namespace = namespace
        self._cluster = cluster
        self._clock = clock
        self._wanted = False
        self._next = clock()
        """When the Events may be read again."""
        self._notes: dict[str, str] = {}
        """By uid of a StatefulSet or Job."""

    async def of(self, uids: Collection[str]) -> Mapping[str, str]:
        """Return the failures of the workloads with these uids, at most `AGE_SECONDS` old if called when `due`."""
        self._wanted = bool(uids)
        if self._wanted and self._clock() >= self._next:
            self._notes = await self._read(frozenset(uids))
            self._next = self._clock() + AGE_SECONDS
        self._notes = {uid: note for uid, note in self._notes.items() if uid in uids}
        return self._notes

    def due(self) -> float | None:
        """Return after how many seconds the Events are to be read again, or None if no workload lacks pods."""
        return max(0.1, self._next - self._clock()) if self._wanted else None

    async def _read(self, uids: frozenset[str]) -> dict[str, str]:
        """Return the failures by uid; those that are known already if the API server refuses the request."""
        found: dict[str, tuple[str, str]] = {}
        end, pages = self._clock() + MAX_READING_SECONDS, 0
        try:
            async for page in self._cluster.pages("Event", self._namespace, fieldSelector=_SELECTOR):
                for item in page:
                    uid = str((item.get("regarding") or {}).get("uid"))
                    seen = _last_seen(item)
                    if uid in uids and seen >= found.get(uid, ("", ""))[0]:
                        found[uid] = seen, str(item.get("note") or "")[:MAX_TEXT]
                pages += 1
                if pages == MAX_PAGES or self._clock() >= end:
                    break
        except ApiError as error:
            logger.warning("events of namespace %s: %s", self._namespace, error)
            return self._notes
        return {uid: note for uid, (_, note) in found.items()}


def _last_seen(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    times = series.get("lastObservedTime"), event.get("deprecatedLastTimestamp"), event.get("eventTime")
    return next((str(item) for item in times if item), "")
