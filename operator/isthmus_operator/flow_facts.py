"""What is known of FlowLogs and FlowAnalyses: their live objects, their pods, and where to ask these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .apply import Identity, Outcome, by_controller, controller, identity
from .cluster import Manifest
from .facts import block, complaint
from .flow_reports import parse_collector, parse_progress
from .model import NamespaceModel
from .names import (
    ANNOTATION_SYNC,
    LABEL_COMPONENT,
    LABEL_FLOW_ANALYSIS,
    LABEL_FLOW_LOG,
    LABEL_ROUTER,
    base_name,
    flow_analysis_name,
    flow_log_name,
)
from .observe import Target
from .render import Rendered
from .render.flows.analysis import UI_PORT
from .render.flows.place import Place
from .report import Observation
from .resources import FlowAnalysis, FlowLog
from .seniority import Owner
from .status import AnalysisFacts, CertificateUser, PodView, flowanalysis_status, flowlog_status

Outcomes = Mapping[tuple[str, str], Outcome]


@dataclass(frozen=True)
class FlowFacts:
    """Of one namespace at one moment."""

    logs: Mapping[str, tuple[Manifest | None, Sequence[PodView]]] = field(default_factory=dict)
    """FlowLog to its live Deployment and the pods of its collector."""
    analyses: Mapping[str, AnalysisFacts] = field(default_factory=dict)
    outcomes: Outcomes = field(default_factory=dict)
    observations: Mapping[str, Observation] = field(default_factory=dict)

    @property
    def unheard(self) -> set[str]:
        """FlowLogs whose collector has not been asked yet; it will have been within a few seconds."""
        return {
            name
            for name, (_, pods) in self.logs.items()
            if any(pod.running and not pod.deleting and pod.name not in self.observations for pod in pods)
        }

    @property
    def jobs_without_pods(self) -> set[str]:
        """The uids of the Jobs that should have a pod and have none."""
        return {uid for facts in self.analyses.values() for uid in facts.without_pods}

    def explained(self, creation_failures: Mapping[str, str]) -> FlowFacts:
        """The same, with the reasons why pods could not be created, by uid of the Job."""
        analyses = {
            name: replace(facts, creation_failures=creation_failures) for name, facts in self.analyses.items()
        }
        return replace(self, analyses=analyses)

    def status_of_log(
        self, found: FlowLog, rendered: Rendered, previous: Mapping[str, Any], now: str
    ) -> dict[str, Any] | None:
        """The complete `status` of a FlowLog; None: it came after this was gathered."""
        if found.name not in self.logs:
            return None
        workload, pods = self.logs[found.name]
        made = rendered.flow_logs.get(found.name)
        return flowlog_status(
            found,
            workload,
            pods,
            self.observations,
            previous,
            now,
            blocked=block(found, rendered),
            complaint=complaint(found, rendered),
            problems=self.outcomes.get(("FlowLog", found.name), Outcome()).problems,
            to=made.destination if made is not None else None,
            outdated=self._certificate_user(found, rendered).outdated,
        )

    def certificate_users(self, model: NamespaceModel, rendered: Rendered) -> list[CertificateUser]:
        """The FlowLogs of `model`, and what their collectors have loaded."""
        return [self._certificate_user(found, rendered) for found in model.flow_logs.values()]

    def _certificate_user(self, found: FlowLog, rendered: Rendered) -> CertificateUser:
        made = rendered.flow_logs.get(found.name)
        delivered = made.certificates if made is not None else None
        _, pods = self.logs.get(found.name, (None, ()))
        return CertificateUser(found, delivered, pods, self.observations)

    def status_of_analysis(
        self, found: FlowAnalysis, rendered: Rendered, previous: Mapping[str, Any], now: str
    ) -> dict[str, Any] | None:
        """The complete `status` of a FlowAnalysis; None: it came after this was gathered."""
        if found.name not in self.analyses:
            return None
        return flowanalysis_status(
            found,
            rendered.flow_analyses.get(found.name),
            self.analyses[found.name],
            previous,
            now,
            blocked=block(found, rendered),
            problems=self.outcomes.get(("FlowAnalysis", found.name), Outcome()).problems,
        )


def flow_facts(
    model: NamespaceModel,
    live: Mapping[Identity, Manifest],
    pods: Iterable[Manifest],
    outcomes: Outcomes,
    observations: Mapping[str, Observation],
) -> FlowFacts:
    """Gather them. `live` and `pods` are all objects and pods that bear the operator's label."""
    pods = list(pods)
    collectors = _grouped(pods, LABEL_FLOW_LOG)
    drivers = _grouped(_drivers(pods), LABEL_FLOW_ANALYSIS)
    jobs = by_controller(item for (kind, _), item in live.items() if kind == "Job")
    return FlowFacts(
        {
            name: (
                _controlled(live.get(("Deployment", flow_log_name(name))), log),
                [
                    PodView.of(pod, LABEL_ROUTER, ANNOTATION_SYNC)
                    for pod in collectors.get(base_name(name), ())
                ],
            )
            for name, log in model.flow_logs.items()
        },
        {
            name: _analysis_facts(analysis, live, jobs, drivers.get(base_name(name), ()), observations)
            for name, analysis in model.flow_analyses.items()
        },
        outcomes,
        observations,
    )


def _analysis_facts(
    analysis: FlowAnalysis,
    live: Mapping[Identity, Manifest],
    jobs: Mapping[str, Sequence[Manifest]],
    drivers: Sequence[Manifest],
    observations: Mapping[str, Observation],
) -> AnalysisFacts:
    """`jobs` are by the uid of their controller. Anybody who may create a Job can give it the labels of a run."""
    cron_job = _controlled(live.get(("CronJob", flow_analysis_name(analysis.name))), analysis)
    runs = list(jobs.get(analysis.metadata.uid, ()))
    if cron_job is not None:
        runs += jobs.get(str(cron_job["metadata"]["uid"]), ())
    return AnalysisFacts(runs, cron_job, drivers, observations)


def _controlled(manifest: Manifest | None, owner: Owner) -> Manifest | None:
    """`manifest`, unless another resource than `owner` controls it, or none."""
    found = controller(manifest) if manifest is not None else None
    return manifest if found is not None and found.get("uid") == owner.metadata.uid else None


def claims_beside(owner: Owner, model: NamespaceModel) -> dict[Identity, Owner]:
    """The PersistentVolumeClaim that the operator makes for a FlowLog, and the FlowLog, if `owner` is a FlowAnalysis of
    it."""
    log = model.flow_logs.get(owner.spec.flow_log_ref.name) if isinstance(owner, FlowAnalysis) else None
    return {} if log is None else {identity(claim): log for claim in Place(log).claims(model.namespace)}


def targets(model: NamespaceModel, pods: Iterable[Manifest]) -> dict[str, Target]:
    """Collectors and drivers that can be asked, by name of the pod."""
    pods = [pod for pod in pods if _can_be_asked(pod)]
    ports = {base_name(name): found.spec.health_port for name, found in model.flow_logs.items()}
    found = {}
    for log, members in _grouped(pods, LABEL_FLOW_LOG).items():
        for pod in members:
            if log in ports:
                found[pod["metadata"]["name"]] = Target(
                    pod["metadata"]["uid"], pod["status"]["podIP"], ports[log], parse=parse_collector
                )
    for pod in _drivers(pods):
        metadata = pod["metadata"]
        path = f"/api/v1/applications/{metadata['uid']}/jobs"
        found[metadata["name"]] = Target(
            metadata["uid"], pod["status"]["podIP"], UI_PORT, path, parse_progress
        )
    return found


def _can_be_asked(pod: Manifest) -> bool:
    status = pod.get("status") or {}
    return (
        status.get("phase") == "Running"
        and bool(status.get("podIP"))
        and pod["metadata"].get("deletionTimestamp") is None
    )


def _drivers(pods: Iterable[Manifest]) -> Iterator[Manifest]:
    return (pod for pod in pods if _labels(pod).get(LABEL_COMPONENT) == "flow-driver")


def _grouped(items: Iterable[Manifest], label: str) -> dict[str, list[Manifest]]:
    found: dict[str, list[Manifest]] = {}
    for item in items:
        value = _labels(item).get(label)
        if value is not None:
            found.setdefault(value, []).append(item)
    return found


def _labels(item: Manifest) -> Mapping[str, str]:
    labels: Mapping[str, str] = item["metadata"].get("labels") or {}
    return labels
