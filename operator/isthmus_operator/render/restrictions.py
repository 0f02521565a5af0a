"""What authors of resources may have pods do. Pure.

The operator makes pods with its own rights, so a resource must not ask for more than the right to write that resource
is meant to give. What is allowed is listed. Everything else is refused, with the name of its field and of the chart
value that allows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..resources import FlowAnalysis, FlowLog, GossipRouter, Router
from ..resources.flowanalysis import SAFE_SPARK_KEYS
from ..resources.pods import PodTemplate
from .instances import Finding

Level = Literal["Safe", "Any"]
PodOwner = Router | GossipRouter | FlowLog | FlowAnalysis
REASON = "NotAllowed"

_OWN_CONTAINERS = ("router", "gossip-router", "collector", "driver", "executor")
_SCHEDULING = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "terminationGracePeriodSeconds",
)
_SAFE_VOLUMES = ("emptyDir", "configMap", "downwardAPI", "persistentVolumeClaim", "ephemeral")
"""Of those that Pod Security `restricted` admits. Not `secret` and `projected`: they hold Secrets and tokens."""
_OWN_SCRATCH = ("tmp", "scratch", "staging")
"""Volumes of the operator's that an author may give another size."""
_RESERVED_DOMAINS = ("kubernetes.io", "k8s.io", "isthmus.dev", "openshift.io")
_RESERVED_PREFIXES = (
    "iam.amazonaws.com/",
    "azure.workload.identity/",
    "vault.hashicorp.com/",
    "k8s.v1.cni.cncf.io/",
    "v1.multus-cni.io/",
    "cni.projectcalico.org/",
    "io.kubernetes.cri",
    "io.katacontainers",
)
"""Annotations and labels by which others give pods identities, Secrets, networks or rights."""
_FREE = ("cluster-autoscaler.kubernetes.io/safe-to-evict",)
_SIDECAR_FIELDS = (
    *("name", "image", "imagePullPolicy", "command", "args", "workingDir", "env", "ports", "resources"),
    *("volumeMounts", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "securityContext"),
    *("terminationMessagePath", "terminationMessagePolicy", "restartPolicy"),
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]")
_SUBSTITUTION = re.compile(r"\$\{|\\")


@dataclass(frozen=True)
class Restrictions:
    """What the installation allows authors of resources; the defaults are the safe ones."""

    pod_template: Level = "Safe"
    """`Any`: `podTemplate` may set every field of a pod."""
    spark_conf: Level = "Safe"
    """`Any`: `sparkConf` may set every key that the operator does not set itself."""
    allowed_images: tuple[str, ...] = ()
    """Prefixes of images for `image` and for sidecars; `*` is every image."""

    def allows_image(self, image: str) -> bool:
        return any(prefix == "*" or _under(image, prefix) for prefix in self.allowed_images)


SAFE = Restrictions()


def _under(image: str, prefix: str) -> bool:
    """Whether `image` is `prefix` or continues it at a boundary: `reg.example/team` does not allow
    `reg.example/team-x`."""
    return image.startswith(prefix) and (
        prefix.endswith("/") or image == prefix or image[len(prefix)] in "/:@"
    )


def refused(resource: PodOwner, allowed: Restrictions) -> list[Finding]:
    """What `resource` asks for and must not have; none when it may."""
    return [
        Finding(resource.kind_name, resource.name, REASON, message, blocking=True)
        for message in _complaints(resource, allowed)
    ][:8]


def _complaints(resource: PodOwner, allowed: Restrictions) -> Iterator[str]:
    spec = resource.spec
    if spec.image is not None and not allowed.allows_image(spec.image):
        yield (
            f'spec.image: the operator does not allow the image "{_shown(spec.image)}"; remove it, or add a prefix of '
            "it to restrictions.allowedImages of the chart"
        )
    if spec.pod_template is not None and allowed.pod_template == "Safe":
        sidecars = not isinstance(resource, FlowAnalysis)
        for field, why in _template(spec.pod_template, allowed, sidecars=sidecars):
            yield (
                f"spec.podTemplate.{field}: {why}; remove it, or set restrictions.podTemplate of the chart to Any"
            )
    if isinstance(resource, FlowAnalysis):
        yield from _spark(resource.spec.spark_conf or {}, allowed)


def _spark(conf: Mapping[str, str], allowed: Restrictions) -> Iterator[str]:
    for key, value in conf.items():
        if _CONTROL.search(key) or _CONTROL.search(value):
            yield f'spec.sparkConf: "{_shown(key)}" has a control character; remove it'
        elif allowed.spark_conf == "Safe" and not is_safe_key(key):
            yield (
                f'spec.sparkConf: "{_shown(key)}" is not one of the keys that are known to be harmless; remove it, or '
                "set restrictions.sparkConf of the chart to Any"
            )
        elif allowed.spark_conf == "Safe" and _SUBSTITUTION.search(value):
            yield f'spec.sparkConf: the value of "{_shown(key)}" has a backslash or a substitution; remove it'


def is_safe_key(key: str) -> bool:
    """Whether the key of a setting of Spark only tunes."""
    return key in SAFE_SPARK_KEYS or any(
        prefix.endswith(".") and key.startswith(prefix) for prefix in SAFE_SPARK_KEYS
    )


def _template(template: PodTemplate, allowed: Restrictions, *, sidecars: bool) -> Iterator[tuple[str, str]]:
    """Field, and what is wrong with it."""
    metadata = template.metadata
    if metadata is not None:
        for name, keys in (("labels", metadata.labels), ("annotations", metadata.annotations)):
            yield from (
                (f"metadata.{name}", f'the key "{_shown(key)}" is reserved')
                for key in keys or ()
                if _is_reserved(key)
            )
    for field, value in (template.spec or {}).items():
        if field in _SCHEDULING:
            continue
        if field == "priorityClassName":
            if str(value).startswith("system-"):
                yield f"spec.{field}", "classes of the system are not allowed"
        elif field == "imagePullSecrets":
            continue
        elif field == "securityContext":
            yield from _pod_context(value)
        elif field in {"containers", "initContainers"}:
            yield from _containers(field, value, allowed, sidecars=sidecars)
        elif field == "volumes":
            yield from _volumes(value)
        else:
            yield f"spec.{_shown(field)}", "it is not allowed"


def _is_reserved(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    return key not in _FREE and (
        (
            any(domain == item or domain.endswith(f".{item}") for item in _RESERVED_DOMAINS)
            and not key.startswith("app.kubernetes.io/")
            and not key.startswith("prometheus.io/")
        )
        or key.startswith(_RESERVED_PREFIXES)
    )


def _pod_context(context: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(context, dict):
        yield "spec.securityContext", "it is not an object"
        return
    for field, value in context.items():
        where = f"spec.securityContext.{_shown(field)}"
        if field in {"fsGroup", "runAsGroup", "fsGroupChangePolicy", "supplementalGroups"}:
            groups = value if isinstance(value, list) else [value]
            if any(item == 0 for item in groups):
                yield where, "the group 0 is not allowed"
        elif field == "runAsUser":
            if value == 0:
                yield where, "the user 0 is not allowed"
        elif field == "runAsNonRoot":
            if value is not True:
                yield where, "it must be true"
        elif field == "seccompProfile":
            if value != {"type": "RuntimeDefault"}:
                yield where, "it must be RuntimeDefault"
        else:
            yield where, "it is not allowed"


def _containers(
    field: str, items: Any, allowed: Restrictions, *, sidecars: bool
) -> Iterator[tuple[str, str]]:
    if not isinstance(items, list):
        yield f"spec.{field}", "it is not a list"
        return
    for item in items:
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str):
            yield f"spec.{field}", "an entry has no name"
            continue
        where = f"spec.{field}[{_shown(name)}]"
        if field == "containers" and name in _OWN_CONTAINERS:
            yield from (
                (f"{where}.{_shown(key)}", "only resources of the operator's own container can be changed")
                for key in item
                if key not in {"name", "resources"}
            )
        elif not sidecars:
            yield where, "a further container would have the rights of the driver"
        else:
            yield from _sidecar(where, item, allowed)


def _sidecar(where: str, item: Mapping[str, Any], allowed: Restrictions) -> Iterator[tuple[str, str]]:
    """It must meet Pod Security `restricted`, and reach no Secret."""
    yield from ((f"{where}.{_shown(key)}", "it is not allowed") for key in item if key not in _SIDECAR_FIELDS)
    if not allowed.allows_image(str(item.get("image", ""))):
        yield f"{where}.image", "no prefix of it is in restrictions.allowedImages of the chart"
    for variable in _dicts(item.get("env")):
        source = variable.get("valueFrom")
        if isinstance(source, dict) and set(source) - {"fieldRef", "resourceFieldRef", "configMapKeyRef"}:
            yield f"{where}.env[{_shown(str(variable.get('name')))}]", "its source is not allowed"
    for port in _dicts(item.get("ports")):
        if port.get("hostPort") or port.get("hostIP"):
            yield f"{where}.ports", "ports of the host are not allowed"
    context = item.get("securityContext")
    context = context if isinstance(context, dict) else {}
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{where}.securityContext.allowPrivilegeEscalation", "it must be false"
    if context.get("capabilities") != {"drop": ["ALL"]}:
        yield f"{where}.securityContext.capabilities", "they must be drop: [ALL]"
    safe = {"runAsNonRoot": True, "privileged": False, "seccompProfile": {"type": "RuntimeDefault"}}
    for key, value in context.items():
        if key in {"allowPrivilegeEscalation", "capabilities", "readOnlyRootFilesystem"}:
            continue
        if key in {"runAsUser", "runAsGroup"} and value != 0:
            continue
        if key not in safe or value != safe[key]:
            yield f"{where}.securityContext.{_shown(key)}", "it is not allowed"


def _volumes(items: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(items, list):
        yield "spec.volumes", "it is not a list"
        return
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            yield "spec.volumes", "an entry has no name"
            continue
        where = f"spec.volumes[{_shown(item['name'])}]"
        kinds = set(item) - {"name"}
        if item["name"] in {"config", "flows", "tls", "authority", "certificates"} or (
            item["name"] in _OWN_SCRATCH and kinds != {"emptyDir"}
        ):
            yield where, "it is the operator's own"
        for kind in sorted(map(str, kinds - set(_SAFE_VOLUMES))):
            yield f"{where}.{_shown(kind)}", "volumes of this type are not allowed"


def _dicts(items: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(items, list):
        yield from (item for item in items if isinstance(item, dict))


def _shown(text: str) -> str:
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text[:120])
