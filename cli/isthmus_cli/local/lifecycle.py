"""Bringing a local network up, changing it, and taking it down."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from isthmus_cli.errors import CliError
from isthmus_cli.manifests import Manifests

from . import deploy, rotation, wanted
from .deploy import write
from .ports import release_claims
from .probe import fetch_status, sites_ready
from .process import ProcessId, end, wait_gone
from .state import Network, NetworkState, WantedRouter, WantedService
from .supervisor import GO

_SUPERVISOR_SECONDS = 30.0
_POLL_SECONDS = 0.05
_LINK_SECONDS = 12.0
_NOTICE_SECONDS = 3.0
"""Longer than a router takes to notice that its file has changed."""


@dataclass(frozen=True)
class Change:
    """What an `up` did, by router id."""

    started: tuple[str, ...]
    stopped: tuple[str, ...]
    restarted: tuple[str, ...]
    changed: tuple[str, ...]
    """Routers whose configuration changed while they run."""
    renewed: tuple[str, ...]
    """Routers that got other certificates, keys or passwords and no other change."""
    rotated: Mapping[str, int]
    """SslProfile to its ordinal, where that was raised, now or by an earlier `up`, and is not in use everywhere."""


def up(state: NetworkState, manifests: Manifests) -> tuple[Network, Change]:
    """Makes the network run what `manifests` say; returns as soon as the processes are started.

    Raises CliError when the supervisor does not do its part.
    """
    if find_spec("isthmus_router") is None or find_spec("cproton_ffi") is None:
        raise CliError("the router is not installed here; install isthmus[router] beside the command line")
    with state.changing():
        before = state.network()
        processes = state.processes()
        supervised = processes is not None and processes.supervisor.alive
        # A supervisor starts again what has ended; without one, only what still runs counts.
        old = before.wanted if before else {}
        if not supervised:
            alive = processes.running() if processes else {}
            old = {name: router for name, router in old.items() if name in alive}
        network = write(state, manifests, running=old)
        rotated = rotating(state)
        if processes is not None and supervised:
            processes.supervisor.signal(signal.SIGHUP)
        else:
            _start_supervisor(state)
        _await_generation(state, network.generation)
        _remove_stale_folders(state, network)
    return network, _change(old, network, rotated)


def rotate(state: NetworkState, names: Collection[str], *, revoke: bool) -> Network:
    """Raises the ordinals of the SslProfiles `names`; returns as soon as the supervisor knows.

    Raises CliError when one of them cannot be rotated, or the supervisor does not do its part.
    """
    with state.changing():
        processes = state.processes()
        if processes is None or not processes.supervisor.alive or wanted.read(state) is None:
            raise CliError("nobody would carry it out: run `isthmus local up` again first")
        network = deploy.rotate(state, names, revoke=revoke)
        processes.supervisor.signal(signal.SIGHUP)
        _await_generation(state, network.generation)
    return network


def rotating(state: NetworkState) -> dict[str, int]:
    """SslProfiles whose newest ordinal, which is not the first, is not in use everywhere."""
    found = {name: rotation.read(state, name) for name in state.profile_names()}
    return {
        name: ledger.ordinal
        for name, ledger in found.items()
        if ledger is not None and ledger.ordinal > 1 and ledger.current.settled is None
    }


def await_settled(
    state: NetworkState, network: Network, timeout: float, renewed: Collection[str] = ()
) -> bool:
    """Waits until every router is ready and runs its configuration, and its links are open and in use.

    Returns early when it is clear that this will not come true, and after `timeout` seconds; links get
    no more than `_LINK_SECONDS` once the routers are ready. Says whether all routers are ready and all
    links inside the network in use; links to elsewhere may have failed. Rotations are at their end then.
    Links of routers `renewed`, which have got other passwords, may have failed with the earlier ones. The claims of
    new ports end, as the routers listen.
    """
    try:
        return _await_settled(state, network, timeout, renewed)
    finally:
        release_claims()


def _await_settled(state: NetworkState, network: Network, timeout: float, renewed: Collection[str]) -> bool:
    begun, before = time.monotonic(), _restarts(state)
    ready_since: float | None = None
    failed: set[tuple[str, str]] = set()
    while True:
        now = time.monotonic()
        network = state.network() or network  # a rotation is several changes
        own_ports = set(network.ports.values())
        statuses = {router.id: fetch_status(router.health_port) for router in network.routers}
        running = all(_runs(router, statuses[router.id]) for router in network.routers)
        ready_since = (ready_since or now) if running else None
        links = [
            (name, link) for name, status in statuses.items() for link in (status or {}).get("connectors", ())
        ]
        noticed = {router.id for router in network.routers if _runs(router, statuses[router.id])}
        if now - begun <= _NOTICE_SECONDS:
            noticed -= set(renewed)
        failed |= {
            (name, str(link["name"])) for name, link in links if link["state"] == "failed" and name in noticed
        }
        inside = all(link["state"] == "open" for _, link in links if int(link["port"]) in own_ports)
        inside = inside and _converged(statuses) and not rotating(state)
        inside = inside and (not network.sites or sites_ready(state, network))
        elsewhere = [(name, link) for name, link in links if int(link["port"]) not in own_ports]
        if (
            running
            and inside
            and all(
                link["state"] == "open" or (name, str(link["name"])) in failed for name, link in elsewhere
            )
        ):
            return True
        if now - begun > timeout or (ready_since is not None and now - ready_since > _LINK_SECONDS):
            return running and inside
        # A refusal may be that of an earlier file until the router has read the new one.
        settled = now - begun > _NOTICE_SECONDS
        if settled and any((status or {}).get("lastConfigError") for status in statuses.values()):
            return False
        if any(count > before.get(name, 0) + 1 for name, count in _restarts(state).items()):
            return False
        time.sleep(_POLL_SECONDS)


def _runs(router: WantedRouter, status: Mapping[str, Any] | None) -> bool:
    if status is None:
        return False
    about = status["router"]
    return bool(about["ready"]) and about["configHash"] == router.config_hash


def _converged(statuses: Mapping[str, Mapping[str, Any] | None]) -> bool:
    """Whether routing uses every open link: peers are neighbours, and neighbours know the same routers."""
    known: dict[str, set[str]] = {}
    for name, status in statuses.items():
        if status is not None and status["router"]["mode"] == "interior":
            known[name] = {name, *(item["id"] for item in status["nodes"])}
    for name, status in statuses.items():
        if name not in known or status is None:
            continue
        neighbors = {item["id"] for item in status["neighbors"]}
        peers = {
            link["container"]
            for link in status["connectors"]
            if link["role"] == "inter-router" and link["state"] == "open" and link["container"]
        }
        if not peers <= neighbors:
            return False
        if any(known[other] != known[name] for other in neighbors if other in known):
            return False
    return True


def _restarts(state: NetworkState) -> dict[str, int]:
    processes = state.processes()
    return {name: entry.restarts for name, entry in processes.routers.items()} if processes else {}


def down(state: NetworkState, grace: float) -> int:
    """Ends what was started and removes its files; returns the number of routers that were running.

    Does nothing for a network that is not there. Only processes whose pid and start time are recorded
    are touched, so it is safe after a crash, a reboot or twice.
    """
    with state.changing():
        processes = state.processes()
        running = 0
        if processes is not None:
            running = sum(process.alive for process in processes.all())
            if processes.supervisor.signal(signal.SIGTERM) and wait_gone([processes.supervisor], grace):
                processes.supervisor.signal(signal.SIGKILL)
                wait_gone([processes.supervisor], grace)
            left = state.processes() or processes
            end([*processes.all(), *left.all()], grace)
        state.remove()
    return running


def _start_supervisor(state: NetworkState) -> None:
    with state.supervisor_log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "isthmus_cli.local.supervisor", state.name],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            text=True,
        )
    deadline = time.monotonic() + _SUPERVISOR_SECONDS
    while time.monotonic() < deadline:
        processes = state.processes()
        if processes is not None and processes.supervisor.pid == process.pid:
            assert process.stdin is not None
            process.stdin.write(GO)
            process.stdin.close()
            return
        if process.poll() is not None:
            raise CliError(f"the supervisor ended at once; see {state.supervisor_log}")
        time.sleep(_POLL_SECONDS)
    end([ProcessId.of(process.pid)], 1.0)
    raise CliError(f"the supervisor did not begin its work; see {state.supervisor_log}")


def _await_generation(state: NetworkState, generation: int) -> None:
    deadline = time.monotonic() + _SUPERVISOR_SECONDS
    while time.monotonic() < deadline:
        processes = state.processes()
        if processes is not None and processes.generation >= generation:
            return
        if processes is None or not processes.supervisor.alive:
            raise CliError(f"the supervisor ended; see {state.supervisor_log}")
        time.sleep(_POLL_SECONDS)
    raise CliError(
        f"the supervisor did not follow within {_SUPERVISOR_SECONDS:g} s; see {state.supervisor_log}"
    )


def _remove_stale_folders(state: NetworkState, network: Network) -> None:
    wanted = network.wanted
    folder = state.folder / "routers"
    for item in folder.iterdir() if folder.is_dir() else ():
        if item.name not in wanted:
            shutil.rmtree(item, ignore_errors=True)


def _change(
    old: Mapping[str, WantedRouter | WantedService], after: Network, rotated: Mapping[str, int]
) -> Change:
    new = after.wanted
    both = [name for name in new if name in old]
    restarted = [name for name in both if old[name].restart_hash != new[name].restart_hash]
    changed = [
        name for name in both if name not in restarted and old[name].config_hash != new[name].config_hash
    ]
    return Change(
        started=tuple(name for name in new if name not in old),
        stopped=tuple(name for name in old if name not in new),
        restarted=tuple(restarted),
        changed=tuple(changed),
        renewed=tuple(
            name
            for name in both
            if name not in (*restarted, *changed) and old[name].files_hash != new[name].files_hash
        ),
        rotated=rotated,
    )
