"""A router that sends what cannot be decoded, takes long to decode, or was not asked for, on each connection."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any, BinaryIO
from uuid import UUID

from tests.integration.support.raw import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    OPEN,
    SASL_HEADER,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    frame,
)
from tests.security.support.frames import attach, begin

from isthmus_router.message.types import Array, Described, Encoded, Symbol, UByte, UInt, ULong, UShort, decode

NO_TEXT = Encoded(b"\xa1\x03a\xff\xfe")
"""A string that is not UTF-8."""
LIST_AS_KEY = Encoded(b"\xd1\x00\x00\x00\x06\x00\x00\x00\x02\x45\x40")
"""A map with a list as its key, which Python cannot hold."""
WINDOW = UInt(1000)
UNDECODABLE = {
    "open": (NO_TEXT,),
    "close": (Described(ULong(0x1D), [Symbol("amqp:internal-error"), NO_TEXT]),),
    "close with details": (Described(ULong(0x1D), [Symbol("amqp:internal-error"), "x", LIST_AS_KEY]),),
    "detach": (Described(ULong(0x1D), [Symbol("amqp:internal-error"), NO_TEXT]),),
    "detach with details": (Described(ULong(0x1D), [Symbol("amqp:internal-error"), "x", LIST_AS_KEY]),),
}
"""The fields that cannot be decoded, by the frame that has them."""
SAME_HASH = {UUID(int=number * (2**61 - 1)): None for number in range(1, 1701)}
"""Keys that Python's dictionaries compare one by one. The engine takes frames of 32 KiB."""
COSTLY = {
    what: (Described(ULong(0x1D), [Symbol("amqp:internal-error"), "x", SAME_HASH]),)
    for what in ("close with many keys", "detach with many keys")
}
UNASKED = {
    "sessions": b"".join(begin(channel) for channel in range(1, 1000)),
    "links": b"".join(attach(handle, f"unasked-{handle}", "x") for handle in range(1000, 1500)),
}
"""Frames that the collector has not asked for."""


class MaliciousRouter:
    """Accepts connections one after the other; `sent` counts those on which it has sent such a value or frames."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._listening = socket.create_server(("localhost", 0))
        self.port: int = self._listening.getsockname()[1]
        self.sent = 0
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """Accept no more."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._listening.accept()
                with suppress(OSError, EOFError), peer, peer.makefile("rb") as stream:
                    self._serve(peer, stream)

    def _serve(self, peer: socket.socket, stream: BinaryIO) -> None:
        if _exactly(stream, 8) == SASL_HEADER:
            mechanisms = frame(SASL_MECHANISMS, [Array(Symbol, (Symbol("ANONYMOUS"),))])
            peer.sendall(SASL_HEADER + mechanisms)
            _next_frame(stream)
            peer.sendall(frame(SASL_OUTCOME, [UByte(0)]))
            _exactly(stream, 8)
        undecodable = list({**UNDECODABLE, **COSTLY}.get(self._what, ()))
        peer.sendall(AMQP_HEADER + frame(OPEN, undecodable if self._what == "open" else ["router"]))
        if self._what.startswith("close"):
            peer.sendall(frame(CLOSE, undecodable))
        if self._what == "sessions":
            peer.sendall(UNASKED["sessions"])
        if not self._what.startswith("detach") and self._what != "links":
            self.sent += 1
        while True:
            code, fields = _next_frame(stream)
            if code == BEGIN:
                peer.sendall(frame(BEGIN, [UShort(0), UInt(0), WINDOW, WINDOW]))
                if self._what == "links":
                    peer.sendall(UNASKED["links"])
                    self.sent += 1
            elif code == ATTACH and self._what.startswith("detach"):
                handle = UInt(fields[1])
                peer.sendall(frame(ATTACH, [fields[0], handle, not fields[2], *[None] * 6, UInt(0)]))
                peer.sendall(frame(DETACH, [handle, True, *undecodable]))
                self.sent += 1


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data: bytes = stream.read(size) or b""
    if len(data) < size:
        raise EOFError
    return data


def _next_frame(stream: BinaryIO) -> tuple[int, list[Any]]:
    body = _exactly(stream, int.from_bytes(_exactly(stream, 4)) - 4)[4:]
    if not body:
        return 0, []
    described: Any = decode(body, most=10_000)[0]
    return int(described.descriptor), list(described.value)
