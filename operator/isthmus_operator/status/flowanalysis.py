"""Status of a FlowAnalysis, from its Jobs, their pods and what these have said at their end. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..flow_reports import ProgressReport
from ..model import Problem
from ..render import RenderedAnalysis
from ..report import Observation
from ..resources import FlowAnalysis
from ..untrusted import MAX_NUMBER, clean, document
from .conditions import Verdict, conditions, no, ready, unknown, yes

Manifest = Mapping[str, Any]
_RUNS, _FINDINGS = 10, 20
_OVER = ("Succeeded", "Failed")
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+=-]{0,99}")
"""Where a run has written; it is a part of a path."""
_SUSPENDED, _SOON = "it is suspended", "its pod does not run yet"
_ALL_IS_WELL = (_SUSPENDED, _SOON)
"""What a run may say that does not run yet, and nothing is wrong."""


@dataclass(frozen=True)
class AnalysisFacts:
    """Everything known about the runs of one FlowAnalysis at one moment."""

    jobs: Sequence[Manifest] = ()
    cron_job: Manifest | None = None
    pods: Sequence[Manifest] = ()
    """Of drivers."""
    observations: Mapping[str, Observation] = field(default_factory=dict)
    creation_failures: Mapping[str, str] = field(default_factory=dict)
    """Why pods could not be created, by uid of the Job."""

    @property
    def without_pods(self) -> set[str]:
        """The uids of the Jobs that should have a pod and have none."""
        return {
            str(job["metadata"]["uid"])
            for job in self.jobs
            if not _is_over(job) and not _is_suspended(job) and not _pods_of(job, self.pods)
        }


def flowanalysis_status(
    found: FlowAnalysis,
    rendered: RenderedAnalysis | None,
    facts: AnalysisFacts,
    previous: Mapping[str, Any] | None,
    now: str,
    *,
    blocked: Verdict | None = None,
    problems: Sequence[Problem] = (),
) -> dict[str, Any]:
    """The complete `status`. `blocked` says why its objects are not made, `problems` why they could not be."""
    before = previous or {}
    ends: dict[str, Mapping[str, Any]] = {}
    runs = _runs(facts, rendered, before, ends)
    newest = runs[0] if runs else None
    over = next((run for run in runs if run["state"] in _OVER), None)
    configured = blocked or _configured(found, facts, problems)
    submitted = _submitted(newest)
    succeeded = _succeeded(over)
    verdicts = {
        "Configured": configured,
        "Submitted": submitted,
        "Succeeded": succeeded,
        "Ready": ready(
            [
                configured,
                *([submitted] if newest is not None else []),
                *([succeeded] if over is not None else []),
            ]
        ),
    }
    generation = found.metadata.generation
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": conditions(verdicts, previous, generation, now),
        "state": _state(found, facts, newest),
        "runs": runs,
    }
    if newest is not None and newest.get("startedAt"):
        status["lastRunAt"] = newest["startedAt"]
    progress = _progress(newest, facts)
    if progress is not None:
        status["progress"] = progress
        done, tasks = progress["tasksDone"], progress["tasks"]
        status["percent"] = min(100 * done // tasks, 100) if tasks else 0
    good = next((run for run in runs if run["state"] == "Succeeded"), None)
    if good is not None:
        told = ends.get(good["name"])
        findings = _findings(told) if told is not None else before.get("findings") or []
        status["findings"] = findings
        if good.get("report"):
            status["report"] = good["report"]
        if findings:
            status["headline"] = findings[0]["text"][:256]
    if over is not None and over["state"] == "Failed":
        status["headline"] = f"failed: {over['message']}"[:256]
    return status


def _configured(found: FlowAnalysis, facts: AnalysisFacts, problems: Sequence[Problem]) -> Verdict:
    if found.metadata.paused:
        return unknown("ReconciliationPaused", "the annotation isthmus.dev/paused is set")
    if problems:
        return no(problems[0].reason, (problem.message for problem in problems))
    if facts.cron_job is None and not facts.jobs:
        return no("Pending", "its objects have not been created yet")
    return yes("Applied")


def _submitted(newest: Mapping[str, Any] | None) -> Verdict:
    if newest is None:
        return no("NoRun", "it has not run yet")
    if newest["state"] == "Pending" and newest["message"] not in _ALL_IS_WELL:
        return no("DriverWaits", newest["message"])
    return yes("Submitted", newest["name"])


def _succeeded(over: Mapping[str, Any] | None) -> Verdict:
    if over is None:
        return unknown("NotOver", "no run is over yet")
    if over["state"] == "Failed":
        return no("RunFailed", f"{over['name']}: {over['message']}")
    return yes("RunSucceeded", f"{over['name']} took {over.get('durationSeconds', 0)} s")


def _state(found: FlowAnalysis, facts: AnalysisFacts, newest: Mapping[str, Any] | None) -> str:
    if newest is not None and newest["state"] not in _OVER and not found.spec.suspend:
        return str(newest["state"])
    if found.spec.suspend:
        return "Suspended"
    if found.spec.schedule is not None:
        return "Scheduled" if facts.cron_job is not None else "Pending"
    return str(newest["state"]) if newest is not None else "Pending"


def _runs(
    facts: AnalysisFacts,
    rendered: RenderedAnalysis | None,
    before: Mapping[str, Any],
    ends: dict[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The newest first: those that have a Job, and those that were told of before. `ends` is filled with what drivers
    have said at their end, by run."""
    runs = {run["name"]: dict(run) for run in before.get("runs") or ()}
    present = {job["metadata"]["name"] for job in facts.jobs}
    for job in facts.jobs:
        name = job["metadata"]["name"]
        known = runs.get(name, {})
        created = str(job["metadata"].get("creationTimestamp", ""))
        if known.get("state") in _OVER and str(known.get("startedAt", "")) >= created:
            continue  # a later Job of the same name is another run
        pods = _pods_of(job, facts.pods)
        said = _last_words(pods)
        if said is not None:
            ends[name] = said
        failure = facts.creation_failures.get(str(job["metadata"].get("uid")), "")
        runs[name] = _run(job, pods, said, rendered, failure)
    for name, run in runs.items():
        if name not in present and run["state"] not in _OVER:
            runs[name] = {**run, "state": "Failed", "message": "its Job was deleted"}
    ordered = sorted(runs.values(), key=lambda run: (run.get("startedAt", ""), run["name"]), reverse=True)
    return ordered[:_RUNS]


def _run(
    job: Manifest,
    pods: Sequence[Manifest],
    said: Mapping[str, Any] | None,
    rendered: RenderedAnalysis | None,
    creation_failure: str,
) -> dict[str, Any]:
    live = job.get("status") or {}
    run: dict[str, Any] = {
        "name": job["metadata"]["name"],
        "state": "Pending",
        "startedAt": live.get("startTime") or job["metadata"].get("creationTimestamp"),
        "attempts": int(live.get("failed") or 0),
        "message": "",
    }
    done = {item["type"]: item for item in live.get("conditions") or () if item.get("status") == "True"}
    if "Complete" in done:
        run |= {
            "state": "Succeeded",
            "endedAt": live.get("completionTime") or done["Complete"].get("lastTransitionTime"),
        }
    elif "Failed" in done:
        message = _why(said, pods) or str(done["Failed"].get("message", ""))
        run |= {"state": "Failed", "endedAt": done["Failed"].get("lastTransitionTime"), "message": message}
    elif any((pod.get("status") or {}).get("phase") == "Running" for pod in pods):
        run["state"] = "Running"
    else:
        run["message"] = _waits(job, pods, creation_failure)
    if run.get("endedAt") and run.get("startedAt"):
        run["durationSeconds"] = max(0, int((_at(run["endedAt"]) - _at(run["startedAt"])).total_seconds()))
    if said is not None and run["state"] == "Succeeded":
        deliveries, folder = said.get("deliveries"), said.get("run")
        if type(deliveries) is int and 0 <= deliveries <= MAX_NUMBER:
            run["deliveries"] = deliveries
        if rendered is not None and isinstance(folder, str) and _FOLDER.fullmatch(folder):
            run["report"] = f"{rendered.output}/{folder}/report.html"
    run["message"] = run["message"][:1024]
    return run


def _pods_of(job: Manifest, pods: Iterable[Manifest]) -> list[Manifest]:
    """The newest last."""
    uid = job["metadata"].get("uid")
    own = [
        pod
        for pod in pods
        if any(owner.get("uid") == uid for owner in pod["metadata"].get("ownerReferences") or ())
    ]
    return sorted(own, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))


def _ended(pod: Manifest) -> Mapping[str, Any] | None:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        if container.get("name") == "driver":
            terminated: Mapping[str, Any] | None = (container.get("state") or {}).get("terminated")
            return terminated
    return None


def _last_words(pods: Sequence[Manifest]) -> Mapping[str, Any] | None:
    """What the newest driver that has ended said: the JSON of its termination message."""
    for pod in reversed(pods):
        terminated = _ended(pod)
        if terminated is None:
            continue
        try:
            said = document((terminated.get("message") or "").encode())
        except ValueError:
            return None
        return said if isinstance(said, dict) else None
    return None


def _why(said: Mapping[str, Any] | None, pods: Sequence[Manifest]) -> str:
    """Why a run has failed: as its driver said, or as Kubernetes does of the pod."""
    if said is not None and said.get("reason"):
        return clean(str(said["reason"]), 1024)
    for pod in reversed(pods):
        terminated = _ended(pod)
        if terminated is not None:
            reason = terminated.get("reason") or "Error"
            return f"{pod['metadata']['name']}: {reason} (exit code {terminated.get('exitCode')})"
        if (pod.get("status") or {}).get("reason"):
            return f"{pod['metadata']['name']}: {pod['status']['reason']}"
    return ""


def _is_over(job: Manifest) -> bool:
    told = (job.get("status") or {}).get("conditions") or ()
    return any(item["type"] in {"Complete", "Failed"} and item.get("status") == "True" for item in told)


def _is_suspended(job: Manifest) -> bool:
    return bool((job.get("spec") or {}).get("suspend"))


def _waits(job: Manifest, pods: Sequence[Manifest], creation_failure: str) -> str:
    if _is_suspended(job):
        return _SUSPENDED
    if creation_failure and not pods:
        return f"its pod cannot be created: {creation_failure}"
    for pod in reversed(pods):
        status = pod.get("status") or {}
        for container in status.get("containerStatuses") or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") not in {None, "ContainerCreating"}:
                return f"{pod['metadata']['name']}: {waiting['reason']}: {waiting.get('message', '')}"
        for condition in status.get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return f"{pod['metadata']['name']}: {condition.get('message', '')}"
    return _SOON


def _progress(newest: Mapping[str, Any] | None, facts: AnalysisFacts) -> dict[str, Any] | None:
    if newest is None or newest["state"] != "Running":
        return None
    job = next((job for job in facts.jobs if job["metadata"]["name"] == newest["name"]), None)
    if job is None:
        return None
    for pod in reversed(_pods_of(job, facts.pods)):
        observation = facts.observations.get(pod["metadata"]["name"])
        report = observation.report if observation is not None else None
        if isinstance(report, ProgressReport):
            return {
                "stagesDone": report.stages_done,
                "stages": report.stages,
                "tasksDone": report.tasks_done,
                "tasks": report.tasks,
                "doing": report.doing,
            }
    return None


def _findings(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    told = said.get("findings")
    for item in told if isinstance(told, list) else ():
        if isinstance(item, dict) and item.get("text"):
            severity = item.get("severity")
            found.append(
                {
                    "severity": severity if severity in ("info", "warning", "critical") else "info",
                    "kind": clean(str(item.get("kind", "")), 64),
                    "text": clean(str(item["text"]), 1024),
                }
            )
    return found[:_FINDINGS]


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)
