"""Status of a FlowLog. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..flow_reports import CollectorReport
from ..model import Problem
from ..render.flows import Destination
from ..render.flows.place import Place
from ..report import Observation
from ..resources import FlowLog
from .conditions import INSECURE, Verdict, conditions, no, ready, unknown, yes
from .inputs import PodView, replica_failure
from .insecure import flow_log_insecure, until_in_effect


def flowlog_status(
    found: FlowLog,
    workload: Mapping[str, Any] | None,
    pods: Sequence[PodView],
    observations: Mapping[str, Observation],
    previous: Mapping[str, Any] | None,
    now: str,
    *,
    blocked: Verdict | None = None,
    complaint: Verdict | None = None,
    problems: Sequence[Problem] = (),
    to: Destination | None = None,
    outdated: Sequence[str] = (),
) -> dict[str, Any]:
    """The complete `status` of a FlowLog. `workload` is its live Deployment, `pods` are those of its collector,
    `blocked` says why its objects are not made, `complaint` what is wrong although they are, `problems` why they could
    not be, `outdated` that the collector does not have its certificates yet. The collector connects to `to`."""
    serving = [pod for pod in pods if not pod.deleting]
    applied = blocked or _configured(found, workload, problems, outdated)
    configured = applied if complaint is None or blocked or found.metadata.paused else complaint
    available = _available(serving, workload)
    report, collecting = _collecting(serving, observations)
    # A pod that runs without a connection is not ready; why it has none explains more than that.
    running = [collecting, available] if collecting.reason == "NotConnected" else [available, collecting]
    verdicts = {
        "Configured": configured,
        "Available": available,
        "Collecting": collecting,
        "Ready": ready(
            # Certificates that have not arrived are explained by the pods, when these are the trouble.
            [*running, configured] if configured.reason == "ConfigPending" else [configured, *running]
        ),
        INSECURE: until_in_effect(
            flow_log_insecure(found, to), previous, behind=bool(serving) and not applied.holds
        ),
    }
    generation, before = found.metadata.generation, previous or {}
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": conditions(verdicts, previous, generation, now),
        "location": Place(found).location,
        "routers": report.routers if report is not None else 0,
        "rowsWritten": report.rows_written if report is not None else before.get("rowsWritten", 0),
        "messagesMissed": report.messages_missed if report is not None else before.get("messagesMissed", 0),
    }
    written = (report.last_written_at if report is not None else None) or before.get("lastWrittenAt")
    if written is not None:
        status["lastWrittenAt"] = written
    return status


def _configured(
    found: FlowLog,
    workload: Mapping[str, Any] | None,
    problems: Sequence[Problem],
    outdated: Sequence[str],
) -> Verdict:
    if found.metadata.paused:
        return unknown("ReconciliationPaused", "the annotation isthmus.dev/paused is set")
    if problems:
        return no(problems[0].reason, (problem.message for problem in problems))
    if workload is None:
        return no("RolloutInProgress", "the collector has not been created yet")
    live = workload.get("status") or {}
    if live.get("observedGeneration", 0) < workload["metadata"].get("generation", 0):
        return no("RolloutInProgress", "the change has not reached the collector yet")
    if int(live.get("updatedReplicas") or 0) < 1:
        failure = replica_failure(workload)
        reason = f": the pod cannot be created: {failure}" if failure else ""
        return no("RolloutInProgress", f"no collector runs the current pod template{reason}")
    if outdated:
        return no("ConfigPending", outdated)
    return yes("Applied")


def _available(pods: Sequence[PodView], workload: Mapping[str, Any] | None) -> Verdict:
    if any(pod.ready for pod in pods):
        return yes("CollectorReady")
    trouble = [f"{pod.name}: {pod.trouble}" for pod in pods if pod.trouble]
    failure = replica_failure(workload)
    if failure and not trouble:
        return no("CollectorNotReady", f"the pod of the collector cannot be created: {failure}")
    return no("CollectorNotReady", trouble or "the collector is not ready yet")


def _collecting(
    pods: Sequence[PodView], observations: Mapping[str, Observation]
) -> tuple[CollectorReport | None, Verdict]:
    for pod in pods:
        observation = observations.get(pod.name)
        if observation is None:
            continue
        report = observation.report
        if not isinstance(report, CollectorReport):
            return None, unknown("CollectorSilent", f"{pod.name} {observation.error}")
        if not report.connected:
            return report, no("NotConnected", f"{pod.name}: {report.problem or 'it is not connected yet'}")
        if report.problem:
            return report, no("NotKept", f"{pod.name}: {report.problem}")
        return report, yes("Collecting", f"{report.routers} routers are heard")
    return None, no("CollectorNotReady", "no collector has reported yet")
