"""Latency of messages sent one at a time, in quiet and while the routers' certificates are rotated.

Routers with client certificates between them. One sender sends a message, waits for the consumer's outcome, and
sends the next; first for a quiet minute, then during rotations, each a new certificate under the next ordinal at
one of the routers that connect to others, in turn. A table goes to standard error, the result as JSON to standard
output. Exit status 1 when a network does not come up, when a message is lost, doubled or out of order, or when a
path is computed.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import dataclasses
import itertools
import json
import signal
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edge_scale import path_computations
from identities import Identities
from load import (
    ISTHMUS,
    TOPOLOGIES,
    Network,
    client,
    ended,
    make_clients,
    result,
    wait_attached,
    wait_for_path,
)
from options import parser_of
from routers import LOOPBACK, BenchError, Credentials, Router, running

MOST_MESSAGES = 10_000_000
MESSAGE_BYTES = 100
SETTLING_SECONDS = 5.0
"""From the first message to the quiet minute."""
TAIL_SECONDS = 0.5
"""After a new connection is in use: what it replaced may still be at work."""
POLL_SECONDS = 0.5
"""Between looks at /status, in both stretches: each holds a router up for a millisecond or two."""
ROTATION_TIMEOUT = 30.0
CLIENT_TIMEOUT = 30.0


@dataclass(frozen=True)
class Phase:
    """Latencies of the messages sent in a stretch of time, in microseconds."""

    seconds: float
    messages: int
    p50: float
    p99: float
    p999: float
    max: float

    @classmethod
    def of(cls, times: list[tuple[int, int]], begin: int, end: int) -> Phase:
        """Of the `times` (sent, outcome) that began between the two, in nanoseconds."""
        found = sorted(outcome - sent for sent, outcome in times if begin <= sent < end)
        if not found:
            raise BenchError("no message was sent in one of the phases")
        p50, p99, p999, most = (
            round(found[int(quantile * (len(found) - 1))] / 1000, 1) for quantile in (0.5, 0.99, 0.999, 1)
        )
        return cls(round((end - begin) / 1e9, 1), len(found), p50, p99, p999, most)


@dataclass(frozen=True)
class Traffic:
    """What both clients report at the end, and when each message was sent and its outcome came."""

    sent: dict[str, Any]
    received: dict[str, Any]
    times: list[tuple[int, int]]

    def faults(self) -> dict[str, int]:
        """How many messages went wrong, by how."""
        distinct = self.received["received"] - self.received["duplicates"] - self.received["foreign"]
        return {
            "lost": self.sent["sent"] - distinct,
            "duplicates": self.received["duplicates"],
            "reordered": self.received["reordered"],
            "not_accepted": self.sent["rejected"] + self.sent["released"] + self.sent["modified"],
        }


@contextlib.contextmanager
def traffic(sender: Router, receiver: Router, directory: Path) -> Iterator[list[Traffic]]:
    """Messages, one at a time, within the block; then the list holds what became of them."""
    found: list[Traffic] = []
    file = directory / "times"
    patience = ("--timeout", CLIENT_TIMEOUT)
    consumer = client("recv", receiver.endpoint, "bench.rotation", MOST_MESSAGES, *patience)
    with ended(consumer):
        wait_attached(consumer)
        window = ("--window", 1, "--times", file)
        producer = client(
            "send", sender.endpoint, "bench.rotation", MOST_MESSAGES, MESSAGE_BYTES, *patience, *window
        )
        with ended(producer):
            yield found
            producer.terminate()
            sent = result(producer, CLIENT_TIMEOUT)
            consumer.terminate()
            received = result(consumer, CLIENT_TIMEOUT)
    if sent["error"] or received["error"]:
        raise BenchError(f"a client failed:\n{json.dumps(sent)}\n{json.dumps(received)}")
    numbers = array.array("Q", file.read_bytes())
    found.append(Traffic(sent, received, list(zip(numbers[::2], numbers[1::2], strict=True))))


def status(router: Router) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{router.ports['http']}/status", timeout=30) as answer:
        document: dict[str, Any] = json.load(answer)
    return document


def in_use(routers: dict[str, Router], router: Router, ordinal: int) -> bool:
    """Whether the router's connector uses a connection of that ordinal, and so does the router it connects to."""
    if any(
        (row["tlsOrdinal"], row["state"], row["message"]) != (ordinal, "open", "")
        for row in status(router)["connectors"]
    ):
        return False
    assert router.node.uplink is not None
    return not any(
        row["container"] == router.node.id and row["upgrade"] == "pending"
        for row in status(routers[router.node.uplink])["connections"]
    )


def watch(routers: dict[str, Router], connecting: list[Router], seconds: float) -> None:
    """Look as often as during a rotation, while nothing rotates."""
    until = time.monotonic() + seconds
    for router in itertools.cycle(connecting):
        if time.monotonic() + POLL_SECONDS > until:
            break
        time.sleep(POLL_SECONDS)
        in_use(routers, router, 1)
    time.sleep(max(0.0, until - time.monotonic()))


def rotate(routers: dict[str, Router], router: Router, credentials: Credentials) -> float:
    """Rotate one router's certificate; seconds from writing the file until the new connection is in use."""
    router.rotate(credentials)
    began = time.monotonic()
    while not in_use(routers, router, credentials.ordinal):
        if time.monotonic() > began + ROTATION_TIMEOUT:
            raise BenchError(f"router {router.node.id} does not use ordinal {credentials.ordinal}")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began


@dataclass(frozen=True)
class Result:
    """One run. Latencies in microseconds, durations of rotations in seconds."""

    quiet: Phase
    rotations: Phase
    p99_ratio: float
    faults: dict[str, int]
    path_computations: int
    in_use_after_median: float
    in_use_after_max: float

    @property
    def ok(self) -> bool:
        return not self.path_computations and not any(self.faults.values())


def measure(options: argparse.Namespace, directory: Path) -> Result:
    """Bring up a network, and measure in quiet and while it rotates."""
    topology = TOPOLOGIES[options.topology]
    identities = Identities(directory)
    credentials = {node.id: identities.issue(node.id, 1) for node in topology.nodes}
    more = {node.id: ("http",) for node in topology.nodes}
    with running(topology.nodes, options.router_cmd, 1, directory, more, credentials) as routers:
        wait_for_path(Network(options.topology, topology, routers))
        interiors = {name: router for name, router in routers.items() if router.node.mode == "interior"}
        connecting = [router for router in routers.values() if router.node.uplink is not None]
        ordinals = dict.fromkeys(routers, 1)
        rotations = []
        for router in itertools.islice(itertools.cycle(connecting), options.rotations):
            ordinals[router.node.id] += 1
            rotations.append((router, identities.issue(router.node.id, ordinals[router.node.id])))
        with traffic(routers[topology.sender], routers[topology.receiver], directory) as found:
            time.sleep(SETTLING_SECONDS)
            computed = path_computations(interiors)
            begin = time.monotonic_ns()
            watch(routers, connecting, options.quiet)
            middle = time.monotonic_ns()
            took = []
            for router, issued in rotations:
                began = time.monotonic()
                took.append(rotate(routers, router, issued))
                watch(routers, connecting, max(TAIL_SECONDS, options.interval - (time.monotonic() - began)))
            took.sort()
            end = time.monotonic_ns()
            computed = path_computations(interiors) - computed
    [messages] = found
    quiet, disturbed = Phase.of(messages.times, begin, middle), Phase.of(messages.times, middle, end)
    return Result(
        quiet=quiet,
        rotations=disturbed,
        p99_ratio=round(disturbed.p99 / quiet.p99, 2),
        faults=messages.faults(),
        path_computations=computed,
        in_use_after_median=round(statistics.median(took), 2),
        in_use_after_max=round(took[-1], 2),
    )


def print_table(found: Result) -> None:
    names = [field.name for field in dataclasses.fields(Phase)]
    print(f"{'':<10}" + "".join(f"{name:>10}" for name in names), file=sys.stderr)
    for name, phase in (("quiet", found.quiet), ("rotations", found.rotations)):
        print(f"{name:<10}" + "".join(f"{value:>10,}" for value in asdict(phase).values()), file=sys.stderr)
    faults = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in found.faults.items())
    print(
        f"ratio of the p99s {found.p99_ratio}, {faults}, path computations {found.path_computations}, "
        f"in use after {found.in_use_after_median} s (median), {found.in_use_after_max} s (longest)",
        file=sys.stderr,
    )


def parse_options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--topology", choices=("line", "edge-interior-edge"), default="line")
    parser.add_argument("--quiet", type=float, default=60, help="seconds without rotations, measured first")
    parser.add_argument("--rotations", type=int, default=20, help="new certificates, one after the other")
    parser.add_argument(
        "--interval", type=float, default=3, help="seconds from one rotation to the next, at least"
    )
    options = parser.parse_args()
    options.router_cmd = [ISTHMUS]
    return options


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the routers are stopped
    make_clients()
    try:
        with tempfile.TemporaryDirectory(prefix="rotation-bench-") as directory:
            found = measure(options, Path(directory))
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print_table(found)
    settings = {key: value for key, value in vars(options).items() if key != "router_cmd"}
    print(json.dumps({"settings": settings, **asdict(found)}))
    return 0 if found.ok else 1


if __name__ == "__main__":
    sys.exit(main())
