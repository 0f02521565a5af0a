"""Free loopback ports, each handed out once on this machine."""

from __future__ import annotations

import socket

_reserved: list[socket.socket] = []
"""Bound and never listening: nobody else is given these ports, while a router, which reuses addresses, may listen."""


def free_port(family: socket.AddressFamily = socket.AF_INET) -> int:
    """A TCP port nobody listens on, kept for this process."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _reserved.append(sock)
    port: int = sock.getsockname()[1]
    return port
