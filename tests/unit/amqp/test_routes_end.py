"""A route that was made for one message goes with it: an address does not collect them."""

from __future__ import annotations

import pytest
from proton import Delivery, Message, symbol
from tests.unit.amqp.rig import Rig
from tests.unit.steps import finished

from isthmus_router.core.configured import ConfiguredAddress
from isthmus_router.core.guard import MessageGuard
from isthmus_router.core.remembered import MOST_BYTES_BETWEEN_ROUTERS, MOST_BYTES_OF_CLIENTS
from isthmus_router.core.roles import Role
from isthmus_router.core.sums import sums_of
from isthmus_router.core.treatment import Treatment

MESSAGES = 50


@pytest.mark.parametrize("guarded", [True, False])
def test_messages_that_are_sent_again(rig: Rig, guarded: bool) -> None:
    """To an address for which all are, by a sender with or without a target and a policy that looks into messages."""
    rig.core.configured.patterns.add_prefix("again", ConfiguredAddress(Treatment.BALANCED, resends=True))
    consumers = [rig.connect(Role.NORMAL) for _ in range(2)]
    for consumer in consumers:
        receiver = consumer.session.receiver("r")
        receiver.source.address = "again/x"
        receiver.open()
        receiver.flow(1000)
    rig.settle_down()
    producer = rig.connect(Role.NORMAL)
    sender = producer.session.sender("s")
    sender.target.address = None if guarded else "again/x"
    sender.target.capabilities.put_symbol(symbol("qd.resend-released"))
    sender.open()
    rig.settle_down()
    (link,) = producer.router_side.links.values()
    if guarded:
        rig.core.set_guard(link, MessageGuard(None, b"somebody", lambda: None))
    address = rig.core.addresses["Magain/x"]
    for number in range(MESSAGES):
        sender.delivery(str(number))
        sender.send(Message(address="again/x", body="x").encode())
        sender.advance()
        rig.settle_down()
        for consumer in consumers * 2:
            for delivery in consumer.deliveries.pop("r", []):
                delivery.update(Delivery.RELEASED)
                delivery.settle()
            rig.settle_down()
            rig.work_off()
    assert link.released == MESSAGES
    assert len(address.routes) <= 2
    assert finished(sums_of(address)).ingress == 2 * MESSAGES


@pytest.mark.parametrize("role", [Role.NORMAL, Role.EDGE])
@pytest.mark.parametrize("consumed", [True, False])
def test_routes_that_a_peer_makes_the_router_remember(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, role: Role, consumed: bool
) -> None:
    """Senders without a target: all of several connections within a bound, and none to addresses without consumers."""
    bound = MOST_BYTES_OF_CLIENTS if role is Role.NORMAL else MOST_BYTES_BETWEEN_ROUTERS
    monkeypatch.setattr("isthmus_router.core.remembered.ROUTE_BYTES", bound // 20)
    consumer, *producers = [rig.connect(Role.NORMAL), rig.connect(role), rig.connect(role)]
    for number in range(30 if consumed else 0):
        receiver = consumer.session.receiver(str(number))
        receiver.source.address = f"a/{number}"
        receiver.open()
        receiver.flow(1000)
    senders = [producer.session.sender(f"s{number}") for number, producer in enumerate(producers * 2)]
    for sender in senders:
        sender.open()
    rig.settle_down()
    for number in range(30):
        for sender in senders:
            sender.delivery(str(number))
            sender.send(Message(address=f"a/{number}", body="x").encode())
            sender.advance()
        rig.settle_down()
    links = [link for producer in producers for link in producer.router_side.links.values()]
    assert sum(link.deliveries for link in links) == 120
    assert sum(len(link.routes) for link in links) <= (20 if consumed else len(links))
