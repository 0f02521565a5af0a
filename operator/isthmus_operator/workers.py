"""When to look at which namespace: one worker per namespace that has resources of ours.

Every trigger (a changed resource, Secret, child or pod, a new observation of a router, the periodic
resync) only says "look again"; triggers that come while a worker looks are one trigger.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from . import metrics
from .cluster import ApiError, Cluster
from .fetch import MAX_ANSWER_BYTES
from .holds import FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS
from .observe import Observer
from .publishing import Publisher, Series
from .reconcile import Operator, Reconciliation
from .render import RenderSettings
from .room import DEFAULT_MEMORY_BYTES, Room
from .rotation.ledger import Ledger
from .slots import waits_for_thread
from .store import Store

logger = logging.getLogger(__name__)

COALESCE_SECONDS = 0.1
"""Events come in bursts; one look after the burst does."""
RESYNC_SECONDS = 120.0
"""Heals a lost event."""
STUCK_SECONDS = 300.0
"""A look that takes so long, and in which no request to the API server has ended for so long, does not come back. One
at a namespace with thousands of resources has thousands of requests to make, and others are served meanwhile."""


@dataclass
class _Worker:
    reconciliation: Reconciliation
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    busy_since: float | None = None
    failures: int = 0


class Reconciler:
    """Reconciles all namespaces. `settings` is what the installation says about all Routers."""

    def __init__(
        self,
        cluster: Cluster,
        settings: RenderSettings,
        *,
        version: str,
        instance: str,
        poll_interval: float = 3.0,
        poll_max_bytes: int = MAX_ANSWER_BYTES,
        memory: int = DEFAULT_MEMORY_BYTES,
        ahead: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observer = Observer(self.trigger, interval=poll_interval, max_bytes=poll_max_bytes)
        self._operator = Operator(
            cluster, settings, self._observer, version, instance, clock, Room(memory, clock), ahead
        )
        self._store: Store | None = None
        self._workers: dict[str, _Worker] = {}
        self._publisher = Publisher()
        metrics.PENDING.set_function(lambda: sum(item.wanted.is_set() for item in self._workers.values()))

    def use(self, store: Store) -> None:
        """Gives the reconciler its view of the cluster; nothing is triggered before."""
        self._store = store

    @property
    def store(self) -> Store | None:
        return self._store

    def attends(self, namespace: str) -> bool:
        """Return whether `namespace` is reconciled: it has a worker, which ends with the last resource."""
        return namespace in self._workers

    def nudge(self, namespace: str) -> None:
        """Asks for a look at `namespace` if there is anything of ours in it."""
        if namespace in self._workers or self._used(namespace):
            self.trigger(namespace)

    def trigger(self, namespace: str) -> None:
        """Asks for a look at `namespace`."""
        worker = self._workers.get(namespace)
        if worker is None:
            worker = self._workers[namespace] = _Worker(Reconciliation(namespace, self._operator))
            worker.task = asyncio.create_task(self._work(namespace, worker), name=f"reconcile {namespace}")
        worker.wanted.set()

    def stuck(self) -> str | None:
        """What is wrong when a reconciliation has not got on for long."""
        for namespace, worker in self._workers.items():
            if worker.task is not None and worker.task.done():
                return f"the worker of namespace {namespace} has ended"
            busy = worker.busy_since
            if busy is None:
                continue
            if self._operator.room.is_waiting(namespace):
                continue
            cluster = self._operator.cluster
            ends = [cluster.last_end(namespace), self._operator.room.admitted(namespace)]
            if cluster.is_waiting(namespace) or waits_for_thread(
                namespace
            ):  # others have their turns meanwhile
                ends.append(cluster.last_end_of_any)
            alive = max(busy, *(end or busy for end in ends))
            if self._operator.clock() - alive > STUCK_SECONDS:
                return f"reconciliation of namespace {namespace} is stuck"
        return None

    async def close(self) -> None:
        tasks = [worker.task for worker in self._workers.values() if worker.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._observer.close()

    def _used(self, namespace: str) -> bool:
        return self._store is not None and self._store.has_resources(namespace)

    async def _work(self, namespace: str, worker: _Worker) -> None:
        pause = 0.0
        while True:
            try:
                async with asyncio.timeout(until_next(pause)):
                    await worker.wanted.wait()
                # After a failure the events that it has caused itself must not make a storm.
                await asyncio.sleep(FIRST_RETRY_SECONDS if worker.failures else COALESCE_SECONDS)
            except TimeoutError:
                pass
            worker.wanted.clear()
            worker.busy_since = self._operator.clock()
            pause = await self._attempt(namespace, worker)
            worker.busy_since = None
            ended = not self._used(namespace) and not worker.wanted.is_set()
            if ended:
                del self._workers[namespace]
                self._operator.cluster.forget(namespace)
                self._operator.room.forget(namespace)
                self._publisher.forget(namespace)
                return
            reconciliation = worker.reconciliation
            self._publisher.publish(namespace, reconciliation.readiness, _series(namespace, reconciliation))

    async def _attempt(self, namespace: str, worker: _Worker) -> float:
        """One look, timed and counted. Returns after how many seconds to look again, 0 for no hurry."""
        assert self._store is not None
        started = self._operator.clock()
        self._operator.cluster.begin(namespace)
        pause = None
        try:
            pause = await worker.reconciliation.look(self._store)
        except ApiError as error:
            logger.warning("reconciliation of %s: %s", namespace, error)
        except Exception:
            logger.exception("reconciliation of %s failed", namespace)
        metrics.RECONCILE_SECONDS.observe(self._operator.clock() - started)
        metrics.RECONCILIATIONS.labels("retry" if pause is None else "ok").inc()
        if pause is not None:
            worker.failures = 0
            return pause
        worker.failures += 1
        limit = FIRST_RETRY_SECONDS * 2.0 ** min(worker.failures - 1, 10)
        return min(MAX_RETRY_SECONDS, limit) * random.uniform(0.5, 1.0)


def until_next(pause: float) -> float:
    """How long to wait for a trigger, in seconds; `pause` is what a look has asked for, 0 for no hurry."""
    resync = RESYNC_SECONDS * random.uniform(0.9, 1.1)
    return min(pause or resync, resync)


def _series(namespace: str, reconciliation: Reconciliation) -> dict[Series, float]:
    """The metrics of the certificates of a namespace."""
    found: dict[Series, float] = {
        (metrics.CERTIFICATE_EXPIRY, (namespace, router, secret)): moment.timestamp()
        for (router, secret), moment in reconciliation.expiries.items()
    }
    for name, facts in reconciliation.profiles.items():
        found |= profile_series(namespace, name, facts.ledger)
    return found


def profile_series(namespace: str, name: str, ledger: Ledger | None) -> dict[Series, float]:
    """The metrics of one SslProfile."""
    if ledger is None:
        return {}
    current, labels = ledger.current, (namespace, name)
    found: dict[Series, float] = {
        (metrics.PROFILE_ORDINAL, labels): ledger.ordinal,
        (metrics.PROFILE_OLDEST, labels): ledger.oldest_valid,
    }
    if current.not_after is not None:
        found[metrics.PROFILE_EXPIRY, labels] = current.not_after.timestamp()
    if ledger.revocations_expiry is not None:
        found[metrics.PROFILE_REVOCATIONS_EXPIRY, labels] = ledger.revocations_expiry.timestamp()
    if current.settled is None:
        found[metrics.PROFILE_ROTATING, labels] = current.since.timestamp()
    return found
