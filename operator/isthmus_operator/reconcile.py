"""One look at a namespace: from the watched objects to the desired state and a true status.

Level-based: nothing here depends on what has changed. `workers.py` decides when to look.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from . import events, metrics, specs
from .apply import Applier, Identity, Outcome, by_controller, controllers, version_of
from .authority.keeper import AuthorityKeeper
from .cluster import ApiError, Cluster, Manifest
from .contents import Contents
from .contests import Contests
from .creations import CreationFailures
from .dampening import MAX_PAUSE_SECONDS, Dampening
from .facts import WORKLOADS, block, complaint, router_facts, status_of_link_route, status_of_relay_site
from .flow_facts import FlowFacts, claims_beside, flow_facts, targets
from .gossip_facts import GossipFacts, gossip_facts
from .holds import REFUSED_SECONDS, Holds
from .kubelet import ConfigSync, Receiver
from .model import NamespaceModel, Problem
from .names import base_name
from .observe import Observer, Target
from .pieces import gathered, paced, results
from .render import LargeError, RenderSettings
from .rendering import Rendering
from .resources import API_VERSION
from .room import SMALL_BYTES, Room
from .rotation.announcer import RotationAnnouncer
from .rotation.keeper import Keeper
from .slots import in_thread
from .spec_texts import completed
from .status import (
    CertificateUser,
    PodView,
    ProfileFacts,
    RouterFacts,
    Users,
    altered,
    connector_status,
    deleting_status,
    invalid_status,
    is_under_way,
    next_change,
    normal,
    readiness,
    router_status,
    sslprofile_status,
    usage,
    without,
)
from .store import Store
from .stored import status_fields, stored_status
from .untrusted import MAX_TEXT, clean, shown

logger = logging.getLogger(__name__)

GROWTH_PERCENT = 25
"""A rendering may take so much more memory than the last one."""
AT_ONCE_SECONDS = 0.1
SYNC_CHECK_SECONDS = 2.0
LASTING_PAUSE_SECONDS = 8.0
"""Pause after which a refused status of a large resource is written without messages and lists. A failure of the API
server that passes ends before that."""
MAX_STATUS_PAUSE_SECONDS = 240.0
"""Longest time for which a status is not written that somebody else changes again and again."""
LATE_SECONDS = 300.0
"""For which a status that was written counts although the watched one is older. After a restore of etcd, the older one
is stored, and no later one comes."""
RENDERING_SECONDS = 60.0
"""A rendering is good for this long when nothing changes: certificates expire."""


@dataclass(frozen=True)
class Operator:
    """What all namespaces share."""

    cluster: Cluster
    settings: RenderSettings
    observer: Observer
    version: str
    """Of the operator."""
    instance: str
    """Name of this process, for Events."""
    clock: Callable[[], float]
    """Monotonic, in seconds."""
    room: Room = field(default_factory=Room)
    """For large renderings."""
    ahead: Callable[[], float] = lambda: 0.0
    """Returns by how many seconds the clock of this process is ahead of that of the API server."""


@dataclass(frozen=True)
class _Written:
    """A status that we wrote, to tell our own write from a stale cache."""

    resource_version: int
    status: dict[str, Any]
    at: float
    """By the clock of the operator."""


@dataclass(frozen=True)
class _Altered:
    """A status that the API server has stored with other values than the operator had written, as an admission policy
    or an earlier schema makes it do."""

    asked: Any
    """The status that was written, for comparison."""
    stored: dict[str, Any]
    difference: Any
    """The values that are stored in place of the written ones."""


class Reconciliation:
    """The reconciliation of one namespace, and what it remembers between two looks."""

    def __init__(self, namespace: str, operator: Operator) -> None:
        self._namespace = namespace
        self._operator = operator
        self._applier = Applier(operator.cluster, operator.clock)
        self._sync = ConfigSync(operator.clock)
        self._authority = AuthorityKeeper(namespace, operator.cluster, operator.ahead, operator.clock)
        self._authority_problem: Problem | None = None
        self._keeper = Keeper(namespace, operator.cluster, operator.clock)
        self._contents = Contents(namespace, operator.cluster)
        self._rendering: Rendering | None = None
        """What was rendered last. None: others needed the memory."""
        self._needed = 0
        """Bytes of memory that the last rendering took, or an estimate for the next one."""
        self.expiries: Mapping[tuple[str, str], datetime] = {}
        """Router and Secret to the end of validity of the certificate in use."""
        self._written: dict[str, _Written] = {}
        self._altered: dict[str, _Altered] = {}
        """By uid: the last written status that was stored otherwise. It counts as settled."""
        self._refused = Holds(operator.clock)
        """Statuses that the API server has refused, by uid."""
        self._contests = Contests(operator.clock, MAX_STATUS_PAUSE_SECONDS)
        """Statuses that somebody else changes, by uid."""
        self._dampening = Dampening(operator.clock)
        """Statuses that change again and again."""
        self._failed: dict[str, str] = {}
        """By uid: the error that keeps a status from being computed."""
        self._problems: dict[str, list[str]] = {}
        self._renewals: Mapping[tuple[str, str], list[Problem]] = {}
        """By kind and name of a resource, why it gets no certificate of the namespace's own authority."""
        self._gossip: Mapping[str, GossipFacts] = {}
        self._flows = FlowFacts()
        self._creations = CreationFailures(namespace, operator.cluster, operator.clock)
        self._announcer = events.Announcer()
        self._allowance = events.Allowance(operator.clock())
        self._rotations = RotationAnnouncer()
        self.readiness: Counter[tuple[str, str]] = Counter()
        """Number of resources by kind and status of `Ready`."""

    @property
    def profiles(self) -> Mapping[str, ProfileFacts]:
        """What is known of the SslProfiles, by name."""
        return self._keeper.facts

    async def look(self, store: Store) -> float | None:
        """One look. Returns after how many seconds the next one is due, 0 for no hurry, None when
        something that failed should be tried again. Raises ApiError."""
        self._operator.room.use(self._namespace)
        try:
            return await self._look(store)
        finally:
            self._operator.room.leave(self._namespace)

    def _drop(self) -> None:
        """Forgets what was rendered, and the resources and Secrets of which it was rendered."""
        self._rendering = None
        self._contents.release()
        self._keeper.release()
        self._gossip, self._flows = {}, FlowFacts()

    async def _look(self, store: Store) -> float | None:
        live, began = self._applier.current(store.live(self._namespace)), self._operator.clock()
        rendering, live = await self._render(store, live)
        model, rendered = rendering.model, rendering.rendered
        outcomes = await self._converge(rendering, live)
        live = self._applier.answered(live)
        pods = store.pod_views(self._namespace)
        children = await in_thread(self._namespace, by_controller, live.values())
        all_pods = store.pods_of(self._namespace)
        by_router = _by_router(model, pods, children)
        gossip = gossip_facts(model, children, all_pods)
        self._observe(model, by_router, all_pods, gossip)
        observations = self._operator.observer.observations(self._namespace)
        facts = await in_thread(
            self._namespace,
            lambda: {
                router.name: router_facts(
                    router,
                    rendered,
                    outcome=outcomes.get(("Router", router.name)),
                    children=children.get(router.metadata.uid, ()),
                    pods=by_router.get(router.name, ()),
                    observations=observations,
                )
                for router in model.routers.values()
            },
        )
        flows = await in_thread(self._namespace, flow_facts, model, live, all_pods, outcomes, observations)
        failures = await self._creation_failures(facts, gossip, flows)
        self._flows = flows.explained(failures)
        self._gossip = {
            name: replace(
                item,
                outcome=outcomes.get(("GossipRouter", name), Outcome()),
                observations=observations,
                creation_failure=failures.get(item.workload_uid, ""),
            )
            for name, item in gossip.items()
        }
        others = [item.certificate_user(rendered) for item in self._gossip.values()]
        others += self._flows.certificate_users(model, rendered)
        late = await self._deliver(facts.values(), others, pods)
        moved = await self._retire(facts, rendering.users, others)
        await self._report(store, rendering, facts)
        problems = [problem for outcome in outcomes.values() for problem in outcome.problems]
        problems += [item.problem for item in self.profiles.values() if item.problem is not None]
        problems += [self._authority_problem] if self._authority_problem is not None else []
        if any(problem.transient for problem in problems):
            return None
        waits = [
            AT_ONCE_SECONDS if moved else None,
            SYNC_CHECK_SECONDS if late else None,
            await in_thread(self._namespace, self._due),
            REFUSED_SECONDS if problems or self._refused or self._failed else None,
            self._applier.due(began),
            self._refused.due(began),
            self._contests.due(began),
            self._dampening.due(began),
            self._announcer.due(self._operator.clock()),
            self._creations.due(),
        ]
        return min((wait for wait in waits if wait is not None), default=0.0)

    async def _render(
        self, store: Store, live: dict[Identity, Manifest]
    ) -> tuple[Rendering, dict[Identity, Manifest]]:
        """The rendering, and the live objects, which are newer than `live` if this has waited for room. Most looks are
        about pods and observations, and render nothing."""
        version = store.version(self._namespace)
        known = self._rendering
        now = self._operator.clock()
        if known is not None and (
            known.version != version
            or now - known.at >= RENDERING_SECONDS
            or (known.until is not None and datetime.now(UTC) > known.until)
        ):
            known = None
        if known is not None:
            served = await self._served(known.model, store, live)
            if (known.model.ledgers, known.model.refused_ledgers) == (served.ledgers, served.refused_ledgers):
                return known, live
            del served
        del known
        while True:
            try:
                return await self._render_in_room(store)
            except LargeError as error:
                self._needed = error.size

    async def _render_in_room(self, store: Store) -> tuple[Rendering, dict[Identity, Manifest]]:
        """The same as `_render`, when there is room. Raises LargeError if it needs more than expected."""
        needed = max(self._needed, specs.needed(store.resources(self._namespace)))
        await self._operator.room.enter(self._namespace, needed, self._drop)
        version, now = store.version(self._namespace), self._operator.clock()
        live = self._applier.current(store.live(self._namespace))
        most = max(SMALL_BYTES, needed + needed * GROWTH_PERCENT // 100)
        model = await self._served(await self._model(store, live, most), store, live, most)
        make = partial(Rendering.of, version, now, model, self._operator.settings, most)
        made = self._rendering = await in_thread(self._namespace, make)
        self.expiries = dict(made.rendered.plan.expiries)
        self._needed = made.rendered.bytes
        self._operator.room.rendered(self._namespace, self._needed, self._drop)
        return made, live

    async def _served(
        self,
        model: NamespaceModel,
        store: Store,
        live: Mapping[Identity, Manifest],
        most: int | None = None,
    ) -> NamespaceModel:
        """`model` with the certificates in service now. Raises LargeError if they take more than `most` bytes of
        memory, if stated."""
        resources = store.resources(self._namespace)
        ledgers = await self._keeper.adopt(model, live, resources, datetime.now(UTC), most)
        refused = {
            name: item.problem
            for name, item in self.profiles.items()
            if item.problem is not None and not item.problem.transient
        }
        self._renewals = _renewals(model, self.profiles)
        return model.serving(ledgers, refused)

    async def _model(self, store: Store, live: Mapping[Identity, Manifest], most: int) -> NamespaceModel:
        """What the rendering starts from. Raises LargeError if the Secrets take more than `most` bytes of memory."""
        moment = datetime.now(UTC)
        inputs = store.inputs(self._namespace)
        inputs = replace(inputs, resources=await completed(self._operator.cluster, inputs.resources))
        inputs = await self._contents.complete(inputs, most)
        model = await in_thread(self._namespace, lambda: inputs.model(moment).beside(controllers(live)))
        if not model.routers and not model.gossip_routers:
            self._authority_problem = None
            return model
        found = await self._authority.ensure(moment)
        if found.problem is not None and found.problem != self._authority_problem:
            logger.warning("%s", found.problem.message)
        self._authority_problem = found.problem
        return model.with_authority(
            found.authority, found.problem.message if found.problem is not None else ""
        )

    async def _retire(
        self, facts: Mapping[str, RouterFacts], users: Users, others: Sequence[CertificateUser]
    ) -> bool:
        """Goes on with the rotations from what pods use; says whether there is more to do at once."""
        before = {name: item.ledger for name, item in self.profiles.items()}
        usages = await in_thread(
            self._namespace,
            lambda: {
                name: usage(name, ledger.ordinal if ledger is not None else 0, facts, users, others)
                for name, ledger in before.items()
            },
        )
        await self._keeper.retire(usages, datetime.now(UTC))
        return any(item.ledger != before[name] for name, item in self.profiles.items())

    def _due(self) -> float | None:
        """In how many seconds something will be to do about an SslProfile, or a certificate expires."""
        now = datetime.now(UTC)
        dues = [when for item in self.profiles.values() for when in (item.due, next_change(item, now))]
        dues.append(self._rendering.until if self._rendering is not None else None)
        moments = [when for when in dues if when is not None]
        return max(AT_ONCE_SECONDS, (min(moments) - now).total_seconds()) if moments else None

    async def _converge(
        self, rendering: Rendering, live: Mapping[Identity, Manifest]
    ) -> dict[tuple[str, str], Outcome]:
        """By kind and name of the resource that has the objects."""
        desired = (item for _, objects in rendering.desired.values() for item in objects)
        await in_thread(self._namespace, self._applier.retain, live, desired)
        wanted = {key: item for key, item in rendering.desired.items() if not item[0].metadata.paused}
        children = await in_thread(self._namespace, by_controller, live.values())
        done = await gathered(
            self._applier.converge(
                owner,
                objects,
                live,
                children.get(owner.metadata.uid, ()),
                claims_beside(owner, rendering.model),
            )
            for owner, objects in wanted.values()
        )
        outcomes = list(results(done))
        for key, outcome in zip(wanted, outcomes, strict=True):
            outcome.problems += self._renewals.get(key, ())
        names = {key: f"{key[0].lower()} {key[1]}" for key in wanted}
        self._problems = {name: self._problems[name] for name in names.values() if name in self._problems}
        async for key, outcome in paced(zip(wanted, outcomes, strict=True)):
            name = names[key]
            for action, written in (("apply", outcome.applied), ("delete", outcome.deleted)):
                for kind, object_name in written:
                    metrics.WRITES.labels(kind, action).inc()
                    logger.info("%s: %s %s %s", name, action, kind, object_name)
            messages = [problem.message for problem in outcome.problems]
            if messages != self._problems.get(name, []):
                self._problems[name] = messages
                for message in messages:
                    logger.warning("%s: %s", name, message)
        return dict(zip(wanted, outcomes, strict=True))

    def _observe(
        self,
        model: NamespaceModel,
        by_router: Mapping[str, Sequence[PodView]],
        all_pods: list[Manifest],
        gossip: Mapping[str, GossipFacts],
    ) -> None:
        routers = {
            pod.name: Target(pod.uid, pod.ip, model.routers[name].spec.health_port)
            for name, pods in by_router.items()
            for pod in pods
            if pod.running and pod.ip and not pod.deleting
        }
        gossips = {pod: item for found in gossip.values() for pod, item in found.targets().items()}
        rotating = any(is_under_way(item.ledger, datetime.now(UTC)) for item in self.profiles.values())
        self._operator.observer.watch(
            self._namespace, {**routers, **gossips, **targets(model, all_pods)}, hurry=rotating
        )

    async def _creation_failures(
        self, facts: dict[str, RouterFacts], gossip: Mapping[str, GossipFacts], flows: FlowFacts
    ) -> Mapping[str, str]:
        """Why pods of StatefulSets and Jobs are not created, by uid; adds to `facts` what is about Routers."""
        lacking = {
            name: str(item.workload["metadata"]["uid"])
            for name, item in facts.items()
            if item.lacks_pods and item.workload is not None and item.workload["kind"] == "StatefulSet"
        }
        others = {item.workload_uid for item in gossip.values() if item.lacks_pods} | flows.jobs_without_pods
        failures = await self._creations.of(frozenset(lacking.values()) | others)
        for name, uid in lacking.items():
            if uid in failures:
                facts[name] = replace(facts[name], creation_failure=failures[uid])
        return failures

    async def _deliver(
        self, routers: Collection[RouterFacts], others: Sequence[CertificateUser], pods: list[PodView]
    ) -> bool:
        """Touches the pods whose kubelet should fetch the configuration now."""
        self._sync.forget(pods)
        receivers: list[Receiver] = [item for item in routers if not item.router.metadata.paused]
        receivers += [item for item in others if not item.resource.metadata.paused]
        async for item in paced(receivers):
            for pod, marks in list(self._sync.touches(item)):
                patch = {"metadata": {"annotations": dict(marks), "uid": pod.uid}}
                try:
                    await self._operator.cluster.merge("Pod", self._namespace, pod.name, patch)
                except ApiError as error:
                    # Without it the kubelet fetches the configuration within about a minute.
                    if error.status not in {404, 409}:
                        logger.warning('Pod "%s" was not annotated: %s', pod.name, error)
        return any(map(self._sync.waiting, routers)) or any(map(self._sync.waiting, others))

    # -- status

    async def _report(self, store: Store, rendering: Rendering, facts: Mapping[str, RouterFacts]) -> None:
        """Writes the statuses that have changed, and posts Events. What was deleted meanwhile is left out. Raises
        ApiError after that if the API server could not be reached."""
        manifests = {
            (item["kind"], item["metadata"]["name"]): item for item in store.resources(self._namespace)
        }
        unheard = await in_thread(self._namespace, _unheard, rendering, facts)
        unheard |= {("FlowLog", name) for name in self._flows.unheard}
        unheard |= {
            ("GossipRouter", name)
            for name, item in self._gossip.items()
            if item.certificate_user(rendering.rendered).unheard
        }
        unheard |= {("SslProfile", name) for name, item in self.profiles.items() if item.usage.unheard}
        heard = []
        async for key, manifest in paced(manifests.items()):
            status = self._status(manifest)
            self._announcer.meet(manifest["metadata"]["uid"], status)
            if key not in unheard or not status:
                heard.append(manifest)
        # What a tenant has created, and what its pods answer, decides how long this takes.
        statuses = await in_thread(self._namespace, self._changed_statuses, heard, rendering, facts)
        written = await gathered(self._write_status(manifest, status) for manifest, status in statuses)
        counts: Counter[tuple[str, str]] = Counter()
        async for manifest in paced(manifests.values()):
            counts[manifest["kind"], readiness(self._status(manifest))] += 1
        self.readiness = counts
        await self._announce(manifests.values())
        await in_thread(self._namespace, self._retain, manifests.values())
        for _ in results(written):  # only now, as it must not keep the others from their Events
            pass

    def _retain(self, manifests: Iterable[Manifest]) -> None:
        """Forgets resources other than these."""
        alive = {manifest["metadata"]["uid"] for manifest in manifests}
        self._announcer.retain(alive)
        self._rotations.retain(alive)
        self._written = {uid: item for uid, item in self._written.items() if uid in alive}
        self._altered = {uid: item for uid, item in self._altered.items() if uid in alive}
        self._refused.retain(alive)
        self._contests.retain(alive)
        self._dampening.retain(alive)
        self._failed = {uid: item for uid, item in self._failed.items() if uid in alive}

    def _changed_statuses(
        self, manifests: Iterable[Manifest], rendering: Rendering, facts: Mapping[str, RouterFacts]
    ) -> list[tuple[Manifest, dict[str, Any]]]:
        """The statuses that are not as they should be, as they should be."""
        changed: list[tuple[Manifest, dict[str, Any]]] = []
        with_pods = {name: item for name, item in facts.items() if item.serving}
        for manifest in manifests:
            status = self._safe_status(manifest, rendering, facts, with_pods)
            if status is None:
                continue
            if self._is_settled(manifest, status):
                self._refused.remove(manifest["metadata"]["uid"])
            else:
                changed.append((manifest, status))
        return changed

    def _is_settled(self, manifest: Manifest, status: dict[str, Any]) -> bool:
        """Whether the resource has `status`, or what the API server has made of it."""
        stored = normal(self._status(manifest))
        if stored == normal(status):
            return True
        known = self._altered.get(manifest["metadata"]["uid"])
        return known is not None and known.stored == stored and known.asked == _content(status)

    def _safe_status(
        self,
        manifest: Manifest,
        rendering: Rendering,
        facts: Mapping[str, RouterFacts],
        with_pods: Mapping[str, RouterFacts],
    ) -> dict[str, Any] | None:
        """The same as `_new_status`, in characters that the API server accepts. An error concerns this resource
        alone."""
        uid = manifest["metadata"]["uid"]
        try:
            status: dict[str, Any] | None = shown(self._new_status(manifest, rendering, facts, with_pods))
        except Exception as error:
            if self._failed.get(uid) != repr(error):
                self._failed[uid] = repr(error)
                logger.exception(
                    "%s %s: its status cannot be computed", manifest["kind"], manifest["metadata"]["name"]
                )
            return None
        self._failed.pop(uid, None)
        return status

    def _new_status(
        self,
        manifest: Manifest,
        rendering: Rendering,
        facts: Mapping[str, RouterFacts],
        with_pods: Mapping[str, RouterFacts],
    ) -> dict[str, Any] | None:
        """The status of a resource as it should be, or None when it came after the rendering. `with_pods` are those of
        `facts` that are about Routers with pods."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        before, now = self._status(manifest), _timestamp()
        if manifest["metadata"].get("deletionTimestamp") is not None:
            return deleting_status(manifest, before, now)
        if (invalid := rendering.invalid.get((kind, name))) is not None:
            return invalid_status(manifest, invalid, before, now)
        if kind == "Router":
            if name not in facts:
                return None
            return router_status(facts[name], before, self._operator.version, now)
        if kind == "SslProfile":
            profile = self.profiles.get(name)
            return sslprofile_status(profile, before, datetime.now(UTC)) if profile is not None else None
        model, rendered = rendering.model, rendering.rendered
        if kind == "LinkRoute" and name in model.link_routes:
            return status_of_link_route(model.link_routes[name], model, rendered, with_pods, before, now)
        if kind == "RelaySite" and name in model.relay_sites:
            return status_of_relay_site(model.relay_sites[name], rendered, facts, before, now)
        if kind == "GossipRouter" and name in self._gossip:
            return self._gossip[name].status(rendered, before, now)
        if kind == "FlowLog" and name in model.flow_logs:
            return self._flows.status_of_log(model.flow_logs[name], rendered, before, now)
        if kind == "FlowAnalysis" and name in model.flow_analyses:
            return self._flows.status_of_analysis(model.flow_analyses[name], rendered, before, now)
        connector = model.connectors.get(name) if kind == "Connector" else None
        if connector is None:
            return None
        source = facts.get(connector.spec.from_.router_ref.name)
        return connector_status(
            connector,
            block(connector, rendered),
            source,
            before,
            now,
            complaint=complaint(connector, rendered),
        )

    def _status(self, manifest: Manifest) -> dict[str, Any]:
        """The status as last written by us, unless the cache is newer, or has been older for long."""
        written = self._written.get(manifest["metadata"]["uid"])
        if (
            written is not None
            and written.resource_version > version_of(manifest)
            and self._operator.clock() < written.at + LATE_SECONDS
        ):
            return written.status
        status: dict[str, Any] = manifest.get("status") or {}
        return status

    async def _write_status(self, manifest: Manifest, status: dict[str, Any]) -> None:
        metadata = manifest["metadata"]
        content = _content(status)
        if self._refused.refusal(metadata["uid"], content) is not None:
            return
        written, version = self._written.get(metadata["uid"]), version_of(manifest)
        if (
            written is not None
            and written.resource_version < version
            and normal(written.status) != normal(manifest.get("status") or {})
        ):
            self._contested(manifest, version)
        before = self._status(manifest)
        if self._contests.holds(metadata["uid"]) or self._dampening.holds(metadata["uid"], before, status):
            return
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
            answer = await self._operator.cluster.apply(body, subresource="status")
        except ApiError as error:
            if error.status == 409:
                return  # replaced meanwhile; its event triggers the next look
            if not error.concerns_object:
                raise
            pause = self._refused.add(metadata["uid"], content, error)
            if error.status == 404:
                return  # deleted meanwhile; without its event, each look would write the status
            what = f"{manifest['kind']} {metadata['name']}"
            logger.warning("%s: its status is refused: %s", what, clean(str(error), MAX_TEXT))
            if pause >= LASTING_PAUSE_SECONDS:
                await self._write_short(body)
            return
        self._refused.remove(metadata["uid"])
        stored = stored_status(manifest["kind"], answer.get("status"))
        self._written[metadata["uid"]] = _Written(version_of(answer), stored, self._operator.clock())
        self._compare(manifest, status, self._written[metadata["uid"]])
        if self._dampening.written(metadata["uid"], before, status, version_of(answer)):
            logger.info(
                "%s %s: its status changes again and again; the operator waits up to %.0f minutes before it writes the "
                "next change, unless a condition does not hold any more",
                *(manifest["kind"], metadata["name"], MAX_PAUSE_SECONDS / 60),
            )

    async def _write_short(self, body: Manifest) -> None:
        """Writes a refused status without messages and lists, so that its conditions are not those of an earlier
        specification. The resource may have no room for more in etcd, or a specification that does not fit its present
        schema. In both cases the API server refuses server-side apply, which adds to `managedFields` and which examines
        the whole resource, and not a merge patch."""
        kind, metadata = body["kind"], body["metadata"]
        short = _shortened(body["status"])
        if normal(self._status(body)) == normal(short):
            return
        patch = {
            "metadata": {"uid": metadata["uid"]},
            "status": {**dict.fromkeys(status_fields(kind)), **short},
        }
        place = metadata["namespace"], metadata["name"]
        try:
            answer = await self._operator.cluster.merge(kind, *place, patch, subresource="status")
        except ApiError as error:
            what = f"{body['kind']} {body['metadata']['name']}"
            logger.warning("%s: its short status is refused as well: %s", what, clean(str(error), MAX_TEXT))
            return
        stored = stored_status(body["kind"], answer.get("status"))
        self._written[body["metadata"]["uid"]] = _Written(version_of(answer), stored, self._operator.clock())

    def _compare(self, manifest: Manifest, status: dict[str, Any], written: _Written) -> None:
        """Remembers if the API server has stored other values than those of `status`. That it stores the same ones in
        their place each time, or that its schema lacks a field, leads to no further write."""
        uid, stored = manifest["metadata"]["uid"], normal(written.status)
        difference = altered(normal(status), stored)
        if difference is None:
            return
        known = self._altered.get(uid)
        if known is not None and known.difference != difference:
            self._contested(manifest, written.resource_version)
        self._altered[uid] = _Altered(_content(status), stored, difference)

    def _contested(self, manifest: Manifest, version: int) -> None:
        """Counts that somebody else has changed a status."""
        kind, metadata = manifest["kind"], manifest["metadata"]
        if self._contests.changed(metadata["uid"], version):
            metrics.CONTESTS.labels(kind).inc()
            logger.warning(
                "%s %s: another writer, such as an admission policy, changes its status each time after the operator "
                "has written it; the operator waits up to %.0f minutes before it writes it again",
                *(kind, metadata["name"], MAX_STATUS_PAUSE_SECONDS / 60),
            )

    async def _announce(self, manifests: Iterable[Manifest]) -> None:
        """Posts an Event on each resource about which there is news, as far as the namespace may post so many."""
        posts, excess = [], 0
        async for manifest in paced(manifests):
            metadata = manifest["metadata"]
            if metadata.get("deletionTimestamp") is not None:
                continue
            uid, status, now = metadata["uid"], self._status(manifest), self._operator.clock()
            notes = [self._announcer.news(uid, status, now), self._announcer.drops(uid, status, now)]
            if manifest["kind"] == "SslProfile" and metadata["name"] in self.profiles:
                notes += self._rotations.news(self.profiles[metadata["name"]], datetime.now(UTC))
            for note in (item for item in notes if item is not None):
                if not self._allowance.take(now):
                    excess += 1
                    continue
                logger.info("%s %s: %s: %s", manifest["kind"], metadata["name"], note.reason, note.text)
                posts.append((manifest, note))
        if excess:
            logger.warning(
                "%d Events in namespace %s are too many and are not posted", excess, self._namespace
            )
        cluster, instance = self._operator.cluster, self._operator.instance
        posted = await gathered(
            events.post(cluster, manifest, note, _timestamp(micro=True), instance) for manifest, note in posts
        )
        for _ in results(posted):
            pass


def _unheard(rendering: Rendering, facts: Mapping[str, RouterFacts]) -> set[tuple[str, str]]:
    """Resources about which a router has yet to be asked for the first time. Their status stays as it is
    for that moment: a new operator process must not report as lost what it has not looked at."""
    routers = {name for name, item in facts.items() if item.unheard}
    found = {("Router", name) for name in routers}
    found |= {
        ("Connector", name)
        for name, connector in rendering.model.connectors.items()
        if connector.spec.from_.router_ref.name in routers
    }
    found |= {
        ("RelaySite", name)
        for name, site in rendering.model.relay_sites.items()
        if site.spec.router_ref.name in routers
    }
    link_routes = rendering.rendered.plan.link_routes
    return found | {
        ("LinkRoute", name)
        for name, sections in link_routes.items()
        if any(router in sections for router in routers)
    }


def _renewals(
    model: NamespaceModel, profiles: Mapping[str, ProfileFacts]
) -> Mapping[tuple[str, str], list[Problem]]:
    """By kind and name of a resource, why it gets no new certificate of the namespace's own authority. That there is no
    authority is reported otherwise."""
    found: dict[tuple[str, str], list[Problem]] = {}
    for name, own in model.own.items() if model.authority is not None else ():
        facts = profiles.get(name)
        why = (facts.problem or facts.refusal) if facts is not None else None
        if why is not None:
            text = f'Secret "{own.ledger_secret}": the certificate of the namespace\'s own authority is not renewed: '
            transient = isinstance(why, Problem) and why.transient
            problem = Problem(why.reason, f"{text}{why.message}", transient)
            found.setdefault((own.owner.kind_name, own.owner.name), []).append(problem)
    return found


def _by_router(
    model: NamespaceModel, pods: Iterable[PodView], children: Mapping[str, Sequence[Manifest]]
) -> dict[str, list[PodView]]:
    """The pods of each Router that has a workload. Without one, pods with its label are those of a Router whose name
    gives the same label."""
    found: dict[str, list[PodView]] = {}
    for pod in pods:
        found.setdefault(pod.router, []).append(pod)
    with_pods = {
        name
        for name, router in model.routers.items()
        if any(item["kind"] in WORKLOADS for item in children.get(router.metadata.uid, ()))
    }
    return {name: found[base_name(name)] for name in with_pods if base_name(name) in found}


def _shortened(status: dict[str, Any]) -> dict[str, Any]:
    """A status without messages, lists and objects other than its conditions."""
    conditions = without("message", status["conditions"])
    return {
        **{key: value for key, value in status.items() if not isinstance(value, list | dict)},
        "conditions": conditions,
    }


def _content(status: dict[str, Any]) -> Any:
    """A status for comparison. A condition that the API server has not stored has another time in each second."""
    return without("lastTransitionTime", normal(status))


def _timestamp(*, micro: bool = False) -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
