"""Status of a LinkRoute, from the routers that know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ..render import LinkRouteInstance
from ..report import LinkRouteReport, RefusalReport
from ..resources import Connector, LinkRoute
from .conditions import Verdict, conditions, no, ready, unknown, yes
from .connector import open_connections
from .inputs import RouterFacts

_SAME_SECONDS = 10
"""Two reports of one refusal differ in its time by less: routers tell whole seconds, and are asked late."""

Sections = Mapping[str, LinkRouteInstance]
"""Router to what it has been given of a LinkRoute."""


@dataclass
class _Seen:
    """What the routers say of a LinkRoute."""

    routers: int = 0
    """Those that have it."""
    destinations: int = 0
    elsewhere: bool = False
    links: int = 0
    refusals: int = 0
    last: tuple[str, RefusalReport] | None = None
    """A router and its last refusal, the latest of all."""
    behind: list[str] = field(default_factory=list)
    """Why a router does not have it yet: sentences that begin with the pod."""
    silent: list[str] = field(default_factory=list)
    """Why a router says nothing."""


def linkroute_status(
    route: LinkRoute,
    sections: Sections,
    facts: Mapping[str, RouterFacts],
    connector: Connector | None,
    previous: Mapping[str, Any] | None,
    now: str,
    *,
    blocked: Verdict | None = None,
    complaint: Verdict | None = None,
    disconnected: Verdict | None = None,
) -> dict[str, Any]:
    """The complete `status` of a LinkRoute. `blocked` says why it is not in effect, `complaint` what is wrong though
    it is; `facts` are those about all Routers, of which the ones without pods may be missing, `connector` is the one it
    names, and `disconnected` says why that one is not in effect."""
    routers = [item for name, item in facts.items() if item.serving and name in sections]
    seen = _Seen()
    for item in routers:
        _look(item, sections[item.router.name], seen)
    configured = blocked or complaint or _configured(sections, routers, seen)
    matched = _matched(route, blocked, seen, connector, facts, disconnected)
    verdicts = {
        "Configured": configured,
        "Matched": matched,
        "Ready": ready([configured, matched]),
    }
    if configured.reason == "ConfigPending":
        verdicts["Ready"] = ready([matched, configured])
    generation = route.metadata.generation
    refusal = _last_refusal(seen, (previous or {}).get("lastRefusal"))
    return {
        "observedGeneration": generation,
        "conditions": conditions(verdicts, previous, generation, now),
        "addresses": route.spec.prefix or route.spec.pattern,
        "activeDestinations": seen.destinations,
        "attachedLinks": seen.links,
        "refusals": seen.refusals,
        **({"lastRefusal": refusal} if refusal is not None else {}),
    }


def _look(facts: RouterFacts, section: LinkRouteInstance, seen: _Seen) -> None:
    """What the routers of one Router say."""
    for pod in facts.serving:
        report = facts.report(pod)
        if report is None:
            seen.silent.append(facts.silence(pod))
            continue
        if report.link_routes is None:
            seen.behind.append(f"{pod.name} runs version {report.version}, which routes no links")
            continue
        item = report.link_routes.get(section.name)
        if item is None and report.more_link_routes:
            seen.routers += 1
            continue
        if item is None or not _is_of(item, section):
            seen.behind.append(f"{pod.name}: {report.config_error or 'has not loaded the link route yet'}")
            continue
        seen.routers += 1
        seen.destinations += item.destinations
        seen.elsewhere = seen.elsewhere or item.elsewhere
        seen.links += item.links
        seen.refusals += item.refusals
        last = item.last_refusal
        if last is not None and (seen.last is None or last.at > seen.last[1].at):
            seen.last = pod.name, last


def _is_of(item: LinkRouteReport, section: LinkRouteInstance) -> bool:
    """Whether the router has the section as it is now."""
    return (item.prefix, item.pattern, item.direction, item.connection, item.container_id) == (
        section.prefix,
        section.pattern,
        section.direction,
        section.connection,
        section.container_id,
    )


def _configured(sections: Sections, routers: list[RouterFacts], seen: _Seen) -> Verdict:
    if not sections:
        return no("Pending", "there is no Router yet")
    paused = [item.router.name for item in routers if item.router.metadata.paused]
    if seen.behind and paused:
        return unknown("ReconciliationPaused", f"reconciliation of Router {', '.join(paused)} is paused")
    if seen.behind:
        return no("ConfigPending", seen.behind)
    if not seen.routers:
        return no("NoReplicaReady", seen.silent or "all its Routers are scaled to zero")
    return yes("Applied", f"{seen.routers} router{'' if seen.routers == 1 else 's'} know it")


def _matched(
    route: LinkRoute,
    blocked: Verdict | None,
    seen: _Seen,
    connector: Connector | None,
    facts: Mapping[str, RouterFacts],
    disconnected: Verdict | None,
) -> Verdict:
    if blocked is not None:
        return no(blocked.reason, blocked.message)
    if seen.destinations:
        count = f"{seen.destinations} container{'' if seen.destinations == 1 else 's'}"
        return yes("ContainerAttached", f"{count} attached")
    if seen.elsewhere:
        return yes("ContainerElsewhere", "a container is attached elsewhere in the network")
    if connector is None:
        wanted = f'no container "{route.spec.container_id}" is connected to a router'
        return no("NoContainer", [wanted, *seen.silent])
    if disconnected is not None:
        return no("NoContainer", f'Connector "{connector.name}": {disconnected.message}')
    source = facts.get(connector.spec.from_.router_ref.name)
    _, messages = open_connections(connector, source)
    told = messages or ["no container takes its links yet"]
    return no("NoContainer", f'Connector "{connector.name}": {"; ".join(told)}')


def _last_refusal(seen: _Seen, before: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The latest refusal; as it was told before, if it is that one, or routers that have started anew know of none."""
    if seen.last is None:
        return before
    router, last = seen.last
    told = {
        "router": router[:256],
        "address": last.address[:1024],
        "description": last.description[:1024],
        "time": last.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if before is None:
        return told
    same = {**before, "time": told["time"]} == told
    newer = (last.at - datetime.fromisoformat(str(before["time"]))).total_seconds()
    return told if newer >= (_SAME_SECONDS if same else 0) else before
