"""What authors of resources may have pods do. Pure.

The operator makes pods with its own rights, so a resource must not ask for more than the right to write that resource
is meant to give. What is allowed is listed. Everything else is refused, with the name of its field and of the chart
value that allows it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..model import NamespaceModel
from ..resources import FlowAnalysis, FlowLog, GossipRouter, RelaySite, Router
from ..resources.flowanalysis import SAFE_SPARK_KEYS
from ..resources.pods import PodTemplate
from .allowed import (
    AFFINITIES,
    INSIDE,
    OTHER_NAMESPACES,
    OWN_CONTAINERS,
    OWN_KEYS,
    OWN_SCRATCH,
    OWN_VOLUMES,
    PLAIN_ANNOTATIONS,
    PLAIN_LABELS,
    POD_CONTEXT_FIELDS,
    POD_FIELDS,
    SAFE_VOLUMES,
)
from .instances import Finding
from .material import MaterialError

Level = Literal["Safe", "Any"]
PodOwner = Router | GossipRouter | FlowLog | FlowAnalysis
REASON = "NotAllowed"
MAX_COMPLAINTS = 8
"""About one resource."""

_PLAIN_KEYS: Mapping[str, tuple[str, ...]] = {"labels": PLAIN_LABELS, "annotations": PLAIN_ANNOTATIONS}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_SIDECAR_FIELDS = (
    *("name", "image", "imagePullPolicy", "command", "args", "workingDir", "env", "ports", "resources"),
    *("volumeMounts", *_PROBES, "lifecycle", "securityContext"),
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
    allowed_metadata: tuple[str, ...] = ()
    """Further keys of labels and annotations, and domains that end with `/`; `*` is every key but those of the
    operator."""
    allowed_priority_classes: tuple[str, ...] = ()
    """Names for `priorityClassName`; `*` is every class but those of the system."""
    allowed_claims: tuple[str, ...] = ()
    """Names of PersistentVolumeClaims that FlowLogs may use beside those that the operator makes; `*` is every one."""
    allowed_exposures: tuple[str, ...] = ()
    """`NodePort`, `LoadBalancer`: types of Services by which resources may be reached from outside."""
    cloud_identity: Level = "Safe"
    """`Any`: pods of a FlowLog whose object store has no keys may use the identity that the cloud gives them."""

    def allows_image(self, image: str) -> bool:
        return any(prefix == "*" or _under(image, prefix) for prefix in self.allowed_images)

    def allows_exposure(self, exposure: str) -> bool:
        """Whether Services may have this type."""
        return exposure in {*INSIDE, *self.allowed_exposures}

    def allows_key(self, kind: str, key: str) -> bool:
        """Whether `labels` or `annotations` may have this key."""
        if key.startswith(OWN_KEYS):
            return False
        return (kind == "annotations" and "/" not in key) or any(
            entry in {"*", key} or (entry.endswith("/") and key.startswith(entry))
            for entry in (*_PLAIN_KEYS[kind], *self.allowed_metadata)
        )


SAFE = Restrictions()


def _under(image: str, prefix: str) -> bool:
    """Whether `image` is `prefix` or continues it at a boundary: `reg.example/team` does not allow
    `reg.example/team-x`, and `reg.example` does not allow `reg.example:5000/x`, which is another registry."""
    if not image.startswith(prefix):
        return False
    rest = image[len(prefix) :]
    return prefix.endswith("/") or rest[:1] in {"", "/"} or (rest[0] in ":@" and "/" not in rest)


def refused(resource: PodOwner, allowed: Restrictions) -> list[Finding]:
    """What `resource` asks for and must not have; none when it may."""
    return [
        Finding(resource.kind_name, resource.name, REASON, message, blocking=True)
        for message in _complaints(resource, allowed)
    ][:MAX_COMPLAINTS]


def refused_pulls(
    resource: PodOwner, model: NamespaceModel, allowed: Restrictions, installed: Collection[str]
) -> list[Finding]:
    """What keeps the pods of `resource` from `imagePullSecrets` of its own: like other Secrets they need the label. The
    kubelet sends them to registries. `installed` are those that all pods have."""
    template = resource.spec.pod_template
    if template is None or allowed.pod_template == "Any":
        return []
    names = [item.get("name") for item in _dicts((template.spec or {}).get("imagePullSecrets"))]
    problems = [
        MaterialError.missing(name, model)
        for name in names
        if isinstance(name, str) and name not in installed and name not in model.secrets
    ]
    return [
        Finding(
            resource.kind_name,
            resource.name,
            problem.reason,
            f"spec.podTemplate.spec.imagePullSecrets: {problem}",
            blocking=True,
        )
        for problem in problems[:MAX_COMPLAINTS]
    ]


def refused_log(analysis: FlowAnalysis, log: FlowLog | None, allowed: Restrictions) -> list[Finding]:
    """What keeps the pods of `analysis` from `log`."""
    messages = () if log is None else (*_claim(log, allowed), *_identity(log, allowed))
    return [
        Finding(
            analysis.kind_name,
            analysis.name,
            REASON,
            f'FlowLog "{analysis.spec.flow_log_ref.name}" (spec.flowLogRef): {message}',
            blocking=True,
        )
        for message in messages
    ]


def restrained(
    sites: Mapping[str, RelaySite], allowed: Restrictions
) -> tuple[Mapping[str, RelaySite], list[Finding]]:
    """`sites` without what they must not have, and what that is. The members of a site go on."""
    out: dict[str, RelaySite] = {}
    findings: list[Finding] = []
    for name, site in sites.items():
        bridge = site.spec.bridge
        messages = [
            *_exposure("spec.bridge.expose", bridge.expose, allowed),
            *_keys("spec.bridge.serviceAnnotations", "annotations", bridge.service_annotations, allowed),
        ]
        if messages:
            keys = bridge.service_annotations or {}
            changes: dict[str, Any] = {
                "service_annotations": {
                    key: value for key, value in keys.items() if allowed.allows_key("annotations", key)
                }
            }
            if not allowed.allows_exposure(bridge.expose):
                changes |= {"expose": "ClusterIP", "node_port": None}
            changed = site.spec.model_copy(update={"bridge": bridge.model_copy(update=changes)})
            site = site.model_copy(update={"spec": changed})
        out[name] = site
        findings += [
            Finding("RelaySite", name, REASON, message, in_effect=True)
            for message in messages[:MAX_COMPLAINTS]
        ]
    return out, findings


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
        yield from _metadata(spec.pod_template, allowed)
    yield from _services(resource, allowed)
    if isinstance(resource, FlowLog):
        yield from _claim(resource, allowed)
        yield from _identity(resource, allowed)
    if isinstance(resource, FlowAnalysis):
        yield from _spark(resource.spec.spark_conf or {}, allowed)


def _metadata(template: PodTemplate, allowed: Restrictions) -> Iterator[str]:
    metadata = template.metadata
    if metadata is not None:
        for kind, keys in (("labels", metadata.labels), ("annotations", metadata.annotations)):
            yield from _keys(f"spec.podTemplate.metadata.{kind}", kind, keys, allowed)


def _services(resource: PodOwner, allowed: Restrictions) -> Iterator[str]:
    """What is wrong with Services that are reached from outside."""
    if isinstance(resource, Router):
        for listener in resource.spec.effective_listeners():
            where = f"spec.listeners[{listener.name}]"
            yield from _exposure(f"{where}.exposure", listener.exposure, allowed)
            keys = listener.service_annotations
            yield from _keys(f"{where}.serviceAnnotations", "annotations", keys, allowed)
    elif isinstance(resource, GossipRouter):
        yield from _exposure("spec.expose", resource.spec.expose, allowed)
        keys = resource.spec.service_annotations
        yield from _keys("spec.serviceAnnotations", "annotations", keys, allowed)


def _exposure(where: str, exposure: str, allowed: Restrictions) -> Iterator[str]:
    if not allowed.allows_exposure(exposure):
        yield (
            f"{where}: {exposure} is not allowed; use ClusterIP, or add {exposure} to restrictions.allowedExposures of "
            "the chart"
        )


def _claim(log: FlowLog, allowed: Restrictions) -> Iterator[str]:
    """One that the operator makes is for flow logs. Any other may hold what somebody else relies on."""
    claim = log.spec.volume.claim_name if log.spec.volume is not None else None
    if claim is not None and not {"*", claim} & set(allowed.allowed_claims):
        yield (
            f'spec.volume.claimName: the operator does not allow the claim "{claim}"; use spec.volume.size, or add it '
            "to restrictions.allowedClaims of the chart"
        )


def _identity(log: FlowLog, allowed: Restrictions) -> Iterator[str]:
    """The identity of a node is not the author's, and its buckets are not either."""
    if log.uses_cloud_identity and allowed.cloud_identity == "Safe":
        yield (
            "spec.s3.secretName is not set, so the pods would use the identity that the cloud gives to them or to "
            "their node; set it, or set restrictions.cloudIdentity of the chart to Any"
        )


def _keys(where: str, kind: str, keys: Iterable[str] | None, allowed: Restrictions) -> Iterator[str]:
    for key in keys or ():
        if key.startswith(OWN_KEYS):
            yield f'{where}: the key "{_shown(key)}" is the operator\'s own; remove it'
        elif not allowed.allows_key(kind, key):
            yield (
                f'{where}: the key "{_shown(key)}" is not allowed, as others may act on it; remove it, or add it to '
                "restrictions.allowedMetadata of the chart"
            )


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
    for field, value in (template.spec or {}).items():
        if field not in POD_FIELDS:
            yield f"spec.{_shown(field)}", "it is not allowed"
        elif field == "affinity":
            yield from _affinity(value)
        elif field == "priorityClassName":
            if str(value).startswith("system-"):
                yield f"spec.{field}", "classes of the system are not allowed"
            elif not {"*", str(value)} & set(allowed.allowed_priority_classes):
                yield f"spec.{field}", "it is not in restrictions.allowedPriorityClasses of the chart"
        elif field == "securityContext":
            yield from _pod_context(value)
        elif field in {"containers", "initContainers"}:
            yield from _containers(field, value, allowed, sidecars=sidecars)
        elif field == "imagePullSecrets":
            if not isinstance(value, list) or not all(map(_is_reference, value)):
                yield f"spec.{field}", "it is not a list of names of Secrets"
        elif field == "volumes":
            yield from _volumes(value)


def _affinity(affinity: Any) -> Iterator[tuple[str, str]]:
    """Required anti-affinity to pods of another namespace keeps those from their nodes."""
    for kind in AFFINITIES:
        rules = affinity.get(kind) if isinstance(affinity, dict) else None
        for lists in rules.values() if isinstance(rules, dict) else ():
            for item in _dicts(lists):
                weighted = item.get("podAffinityTerm")
                for term in (item, weighted if isinstance(weighted, dict) else {}):
                    yield from (
                        (f"spec.affinity.{kind}", f"{field} is not allowed, as it names other namespaces")
                        for field in OTHER_NAMESPACES
                        if field in term
                    )


def _pod_context(context: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(context, dict):
        yield "spec.securityContext", "it is not an object"
        return
    for field, value in context.items():
        where = f"spec.securityContext.{_shown(field)}"
        if field not in POD_CONTEXT_FIELDS:
            yield where, "it is not allowed"
        elif field in {"runAsGroup", "runAsUser"} and value == 0:
            yield where, f"the {'group' if field == 'runAsGroup' else 'user'} 0 is not allowed"
        elif field == "runAsNonRoot" and value is not True:
            yield where, "it must be true"
        elif field == "seccompProfile" and value != {"type": "RuntimeDefault"}:
            yield where, "it must be RuntimeDefault"


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
        if field == "containers" and name in OWN_CONTAINERS:
            yield from (
                (f"{where}.{_shown(key)}", "only resources of the containers of the operator can be set")
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
    for mount in _dicts(item.get("volumeMounts")):
        if (volume := mount.get("name")) in (*OWN_VOLUMES, *OWN_SCRATCH):
            yield f"{where}.volumeMounts[{volume}]", "the volume is the operator's own"
    for port in _dicts(item.get("ports")):
        if port.get("hostPort") or port.get("hostIP"):
            yield f"{where}.ports", "ports of the host are not allowed"
    for field, handler in _handlers(item):
        for kind in ("httpGet", "tcpSocket"):
            request = handler.get(kind)
            if isinstance(request, dict) and request.get("host"):
                yield f"{where}.{field}.{kind}.host", "it is not allowed, as the kubelet would connect to it"
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


def _handlers(container: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What the kubelet of the node runs for a container: field and handler."""
    lifecycle = container.get("lifecycle")
    found = {field: container.get(field) for field in _PROBES}
    if isinstance(lifecycle, dict):
        found |= {f"lifecycle.{_shown(field)}": handler for field, handler in lifecycle.items()}
    yield from ((field, handler) for field, handler in found.items() if isinstance(handler, dict))


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
        if item["name"] in OWN_VOLUMES or (item["name"] in OWN_SCRATCH and kinds != {"emptyDir"}):
            yield where, "it is the operator's own"
        for kind in sorted(map(str, kinds - set(SAFE_VOLUMES))):
            yield f"{where}.{_shown(kind)}", "volumes of this type are not allowed"


def _is_reference(item: object) -> bool:
    return isinstance(item, dict) and item.keys() == {"name"} and isinstance(item["name"], str)


def _dicts(items: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(items, list):
        yield from (item for item in items if isinstance(item, dict))


def _shown(text: str) -> str:
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text[:120])
