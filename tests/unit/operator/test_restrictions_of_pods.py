"""What authors of resources cannot make pods of: rights, images, volumes and places of others."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.operator.restricted import SETTINGS, refusals, with_pods_of
from tests.unit.operator.support import (
    driver_files,
    flow_analysis,
    flow_log,
    gossip_router,
    model,
    opaque_secret,
    router,
)

from isthmus_operator.names import flow_log_selector
from isthmus_operator.render import Rendered, render
from isthmus_operator.render.allowed import OWN_CONTAINERS, OWN_SCRATCH, OWN_VOLUMES
from isthmus_operator.render.flows.place import KEYS
from isthmus_operator.render.restrictions import SAFE, Level, Restrictions
from isthmus_operator.resources import API_VERSION, InvalidResourceError, parse

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))

SIDECARS = Restrictions(allowed_images=("registry.example/team/",))
SIDECAR = {
    "name": "side",
    "image": "registry.example/team/side:1",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}

PODS: list[tuple[str, dict[str, Any]]] = [
    ("hostNetwork", {"hostNetwork": True}),
    ("hostPID", {"hostPID": True}),
    ("hostIPC", {"hostIPC": True}),
    ("hostUsers", {"hostUsers": True}),
    ("nodeName", {"nodeName": "control-plane"}),
    ("serviceAccountName", {"serviceAccountName": "admin"}),
    ("serviceAccount", {"serviceAccount": "admin"}),
    ("automountServiceAccountToken", {"automountServiceAccountToken": True}),
    ("shareProcessNamespace", {"shareProcessNamespace": True}),
    ("runtimeClassName", {"runtimeClassName": "runc"}),
    ("schedulerName", {"schedulerName": "mine"}),
    ("hostAliases", {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["kubernetes.default.svc"]}]}),
    ("dnsConfig", {"dnsConfig": {"nameservers": ["203.0.113.1"]}}),
    ("ephemeralContainers", {"ephemeralContainers": [{"name": "x"}]}),
    ("priorityClassName", {"priorityClassName": "system-node-critical"}),
    ("securityContext.runAsUser", {"securityContext": {"runAsUser": 0}}),
    ("securityContext.runAsNonRoot", {"securityContext": {"runAsNonRoot": False}}),
    ("securityContext.sysctls", {"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}}),
    ("securityContext.seccompProfile", {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
    ("securityContext.supplementalGroups", {"securityContext": {"supplementalGroups": [0]}}),
    ("volumes[host].hostPath", {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}),
    ("volumes[s].secret", {"volumes": [{"name": "s", "secret": {"secretName": "others"}}]}),
    ("volumes[t].projected", {"volumes": [{"name": "t", "projected": {"sources": []}}]}),
    ("volumes[c].csi", {"volumes": [{"name": "c", "csi": {"driver": "secrets-store.csi.k8s.io"}}]}),
    ("volumes[n].nfs", {"volumes": [{"name": "n", "nfs": {"server": "x", "path": "/"}}]}),
    (
        "volumes[p].persistentVolumeClaim",
        {"volumes": [{"name": "p", "persistentVolumeClaim": {"claimName": "others"}}]},
    ),
    (
        "volumes[e].ephemeral",
        {"volumes": [{"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"dataSource": {}}}}}]},
    ),
    ("securityContext.fsGroup", {"securityContext": {"fsGroup": 26}}),
    ("securityContext.supplementalGroups", {"securityContext": {"supplementalGroups": [26]}}),
    ("volumes[config]", {"volumes": [{"name": "config", "configMap": {"name": "mine"}}]}),
    ("volumes[tmp]", {"volumes": [{"name": "tmp", "configMap": {"name": "mine"}}]}),
    ("containers[side]", {"containers": [{**SIDECAR, "image": "evil:1"}]}),
    ("initContainers[side]", {"initContainers": [{**SIDECAR, "image": "evil:1"}]}),
    ("containers", {"containers": {"name": "x"}}),
]


@pytest.mark.parametrize(("field", "spec"), PODS, ids=[field for field, _ in PODS])
def test_fields_of_pods_that_give_rights_are_refused(field: str, spec: dict[str, Any]) -> None:
    template = {"spec": spec}
    for resource in with_pods_of(template):
        messages = refusals(resource)
        assert messages, resource["kind"]
        assert f"spec.podTemplate.spec.{field}" in messages[0]
        assert "restrictions." in messages[0]
        assert refusals(resource, Restrictions("Any")) == []


@pytest.mark.parametrize("kind", ["httpGet", "tcpSocket"])
@pytest.mark.parametrize("containers", ["containers", "initContainers"])
@pytest.mark.parametrize(
    "field", ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop"]
)
def test_the_kubelet_connects_to_no_host_for_a_sidecar(field: str, containers: str, kind: str) -> None:
    """`127.0.0.1` would be the node."""

    def asking(request: dict[str, Any]) -> dict[str, Any]:
        outer, _, inner = field.partition(".")
        handler: dict[str, Any] = {kind: {"port": 10255, **request}}
        sidecar = {**SIDECAR, outer: {inner: handler} if inner else handler}
        return router("west", podTemplate={"spec": {containers: [sidecar]}})

    assert refusals(asking({}), SIDECARS) == []
    (message,) = refusals(asking({"host": "127.0.0.1"}), SIDECARS)
    assert message.startswith(
        f"spec.podTemplate.spec.{containers}[side].{field}.{kind}.host: it is not allowed"
    )


OWN: list[dict[str, Any]] = [
    {"image": "evil:1"},
    {"command": ["sh"]},
    {"args": ["-c", "id"]},
    {"env": [{"name": "LD_PRELOAD", "value": "/tmp/x.so"}]},
    {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "others", "key": "password"}}}]},
    {"envFrom": [{"secretRef": {"name": "others"}}]},
    {"volumeMounts": [{"name": "tmp", "mountPath": "/opt"}]},
    {"lifecycle": {"postStart": {"exec": {"command": ["sh"]}}}},
    {"securityContext": {"privileged": True}},
    {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
    {"ports": [{"containerPort": 1, "hostPort": 1}]},
]


@pytest.mark.parametrize("change", OWN, ids=lambda change: next(iter(change)))
def test_only_resources_of_the_operators_own_containers_change(change: dict[str, Any]) -> None:
    for resource, container in (
        (router("west"), "router"),
        (gossip_router("gossip"), "gossip-router"),
        (flow_log("log"), "collector"),
        (flow_analysis("daily"), "driver"),
        (flow_analysis("daily"), "executor"),
    ):
        entry = {"name": container, **change}
        resource["spec"]["podTemplate"] = {"spec": {"containers": [entry]}}
        (message,) = refusals(resource, SIDECARS)
        assert f"containers[{container}].{next(iter(change))}" in message
        entry = {"name": container, "resources": {"limits": {"memory": "1Gi"}}}
        resource["spec"]["podTemplate"] = {"spec": {"containers": [entry]}}
        assert refusals(resource) == []


SIDECAR_CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("image", {"image": "registry.example/team-evil/x"}),
    ("image", {"image": ""}),
    ("securityContext", {"securityContext": {}}),
    ("securityContext.privileged", {"securityContext": {**SIDECAR["securityContext"], "privileged": True}}),  # type: ignore[dict-item]
    ("securityContext.runAsUser", {"securityContext": {**SIDECAR["securityContext"], "runAsUser": 0}}),  # type: ignore[dict-item]
    (
        "securityContext.procMount",
        {"securityContext": {**SIDECAR["securityContext"], "procMount": "Unmasked"}},
    ),  # type: ignore[dict-item]
    (
        "securityContext.capabilities",
        {
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"], "add": ["NET_RAW"]},
            }
        },
    ),
    ("env[P]", {"env": [{"name": "P", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}]}),
    ("envFrom", {"envFrom": [{"secretRef": {"name": "x"}}]}),
    ("ports", {"ports": [{"containerPort": 80, "hostPort": 80}]}),
    *(
        (f"volumeMounts[{name}]", {"volumeMounts": [{"name": name, "mountPath": "/mnt", "readOnly": True}]})
        for name in ("config", "tls", "flows", "tmp", "scratch", "staging", "spark-key", "spark-secret")
    ),
    ("volumeDevices", {"volumeDevices": [{"name": "a", "devicePath": "/dev/sda"}]}),
]


@pytest.mark.parametrize(("field", "change"), SIDECAR_CHANGES)
def test_sidecars_meet_the_restricted_standard(field: str, change: dict[str, Any]) -> None:
    good = router("west", podTemplate={"spec": {"containers": [SIDECAR]}})
    assert refusals(good, SIDECARS) == []
    bad = router("west", podTemplate={"spec": {"containers": [{**SIDECAR, **change}]}})
    assert f"containers[side].{field}" in refusals(bad, SIDECARS)[0]
    early = router("west", podTemplate={"spec": {"initContainers": [{**SIDECAR, **change}]}})
    assert f"initContainers[side].{field}" in refusals(early, SIDECARS)[0]
    for resource in (gossip_router("gossip"), flow_log("log")):
        resource["spec"]["podTemplate"] = bad["spec"]["podTemplate"]
        assert f"containers[side].{field}" in refusals(resource, SIDECARS)[0]


def test_sidecars_have_volumes_of_their_own() -> None:
    spec = {
        "containers": [{**SIDECAR, "volumeMounts": [{"name": "mine", "mountPath": "/mnt"}]}],
        "volumes": [{"name": "mine", "emptyDir": {}}],
    }
    assert refusals(router("west", podTemplate={"spec": spec}), SIDECARS) == []


def test_a_driver_has_no_sidecars_as_they_would_have_its_token() -> None:
    analysis = flow_analysis("daily", podTemplate={"spec": {"containers": [SIDECAR]}})
    assert "rights of the driver" in refusals(analysis, SIDECARS)[0]


def test_what_only_places_pods_is_allowed() -> None:
    spec = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [],
        "securityContext": {"fsGroupChangePolicy": "OnRootMismatch", "runAsUser": 1000},
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
    }
    metadata = {
        "labels": {"app.kubernetes.io/version": "1"},
        "annotations": {
            "prometheus.io/scrape": "false",
            "owner": "me",
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
        },
    }
    template = {"metadata": metadata, "spec": spec}
    for resource in with_pods_of(template):
        assert refusals(resource) == []


def test_images_are_those_of_the_installation_unless_it_allows_others() -> None:
    for resource in (router("west"), gossip_router("gossip"), flow_log("log"), flow_analysis("daily")):
        resource["spec"]["image"] = "registry.example/team/router:2"
        assert "spec.image" in refusals(resource)[0]
        for prefix in (
            "registry.example/team/",
            "registry.example/team",
            "registry.example/team/router",
            "*",
        ):
            assert refusals(resource, Restrictions(allowed_images=(prefix,))) == []
        for prefix in ("registry.example/tea", "registry.example/team/route", "example/team/"):
            assert refusals(resource, Restrictions(allowed_images=(prefix,)))


@pytest.mark.parametrize(
    ("entry", "good", "bad"),
    [
        ("registry.bank", "registry.bank/router:1", "registry.bank:5000/evil"),
        ("registry.bank", "registry.bank/a/b@sha256:0", "registry.bank.evil.example/router"),
        ("registry.bank:5000", "registry.bank:5000/router", "registry.bank:50000/router"),
        ("registry.bank/router", "registry.bank/router:1", "registry.bank/router-evil:1"),
        ("router", "router:1", "router:5000/evil:1"),
        ("router", "router@sha256:0", "router@x/evil"),
        ("router:1", "router:1@sha256:0", "router:10"),
    ],
)
def test_a_prefix_of_images_ends_at_a_boundary(entry: str, good: str, bad: str) -> None:
    allowed = Restrictions(allowed_images=(entry,))
    assert refusals(router("west", image=good), allowed) == []
    assert "spec.image" in refusals(router("west", image=bad), allowed)[0]


@pytest.mark.parametrize(
    "image", ["x\nspark.jars http://evil/x.jar", "x y", "-x", "x\\", "x\x00", "https://evil/ x", ""]
)
def test_images_have_no_characters_that_could_begin_another_line(image: str) -> None:
    for resource in (router("west"), gossip_router("gossip"), flow_log("log"), flow_analysis("daily")):
        resource["spec"]["image"] = image
        with pytest.raises(InvalidResourceError):
            parse(resource)


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("field", ["namespaces", "namespaceSelector"])
@pytest.mark.parametrize("required", [True, False])
def test_affinity_is_to_pods_of_the_same_namespace(kind: str, field: str, required: bool) -> None:
    term: dict[str, Any] = {"topologyKey": "kubernetes.io/os", "labelSelector": {}}

    def affinity(term: dict[str, Any]) -> dict[str, Any]:
        if required:
            return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        item = {"weight": 1, "podAffinityTerm": term}
        return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [item]}}

    for resource in (
        router("west"),
        gossip_router("gossip"),
        flow_log("log"),
        flow_analysis("daily"),
    ):
        resource["spec"]["podTemplate"] = {"spec": {"affinity": affinity(term)}}
        assert refusals(resource) == []
        for value in ([], {}, ["kube-system"], {"matchLabels": {"a": "b"}}):
            resource["spec"]["podTemplate"] = {"spec": {"affinity": affinity({**term, field: value})}}
            (message,) = refusals(resource)
            assert f"spec.podTemplate.spec.affinity.{kind}" in message
            assert field in message
            assert refusals(resource, Restrictions("Any")) == []


def test_priority_classes_are_those_that_the_installation_allows() -> None:
    template = {"spec": {"priorityClassName": "high"}}
    for resource in with_pods_of(template):
        (message,) = refusals(resource)
        assert "spec.podTemplate.spec.priorityClassName" in message
        assert "restrictions.allowedPriorityClasses of the chart" in message
        assert refusals(resource, Restrictions(allowed_priority_classes=("hig", "other")))
        for entry in ("high", "*"):
            assert refusals(resource, Restrictions(allowed_priority_classes=(entry,))) == []
    system = router("west", podTemplate={"spec": {"priorityClassName": "system-node-critical"}})
    assert refusals(system, Restrictions(allowed_priority_classes=("*", "system-node-critical")))


def test_claims_of_others_are_those_that_the_installation_allows() -> None:
    log = flow_log("flows", volume={"claimName": "others"})
    around = (router("hub"), flow_analysis("daily"))
    for refusing in (SAFE, Restrictions("Any"), Restrictions(allowed_claims=("other", "flows"))):
        found = render(model(*around, log), replace(SETTINGS, restrictions=refusing))
        assert (dict(found.flow_logs), dict(found.flow_analyses)) == ({}, {})
        (of_log,) = found.findings_of("FlowLog", "flows")
        (of_analysis,) = found.findings_of("FlowAnalysis", "daily")
        for item in (of_log, of_analysis):
            assert (item.reason, item.blocking) == ("NotAllowed", True)
            assert 'spec.volume.claimName: the operator does not allow the claim "others"' in item.message
            assert "restrictions.allowedClaims of the chart" in item.message
        assert 'FlowLog "flows" (spec.flowLogRef)' in of_analysis.message
    for entry in ("others", "*"):
        found = render(
            model(*around, log), replace(SETTINGS, restrictions=Restrictions(allowed_claims=(entry,)))
        )
        assert (set(found.flow_logs), set(found.flow_analyses)) == ({"flows"}, {"daily"})


def policies_of(found: Rendered) -> dict[str, dict[str, Any]]:
    """Specs of the NetworkPolicies of a FlowLog and a FlowAnalysis, by kind of the resource."""
    return {
        owner.kind_name: item["spec"]
        for owner, objects in found.owners()
        for item in objects
        if item["kind"] == "NetworkPolicy" and owner.kind_name in {"FlowLog", "FlowAnalysis"}
    }


def test_pods_use_the_identity_of_the_cloud_only_if_the_installation_allows_it() -> None:
    """The identity of a node reaches buckets that the author of a FlowLog does not."""
    bucket = {"url": "s3a://bucket-of-others/a"}
    around = (router("hub"), flow_analysis("daily"))
    resources = (*around, flow_log("flows", s3=bucket))
    for refusing in (SAFE, Restrictions("Any", "Any", allowed_claims=("*",))):
        found = render(model(*resources), replace(SETTINGS, restrictions=refusing))
        assert (dict(found.flow_logs), dict(found.flow_analyses)) == ({}, {})
        for item in (*found.findings_of("FlowLog", "flows"), *found.findings_of("FlowAnalysis", "daily")):
            assert (item.reason, item.blocking) == ("NotAllowed", True)
            assert "spec.s3.secretName is not set" in item.message
            assert "restrictions.cloudIdentity of the chart" in item.message
    allowed = replace(SETTINGS, restrictions=Restrictions(cloud_identity="Any"))
    found = render(model(*resources), allowed)
    assert (set(found.flow_logs), set(found.flow_analyses)) == ({"flows"}, {"daily"})
    policies = policies_of(found)
    for kind in ("FlowLog", "FlowAnalysis"):
        assert policies[kind]["policyTypes"] == ["Ingress"], "its pods need their identity"
        assert "egress" not in policies[kind]


@pytest.mark.parametrize("in_store", [True, False])
def test_pods_with_keys_and_volumes_do_not_reach_the_metadata_service(in_store: bool) -> None:
    place = {"s3": {"url": "s3a://bucket/a", "secretName": "keys"}} if in_store else {}
    resources = (router("hub"), flow_log("flows", **place), flow_analysis("daily"))
    levels: tuple[Level, ...] = ("Safe", "Any")
    for level in levels:
        settings = replace(SETTINGS, restrictions=Restrictions(cloud_identity=level))
        policies = policies_of(render(model(*resources, secrets=(opaque_secret("keys", *KEYS),)), settings))
        assert policies["FlowLog"]["podSelector"]["matchLabels"] == flow_log_selector("flows")
        for spec in policies.values():
            assert spec["policyTypes"] == ["Ingress", "Egress"]
            rule, dns = spec["egress"]
            blocks = {item["ipBlock"]["cidr"]: item["ipBlock"]["except"] for item in rule["to"][:2]}
            assert list(blocks) == ["0.0.0.0/0", "::/0"]
            assert "169.254.0.0/16" in blocks["0.0.0.0/0"], "no other address of the node either"
            assert "fd00:ec2::254/128" in blocks["::/0"]
            for every, some in blocks.items():
                whole = ip_network(every)
                assert all(ip_network(one).version == whole.version for one in some)
                assert all(ip_network(one).prefixlen > 0 for one in some)
            assert rule["to"][2:] == [{"namespaceSelector": {}}]
            assert "ports" not in rule
            assert dns == {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}


def test_files_with_secrets_are_for_the_group_of_the_pod_only() -> None:
    around = render(model(router("west"), flow_log("log", "west")), SETTINGS)
    pods = [
        item["spec"]["template"]["spec"]
        for _, objects in around.owners()
        for item in objects
        if item["kind"] in {"StatefulSet", "Deployment"}
    ]
    assert len(pods) == 2
    for pod in pods:
        modes = [volume["secret"]["defaultMode"] for volume in pod["volumes"] if "secret" in volume]
        assert modes == [0o440]
        assert pod["securityContext"]["fsGroup"] > 0


def test_the_names_of_the_operators_containers_and_volumes_are_declared() -> None:
    """`render/allowed.py` has each name that some pod has, and no other one."""
    bucket = {"url": "s3a://bucket/a", "endpoint": "https://x:9000", "region": "eu", "secretName": "keys"}
    found = render(
        model(
            router("hub"),
            gossip_router("meet"),
            flow_log("flows"),
            flow_log("b", s3=bucket),
            flow_analysis("daily"),
            secrets=(opaque_secret("keys", *KEYS),),
        ),
        SETTINGS,
    )
    pods = []
    for _, objects in found.owners():
        for item in objects:
            if "template" in item.get("spec", {}):
                pods.append(item["spec"]["template"]["spec"])
            if item["kind"] == "Job":
                pods.append(json.loads(driver_files([item])["executor.json"])["spec"])
    assert len(pods) == 6
    assert {box["name"] for pod in pods for box in pod["containers"]} == set(OWN_CONTAINERS)
    assert {volume["name"] for pod in pods for volume in pod["volumes"]} == {*OWN_VOLUMES, *OWN_SCRATCH}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_need_no_setting_of_the_installation(path: Path) -> None:
    manifests = [item for item in yaml.safe_load_all(path.read_text()) if item["apiVersion"] == API_VERSION]
    for number, item in enumerate(manifests):
        item["metadata"] |= {"namespace": "net", "uid": f"uid-{number}", "generation": 1}
    assert manifests
    found = render(model(*manifests), SETTINGS)
    assert [item for item in found.findings if item.reason == "NotAllowed"] == []
