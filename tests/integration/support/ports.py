"""Free loopback ports, each handed out once on this machine."""

from __future__ import annotations

import socket
from collections import deque

MOST_RESERVED = 500
"""Of this process; the tests that asked for older ones have ended. The gateway to Spark's driver uses `select()`, which
takes no file descriptors beyond 1,023: with more it hangs."""
_reserved: deque[socket.socket] = deque()
"""Bound and never listening: nobody else is given these ports, while a router, which reuses addresses, may listen."""


def free_port(family: socket.AddressFamily = socket.AF_INET) -> int:
    """A TCP port nobody listens on, kept for this process."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _reserved.append(sock)
    if len(_reserved) > MOST_RESERVED:
        _reserved.popleft().close()
    port: int = sock.getsockname()[1]
    return port
