"""Frames of clients that keep to no limits, and a connection that never waits for the router's answers."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from typing import Any, Self

from tests.integration.support.raw import AMQP_HEADER, ATTACH, BEGIN, DETACH, END, FLOW, OPEN, frame

from isthmus_router.message.types import Described, Symbol, UInt, ULong, UShort

LARGE = UInt(2**31 - 1)


def opening(*, channels: int = 32767) -> bytes:
    """Protocol header and open frame."""
    return AMQP_HEADER + frame(OPEN, ["flood", "localhost", UInt(65536), UShort(channels)])


def begin(channel: int = 0) -> bytes:
    """A session with windows that do not matter."""
    return frame(BEGIN, [None, UInt(0), LARGE, LARGE, LARGE], channel=channel)


def end(channel: int = 0) -> bytes:
    """The end of a session."""
    return frame(END, [], channel=channel)


def attach(
    handle: int,
    name: str,
    address: str | None,
    *,
    receiver: bool = False,
    channel: int = 0,
    max_message_size: int = 0,
    capability: str | None = None,
) -> bytes:
    """A link that sends to `address`, or receives from it. Both ends have the capability, if any."""
    symbol = None if capability is None else Symbol(capability)
    source = Described(ULong(0x28), [address if receiver else None, *[None] * 9, symbol])
    target = Described(ULong(0x29), [None if receiver else address, *[None] * 5, symbol])
    fields: list[Any] = [name, UInt(handle), receiver, None, None, source, target, None, None, UInt(0)]
    fields.append(ULong(max_message_size))
    return frame(ATTACH, fields, channel=channel)


def detach(handle: int, channel: int = 0) -> bytes:
    """The close of a link."""
    return frame(DETACH, [UInt(handle), True], channel=channel)


def flow(handle: int, credit: int, channel: int = 0) -> bytes:
    """Credit for a link."""
    fields = [UInt(0), LARGE, UInt(0), LARGE, UInt(handle), UInt(0), UInt(credit)]
    return frame(FLOW, fields, channel=channel)


class Flood:
    """A connection whose input is counted and thrown away by a thread, so that sending never waits for it."""

    def __init__(
        self,
        port: int,
        tls: ssl.SSLContext | None = None,
        *,
        address: str | None = None,
        buffer: int | None = None,
    ) -> None:
        """`address`: the IP address of this end. `buffer`: the bytes that it holds until the router reads them, if not
        as many as the machine allows.
        """
        source = None if address is None else (address, 0)
        self._socket = socket.create_connection(("localhost", port), source_address=source)
        if buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
        self._socket.setblocking(False)
        # A TLS connection must not be read and written at once by two threads.
        self._turn = threading.Lock()
        self.closed = threading.Event()
        """The router has closed the connection, or this end has."""
        self.tail = b""
        """The last bytes that arrived."""
        threading.Thread(target=self._receive, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.leave()

    def _receive(self) -> None:
        data: bytes | None = None
        try:
            while data != b"":
                with self._turn:
                    data = self._read()
                if data is None:
                    self._wait(select.POLLIN)
                else:
                    self.tail = (self.tail + data)[-1000:]
        except (OSError, ValueError):  # ValueError: this end has closed the socket
            pass
        self.closed.set()

    def _wait(self, event: int) -> None:
        poll = select.poll()
        poll.register(self._socket, event)
        poll.poll()

    def _read(self) -> bytes | None:
        """What has arrived, nothing at the end, or None if nothing has arrived."""
        try:
            return self._socket.recv(1 << 20)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def send(self, *data: bytes) -> bool:
        """Send bytes; whether the connection still takes them."""
        left = memoryview(b"".join(data))
        try:
            while left:
                with self._turn:
                    sent = self._write(left)
                if not sent:
                    self._wait(select.POLLOUT)
                left = left[sent:]
        except (OSError, ValueError):
            return False
        return True

    def _write(self, data: memoryview) -> int:
        """The number of bytes that the connection has room for."""
        try:
            return self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def finish(self) -> None:
        """Send no more, as a client that has said everything."""
        self._socket.shutdown(socket.SHUT_WR)

    def leave(self) -> None:
        """Drop the connection without a word, as a crash would."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
