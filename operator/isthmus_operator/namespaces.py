"""Which of the namespaces of the installation the operator can read.

An administrator of a namespace can delete the role binding of the operator there, and Kubernetes deletes it with the
namespace. The lists of a namespace can also fail for another reason, for example because the API server cannot decrypt
a Secret. kopf would end when the API server refuses one of its watches, and would process nothing at its start while
one of its lists fails. So this module has kopf end its watches of such a namespace, and begin them again when the
operator can read the namespace again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any

from kopf._cogs.clients import errors, watching
from kopf._cogs.structs import references
from kopf._core.engines import indexing

from .cluster import ENDPOINTS, ApiError, Cluster
from .deletions import Deletions
from .metrics import UNREADABLE
from .names import CHILD_KINDS
from .resources import RESOURCE_KINDS
from .watch_failures import MOST_CHARACTERS, WatchFailures

logger = logging.getLogger(__name__)

RETRY_SECONDS = 30.0
"""Between two attempts to read a namespace. kopf ends its watches of a namespace in less time."""
LIST_SECONDS = 120.0
"""For the next object of a list to arrive. kopf would wait as long as an answer with `Retry-After` says."""
SHORT_SECONDS = 5.0
"""A watch that ends sooner after its list is a failure: kopf would list all objects again each second."""
KINDS = (*RESOURCE_KINDS, *CHILD_KINDS, "Pod", "ReplicaSet")
"""Kinds that kopf watches."""
_continuous_watch = watching.continuous_watch


class _RefusedError(Exception):
    """The operator does nothing in the namespace."""


class Namespaces:
    """The namespaces that the operator watches; none are all namespaces of the cluster. `lost` is called with the name
    of a namespace that the operator cannot read any more."""

    def __init__(self, cluster: Cluster, names: Sequence[str], lost: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._names = tuple(names)
        self._lost = lost
        self._refused: set[str] = set()
        self._unlisted: dict[str, set[str]] = {}
        """By namespace, plural names of the resources that kopf watches there and that have no complete list."""
        self._deletions = Deletions()
        self.insights = references.Insights()
        """What kopf watches."""
        self.indexers = indexing.OperatorIndexers()
        """What kopf holds of it."""
        self.waits: str | None = None
        """Why the operator watches nothing. None: it does, or has not tried yet."""
        self.delivered_at = time.monotonic()
        """When a list or a watch has last delivered an object. A bookmark, which a watch sends each minute, is none."""

    @property
    def refused(self) -> Collection[str]:
        """Namespaces that the operator may not or cannot read. The collection changes with them."""
        return self._refused

    @property
    def readable(self) -> list[str]:
        """The other namespaces."""
        return [name for name in self._names if name not in self._refused]

    async def find(self) -> bool:
        """Examine all namespaces, and return whether there is one to watch. Raises ApiError for a failure that concerns
        all of them."""
        try:
            found = await self._find()
        except ApiError as error:
            self._wait(str(error))
            raise
        self.waits = None
        if not found:
            self._wait("the operator may not read any namespace")
        return found

    def _wait(self, why: str) -> None:
        """The operator can watch nothing, which counts as one namespace if it is to watch the cluster."""
        self.waits = why
        UNREADABLE.set(len(self._names) or 1)

    async def _find(self) -> bool:
        places: Sequence[str | None] = self._names or [None]
        found = await asyncio.gather(*map(self._failure, places))
        for name, why in zip(places, found, strict=True):
            if why is None or why.status == 403 or (name is not None and why.status >= 500):
                continue
            if name is None or why.status == 404 or None not in found:
                raise why  # 404: there are no CustomResourceDefinitions
        self._refused.clear()
        for name, why in zip(places, found, strict=True):
            if name is not None and why is not None:
                self._add(name, str(why))
            elif why is not None:
                logger.warning("the operator may not read the cluster: %s", why)
        UNREADABLE.set(len(self._refused))
        return None in found

    def install(self, failures: WatchFailures) -> None:
        """Have kopf's watches use this object, and begin again when they fail. kopf has no setting for it."""

        async def watch(
            *, namespace: references.Namespace, resource: references.Resource, **arguments: Any
        ) -> AsyncIterator[Any]:
            stream = _continuous_watch(namespace=namespace, resource=resource, **arguments)
            items = self._deletions.added(stream, resource, namespace)
            listed = False
            delivered_at = failures.now()  # of a complete list: when it was complete
            if namespace is not None:
                self._unlisted.setdefault(namespace, set()).add(resource.plural)
            try:
                if namespace in self._refused:
                    raise _RefusedError
                while True:
                    async with asyncio.timeout(None if listed else LIST_SECONDS):
                        item = await anext(items, None)
                    if item is None:
                        break
                    if item is watching.Bookmark.LISTED:
                        listed = True
                        failures.listed(resource, namespace)
                    if not listed or item is watching.Bookmark.LISTED:
                        delivered_at = failures.now()
                    if item is watching.Bookmark.LISTED or item["type"] != "BOOKMARK":
                        self.delivered_at = time.monotonic()
                    yield item
                    if item is watching.Bookmark.LISTED:
                        await self._has_list(namespace, resource)
                if not listed:  # kopf says nothing of answers that do not come
                    raise TimeoutError("its list did not end")
                if failures.now() - delivered_at < SHORT_SECONDS:
                    raise watching.WatchingError("it ended right after its list, for example with status 410")
            except errors.APIForbiddenError as error:
                if namespace is None:
                    raise  # kopf examines at its start what it may watch
                self._refuse(namespace, str(error.message))
            except _RefusedError:
                pass
            except Exception as error:
                others = any(name != namespace and failures.works(name) for name in self.readable)
                ended = await failures.failed(
                    resource, namespace, error, None if listed else delivered_at, others=others
                )
                if ended is None or namespace is None:
                    return
                self._refuse(namespace, ended)
            else:
                return
            yield watching.Bookmark.LISTED  # at its start, kopf waits for it before it processes any object
            await self._has_list(namespace, resource)
            await asyncio.Event().wait()  # kopf cancels the watch

        watching.continuous_watch = watch

    def discard(self, namespace: str, name: str, uid: str) -> None:
        """Drop what the indices of kopf hold of an object."""
        for indexer in self.indexers.values():
            indexer.discard((references.NamespaceName(namespace), name, uid))

    async def run(self) -> None:
        """Have kopf watch refused namespaces again when the operator can read them."""
        earlier: set[str] = set()
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            # kopf has ended the watches of those that it was told before the last pause.
            for name in sorted((earlier & self._refused) - self.insights.namespaces):
                await self._retry(name)
            earlier = self._refused - self.insights.namespaces

    async def _retry(self, name: str) -> None:
        failure = await self._failure(name)
        if failure is not None:
            if failure.status != 403:
                logger.warning("namespace %s: %s", name, failure)
            return
        logger.info("the operator can read namespace %s again", name)
        self._forget(name)
        self._refused.discard(name)
        UNREADABLE.set(len(self._refused))
        async with self.insights.revised:
            self.insights.namespaces.add(references.NamespaceName(name))
            self.insights.revised.notify_all()

    def _refuse(self, name: str, why: str) -> None:
        if name not in self._refused:
            self._add(name, why)
            self._lost(name)

    async def _has_list(self, namespace: references.Namespace, resource: references.Resource) -> None:
        """Have kopf end its watches of a namespace that is refused, once all have had a list: it would wait for the
        list of a watch that has ended, and process no object of any namespace meanwhile."""
        if namespace is None:
            return
        unlisted = self._unlisted[namespace]
        unlisted.discard(resource.plural)
        if unlisted or namespace not in self._refused:
            return
        async with self.insights.revised:
            self.insights.namespaces.discard(references.NamespaceName(namespace))
            self.insights.revised.notify_all()

    def _add(self, name: str, why: str) -> None:
        logger.warning("the operator does nothing in namespace %s, which it cannot read: %s", name, why)
        self._refused.add(name)
        UNREADABLE.set(len(self._refused))

    def _forget(self, name: str) -> None:
        """Drop what kopf holds of a namespace: it has no news of objects that were deleted meanwhile."""
        for indexer in self.indexers.values():
            for item in list(indexer.index[name]) if name in indexer.index else ():
                self.discard(name, item["metadata"]["name"], item["metadata"]["uid"])

    async def _failure(self, namespace: str | None) -> ApiError | None:
        """Return why the operator cannot read a namespace, or None if it can."""
        for kind in KINDS:
            try:
                if namespace is None:
                    await anext(self._cluster.pages(kind, namespace, limit="1"))
                else:  # one object of many may be what the API server cannot read
                    async for _ in self._cluster.pages(kind, namespace, metadata_only=True):
                        pass
            except ApiError as error:
                what = f"the list of {ENDPOINTS[kind].plural} failed with status {error.status}: {error}"
                return ApiError(error.status, error.reason, what[:MOST_CHARACTERS])
        return None
