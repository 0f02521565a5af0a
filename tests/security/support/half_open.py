"""Connections of an attacker that are never opened."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Iterator

HOST = "127.0.0.2"
"""The attacker's address; that of members and other clients is another one."""


def half_open(port: int, count: int) -> list[socket.socket]:
    """So many connections from `HOST` that send nothing, the oldest first."""
    return [socket.create_connection(("127.0.0.1", port), 60, (HOST, 0)) for _ in range(count)]


def client_hello() -> bytes:
    """What a TLS client sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def still_open(sockets: list[socket.socket]) -> int:
    """How many the other end has not closed; what it sends is thrown away."""
    poll = select.poll()
    by_number = {sock.fileno(): sock for sock in sockets if sock.fileno() >= 0}
    for number in by_number:
        poll.register(number, select.POLLIN)
    closed = 0
    for number, _ in poll.poll(0):
        sock = by_number[number]
        sock.setblocking(False)
        try:
            while data := sock.recv(1 << 16):
                pass
        except BlockingIOError:
            continue
        except OSError:
            data = b""
        closed += not data
    return len(by_number) - closed


@contextlib.contextmanager
def flood(*ports: int, alive: int = 300) -> Iterator[None]:
    """Keeps so many half-open connections to each port; one that is closed is replaced."""
    stop = threading.Event()
    held: dict[int, list[socket.socket]] = {port: half_open(port, alive) for port in ports}

    def replace() -> None:
        poll = select.poll()
        ports_of = {sock.fileno(): (port, sock) for port, sockets in held.items() for sock in sockets}
        for number in ports_of:
            poll.register(number, select.POLLIN)
        while not stop.is_set():
            for number, _ in poll.poll(50):
                port, sock = ports_of[number]
                with contextlib.suppress(OSError):
                    if sock.recv(1 << 16):
                        continue
                poll.unregister(number)
                del ports_of[number]
                sock.close()
                with contextlib.suppress(OSError):
                    (successor,) = half_open(port, 1)
                    ports_of[successor.fileno()] = port, successor
                    poll.register(successor.fileno(), select.POLLIN)
        for _, sock in ports_of.values():
            sock.close()

    attacker = threading.Thread(target=replace)
    attacker.start()
    try:
        yield
    finally:
        stop.set()
        attacker.join()
