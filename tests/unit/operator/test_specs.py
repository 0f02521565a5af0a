"""Long specifications: the operator holds their sizes, and reads as many as a namespace may have."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.operator.support import connector, router

from isthmus_operator.contents import _named
from isthmus_operator.decoding import line, watched
from isthmus_operator.handlers.watching import copied
from isthmus_operator.resources import API_VERSION, parse
from isthmus_operator.spec_texts import completed
from isthmus_operator.specs import (
    MAX_LONG_BYTES,
    MAX_PLAIN_BYTES,
    VALUE_BYTES,
    packed,
    refused,
    unpacked,
    with_text,
)
from isthmus_operator.store import Inputs

SASL = {"mechanisms": ["SCRAM-SHA-256"], "usersSecretRef": {"name": "users", "key": "db"}}
NOW = datetime(2026, 11, 29, tzinfo=UTC)
GROUPS, USERS = 64, 1024
"""As many as the schema allows."""


def crowded(name: str, *, day: int = 1, users: int = USERS) -> dict[str, Any]:
    """A Router with a long policy, as the API server has it."""
    groups = [
        {"name": f"g{group}", "users": [f"u{group:02}{user:04}" for user in range(users)]}
        for group in range(GROUPS)
    ]
    made = f"2026-01-{day:02}T00:00:00Z"
    listener = {"name": "amqp", "port": 5672, "sasl": SASL}
    return router(
        name, meta={"creationTimestamp": made}, replicas=0, policy={"groups": groups}, listeners=[listener]
    )


def listed(*routers: dict[str, Any]) -> list[dict[str, Any]]:
    """What the index of kopf holds of them."""
    items = [{key: item[key] for key in ("metadata", "spec")} for item in routers]
    body = json.dumps({"kind": "RouterList", "items": items}).encode()
    return [copied(item, "Router", API_VERSION) for item in watched(body)["items"]]


def inputs(resources: list[dict[str, Any]], *secrets: dict[str, Any]) -> Inputs:
    return Inputs("net", resources, list(secrets), label_required=True)


class Api:
    """Has these resources."""

    def __init__(self, items: Iterable[dict[str, Any]]) -> None:
        self.items = {item["metadata"]["name"]: item for item in items}

    async def list(self, kind: str, namespace: str, *, fieldSelector: str) -> list[dict[str, Any]]:  # noqa: N803
        name = fieldSelector.removeprefix("metadata.name=")
        return [self.items[name]] if name in self.items else []


async def read(held: list[dict[str, Any]], *stored: dict[str, Any]) -> list[dict[str, Any]]:
    api: Any = Api(stored)
    return await completed(api, held)


def test_of_long_specifications_the_sizes_are_held() -> None:
    """As values, each of them took 4 MB, of an object of 0.8 MB, and 0.8 MB as text."""
    document = {"kind": "RouterList", "items": [crowded(f"r{number}") for number in range(10)]}
    body = json.dumps(document).encode()
    del document
    watched(json.dumps({"kind": "RouterList", "items": []}).encode())
    gc.collect()
    tracemalloc.start()
    held = watched(body)["items"]
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(held) == 10
    assert size < 0.01 * len(body)


@pytest.mark.parametrize("users", [1, USERS])
async def test_a_specification_is_judged_as_it_is(users: int) -> None:
    made = crowded("hub", users=users)
    (held,) = listed(made)
    event = json.loads(line(json.dumps({"type": "MODIFIED", "object": made}).encode()))
    for item in (held, copied(event["object"], "Router", API_VERSION)):
        assert users == 1 or len(json.dumps(item)) < 1000
        model = inputs(await read([item], made)).model(NOW)
        assert (model.routers["hub"].spec, model.invalid) == (parse(made).spec, ())


def test_short_specifications_are_held_as_they_are() -> None:
    item = connector("a", "b", "c", "edge")
    assert packed(item) is item
    assert unpacked(item) is item
    long = {**item, "spec": {"x": "y" * MAX_PLAIN_BYTES}}
    assert packed(long) != long
    assert unpacked(with_text(packed(long), long["spec"])) == long
    for odd in ({}, {"spec": None}, {"spec": [1]}, {"spec": {"\0": 1}}):
        assert unpacked(packed(odd)) == odd


async def test_resources_that_are_gone_or_replaced_are_left_out() -> None:
    made, again = crowded("hub"), crowded("new")
    held = listed(made, again, router("small"))
    again["metadata"]["uid"] = "another"
    assert [item["metadata"]["name"] for item in await read(held, again)] == ["small"]


def test_short_texts_with_many_values_are_long() -> None:
    made = router("hub", podTemplate={"spec": {"x": [[]] * 1000}})
    (held,) = [copied(made, "Router", API_VERSION)]
    assert len(json.dumps(made)) < MAX_PLAIN_BYTES / 8
    assert len(json.dumps(held)) < 500


async def test_a_namespace_has_room_for_the_oldest_long_specifications() -> None:
    number = 12
    stored = [crowded(f"r{day:02}", day=day) for day in range(number, 0, -1)]
    items = listed(*stored, router("small"))
    model = inputs(await read(items, *stored)).model(NOW)
    refused = [item.name for item in model.invalid]
    assert 0 < len(refused) < number
    assert refused == [f"r{day:02}" for day in range(number - len(refused) + 1, number + 1)]
    assert f"more than {MAX_LONG_BYTES >> 20} MiB" in model.invalid[0].message
    assert set(model.routers) == {item["metadata"]["name"] for item in items} - set(refused)


@pytest.mark.parametrize("value", [[[[]]], {"x": {"y": {}}}, [1, 2, 3]])
def test_lists_and_objects_count_as_values(value: Any) -> None:
    count = MAX_LONG_BYTES // (4 * VALUE_BYTES)
    held = packed(router("hub") | {"spec": {"values": [value] * count}})
    assert list(refused([held]))


async def test_secrets_that_a_long_specification_names_are_read() -> None:
    secret = {"kind": "Secret", "metadata": {"name": "users", "uid": "1"}}
    names, keys = _named(inputs(await read(listed(crowded("hub")), crowded("hub")), secret))
    assert names == {"users"}
    assert "db" in keys
