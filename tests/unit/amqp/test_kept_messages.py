"""Messages that are kept to be sent again have a bound for each connection, and go with their sender."""

from __future__ import annotations

import pytest
from proton import Delivery, Message, symbol
from tests.unit.amqp.rig import Rig

from isthmus_router.amqp.kernel.delivery import Kept
from isthmus_router.amqp.kernel.selective import KEPT_BYTES
from isthmus_router.core.roles import Role

LINKS, OF_EACH, BYTES = 10, 5, 50_000
END = ("close", "connection", "settled", "accepted")


@pytest.mark.parametrize("end", END)
def test_senders_that_ask_for_messages_to_be_sent_again(rig: Rig, end: str) -> None:
    """All senders of a connection together, to a receiver that holds what it gets."""
    consumer, producer = rig.connect(Role.NORMAL), rig.connect(Role.NORMAL)
    receiver = consumer.session.receiver("r")
    receiver.source.address = "balanced/x"
    receiver.open()
    receiver.flow(1000)
    rig.settle_down()
    senders = []
    for number in range(LINKS):
        sender = producer.session.sender(f"s{number}")
        sender.target.address = "balanced/x"
        sender.target.capabilities.put_symbol(symbol("qd.resend-released"))
        sender.open()
        senders.append(sender)
    rig.settle_down()
    connection = next(iter(producer.router_side.links.values())).connection
    deliveries = []
    for _ in range(OF_EACH):
        for sender in senders:
            deliveries.append(sender.delivery(str(len(deliveries))))
            sender.send(Message(body=b"x" * BYTES).encode())
            sender.advance()
        rig.settle_down()
    (out,) = consumer.router_side.links.values()
    kept = [record for record in out.unsettled.values() if isinstance(record, Kept)]
    assert len(out.unsettled) == LINKS * OF_EACH
    assert KEPT_BYTES - BYTES - 100 < connection.kept_bytes <= KEPT_BYTES
    assert sum(len(record.payload) for record in kept) == connection.kept_bytes
    if end == "close":
        for sender in senders:
            sender.close()
    elif end == "connection":
        producer.drop()
    elif end == "settled":
        for delivery in deliveries:
            delivery.settle()
    else:
        for delivery in consumer.deliveries.pop("r"):
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
    rig.settle_down()
    assert connection.kept_bytes == 0
    assert not any(record.payload for record in kept)
