"""Whether the pods of a GossipRouter or FlowLog have loaded the certificates that they should have. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..certificate_reports import GossipReport, Loaded
from ..flow_reports import CollectorReport
from ..report import Observation
from ..resources import FlowLog, GossipRouter
from .inputs import PodView, silence


@dataclass(frozen=True)
class CertificateUser:
    """A GossipRouter or FlowLog, and its pods."""

    resource: GossipRouter | FlowLog
    delivered: str | None
    """The digest of its certificates as rendered, empty without any. None: a finding keeps them from being rendered."""
    pods: Sequence[PodView] = ()
    observations: Mapping[str, Observation] = field(default_factory=dict)

    @cached_property
    def serving(self) -> tuple[PodView, ...]:
        """Pods that are not on their way out."""
        return tuple(pod for pod in self.pods if not pod.deleting)

    @property
    def unheard(self) -> bool:
        """Some running pod has not been asked yet; it will have been within a few seconds."""
        return self.delivered != "" and any(
            pod.running and pod.ip and pod.name not in self.observations for pod in self.serving
        )

    def lags(self, pod: PodView) -> bool:
        """Whether `pod` has reported other certificates."""
        loaded = self._loaded(pod)
        return loaded is not None and loaded.digest != self.delivered

    @cached_property
    def outdated(self) -> Sequence[str]:
        """One message per pod that is not known to have loaded the certificates."""
        if self.delivered == "":
            return ()
        out = []
        for pod in self.serving:
            loaded = self._loaded(pod)
            if loaded is None:
                out.append(silence(pod, self.observations))
            elif self.delivered is None:
                out.append(f"{pod.name} keeps the earlier certificates")
            elif loaded.digest != self.delivered:
                out.append(
                    f"{pod.name}: {loaded.problem}"
                    if loaded.problem
                    else f"{pod.name} has not loaded the certificates yet"
                )
        return out

    def _loaded(self, pod: PodView) -> Loaded | None:
        observation = self.observations.get(pod.name)
        report = observation.report if observation is not None else None
        return report.loaded if isinstance(report, GossipReport | CollectorReport) else None
