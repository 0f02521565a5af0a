"""The ledgers of the SslProfiles of one namespace, each in a Secret of the operator's own.

A ledger is written before anything follows from it, and only over the version it was made from: of two
operators, or an operator with a late cache, one is refused and looks again.
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from .. import metrics
from ..apply import Identity, controller, left_over, owner_reference, refusal
from ..authority import Own, offer
from ..cluster import ApiError, Cluster, Manifest
from ..contests import MAX_PAUSE_SECONDS, Contests
from ..digests import is_digested
from ..leftovers import Leftovers
from ..model import NamespaceModel, Problem
from ..names import (
    LABEL_MANAGED_BY,
    LABEL_PART_OF,
    LABEL_PROFILE,
    MANAGER,
    base_name,
    failure,
    ledger_secret,
)
from ..pieces import paced
from ..render.material import Delivered
from ..render.sizes import CONTENT_COPIES, GROWTH, LargeError
from ..resources import SslProfile
from ..resources.sslprofile import MAX_ORDINAL
from ..room import SMALL_BYTES
from ..seniority import Owner
from ..slots import in_thread
from ..status import ProfileFacts, Usage
from ..store import is_usable, secret_view
from .ledger import Ledger, Past
from .machine import Adoption, Change, Refusal, Wish, adopt, retire

logger = logging.getLogger(__name__)

MAX_LEDGER_BYTES = 64 * 1024 * 1024
"""Of all ledgers of a namespace. Each SslProfile that names a Secret has a copy of it, which the operator writes into
the cluster, and holds in memory as long as there is room."""


@dataclass(frozen=True)
class _Written:
    """The Secret of a ledger in its newest version known."""

    version: int
    uid: str
    keys: frozenset[str]
    ledger: Ledger | None
    """None: the Secret has none that can be used, or it was released."""
    size: int
    """Bytes of its content."""

    @classmethod
    def of(cls, manifest: Manifest) -> _Written:
        data = secret_view(manifest).data
        metadata, ledger = manifest["metadata"], Ledger.decoded(data)
        size = ledger.size if ledger is not None else 0
        return cls(int(metadata["resourceVersion"]), metadata["uid"], frozenset(data), ledger, size)


class _ContestedError(Exception):
    """Somebody else changes or deletes a ledger each time after it was written."""


class Keeper:
    """Reads and writes ledgers, and remembers them between two looks."""

    def __init__(self, namespace: str, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._namespace = namespace
        self._cluster = cluster
        self._written: dict[str, _Written] = {}
        """By uid of the profile."""
        self._released: dict[str, Past] = {}
        """By uid of the profile: what its ledger must not go behind, from the release of its content until it is read
        or written again."""
        self._refused: dict[str, Refusal | None] = {}
        self._failed: dict[str, str] = {}
        """By uid: the error that keeps a profile from being examined."""
        self._own: Mapping[str, Own] = {}
        """The implicit profiles, by name."""
        self.facts: dict[str, ProfileFacts] = {}
        """By name of the profile."""
        self._leftovers = Leftovers(cluster, clock)
        self._contests = Contests(clock)
        """Ledgers that somebody else changes or deletes, by uid of the profile."""

    @property
    def _bytes(self) -> int:
        """Of the ledgers that are held."""
        return sum(item.size for item in self._written.values() if item.ledger is not None)

    def release(self) -> None:
        """Forgets the resources of the last `adopt`, and the content of the ledgers if it is large."""
        self._own = {}
        if CONTENT_COPIES * self._bytes <= SMALL_BYTES:
            return
        self._released |= {
            uid: item.ledger.past for uid, item in self._written.items() if item.ledger is not None
        }
        self._written = {uid: replace(item, ledger=None) for uid, item in self._written.items()}
        self.facts = {
            name: replace(item, ledger=item.ledger.without_content() if item.ledger is not None else None)
            for name, item in self.facts.items()
        }

    async def adopt(
        self,
        model: NamespaceModel,
        live: Mapping[Identity, Manifest],
        resources: Iterable[Manifest],
        now: datetime,
        most: int | None = None,
    ) -> Mapping[str, Ledger]:
        """Takes over what the Secrets offer. Returns the ledgers in force, by profile. Raises ApiError, and LargeError
        if the ledgers take more than `most` bytes of memory, if stated."""
        statuses = {
            item["metadata"]["uid"]: item.get("status") or {}
            for item in resources
            if item["kind"] == SslProfile.kind_name
        }
        facts = {}
        self._own = model.own
        self._leftovers.retain({item["metadata"]["uid"] for item in live.values()})
        delivered = await in_thread(self._namespace, Delivered.of, model.delivered.values())
        for name, profile in model.profiles.items():
            status = statuses.get(profile.metadata.uid, {})
            facts[name] = await self._adopt_safely(profile, model, live, delivered, status, now)
            if most is not None and CONTENT_COPIES * self._bytes > most:
                self.release()
                raise LargeError(GROWTH * most)
        self.facts = facts
        alive = {item.profile.metadata.uid for item in facts.values()}
        self._written = {uid: item for uid, item in self._written.items() if uid in alive}
        self._released = {uid: item for uid, item in self._released.items() if uid in alive}
        self._refused = {uid: item for uid, item in self._refused.items() if uid in alive}
        self._failed = {uid: item for uid, item in self._failed.items() if uid in alive}
        self._contests.retain(alive)
        return {name: item.ledger for name, item in facts.items() if item.ledger is not None}

    async def retire(self, usages: Mapping[str, Usage], now: datetime) -> None:
        """Goes on from what the routers use now; `usages` is by profile."""
        async for name, usage in paced(usages.items()):
            item = replace(self.facts[name], usage=usage)
            ledger, profile = item.ledger, item.profile
            if ledger is not None and item.problem is None:
                result = retire(ledger, usage.seen(ledger.ordinal), profile.spec.retention, now)
                item = replace(item, due=_earliest(item.due, result.due))
                if result.ledger != ledger:
                    item = await self._write(item, result.ledger, result.changes)
            self.facts[name] = item

    async def _adopt_safely(
        self,
        profile: SslProfile,
        model: NamespaceModel,
        live: Mapping[Identity, Manifest],
        delivered: Delivered,
        status: Mapping[str, Any],
        now: datetime,
    ) -> ProfileFacts:
        """The same as `_adopt`. An error that nothing expects concerns this profile alone."""
        uid = profile.metadata.uid
        try:
            found = await self._adopt(profile, model, live, delivered, status, now)
        except ApiError:
            raise
        except Exception as error:
            if self._failed.get(uid) != repr(error):
                self._failed[uid] = repr(error)
                logger.exception("SslProfile %s: the operator failed to examine it", profile.name)
            problem = Problem("ApplyFailed", failure(error), transient=False)
            return ProfileFacts(profile, self._ledger(profile), problem=problem)
        self._failed.pop(uid, None)
        return found

    async def _adopt(
        self,
        profile: SslProfile,
        model: NamespaceModel,
        live: Mapping[Identity, Manifest],
        delivered: Delivered,
        status: Mapping[str, Any],
        now: datetime,
    ) -> ProfileFacts:
        problem = None
        before = self._ledger(profile)
        past = self._past(profile, delivered, status) if before is None else Past()
        try:
            await self._read(profile, live, past)
        except ApiError as error:
            problem = _failed(error)
        except _ContestedError:
            problem = self._contested(profile)
        ledger = self._ledger(profile)
        wish = Wish.of(profile.spec, staged=model.has_listeners_with(profile.name))
        asked: list[Mapping[str, bytes] | None] = []
        """What the Secret holds, where it has been asked for."""
        if ledger is not None and wish.request > ledger.handled_request and problem is None:
            # Who asks may have changed the Secret just before; above all, not what is in it may be revoked.
            try:
                found = await self._cluster.get("Secret", self._namespace, profile.spec.secret_name)
                # One that the model has is usable with its label or without.
                required = profile.spec.secret_name not in model.secrets
                usable = found is not None and is_usable(found, label_required=required)
                asked.append(secret_view(found).data if found is not None and usable else None)
            except ApiError as error:
                problem = _failed(error)

        def judge() -> tuple[Mapping[str, bytes] | None, datetime | None, Adoption]:
            offered, renewal = self._offer(profile, model, ledger, now)
            offered = asked[0] if asked else offered
            return offered, renewal, adopt(ledger, profile.spec.secret_name, offered, wish, past, now)

        # Whoever writes the Secret decides how long it takes to examine the certificates and to sign new ones.
        offered, renewal, adoption = await in_thread(self._namespace, judge)
        if offered is None and adoption.refusal is not None and profile.name not in model.own:
            adoption = replace(
                adoption, refusal=_unreadable(profile.spec.secret_name, model) or adoption.refusal
            )
        self._count(profile, adoption.refusal)
        due = adoption.refusal.until if adoption.refusal is not None else renewal
        item = ProfileFacts(profile, ledger, adoption.refusal, problem, due=due)
        if problem is not None or adoption.ledger is None or adoption.ledger == ledger:
            return item
        if self._is_too_large(profile, adoption.ledger):
            return replace(item, problem=Problem("TooLarge", _TOO_LARGE, transient=False))
        return await self._write(item, adoption.ledger, adoption.changes)

    def _is_too_large(self, profile: SslProfile, ledger: Ledger) -> bool:
        """Whether the namespace has no room for `ledger` in place of the one that `profile` has."""
        sizes = {uid: item.size for uid, item in self._written.items()}
        before = sizes.pop(profile.metadata.uid, 0)
        return ledger.size > before and sum(sizes.values()) + ledger.size > MAX_LEDGER_BYTES

    def _offer(
        self, profile: SslProfile, model: NamespaceModel, ledger: Ledger | None, now: datetime
    ) -> tuple[Mapping[str, bytes] | None, datetime | None]:
        """What the Secret of `profile` holds, or what the namespace's own authority gives it, and until when."""
        own = model.own.get(profile.name)
        if own is not None:
            return offer(model.authority, own.names, ledger, now)
        view = model.secrets.get(profile.spec.secret_name)
        return (view.data if view is not None else None), None

    def _owner(self, profile: SslProfile) -> Owner | SslProfile:
        """The resource with which the ledger goes."""
        own = self._own.get(profile.name)
        return own.owner if own is not None else profile

    def _secret(self, profile: SslProfile) -> str:
        """The Secret with the ledger."""
        own = self._own.get(profile.name)
        return own.ledger_secret if own is not None else ledger_secret(profile.name)

    def _past(self, profile: SslProfile, delivered: Delivered, status: Mapping[str, Any]) -> Past:
        """What the status, the routers' files and the ledger before its release tell of a profile without a ledger."""
        told = Past(
            int(status.get("ordinal") or 0),
            int(status.get("oldestValidOrdinal") or 0),
            str(status.get("fingerprint") or ""),
        )
        released = self._released.get(profile.metadata.uid, Past())
        found = max(told, delivered.past(profile.name), released, key=lambda item: item.ordinal)
        return replace(found, oldest_valid=min(found.oldest_valid, found.ordinal))

    def _count(self, profile: SslProfile, found: Refusal | None) -> None:
        uid = profile.metadata.uid
        if found is not None and self._refused.get(uid) != found:
            metrics.ROTATIONS.labels("refused").inc()
        self._refused[uid] = found

    def _ledger(self, profile: SslProfile) -> Ledger | None:
        known = self._written.get(profile.metadata.uid)
        return known.ledger if known is not None else None

    def _remember(self, profile: SslProfile, written: _Written) -> None:
        self._written[profile.metadata.uid] = written
        if written.ledger is not None:
            self._released.pop(profile.metadata.uid, None)

    async def _read(self, profile: SslProfile, live: Mapping[Identity, Manifest], past: Past) -> None:
        """Finds the newest version; the cache may be older than what we have written. Raises ApiError and
        _ContestedError."""
        uid, name = profile.metadata.uid, self._secret(profile)
        cached, known = live.get(("Secret", name)), self._written.get(uid)
        if cached is not None and _is_controlled(cached, uid):
            newer = known is None or int(cached["metadata"]["resourceVersion"]) > known.version
            if newer or uid in self._released:
                found: Manifest | None = cached
                if not newer or is_digested(cached):
                    found = await self._cluster.get("Secret", self._namespace, name)
                if found is not None and _is_controlled(found, uid):  # otherwise the watch reports it soon
                    await self._take(profile, await in_thread(self._namespace, _Written.of, found), past)
        elif known is not None:
            found = await self._cluster.get("Secret", self._namespace, name)
            if found is None and known.ledger is None:
                del self._written[uid]
            elif found is None and known.ledger is not None:  # somebody has deleted what we know
                self._notice(profile, ("deleted", known.version))
                answer = await self._cluster.create(self._manifest(profile, known.ledger))
                self._remember(profile, await self._stored(profile, answer, known.ledger))
            elif (
                found is not None
                and controller(found) is None
                and refusal(found, profile, known=found["metadata"]["uid"] == known.uid) is None
            ):
                await self._take(profile, await in_thread(self._namespace, _Written.of, found), past)
                known = self._written[uid]
                if known.ledger is not None:  # without an owner it would outlive its profile
                    self._notice(profile, known.version)
                    self._remember(profile, await self._overwrite(profile, known, known.ledger))

    async def _take(self, profile: SslProfile, found: _Written, past: Past) -> None:
        """Continue from a version that this process has not written. An earlier operator may have written it, whose
        version is never older. Somebody else may have changed it, or restored an old one. Raises ApiError and
        _ContestedError.
        """
        uid, ours, theirs = profile.metadata.uid, self._ledger(profile), found.ledger
        least = ours or max(past, self._released.get(uid, Past()), key=lambda item: item.ordinal)
        if theirs is None or theirs.ordinal < least.ordinal or theirs.oldest_valid < least.oldest_valid:
            found = replace(found, ledger=None)
            if ours is not None:
                self._notice(profile, found.version)
                found = await self._overwrite(profile, found, ours)
        self._remember(profile, found)

    async def _overwrite(self, profile: SslProfile, found: _Written, ledger: Ledger) -> _Written:
        """Writes the ledger over `found`, if that is still the newest version. Raises ApiError."""
        data: dict[str, Any] = {**dict.fromkeys(found.keys), **_encoded(ledger)}
        metadata = {
            "uid": found.uid,
            "resourceVersion": str(found.version),
            "ownerReferences": [owner_reference(self._owner(profile))],
        }
        name, patch = self._secret(profile), {"metadata": metadata, "data": data}
        answer = await self._cluster.merge("Secret", self._namespace, name, patch)
        return await self._stored(profile, answer, ledger)

    async def _stored(self, profile: SslProfile, answer: Manifest, ledger: Ledger) -> _Written:
        """What the API server has made of a write of `ledger`. If an admission policy has changed it, the operator goes
        on with what it has written: another attempt would lead to the next one."""
        found = await in_thread(self._namespace, _Written.of, answer)
        if found.ledger is not None and found.ledger.encoded() == ledger.encoded():
            return found
        logger.warning(
            "SslProfile %s: the API server has stored Secret %s otherwise than the operator has written it, for "
            "example because of an admission policy",
            *(profile.name, self._secret(profile)),
        )
        return replace(found, ledger=ledger, size=ledger.size)

    def _notice(self, profile: SslProfile, version: Hashable) -> None:
        """Counts that somebody else has made a version that is to be corrected. Raises _ContestedError if that has to
        wait."""
        if self._contests.changed(profile.metadata.uid, version):
            metrics.CONTESTS.labels("Secret").inc()
        if self._contests.holds(profile.metadata.uid):
            raise _ContestedError

    def _contested(self, profile: SslProfile) -> Problem:
        text = (
            f'Secret "{self._secret(profile)}": another writer changes or deletes it each time after the operator has '
            f"written it. The operator waits up to {MAX_PAUSE_SECONDS / 60:.0f} minutes before it writes it again. Its "
            "certificates stay in service"
        )
        return Problem("ContestedObject", text, transient=False)

    async def _write(self, item: ProfileFacts, ledger: Ledger, changes: tuple[Change, ...]) -> ProfileFacts:
        """Writes the ledger over the version that is known; what was in force stays if that fails."""
        profile = item.profile
        known = self._written.get(profile.metadata.uid)
        if await in_thread(self._namespace, lambda: Ledger.decoded(ledger.encoded())) is None:
            # Each write would lead to the next one.
            return replace(item, problem=Problem("ApplyFailed", _UNREADABLE, transient=False))
        if known is None and (older := self._older(profile)) is not None:
            return replace(item, problem=older)
        try:
            if known is None:
                answer = await self._cluster.create(self._manifest(profile, ledger))
                written = await self._stored(profile, answer, ledger)
            else:
                written = await self._overwrite(profile, known, ledger)
        except ApiError as error:
            problem = await self._conflict(profile) if error.status == 409 else _failed(error)
            return replace(item, problem=problem)
        self._remember(profile, written)
        if item.ledger is None or ledger.ordinal != item.ledger.ordinal:
            metrics.ROTATIONS.labels("adopted").inc()
        if ledger.ordinal > 1 and any(item.reason == "RotationCompleted" for item in changes):
            since, settled = ledger.current.since, ledger.current.settled or ledger.current.since
            metrics.ROTATION_SECONDS.observe((settled - since).total_seconds())
        return replace(item, ledger=ledger, changes=(*item.changes, *changes))

    def _older(self, profile: SslProfile) -> Problem | None:
        """That the Secret belongs to an older resource, which may not have written it yet."""
        own = self._own.get(profile.name)
        if own is None or own.older is None:
            return None
        text = (
            f'Secret "{own.ledger_secret}" belongs to {own.older.kind_name} "{own.older.name}"; rename '
            f'{own.owner.kind_name} "{own.owner.name}"'
        )
        return Problem("ObjectConflict", text, transient=False)

    async def _conflict(self, profile: SslProfile) -> Problem:
        """Why a write met another version: it is newer than what we know, or not ours at all."""
        found = await self._cluster.get("Secret", self._namespace, self._secret(profile))
        if found is not None:
            written = self._written.get(profile.metadata.uid)
            known = written is not None and written.uid == found["metadata"].get("uid")
            owner = self._owner(profile)
            text = refusal(found, owner, known=known)
            if text is not None and (earlier := left_over(found, owner)) is not None:
                text = await self._leftovers.remove(found, earlier, owner)
            if text is not None:
                return Problem("ObjectConflict", text, transient=False)
        if found is not None:
            try:
                await self._take(profile, await in_thread(self._namespace, _Written.of, found), Past())
            except _ContestedError:
                return self._contested(profile)
        return Problem("ApplyFailed", _OVERTAKEN, transient=True)

    def _manifest(self, profile: SslProfile, ledger: Ledger) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": self._secret(profile),
                "namespace": self._namespace,
                "labels": {
                    LABEL_PART_OF: "isthmus",
                    LABEL_MANAGED_BY: MANAGER,
                    LABEL_PROFILE: base_name(profile.name),
                },
                "ownerReferences": [owner_reference(self._owner(profile))],
            },
            "type": "Opaque",
            "data": _encoded(ledger),
        }


def _unreadable(secret: str, model: NamespaceModel) -> Refusal | None:
    """Why `model` does not have the content of a Secret that exists."""
    found = model.unreadable(secret)
    return Refusal(*found) if found is not None else None


def _encoded(ledger: Ledger) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in ledger.encoded().items()}


def _is_controlled(secret: Manifest, uid: str) -> bool:
    """Whether the resource with this uid controls the Secret."""
    return (controller(secret) or {}).get("uid") == uid


_OVERTAKEN = (
    "another client of the API server has changed the Secret with the ordinals; the operator tries again"
)
_UNREADABLE = (
    f"its next ledger would be out of range, such as an ordinal above {MAX_ORDINAL}; delete the SslProfile, "
    "and create it under another name"
)
_TOO_LARGE = (
    f"the certificates of all SslProfiles of the namespace have more than {MAX_LEDGER_BYTES >> 20} MiB; use shorter "
    "bundles of authorities, or fewer SslProfiles"
)


def _failed(error: ApiError) -> Problem:
    return Problem("ApplyFailed", f"the ledger could not be read or written: {error}", error.transient)


def _earliest(*moments: datetime | None) -> datetime | None:
    return min((item for item in moments if item is not None), default=None)
