"""Reads the long specifications of resources, of which the watched objects have only the size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .cluster import Cluster, Manifest
from .slots import in_thread
from .specs import long_bytes, refused, with_text


async def completed(cluster: Cluster, manifests: Iterable[Manifest]) -> list[Manifest]:
    """`manifests` with the text of the long specifications, without those that are gone. Raises ApiError."""
    items = list(manifests)
    out = refused(items)
    found: list[Manifest] = []
    for item in items:
        if not long_bytes(item) or item["metadata"]["uid"] in out:
            found.append(item)
        # One at a time, because the values are in memory until the text is made of them.
        elif (complete := await _read(cluster, item)) is not None:
            found.append(complete)
    return found


async def _read(cluster: Cluster, item: Manifest) -> Manifest | None:
    metadata = item["metadata"]
    # The operator has the right to list resources. A list of one name has the cost of a single read.
    selector = f"metadata.name={metadata['name']}"
    listed = await cluster.list(item["kind"], metadata["namespace"], fieldSelector=selector)
    spec = next((live.get("spec") for live in listed if live["metadata"]["uid"] == metadata["uid"]), None)
    if not isinstance(spec, Mapping):
        return None  # the watch reports it soon
    del listed
    return await in_thread(metadata["namespace"], with_text, item, spec)
