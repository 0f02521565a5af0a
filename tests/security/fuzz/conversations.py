"""Random conversations: what clients, edges, containers and interior routers send, in order and out of order."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

from tests.integration.support.raw import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    SASL_CHALLENGE,
    SASL_HEADER,
    SASL_INIT,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    SASL_RESPONSE,
    TRANSFER,
)
from tests.security.fuzz.values import spoil, value

from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.message.sections import encode_annotations
from isthmus_router.message.types import Described, Symbol, UByte, UInt, ULong, UShort, encode

ADDRESSES = (
    "balanced/a",
    "balanced/a",
    "closest/c",
    "multicast/d",
    "b2.x",
    "b2.x",
    "nobody/n",
    None,
    "",
    "ä",
)
CAPABILITIES = (
    *("queue", "qd.waypoint", "qd.router", "qd.router-data"),
    *("qd.streaming-deliveries", "qd.resend-released") * 2,
)
MANY = UInt(2**31 - 1)
WINDOWS = (*(MANY,) * 4, UInt(0), UInt(1), UInt(4), UInt(20))
"""Frames that the router may send in a session; a message of more frames stays partly written."""
STATES: dict[int, Callable[[random.Random], list[Any]]] = {
    0x23: lambda _: [UInt(0), ULong(0)],
    0x24: lambda _: [],
    0x25: lambda chance: [Described(ULong(0x1D), [Symbol("a:b"), "why", value(chance)])],
    0x26: lambda _: [],
    0x27: lambda chance: [True, False, value(chance)],
    0x34: lambda chance: [value(chance)],
}
BODIES = (
    b"\0\x53\x75\xa0\x03abc",
    b"\0\x53\x75\xb0\0\0\x40\0" + bytes(10_000),
    b"\0\x53\x76\xd0\0\0\0\x04\0\0\0\0",
    b"\0\x53\x73\xc0\x09\x02\x40\xa0\x05admin",
    b"\0\x53\x77\0\xa3\x01x\x40",
)
"""Sections behind the properties, and such as may not be there."""
SPOILT = (0.0, 0.02, 0.05, 0.2)
"""How many frames have a wrong value somewhere; those of one conversation have one of these shares."""
BITS_TURNED = 0.1
"""How many of them have wrong bits as well."""
WRONG = (0.0, 0.01, 0.05)
"""How many frames are for a channel or a handle that is not there."""
SHARED = 0.9
"""How many links and messages have the address that the peers of a conversation share, if they do."""
FRAME_BYTES = 16_000
"""Payload of a frame that the router reads."""


class Conversation:
    """What one peer sends, in pieces; the same for the same `chance`."""

    def __init__(self, chance: random.Random, *, edge: bool, container: str, shared: str | None) -> None:
        """`shared`: an address that most links have, if any."""
        self._chance = chance
        self._shared = shared
        self._edge = edge
        self._container = container
        self._spoilt = chance.choice(SPOILT)
        self._wrong = chance.choice(WRONG)
        self._links: dict[int, dict[int, bool]] = {}
        """By channel and handle, those that are attached: whether the peer is the receiver."""
        self._delivery: dict[int, int] = {}
        """Next delivery id, by channel."""
        self._partial: dict[tuple[int, int], int] = {}
        """Deliveries that go on, by channel and handle."""
        self._names = 0
        self._waits = False
        """Whether the peer has attached a link on which it sends when it has credit."""

    def pieces(self) -> list[bytes]:
        """What is sent at once, one after the other."""
        chance = self._chance
        greeting = self._greeting()
        pieces = [greeting, b""] if chance.random() < 0.98 else [b""]
        if self._shared is not None and chance.random() < 0.7:  # without receivers, the others get no credit
            pieces.append(self._attach(receiver=True))
        for _ in range(chance.randrange(5, 80)):
            waits, self._waits = self._waits, False
            action = self._action()
            if chance.random() < (0.9 if waits else 0.4):
                pieces.append(b"")
            pieces[-1] += action
        if chance.random() < 0.3:
            pieces.append(self._frame(CLOSE, self._error()))
        return pieces

    # Frames

    def _frame(self, code: int, fields: list[Any], payload: bytes = b"", *, channel: int = 0) -> bytes:
        chance = self._chance
        whole: Any = Described(ULong(code), fields)
        spoilt = chance.random() < self._spoilt
        if spoilt:
            whole = spoil(chance, whole)
        body = encode(whole) + payload
        header = struct.pack(">IBBH", len(body) + 8, 2, int(code >= SASL_MECHANISMS), channel)
        if spoilt and chance.random() < BITS_TURNED:
            frame = bytearray(header + body)
            for _ in range(chance.choice((1, 1, 4))):
                frame[chance.randrange(4, len(frame))] ^= 1 << chance.randrange(8)
            return bytes(frame)
        return header + body

    def _greeting(self) -> bytes:
        chance = self._chance
        said = b""
        if chance.random() < 0.2:
            said = SASL_HEADER + self._sasl()
        properties = {Symbol("product"): "fuzz", Symbol("qd.annotations-version"): 2}
        fields: list[Any] = [self._container, "host", UInt(chance.choice((16384, 16384, 512)))]
        fields += [UShort(3), None, None, None]
        fields += [Symbol("ANONYMOUS-RELAY"), None, properties]
        return said + AMQP_HEADER + self._frame(OPEN, fields) + self._begin(0) + self._begin(1)

    def _sasl(self) -> bytes:
        chance = self._chance
        frames = {
            SASL_MECHANISMS: [[Symbol("PLAIN")]],
            SASL_INIT: [
                Symbol(chance.choice(("ANONYMOUS", "PLAIN", "EXTERNAL"))),
                b"\0user\0password",
                "host",
            ],
            SASL_CHALLENGE: [b"challenge"],
            SASL_RESPONSE: [b"response"],
            SASL_OUTCOME: [UByte(0)],
        }
        if chance.random() < 0.7:
            return self._frame(SASL_INIT, [Symbol("ANONYMOUS"), b"fuzz"])
        codes = [chance.choice(tuple(frames)) for _ in range(chance.randrange(4))]
        return b"".join(self._frame(code, frames[code]) for code in codes)

    def _begin(self, channel: int) -> bytes:
        self._delivery[channel] = 0
        self._links[channel] = {}
        self._partial = {key: number for key, number in self._partial.items() if key[0] != channel}
        reply = UShort(self._chance.randrange(2)) if self._chance.random() < self._wrong else None
        window = self._chance.choice(WINDOWS)
        return self._frame(BEGIN, [reply, UInt(0), window, MANY], channel=channel)

    def _address(self) -> str | None:
        if self._shared is not None and self._chance.random() < SHARED:
            return self._shared
        return self._chance.choice(ADDRESSES)

    def _action(self) -> bytes:
        action = self._chance.choice(
            (self._attach,) * 5
            + (self._transfer,) * 7
            + (self._flow,) * 3
            + (self._disposition,) * 5
            + (self._detach,) * 2
            + (self._answer, self._end, self._anything)
        )
        return action()

    def _channel(self) -> int:
        """Mostly one that has begun."""
        if self._chance.random() < self._wrong:
            return self._chance.randrange(4)
        return self._chance.choice((*self._links, 0))

    def _link(self, channel: int, *, receiver: bool | None = None) -> int | None:
        """The handle of a link that is attached, in this direction if one is named; now and then of any, or of none."""
        links = self._links.get(channel, {})
        if self._chance.random() < self._wrong:
            return self._chance.choice((*links, 0, 3, 200))
        found = [handle for handle, role in links.items() if receiver is None or role == receiver]
        return self._chance.choice(found) if found else None

    def _terminus(self, code: int, address: str | None, *, target: bool) -> Described:
        chance = self._chance
        fields: list[Any] = [address]
        if chance.random() < (0.5 if self._shared is None else 0.1):
            dynamic = chance.random() < 0.1
            fields = [None if dynamic else address, UInt(0), Symbol("never"), UInt(0), dynamic]
            fields.append(None if chance.random() < 0.7 else {Symbol("x"): value(chance)})
            if not target:
                fields += [Symbol("copy"), None if chance.random() < 0.7 else {Symbol("f"): value(chance)}]
                fields += [None, [Symbol("amqp:accepted:list")]]
            fields.append(Symbol(chance.choice(CAPABILITIES)))
        return Described(ULong(code), fields)

    def _attach(self, name: str | None = None, *, receiver: bool | None = None) -> bytes:
        chance = self._chance
        receiver = chance.random() < 0.5 if receiver is None else receiver
        address = self._address()
        self._names += 1
        given = name or f"{self._container}/{self._names if chance.random() >= self._wrong else 1}"
        channel = self._channel()
        links = self._links.setdefault(channel, {})
        free = next(number for number in range(99) if number not in links)
        handle = chance.choice((*links, free)) if chance.random() < self._wrong else free
        links[handle] = receiver
        fields: list[Any] = [
            given,
            UInt(handle),
            receiver,
            UByte(chance.randrange(3)),
            UByte(chance.randrange(2)),
            self._terminus(0x28, address if receiver or name else None, target=False),
            self._terminus(0x29, None if receiver and not name else address, target=True),
            None,
            None,
            UInt(chance.choice((0, 0, 0, 2**32 - 1))),
            ULong(chance.choice((*(0,) * 5, 100, 2**63 - 1, 2**64 - 1))),
        ]
        if chance.random() < 0.05:
            fields[6] = Described(ULong(0x30), [Symbol("amqp:local-transactions")])
        if chance.random() < 0.3:
            fields += [None, None, {Symbol("p"): value(chance)}]
        attach = self._frame(ATTACH, fields, channel=channel)
        if not receiver:
            self._waits = True
            return attach
        credit = [UInt(0), chance.choice(WINDOWS), UInt(0), MANY, UInt(handle), UInt(0), UInt(10)]
        return attach + self._frame(FLOW, credit, channel=channel)

    def _flow(self) -> bytes:
        chance = self._chance
        channel = self._channel()
        handle = self._link(channel)
        if handle is None:
            return self._attach()
        window = [UInt(chance.choice((0, 0, 0, 5))), chance.choice(WINDOWS)]
        window += [UInt(self._delivery.get(channel, 0)), MANY]
        credit = UInt(chance.choice((0, 1, 10, 100, 2**31, 2**32 - 1)))
        link = [
            UInt(handle),
            UInt(chance.choice((0, 0, 0, 2**32 - 1))),
            credit,
            None,
            chance.random() < 0.2,
            chance.random() < 0.2,
        ]
        return self._frame(FLOW, window + (link if chance.random() < 0.9 else []), channel=channel)

    def _payload(self) -> bytes:
        chance = self._chance
        size = chance.choice((0, 10, 10, 10, 300, 5000, 15_000, 60_000))
        to = self._address() or "balanced/a"
        if chance.random() < 0.1:
            return chance.randbytes(size)
        user = chance.choice((None, None, b"anonymous", b"admin"))
        payload = encode_message(Message(properties=Properties(to=to, user_id=user), body=b"x" * size))
        if chance.random() < 0.2:  # pieces of a message end anywhere
            payload = (chance.choice(BODIES) * chance.choice((1, 5, 2000)))[:15_000]
        if self._edge:
            payload = encode_annotations(0, to, "E", ("E",)) + payload
        if chance.random() < self._spoilt:
            kind = 0x70 + chance.randrange(9)
            payload = b"\x00\x53" + bytes((kind,)) + encode(value(chance)) + payload
        return payload

    def _transfer(self) -> bytes:
        chance = self._chance
        channel = self._channel()
        handle = self._link(channel, receiver=False)
        if handle is None:
            return self._attach()
        number = self._partial.pop((channel, handle), None)
        if number is None:
            number = self._delivery.setdefault(channel, 0)
            self._delivery[channel] += 1
        more = chance.random() < 0.4
        aborted = chance.random() < 0.05
        if more and not aborted:
            self._partial[channel, handle] = number
        shown = number + 1 if chance.random() < self._wrong else number
        state = self._state() if chance.random() < 0.1 else None
        settled = chance.random() < 0.3
        tag = b"%d" % number * chance.choice((1,) * 9 + (40,))
        payload, frames = self._payload(), b""
        while len(payload) > FRAME_BYTES and chance.random() < 0.95:
            fields = [UInt(handle), UInt(shown), tag, UInt(0), settled, True]
            frames += self._frame(TRANSFER, fields, payload[:FRAME_BYTES], channel=channel)
            payload = payload[FRAME_BYTES:]
        fields = [UInt(handle), UInt(shown), tag, UInt(0), settled, more, None, state, False, aborted]
        return frames + self._frame(TRANSFER, fields, payload, channel=channel)

    def _state(self) -> Any:
        code = self._chance.choice(tuple(STATES))
        return Described(ULong(code), STATES[code](self._chance))

    def _disposition(self) -> bytes:
        chance = self._chance
        first = chance.randrange(8)
        last = chance.choice((None, UInt(first), UInt(first + 3), UInt(2**31)))
        state = self._state() if chance.random() < 0.9 else None
        fields = [chance.random() < 0.6, UInt(first), last, chance.random() < 0.6, state]
        return self._frame(DISPOSITION, fields, channel=self._channel())

    def _error(self) -> list[Any]:
        chance = self._chance
        if chance.random() < 0.7:
            return []
        return [Described(ULong(0x1D), [Symbol("a:b"), "why", value(chance)])]

    def _detach(self) -> bytes:
        channel = self._channel()
        handle = self._link(channel)
        if handle is None:
            return self._attach()
        self._links.get(channel, {}).pop(handle, None)
        self._partial.pop((channel, handle), None)
        fields = [UInt(handle), self._chance.random() < 0.7, *self._error()]
        return self._frame(DETACH, fields, channel=channel)

    def _answer(self) -> bytes:
        """The router may have begun a session, or attached a link, with such a name."""
        if self._chance.random() < 0.5 and self._container != "shelf":
            return b""
        if self._chance.random() < 0.3:
            self._links.setdefault(2, {})
            return self._frame(BEGIN, [UShort(self._chance.randrange(3)), UInt(0), MANY, MANY], channel=2)
        return self._attach(
            self._chance.choice([f"peer-{peer}/{link}" for peer in range(4) for link in range(1, 4)])
        )

    def _end(self) -> bytes:
        channel = self._channel()
        self._links.pop(channel, None)
        ended = self._frame(END, self._error(), channel=channel)
        return ended + (self._begin(channel) if self._chance.random() < 0.8 else b"")

    def _anything(self) -> bytes:
        if self._chance.random() >= self._spoilt:
            return b""
        code = self._chance.randrange(0x0F, 0x46)
        return self._frame(code, [value(self._chance) for _ in range(self._chance.randrange(12))])
