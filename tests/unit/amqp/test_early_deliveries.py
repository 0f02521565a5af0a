"""Deliveries of routers that are passed on as they arrive, or refused."""

from __future__ import annotations

from tests.integration.support.raw import ATTACH, DISPOSITION, TRANSFER, frame
from tests.unit.amqp.raw_peer import RawPeer
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import performatives

from isthmus_router.core.roles import Role
from isthmus_router.message.types import Described, UByte, UInt, ULong

STATE = Described(ULong(0x99), [])
"""One that the router does not know."""


def test_a_message_that_cannot_be_read_is_refused_once(rig: Rig) -> None:
    """On a link whose receiver settles second the delivery stays, and the next one has its turn."""
    edge = RawPeer(rig, "edge", Role.EDGE)
    rig.peers.append(edge)  # type: ignore[arg-type]
    rig.settle_down()
    termini = [Described(ULong(code), [None]) for code in (0x28, 0x29)]
    edge.say(frame(ATTACH, ["one", UInt(0), False, None, UByte(1), *termini, None, None, UInt(0)]))
    rig.settle_down()
    (link,) = edge.router_side.links.values()
    assert link.begins_early
    for number in range(2):
        edge.say(
            frame(
                TRANSFER, [UInt(0), UInt(number), bytes([number]), UInt(0), False, True, None, STATE], b"\x00"
            )
        )
        rig.settle_down()
        more = [None, None, None, False, False, None, STATE]
        edge.say(frame(TRANSFER, [UInt(0), *more], b"\x01 is no section"))
        rig.settle_down()
    assert link.deliveries == 2
    outcomes = [fields[4].descriptor for fields in performatives(edge.heard, DISPOSITION)]
    assert outcomes == [ULong(0x25)] * 2
