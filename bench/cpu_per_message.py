"""CPU time of each router per message, on loopback, with the C load clients of `bench/clients`.

Starts the routers of a topology from any command that takes a qdrouterd-style configuration file, waits
until a trial message crosses them, then sends N messages from one sender to one receiver and divides the user
and system time of each router process (with its children) by N. The table goes to standard error, the result
as JSON to standard output. Exit status 1 when routers do not come up or acknowledged messages are lost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routers import READY_TIMEOUT, BenchError, Node, Router, running

HERE = Path(__file__).resolve().parent
CLIENTS = HERE / "clients"
BESIDE = Path(sys.executable).parent
IDLE_TIMEOUT = 10.0  # seconds without progress after which a client gives up
RUN_TIMEOUT = 600.0  # seconds for one measured run


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


def client(name: str, *arguments: object) -> subprocess.Popen[str]:
    command = [str(CLIENTS / "build" / name), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(client: subprocess.Popen[str], timeout: float) -> dict[str, Any]:
    output, errors = client.communicate(timeout=timeout)
    try:
        result: dict[str, Any] = json.loads(output)
    except json.JSONDecodeError:
        raise BenchError(f"client ended with status {client.returncode}: {errors}") from None
    return result


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


def wait_for_path(topology: Topology, routers: dict[str, Router]) -> None:
    """Returns when a trial message got from the sender's router to the receiver's."""
    receiver = client(
        "recv", routers[topology.receiver].endpoint, "bench.trial", 1, "--timeout", READY_TIMEOUT
    )
    with ended(receiver):
        while receiver.poll() is None:
            sender = client("send", routers[topology.sender].endpoint, "bench.trial", 1, 16, "--timeout", 2)
            with ended(sender):
                sent = result(sender, READY_TIMEOUT)
            if sent["ok"]:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                receiver.wait(timeout=0.05)
        received = result(receiver, READY_TIMEOUT + 5)
    if not received["ok"]:
        raise BenchError(f"no path from {topology.sender} to {topology.receiver}: {received['error']}")


def measure(topology: Topology, routers: dict[str, Router], options: argparse.Namespace) -> dict[str, Any]:
    """One run: what both clients report, and CPU microseconds per message for each router."""
    receiver = client(
        "recv",
        routers[topology.receiver].endpoint,
        "bench.load",
        options.messages,
        "--credit",
        options.credit,
        "--timeout",
        IDLE_TIMEOUT if not options.presettled else 2,
    )
    with ended(receiver):
        assert receiver.stderr is not None
        if receiver.stderr.readline() != "attached\n":
            raise BenchError(f"receiver did not attach: {result(receiver, IDLE_TIMEOUT)['error']}")
        before = {name: router.cpu_seconds() for name, router in routers.items()}
        flags = ["--presettled"] if options.presettled else []
        sender = client(
            "send",
            routers[topology.sender].endpoint,
            "bench.load",
            options.messages,
            options.size,
            "--timeout",
            IDLE_TIMEOUT,
            *flags,
        )
        with ended(sender):
            sent = result(sender, RUN_TIMEOUT)
            received = result(receiver, RUN_TIMEOUT)
    after = {name: router.cpu_seconds() for name, router in routers.items()}
    if not sent["ok"] or (not received["ok"] and not options.presettled):
        raise BenchError(f"run failed:\n{json.dumps(sent)}\n{json.dumps(received)}")
    return {
        "cpu_us_per_message": {
            name: round((after[name] - before[name]) * 1e6 / options.messages, 3) for name in routers
        },
        "messages_per_second": received["messages_per_second"],
        "latency_us": received["latency_us"],
        "missing": received["missing"],
        "duplicates": received["duplicates"],
        "reordered": received["reordered"],
        "released": sent["released"],
    }


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)


def summarize(runs: list[dict[str, Any]], routers: dict[str, Router]) -> dict[str, Any]:
    """Medians over the runs (and the least CPU time), totals of what went wrong, memory at the end."""
    cpu = {name: [run["cpu_us_per_message"][name] for run in runs] for name in routers}
    return {
        "routers": {
            name: {
                "command": router.command,
                "mode": router.node.mode,
                "cpu_us_per_message": _median(cpu[name]),
                "cpu_us_per_message_min": round(min(cpu[name]), 3),
                "resident_mib": round(router.resident_mib(), 1),
            }
            for name, router in routers.items()
        },
        "messages_per_second": _median(run["messages_per_second"] for run in runs),
        "latency_us_p50": _median(run["latency_us"]["p50"] for run in runs),
        "latency_us_p99": _median(run["latency_us"]["p99"] for run in runs),
        "missing": sum(run["missing"] for run in runs),
        "duplicates": sum(run["duplicates"] for run in runs),
        "reordered": sum(run["reordered"] for run in runs),
    }


def print_table(result: dict[str, Any]) -> None:
    rows = [("router", "mode", "CPU us/message", "least", "resident MiB")]
    rows += [
        (
            name,
            router["mode"],
            f"{router['cpu_us_per_message']:.2f}",
            f"{router['cpu_us_per_message_min']:.2f}",
            f"{router['resident_mib']:.1f}",
        )
        for name, router in result["routers"].items()
    ]
    for name, mode, cpu, least, resident in rows:
        print(f"{name:<8} {mode:<10} {cpu:>16} {least:>8} {resident:>14}", file=sys.stderr)
    print(
        f"{result['messages_per_second']:,.0f} messages/s, latency p50 {result['latency_us_p50']:,.0f} us, "
        f"p99 {result['latency_us_p99']:,.0f} us, missing {result['missing']}, "
        f"duplicates {result['duplicates']}, reordered {result['reordered']}",
        file=sys.stderr,
    )


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--router-cmd",
        action="append",
        metavar="CMD",
        help="command that starts a router, with {config} for its configuration file; given several times, "
        "the first is for router A, the next for B, then E1 and E2, the last for all that remain "
        "(default: isthmus-router -c {config}, from the environment this script runs in)",
    )
    parser.add_argument("--topology", choices=sorted(TOPOLOGIES), default="single")
    parser.add_argument("--messages", type=int, default=200_000, help="messages in each run")
    parser.add_argument("--size", type=int, default=100, help="bytes of message body")
    parser.add_argument("--credit", type=int, default=1000, help="credit window of the receiver")
    parser.add_argument(
        "--presettled", action="store_true", help="unacknowledged messages; loss is reported only"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs on the same routers; medians are reported")
    parser.add_argument("--workers", type=int, default=2, help="workerThreads of each router")
    options = parser.parse_args(arguments)
    options.router_cmd = options.router_cmd or [
        f"{shlex.quote(str(BESIDE / 'isthmus-router'))} -c {{config}}"
    ]
    return options


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the routers are stopped
    topology = TOPOLOGIES[options.topology]
    subprocess.run(["make", "--quiet", "-C", str(CLIENTS)], check=True, stdout=sys.stderr)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="router-bench-") as directory,
            running(topology.nodes, options.router_cmd, options.workers, Path(directory)) as routers,
        ):
            wait_for_path(topology, routers)
            runs = [measure(topology, routers, options) for _ in range(options.runs)]
            result = summarize(runs, routers)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    settings = {key: value for key, value in vars(options).items() if key != "router_cmd"}
    print_table(result)
    print(json.dumps({"settings": settings, **result, "details": runs}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
