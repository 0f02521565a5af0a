"""The C load clients of `bench/clients` and the networks they load: what a run does, and what it measures."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routers import AMQPS, LOOPBACK, READY_TIMEOUT, BenchError, Credentials, Node, Router, running

CLIENTS = Path(__file__).resolve().parent / "clients"
BESIDE = Path(sys.executable).parent
FLOOR = f"{shlex.quote(str(CLIENTS / 'build' / 'forward'))} {{config}}"
ISTHMUS = f"{shlex.quote(str(BESIDE / 'isthmus-router'))} -c {{config}}"
IDLE_TIMEOUT = 10.0  # seconds without progress after which a client gives up


# Networks


@dataclass(frozen=True)
class Topology:
    """Routers in starting order (a connector's peer first); sender and receiver attach to the named ones."""

    nodes: tuple[Node, ...]
    sender: str
    receiver: str


TOPOLOGIES = {
    "single": Topology((Node("A"),), "A", "A"),
    "pair": Topology((Node("A"), Node("B", uplink="A")), "A", "B"),
    "edge-interior-edge": Topology((Node("A"), Node("E1", "edge", "A"), Node("E2", "edge", "A")), "E1", "E2"),
    "line": Topology((Node("A"), Node("B", uplink="A"), Node("C", uplink="B")), "A", "C"),
    "edge-edge": Topology(
        (Node("A"), Node("B", uplink="A"), Node("E1", "edge", "A"), Node("E2", "edge", "B")), "E1", "E2"
    ),
}


@dataclass(frozen=True)
class Network:
    """Running routers of one topology."""

    name: str
    topology: Topology
    routers: dict[str, Router]
    client_cores: str | None = None

    def endpoint(self, router_id: str, *, tls: bool = False) -> str:
        return f"{LOOPBACK}:{self.routers[router_id].ports[AMQPS if tls else 'normal']}"

    @property
    def has_tls(self) -> bool:
        """For clients."""
        return AMQPS in self.routers[self.topology.sender].ports

    def cpu_seconds(self) -> dict[str, float]:
        return {name: router.cpu_seconds() for name, router in self.routers.items()}

    def resident_mib(self) -> float:
        return sum(router.resident_mib() for router in self.routers.values())


@dataclass(frozen=True)
class Contestant:
    """Router commands that are measured side by side with others."""

    name: str
    commands: list[str]


@contextlib.contextmanager
def networks(
    entrants: Sequence[Contestant],
    topology: Topology,
    directory: Path,
    *,
    workers: int = 2,
    router_cores: str | None = None,
    client_cores: str | None = None,
    credentials: Mapping[str, Credentials] | None = None,
) -> Iterator[list[Network]]:
    """A network of each contestant, all up at the same time: one that carries nothing hardly takes CPU time.

    A contestant with `credentials`, by its name, uses TLS between routers and has it for clients.
    """
    make_clients()
    with contextlib.ExitStack() as stack:
        found = []
        for number, entrant in enumerate(entrants):
            folder = directory / str(number)
            folder.mkdir()
            more = None
            identities = None
            identity = (credentials or {}).get(entrant.name)
            if identity is not None:
                more = {node.id: [AMQPS] for node in topology.nodes}
                identities = {node.id: identity for node in topology.nodes}
            routers = stack.enter_context(
                running(
                    topology.nodes, entrant.commands, workers, folder, more, identities, cores=router_cores
                )
            )
            network = Network(entrant.name, topology, routers, client_cores)
            wait_for_path(network)
            found.append(network)
        yield found


# Clients


def make_clients() -> None:
    subprocess.run(["make", "--quiet", "-C", str(CLIENTS)], check=True, stdout=sys.stderr)


def client(name: str, *arguments: object, cores: str | None = None) -> subprocess.Popen[str]:
    """Start `send` or `recv`; with `cores` (as for taskset) on these only."""
    pin = ["taskset", "-c", cores] if cores else []
    command = [*pin, str(CLIENTS / "build" / name), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(client: subprocess.Popen[str], timeout: float) -> dict[str, Any]:
    output, errors = client.communicate(timeout=timeout)
    try:
        result: dict[str, Any] = json.loads(output)
    except json.JSONDecodeError:
        raise BenchError(f"client ended with status {client.returncode}: {errors}") from None
    return result


def wait_said(client: subprocess.Popen[str], word: str) -> None:
    assert client.stderr is not None
    if client.stderr.readline() != f"{word}\n":
        raise BenchError(f"client was not {word}: {result(client, IDLE_TIMEOUT)['error']}")


def wait_attached(client: subprocess.Popen[str]) -> None:
    wait_said(client, "attached")


@contextlib.contextmanager
def ended(*clients: subprocess.Popen[str]) -> Iterator[None]:
    """Leaves no client behind, whatever happens inside."""
    try:
        yield
    finally:
        for client in clients:
            if client.poll() is None:
                client.kill()
                client.communicate()


def wait_for_path(network: Network) -> None:
    """Returns when a trial message got from the sender's router to the receiver's."""
    topology = network.topology
    receiver = client(
        "recv", network.endpoint(topology.receiver), "bench.trial", 1, "--timeout", READY_TIMEOUT
    )
    with ended(receiver):
        while receiver.poll() is None:
            sender = client("send", network.endpoint(topology.sender), "bench.trial", 1, 16, "--timeout", 2)
            with ended(sender):
                sent = result(sender, READY_TIMEOUT)
            if sent["ok"]:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                receiver.wait(timeout=0.05)
        received = result(receiver, READY_TIMEOUT + 5)
    if not received["ok"]:
        raise BenchError(f"no path from {topology.sender} to {topology.receiver}: {received['error']}")


# Runs


@dataclass(frozen=True)
class Load:
    """What clients do in one run: `flows` pairs of a sending and a receiving process, each with `links`."""

    messages: int = 200_000
    """In all."""
    size: int = 100
    """Bytes of a body."""
    credit: int = 1000
    """Of each link of a receiver."""
    window: int | None = None
    """Messages under way at most, on each link of a sender."""
    rate: float | None = None
    """Messages a second in all; None for as fast as possible."""
    skip: int = 0
    """Messages whose latency does not count, of each flow."""
    presettled: bool = False
    flows: int = 1
    links: int = 1
    connections: int = 1
    consumers: int = 1
    """Links of a receiver, all of one address."""
    tls: bool = False
    address: str = "bench.load"

    def _common(self) -> list[object]:
        several = ["--links", self.links, "--connections", self.connections] if self.links > 1 else []
        return ["--hold", *several, *(["--tls"] if self.tls else [])]

    def receiver(self) -> list[object]:
        skip = ["--skip", self.skip] if self.skip else []
        patience = 2 if self.presettled else IDLE_TIMEOUT
        shared = ["--links", self.consumers, "--shared"] if self.consumers > 1 else []
        return ["--credit", self.credit, "--timeout", patience, *skip, *shared, *self._common()]

    def sender(self) -> list[object]:
        window = ["--window", self.window] if self.window else []
        rate = ["--rate", self.rate / self.flows] if self.rate else []
        presettled = ["--presettled"] if self.presettled else []
        return ["--timeout", IDLE_TIMEOUT, *window, *rate, *presettled, *self._common()]


@dataclass(frozen=True)
class Run:
    """What one run measured."""

    load: Load
    sent: list[dict[str, Any]]
    received: list[dict[str, Any]]
    cpu_seconds: dict[str, float]
    """Of each router."""

    def total(self, count: str) -> int:
        """Of one of the counts in what the clients report."""
        return sum(report[count] for report in (*self.sent, *self.received) if count in report)

    @property
    def seconds(self) -> float:
        """From the first message received to the last."""
        begin = min(report["begin_ns"] for report in self.received)
        return (max(report["end_ns"] for report in self.received) - begin) / 1e9

    @property
    def messages_per_second(self) -> float:
        return sum(report["received"] for report in self.received) / max(self.seconds, 1e-9)

    @property
    def cpu_us(self) -> dict[str, float]:
        """Microseconds per message, of each router."""
        return {name: seconds * 1e6 / self.load.messages for name, seconds in self.cpu_seconds.items()}

    def latency_us(self, quantile: str) -> float:
        """`p50`, `p99`, `p999` or `max`: of the slowest flow."""
        return max(report["latency_us"][quantile] for report in self.received)


def run(network: Network, load: Load) -> Run:
    """Attach all clients, then let the senders go; raises BenchError if an acknowledged message is lost.

    CPU time is that between, without attaching and leaving.
    """
    topology, cores = network.topology, network.client_cores
    each = load.messages // load.flows
    addresses = [load.address if load.flows == 1 else f"{load.address}.{n}" for n in range(load.flows)]
    target, source = (
        network.endpoint(router, tls=load.tls) for router in (topology.sender, topology.receiver)
    )
    with contextlib.ExitStack() as stack:
        receivers = [
            client("recv", source, address, each, *load.receiver(), cores=cores) for address in addresses
        ]
        stack.enter_context(ended(*receivers))
        senders = [
            client("send", target, address, each, load.size, *load.sender(), cores=cores)
            for address in addresses
        ]
        stack.enter_context(ended(*senders))
        everyone = [*receivers, *senders]
        for one in everyone:
            wait_attached(one)
        before = network.cpu_seconds()
        for sender in senders:
            sender.send_signal(signal.SIGUSR1)
        for one in everyone:
            assert one.stderr is not None
            one.stderr.readline()  # "done", or the end
        after = network.cpu_seconds()
        for one in everyone:
            one.terminate()
        sent = [result(sender, IDLE_TIMEOUT) for sender in senders]
        received = [result(receiver, IDLE_TIMEOUT) for receiver in receivers]
    for report in (*sent, *([] if load.presettled else received)):
        if not report["ok"]:
            raise BenchError(f"run failed with {network.name}:\n{json.dumps(sent)}\n{json.dumps(received)}")
    return Run(load, sent, received, {name: after[name] - before[name] for name in before})


def idle_cpu(network: Network, seconds: float = 3.0) -> float:
    """The share of one core that the routers take while nothing happens."""
    before = sum(network.cpu_seconds().values())
    time.sleep(seconds)
    return (sum(network.cpu_seconds().values()) - before) / seconds


# Reports


def markdown(*rows: Sequence[object]) -> str:
    """A table; the first row is its head."""
    head, *body = [[str(cell) for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
