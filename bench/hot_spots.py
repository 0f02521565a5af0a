"""Where the CPU time of a message goes: `perf` samples of a router under load, by what it is for.

Needs perf, and leave to use it (kernel.perf_event_paranoid). The table goes to standard error: microseconds per
message and share of each part, and the symbols that take the most. JSON to standard output.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from load import (
    TOPOLOGIES,
    Contestant,
    Load,
    Network,
    Run,
    markdown,
    networks,
    run,
)
from options import add_cores, add_router, add_topology, parser_of
from routers import BenchError

SAMPLES_PER_SECOND = 1999
PARTS: tuple[tuple[str, str, str], ...] = (
    ("system calls: sockets, epoll, scheduling", r"kernel", r""),
    ("reading and writing, compiled", r"^compiled", r""),
    ("forwarding kernel, compiled", r"^drain", r""),
    (
        "engine: decoding frames",
        r"cproton",
        r"^pn_do_|dispatch|consume|decode|pni_islist|pn_amqp_decode|read_amqp",
    ),
    ("engine: encoding frames", r"cproton", r"emit|encode|post_|output|write_amqp|framing"),
    ("engine: deliveries, links, events, buffers", r"cproton", r""),
    ("interpreter, and the objects of the compiled parts", r"libpython|python3", r""),
    ("calls from Python into the engine", r"cffi", r""),
    ("event loop", r"^loop|uvloop|libuv|asyncio", r""),
    ("C library: memory and copies", r"libc[.-]|ld-linux|libm[.-]|vdso", r""),
    ("TLS", r"libssl|libcrypto", r""),
)
"""What a part is called, the objects it is in, and its symbols there; the first that fits counts."""
OTHER = "other"


def part_of(binary: str, symbol: str) -> str:
    for name, binaries, symbols in PARTS:
        if re.search(binaries, binary) and re.search(symbols, symbol):
            return name
    return OTHER


def sample(network: Network, load: Load, data: Path) -> Run:
    """One run of the load, with samples of the first router in `data`."""
    pid = next(iter(network.routers.values())).process.pid
    command = ["perf", "record", "-q", "-F", str(SAMPLES_PER_SECOND), "-o", str(data), "-p", str(pid)]
    try:
        perf = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        raise BenchError(f"perf does not start: {error}") from error
    try:
        return run(network, load)
    finally:
        perf.send_signal(signal.SIGINT)
        _, errors = perf.communicate(timeout=30)
        if not data.exists():
            raise BenchError(f"perf took no samples: {errors}")


def shares(data: Path) -> dict[tuple[str, str], float]:
    """Of each object and symbol, between 0 and 1."""
    command = ["perf", "report", "-i", str(data), "--stdio", "--no-children", "-g", "none", "-t", "\t"]
    command += ["-F", "overhead,dso,symbol"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[tuple[str, str], float] = defaultdict(float)
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) >= 3 and cells[0].endswith("%"):
            found[cells[1], re.sub(r"^\[.\] ", "", cells[2])] += float(cells[0][:-1]) / 100
    return found


def parse_options() -> argparse.Namespace:
    parser = parser_of(__doc__)
    add_router(parser)
    add_topology(parser)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of message body")
    parser.add_argument("--window", type=int, help="messages under way at most (1: one at a time)")
    parser.add_argument("--symbols", type=int, default=12, help="how many are shown")
    add_cores(parser)
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the routers are stopped
    try:
        with (
            tempfile.TemporaryDirectory(prefix="router-bench-") as folder,
            networks(
                [Contestant("router", [options.router_cmd])],
                TOPOLOGIES[options.topology],
                Path(folder),
                workers=options.workers,
                router_cores=options.router_cores,
                client_cores=options.client_cores,
            ) as (network,),
        ):
            data = Path(folder, "samples")
            found = sample(network, Load(options.messages, options.size, window=options.window), data)
            symbols = shares(data)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    cpu_us = next(iter(found.cpu_us.values()))
    parts: dict[str, float] = defaultdict(float)
    for (binary, symbol), share in symbols.items():
        parts[part_of(binary, symbol)] += share
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    rows = [(name, f"{share * cpu_us:.2f}", f"{share:.0%}") for name, share in ordered]
    print(markdown(("part", "µs per message", "share"), *rows, ("sum", f"{cpu_us:.2f}", "")), file=sys.stderr)
    most = sorted(symbols.items(), key=lambda item: -item[1])[: options.symbols]
    rows = [(f"`{symbol}`", binary, f"{share * cpu_us:.3f}") for (binary, symbol), share in most]
    print(f"\n{markdown(('symbol', 'in', 'µs per message'), *rows)}", file=sys.stderr)
    print(json.dumps({"settings": vars(options), "cpu_us_per_message": cpu_us, "parts": parts}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
