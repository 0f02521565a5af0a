"""A route that was made for one message goes with it: an address does not collect them."""

from __future__ import annotations

import pytest
from proton import Delivery, Message, symbol
from tests.unit.amqp.rig import Rig
from tests.unit.steps import finished

from isthmus_router.core.configured import ConfiguredAddress
from isthmus_router.core.guard import MessageGuard
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


@pytest.mark.parametrize("consumed", [True, False])
def test_routes_that_a_client_makes_the_router_remember(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, consumed: bool
) -> None:
    """Senders without a target: all of a connection within a bound, and none to addresses without consumers."""
    monkeypatch.setattr("isthmus_router.amqp.kernel.lookup.CLIENT_ROUTE_CACHE_SIZE", 20)
    consumer, producer = rig.connect(Role.NORMAL), rig.connect(Role.NORMAL)
    for number in range(30 if consumed else 0):
        receiver = consumer.session.receiver(str(number))
        receiver.source.address = f"a/{number}"
        receiver.open()
        receiver.flow(1000)
    senders = [producer.session.sender(f"s{number}") for number in range(2)]
    for sender in senders:
        sender.open()
    rig.settle_down()
    for number in range(30):
        for sender in senders:
            sender.delivery(str(number))
            sender.send(Message(address=f"a/{number}", body="x").encode())
            sender.advance()
        rig.settle_down()
    links = producer.router_side.links.values()
    assert sum(link.deliveries for link in links) == 60
    assert max(len(link.routes) for link in links) <= (10 if consumed else 1)
