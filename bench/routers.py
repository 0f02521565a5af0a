"""Routers of a benchmark: started from any command that takes a qdrouterd-style file, observed through /proc."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LOOPBACK = "127.0.0.1"
HOST_NAME = "localhost"
"""Of every router; what certificates are made out to."""
PROFILE = "routers"
AMQPS = "amqps"
"""What a listener for clients with TLS is called among the roles."""
READY_TIMEOUT = 30.0  # seconds, for each router to listen and for a trial message


class BenchError(Exception):
    """The network did not come up, or lost messages."""


@dataclass(frozen=True)
class Node:
    """One router of a topology; `uplink` names the router its connector goes to."""

    id: str
    mode: str = "interior"
    uplink: str | None = None

    @property
    def uplink_role(self) -> str:
        return "edge" if self.mode == "edge" else "inter-router"


@dataclass(frozen=True)
class Credentials:
    """Of a router, for its connections to others; without any these are not encrypted."""

    certificate: Path
    key: Path
    authority: Path
    ordinal: int = 1
    oldest_valid_ordinal: int = 1


@dataclass
class Router:
    """A running router process, with its listener port for each role."""

    node: Node
    command: str
    ports: dict[str, int]
    log: Path
    process: subprocess.Popen[bytes] = field(repr=False)
    config: Path = Path()
    uplink_port: int | None = None
    workers: int = 1

    def rotate(self, credentials: Credentials) -> None:
        """Write the configuration file with other credentials, in one step."""
        new = self.config.with_suffix(".new")
        config = render_config(
            self.node, self.ports, self.uplink_port, self.workers, credentials, command=self.command
        )
        new.write_text(config)
        new.replace(self.config)

    @property
    def endpoint(self) -> str:
        return f"{LOOPBACK}:{self.ports['normal']}"

    def cpu_seconds(self) -> float:
        """User plus system time so far, of the process and its living descendants."""
        return cpu_seconds(self.process.pid)

    def resident_mib(self) -> float:
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in _tree(self.process.pid))
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_seconds(pid: int) -> float:
    """User plus system time so far, of a process and its living descendants."""
    return sum(time.clock_gettime(_cpu_clock(one)) for one in _tree(pid))


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _tree(int(child))


def _cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time, in nanoseconds; as of clock_getcpuclockid(3)."""
    return ~pid << 3 | 2


_given: set[int] = set()


def free_port() -> int:
    """One that nobody listens on, and that was not given before."""
    while True:
        with socket.socket() as sock:
            sock.bind((LOOPBACK, 0))
            port: int = sock.getsockname()[1]
        if port not in _given:
            _given.add(port)
            return port


def section(entity: str, /, **attributes: object) -> str:
    lines = "".join(f"    {key}: {value}\n" for key, value in attributes.items())
    return f"{entity} {{\n{lines}}}\n"


def render_config(
    node: Node,
    ports: dict[str, int],
    uplink_port: int | None,
    workers: int,
    credentials: Credentials | None = None,
    *,
    command: str,
) -> str:
    """The configuration file of one router that `command` runs; `ports` maps a listener role to its port."""
    tls = {} if credentials is None else {"sslProfile": PROFILE}
    sections = [section("router", mode=node.mode, id=node.id, workerThreads=workers)]
    for role, port in ports.items():
        kind: dict[str, object] = {"role": role, "saslMechanisms": "ANONYMOUS"}
        if role == "normal" and "isthmus" in command:
            kind["allowFlowRecords"] = "yes"
        if role == "http":
            kind = {"http": "yes"}
        elif role == AMQPS:
            kind = {"role": "normal", "saslMechanisms": "ANONYMOUS", "authenticatePeer": "no", **tls}
        elif role != "normal" and credentials is not None:
            kind = {"role": role, "saslMechanisms": "EXTERNAL", "authenticatePeer": "yes", **tls}
        sections.append(section("listener", name=role, host=LOOPBACK, port=port, **kind))
    if node.uplink is not None:
        name, host = f"to-{node.uplink}", LOOPBACK if credentials is None else HOST_NAME
        sections.append(
            section("connector", name=name, host=host, port=uplink_port, role=node.uplink_role, **tls)
        )
    if credentials is not None:
        files = {
            "certFile": credentials.certificate,
            "privateKeyFile": credentials.key,
            "caCertFile": credentials.authority,
        }
        ordinals = {"ordinal": credentials.ordinal, "oldestValidOrdinal": credentials.oldest_valid_ordinal}
        sections.append(section("sslProfile", name=PROFILE, **files, **ordinals))
    sections.append(section("log", module="DEFAULT", enable="warning+"))
    return "\n".join(sections)


def _wait_listening(router: Router) -> None:
    deadline = time.monotonic() + READY_TIMEOUT
    waiting = set(router.ports.values())
    while waiting:
        for port in sorted(waiting):
            with socket.socket() as sock:
                sock.settimeout(1)
                if sock.connect_ex((LOOPBACK, port)) == 0:
                    waiting.discard(port)
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"router {router.node.id} does not listen:\n{_tail(router.log)}")
        with contextlib.suppress(subprocess.TimeoutExpired):  # the pause between attempts sees an early exit
            status = router.process.wait(timeout=0.05)
            raise BenchError(f"router {router.node.id} exited with status {status}:\n{_tail(router.log)}")


def _tail(path: Path, lines: int = 20) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


@contextlib.contextmanager
def running(
    nodes: Sequence[Node],
    commands: list[str],
    workers: int,
    directory: Path,
    more: Mapping[str, Sequence[str]] | None = None,
    credentials: Mapping[str, Credentials] | None = None,
    *,
    cores: str | None = None,
    sections: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Router]]:
    """The routers, by id, each listening; stopped on exit. A connector's peer comes before it in `nodes`.

    `more`: further listeners by router id, as roles (`http` for metrics, AMQPS for clients with TLS). `credentials`
    are by router id too, and `sections`, further text of its configuration. With `cores` (as for taskset) all routers
    run on these only.
    """
    routers: dict[str, Router] = {}
    try:
        for index, node in enumerate(nodes):
            command = commands[min(index, len(commands) - 1)]
            dialled = [other.uplink_role for other in nodes if other.uplink == node.id]
            ports = {
                role: free_port()
                for role in dict.fromkeys(["normal", *dialled, *(more or {}).get(node.id, ())])
            }
            uplink_port = routers[node.uplink].ports[node.uplink_role] if node.uplink else None
            config = directory / f"{node.id}.conf"
            identity = (credentials or {}).get(node.id)
            rendered = render_config(node, ports, uplink_port, workers, identity, command=command)
            config.write_text("\n".join([rendered, (sections or {}).get(node.id, "")]))
            log = directory / f"{node.id}.log"
            with log.open("wb") as output:
                pin = ["taskset", "-c", cores] if cores else []
                words = pin + [word.replace("{config}", str(config)) for word in shlex.split(command)]
                try:
                    process = subprocess.Popen(
                        words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
                    )
                except OSError as error:
                    raise BenchError(f"router {node.id} does not start: {error}") from error
            routers[node.id] = Router(node, command, ports, log, process, config, uplink_port, workers)
            _wait_listening(routers[node.id])
        yield routers
    finally:
        for router in routers.values():
            router.process.terminate()
        for router in routers.values():
            try:
                router.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                router.process.kill()
                router.process.wait()
