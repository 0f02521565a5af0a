"""A connection from its first byte to its last: AMQP 1.0 sections 2.2 to 2.4, 2.7.1 and 5.3."""

from __future__ import annotations

import struct

import pytest
from tests.integration.support.by_hand import (
    ByHand,
    begin_frame,
    body,
    open_frame,
    receive_from,
    send_to,
    transfer_frame,
)
from tests.integration.support.raw import (
    AMQP_HEADER,
    BEGIN,
    CLOSE,
    FLOW,
    HEARTBEAT,
    SASL_HEADER,
    SASL_INIT,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    TRANSFER,
    RawConnection,
    frame,
)
from tests.integration.support.routers import Router

from isthmus_router.message.types import Described, Symbol, UInt, ULong, UShort


@pytest.mark.parametrize(
    "header", [b"AMQP\x00\x00\x0a\x00", b"AMQP\x00\x02\x00\x00", b"AMQP\x07\x01\x00\x00"]
)
def test_another_protocol_is_answered_with_the_own_one(router: Router, header: bytes) -> None:
    """2.2: the header of what is spoken, then the end of the stream."""
    with RawConnection(router.port) as raw:
        raw.send(header)
        assert raw.receive()[:8] in (AMQP_HEADER, SASL_HEADER)


def test_mechanisms_are_listed_and_one_that_is_not_among_them_fails(router: Router) -> None:
    with RawConnection(router.port) as raw:
        raw.send(SASL_HEADER)
        (listed,) = raw.expect(SASL_MECHANISMS)
        assert Symbol("ANONYMOUS") in listed.fields[0].elements
        raw.send(frame(SASL_INIT, [Symbol("NO-SUCH"), b"", "localhost"]))
        (outcome,) = raw.expect(SASL_OUTCOME)
        assert outcome.fields[0] in (1, 2, 3)


def test_everything_in_one_write(router: Router) -> None:
    """2.4.1: who knows what it wants need not wait for any answer."""
    preamble = SASL_HEADER + frame(SASL_INIT, [Symbol("ANONYMOUS")]) + AMQP_HEADER
    with RawConnection(router.port) as hasty, ByHand(router.port) as sender:
        hasty.send(preamble, open_frame(), begin_frame(), receive_from("hasty", credit=1))
        sender.send(send_to("hasty"))
        sender.await_credit()
        sender.send(transfer_frame(0, body("hi")))
        assert hasty.expect(TRANSFER)[0].payload.endswith(b"hi")


def test_a_short_open_is_answered_with_limits(router: Router) -> None:
    """2.7.1: container-id is all there need be; what is not said has its default."""
    with ByHand(router.port, begun=b"") as peer:
        answer = peer.opened
        assert answer.channel == 0
        assert answer.field(0) == router.id
        assert answer.field(2) >= 512
        assert answer.field(3) >= 1
        assert peer.settled_by_close() == []
        assert peer.receive() == b""


def test_capabilities_and_properties_that_nobody_knows(router: Router) -> None:
    """2.7.1: what the peer desires is not offered unless it is there."""
    strange = {Symbol("x-strange"): {"deep": [1, None, {"er": b"\0"}]}, Symbol("product"): None}
    wanted = [Symbol("X-WANTED"), Symbol("Y-WANTED")]
    more = ["host", UInt(65536), UShort(10), None, [Symbol("xx-XX")], None, wanted, wanted, strange]
    with ByHand(router.port, opened=open_frame("curious", *more)) as peer:
        assert "WANTED" not in str(peer.opened.fields)


def test_a_close_with_an_error_is_answered_and_ends_the_stream(router: Router) -> None:
    """2.4.3."""
    error = Described(ULong(0x1D), [Symbol("amqp:internal-error"), "sorry", {Symbol("a"): 1}])
    with ByHand(router.port) as peer:
        peer.send(frame(CLOSE, [error]))
        assert peer.expect(CLOSE)[0].field(0) is None
        assert peer.receive() == b""


def test_empty_frames_on_any_channel_and_an_extended_header(router: Router) -> None:
    """2.3.1 and 2.4.5: an empty frame only keeps the connection; the extended header is passed over."""
    plain = open_frame()
    extended = struct.pack(">IBBH", len(plain) + 4, 3, 0, 0) + b"ext!" + plain[8:]
    with RawConnection(router.port) as raw:
        raw.send(AMQP_HEADER, extended, HEARTBEAT, HEARTBEAT[:6] + b"\x00\x63", begin_frame(), HEARTBEAT)
        raw.expect(BEGIN)


@pytest.mark.parametrize("offset", [0, 1, 200])
def test_a_frame_with_an_impossible_data_offset(router: Router, offset: int) -> None:
    """2.3.1: malformed below two words, and beyond the end of the frame."""
    broken = bytearray(receive_from("x"))
    broken[4] = offset
    with ByHand(router.port) as peer:
        peer.send(bytes(broken))
        peer.expect_error(CLOSE, "amqp:connection:framing-error")


def test_a_router_gives_no_credit_before_a_consumer_is_there(router: Router) -> None:
    with ByHand(router.port) as sender:
        sender.attach(send_to("lonely"))
        assert [one for one in sender.settled_by_close() if one.code == FLOW and one.field(6)] == []
