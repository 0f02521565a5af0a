"""Messages of which nothing more arrives while others wait for their receivers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from proton import Delivery, Endpoint
from tests.unit.amqp.rig import Peer, Rig

from isthmus_router.amqp.kernel.stalled import LEAST_BYTES
from isthmus_router.core.roles import Role

HEAD = b"\x00\x53\x75\xb0\x7f\xff\xff\xff"
WHOLE = b"\x00\x53\x77\xa1\x01x"
SECONDS = 10


@pytest.fixture(autouse=True)
def limit(rig: Rig) -> None:
    rig.driver.forwarder.stalled.seconds = SECONDS


def receiver(rig: Rig, address: str, credit: int = 10, peer: Peer | None = None) -> Any:
    """A receiver with credit, on a connection of its own unless one is given."""
    peer = peer or rig.connect(Role.NORMAL)
    link = peer.session.receiver(f"from {address} {len(peer.deliveries)} {id(peer)}")
    link.source.address = address
    link.open()
    link.flow(credit)
    rig.settle_down()
    return link


def sender(rig: Rig, address: str | None, role: Role = Role.NORMAL) -> Any:
    """A sender on a connection of its own."""
    link = rig.connect(role).session.sender(f"to {address}")
    link.target.address = address
    link.open()
    rig.settle_down()
    return link


def begin(rig: Rig, link: Any, size: int = 100_000, *, to: str | None = None) -> Any:
    """Send the beginning of a message, enough to be passed on; `to` goes with a link for any address."""
    delivery = link.delivery("begun")
    if to is not None:
        fields = b"\x40\x40\xa1" + bytes([len(to)]) + to.encode()
        link.send(b"\x00\x53\x73\xc0" + bytes([len(fields) + 1, 3]) + fields)
    link.send(HEAD + bytes(size))
    rig.settle_down()
    return delivery


def send(rig: Rig, link: Any) -> Any:
    """Send a whole message."""
    delivery = link.delivery("whole")
    link.send(WHOLE)
    link.advance()
    rig.settle_down()
    return delivery


def let_pass(rig: Rig, seconds: int) -> None:
    """Have the router examine its streams each second."""
    for _ in range(seconds):
        rig.seconds_pass(1)
        rig.driver.work(rig.driver.forwarder.stalled.examine())
        rig.work_off()


def got(rig: Rig, link: Any) -> int:
    """How many whole messages a receiver has."""
    return sum(len(peer.deliveries.get(link.name, ())) for peer in rig.peers if isinstance(peer, Peer))


def is_closed(link: Any) -> bool:
    return bool(link.state & Endpoint.REMOTE_CLOSED)


@pytest.mark.parametrize("address", ["one", "multicast/some"])
def test_a_client_that_does_not_go_on(rig: Rig, address: str) -> None:
    receivers = [receiver(rig, address) for _ in range(2 if address != "one" else 1)]
    stalled, honest = sender(rig, address), sender(rig, address)
    begun = begin(rig, stalled)
    let_pass(rig, 3 * SECONDS)
    assert not is_closed(stalled), "nothing waits"
    waiting = send(rig, honest)
    let_pass(rig, SECONDS - 1)
    assert not is_closed(stalled)
    assert [got(rig, link) for link in receivers] == [0] * len(receivers)
    let_pass(rig, 2)
    assert is_closed(stalled)
    assert stalled.remote_condition.name == "amqp:resource-limit-exceeded"
    assert begun.remote_state == Delivery.MODIFIED
    assert [got(rig, link) for link in receivers] == [1] * len(receivers)
    assert not is_closed(honest)
    assert not waiting.settled


def test_a_client_that_goes_on(rig: Rig) -> None:
    """As slowly as it may."""
    link = receiver(rig, "one")
    slow, honest = sender(rig, "one"), sender(rig, "one")
    begin(rig, slow)
    send(rig, honest)
    for _ in range(5):
        let_pass(rig, SECONDS - 1)
        slow.send(bytes(LEAST_BYTES))
        rig.settle_down()
    slow.advance()
    rig.settle_down()
    assert not is_closed(slow)
    assert got(rig, link) == 2


def test_a_client_that_sends_less(rig: Rig) -> None:
    receiver(rig, "one")
    slow, honest = sender(rig, "one"), sender(rig, "one")
    begin(rig, slow)
    send(rig, honest)
    for _ in range(SECONDS):
        assert not is_closed(slow)
        slow.send(b"x")
        rig.settle_down()
        let_pass(rig, 1)
    let_pass(rig, 1)
    assert is_closed(slow)


def test_a_receiver_that_takes_no_more(rig: Rig) -> None:
    """Then the sender cannot go on."""
    peer = rig.connect(Role.NORMAL)
    peer.session.incoming_capacity = 65_536
    link = receiver(rig, "one", peer=peer)
    peer._read = lambda link: None  # type: ignore[method-assign, misc, assignment]
    slow, honest = sender(rig, "one"), sender(rig, "one")
    slow.delivery("begun")
    slow.send(HEAD + bytes(1_000_000))
    rig.settle_down()
    send(rig, honest)
    let_pass(rig, 3 * SECONDS)
    assert not is_closed(slow)
    assert got(rig, link) == 0


def test_another_router_that_does_not_go_on(rig: Rig) -> None:
    """Its link stays, and it learns the outcome at the end of the message."""
    link = receiver(rig, "one")
    edge, honest = sender(rig, "one", Role.EDGE), sender(rig, "one")
    begun = begin(rig, edge, 1_200_000)
    send(rig, honest)
    let_pass(rig, SECONDS + 1)
    assert not is_closed(edge)
    assert got(rig, link) == 1
    edge.send(bytes(100_000))
    rig.settle_down()
    assert not begun.remote_state
    edge.advance()
    rig.settle_down()
    assert begun.remote_state == Delivery.MODIFIED
    send(rig, edge)
    assert got(rig, link) == 2


@pytest.mark.parametrize("role", [Role.NORMAL, Role.EDGE])
def test_a_multicast_message_to_many(rig: Rig, role: Role) -> None:
    peer = rig.connect(Role.NORMAL)
    for number in range(100):
        link = peer.session.receiver(f"r{number}")
        link.source.address = "multicast/many"
        link.open()
        link.flow(10)
    rig.settle_down()
    honest = sender(rig, "multicast/many")
    stalled = sender(rig, "multicast/many" if role is Role.NORMAL else None, role)
    begun = begin(rig, stalled, to=None if role is Role.NORMAL else "multicast/many")
    rig.work_off()
    send(rig, honest)
    let_pass(rig, SECONDS + 2)
    assert is_closed(stalled) is (role is Role.NORMAL)
    assert all(len(found) == 1 for found in peer.deliveries.values())
    assert len(peer.deliveries) == 100
    if role is Role.EDGE:
        stalled.advance()
        rig.settle_down()
        rig.work_off()
    assert begun.remote_state == Delivery.MODIFIED


def test_a_multicast_message_that_pauses_costs_nothing(rig: Rig) -> None:
    peer = rig.connect(Role.NORMAL)
    for number in range(100):
        link = peer.session.receiver(f"r{number}")
        link.source.address = "multicast/many"
        link.open()
        link.flow(10)
    rig.settle_down()
    begin(rig, sender(rig, "multicast/many"))
    steps = 0
    while rig.driver.under_way:
        rig.loop.run_until_complete(asyncio.sleep(0))
        steps += 1
        assert steps < 1000, "the router goes on without end"
