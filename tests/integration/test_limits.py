"""What one client can take of a router is bounded."""

from __future__ import annotations

import contextlib
import socket
import urllib.request

import pytest
from tests.integration.support.client import Clients, Pour
from tests.integration.support.raw import AMQP_HEADER, CLOSE, OPEN, frame
from tests.integration.support.routers import Router, Routers

from isthmus_router.message.types import UInt, UShort

MIB = 1024 * 1024


def arrived(router: Router) -> int:
    """Deliveries that the router has taken in."""
    return int(router.metric("deliveries_total", 'direction="in"'))


def test_more_sessions_hardly_hold_more_memory(router: Router, clients: Clients) -> None:
    clients.connect(router.port).receiver("stuck", credit=0)
    echo = clients.connect(router.port)
    echo.receiver("echo", credit=10, accept=True)
    client = clients.connect(router.port)
    senders = [client.sender("stuck", session=client.new_session()).await_credit() for _ in range(12)]
    before = router.memory()
    message = b"\0Ss\xc0\x01\0\0Su\xb0\x7f\xff\xff\xff" + bytes(16 * MIB)
    pours = [Pour(sender, message, finish=False) for sender in senders]

    def taken() -> int:
        # Whatever the router read before it answered on another connection, it has read by now.
        assert echo.sender("echo").deliver("round trip") == "accepted"
        return sum(pour.given - int(pour.sender.link.session.outgoing_bytes) for pour in pours)

    last = -1
    while (now := taken()) != last:
        last = now
    assert 12 * MIB < now < 60 * MIB
    assert router.memory() - before < 60 * MIB


def test_a_flood_of_presettled_messages_past_others_that_wait(router: Router, clients: Clients) -> None:
    """Whatever waits ahead of it, a message that is dropped costs little."""
    earlier = arrived(router)

    def all_came(count: int) -> None:
        clients.until(
            lambda: arrived(router) == earlier + count,
            lambda: (
                f"{count} come; {arrived(router) - earlier} came, credit {[one.credit for one in senders]}"
            ),
        )

    stopped = clients.connect(router.port).receiver("stopped", credit=0)
    senders = [clients.connect(router.port).sender("stopped").await_credit(250) for _ in range(20)]
    for sender in senders:
        for number in range(250):
            sender.send(f"kept {number}")
    flood = clients.connect(router.port).sender("stopped").await_credit()
    all_came(5000)
    before = router.cpu()
    sent = 0
    while sent < 20_000:
        flood.await_credit()
        while flood.credit:
            flood.send(f"dropped {sent}", settled=True)
            sent += 1
    all_came(5000 + sent)
    assert router.cpu() - before < 5
    stopped.link.flow(10_000)
    clients.until(lambda: len(stopped.received) == 5250, "they arrive")
    bodies = stopped.bodies()
    assert len([body for body in bodies if body.startswith("kept")]) == 5000
    assert [body for body in bodies if body.startswith("dropped")] == [
        f"dropped {number}" for number in range(sent - 250, sent)
    ]


def test_an_idle_timeout_too_short_to_keep_is_refused(router: Router, clients: Clients) -> None:
    client = clients.connect(router.port, wait=False, idle_timeout=0.1)  # proton announces half of it
    condition = client.await_end()
    assert condition is not None
    assert condition.name == "amqp:invalid-field"
    assert "50 ms" in condition.description


@pytest.mark.parametrize(("milliseconds", "served"), [(499, False), (500, True)])
def test_the_shortest_idle_timeout(router: Router, milliseconds: int, served: bool) -> None:
    with socket.create_connection(("localhost", router.port), timeout=10) as sock:
        fields = ["short", "localhost", UInt(65536), UShort(10), UInt(milliseconds)]
        sock.sendall(AMQP_HEADER + frame(OPEN, fields) + (frame(CLOSE, []) if served else b""))
        received = bytearray()
        while data := sock.recv(65536):
            received += data
    assert (b"amqp:invalid-field" in received) is not served
    assert (f"{milliseconds} ms is too short: at least 500 ms".encode() in received) is not served


def test_clients_do_not_take_the_descriptors_of_probes_and_routers(
    routers: Routers, clients: Clients
) -> None:
    router = routers.add("A")
    router.descriptor_limit = 128
    router.start()
    client = clients.connect(router.port)
    with contextlib.ExitStack() as idle:
        for _ in range(400):
            idle.enter_context(socket.create_connection(("localhost", router.port), timeout=10))
        router.await_log("clients have all the file descriptors they may have")
        for _ in range(20):
            with urllib.request.urlopen(f"http://localhost:{router.http_port}/healthz", timeout=5) as answer:
                assert answer.status == 200
        client.receiver("here", credit=1, accept=True)
        assert client.sender("here").deliver("still works") == "accepted"
        assert "Traceback" not in router.log
        assert router.log.count("accept failed") < 10
    clients.connect(router.port)
