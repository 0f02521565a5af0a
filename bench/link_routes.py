"""What routed links cost: CPU time per message and per attach, and both against how many there are already.

Clients attach to one end of a network, and link routes take their links to a container at the other end: the C program
`bench/clients/container.c`, which costs as little as a broker can, or with `--broker` one that runs already. Routers
are started from any commands that take a qdrouterd-style configuration file and know `linkRoute`. Tables go to
standard error, JSON to standard output. Exit status 1 when a router does not come up, a message is lost, an attach is
refused, or links are left at the container after their clients have gone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from curves import plot
from load import ISTHMUS, TOPOLOGIES, Contestant, idle_cpu, make_clients, markdown
from options import add_contestants, add_cores, contestants, parser_of
from routed import (
    AT_ONCE,
    Attached,
    Container,
    Passed,
    Routed,
    attach,
    container,
    pass_messages,
    routed,
    stand_by,
)
from routers import BenchError

DIRECT = "direct"
TOPOLOGY_NAMES = ("single", "pair", "line")
STEPS = (1, 100, 1000, 10_000)


# Networks


@contextlib.contextmanager
def target(options: argparse.Namespace, size: int = 100) -> Iterator[Container]:
    """What links are routed to."""
    if options.broker is not None:
        yield Container(options.broker)
        return
    with container(size, options.client_cores) as found:
        yield found


@contextlib.contextmanager
def network(
    entrant: Contestant | None, topology: str, found: Container, options: argparse.Namespace, routes: int = 1
) -> Iterator[Routed]:
    """With link routes in the directions that are measured."""
    with (
        tempfile.TemporaryDirectory(prefix="router-bench-") as directory,
        routed(
            entrant,
            TOPOLOGIES["single" if topology == DIRECT else topology],
            found,
            Path(directory),
            routes=routes,
            directions=options.direction,
            prefix=options.prefix,
            trial=options.address,
            workers=options.workers,
            router_cores=options.router_cores,
            client_cores=options.client_cores,
        ) as routers,
    ):
        yield routers


@contextlib.contextmanager
def everyone(topology: str, found: Container, options: argparse.Namespace) -> Iterator[list[Routed]]:
    """A network of each contestant, all up at the same time; `direct` has none."""
    entrants: list[Contestant | None] = [None] if topology == DIRECT else [*options.contestants]
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(network(entrant, topology, found, options)) for entrant in entrants]


def cores_of(cpu_us: dict[str, float]) -> str:
    """CPU time of each router, in the order of their names."""
    return ", ".join(f"{cpu:.2f}" for name, cpu in sorted(cpu_us.items()) if name.isupper())


# Messages


def messages(options: argparse.Namespace) -> list[dict[str, Any]]:
    """CPU time per message of each router, by topology, direction and size."""
    rows: list[dict[str, Any]] = []
    for size in options.size:
        for topology in (DIRECT, *options.topology):
            with target(options, size) as found, everyone(topology, found, options) as all_of_them:
                for way in options.direction:
                    runs: dict[str, list[Passed]] = {one.name: [] for one in all_of_them}
                    for _ in range(options.rounds):
                        for one in all_of_them:
                            runs[one.name].append(pass_messages(one, way, options.messages, size))
                    for name, passed in runs.items():
                        about = {"topology": topology, "direction": way, "size": size, "router": name}
                        rows.append({**about, **summary(passed)})
    return rows


def summary(passed: list[Passed]) -> dict[str, Any]:
    """Medians over the rounds."""
    return {
        "cpu_us": {name: statistics.median(one.cpu_us[name] for one in passed) for name in passed[0].cpu_us},
        "routers_us": statistics.median(one.routers_us for one in passed),
        "messages_per_second": statistics.median(one.messages_per_second for one in passed),
    }


def message_table(rows: list[dict[str, Any]]) -> str:
    head = ("bytes", "topology", "direction", "router", "CPU µs per message, each router", "sum")
    cells: list[tuple[object, ...]] = [(*head, "container", "messages/s")]
    cells += [
        (
            f"{row['size']:,}",
            row["topology"],
            row["direction"],
            row["router"],
            cores_of(row["cpu_us"]),
            f"{row['routers_us']:.2f}",
            f"{row['cpu_us']['container']:.2f}",
            f"{row['messages_per_second']:,.0f}",
        )
        for row in rows
    ]
    return markdown(*cells)


# Attaches


def attaches(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rate, latency and CPU time of attaches, by topology and direction: one at a time, and many."""
    rows: list[dict[str, Any]] = []
    for topology in (DIRECT, *options.topology):
        with target(options) as found, everyone(topology, found, options) as all_of_them:
            for way in options.direction:
                for detach in (True, False):
                    for window in (1, AT_ONCE):
                        kind = {
                            "topology": topology,
                            "direction": way,
                            "then": "detached" if detach else "left",
                            "at_once": window,
                        }
                        runs: dict[str, list[Attached]] = {one.name: [] for one in all_of_them}
                        for _ in range(options.rounds):
                            for one in all_of_them:
                                done = attach(
                                    one,
                                    way,
                                    options.attaches,
                                    detach=detach,
                                    window=window,
                                    address=options.address,
                                )
                                runs[one.name].append(done)
                        rows += [
                            {**kind, "router": name, **attach_summary(two)} for name, two in runs.items()
                        ]
    return rows


def attach_summary(runs: list[Attached]) -> dict[str, Any]:
    """Medians over the rounds."""

    def quantiles(of: Callable[[Attached], dict[str, float]]) -> dict[str, float]:
        return {name: statistics.median(of(run)[name] for run in runs) for name in of(runs[0])}

    return {
        "cpu_us": quantiles(lambda run: run.cpu_us),
        "routers_us": statistics.median(run.routers_us for run in runs),
        "attaches_per_second": statistics.median(run.attaches_per_second for run in runs),
        "attach_us": quantiles(lambda run: run.attach_us),
        "detach_us": quantiles(lambda run: run.detach_us),
        "credit_us": quantiles(lambda run: run.credit_us),
    }


def attach_table(rows: list[dict[str, Any]]) -> str:
    head = ("topology", "direction", "then", "at once", "router", "attaches/s", "p50 µs", "p99", "p99.9")
    cells: list[tuple[object, ...]] = [(*head, "detach p50", "CPU µs per attach, each router", "container")]
    cells += [
        (
            row["topology"],
            row["direction"],
            row["then"],
            row["at_once"],
            row["router"],
            f"{row['attaches_per_second']:,.0f}",
            *(f"{row['attach_us'][name]:,.0f}" for name in ("p50", "p99", "p999")),
            f"{row['detach_us']['p50']:,.0f}" if row["then"] == "detached" else "",
            cores_of(row["cpu_us"]),
            f"{row['cpu_us']['container']:.0f}",
        )
        for row in rows
    ]
    return markdown(*cells)


# Curves

ROUTES, LINKS = "link routes", "routed links"


def point(
    loaded: Routed, bare: Routed, routes: int, count: int, way: str, options: argparse.Namespace
) -> dict[str, Any]:
    """What messages and attaches cost with `count` of something, and on the bare network in turn with it."""
    passed, attached = [], []
    for _ in range(options.rounds):
        for one, number in ((loaded, routes), (bare, 1)):
            passed.append(pass_messages(one, way, options.messages, 100, number - 1))
            attached.append(attach(one, way, options.attaches, detach=True, window=1, routes=number))
    assert loaded.network is not None
    each = attach_summary(attached[::2])
    return {
        "count": count,
        "message": {"cpu_us": median_us(passed[::2]), "bare_us": median_us(passed[1::2])},
        "attach": {"cpu_us": median_us(attached[::2]), "bare_us": median_us(attached[1::2])},
        "attach_us": each["attach_us"],
        "bare_attach_us": attach_summary(attached[1::2])["attach_us"],
        "attaches_per_second": each["attaches_per_second"],
        "container_us": each["cpu_us"]["container"],
        "resident_mib": loaded.network.resident_mib(),
        "idle": idle_cpu(loaded.network, options.idle_seconds),
    }


def median_us(runs: Sequence[Passed | Attached]) -> float:
    return statistics.median(run.routers_us for run in runs)


def curve(what: str, entrant: Contestant, way: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One curve of one router: `what` there is more and more of."""
    topology = options.topology[0]
    steps = [step for step in STEPS if step <= options.most]
    with target(options) as found, network(entrant, topology, found, options) as bare:
        if what == ROUTES:
            for step in steps:
                with network(entrant, topology, found, options, step) as loaded:
                    yield point(loaded, bare, step, step, way, options)
            return
        with network(entrant, topology, found, options) as loaded:
            for step, before in zip(steps, (0, *steps), strict=False):
                stand_by(loaded, way, step - before)
                yield point(loaded, bare, 1, step, way, options)


def curves(options: argparse.Namespace) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By what there is more of, with the direction of the links, and router."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for what in options.curve or (ROUTES, LINKS):
        for way in options.direction:
            for entrant in options.contestants:
                points = found.setdefault(f"{what}, {way}", {}).setdefault(entrant.name, [])
                for step in curve(what, entrant, way, options):
                    points.append(step)
                    print(f"{entrant.name}, {step['count']} {what}, {way}: {step}", file=sys.stderr)
    return found


def curve_table(found: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    head = (
        "what",
        "router",
        "how many",
        "µs per message (bare)",
        "CPU µs per attach (bare)",
        "attach p50 µs (bare)",
    )
    cells: list[tuple[object, ...]] = [(*head, "p99 (bare)", "MiB", "KiB each", "idle, % of a core")]
    for what, routers in found.items():
        for router, points in routers.items():
            for step in points:
                more = step["count"] - points[0]["count"]
                grown = (step["resident_mib"] - points[0]["resident_mib"]) * 1024
                cells.append(
                    (
                        what,
                        router,
                        f"{step['count']:,}",
                        f"{step['message']['cpu_us']:.2f} ({step['message']['bare_us']:.2f})",
                        f"{step['attach']['cpu_us']:.0f} ({step['attach']['bare_us']:.0f})",
                        *(
                            f"{step['attach_us'][name]:,.0f} ({step['bare_attach_us'][name]:,.0f})"
                            for name in ("p50", "p99")
                        ),
                        f"{step['resident_mib']:.0f}",
                        f"{grown / more:.1f}" if more > 900 else "",
                        f"{step['idle'] * 100:.1f}",
                    )
                )
    return markdown(*cells)


def draw(found: dict[str, dict[str, list[dict[str, Any]]]], file: Path) -> None:
    """CPU time per message and per attach, relative to the bare network."""
    lines = {
        f"{each}, {what}": {
            router: [{"count": step["count"], **step[each]} for step in points]
            for router, points in routers.items()
        }
        for what, routers in found.items()
        for each in ("message", "attach")
    }
    plot(lines, file, "message or attach")


MEASURED: dict[str, tuple[Callable[[argparse.Namespace], Any], Callable[[Any], str]]] = {
    "messages": (messages, message_table),
    "attaches": (attaches, attach_table),
    "curves": (curves, curve_table),
}


def parse_options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("what", nargs="?", choices=["all", *MEASURED], default="all")
    add_contestants(parser)
    parser.add_argument(
        "--topology",
        action="append",
        choices=TOPOLOGY_NAMES,
        help="curves are of the first (default: all; pair)",
    )
    parser.add_argument(
        "--direction", action="append", choices=["in", "out"], help="of links (default: both)"
    )
    parser.add_argument(
        "--messages", type=int, default=200_000, help="of 100 bytes, in each run; fewer large ones"
    )
    parser.add_argument("--size", type=int, action="append", help="bytes of message body (default: 100)")
    parser.add_argument("--attaches", type=int, default=2000, help="in each run")
    parser.add_argument("--rounds", type=int, default=3, help="medians are reported")
    parser.add_argument("--curve", action="append", choices=[ROUTES, LINKS], help="only this one")
    parser.add_argument("--most", type=int, default=STEPS[-1], help="no step of a curve beyond this number")
    parser.add_argument("--idle-seconds", type=float, default=3, help="for the cost of doing nothing")
    parser.add_argument(
        "--broker", metavar="HOST:PORT", help="attach to this instead of the container (attaches only)"
    )
    parser.add_argument("--prefix", default="routed", help="of the link routes")
    parser.add_argument(
        "--address", help="of the links that are attached: a queue of the broker, below the prefix"
    )
    add_cores(parser)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curves (SVG or PNG)")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="JSON of a run before")
    options = parser.parse_args()
    if options.broker is not None and options.what != "attaches":
        parser.error("--broker: only `attaches` are measured with a broker")
    options.contestants = contestants(options.router_cmd, [ISTHMUS])
    if options.what == "curves" and not options.topology:
        options.topology = ["pair"]
    options.topology = options.topology or list(TOPOLOGY_NAMES)
    options.direction = options.direction or ["in", "out"]
    options.size = options.size or [100]
    return options


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the routers are stopped
    if options.source is not None:
        result = json.loads(options.source.read_text())
    else:
        make_clients()
        result = {"settings": {key: str(value) for key, value in vars(options).items()}}
        try:
            for what in MEASURED if options.what == "all" else [options.what]:
                result[what] = MEASURED[what][0](options)
                print(MEASURED[what][1](result[what]), file=sys.stderr)
        except BenchError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        print(json.dumps(result))
    if options.plot is not None and "curves" in result:
        draw(result["curves"], options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
