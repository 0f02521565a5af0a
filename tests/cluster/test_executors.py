"""What a compromised driver of a FlowAnalysis, which may create pods, can create, change and delete: its executors."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.operator.support import driver_files

from .harness.cluster import Cluster
from .harness.host import CommandError
from .support.network import USABLE
from .support.tenant import SIDE, Place, analysis, away, place_of_a_tenant, plain, resource, token

ACCOUNT = "daily-analysis"
"""That of the driver, and the name of most objects of its FlowAnalysis."""
STORE = {"url": "s3a://flows", "endpoint": "http://store:9000", "secretName": "keys"}
TOLERATION = {"key": "a", "operator": "Exists"}
POD = {
    "nodeSelector": {"no-such-node": "true"},
    "tolerations": [TOLERATION],
    "affinity": away(),
    "imagePullSecrets": [{"name": "registry"}],
    "terminationGracePeriodSeconds": 60,
}
"""Of `podTemplate`: pods that wait for a node."""
Change = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Driver:
    """A driver that waits for a node, and the pod that Spark would make for it as an executor."""

    place: Place
    uid: str
    executor: dict[str, Any]

    def refused(self, word: str, change: Change) -> None:
        """The API server refuses a changed executor."""
        pod = copy.deepcopy(self.executor)
        change(pod)
        self.place.refused(ACCOUNT, word, pod, self.uid)

    def denied(self, word: str, *words: str) -> None:
        """The API server refuses a command of the driver."""
        with pytest.raises(CommandError) as error:
            self.place.kubectl(*words, as_account=ACCOUNT, pod=self.uid)
        assert word in error.value.output, words


@pytest.fixture(scope="module")
def driver(cluster: Cluster) -> Iterator[Driver]:
    """Its account also has rights that its role does not give: policies hold whatever else somebody allows."""
    with place_of_a_tenant(cluster) as place:
        place.allow(ACCOUNT, "pods", "patch")
        for verb in ("get", "list", "delete"):
            place.allow(ACCOUNT, "configmaps", verb)
        log = resource("FlowLog", routerRef={"name": "hub"}, s3=STORE)
        log["metadata"] |= {"name": "flows", "annotations": {"isthmus.dev/paused": "true"}}
        daily = analysis(podTemplate={"spec": POD})
        daily["metadata"] |= {"name": "daily"}
        keys, registry = (plain("Secret", labels=USABLE) for _ in range(2))
        keys["metadata"] |= {"name": "keys"}
        keys["stringData"] = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        registry["metadata"] |= {"name": "registry"}
        registry |= {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{}"}}
        cluster.apply(keys, registry, namespace=place.namespace)
        text = "\n---\n".join(map(json.dumps, (log, daily)))
        place.kubectl("apply", "--filename=-", input=text, as_account="tenant")
        cluster.wait("create", f"rolebinding/{ACCOUNT}", namespace=place.namespace)

        def found() -> dict[str, Any]:
            label = "app.kubernetes.io/component=flow-driver"
            pods = cluster.get("pods", f"--selector={label}", namespace=place.namespace)["items"]
            assert len(pods) == 1
            return dict(pods[0]["metadata"])

        metadata = cluster.eventually("the driver waits for a node", found)
        made = driver_files(cluster.get("jobs", namespace=place.namespace)["items"])
        with place.lax():
            yield Driver(place, metadata["uid"], executor_of(metadata, made))


def executor_of(driver: dict[str, Any], made: dict[str, str]) -> dict[str, Any]:
    """The pod that Spark makes from the files `made` for a driver with these metadata."""
    conf = dict(line.split(" ", 1) for line in made["spark-defaults.conf"].splitlines())
    uid = driver["uid"]
    name = f"flows-{uid}-exec-1"
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", **json.loads(made["executor.json"])}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": driver["name"], "uid": uid, "controller": True}
    pod["metadata"] |= {"name": name, "ownerReferences": [owner]}
    pod["metadata"]["labels"] |= {"spark-role": "executor", "spark-app-selector": uid, "spark-exec-id": "1"}
    pod["spec"] |= {"hostname": name, "restartPolicy": "Never"}
    pod["spec"]["volumes"] += [
        {"name": "spark-conf-volume-exec", "configMap": {"name": "spark-exec-1-conf-map"}},
        {"name": "spark-local-dir-1", "emptyDir": {}},
    ]
    (container,) = pod["spec"]["containers"]
    container |= {
        "image": conf["spark.kubernetes.container.image"],
        "imagePullPolicy": conf["spark.kubernetes.container.image.pullPolicy"],
        "args": ["executor"],
        "ports": [{"name": "blockmanager", "containerPort": 7079}],
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
        "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
    }
    own = {"name": "SPARK_EXECUTOR_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    container["env"] += [own, {"name": "SPARK_EXECUTOR_ID", "value": "1"}]
    container["volumeMounts"] += [
        {"name": "spark-conf-volume-exec", "mountPath": "/opt/spark/conf"},
        {"name": "spark-local-dir-1", "mountPath": "/var/isthmus/scratch"},
    ]
    return pod


def of_pod(**fields: Any) -> Change:
    return lambda pod: pod["spec"].update(fields)


def of_container(**fields: Any) -> Change:
    return lambda pod: pod["spec"]["containers"][0].update(fields)


def of_context(**fields: Any) -> Change:
    return lambda pod: pod["spec"]["containers"][0]["securityContext"].update(fields)


def of_pod_context(**fields: Any) -> Change:
    return lambda pod: pod["spec"]["securityContext"].update(fields)


def of_mount(**fields: Any) -> Change:
    return lambda pod: pod["spec"]["containers"][0]["volumeMounts"][0].update(fields)


def of_metadata(**fields: Any) -> Change:
    return lambda pod: pod["metadata"].update(fields)


def keys(kind: str, **keys: str) -> Change:
    return lambda pod: pod["metadata"].setdefault(kind, {}).update(keys)


def of_owner(**fields: Any) -> Change:
    return lambda pod: pod["metadata"]["ownerReferences"][0].update(fields)


def volume(**source: Any) -> Change:
    return lambda pod: pod["spec"]["volumes"].append({"name": "another", **source})


def variable(**source: Any) -> Change:
    entry = {"name": "A", "valueFrom": source}
    return lambda pod: pod["spec"]["containers"][0]["env"].append(entry)


def secret_variable(secret: str) -> Change:
    return variable(secretKeyRef={"name": secret, "key": "a"})


GONE = "11111111-2222-3333-4444-555555555555"
"""The uid of a pod that does not exist."""
EXEC = {"exec": {"command": ["sh"]}}
OWNER = "belong to the pod that has the token"
OTHER_NAME = "names of executors begin with"
METADATA = "fields of metadata that neither"
LABELS = "have the labels"
SPEC = "fields of spec that neither"
CONTAINER = "fields of spec.containers that neither"
PARTS = "fields of spec.containers: ports"
VARIABLES = "variables of executors"
AS_DRIVER = "of the pod of their driver|of the container of their driver|the pod of their driver has them"
SCHEDULING = "as the pod of their driver has them"
# Two policies refuse these. The API server answers with the message of either.
NO_ACCOUNT = f"no token, and no service account|with the account of the operator|{AS_DRIVER}"
AFFINITY = f"names no other namespaces|{AS_DRIVER}"
PRIORITY = f"no priority class|{AS_DRIVER}"
IMAGE = f"have the image of analyses|{AS_DRIVER}"
TYPES = f"fields of spec.volumes that neither|{AS_DRIVER}"
NOT_MOUNTED = f"mount no Secret but that of their FlowAnalysis|{AS_DRIVER}"
ONE_CONTAINER = f"have one container|{AS_DRIVER}"
SECURITY = f"have the security context|{AS_DRIVER}"
CONTEXTS = f"fields of (spec.securityContext|securityContext of the container) that neither|{AS_DRIVER}"
REFUSED: list[tuple[str, Change]] = [
    (OWNER, lambda pod: pod["metadata"].pop("ownerReferences")),
    (OWNER, of_owner(uid=GONE)),
    (OWNER, of_owner(apiVersion="apps/v1")),
    (OTHER_NAME, of_metadata(name="hub-0")),
    (OTHER_NAME, of_metadata(name=f"flows-{GONE}-exec-1")),
    (METADATA, of_metadata(finalizers=["example.com/never"])),
    (METADATA, of_metadata(generateName="hub-")),
    (LABELS, keys("labels", app="postgres")),
    (LABELS, keys("labels", **{"app.kubernetes.io/name": "isthmus-router"})),
    (LABELS, keys("labels", **{"app.kubernetes.io/component": "flow-driver"})),
    (LABELS, keys("labels", **{"isthmus.dev/router": "x"})),
    (LABELS, keys("labels", **{"isthmus.dev/flowanalysis": "other"})),
    ("have annotations", keys("annotations", **{"k8s.v1.cni.cncf.io/networks": "x"})),
    (NO_ACCOUNT, of_pod(automountServiceAccountToken=True)),
    (NO_ACCOUNT, of_pod(serviceAccountName="isthmus-operator")),
    (NO_ACCOUNT, of_pod(serviceAccountName=ACCOUNT)),
    ("the host name of an executor", of_pod(hostname="hub-0")),
    (SPEC, of_pod(hostNetwork=True)),
    (SPEC, of_pod(hostPID=True)),
    (SPEC, of_pod(hostIPC=True)),
    (SPEC, of_pod(hostUsers=False)),
    (SPEC, of_pod(nodeName="no-such-node")),
    (SPEC, of_pod(initContainers=[SIDE])),
    (SPEC, of_pod(shareProcessNamespace=True)),
    (SPEC, of_pod(subdomain="hub-mesh")),
    (SPEC, of_pod(setHostnameAsFQDN=True)),
    (SPEC, of_pod(hostAliases=[{"ip": "203.0.113.1", "hostnames": ["hub"]}])),
    (SPEC, of_pod(dnsConfig={"nameservers": ["203.0.113.1"]})),
    (SPEC, of_pod(readinessGates=[{"conditionType": "example.com/ready"}])),
    (SPEC, of_pod(schedulingGates=[{"name": "example.com/never"}])),
    (SPEC, of_pod(activeDeadlineSeconds=1)),
    (SPEC, of_pod(os={"name": "linux"})),
    (AFFINITY, of_pod(affinity=away(namespaceSelector={}))),
    (AFFINITY, of_pod(affinity=away(namespaces=["kube-system"]))),
    (SCHEDULING, of_pod(affinity=away(topologyKey="kubernetes.io/hostname"))),
    (SCHEDULING, lambda pod: pod["spec"].pop("nodeSelector")),
    (PRIORITY, of_pod(priorityClassName="system-node-critical")),
    (SCHEDULING, of_pod(schedulerName="another")),
    (SCHEDULING, of_pod(dnsPolicy="Default")),
    (SCHEDULING, of_pod(restartPolicy="Always")),
    (SCHEDULING, of_pod_context(runAsGroup=26)),
    ("no tolerations", of_pod(tolerations=[{"operator": "Exists"}])),
    ("terminationGracePeriodSeconds of executors", of_pod(terminationGracePeriodSeconds=86400)),
    ("have the imagePullSecrets", of_pod(imagePullSecrets=[{"name": "others"}])),
    ("have the imagePullSecrets", of_pod(imagePullSecrets=[{"name": "default-dockercfg"}])),
    (NOT_MOUNTED, volume(secret={"secretName": "isthmus-authority"})),
    (NOT_MOUNTED, volume(secret={"secretName": "x-config"})),
    (NOT_MOUNTED, volume(persistentVolumeClaim={"claimName": "others"})),
    (TYPES, volume(hostPath={"path": "/"})),
    (TYPES, volume(projected={"sources": [{"serviceAccountToken": {"path": "token"}}]})),
    (TYPES, volume(projected={"sources": [{"secret": {"name": "isthmus-authority"}}]})),
    (TYPES, volume(csi={"driver": "secrets-store.csi.k8s.io"})),
    (TYPES, volume(nfs={"server": "203.0.113.1", "path": "/"})),
    ("have the volumes", volume(persistentVolumeClaim={"claimName": "others-flowlog"})),
    ("have the volumes", volume(configMap={"name": "kube-root-ca.crt"})),
    (VARIABLES, secret_variable("isthmus-authority")),
    (VARIABLES, variable(configMapKeyRef={"name": "kube-root-ca.crt", "key": "ca.crt"})),
    (CONTAINER, of_container(envFrom=[{"secretRef": {"name": "isthmus-authority"}}])),
    (CONTAINER, of_container(command=["sh"])),
    (CONTAINER, of_container(workingDir="/tmp")),
    (CONTAINER, of_container(stdin=True)),
    (CONTAINER, of_container(lifecycle={"postStart": EXEC})),
    (CONTAINER, of_container(livenessProbe=EXEC)),
    (PARTS, of_container(ports=[{"containerPort": 1, "hostPort": 1}])),
    (PARTS, of_mount(subPath="x")),
    (PARTS, of_mount(mountPropagation="HostToContainer")),
    (IMAGE, of_container(image="evil:1")),
    (IMAGE, of_container(image="isthmus-flow-analysis/evil:1")),
    (AS_DRIVER, of_container(image="isthmus-flow-analysis:evil")),
    (AS_DRIVER, of_container(imagePullPolicy="Always")),
    (AS_DRIVER, of_context(readOnlyRootFilesystem=False)),
    (ONE_CONTAINER, of_container(args=["run"])),
    (ONE_CONTAINER, lambda pod: pod["spec"]["containers"].append({**pod["spec"]["containers"][0], **SIDE})),
    (SECURITY, of_context(privileged=True, allowPrivilegeEscalation=True)),
    (SECURITY, of_context(runAsUser=0)),
    (SECURITY, of_context(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]})),
    (SECURITY, of_context(seccompProfile={"type": "Unconfined"})),
    (SECURITY, of_pod_context(fsGroup=26)),
    (SECURITY, of_pod_context(runAsNonRoot=False)),
    (CONTEXTS, of_pod_context(supplementalGroups=[26])),
    (CONTEXTS, of_pod_context(sysctls=[{"name": "net.ipv4.tcp_syncookies", "value": "0"}])),
    (CONTEXTS, of_context(windowsOptions={"runAsUserName": "a"})),
]


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod,
        of_pod(imagePullSecrets=[{"name": "default-dockercfg-x1"}]),
        of_pod(tolerations=[]),
        of_pod(terminationGracePeriodSeconds=30),
        lambda pod: pod["spec"].pop("hostname"),
        secret_variable(f"{ACCOUNT}-store-keys"),
        keys("annotations", **{"prometheus.io/scrape": "false"}),
    ],
)
def test_a_driver_makes_executors(driver: Driver, change: Change) -> None:
    pod = copy.deepcopy(driver.executor)
    change(pod)
    driver.place.create(ACCOUNT, pod, driver.uid)


@pytest.mark.parametrize(("word", "change"), REFUSED)
def test_a_driver_makes_executors_and_no_other_pods(driver: Driver, word: str, change: Change) -> None:
    """A pod can have every Secret and service account of its namespace."""
    driver.refused(word, change)


@pytest.mark.parametrize(
    ("word", "change"),
    [
        ("names no other namespaces", of_pod(affinity=away(namespaceSelector={}))),
        ("no priority class of the system", of_pod(priorityClassName="system-node-critical")),
        ("have the image of analyses", of_container(image="isthmus-flow-analysis/evil:1")),
        ("mount no Secret", volume(secret={"secretName": "isthmus-authority"})),
        ("have the security context", of_context(privileged=True, allowPrivilegeEscalation=True)),
    ],
)
def test_a_token_whose_pod_is_gone_makes_executors_alone(driver: Driver, word: str, change: Change) -> None:
    """API servers cache tokens for seconds. Without the pod they cannot compare it with an executor."""
    pod = json.loads(json.dumps(driver.executor).replace(driver.uid, GONE))
    change(pod)
    driver.place.refused(ACCOUNT, word, pod, GONE)


def test_a_token_without_a_pod_makes_no_executors(driver: Driver) -> None:
    driver.place.refused(ACCOUNT, OWNER, driver.executor)


def test_a_driver_changes_and_deletes_only_its_own_objects(driver: Driver) -> None:
    """The image of a pod can be changed, and a driver may delete all claims by one request."""
    place, uid = driver.place, driver.uid
    own = plain("ConfigMap", labels={"spark-app-selector": uid})
    foreign = plain("ConfigMap", labels={"spark-app-selector": uid[::-1]})
    own["metadata"]["name"], foreign["metadata"]["name"] = "spark-exec-1-conf-map", "spark-exec-2-conf-map"
    place.create(ACCOUNT, own, uid)
    place.refused(ACCOUNT, "labels what it makes", foreign, uid)
    for change in ({"name": "x-config"}, {"finalizers": ["example.com/never"]}):
        changed = {**own, "metadata": {**own["metadata"], **change}}
        place.refused(ACCOUNT, "name and labels begin with spark-, without finalizers", changed, uid)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": uid}
    router = {"apiVersion": "isthmus.dev/v1alpha1", "kind": "Router", "name": "x", "uid": uid}
    reflected = {"reflector.v1.k8s.emberstack.com/reflection-auto-enabled": "true"}
    for word, change in (
        ("have annotations that", {"annotations": reflected}),
        ("belong to nothing but the pod", {"ownerReferences": [owner, router]}),
        ("belong to nothing but the pod", {"ownerReferences": [{**owner, "uid": uid[::-1]}]}),
    ):
        place.refused(ACCOUNT, word, {**own, "metadata": {**own["metadata"], **change}}, uid)
    plainly = {"annotations": {"prometheus.io/scrape": "false"}, "ownerReferences": [owner]}
    place.create(ACCOUNT, {**own, "metadata": {**own["metadata"], **plainly}}, uid)
    place.kubectl("create", "--filename=-", input="\n---\n".join(map(json.dumps, (own, foreign))))
    for kind, name in (
        ("configmap", "spark-exec-2-conf-map"),
        ("configmap", "kube-root-ca.crt"),
        ("pod", operator_pod(place)),
    ):
        driver.denied("only what it has made itself", "delete", kind, name, "--dry-run=server")
    place.kubectl("delete", "configmap", "spark-exec-1-conf-map", as_account=ACCOUNT, pod=uid)
    driver.denied(
        "a driver of a FlowAnalysis changes", "set", "image", f"pod/{operator_pod(place)}", "operator=evil:1"
    )


def operator_pod(place: Place) -> str:
    found = json.loads(
        place.kubectl("get", "pods", "--selector=app.kubernetes.io/name=isthmus-operator", "--output=json")
    )
    return str(found["items"][0]["metadata"]["name"])


def test_a_driver_changes_only_labels_of_spark_on_its_executors(driver: Driver) -> None:
    name = driver.executor["metadata"]["name"]
    place, by = driver.place, {"as_account": ACCOUNT, "pod": driver.uid}
    place.kubectl("create", "--filename=-", input=json.dumps(driver.executor), **by)

    def patch(change: dict[str, Any]) -> tuple[str, ...]:
        return "patch", "pod", name, f"--patch={json.dumps(change)}"

    place.kubectl(*patch({"metadata": {"labels": {"spark-exec-inactive": "true"}}}), **by)
    for change in (
        {"metadata": {"labels": {"app": "postgres"}}},
        {"metadata": {"labels": {"isthmus.dev/flowanalysis": None}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"metadata": {"finalizers": ["example.com/never"]}},
        {"metadata": {"ownerReferences": [{"$patch": "replace"}]}},
        {"spec": {"containers": [{"name": "executor", "image": "evil:1"}]}},
    ):
        driver.denied("changes only labels of its executors", *patch(change))
    place.kubectl("delete", "pod", name, "--wait=false", **by)


def test_a_driver_without_the_verb_of_its_role_is_not_recognized(driver: Driver) -> None:
    """So the role has to give it, though no request has this verb."""
    word, change = REFUSED[0]
    driver.refused(word, change)
    pod = copy.deepcopy(driver.executor)
    pod["metadata"]["name"] = pod["spec"]["hostname"] = f"flows-{driver.uid}-exec-2"
    change(pod)
    with driver.place.without(ACCOUNT, "isthmus-flow-driver", "drive", "flowanalyses.isthmus.dev"):
        driver.place.create(ACCOUNT, pod, driver.uid)


def test_no_secret_has_the_token_of_a_driver(driver: Driver) -> None:
    """A person who may write Secrets would get the rights of a driver by it."""
    secret = token()
    driver.place.kubectl("create", "--dry-run=server", "--filename=-", input=json.dumps(secret))
    secret["metadata"]["annotations"] = {"kubernetes.io/service-account.name": ACCOUNT}
    with pytest.raises(CommandError) as error:
        driver.place.kubectl("create", "--filename=-", input=json.dumps(secret))
    assert "have no tokens in Secrets" in error.value.output
