"""What the operator holds of Secrets: of those that a resource names, the keys in use, and no more than a namespace may
have."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import tracemalloc
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from tests.unit.operator.support import connector, flow_log, router, ssl_profile

from isthmus_operator.apply import owner_reference
from isthmus_operator.bodies import retained
from isthmus_operator.cluster import ApiError, Cluster
from isthmus_operator.contents import AT_A_TIME, MAX_CONTENT_BYTES, Contents
from isthmus_operator.decoding import LONG_BYTES, line, watched
from isthmus_operator.handlers.secrets import is_relevant
from isthmus_operator.handlers.watching import copied
from isthmus_operator.names import (
    LABEL_MANAGED_BY,
    LABEL_USE,
    MANAGER,
    base_name,
    certificates_secret,
    config_secret,
    flow_analysis_name,
    flow_log_name,
    gossip_name,
    ledger_secret,
    secrets_of,
    store_keys,
)
from isthmus_operator.render import RenderSettings, render
from isthmus_operator.render.sizes import LargeError, planned_bytes
from isthmus_operator.resources import parse
from isthmus_operator.room import SMALL_BYTES
from isthmus_operator.store import Inputs

NOW = datetime(2026, 11, 25, tzinfo=UTC)
SETTINGS = RenderSettings("router:1", collector_image="collector:1")
HUB = router("hub", listeners=[{"name": "amqp", "port": 5672}])
MB = 1_000_000


def secret(name: str, *, version: int = 1, day: int = 1, **data: str) -> dict[str, Any]:
    """As the API server has it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": "net",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": f"2026-01-{day:02}T00:00:00Z",
            "labels": {LABEL_USE: "true", "app": "x"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "the content"},
        },
        "type": "Opaque",
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }


def login(name: str, secret_name: str, key: str = "password") -> dict[str, Any]:
    """A Connector with the password in `key` of the Secret."""
    password = {"name": secret_name, "key": key}
    sasl = {"username": "x", "passwordSecretRef": password, "allowPlainWithoutTls": True}
    return connector(
        name, "hub", ("broker.example", 5671), "route-container", sasl=sasl, tls={"disabled": True}
    )


class Api:
    """Has Secrets, and counts what is read."""

    def __init__(self, secrets: Iterable[dict[str, Any]]) -> None:
        self.secrets = {item["metadata"]["name"]: item for item in secrets}
        self.read: list[str] = []
        self.error: ApiError | None = None
        self.reading = self.most = 0

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        assert (kind, namespace) == ("Secret", "net")
        self.read.append(name)
        self.reading += 1
        self.most = max(self.most, self.reading)
        await asyncio.sleep(0)
        self.reading -= 1
        if self.error is not None:
            raise self.error
        found = self.secrets.get(name)
        return json.loads(json.dumps(found)) if found is not None else None

    def contents(self) -> Contents:
        return Contents("net", cast(Cluster, self))

    def inputs(self, *resources: dict[str, Any]) -> Inputs:
        """With Secrets as the index has them."""
        return Inputs(
            "net", list(resources), [copied(item, "Secret", "v1") for item in self.secrets.values()], True
        )


def complaints(inputs: Inputs) -> dict[str, tuple[str, str]]:
    """Reason and message by Connector."""
    found = render(inputs.model(NOW), SETTINGS)
    return {item.name: (item.reason, item.message) for item in found.findings if item.kind == "Connector"}


async def test_only_secrets_that_a_resource_names_are_read_and_of_them_the_keys_in_use() -> None:
    api = Api([secret("named", mine="a", password="b", others="c"), secret("unnamed", mine="d")])
    inputs = await api.contents().complete(api.inputs(HUB, login("c", "named", "mine")))
    assert api.read == ["named"]
    assert inputs.model(NOW).secrets["named"].data == {"mine": b"a", "password": b"b"}
    assert inputs.model(NOW).secrets["unnamed"].data == {}
    assert complaints(inputs) == {}


async def test_what_is_read_stays_until_its_version_changes_or_another_key_is_named() -> None:
    api = Api([secret("named", mine="a", yours="b")])
    contents = api.contents()
    for _ in range(3):
        await contents.complete(api.inputs(HUB, login("c", "named", "mine")))
    assert api.read == ["named"]
    both = (HUB, login("c", "named", "mine"), login("d", "named", "yours"))
    inputs = await contents.complete(api.inputs(*both))
    assert inputs.model(NOW).secrets["named"].data == {"mine": b"a", "yours": b"b"}
    api.secrets["named"] = secret("named", version=2, mine="c", yours="d")
    inputs = await contents.complete(api.inputs(*both))
    assert inputs.model(NOW).secrets["named"].data == {"mine": b"c", "yours": b"d"}
    assert len(api.read) == 3


async def test_a_newer_version_than_that_of_the_watch_is_read_once() -> None:
    api = Api([secret("named", mine="a")])
    contents, late = api.contents(), api.inputs(HUB, login("c", "named", "mine"))
    api.secrets["named"] = secret("named", version=2, mine="b")
    for inputs in (late, late, api.inputs(HUB, login("c", "named", "mine"))):
        found = await contents.complete(inputs)
        assert found.model(NOW).secrets["named"].data == {"mine": b"b"}
    assert api.read == ["named"]


async def test_a_secret_that_has_lost_its_label_or_is_gone_when_it_is_read_is_not_used() -> None:
    api = Api([secret("named", mine="a"), secret("gone", mine="a")])
    inputs = api.inputs(HUB, login("c", "named", "mine"), login("d", "gone", "mine"))
    api.secrets["named"]["metadata"] |= {"labels": {}, "resourceVersion": "2"}
    del api.secrets["gone"]
    found = await api.contents().complete(inputs)
    assert found.model(NOW).secrets == {}
    assert {name: reason for name, (reason, _) in complaints(found).items()} == {
        "c": "SecretNotAllowed",
        "d": "SecretNotFound",
    }


async def test_another_secret_of_the_name_is_not_taken_for_the_watched_one() -> None:
    api = Api([secret("named", mine="a")])
    inputs = api.inputs(HUB, login("c", "named", "mine"))
    api.secrets["named"]["metadata"]["uid"] = "another"
    assert (await api.contents().complete(inputs)).model(NOW).secrets == {}


async def test_an_error_of_the_api_server_ends_the_reconciliation() -> None:
    api = Api([secret("named", mine="a")])
    contents, inputs = api.contents(), api.inputs(HUB, login("c", "named", "mine"))
    api.error = ApiError(500, "InternalError", "")
    with pytest.raises(ApiError):
        await contents.complete(inputs)
    api.error = None
    assert (await contents.complete(inputs)).model(NOW).secrets["named"].data == {"mine": b"a"}


async def test_a_namespace_has_a_limited_size_of_content_and_the_oldest_secrets_come_first() -> None:
    """150 labelled Secrets of 1 MB used up the memory of the operator."""
    large = [secret(f"large-{number}", day=2, password="x" * MB) for number in range(150)]
    api = Api([*large, secret("old", day=1, password="a"), secret("new", day=3, password="a")])
    resources = [HUB, *(login(f"c-{name}", name) for name in api.secrets)]
    contents, inputs = api.contents(), api.inputs(*resources)
    gc.collect()
    tracemalloc.start()
    found = await contents.complete(inputs)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1.6 * MAX_CONTENT_BYTES, "they are in base64"
    assert peak < 1.6 * MAX_CONTENT_BYTES + AT_A_TIME * 8 * MB
    assert api.most <= AT_A_TIME
    model = found.model(NOW)
    assert sum(len(value) for item in model.secrets.values() for value in item.data.values()) <= (
        MAX_CONTENT_BYTES
    )
    told = complaints(found)
    assert "c-old" not in told
    assert "c-new" not in told, "it fits although it is the newest"
    reasons = [reason for reason, _ in told.values()]
    assert (set(reasons), len(reasons)) == ({"TooLarge"}, 150 - MAX_CONTENT_BYTES // MB)
    assert "remove keys" in told["c-large-99"][1]
    api.read.clear()
    assert await contents.complete(inputs) == found
    assert api.read == [], "those that have no room are not read again and again"


async def test_a_secret_is_read_when_there_is_room_again() -> None:
    large = [secret(f"large-{number:02}", password="x" * MB) for number in range(17)]
    api = Api(large)
    contents = api.contents()
    resources = [HUB, *(login(f"c-{name}", name) for name in api.secrets)]
    found = await contents.complete(api.inputs(*resources))
    assert found.too_large == {"large-16"}
    del api.secrets["large-03"]
    found = await contents.complete(api.inputs(*resources))
    assert found.too_large == frozenset()
    assert set(complaints(found)) == {"c-large-03"}


async def test_large_content_is_read_when_there_is_room_and_released_when_others_need_it() -> None:
    """The Secrets of 12 namespaces, of 16 MB each, ended the operator at each start."""
    api = Api(secret(f"large-{number:02}", password="x" * MB) for number in range(20))
    resources = [HUB, *(login(f"c-{name}", name) for name in api.secrets)]
    contents, inputs = api.contents(), api.inputs(*resources)
    for _ in range(2):
        with pytest.raises(LargeError) as error:
            await contents.complete(inputs, SMALL_BYTES)
        assert error.value.size > SMALL_BYTES
        assert (contents.bytes, api.most) == (0, 1)
    found = await contents.complete(inputs, 64 * MB)
    assert len(found.too_large) == 4
    assert contents.bytes // MB == 16
    assert planned_bytes(found.model(NOW)) > 2 * contents.bytes
    del found
    contents.release()
    assert contents.bytes == 0
    api.read.clear()
    assert len((await contents.complete(inputs)).too_large) == 4
    assert len(api.read) == 16, "those that have no room are not read again"


async def test_of_a_secret_with_content_no_other_metadata_is_held() -> None:
    item = secret("named", password="b")
    item["metadata"]["annotations"]["pad"] = "x" * 250_000
    found = await Api([item]).contents().complete(Api([item]).inputs(HUB, login("c", "named")))
    assert len(json.dumps(found.secrets)) < 1_000


async def test_an_ssl_profile_and_a_flow_log_report_that_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("isthmus_operator.contents.MAX_CONTENT_BYTES", 10)
    api = Api([secret("keys", AWS_ACCESS_KEY_ID="x" * 20, AWS_SECRET_ACCESS_KEY="y")])
    bucket = {"url": "s3a://bucket/p", "secretName": "keys"}
    found = await api.contents().complete(api.inputs(HUB, flow_log("log", "hub", s3=bucket)))
    (finding,) = [
        item for item in render(found.model(NOW), SETTINGS).findings_of("FlowLog", "log") if item.blocking
    ]
    assert finding.reason == "TooLarge"
    profile = await api.contents().complete(api.inputs(ssl_profile("p", "keys")))
    assert profile.model(NOW).too_large == {"keys"}


OWNER = owner_reference(cast(Any, parse(HUB)))


def own(name: str, /, **owner: str) -> dict[str, Any]:
    found = secret(name, a="b")
    found["metadata"] |= {"labels": {LABEL_MANAGED_BY: MANAGER}, "ownerReferences": [{**OWNER, **owner}]}
    return found


def test_content_is_held_of_the_operators_own_secrets_only() -> None:
    for name in (
        "hub-config",
        "hub-certificates",
        "hub-sslprofile",
        "hub-flowlog",
        "hub-gossip",
        "hub-analysis",
    ):
        assert "data" in copied(own(name), "Secret", "v1"), name
    others = [secret("hub-config", a="b"), own("others"), own("hub-config", name="other")]
    others += [own("hub-config", apiVersion="apps/v1"), own("hub-config", name="")]
    without = own("hub-config")
    del without["metadata"]["ownerReferences"]
    for item in (*others, without):
        kept = copied(item, "Secret", "v1")
        assert "data" not in kept
        assert "annotations" not in kept["metadata"]
        assert "app" not in kept["metadata"]["labels"]
        assert {"name", "uid", "resourceVersion", "creationTimestamp"} <= set(kept["metadata"])


def test_the_names_of_the_operators_secrets_are_known() -> None:
    for name in ("hub", "a" * 60, "a.b", "9"):
        base = base_name(name)
        known = secrets_of(name)
        assert {config_secret(name), ledger_secret(name), certificates_secret(base)} <= known
        for owner in (gossip_name(name), flow_log_name(name), flow_analysis_name(name)):
            assert {owner, certificates_secret(owner), store_keys(owner)} <= known


@pytest.mark.parametrize("type_", ["kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson"])
async def test_credentials_of_registries_are_not_read(type_: str) -> None:
    item = secret("named", a="b") | {"type": type_}
    assert is_relevant(item)
    assert not is_relevant({**item, "type": "helm.sh/release.v1"})
    api = Api([item])
    template = {"spec": {"imagePullSecrets": [{"name": "named"}]}}
    found = await api.contents().complete(api.inputs(router("hub", podTemplate=template)))
    assert api.read == []
    assert found.model(NOW).secrets["named"].data == {}


def test_lists_and_events_of_a_watch_lose_content_right_when_they_are_decoded() -> None:
    plain, ours = secret("named", a="b" * LONG_BYTES), own("hub-config")
    listed = {"kind": "SecretList", "items": [{**plain, "kind": None}, ours]}
    short, whole = watched(json.dumps(listed).encode())["items"]
    assert "data" not in short
    assert whole["data"] == ours["data"]
    event = json.loads(line(json.dumps({"type": "ADDED", "object": plain}).encode()))
    assert event["type"] == "ADDED"
    assert event["object"] == retained(plain, "Secret")
    other = {"type": "ADDED", "object": {**plain, "kind": "Namespace"}}
    assert watched(json.dumps(other).encode()) == other
    for odd in (
        {"kind": "SecretList", "items": None},
        {"kind": "SecretList", "items": [1]},
        {"object": 1},
        1,
    ):
        watched(json.dumps(odd).encode())
    assert watched(b'{"object": {"kind": "Secret", "metadata": 1}}') == {
        "object": {"kind": "Secret", "metadata": 1}
    }
