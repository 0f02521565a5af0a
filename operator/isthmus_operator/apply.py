"""Making the cluster's objects what rendering says: apply, prune, repair, and nothing else.

Level-based: desired and live objects are compared each time. An object is written only when it is not
up to date; one that somebody else controls is never touched. Each write has a precondition: the API server refuses it
when the object is no longer the one that was judged, or exists although there was none.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from . import metrics
from .bodies import retained
from .cluster import ApiError, Cluster, Manifest
from .contests import MAX_PAUSE_SECONDS, Contests
from .digests import fingerprint, is_digested
from .fields import is_applied, is_inherited
from .holds import Holds
from .leftovers import DELETABLE, Leftovers
from .model import Problem
from .names import (
    ANNOTATION_APPLIED,
    ANNOTATION_GENERATED,
    LABEL_FLOW_LOG,
    LABEL_MANAGED_BY,
    LABEL_PROFILE,
    MANAGER,
    base_name,
    digest,
)
from .render import canonical
from .resources import API_VERSION, FlowLog, SslProfile
from .seniority import NODE_PORT, Claim, Owner

Identity = tuple[str, str]
"""Kind and name."""

_NEEDED = frozenset(
    {
        "ServiceAccount",
        "Secret",
        "PersistentVolumeClaim",
        "Service",
        "NetworkPolicy",
        "RoleBinding",
    }
)
"""Kinds that give the pods of their owner an identity, content, rights, names or protection."""
_AWAITED = frozenset({"ServiceAccount", "Secret", "PersistentVolumeClaim"})
"""Those of them without which no pod starts: where there is none, somebody else may create one of the name later."""
_DEPENDENT = frozenset({"RoleBinding", "StatefulSet", "Deployment", "Job", "CronJob"})
"""Kinds that refer to these by name."""

_COMPLETED = frozenset({"ServiceAccount", "PersistentVolumeClaim", "Job"})
"""Kinds to which Kubernetes adds content that must stay, such as the volume of a claim, and of which the operator
withdraws nothing."""

GENERATED_BYTES = 32
"""Length of what the operator makes at random."""
MOST_ATTEMPTS = 8
"""Requests for one object in one convergence, while others change it at the same time."""


@dataclass
class Outcome:
    """What one convergence did."""

    applied: list[Identity] = field(default_factory=list)
    deleted: list[Identity] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def identity(manifest: Manifest) -> Identity:
    return manifest["kind"], manifest["metadata"]["name"]


def controller(manifest: Manifest) -> Mapping[str, Any] | None:
    """The owner reference of the object's controller."""
    references: Iterable[Mapping[str, Any]] = manifest["metadata"].get("ownerReferences") or ()
    return next((item for item in references if item.get("controller")), None)


def by_controller(manifests: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    """Objects by the uid of their controller, without those that have none."""
    found: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        owner = controller(manifest)
        if owner is not None:
            found.setdefault(str(owner.get("uid")), []).append(manifest)
    return found


def controllers(live: Mapping[Identity, Manifest]) -> Mapping[Claim, str]:
    """The uids of the controllers of objects, and of Services with a port of all nodes by this port."""
    found: dict[Claim, str] = {}
    for key, manifest in live.items():
        owner = controller(manifest)
        if owner is not None:
            found[key] = str(owner.get("uid"))
            ports = (manifest.get("spec") or {}).get("ports") or () if key[0] == "Service" else ()
            found |= {(NODE_PORT, str(port["nodePort"])): found[key] for port in ports if "nodePort" in port}
    return found


def is_deleting(manifest: Manifest) -> bool:
    """Whether somebody has deleted the object, which remains until its finalizers are removed."""
    return manifest["metadata"].get("deletionTimestamp") is not None


def owner_reference(owner: Owner | SslProfile) -> dict[str, Any]:
    """What makes `owner` the controller of an object that bears it."""
    return {
        "apiVersion": API_VERSION,
        "kind": owner.kind_name,
        "name": owner.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owned(manifest: Manifest, owner: Owner) -> Manifest:
    """`manifest` with the owner reference to `owner`, unless it says whose it is, and the hash of what is applied."""
    metadata = dict(manifest["metadata"])
    metadata.setdefault("ownerReferences", [owner_reference(owner)])
    annotations = {**metadata.get("annotations", {}), ANNOTATION_APPLIED: digest(canonical(manifest))[:32]}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def filled(desired: Manifest, live: Manifest | None) -> Manifest:
    """`desired` with the random value for which its annotation asks. A value that is there stays: what is rendered has
    none, so that a rendering is the same each time."""
    key = _generated(desired)
    if key is None:
        return desired
    value = _random_value(live, key) or base64.b64encode(secrets.token_bytes(GENERATED_BYTES)).decode()
    return {**desired, "data": {key: value}}


def _generated(manifest: Manifest) -> str | None:
    key: str | None = (manifest["metadata"].get("annotations") or {}).get(ANNOTATION_GENERATED)
    return key


def _random_value(live: Manifest | None, key: str) -> str | None:
    """The value that a live Secret has, encoded, unless it is too short."""
    value = ((live or {}).get("data") or {}).get(key)
    try:
        return value if len(base64.b64decode(value or "", validate=True)) >= GENERATED_BYTES else None
    except (binascii.Error, ValueError, TypeError):
        return None


def refusal(live: Manifest, resource: Owner | SslProfile, *, known: bool = False) -> str | None:
    """Why the live object must not be touched for `resource`, or None when it may be. `known`: this process has written
    the object itself, so that it is the operator's although it has lost its owner.

    The label alone proves nothing: anybody who may create an object can give it the label. A PersistentVolumeClaim has
    no owner, so that it outlives its FlowLog; its labels name the FlowLog."""
    kind, name = identity(live)
    owner = controller(live)
    fix = f'rename {resource.kind_name} "{resource.name}", or delete the {kind} if nothing uses it'
    if owner is not None:
        if owner.get("uid") == resource.metadata.uid:
            return None
        return f'{kind} "{name}" is controlled by {owner.get("kind")} "{owner.get("name")}"; {fix}'
    if not _is_labelled(live):
        return f'{kind} "{name}" exists and was not made by the operator; {fix}'
    if known or _is_claim_of(live, resource):
        return None
    return f'{kind} "{name}" has the label of the operator and no owner, so somebody else may have made it; {fix}'


def _is_labelled(live: Manifest) -> bool:
    return (live["metadata"].get("labels") or {}).get(LABEL_MANAGED_BY) == MANAGER


def left_over(live: Manifest, resource: Owner | SslProfile) -> Mapping[str, Any] | None:
    """The owner reference of an object of the operator that an earlier resource of the kind and name of `resource`
    controls. None: there is no such reference, or the object holds data of users."""
    owner = controller(live)
    if owner is None or live["kind"] == "PersistentVolumeClaim" or not _is_labelled(live):
        return None
    earlier = owner.get("apiVersion"), owner.get("kind"), owner.get("name")
    is_earlier = earlier == (API_VERSION, resource.kind_name, resource.name)
    return owner if is_earlier and owner.get("uid") != resource.metadata.uid else None


def _is_claim_of(live: Manifest, resource: Owner | SslProfile) -> bool:
    return (
        live["kind"] == "PersistentVolumeClaim"
        and isinstance(resource, FlowLog)
        and live["metadata"]["labels"].get(LABEL_FLOW_LOG) == base_name(resource.name)
    )


def covers(live: Any, desired: Any) -> bool:
    """Every value of `desired` is in `live`; what the API server has added does not matter."""
    if isinstance(desired, dict):
        if not isinstance(live, dict):
            return not desired and live is None
        return all(covers(live.get(key), value) for key, value in desired.items())
    if isinstance(desired, list):
        if not isinstance(live, list):
            return not desired and live is None
        return len(live) == len(desired) and all(map(covers, live, desired))
    if live == desired:
        return True
    return _same_quantity(live, desired)


_WHOLE: Mapping[str, tuple[str, ...]] = {
    "NetworkPolicy": ("spec",),
    "Service": ("spec", "selector"),
    "PodDisruptionBudget": ("spec", "selector"),
}
"""By kind, the path to the field that selects pods or peers. An added key there selects others. The API server stores
the field as one value, so that an apply replaces it."""


def is_widened(live: Manifest, desired: Manifest) -> bool:
    """Return whether the live object selects other pods or peers than `desired`, although it covers `desired`."""
    path = _WHOLE.get(desired["kind"])
    if path is None:
        return False
    one, other = live, desired
    for key in path:
        one, other = one.get(key) or {}, other.get(key) or {}
    return one != other


def _same_quantity(live: Any, desired: Any) -> bool:
    """The API server writes quantities in its own way: `1000m` becomes `1`."""
    if not isinstance(live, str) or not isinstance(desired, str | int) or isinstance(desired, bool):
        return False
    try:
        quantities = [parse_quantity(item) for item in (live, str(desired))]  # type: ignore[no-untyped-call]
        return bool(quantities[0] == quantities[1])
    except (ValueError, ArithmeticError):  # `snan1` is a number to the parser, and cannot be compared
        return False


def superfluous(
    live: Mapping[Identity, Manifest], desired: Iterable[Identity], resource: Owner
) -> Iterator[Identity]:
    """Objects controlled by `resource` that it no longer wants, and that the operator may delete.

    Those of other kinds stay until their owner is deleted. The ledgers of its certificates are the keeper's.
    """
    wanted = set(desired)
    for key, manifest in live.items():
        owner = controller(manifest)
        if (
            key in wanted
            or key[0] not in DELETABLE
            or owner is None
            or owner.get("uid") != resource.metadata.uid
        ):
            continue
        # Ledgers are Secrets. Anybody who may create an object of another kind can give it the label.
        if key[0] == "Secret" and LABEL_PROFILE in (manifest["metadata"].get("labels") or {}):
            continue
        if not is_deleting(manifest):
            yield key


class _ForeignError(Exception):
    """An object belongs to somebody else; the text says to whom, and what to do."""


class Applier:
    """Brings the objects of resources into their desired state."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._held = Holds(clock)
        """By identity of the object, with the owner's uid and the hash that are not applied, or the uid of the object
        that is not deleted."""
        self._contests = Contests(clock)
        """By identity of the object."""
        self._leftovers = Leftovers(cluster, clock)
        self._made: dict[Identity, tuple[str, str, str]] = {}
        """The owner's uid and the hash of what this process has last written, and the uid of the object."""
        self._accepted: dict[str, tuple[str, str]] = {}
        """Per uid: the hash applied and the fingerprint of the object that came back. An admission
        plugin may change what we apply; this tells its doing from drift."""
        self._settled: dict[Identity, tuple[Manifest, tuple[str, str]]] = {}
        """Live objects that were found to be as they should be, with the owner's uid and the hash. A watched object
        never changes: each version is another one."""
        self._answers: dict[Identity, Manifest] = {}
        """What the API server has answered to a write, as long as the watched objects are older."""

    def current(self, watched: Mapping[Identity, Manifest]) -> dict[Identity, Manifest]:
        """`watched` with the answers to writes, where what is watched is older: watch events come after answers.

        An object that is not watched yet is among them until the next call. After that it may be one that is gone."""
        self._answers = {
            key: item for key, item in self._answers.items() if _is_older(watched.get(key), item)
        }
        return {**watched, **self._answers}

    def answered(self, live: Mapping[Identity, Manifest]) -> dict[Identity, Manifest]:
        """`live`, which `current` has returned, with what `converge` has written since."""
        return {**live, **self._answers}

    def retain(self, live: Mapping[Identity, Manifest], desired: Iterable[Manifest]) -> None:
        """Forgets objects other than these."""
        alive = {item["metadata"]["uid"] for item in live.values()}
        self._accepted = {uid: item for uid, item in self._accepted.items() if uid in alive}
        self._leftovers.retain(alive)
        self._settled = {key: item for key, item in self._settled.items() if live.get(key) is item[0]}
        if self._held or self._contests or self._made:
            keys = {*live, *map(identity, desired)}
            self._held.retain(keys)
            self._contests.retain(keys)
            self._made = {key: item for key, item in self._made.items() if key in keys}

    def due(self, since: float) -> float | None:
        """Return after how many seconds a write is due that was refused, or that waits because somebody else changes
        the object, without those that were due before `since`."""
        dues = [due for due in (self._held.due(since), self._contests.due(since)) if due is not None]
        return min(dues, default=None)

    async def converge(
        self,
        owner: Owner,
        desired: Sequence[Manifest],
        live: Mapping[Identity, Manifest],
        children: Iterable[Manifest],
        beside: Mapping[Identity, Owner] = MappingProxyType({}),
    ) -> Outcome:
        """Applies what differs, deletes what `owner` no longer wants. `desired` comes from `owned`.
        `live` holds all objects that bear the operator's label; others are looked up before anything of
        their name is created. `children` are those of them that `owner` controls, `beside` what its pods have of
        other resources, with these.

        Pods must not run with what belongs to somebody else: their workload then stays as it is, or is not made."""
        outcome = Outcome()
        usable = True
        mine = {identity(item): item for item in children}
        for key, other in beside.items():
            usable = await self._look(other, key, live.get(key), outcome) and usable
        for manifest in desired:
            key = identity(manifest)
            if not usable and key[0] in _DEPENDENT:
                continue
            if not await self._settle(owner, manifest, live.get(key), outcome) and key[0] in _NEEDED:
                usable = False
        if not usable:
            return outcome
        unwanted = mine.keys() - set(map(identity, desired))
        outcome.problems += [
            _deleting(key, mine[key])
            for key in sorted(unwanted)
            if key[0] in _NEEDED and is_deleting(mine[key])
        ]
        gone = list(superfluous(mine, map(identity, desired), owner))
        await asyncio.gather(*(self._remove(live[key], outcome) for key in gone))
        return outcome

    async def _look(self, owner: Owner, key: Identity, live: Manifest | None, outcome: Outcome) -> bool:
        """Whether `owner` may have the object of this kind and name, which there need not be."""
        try:
            await self._judged(owner, key, live)
        except (ApiError, _ForeignError) as error:
            outcome.problems.append(_problem(key, error))
            return False
        return True

    async def _judged(self, owner: Owner, key: Identity, live: Manifest | None) -> Manifest | None:
        """The object of this kind and name, which `owner` may have. Raises ApiError and _ForeignError."""
        kind, name = key
        live = live or await self._cluster.get(kind, owner.metadata.namespace, name)
        if live is not None:
            known = live["metadata"].get("uid") in self._accepted
            refused = refusal(live, owner, known=known)
            if refused is not None and (earlier := left_over(live, owner)) is not None:
                refused = await self._leftovers.remove(live, earlier, owner)
            if refused is not None:
                raise _ForeignError(refused)
        return live

    async def _settle(self, owner: Owner, desired: Manifest, live: Manifest | None, outcome: Outcome) -> bool:
        """Makes the object what it should be. Returns whether pods of `owner` may refer to its name."""
        key, content = identity(desired), (_owner_uid(desired), _applied_hash(desired))
        try:
            watched = live
            live = await self._judged(owner, key, live)
            known = self._settled.get(key)
            settled = known is not None and known[0] is live and known[1] == content
            settled = settled or self._is_settled(desired, live)
            if settled and live is not None and live is watched:  # one that was read may be large
                self._settled[key] = live, content
            if not settled and live is not None and is_digested(live):
                live = await self._judged(owner, key, None)
                settled = self._is_settled(desired, live)
                if settled and live is not None:
                    self._accepted[live["metadata"]["uid"]] = _applied_hash(desired), fingerprint(live)
        except (ApiError, _ForeignError) as error:
            outcome.problems.append(_problem(key, error))
            return False
        if live is not None and is_deleting(live):
            outcome.problems.append(_deleting(key, live))
        if settled:
            self._held.remove(key)
            if self._contests.is_contested(key):
                outcome.problems.append(_contested(key))
            return True
        usable = live is not None or key[0] not in _AWAITED
        self._notice(key, desired, live)
        if self._contests.holds(key):
            outcome.problems.append(_contested(key))
            return usable
        refused = self._held.refusal(key, content)
        if refused is not None:
            outcome.problems.append(_unwritten(key, refused))
            return usable
        try:
            if await self._write(owner, desired, live):
                outcome.applied.append(key)
        except _ForeignError as error:
            outcome.problems.append(_problem(key, error))
            return False
        except ApiError as error:
            self._hold(key, content, error, outcome)
            return usable
        self._held.remove(key)
        return True

    def _notice(self, key: Identity, desired: Manifest, live: Manifest | None) -> None:
        """Counts a change or a deletion of an object that this process has written as `desired`."""
        owner, made, uid = self._made.get(key, ("", "", ""))
        if owner != _owner_uid(desired):  # Kubernetes deletes what an earlier resource of the name had
            self._contests.forget(key)
            return
        if made != _applied_hash(desired):
            return
        version: Hashable = uid
        if live is not None:
            version = live["metadata"]["uid"], version_of(live)
        if self._contests.changed(key, version):
            metrics.CONTESTS.labels(key[0]).inc()

    def _hold(self, key: Identity, content: str | tuple[str, str], error: ApiError, outcome: Outcome) -> None:
        """A write was refused."""
        outcome.problems.append(_unwritten(key, error))
        if error.concerns_object:
            self._held.add(key, content, error)

    async def _write(self, owner: Owner, desired: Manifest, live: Manifest | None) -> bool:
        """Creates the object if `live` is None, and applies it otherwise. Returns whether that was necessary.

        The API server refuses the write if it has another object than `live`, which is then read and judged again.
        Raises ApiError and _ForeignError."""
        written = False
        conflict = ApiError(409, "Conflict", "")
        for _ in range(MOST_ATTEMPTS):
            try:
                if live is None:
                    live = await self._cluster.create(filled(desired, live))
                    self._accept(desired, live)
                    written = True
                elif not is_applied(live["metadata"]):
                    live = await self._cluster.claim(live)
                else:
                    live = await self._cluster.apply(filled(desired, live), seen=live)
                    written = True
                    if _is_inherited(live):
                        live = await self._cluster.claim(live)
                        continue
                    self._accept(desired, live)
                    return True
            except ApiError as error:
                # Status 404 of a creation: there is no such namespace.
                if error.status != 409 and (error.status != 404 or live is None):
                    raise
                conflict = error
                live = await self._judged(owner, identity(desired), None)
            if self._is_settled(desired, live):
                return written
        raise conflict

    def _accept(self, desired: Manifest, answer: Manifest) -> None:
        """The API server has made `answer` of `desired`."""
        self._accepted[answer["metadata"]["uid"]] = (_applied_hash(desired), fingerprint(answer))
        self._answers[identity(desired)] = dict(retained(answer, desired["kind"]))
        made = _owner_uid(desired), _applied_hash(desired), answer["metadata"]["uid"]
        self._made[identity(desired)] = made

    def _is_settled(self, desired: Manifest, live: Manifest | None) -> bool:
        """Whether there is nothing to do: the object is as it should be."""
        if live is None or not is_applied(live["metadata"]) or _is_inherited(live):
            return False
        return self._is_current(desired, live)

    def _is_current(self, desired: Manifest, live: Manifest) -> bool:
        if desired["kind"] == "Job":
            # Its pods run: it stays what it was when it was made, but for whether they may.
            suspended = (live.get("spec") or {}).get("suspend", False)
            return bool(suspended == desired["spec"].get("suspend", False))
        wanted = _applied_hash(desired)
        generated = _generated(desired)
        if _applied_hash(live) != wanted or (generated and _random_value(live, generated) is None):
            return False
        if self._accepted.get(live["metadata"].get("uid", "")) == (wanted, fingerprint(live)):
            return True
        return covers(live, desired) and not is_widened(live, desired)

    async def _remove(self, live: Manifest, outcome: Outcome) -> None:
        key, uid = identity(live), live["metadata"]["uid"]
        refused = self._held.refusal(key, uid)
        if refused is not None:
            outcome.problems.append(_unwritten(key, refused))
            return
        try:
            if await self._cluster.delete(live):
                outcome.deleted.append(key)
            self._held.remove(key)
        except ApiError as error:
            self._hold(key, uid, error, outcome)
        self._accepted.pop(uid, None)


def _is_inherited(live: Manifest) -> bool:
    """Whether the operator has to take over content that has no known owner, so that an apply removes it."""
    return live["kind"] not in _COMPLETED and is_inherited(live["metadata"])


def _is_older(watched: Manifest | None, answer: Manifest) -> bool:
    """Whether `watched` is an earlier version of the object in `answer`."""
    if watched is None or watched["metadata"].get("uid") != answer["metadata"].get("uid"):
        return False
    return version_of(watched) < version_of(answer)


def version_of(manifest: Manifest) -> int:
    """The resource version, which grows with each write of the object. 0: there is none."""
    try:
        return int(manifest["metadata"].get("resourceVersion", 0))
    except ValueError:
        return 0


def _problem(key: Identity, error: ApiError | _ForeignError) -> Problem:
    kind, name = key
    if isinstance(error, ApiError):
        return Problem("ApplyFailed", f'{kind} "{name}": {error}', error.transient)
    more = "; until then the operator neither makes nor changes its pods" if kind in _NEEDED else ""
    return Problem("ObjectConflict", f"{error}{more}", transient=False)


def _unwritten(key: Identity, error: ApiError) -> Problem:
    """That an object was not written. The reconciliation is tried again soon unless the object alone is to blame."""
    return Problem("ApplyFailed", f'{key[0]} "{key[1]}": {error}', transient=not error.concerns_object)


def _deleting(key: Identity, live: Manifest) -> Problem:
    """That an object cannot be made as long as the one that is being deleted is there."""
    held = ", ".join(map(str, live["metadata"].get("finalizers") or ()))
    why = f"finalizers hold it: {held}. Remove them" if held else "it is not gone yet. Wait until it is gone"
    text = (
        f'{key[0]} "{key[1]}" is being deleted, and {why}; if it is needed, the operator then makes a new one'
    )
    return Problem("ObjectDeleting", text, transient=False)


def _contested(key: Identity) -> Problem:
    text = (
        f'{key[0]} "{key[1]}": another writer changes or deletes it each time after the operator has written it. The '
        f"operator waits up to {MAX_PAUSE_SECONDS / 60:.0f} minutes before it writes it again. If another installation "
        "of the operator watches this namespace, remove the namespace from watchNamespaces of one of them"
    )
    return Problem("ContestedObject", text, transient=False)


def _owner_uid(manifest: Manifest) -> str:
    return str((controller(manifest) or {}).get("uid", ""))


def _applied_hash(manifest: Manifest) -> str:
    return str((manifest["metadata"].get("annotations") or {}).get(ANNOTATION_APPLIED, ""))
