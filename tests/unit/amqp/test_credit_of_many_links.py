"""A client with many links gets less credit on each: it bounds the deliveries that the client has unsettled."""

from __future__ import annotations

import pytest
from tests.unit.amqp.rig import Rig

from isthmus_router.core.roles import Role

LINKS, FULL_LINKS, CAPACITY = 1000, 100, 40


def test_the_last_of_many_senders_gets_a_small_part(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus_router.amqp.events.FULL_LINKS", FULL_LINKS)
    consumer, producer = rig.connect(Role.NORMAL), rig.connect(Role.NORMAL)
    receiver = consumer.session.receiver("r")
    receiver.source.address = "balanced/x"
    receiver.open()
    rig.settle_down()
    senders = []
    for number in range(LINKS):
        sender = producer.session.sender(str(number))
        sender.target.address = "balanced/x"
        sender.open()
        senders.append(sender)
        if number % 100 == 0:
            rig.settle_down()
    rig.settle_down()
    assert senders[FULL_LINKS - 1].credit == CAPACITY
    assert senders[-1].credit == CAPACITY * FULL_LINKS // LINKS
    assert sum(sender.credit for sender in senders) < 4 * CAPACITY * FULL_LINKS
