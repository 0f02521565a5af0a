"""Does a router's memory stay the same while tens of millions of messages pass? Twelve hours of work in short form.

A steady flow at full speed goes over the router, part after part. Meanwhile, again and again: clients come, attach
links and leave, with and without a word; a consumer stops for a while and goes on; another is killed with messages
unsettled; pre-settled and large messages pass. Resident memory is looked at after each part, when all but the steady
clients are gone. The verdict: what a straight line through the looks, without the first of them, grows by over the
whole run is no more than the bound. Result as JSON on standard output; exit status 1 when the verdict is against it or
an acknowledged message is lost.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from load import (
    TOPOLOGIES,
    Contestant,
    Load,
    Network,
    client,
    ended,
    networks,
    result,
    run,
    wait_attached,
)
from many_links import Clients
from options import add_cores, add_router, add_topology, parser_of
from routers import BenchError

WARM_UP = 0.2
"""Share of the run whose looks do not count: caches and pools fill."""
PAUSE_SECONDS = 0.3
"""A consumer is stopped for this long."""
VISITORS = 20
"""Connections that come and go in one turn, each with this many links."""
TURN_SECONDS = 0.2
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Look:
    """What was seen after a part."""

    messages: int
    """So far, of the steady flow."""
    resident_mib: float


class Company:
    """Clients that do what clients do, in a thread of their own, besides the steady flow."""

    def __init__(self, network: Network) -> None:
        topology = network.topology
        self._network = network
        self._source, self._target = network.endpoint(topology.receiver), network.endpoint(topology.sender)
        self._port = int(self._target.rpartition(":")[2])
        self._addresses = itertools.count()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="company")
        self._failure: BaseException | None = None
        self.turns = 0
        self.messages = 0
        """Received from others than the steady flow, but not by those that were killed."""

    def __enter__(self) -> Company:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what went wrong."""
        if self._failure is not None:
            raise BenchError(f"in turn {self.turns}: {self._failure!r}") from self._failure

    def _run(self) -> None:
        turns = itertools.cycle((self._visit, self._stopped, self._killed, self._presettled, self._large))
        try:
            while not self._stop.is_set():
                next(turns)()
                self.turns += 1
                self._stop.wait(TURN_SECONDS)
        except BaseException as error:
            self._failure = error

    def _pair(
        self, count: int, size: int, *, sender: tuple[object, ...] = (), receiver: tuple[object, ...] = ()
    ) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
        address = f"soak.{next(self._addresses)}"  # a new one every time: old ones have to go
        receiving = client("recv", self._source, address, count, *receiver, cores=self._network.client_cores)
        wait_attached(receiving)
        sending = client(
            "send", self._target, address, count, size, *sender, cores=self._network.client_cores
        )
        return sending, receiving

    def _arrive(self, *clients: subprocess.Popen[str]) -> bool:
        """Wait for their ends; whether nothing was lost."""
        sent, received = (result(one, PATIENCE_SECONDS) for one in clients)
        self.messages += received["received"]
        return bool(sent["ok"] and received["ok"])

    def _visit(self) -> None:
        """Connections with links for addresses that nobody used before; half of the links are detached first."""
        clients = Clients()
        links = []
        for _ in range(VISITORS):
            visitor = clients.connect(self._port)
            for number in range(VISITORS):
                address = f"visit.{next(self._addresses)}"
                links.append(visitor.receiver(address) if number % 2 else visitor.sender(address))
        clients.until(lambda: all(link.attached_at is not None for link in links), "visitors are attached")
        for link in links[::2]:
            link.detach()
        clients.until(lambda: all(link.detached for link in links[::2]), "visitors have detached")
        clients.close()

    def _stopped(self) -> None:
        """A consumer that stops and goes on."""
        sending, receiving = self._pair(20_000, 1000)
        with ended(sending, receiving):
            receiving.send_signal(signal.SIGSTOP)
            self._stop.wait(PAUSE_SECONDS)
            receiving.send_signal(signal.SIGCONT)
            if not self._arrive(sending, receiving):
                raise BenchError("a message for a consumer that had stopped was lost")

    def _killed(self) -> None:
        """A consumer that goes without a word, and its sender after it."""
        sending, receiving = self._pair(1_000_000, 100)
        with ended(sending, receiving):
            self._stop.wait(PAUSE_SECONDS)
            receiving.kill()
            receiving.communicate()
            self._stop.wait(PAUSE_SECONDS)
            sending.kill()
            sending.communicate()

    def _presettled(self) -> None:
        sending, receiving = self._pair(50_000, 100, sender=("--presettled",), receiver=("--timeout", 1))
        with ended(sending, receiving):
            self._arrive(sending, receiving)  # some may be dropped

    def _large(self) -> None:
        sending, receiving = self._pair(100, 1_000_000, sender=("--window", 10), receiver=("--credit", 10))
        with ended(sending, receiving):
            if not self._arrive(sending, receiving):
                raise BenchError("a large message was lost")


def growth_mib(looks: list[Look]) -> float:
    """Of a straight line through the looks after the warm-up, over the whole run."""
    total = looks[-1].messages
    counted = [look for look in looks if look.messages > total * WARM_UP]
    slope, _ = statistics.linear_regression(
        [look.messages for look in counted], [look.resident_mib for look in counted]
    )
    return slope * total


def soak(network: Network, options: argparse.Namespace) -> tuple[list[Look], int, int]:
    """The looks, and the turns and messages of the company."""
    looks: list[Look] = []
    turns = messages = 0
    parts = options.messages // options.part
    for part in range(1, parts + 1):
        with Company(network) as company:
            run(network, Load(options.part))
        company.check()
        turns, messages = turns + company.turns, messages + company.messages
        time.sleep(options.settle)
        looks.append(Look(part * options.part, round(network.resident_mib(), 2)))
        print(f"{looks[-1].messages:>12,} messages  {looks[-1].resident_mib:8.1f} MiB", file=sys.stderr)
    return looks, turns, messages


def parse_options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    add_router(parser)
    add_topology(parser)
    parser.add_argument("--messages", type=int, default=50_000_000, help="of the steady flow")
    parser.add_argument("--part", type=int, default=1_000_000, help="messages between two looks")
    parser.add_argument("--settle", type=float, default=0.5, help="seconds before a look")
    parser.add_argument("--bound", type=float, default=8.0, help="MiB that memory may grow by over the run")
    add_cores(parser)
    options = parser.parse_args()
    if options.messages < 10 * options.part:
        parser.error(
            f"--messages: at least ten parts are needed, so {10 * options.part:,} or a smaller --part"
        )
    return options


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the routers are stopped
    began = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="router-bench-") as directory,
            networks(
                [Contestant("soak", [options.router_cmd])],
                TOPOLOGIES[options.topology],
                Path(directory),
                workers=options.workers,
                router_cores=options.router_cores,
                client_cores=options.client_cores,
            ) as (network,),
        ):
            looks, turns, messages = soak(network, options)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    growth = growth_mib(looks)
    constant = growth <= options.bound
    print(
        f"{looks[-1].messages:,} messages and {messages:,} of other clients in {turns} turns, "
        f"{time.monotonic() - began:.0f} s: memory {looks[0].resident_mib:.1f} to {looks[-1].resident_mib:.1f} MiB, "
        f"growth {growth:+.1f} MiB, bound {options.bound:g}: {'constant' if constant else 'NOT CONSTANT'}",
        file=sys.stderr,
    )
    shown = [vars(look) for look in looks]
    print(json.dumps({"settings": vars(options), "growth_mib": growth, "constant": constant, "looks": shown}))
    return 0 if constant else 1


if __name__ == "__main__":
    sys.exit(main())
