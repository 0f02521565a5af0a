"""Events of controllers that create no pods: one list for a namespace, with an age and bounds."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import yaml
from tests.unit.operator.support import router

from isthmus_operator.cluster import Cluster
from isthmus_operator.creations import AGE_SECONDS, MAX_PAGES, MAX_READING_SECONDS, CreationFailures
from isthmus_operator.decoding import LIST_CHUNK
from isthmus_operator.handlers.children import KINDS
from isthmus_operator.observe import Observer
from isthmus_operator.reconcile import Operator, Reconciliation
from isthmus_operator.render import RenderSettings
from isthmus_operator.resources.base import PAUSED_ANNOTATION
from isthmus_operator.store import Store

EVENTS = "/apis/events.k8s.io/v1/namespaces/net/events"


class Api:
    """An API server that has Events, no Secrets, and returns what is written."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.page_seconds = 0.0
        """How long it takes for a page of Events."""
        self.events: list[dict[str, Any]] = []
        self.status = 200
        """Of answers to lists of Events."""
        self.requests: Counter[tuple[str, str]] = Counter()
        self.selectors: set[str] = set()
        self.statuses: dict[str, dict[str, Any]] = {}

    async def param_serialize(
        self, verb: str, path: str, *, query_params: list[tuple[str, str]], body: Any, **_: Any
    ) -> tuple[Any, ...]:
        self.requests[verb, path] += 1
        return verb, path, dict(query_params), body, None

    async def call_api(self, verb: str, path: str, query: dict[str, str], body: Any, **_: Any) -> Answer:
        if (verb, path) == ("GET", EVENTS):
            return self._list(query)
        if verb == "GET":
            return Answer(404, {"reason": "NotFound"})
        if isinstance(body, str):  # an apply
            body = yaml.safe_load(body)
        if path.endswith("/status"):
            self.statuses[body["metadata"]["name"]] = body["status"]
        metadata = {"resourceVersion": "9", "uid": "u", **body["metadata"]}
        return Answer(200, {**body, "metadata": metadata})

    def _list(self, query: dict[str, str]) -> Answer:
        self.now += self.page_seconds
        self.selectors.add(query["fieldSelector"])
        begin, limit = int(query.get("continue", 0)), int(query["limit"])
        more = str(begin + limit) if begin + limit < len(self.events) else ""
        page = self.events[begin : begin + limit]
        return Answer(self.status, {"metadata": {"continue": more}, "items": page})


class Answer:
    reason = "?"

    def __init__(self, status: int, content: dict[str, Any]) -> None:
        self.status = status
        self._content = content

    async def read(self) -> bytes:
        return json.dumps(self._content).encode()


def event(of: str, note: str, **times: Any) -> dict[str, Any]:
    return {"regarding": {"kind": "StatefulSet", "name": of, "uid": f"uid-set-{of}"}, "note": note, **times}


def failures(api: Api) -> CreationFailures:
    return CreationFailures("net", Cluster(api), lambda: api.now)


async def test_one_list_of_events_serves_all_routers_of_a_namespace() -> None:
    api, names = Api(), [f"r{number}" for number in range(12)]
    paused = {"annotations": {PAUSED_ANNOTATION: "true"}}
    routers = [router(name, meta=paused, replicas=1) for name in names]
    for item in routers:
        item["metadata"]["resourceVersion"] = "7"
    children: dict[str, Any] = {kind: {} for kind in KINDS}
    children["StatefulSet"] = {"net": [stateful_set(name) for name in names]}
    api.events = [event(name, f"quota of {name}") for name in names[:5]]
    none: dict[str, Any] = {}
    store = Store({"net": routers}, *([none] * 9), children)
    observer = Observer(lambda _: None)
    settings = RenderSettings(router_image="router:1")
    one = Reconciliation("net", Operator(Cluster(api), settings, observer, "1", "pod", lambda: api.now))

    due = await one.look(store)
    assert api.requests["GET", EVENTS] == 1
    assert api.selectors == {"reason=FailedCreate,regarding.kind!=ReplicaSet"}
    assert due is not None
    assert 0 < due <= AGE_SECONDS
    shown = {name: json.dumps(status) for name, status in api.statuses.items() if name in names}
    assert [f"quota of {name}" in shown[name] for name in names] == [True] * 5 + [False] * 7
    for _ in range(3):
        await one.look(store)
    assert api.requests["GET", EVENTS] == 1
    api.now += AGE_SECONDS
    await one.look(store)
    assert api.requests["GET", EVENTS] == 2
    await observer.close()


def stateful_set(name: str) -> dict[str, Any]:
    owner = {"kind": "Router", "name": name, "uid": f"uid-{name}", "controller": True}
    metadata = {
        "name": name,
        "namespace": "net",
        "uid": f"uid-set-{name}",
        "resourceVersion": "7",
        "generation": 1,
        "ownerReferences": [owner],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata,
        "spec": {},
        "status": {"observedGeneration": 1},
    }


async def test_no_events_are_read_where_no_pods_are_missing() -> None:
    api = Api()
    found = failures(api)
    assert await found.of(()) == {}
    assert (found.due(), api.requests.total()) == (None, 0)


async def test_the_newest_failure_is_told_in_bounded_text() -> None:
    api = Api()
    api.events = [
        event("west", "old", deprecatedLastTimestamp="2030-01-01T00:00:00Z"),
        event("west", "x" * 5000, series={"lastObservedTime": "2030-01-03T00:00:00.000000Z"}),
        event("west", "older", eventTime="2030-01-02T00:00:00.000000Z"),
        event("west", "undated"),
        event("east", "of another one"),
    ]
    assert await failures(api).of({"uid-set-west"}) == {"uid-set-west": "x" * 1024}


async def test_a_reading_has_a_bound_of_pages() -> None:
    api = Api()
    api.events = [event(f"r{number}", "full") for number in range((MAX_PAGES + 20) * LIST_CHUNK)]
    found = await failures(api).of({item["regarding"]["uid"] for item in api.events})
    assert api.requests["GET", EVENTS] == MAX_PAGES
    assert len(found) == MAX_PAGES * LIST_CHUNK


async def test_a_reading_has_a_bound_of_time() -> None:
    api = Api()
    api.page_seconds = 0.5
    api.events = [event("west", "full")] * 1000
    found = failures(api)
    await found.of({"uid-set-west"})
    assert api.requests["GET", EVENTS] == MAX_READING_SECONDS / api.page_seconds
    assert found.due() == pytest.approx(AGE_SECONDS)


async def test_known_failures_stay_while_the_api_server_refuses() -> None:
    api = Api()
    api.events = [event("west", "full")]
    found = failures(api)
    before = dict(await found.of({"uid-set-west"}))
    api.now += AGE_SECONDS
    api.status = 500
    assert await found.of({"uid-set-west"}) == before == {"uid-set-west": "full"}
    assert api.requests["GET", EVENTS] == 2
    assert found.due() == pytest.approx(AGE_SECONDS)
