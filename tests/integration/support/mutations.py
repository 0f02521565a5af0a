"""Valid traces of frames, and what a seed makes of them: bits turned, frames cut, swapped, doubled and mis-sized."""

from __future__ import annotations

import random
import struct
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
    SASL_HEADER,
    SASL_INIT,
    TRANSFER,
    frame,
)

from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.message.sections import encode_annotations
from isthmus_router.message.types import Described, Symbol, UInt, ULong, UShort
from isthmus_router.routing.messages import HELLO_ADDRESS, control_address

_LARGE = UInt(2**31 - 1)
_ACCEPTED = Described(ULong(0x24), [])
_MOST_MUTATIONS = 4


def _attach(name: str, handle: int, *, receiver: bool, address: str | None, capability: str | None) -> bytes:
    capabilities = None if capability is None else Symbol(capability)
    source = Described(ULong(0x28), [address if receiver else None, *[None] * 9, capabilities])
    target = Described(ULong(0x29), [None if receiver else address, *[None] * 5, capabilities])
    return frame(ATTACH, [name, UInt(handle), receiver, None, None, source, target, None, None, UInt(0)])


def _transfer(
    handle: int, number: int, payload: bytes, *, settled: bool = False, more: bool = False
) -> bytes:
    return frame(TRANSFER, [UInt(handle), UInt(number), b"%d" % number, UInt(0), settled, more], payload)


def _credit(handle: int, credit: int, *, drain: bool = False) -> bytes:
    window = [UInt(0), _LARGE, UInt(0), _LARGE]
    return frame(FLOW, [*window, UInt(handle), UInt(0), UInt(credit), None, drain])


def client_trace(*, edge: bool = False) -> list[bytes]:
    """A client that sends to itself and to somebody unknown, in one frame and in several.

    An edge router does the same, with annotations.
    """
    prefix = encode_annotations(0, "fuzz.a", "E", ("E",)) if edge else b""
    small = prefix + encode_message(Message(properties=Properties(to="fuzz.b"), body="small"))
    large = prefix + encode_message(Message(body=b"x" * 3000))
    return [
        SASL_HEADER,
        frame(SASL_INIT, [Symbol("ANONYMOUS"), b"fuzz"]),
        AMQP_HEADER,
        frame(OPEN, ["fuzz", "host", UInt(65536), UShort(10), UInt(60_000)]),
        frame(BEGIN, [None, UInt(0), _LARGE, _LARGE]),
        _attach("in", 0, receiver=False, address="fuzz.a", capability=None),
        _attach("anonymous", 1, receiver=False, address=None, capability=None),
        _attach("out", 2, receiver=True, address="fuzz.a", capability=None),
        _credit(2, 100),
        *[_transfer(0, number, small) for number in range(4)],
        _transfer(1, 4, small, settled=True),
        _transfer(0, 5, large[:1000], more=True),
        _transfer(0, 5, large[1000:]),
        frame(DISPOSITION, [True, UInt(0), UInt(3), True, _ACCEPTED]),
    ]


def router_trace(neighbour: str) -> list[bytes]:
    """An interior router next to `neighbour`: it says HELLO, announces itself and passes a message on."""
    fields: dict[str, Any] = {"id": "F", "pv": 1, "area": "0", "instance": 1}
    state = {"id": "F", "area": "0", "ls_seq": 1, "peers": {neighbour: 1}}

    def control(opcode: str, to: str, **more: Any) -> bytes:
        message = Message(
            properties=Properties(to=to), application_properties={"opcode": opcode}, body={**fields, **more}
        )
        return encode_annotations(0, None, "F", ("F",)) + encode_message(message)

    links = [
        _attach(f"link/{handle}", handle, receiver=handle % 2 == 1, address=None, capability=capability)
        for handle, capability in enumerate(["qd.router"] * 2 + ["qd.router-data"] * 6)
    ]
    passed = encode_annotations(0, "fuzz.a", "F", ("F",)) + encode_message(Message(body="from afar"))
    return [
        AMQP_HEADER,
        frame(OPEN, ["F", None, UInt(65536), UShort(100)]),
        frame(BEGIN, [None, UInt(0), _LARGE, _LARGE]),
        *links,
        *[_credit(handle, 1000) for handle in (1, 3, 5, 7)],
        _transfer(0, 0, control("HELLO", HELLO_ADDRESS, seen=[neighbour]), settled=True),
        _transfer(0, 1, control("LSU", control_address(neighbour), ls_seq=1, ls=state), settled=True),
        _transfer(
            0, 2, control("MAU", control_address(neighbour), mobile_seq=1, add=["Mfuzz.z"]), settled=True
        ),
        _transfer(2, 3, passed),
        _transfer(4, 4, passed[:40], more=True),
        _transfer(4, 4, passed[40:]),
    ]


_OUT_OF_PLACE = (
    frame(DETACH, [UInt(0), True]),
    frame(DETACH, [UInt(2), True]),
    frame(END, []),
    frame(CLOSE, []),
    _credit(2, 0, drain=True),
)


def _flip(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 2, 8))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _resize(data: bytearray, chance: random.Random) -> None:
    size = len(data)
    data[:4] = struct.pack(
        ">I", chance.choice((0, 1, 7, 8, size - 1, size + 1, size + 100, 65537, 2**31, 2**32 - 1)) % 2**32
    )


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def _stretch(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    data[at:at] = chance.randbytes(chance.choice((1, 4, 100)))


def _readdress(data: bytearray, chance: random.Random) -> None:
    """Another channel, type or data offset."""
    data[chance.choice((4, 5, 6, 7))] = chance.randrange(256)


def _renumber(data: bytearray, chance: random.Random) -> None:
    """A small number somewhere becomes another: handles, delivery ids, credit, list sizes."""
    places = [at for at, code in enumerate(data[:-1]) if code in (0x52, 0x53, 0x43, 0x41, 0x42, 0xC0, 0xA1)]
    if places:
        at = chance.choice(places)
        data[at + chance.choice((0, 1))] = chance.choice((0, 1, 2, 3, 0x41, 0x42, 0x43, 0x7F, 0x80, 0xFF))


_IN_FRAME = (_flip, _resize, _cut, _stretch, _readdress, _renumber, _renumber, _renumber)


def split(trace: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """What may be said before the peer has begun the session, and what only then keeps to its window."""
    begin = next(at for at, one in enumerate(trace) if one[8:11] == b"\x00\x53\x11")
    return trace[: begin + 1], trace[begin + 1 :]


def mutated(trace: list[bytes], seed: int) -> tuple[bytes, bytes]:
    """What a peer sends instead of the trace, in the parts of `split`; the same for the same seed.

    The first part is empty when the greeting is mutated too, so that there is no answer to wait for.
    """
    chance = random.Random(seed)
    greeting, rest = split(trace)
    if chance.random() < 0.2:
        greeting, rest = [], trace
    frames = [bytearray(one) for one in rest]
    for _ in range(chance.randint(1, _MOST_MUTATIONS)):
        at = chance.randrange(len(frames))
        what = chance.randrange(len(_IN_FRAME) + 5)
        if what < len(_IN_FRAME):
            if len(frames[at]) > 8:
                _IN_FRAME[what](frames[at], chance)
        elif what == len(_IN_FRAME):
            frames.insert(chance.randrange(len(frames)), bytearray(frames[at]))
        elif what == len(_IN_FRAME) + 1:
            del frames[at]
        elif what == len(_IN_FRAME) + 2:
            frames.insert(at, bytearray(chance.choice(_OUT_OF_PLACE)))
        else:
            frames.insert(chance.randrange(len(frames)), frames.pop(at))
    return b"".join(greeting), b"".join(frames)
