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


def changed_hello(replaced: dict[int, bytes]) -> bytes:
    """A ClientHello with other contents of some extensions, by their numbers."""
    body = client_hello()[5 + 4 :]
    at = 34  # behind version and random
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at : at + 2])
    at += 1 + body[at]
    head, extensions, changed = body[:at], body[at + 2 :], b""
    while extensions:
        number, size = int.from_bytes(extensions[:2]), int.from_bytes(extensions[2:4])
        content = replaced.get(number, extensions[4 : 4 + size])
        changed += number.to_bytes(2) + len(content).to_bytes(2) + content
        extensions = extensions[4 + size :]
    body = head + len(changed).to_bytes(2) + changed
    message = b"\x01" + len(body).to_bytes(3) + body
    parts = [message[start : start + 16384] for start in range(0, len(message), 16384)]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in parts)


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
