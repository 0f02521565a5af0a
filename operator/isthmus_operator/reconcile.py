"""The reconciler: one worker per namespace, which turns the watched objects into the desired state.

Level-based. Every trigger of a namespace (a changed resource, Secret, child or pod, a new observation of
a router, the periodic resync) only says "look again"; triggers that come while it looks are one trigger.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from . import events, metrics
from .apply import REFUSED_SECONDS, Applier, Identity, Outcome, controller, owned
from .cluster import ApiError, Cluster, Manifest
from .facts import connector_block, router_facts
from .model import NamespaceModel
from .names import base_name
from .observe import Observer, Target
from .render import Rendered, RenderSettings, render
from .resources import API_VERSION, Router
from .status import (
    PodView,
    RouterFacts,
    connector_status,
    invalid_status,
    normal,
    readiness,
    router_status,
)
from .store import Store
from .sync import ConfigSync

logger = logging.getLogger(__name__)

COALESCE_SECONDS = 0.1
"""Events come in bursts; one look after the burst does."""
RESYNC_SECONDS = 120.0
"""Heals a lost event."""
FIRST_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0
SYNC_CHECK_SECONDS = 2.0
STUCK_SECONDS = 300.0


@dataclass
class _Worker:
    wanted: asyncio.Event
    task: asyncio.Task[None] | None = None
    busy_since: float | None = None
    failures: int = 0


@dataclass(frozen=True)
class _Rendering:
    """What was rendered for a namespace, kept for as long as `version` of its inputs is the same."""

    version: frozenset[tuple[str, ...]]
    model: NamespaceModel
    rendered: Rendered
    desired: Mapping[str, list[Manifest]]
    """Router to its objects, complete with owner and hash."""


@dataclass(frozen=True)
class _Written:
    """A status that we wrote, to tell our own write from a stale cache."""

    resource_version: int
    status: dict[str, Any]


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._version = version
        self._instance = instance
        self._clock = clock
        self._store: Store | None = None
        self._applier = Applier(cluster, clock)
        self._problems: dict[tuple[str, str], list[str]] = {}
        self._sync: dict[str, ConfigSync] = {}
        self._readiness: dict[str, Counter[tuple[str, str]]] = {}
        self._observer = Observer(self.trigger, interval=poll_interval)
        self._workers: dict[str, _Worker] = {}
        self._renderings: dict[str, _Rendering] = {}
        metrics.PENDING.set_function(lambda: sum(item.wanted.is_set() for item in self._workers.values()))
        self._written: dict[str, _Written] = {}

    # -- life

    def use(self, store: Store) -> None:
        """Gives the reconciler its view of the cluster; before that, triggers only queue."""
        self._store = store

    @property
    def store(self) -> Store | None:
        return self._store

    def nudge(self, namespace: str) -> None:
        """Asks for a look at `namespace` if there is anything of ours in it."""
        if namespace in self._workers or self._used(namespace):
            self.trigger(namespace)

    def trigger(self, namespace: str) -> None:
        """Asks for a look at `namespace`."""
        worker = self._workers.get(namespace)
        if worker is None:
            worker = self._workers[namespace] = _Worker(asyncio.Event())
            worker.task = asyncio.create_task(self._work(namespace, worker), name=f"reconcile {namespace}")
        worker.wanted.set()

    def stuck(self) -> str | None:
        """What is wrong when a reconciliation has not come back for long."""
        for namespace, worker in self._workers.items():
            if worker.task is not None and worker.task.done():
                return f"the worker of namespace {namespace} has ended"
            if worker.busy_since is not None and self._clock() - worker.busy_since > STUCK_SECONDS:
                return f"reconciliation of namespace {namespace} is stuck"
        return None

    async def close(self) -> None:
        tasks = [worker.task for worker in self._workers.values() if worker.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._observer.close()

    async def _work(self, namespace: str, worker: _Worker) -> None:
        pause = 0.0
        while True:
            try:
                async with asyncio.timeout(pause or RESYNC_SECONDS * random.uniform(0.9, 1.1)):
                    await worker.wanted.wait()
                await asyncio.sleep(COALESCE_SECONDS)
            except TimeoutError:
                pass
            worker.wanted.clear()
            worker.busy_since = self._clock()
            pause = await self._attempt(namespace, worker)
            worker.busy_since = None
            if not self._used(namespace) and not worker.wanted.is_set():
                self._forget(namespace)
                return

    def _used(self, namespace: str) -> bool:
        return self._store is None or namespace in self._store.namespaces()

    def _forget(self, namespace: str) -> None:
        self._workers.pop(namespace, None)
        self._sync.pop(namespace, None)
        self._renderings.pop(namespace, None)
        self._readiness.pop(namespace, None)
        self._publish()

    async def _attempt(self, namespace: str, worker: _Worker) -> float:
        """One look, timed and counted. Returns after how many seconds to look again, 0 for no hurry."""
        started = self._clock()
        try:
            pause = await self._reconcile(namespace)
            retry = pause < 0
        except ApiError as error:
            logger.warning("reconciliation of %s: %s", namespace, error)
            pause, retry = 0.0, True
        except Exception:
            logger.exception("reconciliation of %s failed", namespace)
            pause, retry = 0.0, True
        metrics.RECONCILE_SECONDS.observe(self._clock() - started)
        metrics.RECONCILIATIONS.labels("retry" if retry else "ok").inc()
        if not retry:
            worker.failures = 0
            return pause
        worker.failures += 1
        limit: float = min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(worker.failures - 1, 10))
        return limit * random.uniform(0.5, 1.0)

    # -- one look

    async def _reconcile(self, namespace: str) -> float:
        """Returns the pause until the next look; negative when something must be tried again."""
        if self._store is None:
            return 0.0
        rendering = self._render(namespace, self._store)
        model, rendered = rendering.model, rendering.rendered
        live = self._store.live(namespace)
        outcomes = await self._converge(namespace, rendering, live)
        pods = self._store.pod_views(namespace)
        self._observe(namespace, model.routers, pods)
        observations = self._observer.observations(namespace)
        children, by_router = _by_owner(live), _by_router(pods)
        facts = {
            router.name: router_facts(
                router,
                rendered,
                outcome=outcomes.get(router.name),
                children=children.get(router.metadata.uid, ()),
                pods=by_router.get(base_name(router.name), ()),
                observations=observations,
            )
            for router in model.routers.values()
        }
        for name, item in facts.items():
            if item.lacks_pods and item.workload is not None and item.workload["kind"] == "StatefulSet":
                failure = await events.creation_failure(self._cluster, item.workload)
                facts[name] = replace(item, creation_failure=failure)
        late = await self._deliver(namespace, facts, pods)
        await self._report(namespace, model, rendered, facts)
        problems = [problem for outcome in outcomes.values() for problem in outcome.problems]
        if any(problem.transient for problem in problems):
            return -1.0
        if late:
            return SYNC_CHECK_SECONDS
        return REFUSED_SECONDS if problems else 0.0

    def _render(self, namespace: str, store: Store) -> _Rendering:
        """Most looks are about pods and observations, and render nothing anew."""
        version = store.version(namespace)
        known = self._renderings.get(namespace)
        if known is not None and known.version == version:
            return known
        model = store.model(namespace)
        rendered = render(model, self._settings)
        desired = {
            name: [owned(manifest, item.router) for manifest in item.objects]
            for name, item in rendered.routers.items()
        }
        known = self._renderings[namespace] = _Rendering(version, model, rendered, desired)
        return known

    async def _converge(
        self, namespace: str, rendering: _Rendering, live: Mapping[Identity, Manifest]
    ) -> dict[str, Outcome]:
        routers = rendering.rendered.routers
        names = [name for name, item in routers.items() if not item.router.metadata.paused]
        outcomes = await asyncio.gather(
            *(self._applier.converge(routers[name].router, rendering.desired[name], live) for name in names)
        )
        for name, outcome in zip(names, outcomes, strict=True):
            for action, done in (("apply", outcome.applied), ("delete", outcome.deleted)):
                for kind, object_name in done:
                    metrics.WRITES.labels(kind, action).inc()
                    logger.info("router %s: %s %s %s", name, action, kind, object_name)
            messages = [problem.message for problem in outcome.problems]
            if messages != self._problems.get((namespace, name), []):
                self._problems[namespace, name] = messages
                for message in messages:
                    logger.warning("router %s: %s", name, message)
        return dict(zip(names, outcomes, strict=True))

    def _observe(self, namespace: str, routers: Mapping[str, Router], pods: list[PodView]) -> None:
        ports = {base_name(router.name): router.spec.health_port for router in routers.values()}
        targets = {
            pod.name: Target(pod.uid, f"http://{_host(pod.ip)}:{ports[pod.router]}/status")
            for pod in pods
            if pod.running and pod.ip and not pod.deleting and pod.router in ports
        }
        self._observer.watch(namespace, targets)

    async def _deliver(self, namespace: str, facts: Mapping[str, RouterFacts], pods: list[PodView]) -> bool:
        """Touches the pods whose kubelet should fetch the configuration now."""
        sync = self._sync.setdefault(namespace, ConfigSync(self._clock))
        sync.forget(pods)
        for item in facts.values():
            if item.router.metadata.paused:
                continue
            for pod, marks in list(sync.touches(item)):
                patch = {"metadata": {"annotations": dict(marks), "uid": pod.uid}}
                try:
                    await self._cluster.merge("Pod", namespace, pod.name, patch)
                except ApiError as error:
                    if error.status not in {404, 409}:
                        raise
        return any(sync.waiting(item) for item in facts.values())

    # -- status

    async def _report(
        self,
        namespace: str,
        model: NamespaceModel,
        rendered: Rendered,
        facts: Mapping[str, RouterFacts],
    ) -> None:
        assert self._store is not None
        manifests = {
            (item["kind"], item["metadata"]["name"]): item for item in self._store.resources(namespace)
        }
        unheard = _unheard(model, facts)
        now = _timestamp()
        statuses: list[tuple[Manifest, dict[str, Any]]] = []
        for invalid in model.invalid:
            manifest = manifests[invalid.kind, invalid.name]
            statuses.append(
                (manifest, invalid_status(manifest, invalid.message, self._status(manifest), now))
            )
        for name, item in facts.items():
            manifest = manifests["Router", name]
            statuses.append((manifest, router_status(item, self._status(manifest), self._version, now)))
        for name, connector in model.connectors.items():
            manifest = manifests["Connector", name]
            status = connector_status(
                connector,
                connector_block(connector, rendered),
                facts.get(connector.spec.from_.router_ref.name),
                self._status(manifest),
                now,
            )
            statuses.append((manifest, status))
        await asyncio.gather(
            *(
                self._write_status(manifest, status)
                for manifest, status in statuses
                if (manifest["kind"], manifest["metadata"]["name"]) not in unheard
                or not self._status(manifest)
            )
        )
        self._readiness[namespace] = Counter(
            (manifest["kind"], readiness(status)) for manifest, status in statuses
        )
        self._publish()

    def _publish(self) -> None:
        totals = sum(self._readiness.values(), Counter())
        for kind in ("Router", "Connector"):
            for ready in ("True", "False", "Unknown"):
                metrics.OBJECTS.labels(kind, ready).set(totals[kind, ready])

    def _status(self, manifest: Manifest) -> dict[str, Any]:
        """The status as last written by us, unless the cache is newer."""
        written = self._written.get(manifest["metadata"]["uid"])
        if written is not None and written.resource_version > _version(manifest):
            return written.status
        status: dict[str, Any] = manifest.get("status") or {}
        return status

    async def _write_status(self, manifest: Manifest, status: dict[str, Any]) -> None:
        before = self._status(manifest)
        if normal(before) == normal(status):
            return
        metadata = manifest["metadata"]
        body = {
            "apiVersion": API_VERSION,
            "kind": manifest["kind"],
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "status": status,
        }
        try:
            answer = await self._cluster.apply(body, subresource="status")
        except ApiError as error:
            if error.status in {404, 409}:
                return  # deleted or replaced meanwhile; its event triggers the next look
            raise
        self._written[metadata["uid"]] = _Written(_version(answer), answer.get("status") or {})
        for note in events.transitions(before, status):
            logger.info("%s %s: %s: %s", manifest["kind"], metadata["name"], note.reason, note.text)
            await events.post(self._cluster, manifest, note, _timestamp(micro=True), self._instance)


def _unheard(model: NamespaceModel, facts: Mapping[str, RouterFacts]) -> set[tuple[str, str]]:
    """Resources about which a router has yet to be asked for the first time. Their status stays as it is
    for that moment: a new operator process must not report as lost what it has not looked at."""
    routers = {name for name, item in facts.items() if item.unheard}
    found = {("Router", name) for name in routers}
    return found | {
        ("Connector", name)
        for name, connector in model.connectors.items()
        if connector.spec.from_.router_ref.name in routers
    }


def _by_owner(live: Mapping[Identity, Manifest]) -> dict[str, list[Manifest]]:
    """Objects by the uid of their controller."""
    found: dict[str, list[Manifest]] = {}
    for manifest in live.values():
        owner = controller(manifest)
        if owner is not None:
            found.setdefault(str(owner.get("uid")), []).append(manifest)
    return found


def _by_router(pods: Sequence[PodView]) -> dict[str, list[PodView]]:
    """Pods by the base name of their Router."""
    found: dict[str, list[PodView]] = {}
    for pod in pods:
        found.setdefault(pod.router, []).append(pod)
    return found


def _host(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip


def _version(manifest: Mapping[str, Any]) -> int:
    try:
        return int(manifest["metadata"].get("resourceVersion", 0))
    except ValueError:
        return 0


def _timestamp(*, micro: bool = False) -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
