"""The preconditions and field managers of the requests that write objects."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml
from aiohttp import web
from kubernetes.aio import client as kubernetes_client

from isthmus_operator.cluster import ApiError, Cluster, _yaml
from isthmus_operator.fields import applied, is_applied
from isthmus_operator.names import MANAGER

SEEN = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "west", "namespace": "net", "uid": "u1", "resourceVersion": "7"},
}
DESIRED = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "west", "namespace": "net", "labels": {"a": "b"}},
}
PRECONDITION = {"uid": "u1", "resourceVersion": "7"}


class Api:
    """Records requests, and answers all with one status."""

    def __init__(self, status: int = 200, answer: dict[str, Any] = SEEN) -> None:
        self.status = status
        self.answer = answer
        self.reason = "?"
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []

    async def param_serialize(
        self, verb: str, path: str, *, query_params: list[tuple[str, str]], body: Any, **_: Any
    ) -> tuple[Any, ...]:
        self.requests.append((verb, path, dict(query_params), body))
        return verb, path, {}, None, None

    async def call_api(self, *_: Any, **__: Any) -> Any:
        return self

    async def read(self) -> bytes:
        return json.dumps(self.answer).encode()


async def test_an_object_is_created_by_a_request_that_changes_no_other() -> None:
    api = Api()
    await Cluster(api).create(DESIRED)
    query = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
    assert api.requests == [("POST", "/api/v1/namespaces/net/services", query, DESIRED)]


async def test_an_object_is_applied_only_to_the_version_that_was_seen() -> None:
    api = Api()
    await Cluster(api).apply(DESIRED, seen=SEEN)
    ((verb, path, query, body),) = api.requests
    assert (verb, path) == ("PATCH", "/api/v1/namespaces/net/services/west")
    assert query == {"fieldManager": MANAGER, "force": "true"}
    assert body["metadata"] == {**DESIRED["metadata"], **PRECONDITION}  # type: ignore[dict-item]
    assert DESIRED["metadata"].keys() == {"name", "namespace", "labels"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("status", "deleted"), [(200, True), (404, False), (409, False)])
async def test_an_object_is_deleted_only_in_the_version_that_was_seen(status: int, deleted: bool) -> None:
    api = Api(status)
    assert await Cluster(api).delete(SEEN) is deleted
    ((verb, path, _, body),) = api.requests
    assert (verb, path) == ("DELETE", "/api/v1/namespaces/net/services/west")
    assert body == {"preconditions": PRECONDITION, "propagationPolicy": "Background"}


async def test_fields_are_claimed_only_of_the_version_that_was_seen() -> None:
    api = Api(409)
    seen = {
        **SEEN,
        "metadata": {**PRECONDITION, "name": "west", "namespace": "net", "managedFields": [CREATED]},
    }
    with pytest.raises(ApiError):
        await Cluster(api).claim(seen)
    ((verb, _, _, body),) = api.requests
    assert verb == "PATCH"
    assert body == {"metadata": {**PRECONDITION, "managedFields": [{**CREATED, "operation": "Apply"}]}}


@pytest.mark.parametrize(
    ("causes", "status"),
    [
        ([{"field": "spec.ports"}, {"field": "metadata.uid"}], 409),
        ([{"field": "spec.ports"}], 422),
        ([1, {}], 422),
        (None, 422),
    ],
)
async def test_a_patch_that_meets_an_object_with_another_uid_is_a_conflict(causes: Any, status: int) -> None:
    """A pod or a resource that was replaced meanwhile: the API server calls its uid an invalid change."""
    api = Api(422, {"kind": "Status", "reason": "Invalid", "details": {"causes": causes}})
    with pytest.raises(ApiError) as error:
        await Cluster(api).merge("Pod", "net", "west-0", {"metadata": {"uid": "u1"}})
    assert error.value.status == status


def entry(manager: str, operation: str, **fields: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": fields}


CREATED = entry(MANAGER, "Update", **{"f:spec": {"f:ports": {".": {}, 'k:{"port":80}': {"f:name": {}}}}})
APPLIED = entry(MANAGER, "Apply", **{"f:spec": {"f:ports": {".": {}, 'k:{"port":81}': {}}, "f:type": {}}})
OTHERS = [
    entry("others", "Update", **{"f:spec": {"f:x": {}}}),
    entry("others", "Apply", **{"f:metadata": {}}),
    {**entry(MANAGER, "Update", **{"f:status": {}}), "subresource": "status"},
]


@pytest.mark.parametrize("junk", [None, [], [1], [{}], [{"manager": MANAGER}], OTHERS, [APPLIED]])
def test_what_the_operator_has_not_created_has_no_fields_to_claim(junk: Any) -> None:
    metadata = {} if junk is None else {"managedFields": junk}
    assert is_applied(metadata)
    assert applied(metadata) == (junk or [])


def test_the_fields_of_a_creation_count_as_applied_beside_those_that_do_already() -> None:
    metadata = {"managedFields": [OTHERS[0], CREATED, *OTHERS[1:], APPLIED]}
    assert not is_applied(metadata)
    *others, ours = applied(metadata)
    assert others == OTHERS
    assert (ours["manager"], ours["operation"]) == (MANAGER, "Apply")
    assert ours["fieldsV1"] == {
        "f:spec": {
            "f:ports": {".": {}, 'k:{"port":80}': {"f:name": {}}, 'k:{"port":81}': {}},
            "f:type": {},
        }
    }
    assert is_applied({"managedFields": applied(metadata)})


@pytest.mark.parametrize("character", ["\x7f", "\x85", "\u00e9", "\ufeff", "\U0001f600", "a"])
def test_the_yaml_of_long_texts_is_short_work(character: str) -> None:
    """A call of Python for each character outside of ASCII occupied the event loop for 0.3 s, for 250 KB of them."""
    text = character * 250_000
    began = time.thread_time()
    found = _yaml({"text": text})
    assert time.thread_time() - began < 0.05
    assert yaml.safe_load(_yaml({"text": text[:100]})) == {"text": text[:100]}
    assert found.isascii()
    assert "\x7f" not in found


@pytest.mark.parametrize(
    "text", ["plain", "\U0001f600", "\u00e9\u2028\x7f\x85\n\t", 'a\\ud83d\\n"\U0010fffd', "1e3", ""]
)
async def test_an_applied_object_is_yaml_whatever_characters_are_in_it(text: str) -> None:
    """JSON has two escapes for one character beyond the first 65,536, which the API server refuses in YAML."""
    bodies = []

    async def take(request: web.Request) -> web.Response:
        assert request.content_type == "application/apply-patch+yaml"
        bodies.append(await request.read())
        return web.json_response(SEEN)

    app = web.Application()
    app.router.add_patch("/{path:.*}", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    configuration = kubernetes_client.Configuration(host=url)  # type: ignore[no-untyped-call]
    cluster = Cluster(kubernetes_client.ApiClient(configuration))
    manifest = {**DESIRED, "status": {text: text}}
    try:
        await cluster.apply(manifest, subresource="status")
    finally:
        await cluster.close()
        await runner.cleanup()
    assert [yaml.safe_load(item) for item in bodies] == [manifest]
    assert b"\\ud8" not in bodies[0].replace(b"\\\\", b"")
