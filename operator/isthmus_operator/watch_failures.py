"""Watches that fail.

kopf ends all of its watches when one of them fails for a reason that kopf does not know, such as an error event with
status 500. Then nothing is reconciled any more. So the operator begins such a watch again, with a list, and ends when
a watch has had no list for too long: its successor may have more success. If it is the watch of a namespace beside
others that work, the operator gives up that namespace alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from kopf._cogs.structs import references

from . import metrics

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0
"""Between a failure and the next list. The pause doubles with each failure."""
CALM_SECONDS = 300.0
"""A watch that has not failed for this time begins with the first pause again."""
MOST_SECONDS = 300.0
"""Without a list, before the operator ends."""
MOST_CHARACTERS = 500
"""Of an error that are logged."""

_Watch = tuple[str, references.Namespace]
"""Plural name of the resource, and namespace."""


class WatchFailedError(Exception):
    """A watch has had no list for too long."""


class WatchFailures:
    """How long each watch has failed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: dict[_Watch, tuple[float, float]] = {}
        """When a watch failed last, in seconds, and the pause after it."""
        self._since: dict[_Watch, float] = {}
        """Watches that have had no list since a failure, and the time of the first failure."""
        self._given_up: set[str] = set()
        """Namespaces that were given up once."""
        self._lasting: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def now(self) -> float:
        """The time in seconds."""
        return self._clock()

    async def failed(
        self,
        resource: references.Resource,
        namespace: references.Namespace,
        error: Exception,
        delivered_at: float | None = None,
        *,
        others: bool = False,
    ) -> str | None:
        """Report the failure of a watch, and wait until it may begin again. Return None, or why the namespace is to be
        given up.

        Args:
            resource: what is watched.
            namespace: where, or None for all namespaces.
            error: the reason.
            delivered_at: when its list, which is not complete, began or last delivered an object. None if the list is.
            others: whether there are other namespaces that work. Otherwise, `run` ends in place of giving up one.
        """
        now, watch = self._clock(), (resource.plural, namespace)
        last, pause = self._failed.get(watch, (now, 0.0))
        if now - last > CALM_SECONDS:
            pause = 0.0
        pause = min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, 2 * pause))
        self._failed[watch] = now, pause
        metrics.WATCH_FAILURES.labels(resource.plural).inc()
        where = f"in namespace {namespace}" if namespace is not None else "in all namespaces"
        what = f"the watch of {resource.plural} {where}"
        # The `repr` of an error may contain the whole answer of the API server.
        why = f"{type(error).__name__}: {error}"[:MOST_CHARACTERS]
        logger.warning("%s failed and begins again in %d seconds: %s", what, pause, why)
        since = self._since.setdefault(watch, now if delivered_at is None else delivered_at)
        lasts = now - since > MOST_SECONDS
        # Until the list is complete, kopf processes no object of any namespace.
        again = delivered_at is not None and namespace in self._given_up
        if others and namespace is not None and (lasts or again):
            self._given_up.add(namespace)
            for key in [key for key in self._since if key[1] == namespace]:
                del self._since[key]
            return f"{what} has failed {f'for {MOST_SECONDS:.0f} seconds' if lasts else 'again'}: {why}"
        if lasts and not self._lasting.done():
            self._lasting.set_result(f"{what} has failed for {MOST_SECONDS:.0f} seconds: {why}")
        await asyncio.sleep(pause)
        return None

    def listed(self, resource: references.Resource, namespace: references.Namespace) -> None:
        """Note that a watch has had a complete list."""
        self._since.pop((resource.plural, namespace), None)

    def works(self, namespace: str) -> bool:
        """Whether no watch of a namespace is without a list since a failure."""
        return all(key[1] != namespace for key in self._since)

    async def run(self) -> None:
        """Raise WatchFailedError when a watch has had no list for too long."""
        raise WatchFailedError(await self._lasting)
