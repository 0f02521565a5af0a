"""Peers that say what they like: AMQP frames by hand on a socket, and an inter-router neighbour made of them."""

from __future__ import annotations

import itertools
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from tests.integration.support.links import TIMEOUT_SECONDS

from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.message.sections import encode_annotations
from isthmus_router.message.types import Described, Symbol, UInt, ULong, UShort, decode, encode
from isthmus_router.routing.messages import HELLO_ADDRESS, control_address

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
HEARTBEAT = bytes([0, 0, 0, 8, 2, 0, 0, 0])
"""An empty frame."""
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SASL_MECHANISMS, SASL_INIT, SASL_CHALLENGE, SASL_RESPONSE, SASL_OUTCOME = range(0x40, 0x45)
_LARGE = UInt(2**31 - 1)
_CONSTANTS = {0x40: None, 0x41: True, 0x42: False, 0x43: UInt(0)}
"""Values whose type code is all there is of them."""
_PIECE_BYTES = 16_000
"""Of a message in one frame: the router takes frames of 16 KiB."""


def frame(code: int, fields: list[Any], payload: bytes = b"", *, channel: int = 0) -> bytes:
    """An AMQP frame, or a SASL frame for a code of SASL."""
    body = encode(Described(ULong(code), fields)) + payload
    return struct.pack(">IBBH", len(body) + 8, 2, int(code >= SASL_MECHANISMS), channel) + body


def await_input(sock: socket.socket, seconds: float) -> None:
    """Wait, no longer than that, until there is something to read; `select` knows only the first 1,024 files."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    poll.poll(seconds * 1000)


class Arrived(NamedTuple):
    """A frame of the router: its performative's code and fields, what follows them, its channel, its size in bytes."""

    code: int
    fields: list[Any]
    payload: bytes
    channel: int
    size: int

    def field(self, index: int) -> Any:
        """A field; None when it is left out at the end of the list."""
        return self.fields[index] if index < len(self.fields) else None


def _any_frame(frame: bytes) -> Arrived:
    value, end = decode(frame[8:])
    assert isinstance(value, Described)
    fields: Any = value.value
    channel = int.from_bytes(frame[6:8])
    return Arrived(int(str(value.descriptor)), fields, frame[8 + end :], channel, len(frame))


def _usual_transfer(frame: bytes) -> Arrived | None:
    """The same of a transfer as routers write most of them, in a fifth of the time: some tests receive a million."""
    if not frame.startswith(b"\x00\x53\x14\xc0", 8):
        return None
    at, end = 14, 13 + frame[12]
    fields: list[Any] = []
    while at < end:
        code = frame[at] if at < len(frame) else -1
        if code in _CONSTANTS:
            fields.append(_CONSTANTS[code])
            at += 1
        elif code == 0x52:
            fields.append(UInt.from_bytes(frame[at + 1 : at + 2]))
            at += 2
        elif code == 0x70:
            fields.append(UInt.from_bytes(frame[at + 1 : at + 5]))
            at += 5
        elif code == 0xA0:
            start, at = at + 2, at + 2 + int.from_bytes(frame[at + 1 : at + 2])
            fields.append(frame[start:at])
        else:
            return None
    if at != end or at > len(frame) or len(fields) != frame[13]:
        return None
    return Arrived(TRANSFER, fields, frame[end:], int.from_bytes(frame[6:8]), len(frame))


def value_section(value: bytes) -> bytes:
    """A message of an amqp-value section alone."""
    return b"\x00\x53\x77" + value


def list_of_nulls(count: int) -> bytes:
    """A list that takes a byte to send, and eight to keep, for each of its elements."""
    return b"\xd0" + (count + 4).to_bytes(4) + count.to_bytes(4) + b"\x40" * count


class RawConnection:
    """Frames on a socket, sent without a look at what the router says."""

    def __init__(self, port: int, *, address: str | None = None) -> None:
        """`address`: the IP address of this end."""
        source = None if address is None else (address, 0)
        self.socket = socket.create_connection(("localhost", port), TIMEOUT_SECONDS, source)
        self._input = b""
        self._kept: list[Arrived] = []
        self.ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *data: bytes) -> None:
        """Send bytes, all of them."""
        self.socket.sendall(b"".join(data))

    def receive(self) -> bytes:
        """Everything until the router closes the socket."""
        received = b""
        try:
            while data := self.socket.recv(65536):
                received += data
        except ConnectionResetError:
            pass
        return received

    def frames(self) -> list[tuple[int, list[Any], bytes]]:
        """What has arrived: (code, fields, payload) each, without empty frames and protocol headers."""
        return [(one.code, one.fields, one.payload) for one in self.arrived()]

    def arrived(self) -> list[Arrived]:
        """As `frames`, with channel and size. An end of the stream is `ended`."""
        self.socket.setblocking(False)
        try:
            while data := self.socket.recv(65536):
                self._input += data
            self.ended = True
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.ended = True
        finally:
            self.socket.settimeout(TIMEOUT_SECONDS)
        found = []
        start = 0
        while len(self._input) - start >= 8:
            size = (
                8
                if self._input.startswith(b"AMQP", start)
                else int.from_bytes(self._input[start : start + 4])
            )
            if len(self._input) - start < size:
                break
            one = self._input[start : start + size]
            start += size
            if size > 8:
                found.append(_usual_transfer(one) or _any_frame(one))
        self._input = self._input[start:]
        return found

    def expect(self, code: int, count: int = 1) -> list[Arrived]:
        """Wait for that many frames of one kind; the others that came with them are kept for the next call."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            self._kept += self.arrived()
            found = [one for one in self._kept if one.code == code][:count]
            if len(found) == count:
                taken = set(map(id, found))  # frames of equal content are different ones
                self._kept = [one for one in self._kept if id(one) not in taken]
                return found
            assert not self.ended, (
                f"closed before {len(found) + 1} of {count} frames 0x{code:x}: {self._kept}"
            )
            assert time.monotonic() < deadline, f"{len(found)} of {count} frames 0x{code:x}: {self._kept}"
            await_input(self.socket, 1)

    def expect_one_of(self, *codes: int) -> Arrived:
        """Wait for a frame of one of these kinds; others are passed over."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            found = next((one for one in self.rest() if one.code in codes), None)
            if found is not None:
                return found
            assert not self.ended, f"closed before any of the frames {codes}"
            assert time.monotonic() < deadline, f"none of the frames {codes}"
            await_input(self.socket, 1)

    def rest(self) -> list[Arrived]:
        """Frames that have come and that no `expect` has taken."""
        self._kept += self.arrived()
        rest, self._kept = self._kept, []
        return rest

    def collect(self, code: int, count: int = 1) -> list[tuple[list[Any], bytes]]:
        """Wait for that many frames of one kind: (fields, payload) of each. Others are passed over."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        found: list[tuple[list[Any], bytes]] = []
        while True:
            found += [(fields, payload) for seen, fields, payload in self.frames() if seen == code]
            if len(found) >= count:
                return found
            assert time.monotonic() < deadline, f"{len(found)} of {count} frames 0x{code:x}"
            await_input(self.socket, 1)


class Neighbour(RawConnection):
    """An interior router, as far as another one can tell: control links, data links, and any control message."""

    def __init__(
        self,
        port: int,
        router_id: str,
        neighbour: str,
        properties: Mapping[str, object] | None = None,
        *,
        address: str | None = None,
    ) -> None:
        super().__init__(port, address=address)
        self.id = router_id
        self.neighbour = neighbour
        self.instance = 1000
        self._deliveries = itertools.count()
        shown = {Symbol(key): value for key, value in (properties or {}).items()}
        self.send(
            AMQP_HEADER,
            frame(OPEN, [router_id, None, UInt(65536), UShort(100), None, None, None, None, None, shown]),
            frame(BEGIN, [None, UInt(0), _LARGE, _LARGE]),
        )
        handles = itertools.count()
        for capability in ("qd.router", *["qd.router-data"] * 10):
            source = Described(ULong(0x28), [*[None] * 10, Symbol(capability)])
            target = Described(ULong(0x29), [*[None] * 6, Symbol(capability)])
            for receiver in (False, True):
                handle = UInt(next(handles))
                name = f"{router_id}/{handle}"
                self.send(
                    frame(ATTACH, [name, handle, receiver, None, None, source, target, None, None, UInt(0)])
                )
                if receiver:
                    window = [UInt(0), _LARGE, UInt(0), _LARGE]
                    self.send(frame(FLOW, [*window, handle, UInt(0), UInt(1_000_000)]))
        # Before the router has begun the session, a transfer would violate a window that is not there yet.
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while all(code != BEGIN for code, _, _ in self.frames()):
            assert time.monotonic() < deadline, "the router does not begin the session"
            await_input(self.socket, TIMEOUT_SECONDS)

    def say(self, opcode: str, to: str, **fields: object) -> None:
        """Send a control message; `fields` take the place of the usual ones."""
        body: dict[str, object] = {"id": self.id, "pv": 1, "area": "0", "instance": self.instance, **fields}
        message = Message(properties=Properties(to=to), application_properties={"opcode": opcode}, body=body)
        payload = encode_annotations(0, None, self.id, (self.id,)) + encode_message(message)
        number = next(self._deliveries)
        tag = struct.pack(">I", number)
        pieces = [payload[at : at + _PIECE_BYTES] for at in range(0, len(payload), _PIECE_BYTES)]
        for piece in pieces:
            more = piece is not pieces[-1]
            self.send(frame(TRANSFER, [UInt(0), UInt(number), tag, UInt(0), True, more], piece))

    def hello(self, **fields: object) -> None:
        """Keep the router believing that this is its neighbour."""
        self.say("HELLO", HELLO_ADDRESS, **{"seen": [self.neighbour], **fields})

    def link_state(self, peers: Mapping[str, object], sequence: int = 1, **fields: object) -> None:
        """Announce links to `peers`, each with its cost."""
        state = {"id": self.id, "area": "0", "ls_seq": sequence, "peers": dict(peers)}
        self.say("LSU", control_address(self.neighbour), **{"ls_seq": sequence, "ls": state, **fields})

    def ask_link_state(self) -> None:
        """Ask the router for its link state."""
        self.say("LSR", control_address(self.neighbour))

    def until(self, heard: Callable[[bytes], Any], what: str, timeout: float = TIMEOUT_SECONDS) -> bytes:
        """Say HELLO and listen until the payload of a transfer fulfils `heard`; that payload."""
        deadline = time.monotonic() + timeout
        greeted = 0.0
        while True:
            if time.monotonic() > greeted + 0.5:
                greeted = time.monotonic()
                self.hello()
            for code, fields, payload in self.frames():
                assert code not in (CLOSE, END, DETACH), f"{self.id} is thrown out: {fields}"
                if code == TRANSFER and heard(payload):
                    return payload
            assert time.monotonic() < deadline, f"{self.id} does not hear within {timeout:g} s: {what}"
            time.sleep(0.01)


class Listening:
    """A port where nobody speaks AMQP by itself: `accept` gives each connection the router makes."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("localhost", 0))
        self.socket.settimeout(TIMEOUT_SECONDS)
        self.port: int = self.socket.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def accept(self, timeout: float = TIMEOUT_SECONDS) -> socket.socket:
        """The next connection."""
        self.socket.settimeout(timeout)
        sock, _ = self.socket.accept()
        sock.settimeout(TIMEOUT_SECONDS)
        return sock
