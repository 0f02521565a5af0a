"""One client's nonsense costs that client its connection, and nobody else anything."""

from __future__ import annotations

import socket
import struct

import pytest
from proton import Message
from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, eventually

from isthmus_router.message.types import Described, Symbol, ULong, encode

OPEN = 0x10


def open_frame(properties: dict[object, object]) -> bytes:
    """An open frame whose property `bad` holds what is no UTF-8."""
    encoded = encode(properties)
    poisoned = encoded.replace(encode("BADTEXT!"), b"\xa1\x08" + b"\xff" * 8)
    assert poisoned != encoded
    body = encode(Described(ULong(OPEN), ["hostile", *[None] * 8, properties])).replace(encoded, poisoned)
    return struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body


def test_open_properties_that_cannot_be_decoded(router: Router, clients: Clients) -> None:
    with socket.create_connection(("localhost", router.port), timeout=10) as raw:
        raw.sendall(b"AMQP\x00\x01\x00\x00" + open_frame({Symbol("bad"): "BADTEXT!"}))
        received = b""
        while chunk := raw.recv(65536):
            received += chunk
    assert b"amqp:decode-error" in received
    before = router.cpu()
    clients.let_time_pass(1.0)
    assert router.cpu() - before < 0.2, "the router is idle again"
    receiver = clients.connect(router.port).receiver("after", credit=10, accept=True)
    assert clients.connect(router.port).sender("after").await_credit().deliver("fine") == "accepted"
    assert receiver.bodies() == ["fine"]


def test_a_peer_that_leaves_in_the_middle_of_a_frame(router: Router, clients: Clients) -> None:
    """Its connection goes, and nobody looks for the rest for ever."""
    descriptors = router.descriptors()
    with socket.create_connection(("localhost", router.port), timeout=10) as raw:
        body = encode(Described(ULong(OPEN), ["partial"]))
        raw.sendall(b"AMQP\x00\x01\x00\x00" + struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body + b"\x00")
        received = b""
        while (
            b"A" not in received[8:]
        ):  # the container of the answer: what is unread would reset the connection
            received += raw.recv(65536)
    before = router.cpu()
    clients.let_time_pass(1.0)
    assert router.cpu() - before < 0.2, "the router is idle again"
    assert router.descriptors() <= descriptors


def test_messages_of_senders_that_are_gone_do_not_pile_up(router: Router, clients: Clients) -> None:
    """They will be sent again: nobody was told that they had arrived."""
    stuck = clients.connect(router.port).receiver("stuck", credit=0)
    clients.connect(router.port).receiver("stuck", credit=1)  # so that senders get credit
    memory = []
    for _ in range(3):
        for _ in range(15):
            client = clients.connect(router.port)
            sender = client.sender("stuck").await_credit(60)
            for number in range(60):
                sender.send(f"{number:<14000}")
            clients.round_trip()
            client.drop()
        memory.append(router.memory())
    assert stuck.bodies() == []
    assert memory[-1] - memory[0] < 10 * 1024 * 1024, memory


def test_an_aborted_message_frees_its_link_at_once(router: Router, clients: Clients) -> None:
    clients.connect(router.port).receiver("stopped", credit=0)
    taking = clients.connect(router.port).receiver("taking", credit=10, accept=True)
    sender = clients.connect(router.port).sender(None).await_credit()
    sent = sender.begin(Message(address="stopped", body=b"x" * 300_000).encode()[:200_000])
    clients.round_trip()
    sender.abort(sent)
    assert sender.deliver(Message(address="taking", body="next")) == "accepted"
    assert taking.bodies() == ["next"]


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".example"])
def test_what_is_no_host_name_fails_alone(router: Router, clients: Clients, host: str) -> None:
    router.sections.append(("listener", {"host": host, "port": free_port(), "name": "bad"}))
    router.configure()
    router.await_log("cannot listen on")
    router.sections.pop()
    router.configure()
    eventually(
        lambda: "bad" not in {item["name"] for item in router.status()["listeners"]}, "the listener is gone"
    )
    clients.connect(router.port)
