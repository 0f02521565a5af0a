"""The Secret with the certificate authority of one namespace.

The operator makes it when the namespace first has a resource that needs certificates, and replaces it near its end. An
authority that somebody else has put there is used as it is and never written.
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime

from .. import metrics
from ..certificates import described
from ..cluster import ApiError, Cluster, Manifest
from ..contests import MAX_PAUSE_SECONDS, Contests
from ..model import Problem
from ..names import LABEL_MANAGED_BY, LABEL_PART_OF, MANAGER
from ..slots import in_thread
from ..store import is_ours, secret_view
from .issue import Authority, UnusableAuthorityError, new_authority, renewed
from .own import AUTHORITY_SECRET

logger = logging.getLogger(__name__)


MOST_AHEAD_SECONDS = 600.0
"""Difference between the clocks of the operator and of the API server with which certificates are issued. They are
valid from an hour before their issue."""


@dataclass(frozen=True)
class FoundAuthority:
    """The authority of a namespace, and what is wrong with it, or why there is none."""

    authority: Authority | None
    problem: Problem | None = None


class AuthorityKeeper:
    """Reads and writes the authority of one namespace."""

    def __init__(
        self,
        namespace: str,
        cluster: Cluster,
        ahead: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ahead`: seconds by which the clock of this process is ahead of that of the API server."""
        self._namespace = namespace
        self._cluster = cluster
        self._ahead = ahead
        self._in_use: Authority | None = None
        self._contests = Contests(clock)
        """Deletions and replacements of the authority in use by somebody else. After each, the operator issues all
        certificates of the namespace again."""
        self._altered: str | None = None
        """The version that the API server has made of the last renewal, if it has stored another content."""

    async def ensure(self, now: datetime) -> FoundAuthority:
        """The authority, which is made when there is none, and renewed when it is ours and near its end."""
        try:
            live = await self._cluster.get("Secret", self._namespace, AUTHORITY_SECRET)
            if abs(self._ahead()) > MOST_AHEAD_SECONDS:
                return FoundAuthority(None, self._wrong_clock())
            if live is None:
                if self._in_use is not None and self._is_contested("deleted", self._in_use.certificate):
                    return self._contested()
                live = await self._create(new_authority(self._name, now))
                self._in_use = None
            found = await self._current(live, now)
            self._in_use = found.authority or self._in_use
            return found
        except ApiError as error:
            text = f'Secret "{AUTHORITY_SECRET}" could not be read or written: {error}'
            return FoundAuthority(None, Problem("AuthorityUnavailable", text, error.transient))

    def _is_contested(self, *version: Hashable) -> bool:
        """Counts that somebody else has deleted or replaced the authority in use. Return whether the operator goes on
        with it meanwhile."""
        if self._contests.changed(AUTHORITY_SECRET, version):
            metrics.CONTESTS.labels("Secret").inc()
        return self._contests.holds(AUTHORITY_SECRET)

    def _contested(self) -> FoundAuthority:
        text = (
            f'Secret "{AUTHORITY_SECRET}": somebody deletes or replaces it again and again. The operator waits up to '
            f"{MAX_PAUSE_SECONDS / 60:.0f} minutes before it issues all certificates again; until then it uses the "
            "last authority"
        )
        return FoundAuthority(self._in_use, Problem("AuthorityUnusable", text, transient=False))

    def _wrong_clock(self) -> Problem:
        where = "ahead of" if self._ahead() > 0 else "behind"
        # Without the difference, which is another one each time: each text is a status to write.
        text = (
            f"the clock of the operator is more than {MOST_AHEAD_SECONDS / 60:.0f} minutes {where} that of the API "
            "server, so that certificates would not be valid: the operator issues none. Correct the clocks of the nodes"
        )
        return Problem("AuthorityUnusable", text, transient=False)

    @property
    def _name(self) -> str:
        return f"Isthmus {self._namespace}"

    async def _create(self, authority: Authority) -> Manifest:
        """The Secret with `authority`, or with the one that another operator has made meanwhile. Raises ApiError."""
        try:
            return await self._cluster.create(self._manifest(authority))
        except ApiError as error:
            found = await self._cluster.get("Secret", self._namespace, AUTHORITY_SECRET)
            if error.status != 409 or found is None:
                raise
            return found

    async def _current(self, live: Manifest, now: datetime) -> FoundAuthority:
        try:
            found = await in_thread(self._namespace, Authority.of, secret_view(live).data)
        except UnusableAuthorityError as error:
            text = (
                f'Secret "{AUTHORITY_SECRET}" is not a usable certificate authority: {error}. Put one there, or delete '
                "the Secret, and the operator makes a new authority"
            )
            return FoundAuthority(None, Problem("AuthorityUnusable", text, transient=False))
        about = described(found.certificate)
        if not is_ours(live) and not about.not_before <= now < about.not_after:
            when = (
                f"is not valid before {about.not_before:%Y-%m-%dT%H:%M:%SZ}"
                if now < about.not_before
                else f"expired at {about.not_after:%Y-%m-%dT%H:%M:%SZ}"
            )
            text = (
                f'Secret "{AUTHORITY_SECRET}": the certificate authority {when}. Put one there that is valid, or '
                "delete the Secret, and the operator makes a new authority"
            )
            return FoundAuthority(None, Problem("AuthorityUnusable", text, transient=False))
        known = self._in_use
        if (
            known is not None
            and found.certificate != known.certificate
            and self._is_contested(found.certificate)
        ):
            return self._contested()
        current = (
            await in_thread(self._namespace, renewed, found, self._name, now) if is_ours(live) else found
        )
        if current != found and live["metadata"]["resourceVersion"] == self._altered:
            return FoundAuthority(found)  # another attempt would lead to the next one
        if current != found:
            metadata = {key: live["metadata"][key] for key in ("uid", "resourceVersion")}
            patch = {"metadata": metadata, "data": _encoded(current)}
            answer = await self._cluster.merge("Secret", self._namespace, AUTHORITY_SECRET, patch)
            if answer["data"] != patch["data"]:
                self._altered = answer["metadata"]["resourceVersion"]
                logger.warning(
                    "the API server has stored Secret %s otherwise than the operator has written it, for example "
                    "because of an admission policy",
                    AUTHORITY_SECRET,
                )
                return FoundAuthority(found)
        return FoundAuthority(current)

    def _manifest(self, authority: Authority) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": AUTHORITY_SECRET,
                "namespace": self._namespace,
                "labels": {LABEL_PART_OF: "isthmus", LABEL_MANAGED_BY: MANAGER},
            },
            "type": "kubernetes.io/tls",
            "data": _encoded(authority),
        }


def _encoded(authority: Authority) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in authority.data().items()}
