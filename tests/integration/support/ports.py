"""Free loopback ports, each handed out once per test run."""

from __future__ import annotations

import socket

_given: set[int] = set()


def free_port(family: socket.AddressFamily = socket.AF_INET) -> int:
    """A TCP port nobody listens on."""
    while True:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
            port: int = sock.getsockname()[1]
        if port not in _given:
            _given.add(port)
            return port
