"""Lists of the API server, in pages and with metadata only."""

from __future__ import annotations

import json
from typing import Any

from isthmus_operator.cluster import METADATA_CHUNK, Cluster
from isthmus_operator.decoding import LIST_CHUNK
from isthmus_operator.fetch import MAX_ANSWER_BYTES


class Api:
    """Answers as the API server does when it has no objects and is asked for metadata."""

    def __init__(self) -> None:
        self.accepted: list[str] = []

    async def param_serialize(
        self, verb: str, path: str, *, header_params: dict[str, str], **_: Any
    ) -> tuple[Any, ...]:
        self.accepted.append(header_params["Accept"])
        return verb, path, [], None, None

    async def call_api(self, *_: Any, **__: Any) -> Answer:
        return Answer()


class Answer:
    status, reason = 200, "OK"

    def __init__(self) -> None:
        self._rest = json.dumps({"kind": "PartialObjectMetadataList", "metadata": {}, "items": None}).encode()
        self.response = self.content = self

    async def readany(self) -> bytes:
        found, self._rest = self._rest, b""
        return found


class Objects:
    """An API server with objects of this many bytes of metadata."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.limits: list[int] = []
        self.read = 0

    async def param_serialize(
        self, verb: str, path: str, *, query_params: list[tuple[str, str]], **_: Any
    ) -> tuple[Any, ...]:
        return verb, path, dict(query_params), None, None

    async def call_api(self, _: str, __: str, query: dict[str, str], *___: Any, **____: Any) -> Page:
        start, limit = int(query.get("continue", 0)), int(query["limit"])
        self.limits.append(limit)
        end = min(len(self.sizes), start + limit)
        items = [
            {"metadata": {"name": str(number), "annotations": {"a": "x" * self.sizes[number]}}}
            for number in range(start, end)
        ]
        metadata = {"continue": str(end)} if end < len(self.sizes) else {}
        return Page(self, json.dumps({"metadata": metadata, "items": items}).encode())


class Page:
    status, reason = 200, "OK"

    def __init__(self, api: Objects, body: bytes) -> None:
        self._api = api
        self._body = body
        self.response = self.content = self

    async def read(self) -> bytes:
        return await self.readany(len(self._body))

    async def readany(self, size: int = 65_536) -> bytes:
        part, self._body = self._body[:size], self._body[size:]
        self._api.read = max(self._api.read, len(part))
        return part

    def close(self) -> None:
        self._body = b""


async def names(api: Objects, **query: Any) -> list[str]:
    pages = [page async for page in Cluster(api).pages("Router", None, **query)]
    return [item["metadata"]["name"] for page in pages for item in page]


async def test_metadata_of_thousands_of_objects_takes_few_requests() -> None:
    """With 10 objects in each answer, 3,000 LinkRoutes took 10 requests each second without end."""
    api = Objects(*[3_000] * 3_000)
    assert await names(api, metadata_only=True) == [str(number) for number in range(3_000)]
    assert len(api.limits) == 3_000 / METADATA_CHUNK


async def test_objects_with_much_metadata_come_in_smaller_pages() -> None:
    """Annotations of an object may have 256 KiB, and managedFields more."""
    sizes = [1_000] * 1_000 + [256 * 1024] * 200 + [1_500_000] * 20 + [1_000] * 3_000
    api = Objects(*sizes)
    assert await names(api, metadata_only=True) == [str(number) for number in range(len(sizes))]
    assert min(api.limits) == LIST_CHUNK
    assert api.limits[-1] == METADATA_CHUNK
    assert len(api.limits) <= 2 * sum(sizes) / MAX_ANSWER_BYTES * 3 + len(sizes) / METADATA_CHUNK + 10


async def test_whole_objects_come_in_small_pages() -> None:
    api = Objects(*[1_500_000] * 25)
    assert await names(api) == [str(number) for number in range(25)]
    assert api.limits == [LIST_CHUNK] * 3


async def test_a_stated_limit_counts() -> None:
    api = Objects(*[10] * 5)
    async for _ in Cluster(api).pages("Router", None, limit="1"):
        break
    assert api.limits == [1]


async def test_a_list_of_metadata_without_objects_is_empty() -> None:
    api = Api()
    pages = [page async for page in Cluster(api).pages("Router", None, metadata_only=True)]
    assert [list(page) for page in pages] == [[]]
    assert "PartialObjectMetadataList" in api.accepted[0]
