"""Messages per CPU-second and per second of several routers side by side, in one run.

Every router command gets its own network; all of them are up at the same time, and each kind of load goes over one
after the other, round after round. Routers and clients have cores of their own. Tables go to standard error, everything
measured as JSON to standard output. Exit status 1 when a router does not come up or an acknowledged message is lost.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from identities import Identities
from load import (
    FLOOR,
    ISTHMUS,
    TOPOLOGIES,
    Load,
    Network,
    Run,
    client,
    ended,
    markdown,
    networks,
    run,
    wait_attached,
)
from options import add_contestants, add_cores, add_topology, contestants, parser_of
from routers import BenchError

MEGABYTE = 1_000_000
LARGE = Load(messages=1000, size=MEGABYTE, credit=32, window=32)
STOPPED_SECONDS = 5.0


def loads(options: argparse.Namespace) -> dict[str, Load]:
    """What is measured, by name."""
    small = Load(messages=options.messages)
    large = replace(LARGE, messages=options.large_messages)
    found = {
        "100 B": small,
        "100 B, pre-settled": replace(small, presettled=True, rate=options.presettled_rate),
        "1 MB": large,
        "100 B, TLS": replace(small, tls=True),
        "1 MB, TLS": replace(large, tls=True),
    }
    for flows in options.flows:
        found[f"100 B, {flows} flows"] = replace(small, flows=flows)
        found[f"1 MB, {flows} flows"] = replace(large, flows=flows)
        found[f"100 B, TLS, {flows} flows"] = replace(small, flows=flows, tls=True)
        found[f"1 MB, TLS, {flows} flows"] = replace(large, flows=flows, tls=True)
    return found


@dataclass(frozen=True)
class Summary:
    """Medians over the rounds."""

    cpu_us: float
    """Per message, of all routers together."""
    messages_per_second: float
    messages_per_cpu_second: float
    megabytes_per_second: float
    gigabytes_per_cpu_second: float
    missing: int
    """Only pre-settled messages may be."""

    @classmethod
    def of(cls, runs: list[Run]) -> Summary:
        cpu = statistics.median(sum(run.cpu_us.values()) for run in runs)
        rate = statistics.median(run.messages_per_second for run in runs)
        size = runs[0].load.size
        missing = sum(run.total("missing") for run in runs)
        return cls(cpu, rate, 1e6 / cpu, rate * size / 1e6, size / cpu / 1e3, missing)


def stopped_consumer(network: Network, size: int) -> dict[str, float]:
    """Memory while the receiver has given credit and is stopped, and the sender goes on as far as it may."""
    topology = network.topology
    source, target = network.endpoint(topology.receiver), network.endpoint(topology.sender)
    count = int(20e9) // size
    receiver = client("recv", source, "bench.stopped", count, "--credit", 10_000, "--timeout", 60)
    with ended(receiver):
        wait_attached(receiver)
        receiver.send_signal(signal.SIGSTOP)
        before = network.resident_mib()
        sender = client("send", target, "bench.stopped", count, size, "--window", 100, "--timeout", 60)
        with ended(sender):
            highest = before
            until = time.monotonic() + STOPPED_SECONDS
            while time.monotonic() < until:
                time.sleep(0.1)
                highest = max(highest, network.resident_mib())
    return {"before_mib": round(before, 1), "highest_mib": round(highest, 1)}


def measure(nets: list[Network], options: argparse.Namespace) -> Iterator[tuple[str, dict[str, list[Run]]]]:
    """Runs of each network, for one kind of load after the other."""
    chosen = loads(options)
    for name, load in chosen.items():
        if options.only and name not in options.only:
            continue
        found: dict[str, list[Run]] = {net.name: [] for net in nets}
        for _ in range(options.rounds):
            for net in nets:
                if load.tls and not net.has_tls:
                    continue
                found[net.name].append(run(net, load))
        yield name, {net: runs for net, runs in found.items() if runs}


def parse_options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    add_contestants(parser, "; on one router, the floor")
    add_topology(parser)
    parser.add_argument("--messages", type=int, default=200_000, help="of 100 bytes, in each run")
    parser.add_argument("--large-messages", type=int, default=LARGE.messages, help="of 1 MB, in each run")
    parser.add_argument("--flows", type=int, nargs="*", default=[4], help="pairs of clients at the same time")
    parser.add_argument("--rounds", type=int, default=3, help="medians are reported")
    parser.add_argument(
        "--presettled-rate",
        type=float,
        metavar="RATE",
        help="pre-settled messages a second; those that a router drops because there are too many cost it little",
    )
    parser.add_argument("--only", action="append", metavar="LOAD", help="this load only, e.g. '100 B'")
    parser.add_argument("--no-tls", action="append", default=["forward"], help="contestant that has none")
    add_cores(parser)
    return parser.parse_args()


def compare(nets: list[Network], options: argparse.Namespace) -> dict[str, Any]:
    """Measures everything, and prints it as it comes."""
    result: dict[str, Any] = {"loads": {}, "stopped consumer": {}}
    head = ("load", "router", "CPU µs per message", "messages per CPU-second", "messages/s")
    rows: list[tuple[object, ...]] = [(*head, "MB/s", "GB per CPU-second", "missing")]
    for name, found in measure(nets, options):
        for net, runs in found.items():
            summary = Summary.of(runs)
            result["loads"].setdefault(name, {})[net] = vars(summary)
            rows.append(
                (
                    name,
                    net,
                    f"{summary.cpu_us:.2f}",
                    f"{summary.messages_per_cpu_second:,.0f}",
                    f"{summary.messages_per_second:,.0f}",
                    f"{summary.megabytes_per_second:,.0f}",
                    f"{summary.gigabytes_per_cpu_second:.2f}",
                    summary.missing,
                )
            )
    print(markdown(*rows), file=sys.stderr)
    rows = [("stopped consumer", "message bytes", "MiB before", "highest")]
    for net in nets:
        for size in (100, MEGABYTE) if not options.only or "stopped" in options.only else ():
            memory = stopped_consumer(net, size)
            result["stopped consumer"][f"{net.name}, {size}"] = memory
            rows.append((net.name, size, *memory.values()))
    if len(rows) > 1:
        print(f"\n{markdown(*rows)}", file=sys.stderr)
    return result


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the routers are stopped
    default = [ISTHMUS, FLOOR] if options.topology == "single" else [ISTHMUS]
    entrants = contestants(options.router_cmd, default)
    try:
        with tempfile.TemporaryDirectory(prefix="router-bench-") as directory:
            identity = Identities(Path(directory)).issue("A", 1)
            secured = {entrant.name: identity for entrant in entrants if entrant.name not in options.no_tls}
            with networks(
                entrants,
                TOPOLOGIES[options.topology],
                Path(directory),
                workers=options.workers,
                router_cores=options.router_cores,
                client_cores=options.client_cores,
                credentials=secured,
            ) as nets:
                result = compare(nets, options)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"settings": vars(options), **result}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
