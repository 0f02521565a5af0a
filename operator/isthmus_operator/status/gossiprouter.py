"""Status of a GossipRouter. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..model import Problem
from ..names import gossip_name, gossip_selector
from ..resources import GossipRouter
from .conditions import INSECURE, Verdict, conditions, no, ready, unknown, yes
from .insecure import gossip_router_insecure, until_in_effect


def gossiprouter_status(
    found: GossipRouter,
    workload: Mapping[str, Any] | None,
    previous: Mapping[str, Any] | None,
    now: str,
    *,
    blocked: Verdict | None = None,
    complaint: Verdict | None = None,
    problems: Sequence[Problem] = (),
    outdated: Sequence[str] = (),
    creation_failure: str = "",
) -> dict[str, Any]:
    """The complete `status` of a GossipRouter. `workload` is its live StatefulSet, `blocked` says why its objects are
    not made, `complaint` what is wrong although they are, `problems` why they could not be, `outdated` which pods lack
    its certificates, `creation_failure` why pods could not be created."""
    live = (workload or {}).get("status") or {}
    wanted, up = found.spec.replicas, int(live.get("readyReplicas") or 0)
    failure = f"; pods cannot be created: {creation_failure}" if creation_failure else ""
    applied = blocked or _configured(found, workload, problems, outdated, failure)
    configured = applied if complaint is None or blocked or found.metadata.paused else complaint
    message = f"{up} of {wanted} replicas are ready{failure if up < wanted else ''}"
    available = (
        yes("AllReplicasReady", message)
        if up >= wanted
        else no("NoReplicaReady" if up == 0 else "ReplicasMissing", message)
    )
    verdicts = {
        "Configured": configured,
        "Available": available,
        "Ready": ready(
            # Certificates that have not arrived are explained by the pods, when these are the trouble.
            [available, configured] if configured.reason == "ConfigPending" else [configured, available]
        ),
        INSECURE: until_in_effect(
            gossip_router_insecure(found),
            previous,
            behind=bool(live.get("replicas")) and not applied.holds,
        ),
    }
    generation = found.metadata.generation
    return {
        "observedGeneration": generation,
        "conditions": conditions(verdicts, previous, generation, now),
        "replicas": int(live.get("replicas") or 0),
        "readyReplicas": up,
        "selector": ",".join(f"{key}={value}" for key, value in gossip_selector(found.name).items()),
        "endpoint": f"{gossip_name(found.name)}.{found.metadata.namespace}.svc:{found.spec.port}",
    }


def _configured(
    found: GossipRouter,
    workload: Mapping[str, Any] | None,
    problems: Sequence[Problem],
    outdated: Sequence[str],
    failure: str,
) -> Verdict:
    if found.metadata.paused:
        return unknown("ReconciliationPaused", "the annotation isthmus.dev/paused is set")
    if problems:
        return no(problems[0].reason, (problem.message for problem in problems))
    if workload is None:
        return no("RolloutInProgress", "the pods have not been created yet")
    live = workload.get("status") or {}
    updated = int(live.get("updatedReplicas") or 0)
    if live.get("observedGeneration", 0) < workload["metadata"].get("generation", 0):
        return no("RolloutInProgress", "the change has not reached the pods yet")
    if updated < found.spec.replicas:
        return no(
            "RolloutInProgress",
            f"{updated} of {found.spec.replicas} pods run the current pod template{failure}",
        )
    if outdated:
        return no("ConfigPending", outdated)
    return yes("Applied")
