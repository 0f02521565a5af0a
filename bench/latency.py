"""End-to-end latency of several routers side by side, at fractions of the highest rate.

First each router command's highest rate is found (as many messages as credit allows). Then paced messages follow, at
fractions of the least of these rates, the same for all, and, for those that are faster, of their own; router after
router, round after round. A message's time begins when it was due, not when it was sent. Tables go to standard error,
JSON to standard output. Exit status 1 when a router does not come up or a message is lost.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from load import ISTHMUS, TOPOLOGIES, Load, Network, markdown, networks, run
from options import add_contestants, add_cores, add_topology, contestants, parser_of
from routers import BenchError

QUANTILES = ("p50", "p99", "p999", "max")
SKIPPED_SECONDS = 0.5
"""At the start of each run, in which the routers get to know the link."""


@dataclass
class Pace:
    """A rate that one network is tried at."""

    network: Network
    fraction: float
    rate: float
    of: str
    """What the fraction is of."""
    runs: list[dict[str, float]]
    behind: list[float]
    """How late the sender itself was, p99 in microseconds."""

    def measure(self, seconds: float) -> None:
        load = Load(
            messages=int(self.rate * (seconds + SKIPPED_SECONDS)),
            rate=self.rate,
            skip=int(self.rate * SKIPPED_SECONDS),
        )
        found = run(self.network, load)
        self.runs.append({name: found.latency_us(name) for name in QUANTILES})
        self.behind.append(found.sent[0]["behind_us"]["p99"])

    def quantile(self, name: str) -> float:
        return statistics.median(run[name] for run in self.runs)


def highest_rates(nets: list[Network], rounds: int, messages: int) -> dict[str, float]:
    """Messages per second, by name: the median of the rounds."""
    found: dict[str, list[float]] = {net.name: [] for net in nets}
    for _ in range(rounds):
        for net in nets:
            found[net.name].append(run(net, Load(messages)).messages_per_second)
    return {name: statistics.median(rates) for name, rates in found.items()}


def paces(nets: list[Network], highest: dict[str, float], fractions: list[float]) -> list[Pace]:
    """What is tried, in the order of one round."""
    least = min(highest.values())
    found = []
    for fraction in fractions:
        found += [Pace(net, fraction, least * fraction, "the slowest's maximum", [], []) for net in nets]
    for fraction in fractions:
        for net in nets:
            own = highest[net.name]
            if own > least:
                found.append(Pace(net, fraction, own * fraction, "its own maximum", [], []))
    return found


def parse_options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    add_contestants(parser)
    add_topology(parser)
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.1, 0.5, 0.9])
    parser.add_argument("--seconds", type=float, default=4, help="of each paced run")
    parser.add_argument("--rounds", type=int, default=3, help="medians are reported")
    parser.add_argument("--messages", type=int, default=200_000, help="in each run for the highest rate")
    add_cores(parser)
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the routers are stopped
    entrants = contestants(options.router_cmd, [ISTHMUS])
    try:
        with (
            tempfile.TemporaryDirectory(prefix="router-bench-") as directory,
            networks(
                entrants,
                TOPOLOGIES[options.topology],
                Path(directory),
                workers=options.workers,
                router_cores=options.router_cores,
                client_cores=options.client_cores,
            ) as nets,
        ):
            highest = highest_rates(nets, options.rounds, options.messages)
            tried = paces(nets, highest, options.fractions)
            for _ in range(options.rounds):
                for pace in tried:
                    pace.measure(options.seconds)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    head = ("rate", "messages/s", "router", "p50 µs", "p99", "p99.9", "longest", "sender's own p99")
    rows: list[tuple[object, ...]] = [head]
    details: list[dict[str, Any]] = []
    for pace in tried:
        shown = [f"{pace.quantile(name):,.0f}" for name in QUANTILES]
        label = f"{pace.fraction:.0%} of {pace.of}"
        behind = statistics.median(pace.behind)
        rows.append((label, f"{pace.rate:,.0f}", pace.network.name, *shown, f"{behind:,.0f}"))
        details.append(
            {"router": pace.network.name, "fraction": pace.fraction, "of": pace.of, "rate": pace.rate}
            | {name: pace.quantile(name) for name in QUANTILES}
            | {"behind_p99": behind, "runs": pace.runs}
        )
    rates = ", ".join(f"{name} {rate:,.0f}" for name, rate in highest.items())
    print(f"highest rates, messages/s: {rates}\n\n{markdown(*rows)}", file=sys.stderr)
    print(json.dumps({"settings": vars(options), "highest": highest, "paces": details}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
