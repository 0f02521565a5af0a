"""A namespace that the operator may not read concerns no other namespace."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import kopf
import pytest
from kopf._cogs.aiokits import aiotoggles
from kopf._cogs.clients import errors, watching
from kopf._cogs.structs import references
from kopf._core.reactor import orchestration

from isthmus_operator import __main__ as main
from isthmus_operator import namespaces, watch_failures
from isthmus_operator.cluster import ApiError, Cluster
from isthmus_operator.metrics import UNREADABLE, WATCH_FAILURES
from isthmus_operator.namespaces import KINDS, Namespaces
from isthmus_operator.store import Store
from isthmus_operator.watch_failures import WatchFailures
from isthmus_operator.watchdog import Watchdog

ROUTERS = references.Resource("isthmus.dev", "v1alpha1", "routers", kind="Router", namespaced=True)
PODS = references.Resource("", "v1", "pods", kind="Pod", namespaced=True)
Event = tuple[str, str]


def router(namespace: str, version: str = "1") -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": "hub", "uid": f"uid-{namespace}", "resourceVersion": version}
    return {"kind": "Router", "metadata": metadata}


class Rights:
    """An API server that refuses some namespaces, to kopf and to the operator."""

    def __init__(self, *refused: str) -> None:
        self.refused = set(refused)
        self.faults: dict[str, Exception] = {}
        """By namespace, what the next watch there fails with."""

    async def watch(self, *, namespace: str | None, **_: Any) -> AsyncIterator[Any]:
        """In place of kopf's own: a list of one Router, then news until the rights change."""
        assert namespace is not None
        if namespace not in self.refused:
            yield {"type": None, "object": router(namespace)}
            yield watching.Bookmark.LISTED
            while namespace not in self.refused:
                if (fault := self.faults.pop(namespace, None)) is not None:
                    raise fault
                await asyncio.sleep(0.01)
        raise errors.APIForbiddenError({"message": "forbidden"}, status=403, headers={})  # type: ignore[arg-type]

    async def pages(
        self, kind: str, namespace: str | None, **_: str
    ) -> AsyncIterator[Sequence[dict[str, Any]]]:
        if namespace in self.refused:
            raise ApiError(403, "Forbidden", "no")
        yield [router(namespace)] if kind == "Router" and namespace is not None else []


@contextlib.asynccontextmanager
async def watched(
    rights: Rights,
    monkeypatch: pytest.MonkeyPatch,
    retry: float = 60.0,
    kinds: Sequence[references.Resource] = (ROUTERS,),
) -> AsyncIterator[tuple[Namespaces, list[Event], list[str]]]:
    """kopf with two namespaces, what it processes, and the namespaces that the operator has lost."""
    monkeypatch.setattr(watching, "continuous_watch", rights.watch)
    monkeypatch.setattr(namespaces, "_continuous_watch", rights.watch)
    monkeypatch.setattr(namespaces, "RETRY_SECONDS", retry)
    monkeypatch.setattr(watch_failures, "FIRST_PAUSE_SECONDS", 0.05)
    seen: list[Event] = []
    lost: list[str] = []
    found = Namespaces(rights, ("a", "b"), lost.append)  # type: ignore[arg-type]
    found.install(WatchFailures())
    insights = found.insights

    async def process(*, raw_event: Any, resource_indexed: Any, operator_indexed: Any, **_: Any) -> None:
        if resource_indexed is not None:
            await operator_indexed.drop_toggle(resource_indexed)
        if operator_indexed is not None:
            await operator_indexed.wait_for(True)
        seen.append((str(raw_event["type"]), raw_event["object"]["metadata"]["namespace"]))

    settings = kopf.OperatorSettings()
    settings.queueing.exit_timeout = settings.queueing.idle_timeout = 0.1
    insights.watched_resources.update(kinds)
    insights.indexed_resources.update(kinds)
    tasks = [
        asyncio.create_task(
            orchestration.orchestrator(
                processor=process,  # type: ignore[arg-type]
                settings=settings,
                identity="me",  # type: ignore[arg-type]
                insights=insights,
                operator_paused=aiotoggles.ToggleSet(any),
            )
        ),
        asyncio.create_task(found.run()),
    ]
    await asyncio.sleep(0.01)
    async with insights.revised:
        insights.namespaces.update(map(references.NamespaceName, ("a", "b")))
        insights.revised.notify_all()
    try:
        yield found, seen, lost
        assert not any(task.done() for task in tasks), tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def until(check: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not check():  # noqa: ASYNC110 - nobody here can signal it
            await asyncio.sleep(0.01)


async def test_a_namespace_that_is_refused_at_the_start_does_not_hold_up_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with watched(Rights("b"), monkeypatch) as (found, seen, lost):
        began = found.delivered_at
        await until(lambda: seen)
        assert found.delivered_at > began
        assert seen == [("None", "a")]
        assert (lost, found.readable, list(found.refused)) == (["b"], ["a"], ["b"])
        await until(lambda: found.insights.namespaces == {"a"})


async def test_a_namespace_that_is_refused_later_does_not_end_the_watches_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rights = Rights()
    async with watched(rights, monkeypatch) as (found, seen, lost):
        await until(lambda: len(seen) == 2)
        rights.refused.add("b")
        await until(lambda: lost)
        await until(lambda: found.insights.namespaces == {"a"})
        await asyncio.sleep(0.3)


@pytest.mark.parametrize(
    "fault",
    [
        watching.WatchingError("Error in the watch-stream: status 500"),
        errors.APIServerError({"message": "broken"}, status=500, headers={}),  # type: ignore[arg-type]
        errors.APIClientError({"message": "expired"}, status=410, headers={}),  # type: ignore[arg-type]
        ValueError("not JSON"),
    ],
)
async def test_a_watch_that_fails_begins_again_and_ends_no_other(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    rights = Rights()
    before = WATCH_FAILURES.labels("routers")._value.get()
    async with watched(rights, monkeypatch) as (found, seen, lost):
        await until(lambda: len(seen) == 2)
        rights.faults["b"] = fault
        await until(lambda: len(seen) == 3)
        assert seen[2] == ("None", "b")
        assert (lost, found.readable) == ([], ["a", "b"])
    assert WATCH_FAILURES.labels("routers")._value.get() == before + 1


class Broken(Rights):
    """The list of namespace `b` fails with status 500 for as long as `broken` says."""

    broken = True

    async def watch(self, *, namespace: str | None, **arguments: Any) -> AsyncIterator[Any]:
        if namespace == "b" and self.broken:
            raise errors.APIServerError({"message": "unable to transform key"}, status=500, headers={})  # type: ignore[arg-type]
        async for item in super().watch(namespace=namespace, **arguments):
            yield item


async def test_a_namespace_whose_watch_fails_for_long_is_given_up_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch_failures, "MOST_SECONDS", 0.1)
    rights = Broken()
    async with watched(rights, monkeypatch, retry=0.5) as (found, seen, lost):
        await until(lambda: seen)
        assert (lost, found.readable, seen) == (["b"], ["a"], [("None", "a")])
        assert (
            "the operator does nothing in namespace b, which it cannot read: the watch of routers"
            in caplog.text
        )
        assert "unable to transform key" in caplog.text
        rights.broken = False
        await until(lambda: ("None", "b") in seen)
        assert found.readable == ["a", "b"]


async def test_the_lists_of_a_refused_namespace_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """kopf waits for the lists of watches that it has cancelled."""

    class TwoKinds(Broken):
        async def watch(
            self, *, resource: Any, namespace: str | None, **arguments: Any
        ) -> AsyncIterator[Any]:
            if resource == PODS and namespace == "b":
                await asyncio.sleep(0.5)  # its list takes longer
            if resource == PODS:
                yield watching.Bookmark.LISTED
                await asyncio.sleep(60)
            async for item in super().watch(namespace=namespace, **arguments):
                yield item

    monkeypatch.setattr(watch_failures, "MOST_SECONDS", 0.1)
    async with watched(TwoKinds(), monkeypatch, kinds=(ROUTERS, PODS)) as (found, seen, lost):
        await until(lambda: seen)
        assert (lost, found.readable, seen) == (["b"], ["a"], [("None", "a")])
        await until(lambda: found.insights.namespaces == {"a"})


class Unanswered(Rights):
    """Lists of namespace `b` do not end, as after an answer with a long `Retry-After`, or end without a word."""

    def __init__(self, *, hang: bool) -> None:
        super().__init__()
        self.hang = hang
        self.left = 3
        """Lists that do not end."""

    async def watch(self, *, namespace: str | None, **arguments: Any) -> AsyncIterator[Any]:
        if namespace == "b" and self.left:
            self.left -= 1
            if self.hang:
                await asyncio.sleep(3600)
            return
        async for item in super().watch(namespace=namespace, **arguments):
            yield item


@pytest.mark.parametrize("hang", [True, False])
async def test_a_list_that_does_not_end_begins_again(monkeypatch: pytest.MonkeyPatch, hang: bool) -> None:
    monkeypatch.setattr(namespaces, "LIST_SECONDS", 0.05)
    before = WATCH_FAILURES.labels("routers")._value.get()
    rights = Unanswered(hang=hang)
    async with watched(rights, monkeypatch) as (found, seen, _):
        await until(lambda: len(seen) == 2)
        assert sorted(seen) == [("None", "a"), ("None", "b")]
        assert found.readable == ["a", "b"]
        await asyncio.sleep(0.2)  # longer than a list may take without an object: the watches stay
    assert rights.left == 0
    assert WATCH_FAILURES.labels("routers")._value.get() == before + 3


@pytest.mark.parametrize(
    ("seconds", "pauses"), [(0.0, [1, 2, 4, 8, 16, 30, 30]), (4.9, [1, 2, 4]), (5.1, [])]
)
async def test_watches_that_end_right_after_their_lists_begin_again_in_pauses_that_grow(
    seconds: float, pauses: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """kopf ends a watch of status 410 without a word."""
    now, slept = 0.0, []

    async def sleep(duration: float) -> None:
        nonlocal now
        now += duration
        slept.append(duration)

    async def gone(**_: Any) -> AsyncIterator[Any]:
        nonlocal now
        now += 20  # the time of the list does not count
        yield {"type": None, "object": router("a")}
        yield watching.Bookmark.LISTED
        now += seconds

    monkeypatch.setattr(namespaces, "_continuous_watch", gone)
    monkeypatch.setattr(watching, "continuous_watch", None)
    monkeypatch.setattr(watch_failures.asyncio, "sleep", sleep)
    Namespaces(Rights(), (), lambda _: None).install(WatchFailures(lambda: now))  # type: ignore[arg-type]
    before = WATCH_FAILURES.labels("routers")._value.get()
    for _ in range(max(3, len(pauses))):
        watch: Any = watching.continuous_watch(namespace=None, resource=ROUTERS)  # type: ignore[call-arg]
        assert len([item async for item in watch]) == 2
    assert slept == pauses
    assert WATCH_FAILURES.labels("routers")._value.get() == before + len(pauses)
    assert ("ended right after its list, for example with status 410" in caplog.text) == bool(pauses)


async def test_bookmarks_are_nothing_that_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "2"}}}

    class Bookmarks(Rights):
        async def watch(self, *, namespace: str | None, **_: Any) -> AsyncIterator[Any]:
            yield watching.Bookmark.LISTED
            for _ in range(3):
                await asyncio.sleep(0.01)
                yield bookmark
            yield {"type": "ADDED", "object": router("a")}

    monkeypatch.setattr(namespaces, "_continuous_watch", Bookmarks().watch)
    monkeypatch.setattr(watching, "continuous_watch", None)
    found = Namespaces(Rights(), (), lambda _: None)  # type: ignore[arg-type]
    found.install(WatchFailures())
    delivered: list[float] = []
    async for _ in watching.continuous_watch(namespace=None, resource=ROUTERS):  # type: ignore[call-arg]
        delivered.append(found.delivered_at)
    assert delivered[0] == delivered[1] == delivered[2] == delivered[3] < delivered[4]


async def test_a_namespace_that_may_be_read_again_is_watched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rights = Rights()
    async with watched(rights, monkeypatch, retry=1.0) as (found, seen, lost):
        await until(lambda: len(seen) == 2)
        found.indexers["routers"] = index = namespaces.indexing.OperatorIndexer()
        for name in ("a", "b"):
            key = references.NamespaceName(name), "hub", f"uid-{name}"
            index.replace(key, {name: router(name)})
        rights.refused.add("b")
        await until(lambda: lost)
        rights.refused.clear()
        await until(lambda: len(seen) == 3)
        assert seen[2] == ("None", "b")
        assert (found.readable, list(found.refused)) == (["a", "b"], [])
        assert list(index.index) == ["a"]  # what was deleted meanwhile is not in it


@pytest.mark.parametrize(
    ("refused", "readable"), [((), ["a", "b"]), (("a",), ["b"]), (("b",), ["a"]), (("a", "b"), [])]
)
async def test_the_operator_begins_with_the_namespaces_that_it_may_read(
    refused: tuple[str, ...], readable: list[str]
) -> None:
    found = Namespaces(Rights(*refused), ("a", "b"), lambda _: None)  # type: ignore[arg-type]
    assert await found.find() is bool(readable)
    assert found.readable == readable


async def test_the_right_to_list_each_kind_is_examined() -> None:
    class Partly(Rights):
        async def pages(self, kind: str, namespace: str | None, **_: str) -> AsyncIterator[Any]:
            if (kind, namespace) == (KINDS[-1], "a"):
                raise ApiError(403, "Forbidden", "no")
            yield []

    found = Namespaces(Partly(), ("a", "b"), lambda _: None)  # type: ignore[arg-type]
    assert await found.find()
    assert found.readable == ["b"]


class Failing(Rights):
    """Lists of some namespaces fail, those of Secrets with `error`."""

    def __init__(self, error: ApiError, *failing: str | None) -> None:
        super().__init__()
        self.error = error
        self.failing = set(failing)

    async def pages(self, kind: str, namespace: str | None, **_: Any) -> AsyncIterator[Any]:
        if kind == "Secret" and namespace in self.failing:
            yield []  # one object can be read, and a later one cannot
            raise self.error
        yield []


UNDECRYPTED = ApiError(500, "InternalError", "unable to transform key")


@pytest.mark.parametrize("status", [500, 502, 504, 0, 429])
async def test_a_namespace_whose_lists_fail_holds_up_no_other(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    error = ApiError(status, "InternalError", "unable to transform key")
    found = Namespaces(Failing(error, "b"), ("a", "b"), lambda _: None)  # type: ignore[arg-type]
    assert await found.find()
    assert (found.readable, list(found.refused)) == (["a"], ["b"])
    assert UNREADABLE._value.get() == 1
    assert (
        "the operator does nothing in namespace b, which it cannot read: the list of secrets failed with status "
        f"{status}: unable to transform key"
    ) in caplog.text


async def test_a_namespace_whose_lists_do_not_fail_any_more_is_watched_again() -> None:
    server = Failing(UNDECRYPTED, "b")
    found = Namespaces(server, ("a", "b"), lambda _: None)  # type: ignore[arg-type]
    assert await found.find()
    await found._retry("b")
    assert found.readable == ["a"]
    server.failing.clear()
    await found._retry("b")
    assert found.readable == ["a", "b"]
    assert found.insights.namespaces == {"b"}


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (
            404,
            "waiting for the CustomResourceDefinitions of isthmus.dev: the list of secrets failed with status 404",
        ),
        (0, "waiting for the API server: the list of secrets failed with status 0: unable to"),
        (500, "waiting for the API server: the list of secrets failed with status 500: unable to"),
    ],
)
async def test_what_the_operator_waits_for_is_logged(
    status: int, text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(main, "RETRY_SECONDS", 0.01)

    class Waiting(Failing):
        """Fails until that is logged."""

        async def pages(self, kind: str, namespace: str | None, **_: Any) -> AsyncIterator[Any]:
            if kind == "Secret" and text not in caplog.text:
                raise self.error
            yield []

    error = ApiError(status, "", "unable to transform key")
    found = Namespaces(Waiting(error), (), lambda _: None)  # type: ignore[arg-type]
    await asyncio.wait_for(main._anything_readable(found), 10)


@pytest.mark.parametrize("status", [403, 404, 500])
@pytest.mark.parametrize("names", [(), ("a", "b")])
async def test_an_operator_that_can_watch_nothing_is_not_ready(status: int, names: tuple[str, ...]) -> None:
    """Without the rights or a CustomResourceDefinition, it led, was ready, and no metric stated that it did nothing."""

    class Lacking(Rights):
        lacks = True

        async def pages(self, kind: str, namespace: str | None, **_: Any) -> AsyncIterator[Any]:
            if self.lacks and kind == "Router":
                raise ApiError(status, "", "no")
            yield []

    server = Lacking()
    found = Namespaces(server, names, lambda _: None)  # type: ignore[arg-type]
    assert found.waits is None
    try:
        assert not await found.find()
    except ApiError:
        assert status != 403
    assert found.waits
    assert UNREADABLE._value.get() == (len(names) or 1)
    server.lacks = False
    assert await found.find()
    assert found.waits is None
    assert UNREADABLE._value.get() == 0


async def test_an_api_server_that_cannot_be_reached_refuses_nothing() -> None:
    class Gone(Rights):
        async def pages(self, kind: str, namespace: str | None, **_: str) -> AsyncIterator[Any]:
            raise ApiError(0, "Unreachable", "no answer")
            yield []

    found = Namespaces(Gone(), ("a",), lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(ApiError):
        await found.find()
    assert found.readable == ["a"]


def store(unreadable: set[str]) -> Store:
    routers = {name: [router(name)] for name in ("a", "b")}
    none: dict[str, Any] = {}
    return Store(
        routers, none, none, none, none, none, none, none, none, none, children={}, unreadable=unreadable
    )


def test_resources_of_a_namespace_that_may_not_be_read_do_not_count() -> None:
    """The operator may have the Routers of the namespace and not their Connectors."""
    refused: set[str] = set()
    found = store(refused)
    assert found.namespaces() == {"a", "b"}
    refused.add("b")
    assert found.namespaces() == {"a"}
    assert found.resources("b") == []
    assert len(found.resources("a")) == 1


@pytest.fixture
def reconciler() -> Any:
    class Reconciler:
        store = store(set())

        def stuck(self) -> None:
            return None

        def attends(self, namespace: str) -> bool:
            return True

    Reconciler.store.routers["a"][0]["metadata"]["resourceVersion"] = "0"  # type: ignore[index]
    return Reconciler()


async def test_the_watchdog_examines_namespaces_beside_one_that_it_may_not_read(reconciler: Any) -> None:
    dog = Watchdog(Rights("b"), reconciler, lambda: ["b", "a"], lambda *_: None, lambda: 0.0)  # type: ignore[arg-type]
    await dog.check()
    await dog.check()
    assert dog.trouble == "the watches have not delivered 1 objects"


async def test_the_watchdog_examines_namespaces_beside_one_whose_lists_fail(reconciler: Any) -> None:
    class Partly(Rights):
        async def pages(self, kind: str, namespace: str | None, **_: Any) -> AsyncIterator[Any]:
            if namespace == "b":
                raise UNDECRYPTED
            yield [router("a")] if kind == "Router" else []

    dog = Watchdog(Partly(), reconciler, lambda: ["b", "a"], lambda *_: None, lambda: 0.0)  # type: ignore[arg-type]
    await dog.check()
    await dog.check()
    assert dog.trouble == "the watches have not delivered 1 objects"


@pytest.mark.parametrize("answer", [{}, {"items": {}}, {"items": "x"}])
async def test_an_answer_that_is_no_list_is_a_failure_of_the_list(
    answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def request(_self: Cluster, _verb: str, path: str, *_: Any, **__: Any) -> dict[str, Any]:
        return answer if path == "/api/v1/namespaces/b/secrets" else {"items": None}

    monkeypatch.setattr(Cluster, "_request", request)
    cluster = Cluster(None)  # type: ignore[arg-type]
    found = Namespaces(cluster, ("a", "b"), lambda _: None)
    assert await found.find()
    assert found.readable == ["a"]
