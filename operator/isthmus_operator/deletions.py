"""Deletions that no watch delivers.

A watch that cannot go on (status 410), for example after a restart of the API server, ends. kopf then lists the objects
again, and has no event for those that were deleted meanwhile: its indices would hold them until the operator restarts.
So this module compares each list with the objects that earlier lists and watches have delivered.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

from kopf._cogs.clients import watching
from kopf._cogs.structs import references

from .names import LABEL_MANAGED_BY, MANAGER

logger = logging.getLogger(__name__)

_Key = tuple[str, str]
"""Namespace and name."""


class Deletions:
    """The objects of which kopf has had events, for each resource and each namespace that it watches."""

    def __init__(self) -> None:
        self._held: dict[tuple[references.Resource, references.Namespace], dict[_Key, str]] = {}

    async def added(
        self, stream: AsyncIterator[Any], resource: references.Resource, namespace: references.Namespace
    ) -> AsyncIterator[Any]:
        """The events of `stream`, which begins with a list, and one for each object that this list lacks."""
        held = self._held.setdefault((resource, namespace), {})
        listed: set[_Key] = set()
        async for item in stream:
            if item is watching.Bookmark.LISTED:
                gone = sorted(held.keys() - listed)
                if gone:
                    logger.info("%d %s were deleted while no watch was open", len(gone), resource.plural)
                for key in gone:
                    yield _deleted(resource, key, held.pop(key))
                listed.clear()
            elif item["type"] != "BOOKMARK":
                metadata = item["object"]["metadata"]
                key, uid = (metadata.get("namespace"), metadata["name"]), metadata["uid"]
                if item["type"] == "DELETED":
                    if held.get(key) == uid:
                        del held[key]
                else:
                    if (before := held.get(key, uid)) != uid:
                        yield _deleted(resource, key, before)
                    held[key] = uid
                    if item["type"] is None:
                        listed.add(key)
            yield item


def _deleted(resource: references.Resource, key: _Key, uid: str) -> dict[str, Any]:
    """The event of a deletion. Handlers that require the operator's label receive it as well."""
    namespace, name = key
    labels = {LABEL_MANAGED_BY: MANAGER}
    return {
        "type": "DELETED",
        "object": {
            "apiVersion": f"{resource.group}/{resource.version}".removeprefix("/"),
            "kind": resource.kind,
            "metadata": {"namespace": namespace, "name": name, "uid": uid, "labels": labels},
        },
    }
