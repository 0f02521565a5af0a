"""Status of a Connector, from the routers that open it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..render import ConnectorInstance
from ..report import AutoLinkReport
from ..resources import Connector
from ..resources.autolink import AutoLink
from .conditions import INSECURE, Verdict, conditions, no, ready, unknown, yes
from .inputs import PodView, RouterFacts
from .insecure import connector_insecure, until_in_effect


def connector_status(
    connector: Connector,
    blocked: Verdict | None,
    source: RouterFacts | None,
    previous: Mapping[str, Any] | None,
    now: str,
    *,
    complaint: Verdict | None = None,
) -> dict[str, Any]:
    """The complete `status` of a Connector. `blocked` says why it is not in effect, `complaint` what is
    wrong though it is; `source` are the facts about the Router it comes from, None when there is no such
    Router."""
    opened, messages = open_connections(connector, source)
    wanted = _wanted(connector, source)
    configured = _configured(blocked or complaint, source)
    links, unattached = _auto_links(connector, source)
    operational = _operational(blocked, source, wanted, opened, messages)
    if operational.status == "True" and unattached:
        operational = no("AutoLinksMissing", unattached)
    verdicts = {
        "Configured": configured,
        "Operational": operational,
        "Ready": ready([configured, operational]),
    }
    verdicts[INSECURE] = until_in_effect(
        connector_insecure(connector, _instances(connector, source)),
        previous,
        behind=source is not None and source.is_behind,
    )
    if configured.reason == "ConfigPending":
        verdicts["Ready"] = ready([operational, configured])
    spec, generation = connector.spec, connector.metadata.generation
    to = spec.to.router_ref.name if spec.to.router_ref is not None else f"{spec.to.host}:{spec.to.port}"
    return {
        "observedGeneration": generation,
        "conditions": conditions(verdicts, previous, generation, now),
        "connections": wanted,
        "openConnections": opened,
        **({"autoLinks": links} if links else {}),
        "destination": to,
    }


def _configured(found: Verdict | None, source: RouterFacts | None) -> Verdict:
    if found is not None:
        return found
    if source is None:
        return no("Pending", _NO_SOURCE)
    name = source.router.name
    if source.router.metadata.paused:
        return unknown("ReconciliationPaused", f'reconciliation of Router "{name}" is paused')
    if source.rendered is None and source.blocked is not None:
        return no("RouterNotConfigured", f'Router "{name}": {source.blocked.message}')
    if source.problems:
        return no("RouterNotConfigured", f'Router "{name}": {source.problems[0].message}')
    if source.router.spec.replicas == 0:
        return no("ScaledToZero", _scaled_to_zero(name))
    outdated = source.outdated
    if outdated:
        return no("ConfigPending", outdated)
    return yes("Applied")


def open_connections(connector: Connector, source: RouterFacts | None) -> tuple[int, list[str]]:
    """How many connections are open, and a message for each one that is not."""
    opened, messages = 0, []
    names = _names(connector, source) if source is not None else []
    stated = connector.spec.to.host
    to = f" (spec.to: {stated}:{connector.spec.to.port})" if stated is not None else ""
    for pod in source.serving if source is not None else ():
        assert source is not None
        report = source.report(pod)
        if report is None:
            messages.append(source.silence(pod))
            continue
        for name in names:
            state = report.connectors.get(name)
            if state is None:
                messages.append(f"{pod.name} does not have the connector yet")
            elif state.state == "open":
                opened += 1
            else:
                why = f": {state.message}" if state.message else ""
                messages.append(f"{pod.name}: {state.state}{why}{to}")
    return opened, list(dict.fromkeys(messages))


def _names(connector: Connector, source: RouterFacts) -> list[str]:
    """The connections of a replica, by their names there."""
    return sorted({item.name for item in _instances(connector, source)}) or [connector.name]


def _instances(connector: Connector, source: RouterFacts | None) -> Sequence[ConnectorInstance]:
    """The connections of all replicas."""
    return source.connectors.get(connector.name, ()) if source is not None else ()


def _auto_links(connector: Connector, source: RouterFacts | None) -> tuple[list[dict[str, Any]], list[str]]:
    """What became of each auto-link, and a message for each that some router has not attached."""
    found, messages = [], []
    names = _names(connector, source) if source is not None else []
    for link in connector.spec.auto_links or ():
        status = link.model_dump(mode="json", by_alias=True, exclude_none=True)
        attached, reason = 0, ""
        for pod, report in _reports_of(names, link, source):
            if report.phase is not None:
                status["phase"] = report.phase
            if report.state == "active":
                attached += 1
                continue
            reason = reason or report.message
            words = f"{pod.name}: auto-link {link.direction} of {link.address} is {report.state}"
            messages.append(f"{words}: {report.message}" if report.message else words)
        found.append({**status, "attached": attached, **({"message": reason[:1024]} if reason else {})})
    return found, messages


def _reports_of(
    names: Sequence[str], link: AutoLink, source: RouterFacts | None
) -> Iterator[tuple[PodView, AutoLinkReport]]:
    """What the routers say of one of their auto-links, which connections called `names` have."""
    for pod in source.serving if source is not None else ():
        report = source.report(pod) if source is not None else None
        for name in names if report is not None else ():
            assert report is not None
            key = (name, link.address, link.direction, link.external_address)
            by_phase = report.auto_links_by_address.get(key, {})
            if link.phase is None:
                yield from ((pod, item) for item in by_phase.values())
            elif link.phase in by_phase:
                yield pod, by_phase[link.phase]


def _wanted(connector: Connector, source: RouterFacts | None) -> int:
    return source.router.spec.replicas * len(_names(connector, source)) if source is not None else 0


def _operational(
    blocked: Verdict | None, source: RouterFacts | None, wanted: int, opened: int, messages: list[str]
) -> Verdict:
    if blocked is not None:
        return no(blocked.reason, blocked.message)
    if source is None:
        return no("Pending", _NO_SOURCE)
    if wanted == 0:
        return no("ScaledToZero", _scaled_to_zero(source.router.name))
    if opened >= wanted and not messages:
        return yes("ConnectionsOpen", f"{opened} of {wanted} connections are open")
    reason = "NoConnection" if opened == 0 else "ConnectionsMissing"
    return no(reason, [f"{opened} of {wanted} connections are open", *messages])


_NO_SOURCE = "the Router it comes from does not exist"


def _scaled_to_zero(router: str) -> str:
    return f'Router "{router}" (spec.from.routerRef) is scaled to zero'
