"""Loopback ports of the local platform.

Every listener keeps its port for as long as its network exists, across restarts and changes. Ports are
taken from below the range the kernel uses for outgoing connections, so that no connection of some other
program can sit on one while a router is restarting. A new port is claimed until the routers listen: another network
that is started at the same time is not given it.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterable, Mapping

LOOPBACK = "127.0.0.1"
LOOPBACK_NAME = "localhost"
RANGE = range(20000, 30000)


_claimed: list[socket.socket] = []
"""Bound and never listening."""


class NoPortError(RuntimeError):
    """All ports of the range are in use."""


def assign(
    wanted: Iterable[str], earlier: Mapping[str, int], claimed: Callable[[int], bool] | None = None
) -> dict[str, int]:
    """A port for each key of `wanted`: the one it had in `earlier`, or a free one. Raises NoPortError."""
    claimed = claimed or claim
    ports = {key: earlier[key] for key in wanted if key in earlier}
    taken = set(earlier.values())
    candidates = iter(random.sample(RANGE, len(RANGE)))
    for key in wanted:
        if key in ports:
            continue
        port = next((port for port in candidates if port not in taken and claimed(port)), None)
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


def claim(port: int) -> bool:
    """Keeps a loopback port from other claims until `release_claims`; a router may listen on it.

    Returns False when somebody has claimed it, listens on it, or has connections there.
    """
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.bind((LOOPBACK, port))
    except OSError:
        held.close()
        return False
    # The option follows `bind`, which fails for a port in use without it. A router sets the option too, so it may bind.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _claimed.append(held)
    return True


def release_claims() -> None:
    """Ends the claims of this process."""
    while _claimed:
        _claimed.pop().close()
