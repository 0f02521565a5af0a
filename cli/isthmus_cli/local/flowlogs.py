"""FlowLogs as processes on loopback, with their logs in folders."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping

from isthmus_operator.model import NamespaceModel
from isthmus_operator.names import flow_log_name, instance_id
from isthmus_operator.render import Finding, MaterialError, collector_files, collector_settings
from isthmus_operator.render.flows import RefusedError, destination
from isthmus_operator.resources import FlowLog

from .ports import LOOPBACK, LOOPBACK_NAME
from .state import NetworkState, WantedService, flow_logs_folder, write_atomically
from .wanted import config_path, files_folder, files_hash

_HEALTH = "health"


def port_keys(model: NamespaceModel) -> list[str]:
    """Keys of the ports of all collectors."""
    return [f"{flow_log_name(name)}/{_HEALTH}" for name in model.flow_logs]


def location(network: str, found: FlowLog) -> str:
    """Where the log is: a folder of this machine in place of a volume, or the URL."""
    return found.spec.s3.url if found.spec.s3 is not None else str(flow_logs_folder(network) / found.name)


def write(
    state: NetworkState, model: NamespaceModel, ports: Mapping[str, int], taken: Collection[str]
) -> tuple[tuple[WantedService, ...], list[Finding]]:
    """Writes their files. Those whose references do not resolve, or called like one of the processes `taken`, are left
    out."""
    wanted: list[WantedService] = []
    findings: list[Finding] = []
    for found in model.flow_logs.values():
        try:
            wanted.append(_written(state, found, model, ports))
        except (MaterialError, RefusedError) as problem:
            findings.append(Finding("FlowLog", found.name, problem.reason, str(problem)))
            continue
        if wanted[-1].id in taken:
            message = f'"{wanted.pop().id}" is another process already; rename this FlowLog'
            findings.append(Finding("FlowLog", found.name, "NameConflict", message))
    return tuple(wanted), findings


def _written(
    state: NetworkState, found: FlowLog, model: NamespaceModel, ports: Mapping[str, int]
) -> WantedService:
    process_id = flow_log_name(found.name)
    to = destination(found, model)
    port = ports.get(f"{instance_id(to.router.name, 0)}/{to.listener}")
    if port is None:
        raise RefusedError("Pending", f'Router "{to.router.name}" does not listen for the collector yet')
    files = collector_files(found, model)
    folder = files_folder(state, process_id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, content in files.items():
        write_atomically(folder / name, content)
    staging = str(folder.parent / "staging") if found.spec.s3 is not None else None
    document = {
        # By name, since proton compares the names in a certificate with host names only.
        **collector_settings(
            found,
            (LOOPBACK_NAME, port),
            files,
            lambda file: str(folder / file),
            location(state.name, found),
            staging,
        ),
        "httpHost": LOOPBACK,
        "httpPort": ports[f"{process_id}/{_HEALTH}"],
    }
    content = json.dumps(document, indent=1, sort_keys=True).encode()
    write_atomically(config_path(state, process_id), content)
    return WantedService(
        process_id,
        found.kind_name,
        found.name,
        "isthmus_flowlog.collector",
        ("-c", str(config_path(state, process_id))),
        ports[f"{process_id}/{_HEALTH}"],
        hashlib.sha256(content).hexdigest(),
        files_hash(files),
    )
