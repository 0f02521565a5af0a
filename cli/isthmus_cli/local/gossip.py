"""GossipRouters as processes on loopback."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping

from isthmus_operator.model import NamespaceModel
from isthmus_operator.names import gossip_name
from isthmus_operator.render import Finding, MaterialError, gossip_arguments, gossip_files
from isthmus_operator.resources import GossipRouter

from .ports import LOOPBACK
from .state import NetworkState, WantedService, write_atomically
from .wanted import files_folder, files_hash

PORT, _HEALTH = "gossip", "health"


def port_keys(model: NamespaceModel) -> list[str]:
    """Keys of the ports of all replicas."""
    return [
        f"{each}/{port}"
        for found in model.gossip_routers.values()
        for each in _ids(found)
        for port in (PORT, _HEALTH)
    ]


def write(
    state: NetworkState, model: NamespaceModel, ports: Mapping[str, int], routers: Collection[str]
) -> tuple[tuple[WantedService, ...], list[Finding]]:
    """Writes their files. Those without their certificates, or called like one of the `routers`, are left out."""
    wanted: list[WantedService] = []
    findings: list[Finding] = []
    for found in model.gossip_routers.values():
        taken = next((each for each in _ids(found) if each in routers), None)
        try:
            files = gossip_files(found, model)
        except MaterialError as missing:
            findings.append(Finding("GossipRouter", found.name, missing.reason, str(missing)))
            continue
        if taken is not None:
            message = f'"{taken}" is a router already; rename this GossipRouter'
            findings.append(Finding("GossipRouter", found.name, "NameConflict", message))
            continue
        wanted += [_written(state, found, each, files, ports) for each in _ids(found)]
    return tuple(wanted), findings


def _ids(found: GossipRouter) -> Iterator[str]:
    """As pods are called on Kubernetes."""
    return (f"{gossip_name(found.name)}-{number}" for number in range(found.spec.replicas))


def _written(
    state: NetworkState,
    found: GossipRouter,
    process_id: str,
    files: Mapping[str, bytes],
    ports: Mapping[str, int],
) -> WantedService:
    folder = files_folder(state, process_id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, content in files.items():
        write_atomically(folder / name, content)
    health = ports[f"{process_id}/{_HEALTH}"]
    arguments = (
        *(f"--host={LOOPBACK}", f"--port={ports[f'{process_id}/{PORT}']}"),
        *(f"--health-host={LOOPBACK}", f"--health-port={health}"),
        *gossip_arguments(found, files, str(folder)),
    )
    return WantedService(
        process_id,
        found.kind_name,
        found.name,
        "isthmus_router.gossip",
        arguments,
        health,
        hashlib.sha256("\0".join(arguments).encode()).hexdigest(),
        files_hash(files),
    )
