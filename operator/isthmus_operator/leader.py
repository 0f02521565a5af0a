"""Leader election with a `coordination.k8s.io` Lease: at most one operator acts at a time.

`decide` is pure. A rival's lease counts as expired when it has not changed for its duration by *our*
monotonic clock; the times written in it are for people, since clocks differ between nodes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from .cluster import ApiError, Cluster, Manifest
from .metrics import LEADER

logger = logging.getLogger(__name__)

LEASE_SECONDS = 15
RENEW_DEADLINE_SECONDS = 10.0
MARGIN_SECONDS = 1.0
RETRY_SECONDS = 2.0
MAX_RIVAL_SECONDS = 60.0
"""A longer duration in the lease of another holder counts as this, and a shorter one than `LEASE_SECONDS` as that one.
Everyone who may write the lease could otherwise stop all operators for years, or make two of them lead."""
MAX_TRANSITIONS = 2**31 - 1
"""The API server refuses a larger number."""


@dataclass(frozen=True)
class Sighting:
    """When we first saw the lease in its present form, on the monotonic clock."""

    version: str
    at: float


Decision = Literal["create", "renew", "take", "wait"]


def decide(lease: Manifest | None, identity: str, seen: Sighting | None, now: float) -> Decision:
    """What a candidate does with the lease as read."""
    if lease is None:
        return "create"
    spec = lease.get("spec") or {}
    holder = spec.get("holderIdentity")
    if holder == identity:
        return "renew"
    if not holder:
        return "take"
    stated = float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)
    duration = min(MAX_RIVAL_SECONDS, max(LEASE_SECONDS, stated))
    if seen is None or seen.version != lease["metadata"]["resourceVersion"]:
        return "wait"
    return "take" if now - seen.at >= duration else "wait"


class Election:
    """Takes part in the election for the lease `namespace/name`."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._seen: Sighting | None = None
        self._lease: Manifest | None = None
        self._has_rival = False
        """Another holder had the lease when it was last read."""

    async def acquire(self) -> None:
        """Returns when we lead."""
        while not await self._try():  # noqa: ASYNC110 - the lease is polled, nobody here can signal it
            await asyncio.sleep(RETRY_SECONDS)
        LEADER.set(1)
        logger.info("%s leads", self._identity)

    async def hold(self) -> None:
        """Renews the lease; returns when it is lost, after which we must not act any more."""
        end = self._clock() + RENEW_DEADLINE_SECONDS
        while self._clock() < end:
            await asyncio.sleep(RETRY_SECONDS)
            begin = self._clock()
            try:
                async with asyncio.timeout(end - begin):
                    kept = await self._renew()
            except TimeoutError:
                break
            if self._has_rival:
                break
            if kept:
                # A rival may take the lease `LEASE_SECONDS` after it was stored, which was after `begin`.
                end = min(self._clock() + RENEW_DEADLINE_SECONDS, begin + LEASE_SECONDS - MARGIN_SECONDS)
        LEADER.set(0)
        logger.error("%s has lost the lease", self._identity)

    async def release(self) -> None:
        """Lets a successor start at once."""
        LEADER.set(0)
        lease = self._lease
        if lease is None:
            return
        lease["spec"]["holderIdentity"] = ""
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                await self._cluster.replace(lease)
        except (ApiError, TimeoutError) as error:
            logger.warning("lease not released: %s", error)
        self._lease = None

    async def _renew(self) -> bool:
        """Replace the lease as it was after the last renewal; read it only if somebody has changed it since."""
        if self._lease is not None:
            try:
                self._lease = await self._cluster.replace(self._manifest(self._lease))
            except ApiError as error:
                if error.status not in (404, 409):
                    logger.warning("lease %s: %s", self._name, error)
                    return False
            else:
                return True
        return await self._try()

    async def _try(self) -> bool:
        try:
            lease = await self._cluster.get("Lease", self._namespace, self._name)
            decision = decide(lease, self._identity, self._seen, self._clock())
            self._has_rival = decision == "wait"
            if decision == "create":
                self._lease = await self._create()
            elif decision == "wait":
                assert lease is not None
                version = lease["metadata"]["resourceVersion"]
                if self._seen is None or self._seen.version != version:
                    self._seen = Sighting(version, self._clock())
                return False
            else:
                self._lease = await self._cluster.replace(self._manifest(lease))
        except ApiError as error:
            level = logging.DEBUG if error.status == 409 else logging.WARNING
            logger.log(level, "lease %s: %s", self._name, error)
            return False
        return True

    async def _create(self) -> Manifest:
        """Make the lease. The chart makes it, and gives no right to do so. Raises ApiError."""
        try:
            return await self._cluster.create(self._manifest(None))
        except ApiError as error:
            if error.status != 403:
                raise
            text = f"it does not exist, and the operator may not make it. Run `helm upgrade`, which makes it ({error})"
            raise ApiError(error.status, error.reason, text) from None

    def _manifest(self, lease: Manifest | None) -> Manifest:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: dict[str, Any] = dict((lease or {}).get("spec") or {})
        if spec.get("holderIdentity") != self._identity:
            spec["acquireTime"] = now
            transitions = int(spec.get("leaseTransitions") or 0) + (lease is not None)
            spec["leaseTransitions"] = min(MAX_TRANSITIONS, transitions)
        spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if lease is not None:
            # A replacement: whoever made the lease keeps its labels on it.
            kept = ("resourceVersion", "labels", "annotations")
            metadata |= {key: lease["metadata"][key] for key in kept if key in lease["metadata"]}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
