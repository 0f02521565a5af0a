"""Asks the routers of a local network how they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from isthmus_cli.errors import CliError
from isthmus_cli.view import (
    FlowLogRow,
    GossipRouterRow,
    Manifest,
    NetworkView,
    RouterReport,
    condition,
    condition_problems,
    link_route_row,
    network_view,
    profile_row,
    relay_site_row,
)
from isthmus_operator.certificate_reports import parse_gossip_router
from isthmus_operator.certificates import Examined
from isthmus_operator.facts import status_of_link_route, status_of_relay_site
from isthmus_operator.fetch import fetch
from isthmus_operator.flow_reports import CollectorReport, parse_collector
from isthmus_operator.model import NamespaceModel
from isthmus_operator.render import (
    MaterialError,
    Plan,
    certificates_digest,
    collector_files,
    gossip_files,
    plan,
)
from isthmus_operator.render.flows import RefusedError, destination
from isthmus_operator.report import Report
from isthmus_operator.resources import FlowLog, GossipRouter, LinkRoute, RelaySite
from isthmus_operator.status import (
    CertificateUser,
    connector_insecure,
    flow_log_insecure,
    gossip_router_insecure,
    relay_site_insecure,
    router_insecure,
    shared_with_collectors,
)
from isthmus_operator.untrusted import document, mapping, scrubbed

from . import gossip, rotation
from .observed import observation, process_view, router_facts
from .ports import LOOPBACK
from .state import Network, NetworkState, Processes, RouterProcess, WantedRouter, WantedService
from .wanted import config_path, model_at

_ANSWER_SECONDS = 2.0
_AT_ONCE = 16


def view(state: NetworkState, network: Network) -> NetworkView:
    """The network as it is now."""
    found, now = reports(state, network), datetime.now(UTC)
    statuses = resource_statuses(state, found, now)
    profiles, link_routes = statuses.profiles.values(), statuses.link_routes
    findings = [
        *network.findings,
        *expired(network, now),
        *(text for manifest in profiles for text in condition_problems("SslProfile", manifest)),
        *(text for manifest in link_routes for text in condition_problems("LinkRoute", manifest)),
        *(text for manifest in statuses.relay_sites for text in condition_problems("RelaySite", manifest)),
        *service_troubles(state, network),
    ]
    processes = state.processes()
    if processes is None or not processes.supervisor.alive:
        findings.append(
            f"the supervisor is not running, so routers that end are not started again; "
            f"see {state.supervisor_log}, and run `isthmus local up` again"
        )
    rows = [profile_row(manifest) for manifest in profiles]
    routes = [link_route_row(manifest) for manifest in link_routes]
    sites = [relay_site_row(manifest) for manifest in statuses.relay_sites]
    gossips, logs = gossip_rows(state, network), flow_log_rows(state, network)
    return network_view(
        network.name,
        "this machine",
        found,
        findings,
        rows,
        routes,
        sites,
        gossips,
        logs,
        insecure=statuses.insecure,
    )


def sites_ready(state: NetworkState, network: Network) -> bool:
    """Whether all sites have formed and reach the others."""
    found = resource_statuses(state, reports(state, network), datetime.now(UTC)).relay_sites
    return all(condition(manifest, "Ready").get("status") == "True" for manifest in found)


def service_troubles(state: NetworkState, network: Network) -> list[str]:
    """Findings about gossip routers and collectors that do not run."""
    processes = state.processes()
    running = processes.running() if processes is not None else {}
    entries = processes.routers if processes is not None else {}
    return [
        f"{item.kind} {item.resource}: NotRunning: {item.id} "
        f"{(entries[item.id].trouble if item.id in entries else None) or 'is not running'}"
        for item in network.services
        if item.id not in running
    ]


def gossip_rows(state: NetworkState, network: Network) -> list[GossipRouterRow]:
    """The processes of gossip routers."""
    processes = state.processes()
    running = processes.running() if processes is not None else {}
    return [_gossip_row(network, item, running.get(item.id)) for item in network.services_of("GossipRouter")]


def flow_log_rows(state: NetworkState, network: Network) -> list[FlowLogRow]:
    """The processes of collectors."""
    processes = state.processes()
    running = processes.running() if processes is not None else {}
    return [_flow_log_row(state, item, running.get(item.id)) for item in network.services_of("FlowLog")]


def _flow_log_row(state: NetworkState, item: WantedService, running: RouterProcess | None) -> FlowLogRow:
    process = running.process if running is not None else None
    found = _collector(item.health_port) if process is not None else None
    well = found is not None and found.connected and not found.problem
    return FlowLogRow(
        name=item.resource,
        state="ready" if well else "starting" if process is not None else "down",
        routers=found.routers if found is not None else 0,
        rows=found.rows_written if found is not None else 0,
        missed=found.messages_missed if found is not None else 0,
        location=str(json.loads(config_path(state, item.id).read_text())["log"]),
        where=f"pid {process.pid}" if process is not None else "-",
    )


def _collector(port: int) -> CollectorReport | None:
    try:
        return parse_collector(fetch_status(port) or {}, datetime.now(UTC))
    except ValueError:
        return None


def _gossip_row(network: Network, item: WantedService, running: RouterProcess | None) -> GossipRouterRow:
    process = running.process if running is not None else None
    ready = process is not None and _get(item.health_port, "/readyz") is not None
    return GossipRouterRow(
        name=item.id,
        state="ready" if ready else "starting" if process is not None else "down",
        ready=f"{int(ready)}/1",
        address=f"{LOOPBACK}:{network.ports[f'{item.id}/{gossip.PORT}']}",
        where=f"pid {process.pid}" if process is not None else "-",
    )


def reports(state: NetworkState, network: Network) -> list[RouterReport]:
    """What the routers say."""
    processes = state.processes()
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        documents = list(pool.map(lambda router: fetch_status(router.health_port), network.routers))
    return [
        _report(router, processes, document)
        for router, document in zip(network.routers, documents, strict=True)
    ]


def certificate_users(network: Network, model: NamespaceModel, now: datetime) -> list[CertificateUser]:
    """The GossipRouters and FlowLogs of `model`, and what their processes have loaded."""
    found = [
        _certificate_user(network, item, partial(gossip_files, item, model), parse_gossip_router, now)
        for item in model.gossip_routers.values()
    ]
    return found + [
        _certificate_user(network, log, partial(collector_files, log, model), parse_collector, now)
        for log in model.flow_logs.values()
    ]


def _certificate_user(
    network: Network,
    resource: GossipRouter | FlowLog,
    files: Callable[[], Mapping[str, bytes]],
    parse: Callable[[Mapping[str, Any], datetime], Report],
    now: datetime,
) -> CertificateUser:
    processes = [item for item in network.services_of(resource.kind_name) if item.resource == resource.name]
    try:
        delivered = certificates_digest(files())
    except MaterialError:
        delivered = None
    observations = {item.id: observation(fetch_status(item.health_port), parse, now) for item in processes}
    return CertificateUser(
        resource,
        delivered,
        [process_view(item.id, "", ready=observations[item.id].report is not None) for item in processes],
        observations,
    )


@dataclass(frozen=True)
class Statuses:
    """Resources with the status that they would have on Kubernetes."""

    profiles: Mapping[str, Manifest] = field(default_factory=dict)
    """SslProfiles, by name."""
    link_routes: Sequence[Manifest] = ()
    relay_sites: Sequence[Manifest] = ()
    insecure: Sequence[str] = ()
    """What their condition `Insecure` would say."""


def resource_statuses(state: NetworkState, found: Iterable[RouterReport], now: datetime) -> Statuses:
    """What becomes of resources beside Routers and Connectors, of which the routers tell enough."""
    model = model_at(state, now)
    if model is None:
        return Statuses()
    facts = rotation.standing(state, model, now)
    serving = model.serving(rotation.ledgers(facts))
    planned = plan(serving)
    routers = router_facts(planned, model, found, now)
    network = state.network()
    others = certificate_users(network, serving, now) if network is not None else []
    return Statuses(
        rotation.manifests(rotation.used(facts, routers.values(), others, model), now),
        [
            _manifest(route, status_of_link_route(route, model, planned, routers, None, now.isoformat()))
            for route in model.link_routes.values()
        ],
        [
            _manifest(site, status_of_relay_site(site, planned, routers, None, now.isoformat()))
            for site in model.relay_sites.values()
        ],
        _insecure(model, planned),
    )


def _insecure(model: NamespaceModel, planned: Plan) -> list[str]:
    instances = [
        item for group in planned.instances.values() for instance in group for item in instance.connectors
    ]
    verdicts = {
        f"Router {name}": router_insecure(router, shared_with_collectors(planned.instances[name]))
        for name, router in model.routers.items()
    }
    for name, connector in model.connectors.items():
        own = [item for item in instances if item.resource == name]
        verdicts[f"Connector {name}"] = connector_insecure(connector, own)
    for name in model.relay_sites:
        verdicts[f"RelaySite {name}"] = relay_site_insecure(planned.relay_sites.get(name))
    for name, gossip_router in model.gossip_routers.items():
        verdicts[f"GossipRouter {name}"] = gossip_router_insecure(gossip_router)
    for name, log in model.flow_logs.items():
        with suppress(RefusedError):
            verdicts[f"FlowLog {name}"] = flow_log_insecure(log, destination(log, model))
    return [f"{subject}: {verdict.message}" for subject, verdict in verdicts.items() if verdict.holds]


def _manifest(resource: LinkRoute | RelaySite, status: Mapping[str, Any]) -> Manifest:
    return {**resource.model_dump(mode="json", by_alias=True, exclude_none=True), "status": status}


async def profile_manifest(state: NetworkState, name: str) -> Manifest:
    """One SslProfile with its status. Raises CliError when it is gone."""
    network = state.network()
    found = resource_statuses(state, reports(state, network), datetime.now(UTC)).profiles if network else {}
    if name not in found:
        raise CliError(f"SslProfile {name!r} is not there any more")
    return found[name]


def expired(network: Network, now: datetime) -> list[str]:
    """Findings about certificates that have expired since they were taken into use."""
    found = []
    for key, moment in network.expiries.items():
        router, _, secret = key.partition("/")
        problem = Examined(not_after=datetime.fromisoformat(moment)).problem_at(now)
        if problem is not None:
            found.append(f'Router {router}: SecretInvalid: Secret "{secret}": {problem}')
    return found


def fetch_status(port: int) -> Mapping[str, Any] | None:
    """The `/status` document served on a loopback port, or None if there is no good answer in time."""
    try:
        return mapping(scrubbed(document(_get(port, "/status") or b"")))
    except ValueError:
        return None


def _get(port: int, path: str) -> bytes | None:
    """The answer of a process on a loopback port, or None if there is no good one in time."""
    try:
        return asyncio.run(fetch(LOOPBACK, port, path, seconds=_ANSWER_SECONDS))
    except (OSError, EOFError, TimeoutError, ValueError):
        return None


def _report(
    router: WantedRouter, processes: Processes | None, document: Mapping[str, Any] | None
) -> RouterReport:
    entry = (processes.routers.get(router.id) if processes else None) or RouterProcess(None)
    running = entry.process is not None and entry.process.alive
    if not running:
        document = None  # whoever answers on that port now is not our router
    trouble = entry.trouble
    if trouble is None and document is None:
        trouble = "runs but does not answer" if running else "is not running"
    return RouterReport(
        id=router.id,
        router=router.router,
        mode=router.mode,
        site=router.site,
        where=f"pid {entry.process.pid}" if entry.process is not None and running else "-",
        status=document,
        trouble=trouble,
        restarts=entry.restarts,
        endpoints=router.endpoints,
        http=f"http://{LOOPBACK}:{router.health_port}",
    )
