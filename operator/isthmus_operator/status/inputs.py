"""What status is made from: pods as Kubernetes reports them, and all facts about one Router."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..model import Problem
from ..render import ConnectorInstance, RenderedRouter, RouterInstance
from ..report import Observation, RouterReport
from ..resources import Router
from .conditions import Verdict

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class PodView:
    """The part of a pod that matters."""

    name: str
    uid: str
    ip: str
    router: str
    """Value of the label that names its Router."""
    running: bool
    ready: bool
    deleting: bool
    """On its way out, or ended: an evicted pod of a Deployment stays listed for long."""
    trouble: str
    """What keeps it from running, as Kubernetes puts it."""
    sync: str
    """Value of the annotation that makes the kubelet sync."""

    @classmethod
    def of(cls, manifest: Manifest, router_label: str, sync_annotation: str) -> PodView:
        metadata, status = manifest["metadata"], manifest.get("status") or {}
        ready = next(
            (item["status"] == "True" for item in status.get("conditions") or () if item["type"] == "Ready"),
            False,
        )
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            ip=str(status.get("podIP") or ""),
            router=str((metadata.get("labels") or {}).get(router_label, "")),
            running=status.get("phase") == "Running",
            ready=ready,
            deleting=metadata.get("deletionTimestamp") is not None
            or status.get("phase") in {"Failed", "Succeeded"},
            trouble=_trouble(status),
            sync=str((metadata.get("annotations") or {}).get(sync_annotation, "")),
        )


def _trouble(status: Mapping[str, Any]) -> str:
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        waiting = state.get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] != "ContainerCreating":
            last = ((container.get("lastState") or {}).get("terminated") or {}).get("reason")
            detail = waiting.get("message") or (f"last ended with {last}" if last else "")
            return f"{waiting['reason']}{': ' + detail if detail else ''}"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition.get('reason', 'not scheduled')}: {condition.get('message', '')}"
    if status.get("reason"):
        return str(status["reason"])
    return ""


def silence(pod: PodView, observations: Mapping[str, Observation]) -> str:
    """Why there is no report of `pod`: a sentence that begins with its name."""
    if pod.trouble:
        return f"{pod.name}: {pod.trouble}"
    if not pod.running:
        return f"{pod.name} is not running yet"
    observation = observations.get(pod.name)
    error = observation.error if observation is not None else ""
    return f"{pod.name} {error or 'has not reported yet'}"


def lacks_pods(workload: Manifest | None, replicas: int) -> bool:
    """Whether the controller of a workload has dealt with its specification, and has not made all pods."""
    return workload is not None and _is_observed(workload) and _replicas(workload) < replicas


def _is_observed(workload: Manifest) -> bool:
    """Whether the status of a workload is about its current specification."""
    status = workload.get("status") or {}
    return int(status.get("observedGeneration") or 0) >= int(workload["metadata"].get("generation", 0))


def _replicas(workload: Manifest) -> int:
    return int((workload.get("status") or {}).get("replicas") or 0)


def replica_failure(deployment: Manifest | None) -> str:
    """Why pods of a Deployment could not be created, or nothing."""
    conditions = ((deployment or {}).get("status") or {}).get("conditions") or ()
    failed = (item for item in conditions if (item["type"], item["status"]) == ("ReplicaFailure", "True"))
    return next((str(item.get("message", "")) for item in failed), "")


@dataclass(frozen=True)
class RouterFacts:
    """Everything known about one Router at one moment."""

    router: Router
    rendered: RenderedRouter | None
    """None when a finding blocks it."""
    instances: tuple[RouterInstance, ...]
    blocked: Verdict | None
    """Why `Configured` cannot hold, found while rendering or applying."""
    problems: tuple[Problem, ...]
    workload: Manifest | None
    """The live StatefulSet or Deployment."""
    services: tuple[Manifest, ...]
    pods: tuple[PodView, ...]
    observations: Mapping[str, Observation]
    creation_failure: str = ""
    """Why pods could not be created, from Events: a StatefulSet does not say it in its own status."""

    @property
    def lacks_pods(self) -> bool:
        """The workload's controller has dealt with the specification, and has not made all pods."""
        return lacks_pods(self.workload, self.router.spec.replicas)

    @property
    def why_no_pods(self) -> str:
        """Why pods could not be created, or nothing."""
        return self.creation_failure or replica_failure(self.workload)

    def report(self, pod: PodView) -> RouterReport | None:
        observation = self.observations.get(pod.name)
        report = observation.report if observation is not None else None
        return report if isinstance(report, RouterReport) else None

    def silence(self, pod: PodView) -> str:
        """Why there is no report of `pod`: a sentence that begins with its name."""
        return silence(pod, self.observations)

    @property
    def delivered(self) -> str | None:
        """The digest of what is delivered to the pods, if it is rendered."""
        return self.rendered.content_digest if self.rendered is not None else None

    def lags(self, pod: PodView) -> bool:
        """Whether `pod` has reported another configuration."""
        report = self.report(pod)
        expected = self.rendered
        return (
            report is not None
            and expected is not None
            and report.config_hash != expected.expected_hash(report.id)
        )

    @cached_property
    def distinct(self) -> tuple[RouterInstance, ...]:
        """The instances that differ in more than their names: the replicas of an edge Router are alike."""
        return self.instances[:1] if self.router.spec.mode == "edge" else self.instances

    @cached_property
    def by_id(self) -> Mapping[str, RouterInstance]:
        """The instances by their id."""
        return {item.id: item for item in self.instances}

    @cached_property
    def connectors(self) -> Mapping[str, Sequence[ConnectorInstance]]:
        """Connector to its connections in all replicas; those of an edge Router in one of them."""
        found: dict[str, list[ConnectorInstance]] = {}
        for instance in self.distinct:
            for item in instance.connectors:
                if item.resource is not None:
                    found.setdefault(item.resource, []).append(item)
        return found

    @cached_property
    def serving(self) -> tuple[PodView, ...]:
        """Pods that are not on their way out."""
        return tuple(pod for pod in self.pods if not pod.deleting)

    @property
    def unheard(self) -> bool:
        """Some running pod has not been asked yet; it will have been within a few seconds."""
        return any(pod.running and pod.ip and pod.name not in self.observations for pod in self.serving)

    @cached_property
    def rollout(self) -> str:
        """How far the pods are behind the pod template, or nothing."""
        if self.workload is None:
            return "the pods have not been created yet"
        if not _is_observed(self.workload):
            return "the change has not reached the pods yet"
        wanted, updated = (
            self.router.spec.replicas,
            (self.workload.get("status") or {}).get("updatedReplicas", 0),
        )
        if updated < wanted:
            failure = f": {self.why_no_pods}" if self.why_no_pods else ""
            return f"{updated} of {wanted} pods run the current pod template{failure}"
        return ""

    @property
    def is_behind(self) -> bool:
        """Some pod may run an earlier configuration."""
        unchanged = self.router.metadata.paused or self.rendered is None or bool(self.problems)
        return bool(self.serving) and (unchanged or bool(self.rollout) or bool(self.outdated))

    @cached_property
    def outdated(self) -> Sequence[str]:
        """One message per running router that does not run the rendered configuration."""
        if self.rendered is None:
            return ()
        out = []
        for pod in self.serving:
            report = self.report(pod)
            if report is None:
                out.append(self.silence(pod))
            elif report.config_error:
                out.append(f"{pod.name}: {report.config_error}")
            elif report.config_hash != self.rendered.expected_hash(report.id):
                out.append(f"{pod.name} has not loaded the configuration yet")
        return out
