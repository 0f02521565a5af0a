"""Temporary addresses, which clients have for the replies to their requests, are those of their connections alone."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.integration.support.client import Clients
from tests.integration.support.routers import Routers

REPLIES = 20
BODY = b"\x00\x53\x75\xa0\x05reply"


def test_nobody_else_receives_from_them(either_kernel: Callable[[], Routers]) -> None:
    """Before, anybody who attached to such an address received every second reply."""
    router = either_kernel().start("A")
    clients = Clients()
    victim = clients.connect(router.port)
    receiver = victim.receiver(None, dynamic=True, credit=100, accept=True)
    other = clients.connect(router.port)
    spy = other.receiver(receiver.address, credit=100)
    assert other.refusal(spy.link).name == "amqp:unauthorized-access"
    assert victim.receiver(receiver.address).address == receiver.address, "its own connection may"
    sender = clients.connect(router.port).sender(receiver.address).await_credit()
    for _ in range(REPLIES):
        sender.send(BODY)
    receiver.expect(REPLIES)
    clients.close()


def test_the_health_port_does_not_name_them(either_kernel: Callable[[], Routers]) -> None:
    router = either_kernel().start("A")
    clients = Clients()
    client = clients.connect(router.port)
    addresses = [
        client.receiver(None, dynamic=True).address,
        client.sender(None, dynamic=True).link.remote_target.address,
    ]
    client.receiver("orders")
    document = router.await_status(
        lambda status: any(row["name"] == "orders" for row in status["addresses"]),
        "the address of the client is listed",
    )
    for address in addresses:
        assert address.rpartition("temp.")[2] not in json.dumps(document)
    clients.close()
