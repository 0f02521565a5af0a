"""What one client can take of a router is bounded."""

from __future__ import annotations

from tests.integration.support.client import Clients
from tests.integration.support.routers import Router

MIB = 1024 * 1024


def test_more_sessions_hardly_hold_more_memory(router: Router, clients: Clients) -> None:
    clients.connect(router.port).receiver("stuck", credit=0)
    echo = clients.connect(router.port)
    echo.receiver("echo", credit=10, accept=True)
    client = clients.connect(router.port)
    senders = [client.sender("stuck", session=client.new_session()).await_credit() for _ in range(12)]
    before = router.memory()
    for sender in senders:
        sender.begin(b"\0Ss\xc0\x01\0\0Su\xb0\x7f\xff\xff\xff" + bytes(8 * MIB))

    def unsent() -> int:
        # Whatever the router read before it answered on another connection, it has read by now.
        assert echo.sender("echo").deliver("round trip") == "accepted"
        return sum(int(sender.link.session.outgoing_bytes) for sender in senders)

    last = -1
    while (left := unsent()) != last:
        last = left
    assert left > 50 * MIB
    assert router.memory() - before < 50 * MIB


def test_an_idle_timeout_too_short_to_keep_is_refused(router: Router, clients: Clients) -> None:
    client = clients.connect(router.port, wait=False, idle_timeout=0.1)  # proton announces half of it
    condition = client.await_end()
    assert condition is not None
    assert condition.name == "amqp:invalid-field"
    assert "50 ms" in condition.description
