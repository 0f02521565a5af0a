"""Objects of an earlier resource of the same kind and name, which the garbage collector of Kubernetes has not deleted.

It may miss a deletion when a resource is created again while its watches are broken. It then keeps the objects of the
earlier resource until it restarts. Names are unique, so the earlier resource does not exist any more.

Source: `graph_builder.go` and `garbagecollector.go` of kube-controller-manager.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from .cluster import Cluster, Manifest
from .names import LABEL_MANAGED_BY, MANAGER
from .resources import SslProfile
from .seniority import Owner

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 30.0
"""Time that the garbage collector has before the operator acts, and between two attempts."""
DELETABLE = frozenset({"Secret", "Service", "Job", "CronJob", "PodDisruptionBudget", "NetworkPolicy"})
"""Kinds that the operator has the right to delete."""


class Leftovers:
    """Removes such objects. `clock` is monotonic, in seconds."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._since: dict[str, float] = {}
        """By uid of the object: when the operator has seen it first, or has acted last."""

    async def remove(self, seen: Manifest, reference: Mapping[str, Any], resource: Owner | SslProfile) -> str:
        """Have an object removed that `reference`, its owner reference to an earlier `resource`, still controls, when
        the garbage collector has had time to do so. Return what to report until then. Raises ApiError."""
        kind, metadata, now = seen["kind"], seen["metadata"], self._clock()
        since = self._since.setdefault(metadata["uid"], now)
        if metadata.get("deletionTimestamp") is None and now - since >= PATIENCE_SECONDS:
            self._since[metadata["uid"]] = now
            if await self._is_present(resource):
                await self._act(seen, reference)
        earlier = f'an earlier {resource.kind_name} "{resource.name}", which no longer exists'
        return (
            f'{kind} "{metadata["name"]}" belongs to {earlier}, and is going to be removed; if it remains for longer '
            "than 2 minutes, delete it"
        )

    def retain(self, uids: Collection[str]) -> None:
        """Forgets objects other than these."""
        self._since = {uid: since for uid, since in self._since.items() if uid in uids}

    async def _is_present(self, resource: Owner | SslProfile) -> bool:
        """Whether `resource` exists. The watch may be late: the object could be that of the next resource."""
        metadata = resource.metadata
        selector = f"metadata.name={resource.name}"
        pages = self._cluster.pages(
            resource.kind_name, metadata.namespace, metadata_only=True, fieldSelector=selector
        )
        return any([item["metadata"]["uid"] == metadata.uid async for page in pages for item in page])

    async def _act(self, seen: Manifest, reference: Mapping[str, Any]) -> None:
        kind, metadata = seen["kind"], seen["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        found = await self._cluster.get(kind, namespace, name)
        if found is None or found["metadata"]["uid"] != metadata["uid"] or not is_made_for(found, reference):
            return
        if kind in DELETABLE:
            if await self._cluster.delete(found):
                logger.info("deleted %s %s of an earlier %s", kind, name, reference["kind"])
            return
        # Without the right to delete: the garbage collector examines an owner whose deletion this no longer blocks. It
        # finds that the owner does not exist, and deletes all objects that depend on it.
        released = {**reference, "blockOwnerDeletion": False}
        version = {key: found["metadata"][key] for key in ("uid", "resourceVersion")}
        patch = {"metadata": {**version, "ownerReferences": [released]}}
        await self._cluster.merge(kind, namespace, name, patch)
        logger.info("released %s %s of an earlier %s", kind, name, reference["kind"])


def is_made_for(found: Manifest, reference: Mapping[str, Any]) -> bool:
    """Whether the operator has made the object for the owner of `reference`, and it has no other owner.

    Anybody who may change an object can give it the label and the owner. So the operator must also be recorded as the
    manager of the owner reference. A client can state that name on purpose, but gains nothing: the garbage collector of
    Kubernetes itself deletes an object whose owner does not exist.
    """
    metadata = found["metadata"]
    if (metadata.get("labels") or {}).get(LABEL_MANAGED_BY) != MANAGER:
        return False
    if [item.get("uid") for item in metadata.get("ownerReferences") or ()] != [reference["uid"]]:
        return False
    field = f"k:{json.dumps({'uid': reference['uid']}, separators=(',', ':'))}"
    return any(
        entry.get("manager") == MANAGER
        and field in (_below(_below(entry.get("fieldsV1"), "f:metadata"), "f:ownerReferences") or ())
        for entry in metadata.get("managedFields") or ()
    )


def _below(fields: object, key: str) -> Any:
    return fields.get(key) if isinstance(fields, Mapping) else None
