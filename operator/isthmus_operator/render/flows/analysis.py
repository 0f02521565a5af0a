"""The objects of a FlowAnalysis: a Job or CronJob whose pod is the driver of a Spark application.

The driver is an ordinary pod in Spark's client mode, so that retries, deadlines, schedules and history are those of
Kubernetes. It makes its executors by Spark's own Kubernetes scheduler; they belong to it, and go with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model import NamespaceModel
from ...names import (
    ANNOTATION_GENERATED,
    ANNOTATION_RUN,
    LABEL_FLOW_ANALYSIS,
    LABEL_NAME,
    MANAGER,
    annotation_of_file,
    digest,
    driver_binding,
    flow_analysis_labels,
    flow_analysis_name,
)
from ...resources import FlowAnalysis, FlowLog
from ..egress import all_but_metadata
from ..ingress import NAMESPACE
from ..instances import Finding
from ..material import MaterialError
from ..podtemplate import overlaid
from ..workload import MOUNT, RenderSettings
from .collector import check_keys
from .place import Place, container_security, pod_security

Manifest = dict[str, Any]
UI_PORT = 4040
TERMINATION_LOG = "/dev/termination-log"
LEAST_MEMORY_MIB = 1024
"""Of a pod: Spark does not start with much less than half of it as heap."""
BAD_ARGUMENTS = 2
"""Exit code after which trying again is of no use."""
_DRIVER_HEAP, _EXECUTOR_HEAP = 0.55, 0.75
_LEAST_OVERHEAD_MIB = 384
"""Of an executor, beside its heap: classes, compiled code, threads and buffers come to 250 MiB after all tables."""
_DRIVER_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""A driver plans some hundred small queries, each once: to optimize what is compiled costs more than it is worth, 60 %
of its CPU."""
_CONF, _TEMPLATE = "spark-defaults.conf", "executor.json"
"""Files of the driver. They are annotations of its pod: only who may change pods, and thereby their images, can change
them, which is more than the right to change ConfigMaps."""
MOST_ANNOTATION_BYTES = 256 * 1024
"""Of a pod, all together; a limit of Kubernetes."""
_SCRATCH = "/var/isthmus/scratch"
_KEY, _KEY_FOLDER = "key", "/var/isthmus/spark-key"
"""In the Secret, and where pods have it."""
_SECRET_FILE = "/var/isthmus/spark-secret/secret"
"""That of one run, which driver and executors derive from the key and the id of the application."""
AUTHENTICATION = {
    "spark.authenticate": "true",
    # Without a file, Spark writes the secret to the environment of executors, which everybody reads who may read pods.
    "spark.authenticate.secret.file": _SECRET_FILE,
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    # Otherwise a client may choose SASL with DIGEST-MD5, which encrypts nothing.
    "spark.network.crypto.saslFallback": "false",
    # The default of 30 s is not enough for the first handshake of a process that waits for a busy processor.
    "spark.network.auth.rpcTimeout": "120s",
}
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    f"{unit}i": 1024**power for power, unit in enumerate("KMGT", 1)
}


@dataclass(frozen=True)
class RenderedAnalysis:
    """The objects of one FlowAnalysis, in the order in which they are to be applied."""

    analysis: FlowAnalysis
    objects: tuple[Manifest, ...]
    output: str
    """Where its runs write, as people see it."""

    @property
    def job(self) -> str | None:
        """Name of the Job of the run that the specification asks for; None with a schedule."""
        return next((item["metadata"]["name"] for item in self.objects if item["kind"] == "Job"), None)


def render_analysis(
    found: FlowAnalysis, model: NamespaceModel, settings: RenderSettings
) -> tuple[RenderedAnalysis | None, list[Finding]]:
    """Its objects. None while something it refers to is missing: what runs stays as it is."""
    log = model.flow_logs.get(found.spec.flow_log_ref.name)
    problem: tuple[str, str] | None = None
    if log is None:
        close = model.hints.nearest(found.spec.flow_log_ref.name, model.flow_logs)
        meant = f' (did you mean "{close}"?)' if close is not None else ""
        name = found.spec.flow_log_ref.name
        problem = "Pending", f'FlowLog "{name}" (spec.flowLogRef) does not exist{meant}'
    elif not (found.spec.image or settings.analysis_image):
        problem = (
            "NoImage",
            "the operator was installed without an image of analyses; set spec.image, or flowAnalysis.image of "
            "the chart",
        )
    else:
        problem = _too_little_memory(found) or _no_keys(log, model)
    if problem is not None or log is None:
        assert problem is not None
        return None, [Finding("FlowAnalysis", found.name, *problem, blocking=True)]
    place = Place(log)
    template = _driver_template(found, place, model.namespace, settings)
    if (long := _too_long(template)) is not None:
        return None, [Finding("FlowAnalysis", found.name, *long, blocking=True)]
    name = flow_analysis_name(found.name)
    objects = [
        _account(settings),
        _binding(found, name, model.namespace, settings),
        _network_policy(found, place, settings),
        *place.keys(name, model.secrets),
        _key(found),
        _work(found, template),
    ]
    for item in objects:
        labels = flow_analysis_labels(found.name)
        item["metadata"] = {
            "name": name,
            "labels": labels,
            "namespace": model.namespace,
            **item.get("metadata", {}),
        }
    return RenderedAnalysis(found, tuple(objects), _output(found, place.location)), []


def _output(found: FlowAnalysis, place: str) -> str:
    return f"{place}/analyses/{found.name}"


def _no_keys(log: FlowLog, model: NamespaceModel) -> tuple[str, str] | None:
    try:
        check_keys(log, model)
    except MaterialError as error:
        return error.reason, str(error)
    return None


def _too_little_memory(found: FlowAnalysis) -> tuple[str, str] | None:
    for field, memory in (
        ("driver", found.spec.driver.memory),
        ("executors", found.spec.executors.memory),
    ):
        if mebibytes(memory) < LEAST_MEMORY_MIB:
            return "MemoryTooSmall", f"spec.{field}.memory: {memory} is less than 1Gi, which Spark needs"
    return None


def _too_long(template: Manifest) -> tuple[str, str] | None:
    size = sum(len(f"{key}{value}".encode()) for key, value in template["metadata"]["annotations"].items())
    if size <= MOST_ANNOTATION_BYTES:
        return None
    return (
        "TooLarge",
        f"spec.sparkConf and spec.podTemplate need {size} bytes of annotations of the driver's pod; Kubernetes allows "
        f"{MOST_ANNOTATION_BYTES}. Shorten them",
    )


def mebibytes(quantity: int | str) -> int:
    """A quantity of bytes in MiB, rounded down; 0 for one that is no number of bytes."""
    match = re.fullmatch(r"([0-9.]+)([kMGT]i?|Ki|)", str(quantity))
    return int(float(match[1]) * _UNITS[match[2]] // 2**20) if match and match[2] in _UNITS else 0


def _account(settings: RenderSettings) -> Manifest:
    account: Manifest = {"apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": False}
    if settings.image_pull_secrets:
        account["imagePullSecrets"] = [{"name": secret} for secret in settings.image_pull_secrets]
    return account


def _binding(found: FlowAnalysis, name: str, namespace: str, settings: RenderSettings) -> Manifest:
    """What a driver may do is a role of the installation; it may do it in this namespace."""
    kind, _, role = settings.driver_role.partition("/")
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": driver_binding(found.name, kind)},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }


def _network_policy(found: FlowAnalysis, place: Place, settings: RenderSettings) -> Manifest:
    """Only pods of the same analysis reach its pods, and the operator the user interface of the driver. Its pods do not
    reach the identity of their node unless they have no other one for the object store."""
    own = flow_analysis_labels(found.name)
    same = {key: own[key] for key in (LABEL_NAME, LABEL_FLOW_ANALYSIS)}
    # Pods of other namespaces may have the labels of the operator. One that runs in no namespace is no pod.
    home = settings.operator_namespace
    asking = {
        "namespaceSelector": {"matchLabels": {NAMESPACE: home}},
        "podSelector": {"matchLabels": {LABEL_NAME: MANAGER}},
    }
    shut = not place.flow_log.uses_cloud_identity
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "spec": {
            "podSelector": {"matchLabels": same},
            "policyTypes": ["Ingress", *(["Egress"] if shut else [])],
            **({"egress": all_but_metadata()} if shut else {}),
            "ingress": [
                {"from": [{"podSelector": {"matchLabels": same}}]},
                *([{"from": [asking], "ports": [{"port": UI_PORT, "protocol": "TCP"}]}] if home else []),
            ],
        },
    }


def _key(found: FlowAnalysis) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"annotations": {ANNOTATION_GENERATED: _KEY}},
        "type": "Opaque",
    }


def _files(found: FlowAnalysis, place: Place, namespace: str, settings: RenderSettings) -> Mapping[str, str]:
    """The content of the driver's files, by name."""
    conf = spark_conf(found, place, namespace, settings)
    lines = "".join(f"{key} {_property(value)}\n" for key, value in sorted(conf.items()))
    template = json.dumps(_executor_template(found, place, settings), indent=1, sort_keys=True)
    return {_CONF: lines, _TEMPLATE: template}


def _mounted() -> Manifest:
    """Return the volume source with the two files."""
    items = [
        {"path": file, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation_of_file(file)}']"}}
        for file in (_CONF, _TEMPLATE)
    ]
    return {"items": items, "defaultMode": 0o444}


def _property(value: str) -> str:
    """A value as files of Java properties have it: on one line, whatever is in it."""
    escaped = value.replace("\\", "\\\\")
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in escaped)


def spark_conf(
    found: FlowAnalysis, place: Place, namespace: str, settings: RenderSettings
) -> Mapping[str, str]:
    """Settings of Spark that are the same for all runs; what is of one driver comes with its environment."""
    spec, executors = found.spec, found.spec.executors
    memory = mebibytes(executors.memory)
    heap = min(int(memory * _EXECUTOR_HEAP), memory - _LEAST_OVERHEAD_MIB)
    conf = {
        "spark.driver.defaultJavaOptions": _DRIVER_JAVA,
        **(spec.spark_conf or {}),
        "spark.master": "k8s://https://kubernetes.default.svc:443",
        "spark.submit.deployMode": "client",
        "spark.app.name": flow_analysis_name(found.name),
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.container.image": spec.image or settings.analysis_image,
        "spark.kubernetes.container.image.pullPolicy": settings.image_pull_policy,
        "spark.kubernetes.executor.podTemplateFile": f"{MOUNT}/{_TEMPLATE}",
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        "spark.kubernetes.executor.request.cores": str(executors.cpu or executors.cores),
        "spark.driver.memory": f"{int(mebibytes(spec.driver.memory) * _DRIVER_HEAP)}m",
        "spark.executor.instances": str(executors.instances),
        "spark.executor.cores": str(executors.cores),
        "spark.executor.memory": f"{heap}m",
        "spark.executor.memoryOverhead": f"{memory - heap}m",
        "spark.local.dir": _SCRATCH,
        "spark.ui.port": str(UI_PORT),
        "spark.ui.killEnabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": _events(found, place),
        **AUTHENTICATION,
    }
    if settings.image_pull_secrets:
        conf["spark.kubernetes.container.image.pullSecrets"] = ",".join(settings.image_pull_secrets)
    if executors.max_instances is not None:
        conf |= {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.initialExecutors": str(executors.instances),
            "spark.dynamicAllocation.minExecutors": "1",
            "spark.dynamicAllocation.maxExecutors": str(executors.max_instances),
        }
    s3 = place.flow_log.spec.s3
    if s3 is not None and s3.endpoint:
        conf["spark.hadoop.fs.s3a.endpoint"] = s3.endpoint
        conf.setdefault("spark.hadoop.fs.s3a.path.style.access", "true")
    if s3 is not None and s3.region:
        conf["spark.hadoop.fs.s3a.endpoint.region"] = s3.region
    return conf


def _events(found: FlowAnalysis, place: Place) -> str:
    """The event logs of its runs, which Spark's history server reads."""
    return f"{_output(found, place.url)}/_events"


def _executor_template(found: FlowAnalysis, place: Place, settings: RenderSettings) -> Manifest:
    pod = _pod(found, place, "executor")
    container = pod["spec"]["containers"][0]
    container["env"] = [*_secret_environment(), *place.environment(flow_analysis_name(found.name))]
    container["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}, *_secret_mounts(), *place.mounts()]
    pod["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}, *_secret_volumes(found), *place.volumes()]
    return _overlaid(found, pod, "executor")


def _secret_volumes(found: FlowAnalysis) -> list[Manifest]:
    """Of driver and executors: the key, and memory for the secret of the run."""
    key = {"secretName": flow_analysis_name(found.name), "defaultMode": 0o440}
    memory = {"medium": "Memory", "sizeLimit": "1Mi"}
    return [{"name": "spark-key", "secret": key}, {"name": "spark-secret", "emptyDir": memory}]


def _secret_mounts() -> list[Manifest]:
    folder = _SECRET_FILE.rpartition("/")[0]
    return [
        {"name": "spark-key", "mountPath": _KEY_FOLDER, "readOnly": True},
        {"name": "spark-secret", "mountPath": folder},
    ]


def _secret_environment() -> list[Manifest]:
    """Where the two are; `isthmus_flows.authentication` reads it."""
    return [
        {"name": "ISTHMUS_SPARK_KEY_FILE", "value": f"{_KEY_FOLDER}/{_KEY}"},
        {"name": "ISTHMUS_SPARK_SECRET_FILE", "value": _SECRET_FILE},
    ]


def _pod(found: FlowAnalysis, place: Place, role: str) -> Manifest:
    """What pods of driver and executors have in common."""
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "containers": [{"name": role, "securityContext": container_security()}],
    }
    affinity = place.affinity()
    if affinity is not None:
        spec["affinity"] = dict(affinity)
    return {"metadata": {"labels": flow_analysis_labels(found.name, f"flow-{role}")}, "spec": spec}


def _overlaid(found: FlowAnalysis, template: Manifest, role: str) -> Manifest:
    """The user's template laid over one of ours; what it says of the other container does not count."""
    laid = overlaid(template, found.spec.pod_template)
    containers = laid["spec"]["containers"]
    if isinstance(containers, list):  # the API server refuses everything else
        other = {"driver", "executor"} - {role}
        laid["spec"]["containers"] = [
            item for item in containers if not isinstance(item, dict) or item.get("name") not in other
        ]
    laid["metadata"]["labels"].update(flow_analysis_labels(found.name, f"flow-{role}"))
    return laid


def _driver_template(found: FlowAnalysis, place: Place, namespace: str, settings: RenderSettings) -> Manifest:
    pod = _pod(found, place, "driver")
    driver = found.spec.driver
    pod["spec"] |= {
        "serviceAccountName": flow_analysis_name(found.name),
        "automountServiceAccountToken": True,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "volumes": [
            {"name": "config", "downwardAPI": _mounted()},
            {"name": "scratch", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
            *_secret_volumes(found),
            *place.volumes(),
        ],
    }
    pod["spec"]["containers"][0] |= {
        "image": found.spec.image or settings.analysis_image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": arguments(found, place.url),
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "SPARK_CONF_DIR", "value": MOUNT},
            {
                "name": "PYSPARK_SUBMIT_ARGS",
                "value": "--conf spark.app.id=$(POD_UID) --conf spark.driver.host=$(POD_IP)"
                " --conf spark.kubernetes.driver.pod.name=$(POD_NAME)"
                " --conf spark.kubernetes.executor.podNamePrefix=flows-$(POD_UID) pyspark-shell",
            },
            *_secret_environment(),
            *place.environment(flow_analysis_name(found.name)),
        ],
        "ports": [{"name": "ui", "containerPort": UI_PORT, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": str(driver.cpu), "memory": str(driver.memory)},
            "limits": {"memory": str(driver.memory)},
        },
        "terminationMessagePath": TERMINATION_LOG,
        "volumeMounts": [
            {"name": "config", "mountPath": MOUNT, "readOnly": True},
            {"name": "scratch", "mountPath": _SCRATCH},
            {"name": "tmp", "mountPath": "/tmp"},
            *_secret_mounts(),
            *place.mounts(),
        ],
    }
    if settings.image_pull_secrets:
        pod["spec"]["imagePullSecrets"] = [{"name": secret} for secret in settings.image_pull_secrets]
    laid = _overlaid(found, pod, "driver")
    files = {
        annotation_of_file(file): text for file, text in _files(found, place, namespace, settings).items()
    }
    laid["metadata"]["annotations"] = {**laid["metadata"].get("annotations", {}), **files}
    return laid


def arguments(found: FlowAnalysis, log: str) -> list[str]:
    """Of the command `isthmus-flows`; `log` is where the flow log is, as the driver sees it."""
    spec, output = found.spec, _output(found, log)
    common = [
        f"--log={log}",
        f"--output={output}",
        f"--bucket={spec.bucket_seconds}s",
        f"--baseline-days={spec.baseline_days}",
        f"--keep={spec.history.reports}",
        f"--termination-log={TERMINATION_LOG}",
    ]
    if spec.incremental:
        common = ["stream", "--available-now", f"--checkpoint={output}/_checkpoint", *common]
    else:
        common = ["run", *common]
    if spec.window.last is not None:
        return [*common, f"--last={spec.window.last}"]
    assert spec.window.from_ is not None
    end = [f"--to={spec.window.to}"] if spec.window.to is not None else []
    return [*common, f"--from={spec.window.from_}", *end]


def _work(found: FlowAnalysis, template: Manifest) -> Manifest:
    spec = found.spec
    job: Manifest = {
        "backoffLimit": spec.retries,
        "activeDeadlineSeconds": spec.deadline_seconds,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "driver", "operator": "In", "values": [BAD_ARGUMENTS]},
                },
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
            ]
        },
        "template": template,
    }
    if spec.schedule is not None:
        return {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "spec": {
                "schedule": spec.schedule,
                "timeZone": spec.time_zone or "Etc/UTC",
                "concurrencyPolicy": spec.concurrency_policy,
                "suspend": spec.suspend,
                "startingDeadlineSeconds": 300,
                "successfulJobsHistoryLimit": spec.history.jobs,
                "failedJobsHistoryLimit": spec.history.jobs,
                "jobTemplate": {"metadata": {"labels": flow_analysis_labels(found.name)}, "spec": job},
            },
        }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": run_name(found)},
        "spec": {**job, "suspend": spec.suspend},
    }


def run_name(found: FlowAnalysis) -> str:
    """Name of the Job of the one run that a specification without a schedule asks for: another one with each change of
    it, and of the annotation `isthmus.dev/run`, but not with another image of the operator's."""
    asked = found.spec.model_dump(mode="json", by_alias=True, exclude={"suspend", "history"})
    text = json.dumps([asked, found.metadata.annotations.get(ANNOTATION_RUN, "")], sort_keys=True)
    return f"{flow_analysis_name(found.name)}-{digest(text)[:8]}"
