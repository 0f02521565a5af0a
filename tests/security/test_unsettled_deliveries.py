"""A receiver takes messages and settles none: what the router holds of each must not depend on its size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.routers import Routers
from tests.security.support.canary import Canary, memory

pytestmark = pytest.mark.timeout(600)

MOST_GROWTH = 16 << 20
LINKS, COUNT, SIZE = 3, 240, 60_000


def test_messages_that_are_never_settled(either_kernel: Callable[[], Routers], clients: Clients) -> None:
    routers = either_kernel()
    router = routers.add("A")
    routers.start_all()
    receiver = clients.connect(router.port).receiver("held", credit=LINKS * COUNT)
    client = clients.connect(router.port)
    senders = [client.sender("held") for _ in range(LINKS)]
    data = b"\x00\x53\x75\xb0" + SIZE.to_bytes(4) + bytes(SIZE)
    with Canary(router) as canary:
        before = memory(router.pid)
        for number in range(COUNT):
            for sender in senders:
                sender.await_credit().send(data)
            due = (number + 1) * LINKS
            clients.until(lambda due=due: len(receiver.arrived()) >= due, f"{due} messages", 120)
        grown = memory(router.pid) - before
        assert all(not received.delivery.settled for received in receiver.received)
    canary.report.check()
    assert grown < MOST_GROWTH, f"{grown >> 20} MiB"
