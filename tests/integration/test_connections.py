"""Connections that misbehave, go silent or come in great numbers."""

from __future__ import annotations

import json
import signal
import socket
import struct
import time
from functools import partial
from typing import Any

import pytest
from proton import Condition, Endpoint
from tests.integration.support.client import Clients, Receiver
from tests.integration.support.ports import free_port
from tests.integration.support.routers import LIVE, STOP_SECONDS, Router, Routers, eventually, listener

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
MEGA = 1024 * 1024


def frame(body: bytes, kind: int = 0, channel: int = 0) -> bytes:
    """An AMQP frame."""
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


def performative(code: int, fields: bytes, count: int) -> bytes:
    """A described list."""
    return b"\x00\x53" + bytes([code]) + b"\xd0" + struct.pack(">II", len(fields) + 4, count) + fields


def handshake(sock: socket.socket) -> None:
    """SASL ANONYMOUS and the open frame, byte by byte as any client sends them."""
    sock.sendall(SASL_HEADER + frame(performative(0x41, b"\xa3\x09ANONYMOUS", 1), kind=1))
    received = b""
    while b"\x00\x53\x44" not in received:  # sasl-outcome
        part = sock.recv(4096)
        assert part, "closed during SASL"
        received += part
    sock.sendall(AMQP_HEADER + frame(performative(0x10, b"\xa1\x03raw", 1)))


def read_to_end(sock: socket.socket, timeout: float = 10.0) -> bytes:
    """Everything until the router closes the socket."""
    sock.settimeout(timeout)
    received = b""
    while True:
        try:
            part = sock.recv(65536)
        except ConnectionResetError:
            return received
        if not part:
            return received
        received += part


def ended(sock: socket.socket, received: bytearray) -> bool:
    """Whether the router has closed the socket; adds to `received` what has arrived."""
    try:
        part = sock.recv(65536)
    except BlockingIOError:
        return False
    received += part
    return not part


def assert_serves(clients: Clients, router: Router) -> None:
    """The router still does its work."""
    receiver = clients.connect(router.port).receiver("alive", credit=1, accept=True)
    sender = clients.connect(router.port).sender("alive")
    assert sender.deliver("x") == "accepted"
    receiver.client.close()
    sender.client.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"AMQP\x00\x00\x09\x01",
        bytes(1000),
        b"AMQP\x03\x01\x00\x00" + b"\xff" * 100,
        b"AMQP\x03\x01\x00\x00" + struct.pack(">IBBH", 0x7FFFFFFF, 2, 1, 0),
        b"AMQP\x03\x01\x00\x00" + struct.pack(">IBBH", 4, 2, 1, 0),
        b"A",
    ],
    ids=["http", "tls", "amqp-0-9-1", "zeros", "bad-sasl", "huge-frame", "tiny-frame", "one-byte-then-eof"],
)
def test_bytes_that_are_not_amqp(clients: Clients, router: Router, garbage: bytes) -> None:
    with socket.create_connection(("localhost", router.port), 5) as sock:
        sock.sendall(garbage)
        if garbage == b"A":
            sock.shutdown(socket.SHUT_WR)
        read_to_end(sock)
    assert_serves(clients, router)


BEGIN = performative(0x11, b"\x40\x43\x70\x00\x00\x07\xd0\x70\x00\x00\x07\xd0", 4)


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        (b"\xff\xff\xff", b"amqp:"),
        (b"\x00\x53\x14\xd0\x00\x00", b"amqp:"),
        (performative(0x14, b"\x52\x07\x43\xa0\x01a\x43", 4), b"amqp:"),
        (performative(0x16, b"\x52\x05", 1), b"amqp:"),
        (performative(0x7F, b"", 0), b"amqp:"),
    ],
    ids=["nonsense", "truncated", "transfer-without-link", "detach-unknown", "unknown-performative"],
)
def test_malformed_frame(clients: Clients, router: Router, body: bytes, condition: bytes) -> None:
    """The connection is closed with an error that the peer can read; the router goes on."""
    with socket.create_connection(("localhost", router.port), 5) as sock:
        handshake(sock)
        sock.sendall(frame(BEGIN) + frame(body))
        assert condition in read_to_end(sock)
    assert_serves(clients, router)


def test_frame_larger_than_announced(clients: Clients, routers: Routers) -> None:
    router = routers.start("A", maxFrameSize=4096)
    with socket.create_connection(("localhost", router.port), 5) as sock:
        handshake(sock)
        sock.sendall(frame(BEGIN) + frame(b"\x00" * 100_000))
        assert b"amqp:connection:framing-error" in read_to_end(sock)
    router.await_log("framing-error")
    assert_serves(clients, router)


def test_max_frame_size_is_announced_and_kept(clients: Clients, routers: Routers) -> None:
    router = routers.start("A", maxFrameSize=2048)
    client = clients.connect(router.port)
    assert client.transport.remote_max_frame_size == 2048
    small = clients.connect(router.port, max_frame_size=512)
    receiver = small.receiver("x", credit=1, accept=True)
    assert (
        client.sender("x").deliver(b"\x00\x53\x75\xb0" + (50_000).to_bytes(4, "big") + bytes(50_000))
        == "accepted"
    )
    assert len(receiver.next().data) == 50_008


def test_more_sessions_than_allowed(clients: Clients, routers: Routers) -> None:
    router = routers.start("A", maxSessions=3)
    client = clients.connect(router.port)
    assert client.transport.remote_channel_max == 2
    sessions = [client.new_session() for _ in range(2)]
    clients.until(lambda: all(s.state & Endpoint.REMOTE_ACTIVE for s in sessions), "the allowed sessions")
    with socket.create_connection(("localhost", router.port), 5) as sock:
        handshake(sock)
        sock.sendall(b"".join(frame(BEGIN, channel=channel) for channel in range(3)))
        sock.sendall(frame(BEGIN, channel=3))
        assert b"amqp:connection:framing-error" in read_to_end(sock)
    assert_serves(clients, router)


@pytest.mark.parametrize("stage", ["nothing", "header", "sasl"])
def test_handshake_that_never_completes(clients: Clients, routers: Routers, stage: str) -> None:
    router = routers.start("A", initialHandshakeTimeoutSeconds=1)
    with socket.create_connection(("localhost", router.port), 5) as sock:
        started = time.monotonic()
        if stage == "header":
            sock.sendall(SASL_HEADER)
        elif stage == "sasl":
            sock.sendall(
                SASL_HEADER + frame(performative(0x41, b"\xa3\x09ANONYMOUS", 1), kind=1) + AMQP_HEADER
            )
        received = read_to_end(sock, 8)
        assert 0.8 < time.monotonic() - started < 4
    if stage == "sasl":
        assert b"amqp:not-allowed" in received
    router.await_log("Timeout waiting for initial handshake")
    assert_serves(clients, router)


def test_silent_peer_is_closed_and_a_heartbeat_keeps_a_connection(clients: Clients, routers: Routers) -> None:
    router = routers.start("A", idleTimeoutSeconds=2)
    beating = clients.connect(router.port)
    assert beating.transport.remote_idle_timeout == 1.0, "half of the time-out is announced"
    with socket.create_connection(("localhost", router.port), 5) as silent:
        handshake(silent)
        received = bytearray()
        silent.setblocking(False)
        clients.until(lambda: ended(silent, received), "the silent connection is closed", 6)
        assert b"amqp:resource-limit-exceeded" in received
    router.await_log("local-idle-timeout expired")
    clients.round_trip()
    assert not beating.finished
    assert not beating.connection.state & Endpoint.REMOTE_CLOSED


def test_router_sends_heartbeats(clients: Clients, router: Router) -> None:
    client = clients.connect(router.port, idle_timeout=1.0)
    before = client.transport.frames_input
    clients.until(lambda: client.finished or client.transport.frames_input >= before + 4, "heartbeats")
    assert not client.finished, client.failure


def test_ipv6_listener(clients: Clients, routers: Routers) -> None:
    try:
        port = free_port(socket.AF_INET6)
    except OSError:
        pytest.fail("this machine has no IPv6 loopback address")
    router = routers.start("A", listener(port, name="six", host="::1", socketAddressFamily="IPv6"))
    client = clients.connect(port, host="::1")
    receiver = client.receiver("x", credit=1, accept=True)
    assert clients.connect(router.port).sender("x").deliver("y") == "accepted"
    assert receiver.bodies() == ["y"]
    router.await_log("[::1]")


def test_session_end_takes_its_links_along(clients: Clients, router: Router) -> None:
    client = clients.connect(router.port)
    session = client.new_session()
    receiver = client.receiver("session-end", credit=10, session=session)
    sender = clients.connect(router.port).sender("session-end").await_credit()
    sent = sender.send("x")
    receiver.expect(1)
    session.close()
    assert sender.outcome(sent) == "modified"
    clients.until(lambda: session.state & Endpoint.REMOTE_CLOSED, "the session is closed")
    client.receiver("session-end", credit=1, accept=True)
    assert sender.deliver("y") == "accepted"


def test_detach_while_deliveries_are_under_way(clients: Clients, router: Router) -> None:
    """Links come and go in the middle of traffic; every message has exactly one outcome."""
    consumer = clients.connect(router.port)
    anchor = consumer.receiver("churn", credit=50, accept=True)
    sender = clients.connect(router.port).sender("churn")
    sent = []
    for turn in range(30):
        extra = consumer.receiver("churn", credit=5, accept=turn % 2 == 0)
        for number in range(20):
            sent.append(sender.await_credit().send(f"{turn}-{number}"))

        def one_more_arrives(link: Receiver = extra, turn: int = turn) -> bool:
            """The credit of the link may have arrived behind the messages before."""
            sent.append(sender.await_credit().send(f"{turn}-more"))
            return bool(link.received)

        clients.until(one_more_arrives, "the new link gets a message")
        extra.link.close()
    clients.until(lambda: all(item.outcome is not None for item in sent), "all outcomes")
    outcomes = {item.outcome for item in sent}
    assert outcomes <= {"accepted", "modified", "released"}
    accepted = sum(item.outcome == "accepted" for item in sent)
    assert accepted >= 300
    assert len(anchor.received) > 0


def test_peer_that_never_closes_its_socket(clients: Clients, router: Router) -> None:
    """After both close frames the router drops the socket itself."""
    before = router.descriptors()
    with socket.create_connection(("localhost", router.port), 5) as sock:
        handshake(sock)
        sock.sendall(frame(performative(0x18, b"", 0)))
        eventually(lambda: router.descriptors() <= before, "the router has closed the socket", 8)
        assert b"\x00\x53\x18" in read_to_end(sock)


def test_ten_thousand_links_of_one_client(clients: Clients, router: Router) -> None:
    client = clients.connect(router.port, container="attacher")
    memory, cpu = router.memory(), router.cpu()
    links = [client.sender(f"links/{number}", wait=False).link for number in range(5000)]
    links += [client.receiver(f"links/{number}", wait=False).link for number in range(5000)]
    clients.until(partial(_all_in, links, Endpoint.REMOTE_ACTIVE), "all links")
    assert router.cpu() - cpu < 10
    assert router.memory() - memory < 150 * MEGA
    clients.until(lambda: client.senders[links[4999].name].credit > 0, "credit")
    assert_serves(clients, router)
    cpu = router.cpu()
    client.drop()
    router.await_log("connection closed", '"connection":' + _connection_id(router, "attacher"), timeout=30)
    assert_serves(clients, router)
    assert router.cpu() - cpu < 10


def _connection_id(router: Router, container: str) -> str:
    """The number of a connection in the log, by the name of its container."""
    return str(json.loads(router.await_log("connection opened", f'"{container}"'))["connection"]) + ","


def test_thousands_of_consumers_of_one_address(clients: Clients, router: Router) -> None:
    senders = [clients.connect(router.port).sender("crowd") for _ in range(5)]
    client = clients.connect(router.port)
    cpu = router.cpu()
    links = [client.receiver("crowd", wait=False).link for _ in range(3000)]
    clients.until(partial(_all_in, links, Endpoint.REMOTE_ACTIVE), "all links")
    assert all(sender.await_credit() for sender in senders)
    client.drop()
    clients.until(lambda: all(sender.credit == 0 for sender in senders), "credit is drained")
    assert router.cpu() - cpu < 10


def test_memory_returns_after_many_connections(routers: Routers) -> None:
    """500 connections, each with links and messages, then 1,000 more: nothing stays behind."""
    router = routers.start("A")

    def churn(rounds: int) -> None:
        for _ in range(rounds):
            batch = Clients()
            for _ in range(50):
                client = batch.connect(router.port, wait=False)
                client.receiver("churn", credit=10, accept=True, wait=False)
                client.sender("churn", wait=False)
            for client in batch.all:
                client.senders[next(iter(client.senders))].await_credit()
                client.senders[next(iter(client.senders))].send("x")
            batch.round_trip()
            for client in batch.all[::2]:
                client.connection.close()
            batch.until(
                partial(_all_in, [client.connection for client in batch.all[::2]], Endpoint.REMOTE_CLOSED),
                "the closes are answered",
            )
            batch.close()

    churn(10)
    eventually(lambda: router.descriptors() < 30, "all sockets are closed")
    middle = router.memory()
    churn(20)
    eventually(lambda: router.descriptors() < 30, "all sockets are closed")
    assert router.memory() - middle < 2 * MEGA


def _all_in(endpoints: list[Any], state: int) -> bool:
    return all(endpoint.state & state for endpoint in endpoints)


def test_memory_returns_after_many_links_and_sessions(routers: Routers) -> None:
    """One connection that attaches and detaches for ever."""
    router = routers.start("A")
    clients = Clients()
    client = clients.connect(router.port)

    def churn(rounds: int) -> None:
        for _ in range(rounds):
            sessions = [client.new_session() for _ in range(50)]
            links = [
                link
                for number, session in enumerate(sessions)
                for link in (
                    client.receiver(f"churn/{number}", credit=1, session=session, wait=False).link,
                    client.sender(f"churn/{number}", session=session, wait=False).link,
                )
            ]
            clients.until(partial(_all_in, links, Endpoint.REMOTE_ACTIVE), "all links")
            for link in links[::2]:
                link.close()
            for session in sessions:
                session.close()
            clients.until(partial(_all_in, sessions, Endpoint.REMOTE_CLOSED), "all ends")
            for session in sessions:
                session.free()
            # The same on a session that stays.
            links = [client.receiver(f"churn/{number}", credit=1, wait=False).link for number in range(100)]
            clients.until(partial(_all_in, links, Endpoint.REMOTE_ACTIVE), "all links")
            for link in links:
                link.close()
            clients.until(partial(_all_in, links, Endpoint.REMOTE_CLOSED), "all detaches")
            for link in links:
                link.free()
            client.senders.clear()
            client.receivers.clear()

    churn(10)
    middle = router.memory()
    churn(20)
    assert router.memory() - middle < 3 * MEGA
    clients.close()


def test_a_router_that_is_told_to_stop_again_and_again_ends_as_if_told_once(routers: Routers) -> None:
    """Up to its last moment; else whoever waits for it would take the end for a crash."""
    router = routers.start("A")
    process = router.process
    assert process is not None
    deadline = time.monotonic() + STOP_SECONDS
    while process.poll() is None:
        assert time.monotonic() < deadline
        process.send_signal(signal.SIGTERM)
    LIVE.remove(router)
    router.process = None
    assert process.returncode == 0


def test_stop_lets_deliveries_under_way_come_to_an_end(clients: Clients, routers: Routers) -> None:
    """SIGTERM: what was sent gets its outcome, no more credit is given, and peers are told why."""
    router = routers.start("A")
    receiver = clients.connect(router.port).receiver("x", credit=1000)
    sender = clients.connect(router.port).sender("x").await_credit()
    sent = [sender.send(str(number)) for number in range(50)]
    receiver.expect(50)
    assert router.process is not None
    router.process.terminate()
    clients.until(lambda: sender.credit == 0, "credit is taken back")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("localhost", router.port), 2).close()
    for item in receiver.received:
        item.settle()
    assert {sender.outcome(item) for item in sent} == {"accepted"}
    assert sender.credit == 0
    condition = sender.client.await_end()
    assert condition is not None
    assert condition.name == "amqp:connection:forced"
    eventually(lambda: router.process is not None and router.process.poll() == 0, "the router has ended")
    router.process = None


def test_clients_are_told_where_else_to_connect(routers: Routers, clients: Clients) -> None:
    port = free_port()
    urls = "spare.example, amqps://[::1]:5671"
    router = routers.start("A", listener(port, name="spared", failoverUrls=urls))
    told = clients.connect(port).await_open().connection.remote_properties
    assert told["failover-server-list"] == [
        {"network-host": "spare.example"},
        {"scheme": "amqps", "network-host": "::1", "port": "5671"},
    ]
    plain = clients.connect(router.port).await_open().connection.remote_properties
    assert "failover-server-list" not in plain


def test_close_with_a_condition_that_is_not_described(clients: Clients, router: Router) -> None:
    client = clients.connect(router.port)
    client.connection.condition = Condition("amqp:connection:forced")
    client.close()
    router.await_log("connection closed", '"reason":"closed by peer: amqp:connection:forced"')
