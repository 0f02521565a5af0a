"""From what routers say of themselves to the rows a person reads. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from isthmus_operator.untrusted import FAILURES, mapping, name, objects, optional_count, seconds, text

from .addresses import AddressRow, address_rows
from .flows import FlowAnalysisRow, FlowLogRow
from .linkroutes import AutoLinkRow, LinkRouteRow, auto_link_rows
from .problems import Problem, problem_lines
from .profiles import ProfileRow
from .report import RouterReport
from .sites import GossipRouterRow, RelaySiteRow

_SECTIONS = ("neighbors", "nodes", "connectors", "listeners", "connections", "addresses", "autoLinks")
"""Lists in the document of a router that rows are made from."""

RouterState = Literal["ready", "starting", "down"]


@dataclass(frozen=True)
class RouterRow:
    """One router."""

    id: str
    router: str
    mode: str
    site: str | None
    state: RouterState
    where: str
    version: str | None
    uptime_seconds: float | None
    restarts: int
    neighbors: tuple[str, ...]
    """Routers it has a direct link with, with the cost where it is not 1."""
    reaches: int | None
    """Number of other interior routers it has a path to; None for an edge router and when
    it did not answer."""
    clients: int | None
    """Client connections."""
    proxied: int | None
    """Addresses that an edge router's clients use beyond it; None for an interior router."""
    denied: int | None
    """How often its policy has refused something."""
    endpoints: tuple[str, ...]
    http: str | None
    """Where `/status` and `/metrics` are, if they can be reached from here."""
    message: str | None


@dataclass(frozen=True)
class LinkRow:
    """One connection a router opens by configuration, as its connector reports it."""

    router: str
    connector: str
    role: str
    destination: str
    """`host:port`, and the peer's container id once it is known."""
    state: str
    cost: int | None
    """Of an open link between routers; for an edge's uplinks the order of preference."""
    tls_ordinal: int | None
    standby: bool
    """An edge's uplink kept in reserve."""
    message: str | None


@dataclass(frozen=True)
class NetworkView:
    """Everything one status screen shows."""

    network: str
    platform: str
    ready: bool
    """Every router is ready and every connector open, and no resource has a problem."""
    routers: tuple[RouterRow, ...]
    links: tuple[LinkRow, ...]
    addresses: tuple[AddressRow, ...]
    profiles: tuple[ProfileRow, ...]
    link_routes: tuple[LinkRouteRow, ...]
    sites: tuple[RelaySiteRow, ...]
    gossip_routers: tuple[GossipRouterRow, ...]
    flow_logs: tuple[FlowLogRow, ...]
    flow_analyses: tuple[FlowAnalysisRow, ...]
    auto_links: tuple[AutoLinkRow, ...]
    addresses_not_shown: int
    """Addresses the routers left out of their documents."""
    asked: bool
    """Every router could be asked; otherwise links, addresses and clients are not all known."""
    problems: tuple[str, ...] = field(default=())
    insecure: tuple[str, ...] = field(default=())
    """What accepts or carries clear text, or accepts peers that do not authenticate."""


def network_view(
    network: str,
    platform: str,
    reports: Sequence[RouterReport],
    findings: Iterable[str] = (),
    profiles: Sequence[ProfileRow] = (),
    link_routes: Sequence[LinkRouteRow] = (),
    sites: Sequence[RelaySiteRow] = (),
    gossip_routers: Sequence[GossipRouterRow] = (),
    flow_logs: Sequence[FlowLogRow] = (),
    flow_analyses: Sequence[FlowAnalysisRow] = (),
    insecure: Iterable[str] = (),
) -> NetworkView:
    """The view of `reports`; `findings` are problems with resources, as sentences, `insecure` what their condition of
    that name says."""
    ordered = sorted(map(_sound, reports), key=lambda report: (report.mode != "interior", report.id))
    routers = tuple(_router_row(report) for report in ordered)
    links = tuple(link for report in ordered for link in _link_rows(report))
    auto_links = tuple(auto_link_rows(ordered))
    addresses, hidden = address_rows(ordered)
    found = [
        *_router_problems(routers),
        *_link_problems(links),
        *_auto_link_problems(auto_links),
        *_listener_problems(ordered),
    ]
    problems = problem_lines(findings, found)
    asked = all(report.asked for report in ordered)
    return NetworkView(
        network=network,
        platform=platform,
        ready=not problems,
        routers=routers,
        links=links,
        addresses=addresses,
        profiles=tuple(profiles),
        link_routes=tuple(link_routes),
        sites=tuple(sites),
        gossip_routers=tuple(gossip_routers),
        flow_logs=tuple(flow_logs),
        flow_analyses=tuple(flow_analyses),
        auto_links=auto_links,
        addresses_not_shown=hidden,
        asked=asked,
        problems=problems,
        insecure=problem_lines(insecure, ()),
    )


def _sound(report: RouterReport) -> RouterReport:
    """`report`, without its document if that is not one of a router: it must not keep the others from view."""
    if report.status is None:
        return report
    try:
        about = mapping(report.status.get("router", {}))
        _ = [text(about[key]) for key in ("version",) if about.get(key) is not None]
        _ = [seconds(about[key]) for key in ("uptimeSeconds",) if about.get(key) is not None]
        _ = [name(item["id"]) for item in objects(report.status.get("neighbors"))]
        for section in _SECTIONS:
            for item in objects(report.status.get(section)):
                optional_count(item.get("cost", 1))
                optional_count(item.get("tlsOrdinal"))
        _router_row(report), _link_rows(report), list(auto_link_rows([report])), address_rows([report])
    except FAILURES:
        return replace(report, status=None, trouble="sends a status that has not the expected form")
    return report


def as_json(view: NetworkView) -> dict[str, Any]:
    """The view as a JSON document, keys in camelCase."""
    return {_camel(key): value for key, value in asdict(view, dict_factory=_camel_dict).items()}


def _camel_dict(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {_camel(key): value for key, value in items}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _router_row(report: RouterReport) -> RouterRow:
    status = report.status or {}
    about = status.get("router", {})
    state: RouterState = "down"
    if report.status is not None:
        state = "ready" if about.get("ready") else "starting"
    refused = status.get("lastConfigError")
    message = report.trouble or (f"configuration refused: {refused}" if refused else None)
    return RouterRow(
        id=report.id,
        router=report.router,
        mode=report.mode,
        site=report.site,
        state=state,
        where=report.where,
        version=about.get("version"),
        uptime_seconds=about.get("uptimeSeconds"),
        restarts=report.restarts,
        neighbors=tuple(_neighbors(report)),
        reaches=len(status["nodes"]) if "nodes" in status and report.mode == "interior" else None,
        clients=_clients(status),
        proxied=(status.get("edge") or {}).get("proxiedAddresses"),
        denied=sum(status["policyDenials"].values()) if "policyDenials" in status else None,
        endpoints=report.endpoints,
        http=report.http,
        message=message,
    )


def _clients(status: Mapping[str, Any]) -> int | None:
    if "connections" not in status:
        return None
    connections = status["connections"]
    return sum(1 for item in connections if item["role"] == "normal" and item["dir"] == "in")


def _neighbors(report: RouterReport) -> list[str]:
    """Direct neighbours; an edge router's is the interior its uplink goes to."""
    found = []
    for item in report.entries("neighbors"):
        cost = item.get("cost", 1)
        found.append(item["id"] if cost == 1 else f"{item['id']} (cost {cost})")
    if report.mode == "edge":
        found += [
            item["container"]
            for item in report.entries("connectors")
            if item.get("role") == "edge"
            and item.get("state") == "open"
            and item.get("container")
            and item.get("active") is not False
        ]
    return list(dict.fromkeys(found))


def _link_rows(report: RouterReport) -> list[LinkRow]:
    rows = []
    for item in report.entries("connectors"):
        destination = f"{item.get('host')}:{item.get('port')}"
        if item.get("container"):
            destination = f"{item['container']} at {destination}"
        rows.append(
            LinkRow(
                router=report.id,
                connector=str(item.get("name")),
                role=str(item.get("role")),
                destination=destination,
                state=str(item.get("state")),
                cost=item.get("cost"),
                tls_ordinal=item.get("tlsOrdinal"),
                standby=item.get("active") is False and item.get("state") == "open",
                message=item.get("message") or None,
            )
        )
    return rows


def _router_problems(rows: Iterable[RouterRow]) -> list[Problem]:
    found = []
    for row in rows:
        if row.state != "ready":
            found.append(Problem("router", row.id, f" is {row.state}", row.message))
        elif row.message:
            found.append(Problem("router", row.id, "", row.message))
    return found


def _link_problems(rows: Iterable[LinkRow]) -> list[Problem]:
    return [
        Problem(
            "router",
            row.router,
            f": connector {row.connector} to {row.destination} is {row.state}",
            row.message,
        )
        for row in rows
        if row.state != "open"
    ]


def _auto_link_problems(rows: Iterable[AutoLinkRow]) -> list[Problem]:
    """Of one without a connection, that tells enough."""
    return [
        Problem(
            "router", row.router, f": auto-link {row.direction} of {row.address} is {row.state}", row.message
        )
        for row in rows
        if row.state in {"attaching", "failed"}
    ]


def _listener_problems(reports: Iterable[RouterReport]) -> list[Problem]:
    return [
        Problem(
            "router",
            report.id,
            f": listener {item.get('name')} on {item.get('host')}:{item.get('port')} is {item.get('state')}",
            item.get("message") or None,
        )
        for report in reports
        for item in report.entries("listeners")
        if item.get("state") != "listening"
    ]
