"""The part of watched objects that the operator retains, of the kinds that it makes itself, of pods, and of resources.

The API server sends whole objects, and kopf holds what it is processing. A tenant decides how many there are and how
large they are, and whether they have the label by which the operator watches them, so each one is reduced right after
it is decoded. An object that the operator has made for a resource is compared with what it should be, so it is retained
as it is, or with the digest of its content if it is large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .digests import digested, is_digested
from .fields import UNCLAIMED, is_applied
from .names import (
    ANNOTATION_APPLIED,
    ANNOTATION_RUN,
    ANNOTATION_SYNC,
    LABEL_COMPONENT,
    LABEL_FLOW_ANALYSIS,
    LABEL_FLOW_LOG,
    LABEL_MANAGED_BY,
    LABEL_PROFILE,
    LABEL_ROUTER,
    LABEL_USE,
    MANAGER,
    digest,
    objects_of,
    secrets_of,
)
from .resources.base import GROUP, PAUSED_ANNOTATION
from .resources.pods import values
from .specs import text_bytes
from .stored import stored_status

POD_KINDS = ("Pod", "ReplicaSet")
"""Kinds that controllers make for workloads of the operator. They have its label, which anybody may give them."""

MAX_RUN_VALUES = 200
"""In what is retained of the status of a Job that a CronJob has made. Kubernetes sets less than 100."""
_MANY = frozenset({"Service", "PersistentVolumeClaim", "Job"})
"""Kinds of which a resource may have any number of objects, so that names do not bound those that somebody forges. The
operator may not delete objects of some kinds, and deletes none of a paused resource."""
MAX_BYTES = 64 * 1024
"""Memory of an object that is retained as it is. The objects of useful resources take less than half. A Service and a
claim take less than a fifth; a larger Job is not compared with what it should be."""

_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_LABELS = (
    *(LABEL_MANAGED_BY, LABEL_PROFILE, LABEL_USE, LABEL_FLOW_LOG, LABEL_FLOW_ANALYSIS),
    *(LABEL_ROUTER, LABEL_COMPONENT),
)
_MAX_OWNER_BYTES = 2048
"""Memory of an owner: its six fields have less than 600 characters."""
_MAX_TYPE = 253
"""Characters of the type of a Secret, of which the API server allows 1 MiB."""
_MAX_SYNC = 256
"""Characters of the annotation that makes the kubelet sync. It has a hash."""
_RUN_STATUS = ("startTime", "completionTime", "failed", "conditions")
"""What the operator reads of a Job that a CronJob has made."""
MAX_ANNOTATION = 256
"""Characters of an annotation of a resource. The operator retains the digest of a longer one, to see changes."""
MAX_FINALIZERS = 16
"""Of a resource, and of an object of the operator. They are in a status after a deletion."""
_POD_STATUS = ("phase", "podIP", "reason")
_CONDITION = ("type", "status", "reason", "message")
_CONDITIONS = ("Ready", "PodScheduled")
_CONTAINER = ("name", "state", "lastState")


def retained(manifest: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """`manifest`, an object of this kind, as it is if the operator has made it for a resource. If it is large, or is
    being deleted, it has the digest of its content in place of its content. An object of somebody else has no content,
    and of its metadata only what tells whether a resource may use it, and whose it is.

    A forged owner does not help: Kubernetes deletes an object whose owner does not exist, and for one that exists the
    name of the object has to be one that the operator gives, or the object has to be small."""
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping):
        return manifest
    owner = _controller(metadata)
    labels = metadata.get("labels") or {}
    is_made = labels.get(LABEL_MANAGED_BY) == MANAGER and _is_made(kind, owner, metadata, labels)
    is_deleting = "deletionTimestamp" in metadata
    if is_made:
        whole = _without_settled_owners(manifest, metadata)
        if is_digested(whole) or (not is_deleting and text_bytes(whole) <= MAX_BYTES):
            return whole
    short: dict[str, Any] = {key: metadata[key] for key in _METADATA if key in metadata}
    short["labels"] = {key: labels[key] for key in _LABELS if key in labels}
    if owner is not None:
        short["ownerReferences"] = [owner]
    kept = _part(manifest, ("apiVersion", "kind"))
    if len(str(manifest.get("type", ""))) <= _MAX_TYPE:
        kept |= _part(manifest, ("type",))
    if kind == "Job":
        kept |= _run(manifest)
    if is_made and (is_deleting or kind not in _MANY):
        return digested(manifest, {**_state(manifest), **kept, "metadata": short | _marks(metadata)})
    if kind == "Pod":
        sync = (metadata.get("annotations") or {}).get(ANNOTATION_SYNC)
        short["annotations"] = {ANNOTATION_SYNC: sync} if sync and len(sync) <= _MAX_SYNC else {}
        kept["status"] = _pod_status(manifest)
    return {**kept, "metadata": short}


def described(resource: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """A resource of this kind with the part of its metadata that the operator uses, and with the valid part of its
    status."""
    metadata = resource.get("metadata")
    if not isinstance(metadata, Mapping):
        return resource
    short: dict[str, Any] = _part(metadata, (*_METADATA, "generation"))
    annotations = _part(metadata.get("annotations") or {}, (PAUSED_ANNOTATION, ANNOTATION_RUN))
    short["annotations"] = {
        key: value if len(value) <= MAX_ANNOTATION else digest(value) for key, value in annotations.items()
    }
    if finalizers := metadata.get("finalizers"):
        short["finalizers"] = list(finalizers)[:MAX_FINALIZERS]
    found = {**resource, "metadata": short}
    if "status" in resource:
        found["status"] = stored_status(kind, resource["status"])
    return found


def _controller(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The controller of an object. None: there is none, or it is larger than a valid one."""
    references = metadata.get("ownerReferences") or ()
    owner = next((item for item in references if item.get("controller")), None)
    return owner if owner is None or text_bytes(owner) <= _MAX_OWNER_BYTES else None


def _is_made(
    kind: str, owner: Mapping[str, Any] | None, metadata: Mapping[str, Any], labels: Mapping[str, Any]
) -> bool:
    """Whether the object is one that the operator makes."""
    if kind in POD_KINDS:
        return False
    if owner is None:  # a claim outlives its FlowLog
        return kind == "PersistentVolumeClaim" and LABEL_FLOW_LOG in labels
    return _is_made_for(owner, kind, metadata)


def _without_settled_owners(manifest: Mapping[str, Any], metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object without the owners of its fields, unless the operator has to claim some."""
    if "managedFields" not in metadata or not is_applied(metadata):
        return manifest
    return {**manifest, "metadata": {key: item for key, item in metadata.items() if key != "managedFields"}}


def _marks(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a large object that tell what the operator has written."""
    annotations = _part(metadata.get("annotations") or {}, (ANNOTATION_APPLIED,))
    found = {**_part(metadata, ("generation",)), "annotations": annotations}
    if finalizers := metadata.get("finalizers"):
        found["finalizers"] = list(finalizers)[:MAX_FINALIZERS]
    # The applier reads the object before it claims fields.
    return found if is_applied(metadata) else {**found, "managedFields": [UNCLAIMED]}


def _state(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a large object, unless it is large as well."""
    found = _part(manifest, ("status",))
    return found if text_bytes(found) <= MAX_BYTES else {}


def _is_made_for(owner: Mapping[str, Any], kind: str, metadata: Mapping[str, Any]) -> bool:
    group, name = str(owner.get("apiVersion")).partition("/")[0], str(owner.get("name") or "")
    if group != GROUP or not name:
        return False
    if kind == "Secret":
        return metadata.get("name") in secrets_of(name)
    return kind in _MANY or metadata.get("name") in objects_of(name)


def _run(job: Mapping[str, Any]) -> dict[str, Any]:
    """What tells how a run of a FlowAnalysis goes."""
    spec, status = job.get("spec"), job.get("status")
    found: dict[str, Any] = {}
    if isinstance(spec, Mapping) and isinstance(spec.get("suspend"), bool):
        found["spec"] = {"suspend": spec["suspend"]}
    if isinstance(status, Mapping):
        short = {key: status[key] for key in _RUN_STATUS if key in status}
        if values(short, MAX_RUN_VALUES) <= MAX_RUN_VALUES:
            found["status"] = short
    return found


def _pod_status(pod: Mapping[str, Any]) -> dict[str, Any]:
    """What the operator reads of the status of a pod, and less if there is too much of it."""
    status = pod.get("status")
    if not isinstance(status, Mapping):
        return {}
    found: dict[str, Any] = _part(status, _POD_STATUS)
    if conditions := status.get("conditions"):
        found["conditions"] = [
            _part(item, _CONDITION) for item in conditions if item.get("type") in _CONDITIONS
        ]
    if containers := status.get("containerStatuses"):
        found["containerStatuses"] = [_part(item, _CONTAINER) for item in containers]
    if text_bytes(found) <= MAX_BYTES:
        return found
    found = _part(status, _POD_STATUS)
    return found if text_bytes(found) <= MAX_BYTES else {}


def _part(value: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: value[key] for key in keys if key in value}
