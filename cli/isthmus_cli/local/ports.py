"""Loopback ports of the local platform.

Every listener keeps its port for as long as its network exists, across restarts and changes. Ports are
taken from below the range the kernel uses for outgoing connections, so that no connection of some other
program can sit on one while a router is restarting.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterable, Mapping

LOOPBACK = "127.0.0.1"
LOOPBACK_NAME = "localhost"
RANGE = range(20000, 30000)


class NoPortError(RuntimeError):
    """All ports of the range are in use."""


def assign(
    wanted: Iterable[str], earlier: Mapping[str, int], free: Callable[[int], bool] | None = None
) -> dict[str, int]:
    """A port for each key of `wanted`: the one it had in `earlier`, or a free one. Raises NoPortError."""
    free = free or is_free
    ports = {key: earlier[key] for key in wanted if key in earlier}
    taken = set(earlier.values())
    candidates = iter(random.sample(RANGE, len(RANGE)))
    for key in wanted:
        if key in ports:
            continue
        port = next((port for port in candidates if port not in taken and free(port)), None)
        if port is None:
            raise NoPortError(f"no free port between {RANGE.start} and {RANGE.stop - 1}")
        ports[key] = port
    return ports


def is_free(port: int) -> bool:
    """Whether nothing listens on a loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
