"""The content of the Secrets that resources of one namespace name, and of those that its Routers have been given.

A tenant decides how many Secrets a namespace has, and how large they are. So the watch of Secrets retains no content of
them, and of the operator's own only that of small ones. This module reads the Secrets that a resource names, and
retains the keys that resources use, up to a limit. It also reads the large ones that the operator has made for Routers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .apply import controller
from .bodies import retained
from .cluster import Cluster, Manifest
from .digests import is_digested
from .names import config_secret
from .render.flows.place import KEYS
from .render.kubernetes import MAX_CONFIGURATION_BYTES
from .render.material import LOGIN_KEYS, USERS_KEY
from .render.sizes import CONTENT_COPIES, GROWTH, LargeError
from .room import SMALL_BYTES
from .rotation.ledger import TLS_KEYS
from .slots import in_thread
from .specs import unpacked
from .store import Inputs, is_for_registries, is_usable

MAX_CONTENT_BYTES = 16 * 1024 * 1024
"""Of the Secrets that the resources of one namespace name. One Secret has at most 1 MiB."""
AT_A_TIME = 4
"""Secrets that are read at the same time, each of which may take several MiB until its unused keys are dropped."""
_FIXED_KEYS = frozenset((*TLS_KEYS, *LOGIN_KEYS, *KEYS, USERS_KEY))
"""Keys that resources use without naming them."""
_KEY_FIELDS = frozenset({"key", "crlKey"})
"""Fields of resources that name a key."""


@dataclass(frozen=True)
class _Read:
    """What was read of a Secret."""

    seen: str
    """The version for which it was read; a newer one may have been there."""
    keys: frozenset[str] | None
    """The keys that were retained if the Secret had them. None: all, because it is one of the operator's own."""
    manifest: Manifest
    """The Secret with these keys, without `data` if there was no room for it."""
    size: int
    """Bytes of the content of these keys."""

    @property
    def has_content(self) -> bool:
        return "data" in self.manifest

    @classmethod
    def of(cls, live: Manifest, seen: str, keys: frozenset[str] | None) -> _Read:
        data = live.get("data") or {}
        kept: Mapping[str, Any] = live
        if keys is not None:
            data = {key: value for key, value in data.items() if key in keys}
            kept = retained(live, "Secret")
        size = sum(len(value or "") for value in data.values()) * 3 // 4
        return cls(seen, keys, {**kept, "data": data}, size)

    def without_content(self) -> _Read:
        return replace(self, manifest={key: item for key, item in self.manifest.items() if key != "data"})

    def is_of(self, version: str, keys: frozenset[str] | None) -> bool:
        """Whether it answers for this version of the Secret and these keys."""
        if version not in {self.seen, self.manifest["metadata"].get("resourceVersion")}:
            return False
        return self.keys is None if keys is None else self.keys is not None and keys <= self.keys


class Contents:
    """Reads Secrets of one namespace, and retains what it has read while their versions are the same."""

    def __init__(self, namespace: str, cluster: Cluster) -> None:
        self._namespace = namespace
        self._cluster = cluster
        self._read: dict[str, _Read | None] = {}
        """By uid. None: the Secret was gone."""

    @property
    def bytes(self) -> int:
        """Of the content that is retained."""
        return sum(read.size for read in self._read.values() if read is not None and read.has_content)

    def release(self) -> None:
        """Forgets the content if it is large, and not its size."""
        if CONTENT_COPIES * self.bytes > SMALL_BYTES:
            self._read = {
                uid: read.without_content() if read is not None else None for uid, read in self._read.items()
            }

    async def complete(self, inputs: Inputs, most: int | None = None) -> Inputs:
        """`inputs` with the content of the Secrets that its resources name. Where there is no room for all, the oldest
        Secrets come first, and the others are `too_large`. So it is with the large Secrets that the operator has made
        for Routers, of which the others remain without content. Raises ApiError, and LargeError if the content takes
        more than `most` bytes of memory, if stated."""
        names, keys = await in_thread(self._namespace, _named, inputs)
        wanted = sorted((item for item in inputs.secrets if _is_wanted(item, names, inputs)), key=_age)
        found: dict[str, _Read | None] = {}
        used = 0
        # Many namespaces may read at the same time what turns out to be large.
        together = 1 if most is not None and most <= SMALL_BYTES else AT_A_TIME
        for begin in range(0, len(wanted), together):
            some = wanted[begin : begin + together]
            reads = await asyncio.gather(*(self._of(item, keys) for item in some))
            for item, read in zip(some, reads, strict=True):
                if read is not None and not read.has_content and used + read.size <= MAX_CONTENT_BYTES:
                    read = await self._fetched(item, keys)  # there is room now
                if read is not None and used + read.size > MAX_CONTENT_BYTES:
                    read = read.without_content()
                if read is not None and read.has_content:
                    used += read.size
                found[item["metadata"]["uid"]] = read
            self._check(used, found, most)
        large = (read.manifest for read in found.values() if read is not None and not read.has_content)
        too_large = frozenset(str(item["metadata"]["name"]) for item in large)
        given = 0
        for item in sorted(_given(inputs), key=_age):
            read = await self._of(item, None)
            if read is not None and not read.has_content:
                read = await self._fetched(item, None)
            if read is not None and given + read.size <= MAX_CONFIGURATION_BYTES:
                given += read.size
                found[item["metadata"]["uid"]] = read
            self._check(used + given, found, most)
        self._read = found
        secrets = []
        for item in inputs.secrets:
            read = found.get(item["metadata"]["uid"])
            if read is not None:
                secrets.append(read.manifest)
            elif item["metadata"]["uid"] not in found:
                secrets.append(item)
        return replace(inputs, secrets=secrets, too_large=too_large)

    def _check(self, used: int, found: Mapping[str, _Read | None], most: int | None) -> None:
        """Raises LargeError if `used`, the bytes of the content in `found`, take more than `most` bytes of memory."""
        if most is not None and CONTENT_COPIES * used > most:
            self._read |= found
            self.release()
            raise LargeError(GROWTH * most)

    async def _of(self, item: Manifest, keys: frozenset[str] | None) -> _Read | None:
        """What is known of the Secret `item`, which is read if that is of another version. None: it is gone."""
        metadata = item["metadata"]
        known = self._read.get(metadata["uid"])
        if known is not None and known.is_of(str(metadata.get("resourceVersion")), keys):
            return known
        return await self._fetched(item, keys)

    async def _fetched(self, item: Manifest, keys: frozenset[str] | None) -> _Read | None:
        metadata = item["metadata"]
        live: Manifest | None = item
        if "data" not in item:
            live = await self._cluster.get("Secret", self._namespace, metadata["name"])
        if live is None or live["metadata"]["uid"] != metadata["uid"]:
            return None  # the watch reports it soon
        return _Read.of(live, str(metadata.get("resourceVersion")), keys)


def _is_wanted(secret: Manifest, names: frozenset[str], inputs: Inputs) -> bool:
    return (
        secret["metadata"]["name"] in names
        and is_usable(secret, label_required=inputs.label_required)
        and not is_for_registries(secret)
    )


def _given(inputs: Inputs) -> Iterator[Manifest]:
    """The large Secrets that the operator has made for Routers."""
    routers = {
        config_secret(item["metadata"]["name"]): item["metadata"]["uid"]
        for item in inputs.resources
        if item["kind"] == "Router"
    }
    for secret in inputs.secrets:
        if is_digested(secret) and (controller(secret) or {}).get("uid") == routers.get(
            secret["metadata"]["name"], ""
        ):
            yield secret


def _age(secret: Manifest) -> tuple[str, str]:
    metadata = secret["metadata"]
    return str(metadata.get("creationTimestamp") or ""), metadata["name"]


def _named(inputs: Inputs) -> tuple[frozenset[str], frozenset[str]]:
    """Names of Secrets that are a string in some resource, and all keys that resources use."""
    existing = {item["metadata"]["name"] for item in inputs.secrets}
    names: set[str] = set()
    keys = set(_FIXED_KEYS)
    for resource in inputs.resources:
        for field, text in _strings("", unpacked(resource).get("spec")):
            if text in existing:
                names.add(text)
            if field in _KEY_FIELDS:
                keys.add(text)
    return frozenset(names), frozenset(keys)


def _strings(field: str, value: Any) -> Iterator[tuple[str, str]]:
    """All strings in a value, each with the field that has it."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key, item)
    elif isinstance(value, Iterable):
        for item in value:
            yield from _strings(field, item)
