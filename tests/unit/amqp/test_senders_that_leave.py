"""Senders that leave while very many of their messages wait: the router deals with them in steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from proton import Delivery
from tests.integration.support.raw import DISPOSITION
from tests.unit.amqp.rig import Peer, Rig
from tests.unit.amqp.routed_ends import performatives

from isthmus_router.amqp import events
from isthmus_router.amqp.kernel import parking
from isthmus_router.core.model import Link
from isthmus_router.core.roles import Role

WHOLE = b"\x00\x53\x77\xa1\x01x"
RECEIVERS = 2 * parking.AT_ONCE + 10
MANY, SENDERS = 40, 20
ACCEPTED, MODIFIED = 0x24, 0x27


def receivers(rig: Rig, address: str, count: int) -> tuple[Peer, list[Any]]:
    """Without credit, on one connection."""
    peer = rig.connect(Role.NORMAL)
    links = [peer.session.receiver(f"from {number}") for number in range(count)]
    for link in links:
        link.source.address = address
        link.open()
    rig.settle_down()
    return peer, links


def sender(rig: Rig, address: str, messages: int) -> tuple[Peer, Link]:
    """One that has sent so many; the link is the router's."""
    peer = rig.connect(Role.NORMAL)
    link = peer.session.sender("to")
    link.target.address = address
    link.open()
    rig.settle_down()
    for number in range(messages):
        link.delivery(f"{number}")
        link.send(WHOLE)
        link.advance()
        rig.settle_down()
    rig.work_off()
    (inner,) = list(rig.core.connections.values())[-1].links
    return peer, inner


@pytest.mark.parametrize("flows", ["before", "meanwhile", "afterwards"])
def test_all_copies_arrive_that_wait_when_their_sender_leaves(rig: Rig, flows: str) -> None:
    taking, links = receivers(rig, "multicast/many", RECEIVERS)
    peer, inner = sender(rig, "multicast/many", 1)
    assert len(inner.sent_parked) == RECEIVERS

    def give_credit() -> None:
        for link in links:
            link.flow(1)
        rig.settle_down()

    if flows == "before":
        give_credit()
    peer.drop()
    rig.settle_down()
    if flows == "meanwhile":
        assert len(inner.sent_parked) > 0
        give_credit()
    rig.work_off()
    assert (len(inner.sent_parked), inner.parked_bytes, inner.connection.waiting_bytes) == (0, 0, 0)
    if flows == "afterwards":
        give_credit()
    assert sum(len(deliveries) for deliveries in taking.deliveries.values()) == RECEIVERS
    outs = [link for connection in rig.core.connections.values() for link in connection.links]
    assert all((link.parked_bytes, len(link.parked)) == (0, 0) for link in outs)
    assert all(connection.parked_bytes == 0 for connection in rig.core.connections.values())


@pytest.mark.parametrize("room", [True, False])
def test_the_receiver_has_left_shortly_before(rig: Rig, monkeypatch: pytest.MonkeyPatch, room: bool) -> None:
    taking, _ = receivers(rig, "balanced", 1)
    senders = [sender(rig, "balanced", MANY) for _ in range(SENDERS)]
    if not room:
        monkeypatch.setattr(parking, "PARKED_BYTES_HIGH", 0)
    taking.drop()
    assert rig.driver.under_way
    assert len(senders[-1][1].sent_parked) == MANY
    for peer, _ in reversed(senders):
        peer.drop()
    rig.work_off()
    for _, inner in senders:
        assert (len(inner.sent_parked), inner.parked_bytes, inner.connection.waiting_bytes) == (0, 0, 0)
    taking, (link,) = receivers(rig, "balanced", 1)
    link.flow(2)
    for _ in range(2):
        sender(rig, "balanced", 1)
    assert len(taking.deliveries["from 0"]) == 2


def test_streams_whose_receivers_have_left_shortly_before(rig: Rig) -> None:
    taking, _ = receivers(rig, "balanced", 1)
    senders = [sender(rig, "balanced", MANY) for _ in range(SENDERS)]
    peer = rig.connect(Role.NORMAL)
    link = peer.session.sender("to")
    link.target.address = "balanced"
    link.open()
    rig.settle_down()
    link.delivery("large")
    link.send(b"\x00\x53\x75\xb0\x7f\xff\xff\xff" + bytes(100_000))
    rig.settle_down()
    taking.drop()
    assert rig.driver.under_way
    peer.drop()
    rig.work_off()
    assert all(not inner.sent_parked for _, inner in senders)


@pytest.mark.parametrize("leaves", ["close", "detach", "end"])
def test_what_a_sender_has_unsettled_is_settled_in_steps(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, leaves: str
) -> None:
    """Each is settled as modified, or with the outcome that its receiver gives meanwhile, and counted once."""
    monkeypatch.setattr(events, "AT_ONCE", 3)
    taking, (receiving,) = receivers(rig, "balanced", 1)
    receiving.flow(MANY)
    edge = rig.connect(Role.EDGE)
    link = edge.session.sender("to")
    link.target.address = "balanced"
    link.open()
    rig.settle_down()
    for number in range(MANY):
        link.delivery(f"{number}")
        link.send(WHOLE)
        link.advance()
    rig.settle_down()
    (inner,) = list(rig.core.connections.values())[-1].links
    assert len(inner.unsettled) == MANY
    getattr(edge.session if leaves == "end" else link, "detach" if leaves == "detach" else "close")()
    turns = 0
    while edge.turn() or edge.router_side.unfinished:
        turns += 1
        if turns == 2:
            for delivery in taking.deliveries["from 0"][-5:]:
                delivery.update(Delivery.ACCEPTED)
                delivery.settle()
        taking.turn()
    assert turns > 3
    assert (len(inner.unsettled), inner.accepted + inner.modified) == (0, MANY)
    assert inner not in inner.connection.links
    outcomes: Counter[int] = Counter()
    for _, first, last, settled, state, *_ in performatives(edge.heard, DISPOSITION):
        outcomes[state.descriptor] += (first if last is None else last) - first + 1 if settled else 0
    told = Counter({MODIFIED: inner.modified, ACCEPTED: inner.accepted})
    assert outcomes == (Counter() if leaves == "end" else told), "a session that has ended hears no more"
    assert inner.accepted == 5


def test_receivers_without_credit_are_not_tried_after_each_write(rig: Rig) -> None:
    taking, links = receivers(rig, "multicast/many", RECEIVERS)
    _, inner = sender(rig, "multicast/many", 1)
    assert len(inner.sent_parked) == RECEIVERS
    router_side = taking.router_side
    assert not router_side.stalled
    assert not router_side.held
    for link in links:
        link.flow(1)
    rig.settle_down()
    rig.work_off()
    assert sum(len(deliveries) for deliveries in taking.deliveries.values()) == RECEIVERS
