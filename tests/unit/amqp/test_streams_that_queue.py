"""Multicast messages that are passed on while they arrive queue for their receivers in steps, one after the other."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.amqp.rig import Peer, Rig

from isthmus_router.amqp.kernel.delivery import Postponed
from isthmus_router.amqp.kernel.wide import MANY_RECEIVERS, STEP, WideStream
from isthmus_router.core.model import Link
from isthmus_router.core.roles import Role

SIZE = 140_000
HEAD, REST = b"\x00\x53\x75\xb0" + SIZE.to_bytes(4) + bytes(100_000), bytes(40_000)
RECEIVERS = MANY_RECEIVERS + STEP // 2
ADDRESS = "multicast/many"


def receivers(rig: Rig, address: str = ADDRESS) -> list[tuple[Peer, Any]]:
    """Each on a connection of its own."""
    found = []
    for _ in range(RECEIVERS):
        peer = rig.connect(Role.NORMAL)
        link = peer.session.receiver("from")
        link.source.address = address
        link.open()
        link.flow(10)
        rig.settle_down()
        found.append((peer, link))
    return found


def sender(rig: Rig, address: str = ADDRESS) -> tuple[Peer, Any, Link]:
    """The last one is the router's link."""
    peer = rig.connect(Role.NORMAL)
    link = peer.session.sender("to")
    link.target.address = address
    link.open()
    rig.settle_down()
    (inner,) = list(rig.core.connections.values())[-1].links
    return peer, link, inner


def begin(rig: Rig, link: Any) -> None:
    link.delivery("one")
    link.send(HEAD)
    rig.settle_down()


def finish(rig: Rig, link: Any) -> None:
    link.send(REST)
    link.advance()
    rig.settle_down()


def received(taking: list[tuple[Peer, Any]]) -> list[int]:
    return [len(peer.deliveries.get("from", ())) for peer, _ in taking]


def test_no_event_queues_for_all_receivers(rig: Rig) -> None:
    taking = receivers(rig)
    _, link, inner = sender(rig)
    begin(rig, link)
    stream = inner.stream
    assert isinstance(stream, WideStream)
    assert len(stream.receivers) == 0
    assert next(rig.driver._jobs[0]) is None
    assert len(stream.receivers) == STEP
    rig.work_off()
    assert len(stream.receivers) == RECEIVERS
    finish(rig, link)
    rig.work_off()
    assert received(taking) == [1] * RECEIVERS


@pytest.mark.parametrize("leaves", [None, 0, 1])
@pytest.mark.parametrize("ends", ["drop", "detach", "abort"])
def test_others_wait_for_their_turns(rig: Rig, leaves: int | None, ends: str) -> None:
    taking = receivers(rig)
    others = receivers(rig, "multicast/others")
    senders = [sender(rig) for _ in range(4)]
    for _, link, _ in senders:
        begin(rig, link)
    kinds = [inner.stream.__class__ for _, _, inner in senders]
    assert kinds == [WideStream, Postponed, Postponed, Postponed]
    _, elsewhere, inner = sender(rig, "multicast/others")
    begin(rig, elsewhere)
    assert inner.stream.__class__ is WideStream
    left = list(senders)
    if leaves is not None:
        peer, link, _ = left.pop(leaves)
        {"drop": peer.drop, "detach": link.close, "abort": link.current.abort}[ends]()
        rig.settle_down()
    for _, link, _ in left:
        finish(rig, link)
    rig.work_off()
    finish(rig, elsewhere)
    rig.work_off()
    assert received(taking) == [len(left)] * RECEIVERS
    assert received(others) == [1] * RECEIVERS
    assert not rig.driver.forwarder.streams.wide._turns
    for _, _, inner in left:
        assert (inner.stream, inner.connection.waiting_bytes) == (None, 0)


def test_a_receiver_that_leaves_before_its_turn(rig: Rig) -> None:
    taking = receivers(rig)
    _, link, _ = sender(rig)
    begin(rig, link)
    taking[0][1].close()
    taking[-1][1].close()
    rig.settle_down()
    rig.work_off()
    finish(rig, link)
    rig.work_off()
    assert received(taking) == [0, *[1] * (RECEIVERS - 2), 0]


def test_a_sender_that_leaves_when_all_has_arrived(rig: Rig) -> None:
    taking = receivers(rig)
    (first, begun, _), (second, waits, _) = (sender(rig) for _ in range(2))
    begin(rig, begun)
    begin(rig, waits)
    finish(rig, begun)
    finish(rig, waits)
    first.drop()
    second.drop()
    rig.settle_down()
    rig.work_off()
    assert received(taking) == [2] * RECEIVERS
    assert not rig.driver.forwarder.streams.wide._turns
