"""An AMQP peer that keeps to the rules by hand: each frame is the test's, none is an engine's."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import Any

from tests.integration.support.raw import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    END,
    FLOW,
    OPEN,
    TRANSFER,
    Arrived,
    RawConnection,
    frame,
)

from isthmus_router.message.types import Described, UInt, ULong

AMPLE = UInt(10_000)
SOURCE, TARGET = ULong(0x28), ULong(0x29)
ACCEPTED, REJECTED, RELEASED = (Described(ULong(code), []) for code in (0x24, 0x25, 0x26))


def body(text: str) -> bytes:
    """A message: a string in an amqp-value section."""
    return b"\x00\x53\x77\xa1" + bytes([len(text)]) + text.encode()


_containers = itertools.count()


def open_frame(container: str | None = None, *more: Any) -> bytes:
    """An open of a container like no other, unless it is named; `more` are the fields after container-id."""
    return frame(OPEN, [container or f"by-hand-{next(_containers)}", *more])


def begin_frame(
    channel: int = 0, *, incoming: int = AMPLE, next_outgoing_id: int = 0, handle_max: int | None = None
) -> bytes:
    """A begin with windows in frames."""
    fields = [None, UInt(next_outgoing_id), UInt(incoming), AMPLE]
    if handle_max is not None:
        fields.append(UInt(handle_max))
    return frame(BEGIN, fields, channel=channel)


def attach_frame(
    name: str,
    handle: int,
    *,
    receiver: bool,
    source: Any = None,
    target: Any = None,
    settle_modes: Sequence[Any] = (None, None),
    delivery_count: int = 0,
    channel: int = 0,
) -> bytes:
    """An attach; `source` and `target` are the terminus fields, or the address alone."""

    def terminus(code: ULong, given: Any) -> Described:
        return Described(code, given if isinstance(given, list) else [given])

    fields = [name, UInt(handle), receiver, *settle_modes, terminus(SOURCE, source), terminus(TARGET, target)]
    if not receiver:
        fields += [None, None, UInt(delivery_count)]
    return frame(ATTACH, fields, channel=channel)


def receive_from(address: str, handle: int = 0, *, credit: int = 0, channel: int = 0) -> bytes:
    """Attach a receiver and give it credit."""
    name = f"from {address} {handle}"
    attach = attach_frame(name, handle, receiver=True, source=address, channel=channel)
    return attach + (credit_frame(handle, credit, channel=channel) if credit else b"")


def send_to(address: str | None, handle: int = 0, *, delivery_count: int = 0, channel: int = 0) -> bytes:
    """Attach a sender."""
    name = f"to {address} {handle}"
    return attach_frame(
        name, handle, receiver=False, target=address, delivery_count=delivery_count, channel=channel
    )


def credit_frame(
    handle: int,
    credit: int,
    *,
    seen: int = 0,
    incoming: int = AMPLE,
    next_incoming_id: int = 0,
    channel: int = 0,
) -> bytes:
    """A flow of a receiver that has seen `seen` deliveries; `next_incoming_id` frames came before."""
    window = [UInt(next_incoming_id), UInt(incoming), UInt(0), AMPLE]
    return frame(FLOW, [*window, UInt(handle), UInt(seen), UInt(credit)], channel=channel)


def transfer_frame(
    delivery_id: int | None, payload: bytes, *, handle: int = 0, settled: bool = False, **fields: Any
) -> bytes:
    """A transfer; `message_format`, `more`, `aborted` and the tag can be given."""
    if delivery_id is not None and fields.keys() <= {"channel"}:
        return _usual_transfer(delivery_id, payload, handle, settled, fields.get("channel", 0))
    tag = fields.get("tag", None if delivery_id is None else delivery_id.to_bytes(4))
    number = None if delivery_id is None else UInt(delivery_id)
    more, aborted = fields.get("more", False), fields.get("aborted", False)
    listed = [UInt(handle), number, tag, UInt(fields.get("message_format", 0)), settled, more]
    if aborted:
        listed += [None, None, None, True]
    return frame(TRANSFER, listed, payload, channel=fields.get("channel", 0))


def _usual_transfer(delivery_id: int, payload: bytes, handle: int, settled: bool, channel: int) -> bytes:
    """What `frame` makes of it, in a tenth of the time: some tests send a million of them."""
    tag = b"\xa0\x04" + delivery_id.to_bytes(4)
    listed = (_uint(handle), _uint(delivery_id), tag, b"\x43", b"\x41" if settled else b"\x42", b"\x42")
    items = b"".join(listed)
    body = b"\x00\x53\x14\xc0" + bytes([len(items) + 1, len(listed)]) + items + payload
    return struct.pack(">IBBH", len(body) + 8, 2, 0, channel) + body


def _uint(value: int) -> bytes:
    """The shortest encoding of a uint."""
    if value == 0:
        return b"\x43"
    return b"\x52" + value.to_bytes(1) if value < 256 else b"\x70" + value.to_bytes(4)


class ByHand(RawConnection):
    """A connection that has begun a session, on channel 0 unless told otherwise."""

    def __init__(
        self,
        port: int,
        *,
        opened: bytes | None = None,
        begun: bytes | None = None,
        address: str | None = None,
    ) -> None:
        super().__init__(port, address=address)
        self.send(AMQP_HEADER, opened or open_frame(), begin_frame() if begun is None else begun)
        (self.opened,) = self.expect(OPEN)
        if begun != b"":
            (self.begun,) = self.expect(BEGIN)

    def attach(self, attach: bytes) -> Arrived:
        """Send an attach, alone or with a flow behind it, and wait for the answer."""
        self.send(attach)
        return self.expect(ATTACH)[0]

    def await_credit(self) -> int:
        """Wait for a flow with credit; how much it gives."""
        while True:
            (flow,) = self.expect(FLOW)
            if flow.field(6):
                return int(flow.field(6))

    def expect_error(self, code: int, condition: str) -> Arrived:
        """Wait for a detach, an end or a close with this condition."""
        (ending,) = self.expect(code)
        error = ending.field(2 if code == 0x16 else 0)
        assert isinstance(error, Described), ending
        assert str(error.value[0]) == condition, error
        return ending

    def round_trip(self) -> None:
        """Wait until the router has dealt with what came before and said what it had to say about it."""
        self.send(begin_frame(99), frame(END, [], channel=99))
        while self.expect(END)[0].field(0) is not None:
            pass

    def settled_by_close(self) -> list[Arrived]:
        """Close, and everything that had come before the router closed too."""
        self.send(frame(CLOSE, []))
        self.expect(CLOSE)
        return self.rest()
