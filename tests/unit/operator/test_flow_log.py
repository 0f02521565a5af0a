"""FlowLogs become a collector with its settings, credentials and volume; what they say comes from the collector."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import datetime
from typing import Any

import pytest
from tests.unit.operator.configurations import configs
from tests.unit.operator.support import (
    flow_log,
    model,
    opaque_secret,
    own_ledger,
    relay_site,
    router,
    tls_secret,
)

from isthmus_flowlog.collector.settings import parse
from isthmus_operator.apply import owned
from isthmus_operator.authority import Own
from isthmus_operator.certificates import identities
from isthmus_operator.flow_facts import FlowFacts, flow_facts, targets
from isthmus_operator.flow_reports import CollectorReport, parse_collector
from isthmus_operator.model import SecretView
from isthmus_operator.names import flow_log_selector, scraped
from isthmus_operator.render import Rendered, RenderSettings, plan, render
from isthmus_operator.render.flows.listener import LISTENER
from isthmus_operator.render.restrictions import Restrictions
from isthmus_operator.report import Observation
from isthmus_operator.resources import FlowLog
from isthmus_router.config.model import ListenerConfig
from isthmus_router.core.access import ManagementLevel
from isthmus_router.policy.rules import Ruleset

SETTINGS = RenderSettings(
    router_image="router:1",
    collector_image="collector:1",
    image_pull_secrets=("pull",),
    restrictions=Restrictions(allowed_claims=("shared",), allowed_exposures=("NodePort",)),
)
PASSWORDS = {"mechanisms": ["SCRAM-SHA-256"], "usersSecretRef": {"name": "users"}}
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
NOW = "2026-11-23T10:00:00Z"
AT = datetime.fromisoformat(NOW)
ANSWER = {
    "connected": True,
    "problem": "",
    "routers": 3,
    "rowsWritten": 1200,
    "lastWrittenAt": "2026-11-23T09:59:00Z",
    "messagesMissed": 2,
}


STORE = {"url": "s3a://logs/flows", "secretName": "keys"}


def rendered(*manifests: dict[str, Any], secrets: tuple[SecretView, ...] = ()) -> Rendered:
    return render(model(*manifests, secrets=secrets), SETTINGS)


def objects(found: Rendered, name: str = "flows") -> dict[str, dict[str, Any]]:
    return {item["kind"]: item for item in found.flow_logs[name].objects}


def settings(found: Rendered, name: str = "flows") -> dict[str, Any]:
    data = objects(found, name)["Secret"]["data"]["collector.json"]
    document: dict[str, Any] = json.loads(b64decode(data))
    return document


def finding(found: Rendered, name: str = "flows") -> tuple[str, str]:
    (item,) = found.findings_of("FlowLog", name)
    assert name not in found.flow_logs
    return item.reason, item.message


def test_a_collector_beside_its_router_with_a_volume_of_its_own() -> None:
    found = rendered(router("hub"), flow_log("flows"))
    made = objects(found)
    kinds = {"ServiceAccount", "Secret", "NetworkPolicy", "PersistentVolumeClaim", "Deployment"}
    assert set(made) == kinds
    document = settings(found)
    assert (document["hosts"], document["port"]) == (["hub.net.svc"], 35672)
    assert document["log"] == "/var/isthmus/flows"
    assert "staging" not in document, "the journal is on the volume"
    assert document["tls"] == {
        "ca": "/etc/isthmus/ca.crt",
        "cert": "/etc/isthmus/tls.crt",
        "key": "/etc/isthmus/tls.key",
        "verifyHostname": True,
    }
    data = made["Secret"]["data"]
    assert set(identities(b64decode(data["tls.crt"]))) == {"flows-flowlog"}
    claim = made["PersistentVolumeClaim"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    deployment = made["Deployment"]["spec"]
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")
    assert deployment["template"]["metadata"]["annotations"].items() >= scraped(9090).items()
    pod = deployment["template"]["spec"]
    assert {"name": "flows", "persistentVolumeClaim": {"claimName": "flows-flowlog"}} in pod["volumes"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    (container,) = pod["containers"]
    assert container["image"] == "collector:1"
    assert {"name": "flows", "mountPath": "/var/isthmus/flows"} in container["volumeMounts"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_volume_stays_when_the_flow_log_goes() -> None:
    found = rendered(router("hub"), flow_log("flows"))
    owner = found.flow_logs["flows"].flow_log
    by_kind = {
        kind: owned(item, owner)["metadata"]["ownerReferences"] for kind, item in objects(found).items()
    }
    assert by_kind.pop("PersistentVolumeClaim") == []
    assert all(references[0]["uid"] == "uid-flows" for references in by_kind.values())


def test_a_claim_that_is_there_is_used_and_not_made() -> None:
    found = rendered(router("hub"), flow_log("flows", volume={"claimName": "shared"}))
    assert "PersistentVolumeClaim" not in objects(found)
    volumes = objects(found)["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert {"name": "flows", "persistentVolumeClaim": {"claimName": "shared"}} in volumes


def test_an_object_store_with_keys_by_reference() -> None:
    s3 = {"url": "s3a://bucket/prod", "endpoint": "https://store:9000", "region": "eu", "secretName": "keys"}
    found = rendered(router("hub"), flow_log("flows", s3=s3), secrets=(opaque_secret("keys", *KEYS),))
    document = settings(found)
    assert document["log"] == "s3a://bucket/prod"
    assert document["staging"] == "/var/isthmus/staging"
    assert document["s3"] == {"endpoint": "https://store:9000", "region": "eu"}
    (container,) = objects(found)["Deployment"]["spec"]["template"]["spec"]["containers"]
    names = [item["name"] for item in container["env"]]
    assert names == ["AWS_REGION", *KEYS]
    copied = {"name": "flows-flowlog-store-keys", "key": KEYS[0]}
    assert container["env"][1]["valueFrom"]["secretKeyRef"] == copied
    assert "keys AWS" not in json.dumps(objects(found))
    (secret,) = (
        item
        for item in found.flow_logs["flows"].objects
        if item["metadata"]["name"] == "flows-flowlog-store-keys"
    )
    assert {key: b64decode(value) for key, value in secret["data"].items()} == {
        key: f"keys {key}".encode() for key in KEYS
    }
    assert secret["metadata"]["labels"] == objects(found)["Deployment"]["metadata"]["labels"]
    assert finding(rendered(router("hub"), flow_log("flows", s3=s3))) == (
        "SecretNotFound",
        'Secret "keys" does not exist',
    )
    lacking = rendered(router("hub"), flow_log("flows", s3=s3), secrets=(opaque_secret("keys", KEYS[0]),))
    assert finding(lacking) == (
        "SecretInvalid",
        'Secret "keys" has no key "AWS_SECRET_ACCESS_KEY" (spec.s3.secretName); put it there',
    )


def test_credentials_are_files_whose_names_stay() -> None:
    listener = {"name": "amqps", "port": 5671, "tls": {"secretName": "server"}}
    found = rendered(
        router("hub", listeners=[listener]),
        flow_log(
            "flows",
            tls={"secretName": "client"},
            sasl={"credentialsSecretRef": {"name": "login"}, "mechanisms": ["PLAIN"]},
            routers={"include": ["hub-*"], "exclude": ["hub-9"]},
            rotation={"seconds": 60},
        ),
        secrets=(
            tls_secret("server"),
            tls_secret("client"),
            opaque_secret("login", "username", "password"),
        ),
    )
    document = settings(found)
    assert document["port"] == 5671
    assert document["tls"] == {
        "ca": "/etc/isthmus/ca.crt",
        "cert": "/etc/isthmus/tls.crt",
        "key": "/etc/isthmus/tls.key",
        "verifyHostname": True,
    }
    assert document["sasl"] == {
        "userFile": "/etc/isthmus/username",
        "passwordFile": "/etc/isthmus/password",
        "mechanisms": "PLAIN",
    }
    assert (document["include"], document["exclude"]) == (["hub-*"], ["hub-9"])
    assert document["rotate"] == {"seconds": 60, "rows": 262_144}
    data = objects(found)["Secret"]["data"]
    assert b64decode(data["password"]) == b"login password"
    assert set(data) == {"ca.crt", "tls.crt", "tls.key", "username", "password", "collector.json"}


@pytest.mark.parametrize(
    ("manifests", "reason", "message"),
    [
        ([], "Pending", 'Router "hub" (spec.routerRef) does not exist'),
        ([router("hub", replicas=0)], "Pending", 'Router "hub" (spec.routerRef) is scaled to zero'),
        (
            [router("hub", listeners=[{"name": "mesh", "role": "inter-router", "port": 1}])],
            "Pending",
            'Router "hub" has no listener of role normal (spec.routerRef)',
        ),
        (
            [router("hub", listeners=[{"name": "amqp", "port": 1, "exposure": "None"}])],
            "ListenerNotExposed",
            'listener "amqp" of Router "hub" has exposure None, so it has no Service to connect to',
        ),
        (
            [router("hub", listeners=[{"name": "amqps", "port": 1, "tls": {"secretName": "server"}}])],
            "TlsMismatch",
            'listener "amqps" of Router "hub" uses TLS; set spec.tls',
        ),
    ],
)
def test_what_is_missing_is_named(manifests: list[dict[str, Any]], reason: str, message: str) -> None:
    log = flow_log("flows", tls={"disabled": True})
    assert finding(rendered(*manifests, log)) == (reason, message)


def listeners(*manifests: dict[str, Any], secrets: tuple[SecretView, ...] = ()) -> dict[str, ListenerConfig]:
    """Of `hub-0`, as the router reads its configuration."""
    found = configs(*manifests, secrets=secrets)["hub-0"].listeners
    return {item.name: item for item in found}


def test_collectors_have_a_listener_that_accepts_their_certificates_alone() -> None:
    found = listeners(router("hub"), flow_log("flows"), flow_log("more.logs"), flow_log("other", "elsewhere"))
    own = found.pop(LISTENER)
    assert (own.port, own.role.label, own.require_ssl, own.authenticate_peer) == (35672, "normal", True, True)
    assert own.sasl_mechanisms == ("EXTERNAL",)
    assert own.require_client_certificate
    certificates = [own_ledger(item.names).certificate or b"" for item in collectors()]
    assert len(certificates) == 2
    assert set(own.peer_names) == {name for item in certificates for name in identities(item)}
    assert own.management is ManagementLevel.NONE
    assert own.allow_flow_records
    assert own.ssl_profile == "sslprofile/hub_router-min-TLSv1.2"
    assert not any(item.allow_flow_records for item in found.values()), "applications use the others"
    assert LISTENER not in listeners(router("hub"))


def collectors() -> list[Own]:
    built = model(router("hub"), flow_log("flows"), flow_log("more.logs"))
    return [item for item in built.own.values() if isinstance(item.owner, FlowLog)]


@pytest.mark.parametrize(
    "stated",
    [
        {"tls": {"disabled": True}},
        {"tls": {"secretName": "client"}},
        {"sasl": {"mechanisms": ["ANONYMOUS"]}},
        {},
    ],
)
def test_a_flow_log_that_names_something_uses_a_declared_listener(stated: dict[str, Any]) -> None:
    declared = [
        {"name": "amqp", "port": 5672},
        {"name": "amqps", "port": 5671, "tls": {"secretName": "server"}},
        {"name": "other", "port": 5670},
    ]
    log = flow_log("flows", **stated)
    wanted = "amqps" if "secretName" in stated.get("tls", {}) else "amqp"
    if not stated:
        log["spec"]["routerRef"]["listener"] = wanted = "other"
    secrets = tls_secret("server"), tls_secret("client")
    hub = router("hub", listeners=declared)
    found = listeners(hub, log, secrets=secrets)
    assert [name for name, item in found.items() if item.allow_flow_records] == [wanted]
    assert LISTENER not in found
    assert settings(rendered(hub, log, secrets=secrets))["port"] == found[wanted].port
    assert [item for item in model(hub, log).own.values() if isinstance(item.owner, FlowLog)] == []


def test_the_port_for_collectors_is_one_that_is_free() -> None:
    hub = router("hub", healthPort=35673, listeners=[{"name": "amqp", "port": 35672}])
    site = relay_site("nyc", "hub", memberPort=35674, bridge={"port": 35675})
    manifests = hub, site, flow_log("flows")
    (instance,) = plan(model(*manifests)).instances["hub"]
    assert {item.name: item.port for item in instance.listeners} == {"amqp": 35672, LISTENER: 35676}
    assert settings(rendered(*manifests))["port"] == 35676


def test_only_pods_of_the_flow_logs_reach_the_port_for_collectors() -> None:
    hub = router("hub", listeners=[{"name": "amqp", "port": 5672, "exposure": "None"}])
    made = rendered(hub, flow_log("flows"), flow_log("more")).routers["hub"].objects
    by_name = {(item["kind"], item["metadata"]["name"]): item for item in made}
    (port,) = by_name["Service", "hub"]["spec"]["ports"]
    assert (port["port"], port["targetPort"], port["appProtocol"]) == (35672, 35672, "amqps")
    assert len(port["name"]) > 24, "no listener has this name"
    rules = by_name["NetworkPolicy", "hub"]["spec"]["ingress"]
    (rule,) = [item for item in rules if {"port": 35672, "protocol": "TCP"} in item["ports"]]
    assert rule["ports"] == [{"port": 35672, "protocol": "TCP"}]
    selected = [peer["podSelector"]["matchLabels"] for peer in rule["from"]]
    assert selected == [flow_log_selector("flows"), flow_log_selector("more")]
    assert all(set(peer) == {"podSelector"} for peer in rule["from"]), "of the same namespace"
    for name in ("flows", "more"):
        found = rendered(hub, flow_log("flows"), flow_log("more"))
        labels = objects(found, name)["Deployment"]["spec"]["template"]["metadata"]["labels"]
        assert flow_log_selector(name).items() <= labels.items()


@pytest.mark.parametrize(
    "groups", [{"groups": [{"name": "a", "users": ["flows-flowlog"]}]}, {"defaultGroup": {}}]
)
def test_a_policy_lets_collectors_do_what_they_need_and_nothing_else(groups: dict[str, Any]) -> None:
    manifests = router("hub", policy=groups), flow_log("flows")
    configuration = configs(*manifests)["hub-0"]
    own = next(item for item in configuration.listeners if item.name == LISTENER)
    (profile,) = [item for item in configuration.ssl_profiles.values() if item.name == own.ssl_profile]
    assert profile.uid_format == "n"
    vhosts = Ruleset(configuration.policy, configuration.vhosts)
    vhost = vhosts.vhost(own.policy_vhost or "")
    assert vhost is not None
    assert vhost.config.hostname == own.policy_vhost != "$default"
    assert vhost.group_of("stranger") is vhost.group_of("anonymous") is None
    group = vhost.group_of("flows-flowlog")
    assert group is not None
    sources, targets = group.sources.of("flows-flowlog"), group.targets.of("flows-flowlog")
    for address in ("mc/sfe.all", "mc/sfe.abcde:0", "mc/sfe.abcde:0.flows"):
        assert sources.allows(address)
        assert not targets.allows(address)
    assert targets.allows("sfe.abcde:0")
    for address in ("sfe.abcde:0", "orders", "$management", "_topo/0/hub-0/$management"):
        assert not sources.allows(address)
    for address in ("orders", "$management", "mc/orders"):
        assert not targets.allows(address)
    assert not group.config.allow_dynamic_source
    assert not group.config.allow_anonymous_sender
    assert not group.config.allow_waypoint_links
    assert not group.config.allow_fallback_links
    assert not group.config.allow_dynamic_link_routes
    assert not group.config.allow_admin_status_update
    assert own.policy_vhost not in [item.hostname for item in configs(manifests[0])["hub-0"].vhosts]


def test_a_collector_waits_for_its_certificate() -> None:
    built = model(router("hub"), flow_log("flows"))
    waiting = built.serving({"hub_router": built.ledgers["hub_router"]})
    reason, message = finding(render(waiting, SETTINGS))
    assert reason == "Pending"
    assert "the namespace's own authority has not issued a certificate yet" in message
    waiting = built.serving({"flows_flowlog": built.ledgers["flows_flowlog"]})
    assert LISTENER not in {item.name for item in plan(waiting).instances["hub"][0].listeners}


@pytest.mark.parametrize(
    ("listener", "log", "verdict"),
    [
        ({}, {}, ("False", "Secured")),
        ({}, {"tls": {"disabled": True}}, ("True", "AnonymousClients")),
        ({"acceptInsecure": True}, {"tls": {"disabled": True}}, ("True", "AnonymousClients")),
        ({"tls": {"secretName": "server"}}, {"tls": {"secretName": "client"}}, ("True", "AnonymousClients")),
        ({"sasl": PASSWORDS}, {"tls": {"disabled": True}}, ("True", "ClearText")),
        (
            {"tls": {"secretName": "server", "requireClientCertificate": True}},
            {"tls": {"secretName": "client"}},
            ("False", "Secured"),
        ),
        (
            {"tls": {"secretName": "server", "requireClientCertificate": True}},
            {"tls": {"secretName": "client", "verifyHostname": False}},
            ("True", "UnverifiedHost"),
        ),
        ({}, {"s3": {**STORE, "endpoint": "http://store:9000"}}, ("True", "ClearText")),
        ({}, {"s3": {**STORE, "endpoint": "https://store:9000"}}, ("False", "Secured")),
    ],
)
def test_a_flow_log_says_who_may_receive_flow_records_beside_it(
    listener: dict[str, Any], log: dict[str, Any], verdict: tuple[str, str]
) -> None:
    manifests = (
        router("hub", listeners=[{"name": "amqp", "port": 5672, **listener}]),
        flow_log("flows", **log),
    )
    keys = opaque_secret("keys", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    secrets = tls_secret("server"), tls_secret("client"), opaque_secret("users", "sasldb"), keys
    made = rendered(*manifests, secrets=secrets)
    found = condition(status([pod()], found=made, log=manifests[1]), "Insecure")
    assert found[:2] == verdict
    if verdict[1] == "AnonymousClients":
        assert found[2].startswith(
            'anybody may receive the flow records of the network from listener "amqp" of Router "hub"; remove tls, '
            "sasl and routerRef.listener from the FlowLog, or name a listener that demands authentication"
        )
    assert condition(status([pod()], found=rendered(manifests[1])), "Insecure")[1] == "NotInEffect"


def test_a_listener_that_is_named() -> None:
    hub = router(
        "hub", listeners=[{"name": "mesh", "role": "inter-router", "port": 1}, {"name": "b", "port": 2}]
    )
    log = flow_log("flows")
    log["spec"]["routerRef"]["listener"] = "mesh"
    assert finding(rendered(hub, log))[0] == "RoleMismatch"
    log["spec"]["routerRef"]["listener"] = "b"
    assert settings(rendered(hub, log))["port"] == 2
    log["spec"]["routerRef"]["listener"] = "c"
    assert finding(rendered(hub, log)) == ("Pending", 'Router "hub" has no listener "c" (spec.routerRef)')


def test_an_installation_without_the_image_says_so() -> None:
    found = render(model(router("hub"), flow_log("flows")), RenderSettings(router_image="router:1"))
    assert finding(found)[0] == "NoImage"
    own = render(
        model(router("hub"), flow_log("flows", image="mine:1")),
        RenderSettings(router_image="router:1", restrictions=Restrictions(allowed_images=("mine",))),
    )
    assert own.flow_logs["flows"].objects


def test_names_that_meet() -> None:
    # The Router's listener Service would be called as the collector's objects are.
    hub = router("hub", listeners=[{"name": "flowlog", "port": 5672, "exposure": "NodePort"}])
    found = rendered(hub, flow_log("hub"))
    assert "hub" in found.flow_logs, "a Service and a Deployment may share a name"
    long = "x" * 60
    both = rendered(router("hub"), flow_log(f"{long}-a"), flow_log(f"{long}-b"))
    names = {item["metadata"]["name"] for log in both.flow_logs.values() for item in log.objects}
    assert len(names) == 2


def pod(name: str = "flows-flowlog-x", *, ready: bool = True, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"isthmus.dev/flowlog": "flows"}},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.9",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            **status,
        },
    }


def status(
    pods: list[dict[str, Any]],
    observation: Observation | None = None,
    previous: dict[str, Any] | None = None,
    found: Rendered | None = None,
    log: dict[str, Any] | None = None,
    **deployment: Any,
) -> dict[str, Any]:
    """With a Deployment that is rolled out, unless its status is stated."""
    resources = model(router("hub"), log or flow_log("flows"))
    found = found or render(resources, SETTINGS)
    live = {
        ("Deployment", "flows-flowlog"): {
            "metadata": {
                "name": "flows-flowlog",
                "generation": 1,
                "ownerReferences": [{"uid": "uid-flows", "controller": True}],
            },
            "status": {"observedGeneration": 1, "updatedReplicas": 1, **deployment},
        }
    }
    seen = {pods[0]["metadata"]["name"]: observation} if pods and observation is not None else {}
    facts = flow_facts(resources, live, pods, {}, seen)
    told = facts.status_of_log(resources.flow_logs["flows"], found, previous or {}, NOW)
    assert told is not None
    return told


def condition(told: dict[str, Any], kind: str) -> tuple[str, str, str]:
    item = next(item for item in told["conditions"] if item["type"] == kind)
    return item["status"], item["reason"], item["message"]


def test_all_is_well_when_the_collector_is_connected_and_keeps_what_it_hears() -> None:
    digest = rendered(router("hub"), flow_log("flows")).flow_logs["flows"].certificates
    told = status([pod()], Observation(parse_collector({**ANSWER, "certificates": digest}, AT)))
    assert condition(told, "Ready")[0] == "True"
    assert condition(told, "Collecting") == ("True", "Collecting", "3 routers are heard")
    assert told["location"] == "pvc:flows-flowlog"
    assert (told["routers"], told["rowsWritten"], told["messagesMissed"]) == (3, 1200, 2)
    assert told["lastWrittenAt"] == ANSWER["lastWrittenAt"]


@pytest.mark.parametrize(
    ("answer", "reason", "message"),
    [
        (
            {"connected": False, "problem": "hub.net.svc:5672: refused"},
            "NotConnected",
            "hub.net.svc:5672: refused",
        ),
        ({"connected": False}, "NotConnected", "it is not connected yet"),
        ({"problem": "no space left on the volume"}, "NotKept", "no space left on the volume"),
    ],
)
def test_why_a_collector_does_not_collect(answer: dict[str, Any], reason: str, message: str) -> None:
    # A collector is ready once it has been connected.
    told = status(
        [pod(ready=reason != "NotConnected")], Observation(parse_collector({**ANSWER, **answer}, NOW))
    )  # type: ignore[arg-type]
    assert condition(told, "Ready") == ("False", reason, f"flows-flowlog-x: {message}")


def test_a_collector_without_its_certificates_is_not_configured() -> None:
    answer = {**ANSWER, "certificates": "0" * 64, "certificatesProblem": "handshake failed"}
    told = status([pod()], Observation(parse_collector(answer, AT)))
    assert condition(told, "Configured") == ("False", "ConfigPending", "flows-flowlog-x: handshake failed")
    assert condition(told, "Ready")[:2] == ("False", "ConfigPending")
    assert condition(told, "Collecting")[0] == "True"


@pytest.mark.parametrize("updated", [0, 1])
def test_why_the_pod_of_a_collector_cannot_be_created(updated: int) -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods"}
    told = status([], conditions=[failure], updatedReplicas=updated)
    assert condition(told, "Available")[:2] == ("False", "CollectorNotReady")
    for kind in ("Ready", "Available"):
        assert "exceeded quota: pods" in condition(told, kind)[2]


def test_numbers_stay_while_the_collector_restarts() -> None:
    before = status([pod()], Observation(parse_collector(ANSWER, AT)))  # type: ignore[arg-type]
    told = status([pod(ready=False)], Observation(None, "does not answer on its health port"), before)
    assert condition(told, "Available")[:2] == ("False", "CollectorNotReady")
    assert condition(told, "Collecting")[:2] == ("Unknown", "CollectorSilent")
    assert (told["rowsWritten"], told["lastWrittenAt"]) == (1200, ANSWER["lastWrittenAt"])


def test_what_keeps_a_pod_from_running_is_told() -> None:
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    stuck = pod(ready=False, phase="Pending", containerStatuses=[waiting])
    assert condition(status([stuck]), "Available")[2] == "flows-flowlog-x: ImagePullBackOff: no such image"
    assert condition(status([]), "Available")[2] == "the collector is not ready yet"


def test_a_blocked_one_says_why_and_nothing_of_it_is_taken_away() -> None:
    found = render(model(flow_log("flows")), SETTINGS)
    told = status([pod()], Observation(parse_collector(ANSWER, AT)), found=found)  # type: ignore[arg-type]
    assert condition(told, "Ready") == ("False", "Pending", 'Router "hub" (spec.routerRef) does not exist')
    assert told["rowsWritten"] == 1200


def test_collectors_are_asked_once_they_run() -> None:
    resources = model(router("hub"), flow_log("flows", healthPort=9191))
    asked = targets(resources, [pod(), pod("gone", phase="Failed"), pod("new", podIP="")])
    found = {name: (item.ip, item.port, item.path) for name, item in asked.items()}
    assert found == {"flows-flowlog-x": ("10.0.0.9", 9191, "/status")}
    facts = flow_facts(resources, {}, [pod()], {}, {})
    assert facts.unheard == {"flows"}
    assert FlowFacts().status_of_log(resources.flow_logs["flows"], rendered(), {}, NOW) is None


@pytest.mark.parametrize("answer", [{}, {**ANSWER, "routers": "many"}, [], {**ANSWER, "rowsWritten": None}])
def test_an_answer_of_something_else_is_refused(answer: Any) -> None:
    with pytest.raises(ValueError, match="not a collector's status"):
        parse_collector(answer, AT)


def test_rows_are_no_news_but_the_connection_is() -> None:
    report = parse_collector(ANSWER, AT)
    later = parse_collector({**ANSWER, "rowsWritten": 1300}, AT)
    assert isinstance(report, CollectorReport)
    assert report == later
    assert report.numbers != later.numbers
    assert report != parse_collector({**ANSWER, "routers": 2}, AT)


@pytest.mark.parametrize("stated", [False, True])
def test_a_password_in_clear_text_is_what_the_resource_states(stated: bool) -> None:
    sasl: dict[str, Any] = {"credentialsSecretRef": {"name": "login"}}
    if stated:
        sasl |= {"mechanisms": ["PLAIN"], "allowPlainWithoutTls": True}
    found = rendered(
        router("hub", listeners=[{"name": "amqp", "port": 5672}]),
        flow_log("flows", sasl=sasl),
        secrets=(opaque_secret("login", "username", "password"),),
    )
    assert parse(settings(found)).sasl.allowPlainWithoutTls is stated


def test_the_collector_takes_what_is_rendered() -> None:
    s3 = {"url": "s3a://bucket/prod", "endpoint": "https://store:9000", "secretName": "keys"}
    found = rendered(
        router("hub", listeners=[{"name": "amqps", "port": 5671, "tls": {"secretName": "server"}}]),
        flow_log(
            "flows",
            s3=s3,
            tls={"secretName": "client", "verifyHostname": False},
            sasl={
                "username": "u",
                "passwordSecretRef": {"name": "login"},
                "mechanisms": ["PLAIN", "SCRAM-SHA-256"],
            },
            routers={"include": ["a*"], "exclude": ["ab"]},
            rotation={"seconds": 60, "rows": 5000},
        ),
        secrets=(
            tls_secret("server"),
            tls_secret("client"),
            opaque_secret("login", "password"),
            opaque_secret("keys", *KEYS),
        ),
    )
    taken = parse(settings(found))
    assert taken.endpoints() == [("hub.net.svc", 5671)]
    assert taken.in_bucket
    assert taken.sasl.mechanisms == "PLAIN SCRAM-SHA-256"
    assert taken.tls is not None
    assert (taken.tls.verifyHostname, taken.rotate.rows, taken.retentionDays) == (False, 5000, 30)
    assert taken.wants("ac")
    assert not taken.wants("ab")
