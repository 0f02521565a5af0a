"""Networks with link routes to a container, and what is measured of routed links."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from load import IDLE_TIMEOUT, Contestant, Network, Topology, client, ended, idle_cpu, result, wait_said
from routers import LOOPBACK, BenchError, cpu_seconds, free_port, running, section

CONNECTION = "container"
"""The name of the connector to the container; link routes are by it."""
PREFIX = "routed"
READY_SECONDS = 120.0
"""For thousands of link routes to be known everywhere."""
COUNTED_SECONDS = 60.0
"""For what clients have left behind to come to the container."""
LARGE = 10_000
"""Bytes; of larger messages fewer are under way, and there are fewer."""
SETTLE_SECONDS = 0.5
SETTLED = 0.05
"""Share of one core that routers at rest may take."""
AT_ONCE = 100
"""Attaches under way, where the rate is measured."""

_numbers = itertools.count()
"""Addresses that were not used before."""


@dataclass(frozen=True)
class Container:
    """What links are routed to: the C program, or (without a process) a broker that somebody else has started."""

    endpoint: str
    process: subprocess.Popen[str] | None = None

    def counts(self) -> dict[str, int]:
        """As the head of container.c says."""
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGUSR1)
        counts: dict[str, int] = json.loads(self.process.stdout.readline())
        return counts

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid) if self.process is not None else 0.0


@contextlib.contextmanager
def container(size: int = 100, cores: str | None = None) -> Iterator[Container]:
    """A container that is listening; its messages have bodies of `size` bytes."""
    port = free_port()
    process = client("container", port, "--size", size, cores=cores)
    with ended(process):
        assert process.stderr is not None
        if process.stderr.readline() != "listening\n":
            raise BenchError(f"container did not start: {process.communicate()[1]}")
        yield Container(f"{LOOPBACK}:{port}", process)


def route_sections(prefixes: Sequence[str], directions: Sequence[str]) -> str:
    """Link routes to the container, for the configuration of any router."""
    return "\n".join(
        section("linkRoute", name=f"{prefix}-{way}", prefix=prefix, direction=way, connection=CONNECTION)
        for prefix in prefixes
        for way in directions
    )


@dataclass
class Routed:
    """Running routers, or none, and the container that links go to."""

    name: str
    network: Network | None
    container: Container
    prefix: str = PREFIX
    """With "%" for the number of a link route, if there are several."""
    client_cores: str | None = None
    standing: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        """For clients."""
        network = self.network
        return self.container.endpoint if network is None else network.endpoint(network.topology.sender)

    def cpu_seconds(self) -> dict[str, float]:
        """Of each router, and of the container."""
        routers = {} if self.network is None else self.network.cpu_seconds()
        return {**routers, CONNECTION: self.container.cpu_seconds()}

    def client(self, name: str, *arguments: object) -> subprocess.Popen[str]:
        """Start a C client at the network's near end."""
        return client(name, self.endpoint, *arguments, cores=self.client_cores)


@contextlib.contextmanager
def routed(
    entrant: Contestant | None,
    topology: Topology,
    target: Container,
    directory: Path,
    *,
    routes: int = 1,
    directions: Sequence[str] = ("in", "out"),
    prefix: str = PREFIX,
    trial: str | None = None,
    workers: int = 2,
    router_cores: str | None = None,
    client_cores: str | None = None,
) -> Iterator[Routed]:
    """The routers of a topology, with link routes to the container at the far end, which take links; None: without any.

    With more than one of the `routes`, in each of the directions, the number of one follows the prefix.
    `trial` is an address at which the container takes links, where it does not take any.
    """
    if entrant is None:
        yield Routed("direct", None, target, prefix, client_cores)
        return
    prefixes = [prefix] if routes == 1 else [f"{prefix}{number}" for number in range(routes)]
    host, port = target.endpoint.split(":")
    dial = section(
        "connector",
        name=CONNECTION,
        host=host,
        port=port,
        role="route-container",
        saslMechanisms="ANONYMOUS",
    )
    text = route_sections(prefixes, directions)
    sections = {node.id: text for node in topology.nodes}
    sections[topology.receiver] = f"{dial}\n{text}"
    with running(
        topology.nodes, entrant.commands, workers, directory, cores=router_cores, sections=sections
    ) as routers:
        network = Network(entrant.name, topology, routers, client_cores)
        found = Routed(entrant.name, network, target, prefix if routes == 1 else f"{prefix}%", client_cores)
        for way in directions:
            _wait_routed(found, trial or prefixes[-1], way)
        _settle(found)
        try:
            yield found
        finally:
            for process in found.standing:
                process.terminate()
            for process in found.standing:
                process.communicate(timeout=IDLE_TIMEOUT)


def _wait_routed(network: Routed, address: str, way: str) -> None:
    """Returns when a link to the address is attached to the container."""
    target = network.container
    until = time.monotonic() + READY_SECONDS
    while True:
        before = target.counts()["attaches"] if target.process else 0
        trial = network.client("attach", address, 1, "--detach", *_ways(way))
        with ended(trial):
            said = result(trial, READY_SECONDS)
        if said["ok"] and (not target.process or target.counts()["attaches"] > before):
            return
        if time.monotonic() > until:
            raise BenchError(f"{network.name}: no link is routed to {address}: {said}")
        time.sleep(0.1)


def _ways(way: str) -> list[str]:
    return ["--receivers"] if way == "out" else []


def _settle(network: Routed) -> None:
    """Return when the routers have done what starting, or attaching, makes them do later."""
    until = time.monotonic() + READY_SECONDS
    assert network.network is not None
    while idle_cpu(network.network, SETTLE_SECONDS) > SETTLED:
        if time.monotonic() > until:
            raise BenchError(f"{network.name} does not come to rest")


def _wait_counted(network: Routed, kind: str, number: int) -> None:
    until = time.monotonic() + COUNTED_SECONDS
    while (counts := network.container.counts())[kind] != number:
        if time.monotonic() > until:
            raise BenchError(f"{network.name}: not {number} {kind} at the container: {counts}")
        time.sleep(0.02)


# Messages


@dataclass(frozen=True)
class Passed:
    """Messages over one routed link."""

    cpu_us: dict[str, float]
    """Per message, of each router and of the container."""
    messages_per_second: float

    @property
    def routers_us(self) -> float:
        return sum(cpu for name, cpu in self.cpu_us.items() if name != CONNECTION)


def pass_messages(network: Routed, way: str, messages: int, size: int, number: int = 0) -> Passed:
    """To the container (`in`) or from it (`out`), over one link; `number`: by which of several link routes.

    CPU time is that between attaching and leaving. Raises BenchError if one is lost.
    """
    address = f"{network.prefix.replace('%', str(number))}/run{next(_numbers)}/0"
    window = 1000 if size <= LARGE else 32
    count = messages if size <= LARGE else max(1000, messages * LARGE // size)
    common = ["--hold", "--timeout", IDLE_TIMEOUT]
    counted = network.container.counts()
    if way == "in":
        one = network.client("send", address, count, size, "--window", window, *common)
    else:
        one = network.client("recv", address, count, "--credit", window, "--wait", *common)
    with ended(one):
        wait_said(one, "attached")
        before = network.cpu_seconds()
        one.send_signal(signal.SIGUSR1)
        assert one.stderr is not None
        one.stderr.readline()  # "done", or the end
        after = network.cpu_seconds()
        one.terminate()
        report = result(one, IDLE_TIMEOUT)
    if not report["ok"]:
        raise BenchError(f"run failed with {network.name}:\n{report}")
    kind = "received" if way == "in" else "accepted"
    _wait_counted(network, kind, counted[kind] + count)
    _wait_counted(network, "attached", counted["attached"])
    cpu = {name: (after[name] - before[name]) * 1e6 / count for name in before}
    return Passed(cpu, report["messages_per_second"])


# Attaches


@dataclass(frozen=True)
class Attached:
    """Links that were attached one after the other, some at a time."""

    cpu_us: dict[str, float]
    """Per attach (and detach, where links were detached as well), of each router and of the container."""
    attaches_per_second: float
    attach_us: dict[str, float]
    """Quantiles, as the C clients report them."""
    detach_us: dict[str, float]
    credit_us: dict[str, float]

    @property
    def routers_us(self) -> float:
        return sum(cpu for name, cpu in self.cpu_us.items() if name != CONNECTION)


def attach(
    network: Routed,
    way: str,
    count: int,
    *,
    detach: bool,
    window: int = 1,
    routes: int = 1,
    address: str | None = None,
) -> Attached:
    """Attach links, in turn by each of the link routes. What is not detached goes with its connection.

    Raises BenchError if one is refused, or the container still has links after the clients have left.
    """
    known = network.container.process is not None
    there = network.container.counts()["attached"] if known else 0
    one = network.client(
        "attach",
        address or f"{network.prefix}/attach",
        count,
        *("--hold", "--window", window, "--addresses", routes, "--timeout", IDLE_TIMEOUT),
        *_ways(way),
        *(["--detach"] if detach else []),
    )
    with ended(one):
        wait_said(one, "connected")
        before = network.cpu_seconds()
        one.send_signal(signal.SIGUSR1)
        assert one.stderr is not None
        one.stderr.readline()  # "done", or the end
        after = network.cpu_seconds()
        one.terminate()
        report = result(one, COUNTED_SECONDS)
    if not report["ok"]:
        raise BenchError(f"attaching failed with {network.name}: {report}")
    if known:
        _wait_counted(network, "attached", there)
    cpu = {name: (after[name] - before[name]) * 1e6 / count for name in before}
    rate = count / report["seconds"]
    return Attached(cpu, rate, report["attach_us"], report["detach_us"], report["credit_us"])


def stand_by(network: Routed, way: str, count: int) -> None:
    """Attach further links, which stay until the network ends and carry nothing."""
    one = network.client(
        "attach",
        f"{network.prefix}/standing/%",
        count,
        *("--hold", "--window", AT_ONCE, "--timeout", IDLE_TIMEOUT),
        *_ways(way),
    )
    network.standing.append(one)
    wait_said(one, "connected")
    one.send_signal(signal.SIGUSR1)
    wait_said(one, "done")
    _settle(network)
