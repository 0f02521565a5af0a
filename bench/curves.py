"""Cost per message against how much else there is: addresses, links and connections, standing by or in use.

For each curve a router is loaded step by step with more of one thing, and a bare one, of the same command, is measured
in turn with it, so that the ratio of the two does not depend on what else the machine does. Tables go to standard
error, JSON to standard output; `--plot FILE` draws them (the `bench` extra of the distribution has what that needs),
`--from FILE` draws from JSON written before. Exit status 1 when a router does not come up or a message is lost.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from load import (
    ISTHMUS,
    TOPOLOGIES,
    Contestant,
    Load,
    Network,
    idle_cpu,
    markdown,
    networks,
    run,
)
from many_links import Client, Clients, Link
from options import add_contestants, add_cores, contestants, parser_of
from routers import BenchError

LINKS_PER_CONNECTION = 10_000
ATTACH_AT_ONCE = 1000
HEARTBEAT_SECONDS = 2.0
UNDER_WAY = 1000
"""Messages under way at most on the links of one connection, unless there are more links."""
CREDIT = 250
"""Of each link in use; giving it back link by link would be most of the cost if it were little."""


@dataclass(frozen=True)
class Point:
    """One step of a curve."""

    count: int
    cpu_us: float
    """Per message."""
    bare_us: float
    """Of the bare router in the same minute."""
    messages_per_second: float
    resident_mib: float
    idle: float
    """Share of one core that the router takes while nothing happens."""


class Standing:
    """What stands by: receivers with credit, to which nothing is sent."""

    def __init__(self, network: Network) -> None:
        self._port = network.routers["A"].ports["normal"]
        self._clients = Clients()
        self._shared: Client | None = None
        self.count = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeats")

    def __enter__(self) -> Standing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._clients.close()

    def _beat(self) -> None:
        """Answer heartbeats while others are measured."""
        while not self._stop.wait(HEARTBEAT_SECONDS):
            with self._lock:
                self._clients.pause(0.01)

    def _attach(self, number: int, connect: Callable[[], Client], address: Callable[[int], str]) -> None:
        while self.count < number:
            links = []
            with self._lock:
                for _ in range(min(ATTACH_AT_ONCE, number - self.count)):
                    links.append(connect().receiver(address(self.count)))
                    self.count += 1
            with self._lock:
                self._clients.until(lambda links=links: _answered(links), "every link is attached")  # type: ignore[misc]

    def _connection(self) -> Client:
        if self._shared is None or len(self._shared.links) >= LINKS_PER_CONNECTION:
            self._shared = self._clients.connect(self._port)
        return self._shared

    def addresses(self, number: int) -> None:
        """Each with one receiver."""
        self._attach(number, self._connection, "standing/{}".format)

    def links(self, number: int) -> None:
        """All of one address."""
        self._attach(number, self._connection, lambda _: "standing")

    def connections(self, number: int) -> None:
        """Each with one receiver of an address of its own."""
        self._attach(number, lambda: self._clients.connect(self._port), "standing/{}".format)

    def settle(self) -> None:
        """Let what the attaching caused come to its end."""
        with self._lock:
            self._clients.pause(1.5)


def _answered(links: list[Link]) -> bool:
    return all(link.attached_at is not None for link in links)


def in_use(kind: str, count: int, messages: int) -> Load:
    """Messages over that many links, each with an address of its own, or from one link to as many consumers.

    On one connection, as many are under way as with one link. With several connections it is one message on each, so
    that each has to be read and written for every message, and none gets cheaper by being handled with others.
    """
    if kind == "consumers":
        return Load(messages, credit=CREDIT, consumers=count)
    several = kind == "connections"
    window = 1 if several else max(1, UNDER_WAY // count)
    return Load(messages, window=window, credit=CREDIT, links=count, connections=count if several else 1)


CURVES: dict[str, tuple[int, ...]] = {
    "addresses standing by": (1, 10, 100, 1000, 10_000, 100_000),
    "links standing by": (1, 10, 100, 1000, 10_000),
    "connections standing by": (1, 10, 100, 1000, 2000),
    "addresses in use": (1, 10, 100, 1000, 10_000),
    "connections in use": (10, 100, 1000, 2000),
    "consumers in use": (1, 10, 100, 1000, 10_000),
}


@contextmanager
def pair(command: Contestant, options: argparse.Namespace) -> Iterator[tuple[Network, Network]]:
    """The router that is loaded, and the bare one."""
    with (
        tempfile.TemporaryDirectory(prefix="router-bench-") as directory,
        networks(
            [command, command],
            TOPOLOGIES["single"],
            Path(directory),
            workers=options.workers,
            router_cores=options.router_cores,
            client_cores=options.client_cores,
        ) as (loaded, bare),
    ):
        yield loaded, bare


def measure(curve: str, command: Contestant, options: argparse.Namespace) -> list[Point]:
    """One curve of one router."""
    points = []
    kind, _, manner = curve.partition(" ")
    plain = (
        Load(options.messages)
        if manner == "standing by"
        else in_use(kind, CURVES[curve][0], options.messages)
    )
    with pair(command, options) as (loaded, bare), Standing(loaded) as standing:
        load = plain
        for count in CURVES[curve]:
            if count > options.most:
                break
            if manner == "standing by":
                getattr(standing, kind)(count)
                standing.settle()
            else:
                load = in_use(kind, count, options.messages)
            idle = idle_cpu(loaded, options.idle_seconds)
            runs = [(run(loaded, load), run(bare, plain)) for _ in range(options.rounds)]
            cpu, bare_cpu = (statistics.median(sum(two[n].cpu_us.values()) for two in runs) for n in (0, 1))
            rate = statistics.median(two[0].messages_per_second for two in runs)
            points.append(Point(count, cpu, bare_cpu, rate, loaded.resident_mib(), idle))
            print(f"{command.name}, {count} {curve}: {cpu:.2f} us, bare {bare_cpu:.2f}", file=sys.stderr)
    return points


def memory_each(points: list[dict[str, Any]]) -> float | None:
    """KiB for each of what a curve counts."""
    first, last = points[0], points[-1]
    if last["count"] < 1000:
        return None
    return float((last["resident_mib"] - first["resident_mib"]) * 1024 / (last["count"] - first["count"]))


def table(curves: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    head = (
        "what",
        "router",
        "how many",
        "µs per message",
        "bare router",
        "ratio",
        "messages/s",
        "MiB",
        "KiB each",
    )
    rows: list[tuple[object, ...]] = [(*head, "idle, % of a core")]
    for curve, found in curves.items():
        for router, points in found.items():
            each = memory_each(points)
            for point in points:
                shown = f"{each:.1f}" if each is not None and point is points[-1] else ""
                rows.append(
                    (
                        curve,
                        router,
                        f"{point['count']:,}",
                        f"{point['cpu_us']:.2f}",
                        f"{point['bare_us']:.2f}",
                        f"{point['cpu_us'] / point['bare_us']:.2f}",
                        f"{point['messages_per_second']:,.0f}",
                        f"{point['resident_mib']:.0f}",
                        shown,
                        f"{point['idle'] * 100:.1f}",
                    )
                )
    return markdown(*rows)


def plot(curves: dict[str, dict[str, list[dict[str, Any]]]], file: Path, each: str = "message") -> None:
    """Cost for each message (or what else), relative to the bare router, over how many there are."""
    import matplotlib as mpl  # noqa: PLC0415  # an extra that the measuring does without

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "curves", "font.size": 9})
    from matplotlib import pyplot  # noqa: PLC0415

    routers = list(dict.fromkeys(router for found in curves.values() for router in found))
    figure, axes = pyplot.subplots(
        1, len(routers), figsize=(5.2 * len(routers), 3.6), sharey=True, squeeze=False
    )
    for axis, router in zip(axes[0], routers, strict=True):
        for number, (curve, found) in enumerate(curves.items()):
            points = found.get(router, [])
            style = "s--" if curve.endswith("in use") else "o-"
            counts = [point["count"] for point in points]
            ratios = [point["cpu_us"] / point["bare_us"] for point in points]
            axis.plot(counts, ratios, style, color=f"C{number}", markersize=4, label=curve)
        axis.set(xscale="log", title=router, xlabel="how many")
        axis.axhline(1, color="0.7", linewidth=0.8)
        axis.grid(alpha=0.2)
    axes[0][0].set_ylabel(f"CPU per {each}, bare router = 1")
    axes[0][0].set_ylim(bottom=0)
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def parse_options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    add_contestants(parser)
    parser.add_argument("--curve", action="append", choices=list(CURVES), help="only this one")
    parser.add_argument("--most", type=int, default=100_000, help="no step beyond this number")
    parser.add_argument("--messages", type=int, default=200_000, help="in each run")
    parser.add_argument("--rounds", type=int, default=3, help="medians are reported")
    parser.add_argument("--idle-seconds", type=float, default=3, help="for the cost of doing nothing")
    add_cores(parser)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curves (SVG or PNG)")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="JSON of a run before")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the routers are stopped
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    result: dict[str, Any]
    if options.source is not None:
        result = json.loads(options.source.read_text())
    else:
        result = {"settings": {key: str(value) for key, value in vars(options).items()}, "curves": {}}
        try:
            for curve in options.curve or CURVES:
                for command in contestants(options.router_cmd, [ISTHMUS]):
                    points = [asdict(point) for point in measure(curve, command, options)]
                    result["curves"].setdefault(curve, {})[command.name] = points
        except BenchError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    print(table(result["curves"]), file=sys.stderr)
    if options.plot is not None:
        plot(result["curves"], options.plot)
    if options.source is None:
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
