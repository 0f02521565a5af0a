"""Two relay sites on this machine: how much goes from one to the other, how fast, and what a relay's crash costs.

    relay.py load | kills | partition | sizes | members

Messages go from the newest member of one site to the newest of the other, which are no relays: over two relays. A table
goes to standard error, a JSON object a line to standard output. Exit status 1 if a message was lost, came twice or out
of order, or the sites did not come up.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from group_member import ADDRESS
from load import Load, Network, markdown, run
from options import parser_of
from routers import BenchError
from sites import BRIDGES, SITES, Member, MemberSites, router_sites

Result = dict[str, Any]
FROM, TO = SITES
SIZES = (100, 1_024, 10_240, 102_400)
MEMBERS = (3, 5, 8)
WARM_UP_SECONDS = 1.0
QUIET_SECONDS = 1.0
"""Without a message: no more will come."""
SHOWN = (
    "what", "level", "bridge", "members", "size", "rate", "per_second", "median_ms", "p99_ms", "cpu_us",
    "lost", "behind", "longest_gap_ms", "gap_p99_ms",
)  # fmt: skip


# Members without AMQP


def send(sites: MemberSites, rate: float, seconds: float, size: int) -> Result:
    """One load, and what came of it."""
    start(sites, rate, seconds, size)
    before = sites.cpu_seconds()
    result = finish(sites)
    spent = {name: cpu - before[name] for name, cpu in sites.cpu_seconds().items()}
    cpu_us = {name: round(cpu / result["sent"] * 1e6, 1) for name, cpu in spent.items()}
    return {"level": "members", "members": sites.size, "size": size, "rate": rate, **result, "cpu_us": cpu_us}


def start(sites: MemberSites, rate: float, seconds: float, size: int) -> None:
    """Have the sender begin."""
    sites.sites[TO][-1].ask(do="listen")
    sites.sites[FROM][-1].tell(do="send", rate=rate, seconds=seconds, size=size)


def finish(sites: MemberSites) -> Result:
    """Wait for all that is sent, or until no more comes."""
    sent = sites.sites[FROM][-1].answer()["sent"]
    heard = wait_heard(sites.sites[TO][-1], sent)
    if not heard["received"]:
        raise BenchError(f"nothing arrived of {sent} messages")
    return {**heard, "sent": sent, "lost": sent - heard["received"] + heard["behind"]}


def wait_heard(receiver: Member, sent: int) -> Result:
    """What the receiver has got when that is everything, or when it gets no more."""
    count, since = -1, time.monotonic()
    while True:
        heard = receiver.ask(do="heard")
        if heard["received"] != count:
            count, since = heard["received"], time.monotonic()
        if heard["highest"] + 1 >= sent or time.monotonic() > since + QUIET_SECONDS:
            return heard
        time.sleep(0.2)


def highest(sites: MemberSites, seconds: float, size: int) -> Result:
    """The load of a sender without end."""
    send(sites, 0, WARM_UP_SECONDS, size)
    return send(sites, 0, seconds, size)


def load_of_members(options: argparse.Namespace) -> Iterator[Result]:
    """As much as goes, and paced."""
    with MemberSites(options.members, options.relays) as sites:
        yield {"what": "load", **highest(sites, options.seconds, options.size)}
        for rate in options.rates:
            yield {"what": "load", **send(sites, rate, options.seconds, options.size)}


def sizes(options: argparse.Namespace) -> Iterator[Result]:
    """Throughput against the size of messages."""
    with MemberSites(options.members, options.relays) as sites:
        for size in SIZES:
            yield {"what": "sizes", **highest(sites, options.seconds, size)}


def members(options: argparse.Namespace) -> Iterator[Result]:
    """Throughput against the number of members of each site."""
    for number in MEMBERS:
        with MemberSites(number, options.relays) as sites:
            yield {"what": "members", **highest(sites, options.seconds, options.size)}


def kills(options: argparse.Namespace) -> Iterator[Result]:
    """A relay of each site is killed while messages pass; another member takes its place, and a new one joins."""
    random = Random(1)
    with MemberSites(options.members, options.relays) as sites:
        for site, which in ((FROM, "of the sender"), (TO, "of the receiver")):
            runs = []
            for _ in range(options.kills):
                start(sites, options.rates[0], options.seconds, options.size)
                time.sleep(options.seconds * (0.3 + random.random() * 0.2))
                sites.kill_relay(site)
                runs.append(finish(sites))
                sites.replace(site)
            gaps = sorted(each["longest_gap_ms"] for each in runs)
            yield {
                "what": f"kill the relay {which}",
                "level": "members",
                "members": options.members,
                "relays": options.relays,
                "size": options.size,
                "rate": options.rates[0],
                "kills": options.kills,
                **{
                    name: sum(each[name] for each in runs) for name in ("sent", "lost", "behind", "told_lost")
                },
                "longest_gap_ms": gaps[-1],
                "gap_p99_ms": gaps[max(0, -(-len(gaps) * 99 // 100) - 1)],
                "gap_median_ms": statistics.median(gaps),
                "gaps_ms": [round(gap, 1) for gap in gaps],
            }


def partition(options: argparse.Namespace) -> Iterator[Result]:
    """The bridge is blocked, both ways, while messages are sent on."""
    with MemberSites(options.members, options.relays, by_proxy=True) as sites:
        proxy = sites.proxy
        assert proxy is not None
        start(sites, options.rates[0], options.partition + 4, options.size)
        time.sleep(2)
        proxy.block()
        time.sleep(options.partition)
        proxy.unblock()
        result = finish(sites)
    yield {
        "what": f"partition of {options.partition:g} s",
        "level": "members",
        "members": options.members,
        "size": options.size,
        "rate": options.rates[0],
        **result,
    }


# Routers


def load_of_routers(options: argparse.Namespace) -> Iterator[Result]:
    """The same from AMQP client to AMQP client."""
    with (
        tempfile.TemporaryDirectory(prefix="relay-bench-") as directory,
        router_sites(options.members, options.bridge, Path(directory)) as network,
    ):
        found = amqp(network, options, None, 20_000 * WARM_UP_SECONDS)
        for rate in (None, *options.rates):
            found = amqp(network, options, rate, (rate or found["per_second"]) * options.seconds)
            fixed = {"level": "routers", "bridge": options.bridge, "members": options.members}
            yield {"what": "load", **fixed, **found}


def amqp(network: Network, options: argparse.Namespace, rate: float | None, messages: float) -> Result:
    """One run of the clients."""
    found = run(network, Load(int(messages), options.size, rate=rate, address=ADDRESS))
    return {
        "size": options.size,
        "rate": rate or 0,
        "sent": found.load.messages,
        "per_second": found.messages_per_second,
        "median_ms": found.latency_us("p50") / 1e3,
        "p99_ms": found.latency_us("p99") / 1e3,
        "lost": found.total("missing"),
        "behind": found.total("duplicates") + found.total("reordered"),
        "cpu_us": {name: round(each, 1) for name, each in found.cpu_us.items()},
    }


# Others


def load_of_peer(options: argparse.Namespace) -> Iterator[Result]:
    """What another implementation says of the same load; it prints JSON objects with the names used here."""
    for rate in (0, *options.rates):
        command = options.peer.format(rate=int(rate), seconds=options.seconds, size=options.size)
        output = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=True).stdout
        said: Result = {}
        for line in output.splitlines():
            if line.startswith("{"):
                said |= json.loads(line)
        lost = said.get("sent", 0) - said.get("received", 0)
        yield {"what": "load", "level": "peer", "size": options.size, "rate": rate, "lost": lost} | said


def load(options: argparse.Namespace) -> Iterator[Result]:
    """Members, routers, and the peer if there is one."""
    for _ in range(options.rounds):
        if options.peer:
            yield from load_of_peer(options)
        for level, of_level in (("members", load_of_members), ("routers", load_of_routers)):
            if level in options.levels:
                yield from of_level(options)


MODES = {"load": load, "kills": kills, "partition": partition, "sizes": sizes, "members": members}


def shown(name: str, value: object) -> str:
    """One cell."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {each:g}" for key, each in value.items())
    if isinstance(value, float):
        return f"{value:,.0f}" if name in ("per_second", "rate") else f"{value:,.2f}"
    return "" if value is None else f"{value}"


def table(results: Sequence[Result]) -> str:
    """Without columns that nobody fills."""
    columns = [name for name in SHOWN if any(name in each for each in results)]
    return markdown(columns, *([shown(name, each.get(name)) for name in columns] for each in results))


def parse_options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("mode", choices=sorted(MODES))
    parser.add_argument("--members", type=int, default=3, help="of each site")
    parser.add_argument("--relays", type=int, default=1, help="of each site, at a time; not with routers")
    parser.add_argument("--size", type=int, default=1_024, help="bytes of a message")
    parser.add_argument("--rates", type=float, nargs="+", default=[1_000, 20_000], help="besides the highest")
    parser.add_argument("--seconds", type=float, default=5, help="of each load")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--levels", nargs="+", choices=("members", "routers"), default=["members", "routers"])
    parser.add_argument("--bridge", choices=BRIDGES, default="direct", help="between sites of routers")
    parser.add_argument("--kills", type=int, default=50, help="in each site")
    parser.add_argument("--partition", type=float, default=30, help="seconds")
    parser.add_argument(
        "--peer", help="command that measures another implementation; {rate}, {seconds}, {size}"
    )
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that members are ended
    results: list[Result] = []
    try:
        for result in MODES[options.mode](options):
            results.append(result)
            print(json.dumps(result), flush=True)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if results:
            print(table(results), file=sys.stderr)
    ours = [each for each in results if each["level"] != "peer"]
    return 1 if any(each["lost"] or each["behind"] for each in ours) else 0


if __name__ == "__main__":
    sys.exit(main())
