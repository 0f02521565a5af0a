"""Objects of the API server with thousands of levels are read, watched and judged like others."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import kopf
import pytest
from aiohttp import web
from kubernetes.aio import client as kubernetes_client
from tests.unit.operator.support import router

from isthmus_operator import decoding
from isthmus_operator.cluster import Cluster
from isthmus_operator.decoding import LONG_BYTES, MAX_LEVELS, decoded, line, shallow
from isthmus_operator.handlers.watching import copied
from isthmus_operator.model import NamespaceModel
from isthmus_operator.resources import InvalidResourceError, parse
from isthmus_operator.store import slim
from isthmus_operator.watch_session import Sessions

LEVELS = [100, 600, 5_000, 9_999]
"""The API server itself takes 10,000."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[tuple[str, aiohttp.ClientSession, Cluster]]:
    """An API server that answers by `handler`: its URL, the session of kopf and the operator's own client."""
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    session = (await Sessions().session(kopf.ConnectionInfo(server=url))).aiohttp_session
    configuration = kubernetes_client.Configuration(host=url)  # type: ignore[no-untyped-call]
    cluster = Cluster(kubernetes_client.ApiClient(configuration))
    try:
        async with asyncio.timeout(60):
            yield url, session, cluster
    finally:
        await session.close()
        await cluster.close()
        await runner.cleanup()


def nested(levels: int, opening: str = '{"a":', closing: str = "}") -> str:
    return opening * levels + "1" + closing * levels


def deep_router(levels: int) -> str:
    manifest = router("deep", podTemplate={"spec": {"affinity": "HERE"}})
    manifest["metadata"]["resourceVersion"] = "7"
    return json.dumps(manifest).replace('"HERE"', nested(levels))


def depth(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else 1 + max(map(depth, children), default=0)


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ('{"}":[', "]}")])
def test_what_is_too_deep_is_left_out(levels: int, opening: str, closing: str) -> None:
    body = f'{{"before": 1, "deep": {nested(levels, opening, closing)}, "after": [2, {{"b": "}}"}}]}}'
    found = decoded(body)
    assert depth(found) == MAX_LEVELS
    assert (found["before"], found["after"]) == (1, [2, {"b": "}"}])


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": "[[[[{{{{", "b": "\\"[[", "c": "\\\\"}',
        b"[]" * 3,
        b'{"a": [1, {"b": 2}]}',
        b"no JSON",
    ],
)
def test_everything_else_is_as_it_was(body: bytes) -> None:
    assert shallow(body, 3) == body


def test_siblings_are_cut_one_by_one() -> None:
    assert json.loads(shallow(b'[[[1], {"x": 2}], [3, [4]], "[[["]', 2)) == [[None, None], [3, None], "[[["]


@pytest.mark.parametrize("body", [b"[" * 1_000_000, b'"\\' * 500_000, b'[{"' * 300_000], ids=str)
def test_hostile_documents_take_linear_time(body: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(ValueError, match=r"\w"):
        decoded(body)
    assert time.process_time() - begun < 10


@pytest.mark.parametrize("levels", LEVELS)
async def test_watches_and_answers_bring_deep_objects(levels: int) -> None:
    """Through the session of kopf and through the operator's own client, over HTTP."""
    item = deep_router(levels)

    async def objects(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(text=f'{{"items": [{item}]}}', content_type="application/json")
        answer = web.StreamResponse()
        await answer.prepare(request)
        line = f'{{"type": "ADDED", "object": {item}}}\n'.encode() * 2
        for begin in range(0, len(line), 1 + len(line) // 7):
            await answer.write(line[begin : begin + 1 + len(line) // 7])
        return answer

    async with served(objects) as (url, session, cluster):
        async with session.get(f"{url}/list") as response:
            listed = (await response.json())["items"][0]
        async with session.get(f"{url}/watch?watch=true") as response:
            lines = b"".join([part async for part in response.content.iter_chunked(1000)]).splitlines()
        read = (await cluster.list("Router", "net"))[0]
    events = [json.loads(line) for line in lines]
    assert len(events) == 2
    for found in (listed, read, *(event["object"] for event in events)):
        assert found["metadata"]["resourceVersion"] == "7"
        assert 3 < depth(found) <= MAX_LEVELS


async def test_watches_bring_no_content_of_secrets_and_the_client_does() -> None:
    metadata = {"name": "large", "namespace": "net", "uid": "u", "resourceVersion": "7"}
    secret = {"metadata": metadata, "type": "Opaque", "data": {"a": "x" * LONG_BYTES}}

    async def secrets(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            text = json.dumps({"type": "ADDED", "object": {"kind": "Secret", **secret}}) + "\n"
        elif request.path.endswith("/large"):
            text = json.dumps({"kind": "Secret", **secret})
        else:
            text = json.dumps({"kind": "SecretList", "metadata": {"continue": "more"}, "items": [secret]})
        return web.Response(text=text, content_type="application/json")

    async with served(secrets) as (url, session, cluster):
        async with session.get(f"{url}/list") as response:
            listed = await response.json()
        async with session.get(f"{url}/watch?watch=true") as response:
            event = json.loads(b"".join([part async for part in response.content.iter_chunked(1000)]))
        read = await cluster.get("Secret", "net", "large")
    assert listed["metadata"]["continue"] == "more"
    for found in (listed["items"][0], event["object"]):
        assert found["metadata"]["resourceVersion"] == "7"
        assert found["type"] == "Opaque"
        assert "data" not in found
    assert read is not None
    assert read["data"] == secret["data"]


@pytest.mark.parametrize("levels", [25, *LEVELS])
def test_a_deep_object_is_kept_and_judged(levels: int) -> None:
    """The index has the object with its version, as the watchdog expects, and its condition states the error."""
    deep: Any = 1
    for _ in range(levels):
        deep = {"a": deep}
    body = router("deep", podTemplate={"spec": {"affinity": deep}})
    body["metadata"] |= {"resourceVersion": "7", "managedFields": [deep]}
    kept = slim(body, "Router", body["apiVersion"])
    assert kept["metadata"]["resourceVersion"] == "7"
    assert "managedFields" not in kept["metadata"]
    model = NamespaceModel.from_manifests("net", [kept, router("other")])
    assert list(model.routers) == ["other"]
    [invalid] = model.invalid
    assert "24 objects and lists in each other" in invalid.message


def test_the_depth_of_pods_is_enough_for_all_fields() -> None:
    deep: Any = [1]
    for _ in range(10):
        deep = [{"a": deep}]
    assert parse(router("r", podTemplate={"spec": {"x": deep}}))
    with pytest.raises(InvalidResourceError):
        parse(router("r", podTemplate={"spec": {"x": [{"a": {"b": deep}}]}}))


def test_many_lists_in_many_objects() -> None:
    """The list of five Routers took 16 s: longer than the lease lasts."""
    template = {"spec": {"tolerations": [[]] * 400_000}}
    manifests = [router(f"r{number}", podTemplate=template) for number in range(2)]
    body = json.dumps({"items": manifests, "others": ["]", "[", {"a": "}{"}]}).encode()
    begun = time.process_time()
    assert shallow(body) is body
    assert time.process_time() - begun < 0.3
    found = decoded(body)
    assert len(json.dumps(found)) < 60_000
    with pytest.raises(InvalidResourceError, match=r"podTemplate\.spec: more than 5000 values"):
        parse(found["items"][1])
    event = json.dumps({"type": "ADDED", "object": manifests[0]}).encode()
    assert len(line(event)) < 30_000
    assert json.loads(line(event))["object"]["metadata"] == manifests[0]["metadata"] | {"annotations": {}}


def test_a_pod_template_of_many_values_is_refused() -> None:
    spec = {"containers": [{"name": f"c{number}", "image": "i"} for number in range(1600)]}
    assert parse(router("fits", podTemplate={"spec": spec}))
    spec["containers"] += spec["containers"][:100]
    with pytest.raises(InvalidResourceError, match=r"podTemplate\.spec: more than 5000 values"):
        parse(router("many", podTemplate={"spec": spec}))


@pytest.mark.parametrize("where", ["list", "watch", "client"])
async def test_long_documents_are_decoded_apart(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the event loop, which renews the lease."""
    begun: list[int] = []
    original = decoding._cut

    def seen(value: Any) -> Any:
        begun.append(threading.get_ident())
        return original(value)

    monkeypatch.setattr(decoding, "_cut", seen)
    text = json.dumps({"items": [{"kind": "Router", "text": "x" * LONG_BYTES}]})

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type="application/json")

    async with served(answer) as (url, session, cluster):
        if where == "client":
            assert await cluster.list("Router", "net")
        else:
            async with session.get(url) as response:
                if where == "list":
                    assert (await response.json())["items"]
                else:
                    assert [part async for part in response.content.iter_chunked(100_000)]
    assert begun
    assert threading.get_ident() not in begun


def owned(entries: int, **metadata: Any) -> dict[str, Any]:
    """A LinkRoute whose `managedFields` have `entries` objects that are nested 48 levels deep."""
    deep: dict[str, Any] = {}
    for _ in range(48):
        deep = {"f:a": deep}
    fields = {f"f:{number}": deep for number in range(entries)}
    entry = {"manager": "foo", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": fields}}}
    return {
        "metadata": {"name": "r", "uid": "u", "resourceVersion": "7", "managedFields": [entry], **metadata},
        "spec": {"prefix": "a", "containerId": "c"},
    }


MANY = {f"a{number}": "" for number in range(100_000)}
LARGE: dict[str, dict[str, Any]] = {
    "managedFields": owned(2_000),
    "managedFields of the operator": owned(
        2_000, labels={"app.kubernetes.io/managed-by": "isthmus-operator"}
    ),
    "labels": owned(1, labels=MANY),
    "annotations": owned(1, annotations=MANY),
    "finalizers": owned(1, finalizers=list(MANY)),
    "ownerReferences": owned(1, ownerReferences=[{"uid": key} for key in MANY]),
    "status": owned(1) | {"status": {"conditions": [], "instances": [{"name": key} for key in MANY]}},
    "data": owned(1) | {"kind": "Secret", "data": MANY},
    "spec": owned(1) | {"spec": {"listeners": [{"name": key} for key in MANY]}},
}


@pytest.mark.parametrize("part", LARGE)
@pytest.mark.parametrize("how", ["list", "watch", "client"])
def test_no_part_of_an_object_with_many_values_is_retained(part: str, how: str) -> None:
    """15 LinkRoutes with 1.3 MB of `managedFields` each took more than the 512 MiB of the operator."""
    item = LARGE[part]
    if how == "watch":
        event = json.dumps({"type": "ADDED", "object": item}).encode()
        found = json.loads(line(event))["object"]
    elif how == "client":
        found = decoded(json.dumps(item))
    else:
        found = decoded(json.dumps({"kind": "LinkRouteList", "metadata": {}, "items": [item]}))["items"][0]
    assert len(json.dumps(found)) < 50_000
    assert found["metadata"]["resourceVersion"] == "7"


def test_a_large_status_keeps_its_conditions() -> None:
    """The time of a transition is taken from them."""
    conditions = [{"type": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    item = LARGE["status"] | {"status": {**LARGE["status"]["status"], "conditions": conditions}}
    assert decoded(json.dumps(item))["status"] == {"conditions": conditions}


def test_keys_and_the_controller_of_the_operator_are_retained() -> None:
    mine = {"app.kubernetes.io/managed-by": "isthmus-operator"}
    controller = {"uid": "c", "controller": True}
    metadata = {"labels": MANY | mine, "ownerReferences": [*({"uid": key} for key in MANY), controller]}
    found = decoded(json.dumps(owned(1, **metadata)))["metadata"]
    assert found["labels"] == mine
    assert controller in found["ownerReferences"]


def test_the_values_of_a_list_exist_one_object_at_a_time() -> None:
    one, many = (
        json.dumps({"kind": "LinkRouteList", "metadata": {}, "items": [owned(400)] * count}).encode()
        for count in (1, 12)
    )
    peaks = []
    for body in (one, many):
        tracemalloc.start()
        try:
            assert decoded(body)["items"]
            peaks.append(tracemalloc.get_traced_memory()[1] - 2 * len(body))
        finally:
            tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0]


@pytest.mark.parametrize(
    "body",
    [
        '{"items": [{"a": 1}, 2',
        '{"items": [1 2]}',
        '{"items" [1]}',
        '{"a": 1} {}',
        "{1: 2}",
        '{"a": 1',
        '{"items": [%s' % ('{"a":' * 20_000),
        "",
        "{",
    ],
)
def test_a_malformed_document_is_refused(body: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decoded(body)


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        7,
        "x",
        None,
        {"items": []},
        {"items": None, "a": [1, {"b": "\u20ac\n\ud800"}], "": {}},
        {"kind": "List", "items": [1, "a", {"metadata": 3}, {"status": []}, [2]], "z": 1.5},
    ],
)
def test_other_documents_are_decoded_as_they_are(value: object) -> None:
    for indent in (None, 2):
        assert decoded(json.dumps(value, indent=indent)) == value
        assert (
            decoded(json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass"))
            == value
        )


def test_the_index_has_no_labels_of_resources_and_only_known_annotations() -> None:
    """Together these have 256 KiB and more, in any number of resources."""
    body = router("r")
    body["metadata"] |= {"labels": {"a": "b"}, "annotations": {"isthmus.dev/paused": "true", "a": "b"}}
    body["metadata"]["managedFields"] = [
        {"manager": "isthmus-operator", "operation": "Update", "fieldsV1": {}}
    ]
    metadata = copied(body, "Router", body["apiVersion"])["metadata"]
    assert metadata["annotations"] == {"isthmus.dev/paused": "true"}
    assert "labels" not in metadata
    assert "managedFields" not in metadata


async def test_the_client_reads_a_list_in_pages() -> None:
    queries: list[dict[str, str]] = []

    async def page(request: web.Request) -> web.StreamResponse:
        queries.append(dict(request.query))
        more = {} if "continue" in request.query else {"continue": "next"}
        return web.json_response({"metadata": more, "items": [{"metadata": {"name": str(len(queries))}}]})

    async with served(page) as (_, _, cluster):
        found = await cluster.list("Router", "net")
    assert [item["metadata"]["name"] for item in found] == ["1", "2"]
    assert [query["limit"] for query in queries] == ["10", "10"]
    assert all("resourceVersion" not in query for query in queries), "the API server would ignore the limit"


def test_a_document_that_cannot_be_decoded_is_not_in_the_error() -> None:
    with pytest.raises(ValueError, match=r"no UTF-8 at 19") as found:
        decoded(b'{"data": "' + b"secret" + b'": \xff}')
    assert "secret" not in repr(found.value)
    assert found.value.__suppress_context__


class Measured:
    """The decoder. `longest`: CPU time in seconds of its longest call, during which no other thread runs."""

    def __init__(self) -> None:
        self.longest = 0.0

    def raw_decode(self, text: str, at: int) -> tuple[Any, int]:
        began = time.thread_time()
        try:
            return json.JSONDecoder().raw_decode(text, at)
        finally:
            self.longest = max(self.longest, time.thread_time() - began)


@pytest.mark.parametrize("how", ["list", "watch", "client"])
@pytest.mark.parametrize("item", ["[]", "{}", "[" * 60 + "]" * 60])
def test_the_decoder_makes_no_million_values_in_one_call(
    item: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop stood still for up to a second with each event of one Router."""
    decoder = Measured()
    monkeypatch.setattr(decoding, "_JSON", decoder)
    manifest = router("r", podTemplate={"spec": {"tolerations": "HERE", "nodeName": "n"}}, replicas=2)
    manifest["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    text = json.dumps(manifest).replace('"HERE"', f"[{', '.join([item] * (1_200_000 // len(item)))}]")
    if how == "watch":
        event = f'{{"type": "ADDED", "object": {text}}}'
        assert len(line(event.encode())) < 10_000
        found = decoded(event)["object"]
    elif how == "client":
        found = decoded(text)
    else:
        found = decoded(f'{{"kind": "RouterList", "metadata": {{}}, "items": [{text}]}}')["items"][0]
    assert decoder.longest < 0.03
    assert found["spec"]["replicas"] == 2
    assert found["status"] == manifest["status"]
    assert found["metadata"]["name"] == "r"
    with pytest.raises(InvalidResourceError, match=r"podTemplate\.spec: more than 5000 values"):
        parse(found)


def test_fields_with_many_objects_are_left_out_of_other_parts() -> None:
    many = [{}] * 30_000
    manifest = router("r") | {"status": {"instances": many, "ready": 1}, "data": many}
    manifest["metadata"] |= {"managedFields": many, "resourceVersion": "7"}
    found = decoded(json.dumps(manifest))
    assert found["status"] == {"ready": 1}
    assert found["metadata"] == router("r")["metadata"] | {"resourceVersion": "7"}
    assert "data" not in found


@pytest.mark.parametrize("keys", ["spec", "items", "podTemplate"])
def test_fields_that_are_decoded_one_by_one_may_be_nested(keys: str) -> None:
    text = f'{{"{keys}": ' * 3_000 + "[]" + "}" * 3_000
    many = "[" + ", ".join(["[]"] * 30_000) + "]"
    assert depth(decoded(f'{{"spec": {{"a": {many}, "b": {text}}}}}')) <= MAX_LEVELS
    assert depth(decoded(f'{{"spec": {text}, "c": {many}}}')) <= MAX_LEVELS


@pytest.mark.parametrize("item", ["[]", "[" * 58 + "]" * 58, '""'])
async def test_short_documents_with_many_values_are_decoded_apart(
    item: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven events of 58 KB in a second occupied the event loop."""
    begun: list[int] = []

    def seen(body: bytes) -> bytes:
        begun.append(threading.get_ident())
        return line(body)

    manifest = router("r", podTemplate={"spec": {"tolerations": "HERE"}})
    text = json.dumps(manifest).replace('"HERE"', f"[{','.join([item] * (58_000 // (len(item) + 1)))}]")
    result = await decoding.apart(seen, f'{{"type": "ADDED", "object": {text}}}'.encode())
    assert begun != [threading.get_ident()]
    began = time.thread_time()
    copied(json.loads(result)["object"], "Router", manifest["apiVersion"])
    assert time.thread_time() - began < 0.02


async def test_useful_documents_are_decoded_in_the_event_loop() -> None:
    begun: list[int] = []
    containers = [
        {"name": f"c{number}", "image": "i", "ports": [{"containerPort": 1}]} for number in range(100)
    ]
    text = json.dumps(router("r", podTemplate={"spec": {"containers": containers}}))
    await decoding.apart(lambda _: begun.append(threading.get_ident()), text.encode())
    assert begun == [threading.get_ident()]
