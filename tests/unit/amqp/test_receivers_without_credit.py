"""Receivers that have given no credit: messages go to others, as long as one of them has some."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.amqp.rig import Peer, Rig

from isthmus_router.core.roles import Role

WHOLE = b"\x00\x53\x77\xa1\x01x"


def receiver(rig: Rig, address: str, credit: int) -> tuple[Peer, Any]:
    peer = rig.connect(Role.NORMAL)
    link = peer.session.receiver(f"from {address}")
    link.source.address = address
    link.open()
    if credit:
        link.flow(credit)
    rig.settle_down()
    return peer, link


def got(peer: Peer, link: Any) -> int:
    return len(peer.deliveries.get(link.name, ()))


def send(rig: Rig, link: Any, count: int) -> None:
    """Messages in one turn."""
    for number in range(count):
        link.delivery(f"{link.credit}/{number}")
        link.send(WHOLE)
        link.advance()
    rig.settle_down()


@pytest.mark.parametrize("address", ["closest/x", "balanced"])
def test_messages_go_where_credit_is(rig: Rig, address: str) -> None:
    idle, able, used = receiver(rig, address, 0), receiver(rig, address, 30), receiver(rig, address, 1)
    peer = rig.connect(Role.NORMAL)
    sender = peer.session.sender("tx")
    sender.target.address = address
    sender.open()
    rig.settle_down()
    for _ in range(4):
        send(rig, sender, 1)
    send(rig, sender, 10)
    assert (got(*idle), got(*able), got(*used)) == (0, 13, 1)
    assert not any(link.parked for one in rig.core.connections.values() for link in one.links)
    idle[1].flow(5)
    rig.settle_down()
    send(rig, sender, 6)
    assert got(*idle) > 0
    assert got(*used) == 1


def test_messages_wait_where_nobody_has_credit(rig: Rig) -> None:
    receivers = [receiver(rig, "balanced", 0) for _ in range(2)]
    peer = rig.connect(Role.NORMAL)
    sender = peer.session.sender("tx")
    sender.target.address = "balanced"
    sender.open()
    rig.settle_down()
    send(rig, sender, 2)
    assert [got(*one) for one in receivers] == [0, 0]
    for one in receivers:
        one[1].flow(5)
    rig.settle_down()
    assert [got(*one) for one in receivers] == [1, 1]


@pytest.mark.parametrize("drains", [1, 2])
def test_credit_taken_back_while_a_drain_is_answered_is_not_given(rig: Rig, drains: int) -> None:
    """The receiver has not seen then that its credit is used up: it seems to take back more than there is."""
    peer, link = receiver(rig, "balanced", 0)
    for _ in range(drains):
        link.flow(2)
        link.drain_mode = True
        peer._say()
        rig.driver.turn()
    link.drain_mode = False
    link.flow(-2 * drains)
    rig.settle_down()
    assert link.credit == -2 * drains
    sender = rig.connect(Role.NORMAL).session.sender("tx")
    sender.target.address = "balanced"
    sender.open()
    rig.settle_down()
    send(rig, sender, 3)
    assert got(peer, link) == 0
    link.flow(2 * drains + 1)
    rig.settle_down()
    assert got(peer, link) == 1
