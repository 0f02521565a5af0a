"""Gathering what is known about a resource for its status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .model import NamespaceModel
from .names import base_name
from .render import Finding, Plan, Rendered
from .report import Observation
from .resources import Connector, FlowAnalysis, FlowLog, GossipRouter, LinkRoute, RelaySite, Router
from .status import PodView, RouterFacts, Verdict, linkroute_status, relaysite_status
from .status.conditions import no

if TYPE_CHECKING:  # `isthmus local` imports this module, and has no use for the Kubernetes client
    from .apply import Outcome
    from .cluster import Manifest

WORKLOADS = frozenset({"StatefulSet", "Deployment"})
"""Kinds of what controls the pods of a Router."""


def router_facts(
    router: Router,
    rendered: Rendered,
    *,
    outcome: Outcome | None,
    children: Iterable[Manifest],
    pods: Sequence[PodView],
    observations: Mapping[str, Observation],
) -> RouterFacts:
    """All facts about `router`. `children` are the live objects that it controls, `pods` its pods."""
    children = list(children)
    made = base_name(router.name)
    workloads = [item for item in children if item["kind"] in WORKLOADS and item["metadata"]["name"] == made]
    return RouterFacts(
        router=router,
        rendered=rendered.routers.get(router.name),
        instances=rendered.plan.instances[router.name],
        blocked=_verdict(rendered.findings_of("Router", router.name)),
        problems=tuple(outcome.problems) if outcome is not None else (),
        workload=workloads[0] if workloads else None,
        # One that is being deleted, or that is too large to be one of the operator's, has no specification.
        services=tuple(item for item in children if item["kind"] == "Service" and "spec" in item),
        pods=tuple(pods),
        observations=observations,
    )


def block(
    resource: Connector | LinkRoute | RelaySite | GossipRouter | FlowLog | FlowAnalysis,
    found: Plan | Rendered,
) -> Verdict | None:
    """Why a resource other than a Router is not in effect."""
    findings = found.findings_of(resource.kind_name, resource.name)
    return _verdict([item for item in findings if not item.in_effect])


def complaint(
    resource: Connector | LinkRoute | RelaySite | GossipRouter | FlowLog, found: Plan | Rendered
) -> Verdict | None:
    """What is wrong with one that is in effect all the same."""
    findings = found.findings_of(resource.kind_name, resource.name)
    return _verdict([item for item in findings if item.in_effect])


def status_of_link_route(
    route: LinkRoute,
    model: NamespaceModel,
    found: Plan | Rendered,
    routers: Mapping[str, RouterFacts],
    previous: Mapping[str, Any] | None,
    now: str,
) -> dict[str, Any]:
    """The complete `status` of a LinkRoute of `model`; `routers` are the facts about all Routers that have pods."""
    sections = (found.plan if isinstance(found, Rendered) else found).link_routes
    connector = model.connectors.get(route.spec.connector or "")
    return linkroute_status(
        route,
        sections.get(route.name, {}),
        routers,
        connector,
        previous,
        now,
        blocked=block(route, found),
        complaint=complaint(route, found),
        disconnected=block(connector, found) if connector is not None else None,
    )


def status_of_relay_site(
    site: RelaySite,
    found: Plan | Rendered,
    routers: Mapping[str, RouterFacts],
    previous: Mapping[str, Any] | None,
    now: str,
) -> dict[str, Any]:
    """The complete `status` of a RelaySite; `routers` are the facts about all Routers."""
    planned = found.plan if isinstance(found, Rendered) else found
    return relaysite_status(
        site,
        routers.get(site.spec.router_ref.name),
        previous,
        now,
        blocked=block(site, found),
        complaint=complaint(site, found),
        instance=planned.relay_sites.get(site.name),
    )


def _verdict(findings: Sequence[Finding]) -> Verdict | None:
    if not findings:
        return None
    worst = sorted(findings, key=lambda item: not item.blocking)
    return no(worst[0].reason, (item.message for item in worst))
