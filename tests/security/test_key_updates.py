"""A TLS client sends key updates without pause: each is a record of 27 bytes and takes 50 microseconds."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.support.certificates import Authority
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import opening
from tests.security.support.key_updates import KeyUpdates

from isthmus_router.credentials import TlsFiles

CONNECTIONS, UPDATES = 5, 10_000
FEW = 50
MOST_CPU_SECONDS = 0.06
"""Of one turn. That of one connection took 0.12 s, that of all of them 0.6 s."""


def connect(port: int) -> tuple[socket.socket, KeyUpdates]:
    """A client whose handshake is over."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    client = KeyUpdates(context)
    sock = socket.create_connection(("localhost", port), 60)
    while data := client.shake_hands():
        sock.sendall(data)
        if client.tls.version() is not None and client.tls.cipher() is not None:
            break
        client.incoming.write(sock.recv(1 << 16))
    return sock, client


def received(sock: socket.socket, client: KeyUpdates) -> bytes:
    """What the router says next, behind its own key updates."""
    while True:
        client.incoming.write(sock.recv(1 << 16))
        try:
            return client.tls.read(1 << 16)
        except ssl.SSLWantReadError:
            continue


def test_clients_of_a_listener(either_kernel: Callable[[], Routers], tmp_path: Path) -> None:
    identity = Authority(tmp_path, "bank").issue("localhost")
    port = free_port()
    secured = listener(port, name="secure", sslProfile="tls", requireSsl=True)
    router = either_kernel().add("A", identity.profile(), secured).start()
    honest, client = connect(port)
    honest.settimeout(60)
    attackers = [connect(port) for _ in range(CONNECTIONS)]
    pieces = [client.encrypt(opening()) + client.update(UPDATES) for _, client in attackers]

    def attack(sock: socket.socket, data: bytes) -> None:
        try:
            sock.sendall(data)
            while sock.recv(1 << 16):
                pass
        except OSError:
            pass

    with Canary(router) as canary:
        threads = [
            threading.Thread(target=attack, args=(sock, data))
            for (sock, _), data in zip(attackers, pieces, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "the router has ended the connections"
        router.await_log("TLS session ended", "key updates")
        honest.sendall(client.update(FEW) + client.encrypt(opening()))
        assert received(honest, client)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


@pytest.mark.parametrize(("times", "is_ended"), [(FEW, False), (1000, True)])
def test_contexts_of_members_and_gossip_routers(tmp_path: Path, times: int, *, is_ended: bool) -> None:
    identity = Authority(tmp_path, "bank").issue("localhost")
    files = TlsFiles(str(identity.certificate), str(identity.key), None)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = files.read().context(ssl.PROTOCOL_TLS_SERVER).wrap_bio(incoming, outgoing, server_side=True)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    client = KeyUpdates(context)
    for _ in range(3):
        incoming.write(client.shake_hands())
        with contextlib.suppress(ssl.SSLWantReadError):
            server.do_handshake()
        client.incoming.write(outgoing.read())
    incoming.write(client.update(times) + client.encrypt(b"data"))
    assert server.read() == (b"" if is_ended else b"data")
