"""Asks the routers of a local network how they are."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from isthmus_cli.view import NetworkView, ProfileRow, RouterReport, connections, network_view
from isthmus_operator.certificates import Examined

from .ports import LOOPBACK
from .profiles import read
from .state import Network, NetworkState, Processes, RouterProcess, WantedRouter

_ANSWER_SECONDS = 2.0
_AT_ONCE = 16


def view(state: NetworkState, network: Network) -> NetworkView:
    """The network as it is now."""
    processes = state.processes()
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        documents = list(pool.map(lambda router: fetch_status(router.health_port), network.routers))
    reports = [
        _report(router, processes, document)
        for router, document in zip(network.routers, documents, strict=True)
    ]
    now = datetime.now(UTC)
    profiles = [row for name in state.profile_names() if (row := _profile(state, name, reports, now))]
    findings = [
        *network.findings,
        *expired(network, now),
        *(f"SslProfile {row.name}: {row.state}: {row.message}" for row in profiles if row.message),
    ]
    if processes is None or not processes.supervisor.alive:
        findings.append(
            f"the supervisor is not running, so routers that end are not started again; "
            f"see {state.supervisor_log}, and run `isthmus local up` again"
        )
    return network_view(network.name, "this machine", reports, findings, profiles)


def _profile(
    state: NetworkState, name: str, reports: Sequence[RouterReport], now: datetime
) -> ProfileRow | None:
    ledger = read(state, name)
    if ledger is None:
        return None
    end = ledger.current.not_after
    problem = Examined(not_after=end).problem_at(now)
    return ProfileRow(
        name=name,
        state="ready" if problem is None else "CertificateExpired",
        ordinal=ledger.ordinal,
        oldest_valid=ledger.oldest_valid,
        expires=end.isoformat(timespec="seconds") if end is not None else None,
        connections=connections(name, reports),
        message=problem,
    )


def expired(network: Network, now: datetime) -> list[str]:
    """Findings about certificates that have expired since they were taken into use."""
    found = []
    for key, moment in network.expiries.items():
        router, _, secret = key.partition("/")
        problem = Examined(not_after=datetime.fromisoformat(moment)).problem_at(now)
        if problem is not None:
            found.append(f'Router {router}: SecretInvalid: Secret "{secret}": {problem}')
    return found


def all_open(network: Network) -> bool:
    """Whether every router answers and all of its connectors are open, none of them held up in a rotation."""
    documents = [fetch_status(router.health_port) for router in network.routers]
    return all(
        document is not None
        and all((row["state"], row["message"]) == ("open", "") for row in document["connectors"])
        for document in documents
    )


def fetch_status(port: int) -> Mapping[str, Any] | None:
    """The `/status` document served on a loopback port, or None if there is no answer in time."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/status")
        response = connection.getresponse()
        document = json.loads(response.read()) if response.status == 200 else None
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return document if isinstance(document, dict) else None


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
    )
