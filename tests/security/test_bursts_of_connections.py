"""Bursts of small frames on many connections of one host, or of one certificate, that arrive at the same time.

The attacked process is stopped while they are sent, so that all connections are ready in one iteration of its event
loop. The canary asks meanwhile, and later while the process works the bursts off.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.integration.gossip.support import GossipRouter, Peer
from tests.integration.sites.support.relay_sites import GROUP
from tests.integration.support.certificates import Authority
from tests.integration.support.routers import Routers
from tests.security.support.canary import Canary, cpu_that_counts
from tests.security.test_relay_members import attributes, context, framed, start_members

from isthmus_router.gossip.messages import VERSION, Heartbeat, Hello, encode_control
from isthmus_router.groups.frames import Kind, encode_body, encode_frame
from isthmus_router.groups.identity import NOBODY, GroupName, MemberInfo, PhysicalAddress, member_id
from isthmus_router.transport import hello as members

CONNECTIONS = 60
BURST_BYTES = 20_000
SEND_BUFFER_BYTES = 200_000
"""A burst and what comes before it fit into the buffers of the sockets."""
ROUNDS = 3
"""Of bursts to a member."""
MOST_CPU_SECONDS = 0.1
"""That the attacked process spends on anything while an answer to the canary is on its way."""
MOST_MEMORY_BYTES = 8_000_000
"""For the 1.2 MB of all bursts."""


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def connected(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    made.settimeout(20)
    made.connect(("127.0.0.1", port))
    return made


@pytest.fixture
async def gossip_router(tmp_path: Path) -> AsyncIterator[GossipRouter]:
    found = GossipRouter(tmp_path)
    try:
        yield await found.start()
    finally:
        found.kill()


async def test_bursts_on_many_connections_of_one_host_delay_no_client_of_a_gossip_router(
    gossip_router: GossipRouter,
) -> None:
    """Heartbeats of 6 bytes; they take little more memory than bytes while they wait."""
    assert gossip_router.process is not None
    pid = gossip_router.process.pid
    beat = encode_control(Heartbeat())
    burst = beat * (BURST_BYTES // len(beat))
    canary = await Peer.greeted(gossip_router, source="127.0.0.2")
    attackers = [connected(gossip_router.port) for _ in range(CONNECTIONS)]
    try:
        for attacker in attackers:
            attacker.sendall(encode_control(Hello(VERSION)))
            assert attacker.recv(1000)
        before, most, held = gossip_router.memory(), 0.0, 0
        unanswered = dict.fromkeys(attackers, len(burst))

        start = cpu_that_counts(pid)
        with stopped(pid):
            for attacker in attackers:
                attacker.sendall(burst)
                attacker.setblocking(False)
            canary.say(Heartbeat())
        while unanswered:
            assert await canary.hear() == Heartbeat()
            most = max(most, cpu_that_counts(pid) - start)
            held = max(held, gossip_router.memory())
            for attacker in list(unanswered):
                with contextlib.suppress(BlockingIOError):
                    data = attacker.recv(1 << 20)
                    assert data, "the connection has ended"
                    unanswered[attacker] -= len(data)
                if unanswered[attacker] <= 0:  # while it waits the router sends heartbeats of its own
                    del unanswered[attacker]
            start = cpu_that_counts(pid)
            canary.say(Heartbeat())
        assert most < MOST_CPU_SECONDS
        assert held - before < MOST_MEMORY_BYTES
    finally:
        for attacker in attackers:
            attacker.close()


def test_bursts_on_many_connections_of_one_certificate_delay_no_client_of_a_member(
    routers: Routers, tmp_path: Path
) -> None:
    """Heartbeats of a peer in no view."""
    authority = Authority(tmp_path, "own")
    one, two = start_members(routers, authority)
    tls, group = context(authority, "nyc-9"), GroupName(GROUP, "nyc", f"{GROUP}/nyc")
    port = int(str(attributes(one)["memberPort"]))
    attackers: list[tuple[ssl.SSLSocket, bytes]] = []
    try:
        for number in range(CONNECTIONS):
            me = MemberInfo(member_id(os.urandom(16)), "nyc-9", (PhysicalAddress("127.0.0.1", 9 + number),))
            connection = tls.wrap_socket(connected(port))
            connection.sendall(framed(members.encode_hello(members.Hello(group, me))))
            assert connection.recv(1000)  # its own HELLO
            beat = framed(
                encode_frame(Kind.HEARTBEAT, me.id, NOBODY, encode_body(5, [os.urandom(16)], [], []))
            )
            attackers.append((connection, beat * (BURST_BYTES // len(beat))))
        with Canary(one) as canary:
            for _ in range(ROUNDS):
                with stopped(one.pid):
                    for connection, burst in attackers:
                        connection.sendall(burst)
                for connection, _ in attackers:
                    with contextlib.suppress(TimeoutError, ssl.SSLError):
                        connection.settimeout(0.001)
                        while connection.recv(1 << 16):
                            pass
                    connection.settimeout(20)
        canary.report.check(at_least=20)
        assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
    finally:
        for connection, _ in attackers:
            connection.close()
    assert {each["name"] for each in one.status()["relay"]["members"]} == {one.id, two.id}
