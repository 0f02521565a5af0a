"""The part of watched objects that the operator retains, of the kinds that it makes itself.

The API server sends whole objects, and kopf holds what it is processing. A tenant decides how many there are and how
large they are, and whether they have the label by which the operator watches them, so each one is reduced right after
it is decoded. An object that the operator has made for a resource is retained as it is: it is compared with what it
should be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .names import (
    LABEL_FLOW_ANALYSIS,
    LABEL_FLOW_LOG,
    LABEL_MANAGED_BY,
    LABEL_PROFILE,
    LABEL_USE,
    MANAGER,
    objects_of,
    secrets_of,
)
from .resources.base import GROUP
from .resources.pods import MAX_POD_VALUES, values

MAX_CHILD_VALUES = 2 * MAX_POD_VALUES
"""In an object of the operator. The largest has a pod template and about 200 values more."""

MAX_RUN_VALUES = 200
"""In what is retained of the status of a Job that a CronJob has made. Kubernetes sets less than 100."""
MAX_CLAIM_VALUES = 500
"""In a PersistentVolumeClaim, which has no owner: there may be any number of them. The operator sets less than 50."""

_MANY = frozenset({"Service", "PersistentVolumeClaim", "Job"})
"""Kinds of which a resource may have any number of objects, so that names do not bound those that somebody forges. The
operator may not delete objects of some kinds, and deletes none of a paused resource."""
MAX_BYTES = 32 * 1024
"""Of the text of an object of these kinds. A Service and a claim have less than a tenth; a larger Job is not compared
with what it should be."""

_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_LABELS = (LABEL_MANAGED_BY, LABEL_PROFILE, LABEL_USE, LABEL_FLOW_LOG, LABEL_FLOW_ANALYSIS)
_RUN_STATUS = ("startTime", "completionTime", "failed", "conditions")
"""What the operator reads of a Job that a CronJob has made."""


def retained(manifest: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """`manifest`, an object of this kind, as it is if the operator has made it for a resource, and it is not being
    deleted. Otherwise without its content, and of its metadata only what tells whether a resource may use it, and whose
    it is.

    A forged owner does not help: Kubernetes deletes an object whose owner does not exist, and for one that exists the
    name of the object has to be one that the operator gives, or the object has to be small."""
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping):
        return manifest
    owner = _controller(metadata)
    labels = metadata.get("labels") or {}
    if labels.get(LABEL_MANAGED_BY) == MANAGER and _is_kept(manifest, kind, owner, metadata, labels):
        return manifest
    short: dict[str, Any] = {key: metadata[key] for key in _METADATA if key in metadata}
    short["labels"] = {key: labels[key] for key in _LABELS if key in labels}
    if owner is not None:
        short["ownerReferences"] = [owner]
    kept = {key: manifest[key] for key in ("apiVersion", "kind", "type") if key in manifest}
    if kind == "Job":
        kept |= _run(manifest)
    return {**kept, "metadata": short}


def _controller(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    references = metadata.get("ownerReferences") or ()
    return next((item for item in references if item.get("controller")), None)


def _is_kept(
    manifest: Mapping[str, Any],
    kind: str,
    owner: Mapping[str, Any] | None,
    metadata: Mapping[str, Any],
    labels: Mapping[str, Any],
) -> bool:
    """Whether the object is what the operator makes, and small enough."""
    if "deletionTimestamp" in metadata:
        return False
    if owner is not None:
        made, most = _is_made_for(owner, kind, metadata), MAX_CHILD_VALUES
    else:  # a claim outlives its FlowLog
        made, most = kind == "PersistentVolumeClaim" and LABEL_FLOW_LOG in labels, MAX_CLAIM_VALUES
    # A pod template has as many managed fields as values; their number has a bound of its own.
    rest = {key: item for key, item in metadata.items() if key != "managedFields"}
    if not made or values({**manifest, "metadata": rest}, most) > most:
        return False
    return kind not in _MANY or _is_small(manifest)


def _is_made_for(owner: Mapping[str, Any], kind: str, metadata: Mapping[str, Any]) -> bool:
    group, name = str(owner.get("apiVersion")).partition("/")[0], str(owner.get("name") or "")
    if group != GROUP or not name:
        return False
    if kind == "Secret":
        return metadata.get("name") in secrets_of(name)
    return kind in _MANY or metadata.get("name") in objects_of(name)


def _is_small(manifest: Mapping[str, Any]) -> bool:
    return len(json.dumps(manifest, default=dict)) <= MAX_BYTES  # kopf gives a view of a dictionary


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
