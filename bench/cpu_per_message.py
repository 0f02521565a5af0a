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
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from load import ISTHMUS, TOPOLOGIES, Load, Network, ended, make_clients, run, wait_attached, wait_for_path
from options import add_topology, parser_of
from routers import BenchError, Router, running

COLLECTOR = Path(__file__).with_name("collector.py")


def measure(network: Network, options: argparse.Namespace) -> dict[str, Any]:
    """One run: what both clients report, and CPU microseconds per message for each router."""
    load = Load(options.messages, options.size, options.credit, presettled=options.presettled)
    found = run(network, load)
    return {
        "cpu_us_per_message": {name: round(cpu, 3) for name, cpu in found.cpu_us.items()},
        "messages_per_second": found.received[0]["messages_per_second"],
        "latency_us": found.received[0]["latency_us"],
        "missing": found.total("missing"),
        "duplicates": found.total("duplicates"),
        "reordered": found.total("reordered"),
        "released": found.total("released"),
    }


@contextlib.contextmanager
def collecting(network: Network) -> Iterator[None]:
    """Somebody collects the flow records of all routers; afterwards says how many there were."""
    command = [sys.executable, str(COLLECTOR), network.endpoint(network.topology.sender)]
    collector = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with ended(collector):
        wait_attached(collector)
        yield
        collector.terminate()
        print(f"collected: {collector.communicate(timeout=10)[0].strip()}", file=sys.stderr)


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
    parser = parser_of(__doc__)
    parser.add_argument(
        "--router-cmd",
        action="append",
        metavar="CMD",
        help="command that starts a router, with {config} for its configuration file; given several times, "
        "the first is for router A, the next for B, then E1 and E2, the last for all that remain "
        "(default: isthmus-router -c {config}, from the environment this script runs in)",
    )
    add_topology(parser)
    parser.add_argument("--messages", type=int, default=200_000, help="messages in each run")
    parser.add_argument("--size", type=int, default=100, help="bytes of message body")
    parser.add_argument("--credit", type=int, default=1000, help="credit window of the receiver")
    parser.add_argument(
        "--presettled", action="store_true", help="unacknowledged messages; loss is reported only"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs on the same routers; medians are reported")
    parser.add_argument("--workers", type=int, default=2, help="workerThreads of each router")
    parser.add_argument(
        "--collector", action="store_true", help="somebody on the sender's router collects flow records"
    )
    options = parser.parse_args(arguments)
    options.router_cmd = options.router_cmd or [ISTHMUS]
    return options


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the routers are stopped
    topology = TOPOLOGIES[options.topology]
    make_clients()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="router-bench-") as directory,
            running(topology.nodes, options.router_cmd, options.workers, Path(directory)) as routers,
            contextlib.ExitStack() as stack,
        ):
            network = Network(options.topology, topology, routers)
            wait_for_path(network)
            if options.collector:
                stack.enter_context(collecting(network))
            runs = [measure(network, options) for _ in range(options.runs)]
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
