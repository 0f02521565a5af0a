"""What routers keep of deliveries that a receiver does not settle."""

from __future__ import annotations

from tests.integration.support.by_hand import body, credit_frame, transfer_frame
from tests.integration.support.link_routes import Shore, Wire
from tests.integration.support.raw import DETACH, TRANSFER
from tests.integration.support.routers import eventually

from isthmus_router.message.types import Described

MOST = 50_000
AT_ONCE = 500
"""Frames that fit into any window of the router's."""


def send(wire: Wire, first: int, count: int, *, settled: bool = False) -> int:
    """Send so many deliveries, from this number on, and wait for the receiver to have them; the next number."""
    for number in range(first, first + count, AT_ONCE):
        these = range(number, min(number + AT_ONCE, first + count))
        payload = body("x")
        wire.sender.send(*(transfer_frame(one, payload, settled=settled) for one in these))
        wire.receiver.collect(TRANSFER, len(these))
    return first + count


def test_a_receiver_that_settles_nothing_loses_its_link(either_shore: Shore) -> None:
    wire = Wire(either_shore["A"], either_shore.ports["A"], to_container=False)
    wire.receiver.send(credit_frame(0, 2**31 - 1, incoming=2**31 - 1))
    wire.credit()
    number = send(wire, 0, 1000, settled=True)  # these do not count
    number = send(wire, number, MOST)
    wire.sender.send(transfer_frame(number, body("x")))
    (detached,) = wire.receiver.expect(DETACH)
    error = detached.field(2)
    assert isinstance(error, Described)
    assert str(error.value[0]) == "amqp:resource-limit-exceeded"
    (detached,) = wire.sender.expect(DETACH)
    assert str(detached.field(2).value[0]) == "qd:routed-link-lost"
    wire.close()
    eventually(lambda: not either_shore.links, "no link is routed")
