"""TLS records with one byte each, in the parts in which they are sent."""

from __future__ import annotations

import socket
import ssl
from typing import Self


class SmallRecords:
    """A connection that encrypts many of them before it sends all at once."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 20)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._encrypted = b""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._socket.sendall(self._outgoing.read())
                self._incoming.write(self._socket.recv(1 << 16))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def say(self, data: bytes) -> None:
        """Send it in usual records."""
        self._tls.write(data)
        self._socket.sendall(self._outgoing.read())

    def prepare(self, count: int) -> None:
        """Encrypt so many bytes."""
        for _ in range(count):
            self._tls.write(b"x")
        self._encrypted = self._outgoing.read()

    def send(self) -> None:
        """Send what is prepared, as fast as the peer reads it."""
        self._socket.sendall(self._encrypted)
