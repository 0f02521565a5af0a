"""Large messages that wait: what arrives of them meanwhile is left to compiled code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Delivery
from tests.unit.amqp.rig import Peer, Rig

from isthmus_router.amqp.kernel.delivery import CHUNK_BYTES, STREAM_OUTGOING_HIGH
from isthmus_router.amqp.kernel.stream import Stream, Streams
from isthmus_router.core.roles import Role

PIECE = bytes(10_000)
WINDOW = 32 * 1024


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(compiled=True)
    yield rig
    rig.close()


@pytest.fixture
def pumped(monkeypatch: pytest.MonkeyPatch) -> list[Stream]:
    """Streams with which Python has dealt."""
    found: list[Stream] = []
    pump = Streams.pump

    def count(self: Streams, stream: Stream) -> bool:
        found.append(stream)
        return pump(self, stream)

    monkeypatch.setattr(Streams, "pump", count)
    return found


class Slow(Peer):
    """A peer that reads no message until the test sets `reads`."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig, "slow", Role.NORMAL)
        self.session.incoming_capacity = WINDOW
        self.reads = False
        rig.peers.append(self)

    def _read(self, link: Any) -> None:
        if self.reads:
            super()._read(link)


def receiver(peer: Peer) -> Any:
    link = peer.session.receiver("receiver")
    link.source.address = "queue"
    link.open()
    link.flow(10)
    peer.rig.settle_down()
    return link


def begin(rig: Rig) -> tuple[Any, Delivery]:
    """Begin a large message."""
    peer = rig.connect(Role.NORMAL)
    link = peer.session.sender("sender")
    link.target.address = "queue"
    link.open()
    rig.settle_down()
    delivery = link.delivery("large")
    link.send(b"\x00\x53\x75\xb0" + (2**20).to_bytes(4))
    send(rig, link, CHUNK_BYTES)
    return link, delivery


def send(rig: Rig, link: Any, size: int) -> int:
    """Send at least so many more bytes, piece by piece; returns how many pieces."""
    pieces = size // len(PIECE) + 1
    for _ in range(pieces):
        link.send(PIECE)
        rig.settle_down()
    return pieces


def test_one_that_waits_for_another_one_to_end(rig: Rig, pumped: list[Stream]) -> None:
    peer = rig.connect(Role.NORMAL)
    receiver(peer)
    (first, _), (second, _) = begin(rig), begin(rig)
    pumped.clear()
    send(rig, second, CHUNK_BYTES)
    assert not pumped
    first.advance()
    rig.settle_down()
    second.advance()
    rig.settle_down()
    assert len(peer.deliveries["receiver"]) == 2
    assert len(peer.heard) > 3 * CHUNK_BYTES


def test_one_whose_receiver_has_no_room(rig: Rig, pumped: list[Stream]) -> None:
    peer = Slow(rig)
    link = receiver(peer)
    sender, delivery = begin(rig)
    send(rig, sender, STREAM_OUTGOING_HIGH)
    pumped.clear()
    assert send(rig, sender, STREAM_OUTGOING_HIGH) > 10
    assert not pumped
    assert len(peer.heard) < STREAM_OUTGOING_HIGH
    peer.reads = True
    while link.current is not None and link.current.pending:
        peer._read(link)
        rig.settle_down()
    sender.advance()
    rig.settle_down()
    (received,) = peer.deliveries["receiver"]
    received.update(Delivery.ACCEPTED)
    received.settle()
    rig.settle_down()
    assert delivery.remote_state == Delivery.ACCEPTED
    assert len(peer.heard) > 2 * STREAM_OUTGOING_HIGH
