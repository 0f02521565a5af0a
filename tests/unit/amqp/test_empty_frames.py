"""Frames without content in the middle of large messages, whose receivers let nothing in: they take no memory."""

from __future__ import annotations

import pytest
from tests.integration.support.raw import BEGIN, FLOW, frame
from tests.unit.amqp.raw_peer import RawPeer
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import LINK_ROUTE, OwnEnd
from tests.unit.amqp.test_detached import PIECE, attach, raw_peer, transfer

from isthmus_router.core.roles import Role
from isthmus_router.linkroute.routing import LinkRouting
from isthmus_router.message.types import UInt

LARGE = UInt(2**31 - 1)
LINKS = 2
"""The engine makes one event of all frames that come on a link in a row."""
SHUT = 2
"""Channel of the session whose window is for one frame."""
HEAD = b"\x00\x53\x75\xb0" + (1 << 30).to_bytes(4)
PIECES = 6
FRAMES, AT_ONCE = 1000, 20


def receiver(rig: Rig) -> RawPeer:
    peer = raw_peer(rig, "receiver")
    peer.say(frame(BEGIN, [None, UInt(0), UInt(1), LARGE], channel=SHUT))
    for handle in range(LINKS):
        attach(peer, SHUT, handle, f"from {handle}", f"closest/{handle}", receiver=True)
        window = [UInt(0), UInt(1), UInt(0), LARGE]
        peer.say(frame(FLOW, [*window, UInt(handle), UInt(0), UInt(1)], channel=SHUT))
    rig.settle_down()
    return peer


def container(rig: Rig) -> OwnEnd:
    LinkRouting(rig.core, lambda: 0.0, lambda *_: None).configure([LINK_ROUTE])
    end = OwnEnd(rig, "shelf", Role.ROUTE_CONTAINER, capacity=16384, frame=16384)
    rig.peers.append(end)
    rig.settle_down()
    return end


@pytest.mark.parametrize("kind", ["forwarded", "routed"])
def test_frames_without_content_take_no_memory(rig: Rig, kind: str) -> None:
    end = receiver(rig) if kind == "forwarded" else container(rig)
    sender = raw_peer(rig, "sender")
    for handle in range(LINKS):
        address = f"closest/{handle}" if kind == "forwarded" else "b2.a"
        attach(sender, 0, handle, f"to {handle}", address, receiver=False)
    rig.settle_down()
    if isinstance(end, OwnEnd):
        for link in end.attached:
            link.flow(1)
        rig.settle_down()
    for piece in range(PIECES):
        for handle in range(LINKS):
            transfer(sender, 0, handle, handle, (b"" if piece else HEAD) + bytes(PIECE), more=True)
        rig.settle_down()
    for _ in range(FRAMES // AT_ONCE):
        for number in range(AT_ONCE):
            transfer(sender, 0, number % LINKS, number % LINKS, b"", more=True)
        rig.settle_down()
    assert not sender.router_side.closed
    assert 0 < len(end.router_side.unwritten) <= LINKS
