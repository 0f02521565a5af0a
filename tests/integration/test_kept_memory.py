"""Freed memory is kept for the next messages, as the system must clear each page that it gives a process."""

from __future__ import annotations

from tests.integration.support.client import Clients, Receiver, Sender
from tests.integration.support.data import MEGA, head
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, connector, listener

AT_ONCE = 20
ROUNDS = 10
MOST_FAULTS = 25
"""Of one message of 1 MB in one router: 256 would be needed for one copy of it, in new pages."""


def pass_messages(sender: Sender, receiver: Receiver) -> None:
    payload = head(MEGA) + bytes(MEGA)
    for _ in range(ROUNDS):
        sent = [sender.send(payload) for _ in range(AT_ONCE)]
        for _ in sent:
            assert len(receiver.next(60).data) == len(payload)
        assert {sender.outcome(one) for one in sent} == {"accepted"}


def test_large_messages_between_two_routers(clients: Clients, routers: Routers) -> None:
    port = free_port()
    first = routers.add("A", listener(port, "inter-router", name="routers"), mode="interior")
    second = routers.add("B", connector(port), mode="interior")
    first.start()
    second.start()
    receiver = clients.connect(second.port).receiver("large", credit=AT_ONCE, accept=True)
    receiver.replenish = True
    sender = clients.connect(first.port).sender("large").await_credit()
    pass_messages(sender, receiver)
    before = [router.page_faults() for router in (first, second)]
    pass_messages(sender, receiver)
    faults = [router.page_faults() - begun for router, begun in zip((first, second), before, strict=True)]
    assert max(faults) < MOST_FAULTS * ROUNDS * AT_ONCE
