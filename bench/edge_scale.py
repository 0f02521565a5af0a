"""What edges and the addresses used on them cost an interior router, and how soon a sender hears of a consumer.

Two interior routers, and edge routers (many in one process) that attach to the first. Every address has
producers on one edge and consumers on another. A table goes to standard error, the result as JSON to standard
output. Exit status 1 when a network does not come up, or when an interior has more than two links for an
address of an edge, however many clients use it.
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
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from load import ISTHMUS
from many_links import Client, Clients, Link
from options import parser_of
from routers import (
    LOOPBACK,
    READY_TIMEOUT,
    BenchError,
    Node,
    Router,
    free_port,
    render_config,
    running,
)

HERE = Path(__file__).resolve().parent
BESIDE = Path(sys.executable).parent
STANDING_LINKS = 4
"""Links of an edge that no address needs: uplink, downlink, tracking, mesh announcement."""
ATTACHED_AT_ONCE = 500
CHANGING_ADDRESSES = 1000
SECONDS_OF_QUIET = 10
QUIET_SECONDS = 0.03
"""Between two samples, so that none waits for the announcement of the one before."""


@dataclass(frozen=True)
class Result:
    """One network. Times in milliseconds, memory in KiB, rates per second."""

    edges: int
    addresses: int
    clients_per_address: int
    interior_links: int
    interior_kib_per_address: float
    edge_kib_per_address: float
    attaches_per_second: float
    interior_cpu_ms_per_address: float
    credit_ms_median: float
    credit_ms_p99: float
    changes_per_second: float
    change_interior_cpu_ms: float
    change_edge_cpu_ms: float
    path_computations: int
    routing_messages_per_second: float
    """To the other interior while nothing changes."""


@dataclass
class Edges:
    """The running edges: their process as a `Router`, and the client port of each."""

    router: Router
    ports: list[int]


@contextlib.contextmanager
def edges_attached(count: int, interior: Router, directory: Path) -> Iterator[Edges]:
    """`count` edge routers in one process, each attached to `interior`; ended on exit."""
    paths, ports = [], []
    for number in range(count):
        node = Node(f"E{number}", "edge", interior.node.id)
        ports.append(free_port())
        path = directory / f"{node.id}.conf"
        path.write_text(
            render_config(node, {"normal": ports[-1]}, interior.ports["edge"], 1, command="edges.py")
        )
        paths.append(str(path))
    log = directory / "edges.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "edges.py"), *paths], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        edges = Edges(Router(Node("edges", "edge"), "", {}, log, process), ports)
        deadline = time.monotonic() + READY_TIMEOUT
        while links(interior) < STANDING_LINKS * count:
            if time.monotonic() > deadline or process.poll() is not None:
                raise BenchError(f"the edges do not attach: {log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield edges
    finally:
        process.terminate()
        process.wait(timeout=30)


def metric(router: Router, name: str, *labels: str) -> float:
    """The sum of a metric's samples that have all of these labels."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{router.ports['http']}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith((f"{name}{{", f"{name} ")) and all(label in line for label in labels)
    )


def links(router: Router) -> int:
    """Links on edge connections: those between the interiors are of another type."""
    kinds = ('type="endpoint"', 'type="edge-downlink"')
    return int(sum(metric(router, "isthmus_router_links", kind) for kind in kinds))


def path_computations(routers: dict[str, Router]) -> int:
    return int(sum(metric(router, "isthmus_router_path_computations_total") for router in routers.values()))


def routing_messages_per_second(router: Router) -> float:
    """Over a few seconds."""
    before = metric(router, "isthmus_router_routing_messages_total")
    time.sleep(SECONDS_OF_QUIET)
    return (metric(router, "isthmus_router_routing_messages_total") - before) / SECONDS_OF_QUIET


class Bench:
    """One network under measurement."""

    def __init__(self, routers: dict[str, Router], edges: Edges, clients_per_address: int) -> None:
        self.interior = routers["A"]
        self.edges = edges
        self.clients = Clients()
        self._per_address = clients_per_address
        self._ports = edges.ports
        # A lone edge's consumers are on the other interior.
        self._consumer_ports = (
            [*edges.ports[1:], edges.ports[0]] if len(edges.ports) > 1 else [routers["B"].ports["normal"]]
        )
        self._open: dict[int, Client] = {}

    def _client(self, port: int) -> Client:
        client = self._open.get(port)
        if client is None or client.room == 0:
            client = self._open[port] = self.clients.connect(port)
        return client

    def producer(self, number: int, address: str) -> Link:
        """A sender on the edge of that number, counted round."""
        return self._client(self._ports[number % len(self._ports)]).sender(address)

    def consumer(self, number: int, address: str) -> Link:
        """A receiver on the edge after the one of that number."""
        return self._client(self._consumer_ports[number % len(self._ports)]).receiver(address)

    def attach_all(self, addresses: int) -> float:
        """Producers and consumers of every address, some at a time; seconds until all producers have credit."""
        began = time.perf_counter()
        for first in range(0, addresses, ATTACHED_AT_ONCE):
            producers = []
            for number in range(first, min(first + ATTACHED_AT_ONCE, addresses)):
                for _ in range(self._per_address):
                    producers.append(self.producer(number, f"scale/{number}"))
                    self.consumer(number, f"scale/{number}")
            self._until_credit(producers)
        return time.perf_counter() - began

    def _until_credit(self, producers: list[Link]) -> None:
        waiting = list(producers)

        def done() -> bool:
            while waiting and waiting[-1].credit_at is not None:
                waiting.pop()
            return not waiting

        self.clients.until(done, "every producer has credit")

    def credit_times(self, samples: int) -> list[float]:
        """Seconds from a consumer's attach to a sender's credit on another edge, one address at a time."""
        times = []
        for number in range(samples):
            self.clients.pause(QUIET_SECONDS)
            producer = self.producer(number, f"credit/{number}")
            self.clients.until(lambda link=producer: link.attached_at is not None, "a producer attaches")
            began = time.perf_counter()
            self.consumer(number, f"credit/{number}")
            self._until_credit([producer])
            assert producer.credit_at is not None
            times.append(producer.credit_at - began)
        return times

    def change(self, rate: int, seconds: int) -> tuple[float, int]:
        """Consumers come and go, `rate` a second of each; the rate reached, and how many came.

        Each comes to an address that has a producer on another edge, and goes a second later.
        """
        for number in range(rate):
            self.producer(number, f"change/{number}")
        came: list[Link] = []
        left = 0
        began = time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds + 1:
            due = min(int(passed * rate), rate * seconds)
            for number in range(len(came), due):
                came.append(self.consumer(number, f"change/{number % rate}"))
            for link in came[left : max(left, int((passed - 1) * rate))]:
                left += 1
                link.detach()
            self.clients.pause(0.001)
        self.clients.until(lambda: all(link.detached for link in came[:left]), "consumers are gone")
        return left / (time.perf_counter() - began - 1), left


def measure(edge_count: int, addresses: int, options: argparse.Namespace) -> Result:
    """Bring up one network, load it, and tear it down."""
    nodes = [Node("A"), Node("B", uplink="A")]
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edge-scale-")))
        routers = stack.enter_context(
            running(nodes, options.router_cmd, 1, directory, {"A": ("edge", "http"), "B": ("http",)})
        )
        edges = stack.enter_context(edges_attached(edge_count, routers["A"], directory))
        interior, edge_process = routers["A"], edges.router
        bench = Bench(routers, edges, options.clients)
        computed = path_computations(routers)
        standing = links(interior)
        memory = interior.resident_mib(), edge_process.resident_mib()
        cpu = interior.cpu_seconds()
        took = bench.attach_all(addresses)
        attach_cpu = interior.cpu_seconds() - cpu
        used = links(interior) - standing
        grown = interior.resident_mib() - memory[0], edge_process.resident_mib() - memory[1]
        if used > 2 * addresses:
            raise BenchError(f"{used} links on the interior for {addresses} addresses")
        quiet = routing_messages_per_second(routers["B"])
        times = sorted(1000 * value for value in bench.credit_times(options.samples))
        cpu, edge_cpu = interior.cpu_seconds(), edge_process.cpu_seconds()
        rate, changes = bench.change(CHANGING_ADDRESSES, options.seconds)
        return Result(
            edges=edge_count,
            addresses=addresses,
            clients_per_address=options.clients,
            interior_links=used,
            interior_kib_per_address=round(grown[0] * 1024 / addresses, 2),
            edge_kib_per_address=round(grown[1] * 1024 / addresses, 2),
            attaches_per_second=round(2 * options.clients * addresses / took),
            interior_cpu_ms_per_address=round(1000 * attach_cpu / addresses, 3),
            credit_ms_median=round(statistics.median(times), 2),
            credit_ms_p99=round(times[int(len(times) * 0.99)], 2),
            changes_per_second=round(rate),
            change_interior_cpu_ms=round(1000 * (interior.cpu_seconds() - cpu) / changes, 3),
            change_edge_cpu_ms=round(1000 * (edge_process.cpu_seconds() - edge_cpu) / changes, 3),
            path_computations=path_computations(routers) - computed,
            routing_messages_per_second=quiet,
        )


def parse_options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--edges", type=int, nargs="+", default=[1, 10, 100], help="edge connections")
    parser.add_argument("--addresses", type=int, nargs="+", default=[1000, 10_000], help="mobile addresses")
    parser.add_argument("--clients", type=int, default=1, help="producers, and consumers, of each address")
    parser.add_argument("--samples", type=int, default=300, help="measurements of the time to credit")
    parser.add_argument("--seconds", type=int, default=10, help="for which consumers come and go")
    options = parser.parse_args()
    options.router_cmd = [ISTHMUS]
    return options


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the routers are stopped
    results = []
    try:
        for addresses in options.addresses:
            for edge_count in options.edges:
                results.append(measure(edge_count, addresses, options))
                for name, value in asdict(results[-1]).items():
                    print(f"{name:<28} {value:>12,}", file=sys.stderr)
                print(file=sys.stderr)
    except (BenchError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps([asdict(result) for result in results]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
