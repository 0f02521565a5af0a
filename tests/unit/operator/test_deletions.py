"""An object that is deleted while a watch begins again leaves the operator as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import kopf
import pytest
from kopf._cogs.clients import errors, watching
from kopf._cogs.structs import references
from kopf._core.actions import lifecycles
from kopf._core.engines import indexing
from kopf._core.reactor import inventory, processing
from tests.unit.operator.test_namespaces import Rights, watched

from isthmus_operator import handlers, namespaces, watch_failures
from isthmus_operator.cluster import ENDPOINTS
from isthmus_operator.names import LABEL_MANAGED_BY, MANAGER
from isthmus_operator.namespaces import KINDS, Namespaces
from isthmus_operator.settings import kopf_settings
from isthmus_operator.watch_failures import WatchFailures

Seen = tuple[str | None, str, str]
"""Type of an event, and the name and uid of its object."""


def resource(kind: str) -> references.Resource:
    endpoint = ENDPOINTS[kind]
    group, _, version = endpoint.api_version.rpartition("/")
    return references.Resource(group, version, endpoint.plural, kind=kind, namespaced=True)


ROUTERS = resource("Router")


def event(kind: str | None, name: str, uid: str = "", namespace: str = "net") -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "uid": uid or f"uid-{name}"}
    return {"type": kind, "object": {"metadata": metadata}}


class Watches:
    """What kopf's own watches bring, each until it ends."""

    def __init__(self, *watches: list[Any]) -> None:
        self._watches = list(watches)

    async def __call__(self, **_: Any) -> AsyncIterator[Any]:
        for item in self._watches.pop(0):
            if isinstance(item, Exception):
                raise item
            yield item


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "continuous_watch", watching.continuous_watch)
    monkeypatch.setattr(watch_failures, "FIRST_PAUSE_SECONDS", 0.001)


async def news(watches: int, place: str | None = None, what: references.Resource = ROUTERS) -> list[Any]:
    """The last one of so many watches."""
    found: list[Any] = []
    for _ in range(watches):
        found = []
        stream = watching.continuous_watch(
            settings=kopf.OperatorSettings(),
            resource=what,
            namespace=references.NamespaceName(place) if place else None,
            operator_pause_waiter=asyncio.Future(),
        )
        async for item in stream:
            found.append(item)
    return found


def seen(items: list[Any]) -> Iterator[Seen | str]:
    for item in items:
        if item is watching.Bookmark.LISTED:
            yield "listed"
        else:
            metadata = item["object"]["metadata"]
            yield item["type"], metadata["name"], metadata["uid"]


def installed(monkeypatch: pytest.MonkeyPatch, watches: Watches) -> None:
    monkeypatch.setattr(namespaces, "_continuous_watch", watches)
    Namespaces(Rights(), (), lambda _: None).install(WatchFailures())  # type: ignore[arg-type]


LISTED = watching.Bookmark.LISTED
BEFORE = [event(None, "a"), event(None, "b"), LISTED]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (BEFORE, BEFORE, [(None, "a", "uid-a"), (None, "b", "uid-b"), "listed"]),
        (BEFORE, [event(None, "b"), LISTED], [(None, "b", "uid-b"), ("DELETED", "a", "uid-a"), "listed"]),
        (
            [*BEFORE, event("ADDED", "c"), event("DELETED", "a")],
            [event(None, "b"), LISTED],
            [(None, "b", "uid-b"), ("DELETED", "c", "uid-c"), "listed"],
        ),
        (
            BEFORE,
            [event(None, "a", "new"), event(None, "b"), LISTED, event("DELETED", "b")],
            [
                *(("DELETED", "a", "uid-a"), (None, "a", "new"), (None, "b", "uid-b"), "listed"),
                ("DELETED", "b", "uid-b"),
            ],
        ),
        (
            [*BEFORE, event("ADDED", "a", "new"), event("DELETED", "a")],
            [event(None, "b"), LISTED],
            [(None, "b", "uid-b"), ("DELETED", "a", "new"), "listed"],
        ),
        (
            [*BEFORE, {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}],
            [LISTED],
            [("DELETED", "a", "uid-a"), ("DELETED", "b", "uid-b"), "listed"],
        ),
        (BEFORE, [event(None, "b")], [(None, "b", "uid-b")]),
        ([event(None, "a")], [LISTED], [("DELETED", "a", "uid-a"), "listed"]),
    ],
)
async def test_what_a_new_list_lacks_is_deleted(
    monkeypatch: pytest.MonkeyPatch, first: list[Any], second: list[Any], expected: list[Seen | str]
) -> None:
    installed(monkeypatch, Watches(first, second))
    assert list(seen(await news(2))) == expected


async def test_an_interrupted_list_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the list after it is complete, its objects are not known."""
    broken = [event(None, "a"), errors.APIServerError({"message": "x"}, status=500, headers={})]  # type: ignore[arg-type]
    installed(monkeypatch, Watches(BEFORE, broken, [event(None, "b"), LISTED]))
    monkeypatch.setattr(watch_failures, "FIRST_PAUSE_SECONDS", 0.01)
    await news(1)
    assert list(seen(await news(1))) == [(None, "a", "uid-a")]
    assert list(seen(await news(1))) == [(None, "b", "uid-b"), ("DELETED", "a", "uid-a"), "listed"]


async def test_lists_of_other_kinds_and_namespaces_delete_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, Watches(BEFORE, [LISTED], [LISTED], [LISTED]))
    await news(1, "net")
    assert await news(1, "other") == [LISTED]
    assert await news(1, "net", resource("Service")) == [LISTED]
    assert len(await news(1, "net")) == 3


@pytest.mark.parametrize("kind", KINDS)
async def test_such_an_object_leaves_its_index_and_wakes_the_reconciler(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    what = resource(kind)
    first = event(None, "a")
    first["object"] |= {"apiVersion": ENDPOINTS[kind].api_version, "kind": kind, "spec": {}}
    first["object"]["metadata"] |= {"resourceVersion": "1", "labels": {LABEL_MANAGED_BY: MANAGER}}
    installed(monkeypatch, Watches([first, LISTED], [LISTED]))
    registry, indexers = handlers.registry(), indexing.OperatorIndexers()
    indexers.ensure(registry._indexing.get_all_handlers())
    woken: list[str] = []
    reconciler = SimpleNamespace(trigger=woken.append, nudge=woken.append)
    memories = inventory.ResourceMemories()

    async def process(items: list[Any]) -> Mapping[str, int]:
        for item in items:
            if item is LISTED:
                continue
            await processing.process_resource_event(
                lifecycle=lifecycles.all_at_once,
                indexers=indexers,
                registry=registry,
                settings=kopf_settings(),
                memories=memories,
                memobase=kopf.Memo(reconciler=reconciler),
                resource=what,
                raw_event=item,
                event_queue=asyncio.Queue(),
            )
        return {name: len(found.index) for name, found in indexers.items() if found.index}

    held = await process(await news(1))
    assert list(held.values()) == [1]
    assert woken == ["net"]
    assert await process(await news(1)) == {}
    assert woken == ["net", "net"]


async def test_kopf_lists_again_after_its_watch_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Restarting(Rights):
        """Ends its watches, as after status 410, and has no Router of namespace b from then on."""

        def __init__(self) -> None:
            super().__init__()
            self.begun: set[str] = set()

        async def watch(self, *, namespace: str | None, **arguments: Any) -> AsyncIterator[Any]:
            assert namespace is not None
            if namespace not in self.begun or namespace == "a":
                yield event(None, "hub", namespace=namespace)
            yield LISTED
            if namespace in self.begun:
                await asyncio.Event().wait()
            self.begun.add(namespace)

    async with watched(Restarting(), monkeypatch) as (_, found, _), asyncio.timeout(10):
        while ("DELETED", "b") not in found:  # noqa: ASYNC110 - nobody here can signal it
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert sorted(found) == [("DELETED", "b"), ("None", "a"), ("None", "a"), ("None", "b")]
