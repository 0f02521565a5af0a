"""Free loopback ports, each handed out once per test run."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Iterator

# Below the ports that the kernel gives to outgoing connections: until its router listens, no client takes one.
_FIRST, _END = 16000, 30000
_WORKERS = 16


def _own_ports() -> Iterator[int]:
    """The ports of this worker of pytest-xdist; the order differs between test runs on one machine."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = list(range(_FIRST + worker % _WORKERS, _END, _WORKERS))
    random.SystemRandom().shuffle(ports)
    yield from ports


_ports = _own_ports()


def free_port(family: socket.AddressFamily = socket.AF_INET) -> int:
    """A TCP port nobody listens on."""
    for port in _ports:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                raise
        return port
    raise AssertionError("every port has been handed out")
