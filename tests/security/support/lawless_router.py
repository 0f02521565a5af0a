"""A router that sends a collector frames which no router sends, on each of its connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.integration.support.raw import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    DISPOSITION,
    END,
    FLOW,
    HEARTBEAT,
    OPEN,
    SASL_HEADER,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    TRANSFER,
    frame,
)
from tests.security.support.frames import attach, begin, detach, flow

from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.message.types import Array, Described, Symbol, UByte, UInt, ULong, UShort, decode

SOURCE = "evil:0"
SECONDS = 30
_WINDOW = UInt(2**31 - 1)
_ACCEPTED = Described(ULong(0x24), [])
LARGE_STATE = Described(ULong(0x25), [Described(ULong(0x1D), [Symbol("a:b"), "x" * 30_000])])


class Connection:
    """One to the collector, which has attached links for a source."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._stream = peer.makefile("rb")
        self.handles: dict[str, int] = {}
        """Of the links of the collector, by address."""
        self.names: dict[str, str] = {}
        self.sent = 0
        """Messages."""

    def greet(self, opening: bytes) -> None:
        """Up to the open frames."""
        if self._exactly(8) == SASL_HEADER:
            self.send(SASL_HEADER, frame(SASL_MECHANISMS, [Array(Symbol, (Symbol("ANONYMOUS"),))]))
            self._next()
            self.send(frame(SASL_OUTCOME, [UByte(0)]))
            self._exactly(8)
        self.send(AMQP_HEADER, opening)

    def introduce(self) -> None:
        """Have the collector attach its links for a source."""
        self.await_links("mc/sfe.all")
        properties = {
            "v": UInt(1),
            "sourceType": "ROUTER",
            "id": SOURCE,
            "address": f"mc/sfe.{SOURCE}",
            "direct": f"sfe.{SOURCE}",
        }
        beacon = Message(
            properties=Properties(message_id=ULong(1), subject="BEACON"),
            application_properties=properties,
            body=None,
        )
        self.send(self.transfer("mc/sfe.all", encode_message(beacon)))
        self.await_links(f"mc/sfe.{SOURCE}", f"mc/sfe.{SOURCE}.flows", f"sfe.{SOURCE}")

    def send(self, *data: bytes) -> None:
        """Bytes as they are."""
        self._peer.sendall(b"".join(data))

    def transfer(self, address: str, payload: bytes = b"", **options: Any) -> bytes:
        """The next message, or part of one, on a link of the collector."""
        number = options.get("number", self.sent)
        self.sent = number + 1
        tag, settled, more = (
            options.get("tag", b"x"),
            options.get("settled", True),
            options.get("more", False),
        )
        fields = [UInt(self.handles[address]), UInt(number), tag, UInt(0), settled, more]
        return frame(TRANSFER, fields, payload)

    def await_links(self, *addresses: str) -> None:
        """Answer until the collector has attached to all of them."""
        while not set(addresses) <= set(self.handles):
            code, fields = self._next()
            if code == BEGIN:
                self.send(frame(BEGIN, [UShort(0), UInt(0), _WINDOW, _WINDOW]))
            elif code == ATTACH:
                self._answer(fields)

    def await_command(self) -> None:
        """Wait until the collector has sent one."""
        while self._next()[0] != TRANSFER:
            pass

    def _answer(self, fields: list[Any]) -> None:
        name, handle, receives, source, target = fields[0], UInt(fields[1]), fields[2], fields[5], fields[6]
        address = (source if receives else target).value[0]
        self.handles[address], self.names[address] = handle, name
        self.send(
            frame(ATTACH, [name, handle, not receives, None, None, source, target, None, None, UInt(0)])
        )
        if not receives:
            self.send(flow(handle, 1000))

    def until_closed(self) -> None:
        """Heartbeats, until the collector ends the connection."""
        self._peer.settimeout(1)
        while True:
            try:
                if not self._peer.recv(65536):
                    return
            except TimeoutError:
                self.send(HEARTBEAT)

    def _exactly(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def _next(self) -> tuple[int, list[Any]]:
        body = self._exactly(int.from_bytes(self._exactly(4)) - 4)[4:]
        if not body:
            return 0, []
        described: Any = decode(body, most=10_000)[0]
        return int(described.descriptor), list(described.value)


_RECORDS, _COMMANDS = f"mc/sfe.{SOURCE}", f"sfe.{SOURCE}"


def _dispositions(first: int, last: int, *, state: Any = _ACCEPTED) -> bytes:
    return frame(DISPOSITION, [True, UInt(first), UInt(last), True, state])


def _backwards(router: Connection) -> None:
    for _ in range(20):
        router.send(*(router.transfer(_COMMANDS, settled=False) for _ in range(500)))
    router.send(frame(DISPOSITION, [False, UInt(1), UInt(router.sent - 1), False, LARGE_STATE]))


def _beyond_credit(router: Connection) -> None:
    for _ in range(100):
        router.send(*(router.transfer(_RECORDS, b"x" * 10, settled=False) for _ in range(1000)))


def _never_ended(router: Connection) -> None:
    tag = b"t" * 20_000
    router.send(
        *(router.transfer(address, tag=tag, more=True) for address in (_RECORDS, _RECORDS + ".flows"))
    )


def _again(router: Connection) -> None:
    router.await_command()
    for _ in range(1000):
        router.send(_dispositions(0, 0) * 100)


def _overdrawn(router: Connection) -> None:
    """The engine then has credit of a size that it cannot give."""
    handle = UInt(router.handles[_RECORDS])
    count = UInt(2**31 - 1)
    router.send(frame(FLOW, [UInt(0), _WINDOW, UInt(0), _WINDOW, handle, count, UInt(0)]))


def _attached_again(router: Connection) -> None:
    name = router.names[_RECORDS]
    router.send(*(attach(1000 + number, name, _RECORDS) for number in range(1000)))


def _ended_and_begun(router: Connection) -> None:
    router.send(frame(END, []), frame(BEGIN, [UShort(0), UInt(0), _WINDOW, _WINDOW]))


PLAYS: dict[str, tuple[Callable[[Connection], None], str]] = {
    "transfers on a link on which the collector sends": (_backwards, "on which the collector sends"),
    "messages without credit": (_beyond_credit, "without credit"),
    "tags of 20 kB of messages without an end": (_never_ended, "a long tag"),
    "the same disposition without pause": (_again, "name too many"),
    "dispositions of all messages": (
        lambda router: router.send(_dispositions(0, 2**32 - 1, state=LARGE_STATE)),
        "has not sent",
    ),
    "more credit given up than there is": (_overdrawn, "beyond the credit"),
    "the end of the session": (lambda router: router.send(frame(END, [])), "has ended the session"),
    "the end of the session, and another one": (_ended_and_begun, ""),
    "another session": (lambda router: router.send(begin(5), frame(END, [])), "has not asked for"),
    "another open": (lambda router: router.send(frame(OPEN, ["other"]) * 3), "a second open"),
    "a link attached again": (_attached_again, "has not asked for"),
    "detaches of no link": (lambda router: router.send(detach(77)), "a handle of no link"),
    "frames that never end": (lambda router: router.send(b"\x7f\xff\xff\xff\x02\x00\x00\x00"), "a frame of"),
}
"""What it does, and a part of the reason that the collector logs."""
OPENINGS: dict[str, tuple[bytes, str]] = {
    "heartbeats each half millisecond": (
        frame(OPEN, ["router", None, None, None, UInt(1)]),
        "idle-time-out",
    ),
    "sessions behind the header": (
        frame(OPEN, ["router"]) + b"".join(begin(channel) for channel in range(1, 1000)),
        "has not asked for",
    ),
    "transfers before the open": (frame(TRANSFER, [UInt(0), UInt(0), b"x"]) * 1000, "before the open"),
    "a session with few links": (frame(OPEN, ["router"]), "is less than"),
}


class LawlessRouter:
    """Accepts connections one after the other; `played` counts those on which it has done so."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._listening = socket.create_server(("localhost", 0))
        self.port: int = self._listening.getsockname()[1]
        self.played = 0
        self.ended = 0
        """Connections that the collector has ended after that."""
        self.reason = (PLAYS.get(what) or OPENINGS[what])[1]
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """Accept no more."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._listening.accept()
                with peer:
                    peer.settimeout(SECONDS)
                    self._serve(Connection(peer))

    def _serve(self, router: Connection) -> None:
        with suppress(OSError, EOFError):
            opening, _ = OPENINGS.get(self._what, (frame(OPEN, ["router"]), ""))
            router.greet(opening)
            if self._what in PLAYS:
                router.introduce()
        self.played += 1
        with suppress(OSError, EOFError):
            if self._what in PLAYS:
                PLAYS[self._what][0](router)
            elif self._what == "a session with few links":
                router.send(frame(BEGIN, [UShort(0), UInt(0), _WINDOW, _WINDOW, UInt(10)]))
            router.until_closed()
        self.ended += 1
