"""Receivers that drain their links and give other credit before they have seen the answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cproton_ffi import lib
from tests.integration.support.raw import FLOW, TRANSFER, frame
from tests.unit.amqp.raw_peer import RawPeer
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import Bridge, performatives
from tests.unit.amqp.test_detached import SMALL, attach, link_named, raw_peer, transfer

from isthmus_router.core.model import Link
from isthmus_router.message.types import UInt

LARGE = UInt(2**31 - 1)
LARGEST = 2**32 - 1
MESSAGES = 10


class Receiver:
    """A peer with one link, whose flow frames reach the router one by one."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.peer: RawPeer = raw_peer(rig, "receiver")
        attach(self.peer, 0, 0, "from", "closest/a", receiver=True)
        rig.settle_down()
        self.link: Link = link_named(self.peer, "from")
        self.sender = raw_peer(rig, "sender")

    def flow(self, credit: int, *, seen: int = 0, drain: bool = False) -> None:
        window = [UInt(0), LARGE, UInt(0), LARGE]
        self.peer.say(frame(FLOW, [*window, UInt(0), UInt(seen), UInt(credit), None, drain]))
        self.peer._say()
        self.rig.driver.turn()

    def messages(self) -> int:
        """Have some sent, and count those that come."""
        attach(self.sender, 0, 0, "to", "closest/a", receiver=False)
        self.rig.settle_down()
        for number in range(MESSAGES):
            transfer(self.sender, 0, 0, number, SMALL, more=False)
        self.rig.settle_down()
        return len(list(performatives(bytes(self.peer.heard), TRANSFER)))


@pytest.fixture
def receiver(rig: Rig) -> Receiver:
    return Receiver(rig)


@pytest.mark.parametrize("credit", [0, 1, 4])
def test_less_credit_before_the_answer_is_no_boundless_credit(receiver: Receiver, credit: int) -> None:
    receiver.flow(5, drain=True)
    receiver.flow(credit)
    assert lib.pn_link_credit(receiver.link.io) == credit - 5
    assert receiver.messages() == 0


def test_several_drains_before_the_answer(receiver: Receiver) -> None:
    receiver.flow(5, drain=True)
    receiver.flow(8, drain=True)
    receiver.flow(1)
    assert receiver.messages() == 0


def test_boundless_credit_after_the_answer(rig: Rig, receiver: Receiver) -> None:
    receiver.flow(5, drain=True)
    rig.seconds_pass(11)
    receiver.flow(LARGEST, seen=5)
    assert receiver.messages() == MESSAGES


@pytest.mark.parametrize("drains_again", [False, True])
def test_credit_after_a_drain_that_is_not_answered(rig: Rig, receiver: Receiver, drains_again: bool) -> None:
    """The receiver does not read. The engine would lose the credit if it had the answer, but has not written it."""
    connection = receiver.peer.router_side
    connection.write_blocked = True
    receiver.flow(3, drain=True)
    receiver.flow(3)
    if drains_again:
        receiver.flow(4, drain=True)
    connection.write_blocked = False
    rig.driver.touch(connection)
    rig.driver.flush()
    assert lib.pn_link_credit(receiver.link.io) == (0 if drains_again else 3)
    receiver.flow(3, seen=4 if drains_again else 0)
    assert receiver.messages() == 3


@pytest.fixture(params=[True, False], ids=["compiled", "python"])
def bridge(request: pytest.FixtureRequest) -> Iterator[Bridge]:
    bridge = Bridge(compiled=request.param, client_sends=False)
    yield bridge
    bridge.close()


def test_credit_on_a_routed_link_after_a_drain_that_is_not_answered(bridge: Bridge) -> None:
    connection = bridge.client.router_side
    bridge.receiver.drain(3)
    bridge.client.turn()
    connection.write_blocked = True
    bridge.container.turn()
    bridge.drained()
    bridge.container.turn()
    bridge.receiver.drain_mode = False
    bridge.receiver.flow(1)
    bridge.client.turn()
    connection.write_blocked = False
    bridge.rig.driver.touch(connection)
    bridge.rig.driver.flush()
    bridge.quiet()
    assert [lib.pn_link_credit(half.io) for half in bridge.halves] == [4, 4]
    for _ in range(5):
        bridge.send(10)
    bridge.quiet()
    assert len(bridge.got) == 4
