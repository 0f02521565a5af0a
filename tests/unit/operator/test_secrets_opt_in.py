"""Which Secrets resources may use: those that their owners have opened, and no others."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.operator.support import (
    connector,
    flow_analysis,
    flow_log,
    gossip_router,
    router,
    ssl_profile,
    tls_data,
)

from isthmus_operator.authority import AUTHORITY_SECRET
from isthmus_operator.handlers.children import KINDS
from isthmus_operator.names import LABEL_MANAGED_BY, LABEL_USE, MANAGER, config_secret
from isthmus_operator.render import Rendered, RenderSettings, render
from isthmus_operator.render.restrictions import Restrictions
from isthmus_operator.store import Store

NOW = datetime(2026, 11, 25, tzinfo=UTC)
SETTINGS = RenderSettings("router:1", collector_image="collector:1", analysis_image="analysis:1")
MARK = b"what-nobody-may-read"
USE = {LABEL_USE: "true"}


def store(
    *resources: dict[str, Any], data: dict[str, bytes], labels: dict[str, str], required: bool = True
) -> Store:
    """With one Secret `others`."""

    def of(kind: str) -> dict[str, list[dict[str, Any]]]:
        return {"net": [item for item in resources if item["kind"] == kind]}

    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "others", "uid": "u", "resourceVersion": "1", "labels": labels},
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
    kinds = ("Router", "Connector", "LinkRoute", "RelaySite", "GossipRouter", "FlowLog", "FlowAnalysis")
    indices = [of(kind) for kind in (*kinds, "SslProfile")]
    return Store(*indices, {"net": [secret]}, {}, {kind: {} for kind in KINDS}, label_required=required)


def tried(
    *resources: dict[str, Any], data: dict[str, bytes], labels: dict[str, str], required: bool = True
) -> tuple[str, list[str]]:
    """All that is rendered, as text, and the messages of what is wrong."""
    return written(
        render(store(*resources, data=data, labels=labels, required=required).model("net", NOW), SETTINGS)
    )


def written(found: Rendered) -> tuple[str, list[str]]:
    """The same of what has been rendered."""
    objects = [item for _, made in found.owners() for item in made]
    text = json.dumps(objects)
    for item in objects:
        for value in (item.get("data") or {}).values() if item["kind"] == "Secret" else ():
            text += base64.b64decode(value).decode(errors="replace")
    return text, [item.message for item in found.findings]


HUB = router("hub", listeners=[{"name": "amqp", "port": 5672}])
LISTENERS = [{"name": "amqp", "port": 5671, "tls": {"secretName": "others"}}]
USERS = [
    {
        "name": "amqp",
        "port": 5672,
        "sasl": {"mechanisms": ["SCRAM-SHA-256"], "usersSecretRef": {"name": "others"}},
    }
]
PASSWORD = {"username": "x", "passwordSecretRef": {"name": "others", "key": "password"}}
LOGIN = {"credentialsSecretRef": {"name": "others"}}
TO = ("evil.example", 5672)
LOG = {"volume": {"size": "1Gi"}}
BUCKET = {"url": "s3a://bucket/p", "endpoint": "http://evil.example:9000", "secretName": "others"}
WAYS: dict[str, tuple[dict[str, Any], ...]] = {
    "password of a Connector": (HUB, connector("c", "hub", TO, "route-container", sasl=PASSWORD)),
    "login of a Connector": (HUB, connector("c", "hub", TO, "route-container", sasl=LOGIN)),
    "users of a listener": (router("hub", listeners=USERS),),
    "password of a FlowLog": (HUB, flow_log("log", "hub", sasl=PASSWORD)),
    "login of a FlowLog": (HUB, flow_log("log", "hub", sasl=LOGIN)),
    "keys of an object store": (HUB, flow_log("log", "hub", s3=BUCKET, tls={"disabled": True})),
    "keys of an object store, by an analysis": (
        HUB,
        flow_log("log", "hub", s3=BUCKET),
        flow_analysis("daily", flowLogRef={"name": "log"}),
    ),
    "certificate of a listener": (router("hub", listeners=LISTENERS),),
    "certificate of a Connector": (
        HUB,
        connector("c", "hub", TO, "route-container", tls={"secretName": "others"}),
    ),
    "certificate of a GossipRouter": (gossip_router("g", tls={"secretName": "others"}),),
}


def content(way: str) -> dict[str, bytes]:
    keys = ("password", "username", "sasldb", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    certificate = tls_data() if "certificate" in way else {}
    return {**dict.fromkeys(keys, MARK), **certificate}


def leaks(way: str, text: str, data: dict[str, bytes]) -> bool:
    secret = data["tls.crt"] if "certificate" in way else MARK
    return secret.decode() in text


@pytest.mark.parametrize("way", WAYS)
def test_a_secret_is_used_only_with_the_label(way: str) -> None:
    data = content(way)
    text, messages = tried(*WAYS[way], data=data, labels={})
    assert not leaks(way, text, data)
    assert any("kubectl label secret others isthmus.dev/use=true" in message for message in messages), (
        messages
    )
    for labels in ({LABEL_USE: "false"}, {LABEL_USE: ""}, {"use": "true"}):
        text, _ = tried(*WAYS[way], data=data, labels=labels)
        assert not leaks(way, text, data)
    text, messages = tried(*WAYS[way], data=data, labels=USE)
    assert leaks(way, text, data), messages
    text, messages = tried(*WAYS[way], data=data, labels={}, required=False)
    assert leaks(way, text, data), messages


@pytest.mark.parametrize("way", WAYS)
def test_secrets_of_the_operator_are_not_for_resources_whatever_their_labels(way: str) -> None:
    data = content(way)
    text, messages = tried(*WAYS[way], data=data, labels={LABEL_MANAGED_BY: MANAGER, **USE})
    assert not leaks(way, text, data)
    assert any('Secret "others" is the operator\'s own' in message for message in messages), messages


def test_a_router_that_names_the_secret_of_the_authority_reports_whose_it_is() -> None:
    tls = {"secretName": AUTHORITY_SECRET}
    hub = router("hub", listeners=[{"name": "amqp", "port": 5671, "tls": tls}])
    (found,) = render(store(hub, data={}, labels={}).model("net", NOW), SETTINGS).findings
    assert found.reason == "SecretNotAllowed"
    assert 'Secret "isthmus-authority" is the operator\'s own' in found.message


DELIVERED = [way for way in WAYS if way.endswith((" Connector", "a listener"))]


def delivered(found: Rendered, resources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The Secret with the configuration of the Router, as the operator has written it."""
    (secret,) = [
        item
        for _, made in found.owners()
        for item in made
        if item["kind"] == "Secret" and item["metadata"]["name"] == config_secret("hub")
    ]
    reference = {"kind": "Router", "name": "hub", "uid": resources[0]["metadata"]["uid"], "controller": True}
    metadata = {**secret["metadata"], "uid": "own", "resourceVersion": "1", "ownerReferences": [reference]}
    return {**secret, "metadata": metadata}


@pytest.mark.parametrize("way", DELIVERED)
def test_a_router_retains_content_when_the_label_is_removed(way: str) -> None:
    """But gets nothing that is put into the Secret afterwards, and has nothing left without the reference."""
    data = content(way)
    allowed = store(*WAYS[way], data=data, labels=USE)
    own = delivered(render(allowed.model("net", NOW), SETTINGS), WAYS[way])
    later = dict.fromkeys(data, b"put-there-later")
    after = store(*WAYS[way], data=later, labels={})
    after.secrets["net"].append(own)
    text, messages = written(render(after.model("net", NOW), SETTINGS))
    assert leaks(way, text, data), messages
    assert "put-there-later" not in text
    assert any("kubectl label secret others isthmus.dev/use=true" in message for message in messages)
    without = store(HUB, data=data, labels={})
    without.secrets["net"].append(own)
    text, _ = written(render(without.model("net", NOW), SETTINGS))
    assert not leaks(way, text, data)


def test_the_model_names_what_is_withheld() -> None:
    found = store(HUB, ssl_profile("p", "others"), data={"a": b"b"}, labels={})
    assert found.model("net", NOW).withheld == {"others"}
    assert found.model("net", NOW).secrets == {}
    opened = store(HUB, data={"a": b"b"}, labels=USE)
    assert opened.model("net", NOW).withheld == frozenset()
    assert set(opened.model("net", NOW).secrets) == {"others"}


PULLING = {"spec": {"imagePullSecrets": [{"name": "others"}]}}
PODS = (
    router("hub", podTemplate=PULLING),
    gossip_router("meet", podTemplate=PULLING),
    flow_log("flows", "hub", podTemplate=PULLING, tls={"disabled": True}),
    flow_analysis("daily", podTemplate=PULLING),
    flow_analysis("hourly", podTemplate=PULLING, schedule="@hourly"),
)
AROUND = (router("hub"), flow_log("flows", "hub"))


def pulled(
    resource: dict[str, Any],
    labels: dict[str, str] | None,
    settings: RenderSettings = SETTINGS,
    **options: bool,
) -> tuple[bool, list[tuple[str, str]]]:
    """Whether pods pull images with the Secret `others`, and reasons and messages of what keeps pods from being made.
    `labels`: of the Secret, if there is one."""
    beside = [item for item in AROUND if item["metadata"]["name"] != resource["metadata"]["name"]]
    found = store(*beside, resource, data={}, labels=labels or {}, **options)
    if labels is None:
        found.secrets = {}
    made = render(found.model("net", NOW), settings)
    kind, name = resource["kind"], resource["metadata"]["name"]
    objects = [item for owner, items in made.owners() if owner.name == name for item in items]
    findings = [(item.reason, item.message) for item in made.findings_of(kind, name) if item.blocking]
    assert bool(objects) != bool(findings), "either its objects are made, or a condition says why not"
    return '"imagePullSecrets":[{"name":"others"}]' in json.dumps(objects, separators=(",", ":")), findings


@pytest.mark.parametrize("resource", PODS, ids=lambda item: item["metadata"]["name"])
def test_credentials_of_registries_are_used_only_with_the_label(resource: dict[str, Any]) -> None:
    assert pulled(resource, USE) == (True, [])
    assert pulled(resource, {}, required=False) == (True, [])
    for labels in ({}, {LABEL_USE: "false"}):
        uses, ((reason, message),) = pulled(resource, labels)
        assert not uses
        assert reason == "SecretNotAllowed"
        assert message.startswith("spec.podTemplate.spec.imagePullSecrets: ")
        assert "kubectl label secret others isthmus.dev/use=true" in message


@pytest.mark.parametrize("resource", PODS, ids=lambda item: item["metadata"]["name"])
def test_credentials_that_do_not_exist_yet_are_not_named_in_pods(resource: dict[str, Any]) -> None:
    """Somebody else could create them later, without the label."""
    uses, ((reason, message),) = pulled(resource, None)
    assert not uses
    assert reason == "SecretNotFound"
    assert 'Secret "others" does not exist' in message


@pytest.mark.parametrize("resource", PODS, ids=lambda item: item["metadata"]["name"])
def test_secrets_of_the_operator_are_not_for_registries(resource: dict[str, Any]) -> None:
    uses, ((reason, message),) = pulled(resource, {LABEL_MANAGED_BY: MANAGER, **USE})
    assert not uses
    assert reason == "SecretNotAllowed"
    assert 'Secret "others" is the operator\'s own' in message


@pytest.mark.parametrize("resource", PODS, ids=lambda item: item["metadata"]["name"])
def test_credentials_of_the_installation_need_no_label(resource: dict[str, Any]) -> None:
    for settings in (
        replace(SETTINGS, image_pull_secrets=("others",)),
        replace(SETTINGS, restrictions=Restrictions("Any")),
    ):
        assert pulled(resource, {}, settings) == (True, [])


@pytest.mark.parametrize(
    "value",
    ["others", {"name": "others"}, ["others"], [{}], [{"name": 1}], [{"name": "others", "x": "y"}], None],
)
def test_credentials_of_another_form_are_refused(value: object) -> None:
    resource = router("hub", podTemplate={"spec": {"imagePullSecrets": value}})
    _, ((reason, message),) = pulled(resource, USE)
    assert reason == "NotAllowed"
    assert "spec.podTemplate.spec.imagePullSecrets" in message
