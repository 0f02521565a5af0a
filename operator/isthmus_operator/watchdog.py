"""Liveness that means something: do the watches still deliver?

A watch can die silently and leave an operator that answers probes and does nothing. The watchdog lists
the resources now and then and compares with what the watches have brought. A version that the watches
have not brought by the next round means that they are dead, and the liveness probe fails.

It also fails when a namespace has resources and no reconciliation, while the lists and watches have delivered nothing
for minutes. kopf processes nothing before it has listed all kinds, and does not end when one of its lists fails.

The watchdog also discards a resource that the operator holds and that two lists lack: it is deleted, and the watches
have not delivered its deletion.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from . import metrics
from .cluster import ApiError, Cluster, Manifest
from .resources import RESOURCE_KINDS
from .workers import Reconciler

logger = logging.getLogger(__name__)

PERIOD_SECONDS = 30.0
SILENT_SECONDS = 300.0
"""Lists and watches that deliver nothing for so long, while a namespace waits for its first reconciliation, do not come
back. The lists of a large cluster take minutes, and deliver objects all the time."""

Place = tuple[str, str, str]
"""Namespace, name and uid of a resource."""
Versions = Mapping[tuple[str, str], str]
"""Kind and uid to resourceVersion."""


def missed(suspects: Versions, listed: Versions, watched: Versions) -> list[tuple[str, str]]:
    """What was already missing in the last round, is unchanged in the API, and is missing still."""
    return [
        key for key, version in suspects.items() if listed.get(key) == version and watched.get(key) != version
    ]


class Watchdog:
    """`trouble` says what is wrong, or is None. `namespaces` returns those that are watched; None is the cluster.
    `discard` is called with the namespace, name and uid of a resource that is deleted. `delivered_at` returns when a
    list or a watch has last delivered anything, by `clock`."""

    def __init__(
        self,
        cluster: Cluster,
        reconciler: Reconciler,
        namespaces: Callable[[], Sequence[str | None]],
        discard: Callable[[str, str, str], None],
        delivered_at: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._reconciler = reconciler
        self._namespaces = namespaces
        self._discard = discard
        self._delivered_at = delivered_at
        self._clock = clock
        self._suspects: dict[tuple[str, str], str] = {}
        self._unlisted: set[Place] = set()
        self._waiting: set[str] = set()
        """Namespaces with resources that had no reconciliation in the last round."""
        self._dead: str | None = None

    @property
    def trouble(self) -> str | None:
        return self._dead or self._reconciler.stuck()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            try:
                await self.check()
            except ApiError as error:
                # An unreachable API server is no reason to restart the operator.
                logger.warning("watchdog: %s", error)

    async def check(self) -> None:
        """One round."""
        store = self._reconciler.store
        if store is None:
            return
        listed: dict[tuple[str, str], str] = {}
        complete: set[str | None] = set()
        used: set[str] = set()
        for namespace in self._namespaces():
            try:
                for kind in RESOURCE_KINDS:
                    async for page in self._cluster.pages(kind, namespace, metadata_only=True):
                        listed |= _versions(kind, page)
                        used.update(item["metadata"]["namespace"] for item in page)
                complete.add(namespace)
            except ApiError as error:
                if (error.status != 403 and error.status < 500) or namespace is None:
                    raise
                # It concerns this namespace alone.
                logger.warning("watchdog: namespace %s: %s", namespace, error)
        watched: dict[tuple[str, str], str] = {}
        unlisted: set[Place] = set()
        for namespace in store.namespaces():
            for manifest in store.resources(namespace):
                watched |= _versions(manifest["kind"], [manifest])
                name, uid = manifest["metadata"]["name"], manifest["metadata"]["uid"]
                if not complete.isdisjoint({None, namespace}) and (manifest["kind"], uid) not in listed:
                    unlisted.add((namespace, name, uid))
        silence = self._silence(used)
        lost = missed(self._suspects, listed, watched)
        self._dead = f"the watches have not delivered {len(lost)} objects" if lost else silence
        if self._dead is not None:
            logger.error("%s", self._dead)
        self._suspects = {key: version for key, version in listed.items() if watched.get(key) != version}
        self._discard_deleted(unlisted & self._unlisted)
        self._unlisted = unlisted

    def _silence(self, used: Collection[str]) -> str | None:
        """What is wrong if one of the namespaces with resources is not reconciled, and nothing is delivered."""
        before, self._waiting = self._waiting, {name for name in used if not self._reconciler.attends(name)}
        waiting = before & self._waiting
        silent = self._clock() - self._delivered_at()
        if not waiting or silent < SILENT_SECONDS:
            return None
        return (
            f"namespace {min(waiting)} has resources and no reconciliation, and the lists and watches have delivered "
            f"nothing for {silent:.0f} seconds"
        )

    def _discard_deleted(self, places: Collection[Place]) -> None:
        """Drop resources that the API server does not have."""
        for place in places:
            self._discard(*place)
        metrics.MISSED_DELETIONS.inc(len(places))
        if places:
            logger.warning(
                "watchdog: discarded %d deleted resources, whose deletion the watches had not delivered",
                len(places),
            )
        for namespace in {namespace for namespace, _, _ in places}:
            self._reconciler.nudge(namespace)


def _versions(kind: str, manifests: Sequence[Manifest]) -> dict[tuple[str, str], str]:
    return {(kind, item["metadata"]["uid"]): item["metadata"]["resourceVersion"] for item in manifests}
