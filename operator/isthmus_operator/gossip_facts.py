"""What is known of GossipRouters: their live objects, their pods, and where to ask these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .apply import Outcome, by_controller, identity
from .certificate_reports import parse_gossip_router
from .cluster import Manifest
from .facts import block, complaint
from .model import NamespaceModel
from .names import ANNOTATION_SYNC, LABEL_ROUTER, gossip_name
from .observe import Target
from .render import Rendered
from .report import Observation
from .resources import GossipRouter
from .status import CertificateUser, PodView, gossiprouter_status, lacks_pods


@dataclass(frozen=True)
class GossipFacts:
    """Of one GossipRouter at one moment."""

    gossip_router: GossipRouter
    workload: Manifest | None
    """Its live StatefulSet."""
    pods: Sequence[PodView]
    outcome: Outcome = field(default_factory=Outcome)
    """What became of its objects."""
    observations: Mapping[str, Observation] = field(default_factory=dict)
    creation_failure: str = ""
    """Why pods could not be created, from Events."""

    @classmethod
    def of(
        cls, found: GossipRouter, children: Iterable[Manifest], pods: Mapping[str, Sequence[Manifest]]
    ) -> GossipFacts:
        """`children` are the live objects that it controls, `pods` all pods by the uid of their controller."""
        made = ("StatefulSet", gossip_name(found.name))
        workload = next((item for item in children if identity(item) == made), None)
        own = pods.get(str(workload["metadata"]["uid"]), ()) if workload is not None else ()
        views = [PodView.of(pod, LABEL_ROUTER, ANNOTATION_SYNC) for pod in own]
        return cls(found, workload, sorted(views, key=lambda pod: pod.name))

    @property
    def workload_uid(self) -> str:
        """Nothing while there is no StatefulSet."""
        return str(self.workload["metadata"]["uid"]) if self.workload is not None else ""

    @property
    def lacks_pods(self) -> bool:
        """The controller of the StatefulSet has dealt with the specification, and has not made all pods."""
        return lacks_pods(self.workload, self.gossip_router.spec.replicas)

    def targets(self) -> dict[str, Target]:
        """Pods that can be asked, by name."""
        return {
            pod.name: Target(pod.uid, pod.ip, self.gossip_router.spec.health_port, parse=parse_gossip_router)
            for pod in self.pods
            if pod.running and pod.ip and not pod.deleting
        }

    def certificate_user(self, rendered: Rendered) -> CertificateUser:
        """What its pods have loaded."""
        made = rendered.gossip_routers.get(self.gossip_router.name)
        delivered = made.certificates if made is not None else None
        return CertificateUser(self.gossip_router, delivered, self.pods, self.observations)

    def status(self, rendered: Rendered, previous: Mapping[str, Any], now: str) -> dict[str, Any]:
        """Its complete `status`."""
        return gossiprouter_status(
            self.gossip_router,
            self.workload,
            previous,
            now,
            blocked=block(self.gossip_router, rendered),
            complaint=complaint(self.gossip_router, rendered),
            problems=self.outcome.problems,
            outdated=self.certificate_user(rendered).outdated,
            creation_failure=self.creation_failure,
        )


def gossip_facts(
    model: NamespaceModel, children: Mapping[str, Sequence[Manifest]], pods: Iterable[Manifest]
) -> Mapping[str, GossipFacts]:
    """By name. `children` are live objects by the uid of their controller, `pods` those with the operator's label."""
    by_workload = by_controller(pods)
    return {
        name: GossipFacts.of(found, children.get(found.metadata.uid, ()), by_workload)
        for name, found in model.gossip_routers.items()
    }
