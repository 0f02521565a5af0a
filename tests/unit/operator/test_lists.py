"""Lists of the API server, in pages and with metadata only."""

from __future__ import annotations

import json
from typing import Any

from isthmus_operator.cluster import Cluster


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

    async def read(self) -> bytes:
        return json.dumps({"kind": "PartialObjectMetadataList", "metadata": {}, "items": None}).encode()


async def test_a_list_of_metadata_without_objects_is_empty() -> None:
    api = Api()
    pages = [page async for page in Cluster(api).pages("Router", None, metadata_only=True)]
    assert [list(page) for page in pages] == [[]]
    assert "PartialObjectMetadataList" in api.accepted[0]
