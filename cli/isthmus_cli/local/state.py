"""Files of a local network: what is wanted (`network.json`) and what runs (`processes.json`).

$XDG_STATE_HOME/isthmus/networks/<name>/      (ISTHMUS_STATE_DIR replaces $XDG_STATE_HOME/isthmus)
    network.json       what should run; written by `up`, and by the supervisor when a rotation goes on
    resources.json     what the files of the last `up` said, Secrets included
    authority.json     the network's own certificate authority with its key
    processes.json     written by the supervisor
    supervisor.log
    profiles/<name>.json   certificates and ordinals of an SslProfile, written like network.json
    routers/<id>/      config.json, router.log, files/ with certificates and passwords
$XDG_STATE_HOME/isthmus/flow-logs/<network>/<name>/    flow logs, with the analyses of them
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from isthmus_cli.errors import CliError
from isthmus_operator.authority import is_own

from .process import ProcessId

DEFAULT_NETWORK = "default"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LOCK_SECONDS = 60.0


@dataclass(frozen=True)
class WantedRouter:
    """One router process that should run."""

    id: str
    router: str
    mode: str
    site: str | None
    health_port: int
    endpoints: tuple[str, ...]
    config_hash: str
    """SHA-256 of its configuration file."""
    restart_hash: str
    """Changes when only a new process can put the configuration into effect."""
    files_hash: str = ""
    """SHA-256 of its certificates, keys and passwords."""


@dataclass(frozen=True)
class WantedService:
    """One process beside the routers that should run: a gossip router or a collector of flow records."""

    id: str
    kind: str
    """`GossipRouter` or `FlowLog`."""
    resource: str
    module: str
    """What Python runs."""
    arguments: tuple[str, ...]
    health_port: int
    config_hash: str
    """SHA-256 of its arguments and settings: only a new process can put others into effect."""
    files_hash: str = ""
    """SHA-256 of its certificates, keys and passwords, which it reads again when they change."""

    @property
    def restart_hash(self) -> str:
        return self.config_hash


@dataclass(frozen=True)
class Network:
    """What should run."""

    name: str
    generation: int
    routers: tuple[WantedRouter, ...]
    findings: tuple[str, ...]
    """Resources that could not be put into effect, as sentences."""
    ports: dict[str, int]
    """`<router id>/<listener>` to loopback port."""
    expiries: dict[str, str] = field(default_factory=dict)
    """`<router>/<secret>` to the end of validity (ISO 8601) of a certificate that was valid when written."""
    services: tuple[WantedService, ...] = ()
    sites: tuple[str, ...] = ()
    """RelaySites that are in effect."""

    @property
    def wanted(self) -> dict[str, WantedRouter | WantedService]:
        """All processes that should run, by id."""
        items: tuple[WantedRouter | WantedService, ...] = (*self.routers, *self.services)
        return {item.id: item for item in items}

    def services_of(self, kind: str) -> list[WantedService]:
        """Those of `GossipRouter`s or of `FlowLog`s."""
        return [item for item in self.services if item.kind == kind]


@dataclass(frozen=True)
class RouterProcess:
    """What became of one router."""

    process: ProcessId | None
    restarts: int = 0
    trouble: str | None = None
    """How it last ended, and when it is started again."""
    restart_hash: str = ""
    """`WantedRouter.restart_hash` at its start."""


@dataclass(frozen=True)
class Processes:
    """What runs, as the supervisor last wrote it."""

    supervisor: ProcessId
    generation: int
    """The generation of `Network` that has been put into effect."""
    routers: dict[str, RouterProcess] = field(default_factory=dict)

    def all(self) -> list[ProcessId]:
        """The routers' processes."""
        return [entry.process for entry in self.routers.values() if entry.process is not None]

    def running(self) -> dict[str, RouterProcess]:
        """The routers whose process is alive."""
        return {
            name: entry
            for name, entry in self.routers.items()
            if entry.process is not None and entry.process.alive
        }


class NetworkState:
    """The folder of one network."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise CliError(
                f"{name!r} cannot be a network's name: small letters, digits and dashes, at most 63"
            )
        self.name = name
        self.folder = networks_folder() / name

    @property
    def exists(self) -> bool:
        return (self.folder / "network.json").exists()

    @property
    def supervisor_log(self) -> Path:
        return self.folder / "supervisor.log"

    def router_folder(self, router_id: str) -> Path:
        return self.folder / "routers" / router_id

    @contextlib.contextmanager
    def changing(self, seconds: float = _LOCK_SECONDS) -> Iterator[None]:
        """Keeps others that would change this network waiting. Raises CliError after `seconds` of waiting for
        another one."""
        networks_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        with (networks_folder() / f".{self.name}.lock").open("w") as file:
            deadline = time.monotonic() + seconds
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise CliError(f"another command is changing the network {self.name!r}") from None
                    time.sleep(0.1)
            yield

    def network(self) -> Network | None:
        document = _read(self.folder / "network.json")
        if document is None:
            return None
        items = document.pop("routers")
        routers = tuple(WantedRouter(**{**item, "endpoints": tuple(item["endpoints"])}) for item in items)
        services = tuple(
            WantedService(**{**item, "arguments": tuple(item["arguments"])})
            for item in document.get("services", ())
        )
        texts = {name: tuple(document.get(name, ())) for name in ("findings", "sites")}
        return Network(**{**document, "routers": routers, "services": services, **texts})

    def write_network(self, network: Network) -> None:
        write_json(self.folder / "network.json", asdict(network))

    def resources(self) -> dict[str, Any] | None:
        """What `write_resources` has kept."""
        document: dict[str, Any] | None = _read(self.folder / "resources.json")
        return document

    def write_resources(self, document: dict[str, Any]) -> None:
        write_json(self.folder / "resources.json", document)

    @property
    def authority_file(self) -> Path:
        return self.folder / "authority.json"

    def authority(self) -> dict[str, str] | None:
        """What `write_authority` has kept."""
        document: dict[str, str] | None = _read(self.authority_file)
        return document

    def write_authority(self, document: dict[str, str]) -> None:
        write_json(self.authority_file, document)

    def profile(self, name: str) -> dict[str, str] | None:
        """What is remembered of an SslProfile."""
        document: dict[str, str] | None = _read(self._profile_file(name))
        return document

    def write_profile(self, name: str, document: dict[str, str]) -> None:
        write_json(self._profile_file(name), document)

    def retain_profiles(self, names: Collection[str]) -> None:
        """Forgets SslProfiles other than these."""
        folder = self.folder / "profiles"
        for file in folder.iterdir() if folder.is_dir() else ():
            if file.name.removesuffix(".json") not in names:
                file.unlink()

    def profile_names(self) -> list[str]:
        """The SslProfiles that have certificates; implicit ones are left out."""
        folder = self.folder / "profiles"
        names = (
            sorted(file.name.removesuffix(".json") for file in folder.glob("*.json"))
            if folder.is_dir()
            else []
        )
        return [name for name in names if not is_own(name)]

    def _profile_file(self, name: str) -> Path:
        return self.folder / "profiles" / f"{name}.json"

    def processes(self) -> Processes | None:
        document = _read(self.folder / "processes.json")
        if document is None:
            return None
        routers = {
            name: RouterProcess(
                **{**item, "process": ProcessId(**item["process"]) if item["process"] else None}
            )
            for name, item in document["routers"].items()
        }
        return Processes(ProcessId(**document["supervisor"]), document["generation"], routers)

    def write_processes(self, processes: Processes) -> None:
        write_json(self.folder / "processes.json", asdict(processes))

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def state_folder() -> Path:
    """Where Isthmus keeps what must survive a command."""
    given = os.environ.get("ISTHMUS_STATE_DIR")
    if given:
        return Path(given).absolute()
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".local" / "state") / "isthmus"


def networks_folder() -> Path:
    return state_folder() / "networks"


def flow_logs_folder(network: str) -> Path:
    """Where the FlowLogs of a local network are kept, each in a folder of its name; they stay when the network goes."""
    return state_folder() / "flow-logs" / network


def network_names() -> list[str]:
    """The networks that have a folder, running or not."""
    folder = networks_folder()
    if not folder.is_dir():
        return []
    return sorted(item.name for item in folder.iterdir() if item.is_dir() and _NAME.fullmatch(item.name))


def write_json(path: Path, document: Any) -> None:
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())


def write_atomically(path: Path, content: bytes) -> bool:
    """Replaces a file so that a reader sees the old content or the new; readable by its owner only.

    Says whether the content changed; an equal file is not touched.
    """
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == content:
            return False
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
