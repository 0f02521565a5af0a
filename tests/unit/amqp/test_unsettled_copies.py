"""Deliveries that no sender's credit bounds: a client that does not settle them gets so many on all of its links."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Delivery, Link
from tests.unit.amqp.rig import Peer, Rig

from isthmus_router.amqp.kernel import parking
from isthmus_router.core.roles import Role

WHOLE = b"\x00\x53\x77\xa1\x01x"
MOST, RECEIVERS, MESSAGES = 50, 20, 10


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "MOST_UNBOUNDED", MOST)


def consumer(rig: Rig, address: str, mode: int = Link.SND_MIXED) -> Peer:
    """A client with receivers that have more credit than they need."""
    peer = rig.connect(Role.NORMAL)
    for number in range(RECEIVERS):
        link = peer.session.receiver(f"r{number}")
        link.source.address = address
        link.snd_settle_mode = mode
        link.open()
        link.flow(1000)
    rig.settle_down()
    return peer


def send(rig: Rig, address: str, count: int, *, settled: bool, frames: int = 1) -> None:
    peer = rig.connect(Role.NORMAL)
    sender = peer.session.sender("tx")
    sender.target.address = address
    sender.open()
    rig.settle_down()
    for number in range(count):
        delivery = sender.delivery(f"{number}")
        for _ in range(frames - 1):
            sender.send(WHOLE[:-1])
            rig.settle_down()
        sender.send(WHOLE[-1:] if frames > 1 else WHOLE)
        sender.advance()
        if settled:
            delivery.settle()
        rig.settle_down()


def got(peer: Peer) -> int:
    return sum(map(len, peer.deliveries.values()))


def settle(rig: Rig, peer: Peer, most: int) -> int:
    """Accept deliveries; how many there were."""
    found: list[Any] = [one for taken in peer.deliveries.values() for one in taken][:most]
    for delivery in found:
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
    for name, taken in peer.deliveries.items():
        peer.deliveries[name] = [one for one in taken if one not in found]
    rig.settle_down()
    return len(found)


def test_copies_wait_until_the_client_settles_others(rig: Rig) -> None:
    peer, other = consumer(rig, "multicast/x"), consumer(rig, "multicast/x")
    send(rig, "multicast/x", 2, settled=False)
    assert settle(rig, other, 1000) == 2 * RECEIVERS
    send(rig, "multicast/x", MESSAGES - 2, settled=False)
    assert MOST <= got(peer) <= MOST + RECEIVERS
    done = settle(rig, other, 1000)
    while more := settle(rig, other, 1000):
        done += more
    assert done == (MESSAGES - 2) * RECEIVERS, "another client does not wait"
    before = got(peer)
    settle(rig, peer, 30)
    assert got(peer) <= before, "as many again"
    assert got(peer) > before - 30
    done = 30
    while more := settle(rig, peer, 25):
        done += more
    assert done == MESSAGES * RECEIVERS
    assert not any(link.parked for one in rig.core.connections.values() for link in one.links)


def test_copies_that_are_passed_on_while_they_arrive_wait_as_well(rig: Rig) -> None:
    peer = consumer(rig, "multicast/x")
    send(rig, "multicast/x", MESSAGES, settled=False, frames=2)
    assert MOST <= got(peer) <= MOST + 2 * RECEIVERS
    done = 0
    while more := settle(rig, peer, 25):
        done += more
    assert done == MESSAGES * RECEIVERS


def test_presettled_messages_wait_for_receivers_that_settle_them(rig: Rig) -> None:
    peer = consumer(rig, "balanced", Link.SND_UNSETTLED)
    send(rig, "balanced", 2 * MOST, settled=True)
    assert got(peer) == MOST
    done = 0
    while more := settle(rig, peer, 25):
        done += more
    assert done == 2 * MOST


def test_a_router_gets_all_copies(rig: Rig) -> None:
    edge = rig.connect(Role.EDGE)
    for number in range(RECEIVERS):
        link = edge.session.receiver(f"r{number}")
        link.source.address = "multicast/x"
        link.open()
        link.flow(1000)
    rig.settle_down()
    send(rig, "multicast/x", MESSAGES, settled=False)
    assert got(edge) == MESSAGES * RECEIVERS
