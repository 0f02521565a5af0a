"""Options that several of the scripts take."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from load import ISTHMUS, TOPOLOGIES, Contestant


def parser_of(documentation: str | None) -> argparse.ArgumentParser:
    """A parser without options, for the script with this docstring."""
    return argparse.ArgumentParser(
        description=(documentation or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )


def add_router(parser: argparse.ArgumentParser) -> None:
    """Which router is measured."""
    parser.add_argument(
        "--router-cmd",
        default=ISTHMUS,
        metavar="CMD",
        help="command that starts a router, with {config} for its configuration file",
    )


def add_contestants(parser: argparse.ArgumentParser, also: str = "") -> None:
    """Which routers are measured side by side; see `contestants`. `also`: what is measured by default besides ours."""
    parser.add_argument(
        "--router-cmd",
        action="append",
        metavar="[NAME=]CMD",
        help="command that starts a router, with {config} for its configuration file; each is measured "
        f"(default: isthmus-router, from the environment this script runs in{also})",
    )


def contestants(given: Sequence[str] | None, default: Sequence[str]) -> list[Contestant]:
    """From `--router-cmd` options: CMD or NAME=CMD; without a name the program is its name."""
    found: list[Contestant] = []
    for text in given or default:
        named = re.fullmatch(r"([\w.+ -]+)=(.*)", text)
        name, command = named.groups() if named else (Path(shlex.split(text)[0]).name, text)
        taken = [other.name for other in found]
        found.append(Contestant(f"{name} {taken.count(name) + 1}" if name in taken else name, [command]))
    return found


def add_topology(parser: argparse.ArgumentParser) -> None:
    """Which routers there are, and how they are joined."""
    parser.add_argument("--topology", choices=sorted(TOPOLOGIES), default="single")


def add_cores(parser: argparse.ArgumentParser) -> None:
    """How many threads the routers have, and which cores they and the clients run on."""
    parser.add_argument("--workers", type=int, default=2, help="workerThreads of each router")
    parser.add_argument("--router-cores", default="0,1", help="of all routers, as for taskset")
    parser.add_argument("--client-cores", default="2,3", help="of the C clients, as for taskset")
