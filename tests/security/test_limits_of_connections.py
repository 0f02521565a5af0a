"""The router stops clients that take too many links or connections; other clients are not affected."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.support.by_hand import open_frame
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.raw import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    OPEN,
    RawConnection,
    frame,
)
from tests.integration.support.routers import Router, Routers, connector, eventually, listener
from tests.security.support.canary import Canary, memory
from tests.security.support.frames import Flood, attach, begin, opening
from tests.security.support.half_open import client_hello, still_open

from isthmus_router.message.types import Symbol, UInt, ULong, UShort

LIMIT = b"amqp:resource-limit-exceeded"
MEBIBYTE = 1 << 20


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    """Connections of an attacker."""
    opened: list[socket.socket] = []
    yield opened
    for sock in opened:
        sock.close()


def test_links_beyond_the_limit_are_refused_and_the_others_work(routers: Routers, clients: Clients) -> None:
    router = routers.start("A", maxLinks=3)
    client = clients.connect(router.port)
    receiver = client.receiver("orders", credit=10, accept=True)
    sender, other = client.sender("orders"), client.sender("orders")
    fourth = client.sender("orders", session=client.new_session()).link
    assert client.refusal(fourth).name == LIMIT.decode()
    assert client.refusal(fourth).description == "no more than 3 links on a connection"
    assert sender.deliver("x") == "accepted"
    client.detach(fourth)
    client.detach(other.link)
    assert client.sender("orders").deliver("y") == "accepted"
    receiver.expect(2)


def test_flood_of_links_ends_its_connection_alone(routers: Routers) -> None:
    router = routers.start("A", maxLinks=1000)
    before = memory(router.pid)
    with Canary(router) as canary, RawConnection(router.port) as flood:
        flood.send(opening(), begin())
        flood.expect(BEGIN)
        for first in range(0, 2000, 500):
            flood.send(*(attach(n, f"l{n}", f"many/{n}") for n in range(first, first + 500)))
            flood.expect(ATTACH, 500)
        flood.expect(DETACH, 1000)
        assert DETACH not in [one.code for one in flood.rest()], "the first 1000 links are accepted"
        flood.send(attach(2000, "last", "many/2000"))
        (closed,) = flood.expect(CLOSE)
    assert LIMIT in repr(closed.fields).encode()
    canary.report.check()
    assert memory(router.pid) < before + 50 * MEBIBYTE


def test_peer_that_attaches_on_after_the_close_is_dropped(routers: Routers) -> None:
    router = routers.start("A", maxLinks=10)
    with Canary(router) as canary, Flood(router.port) as flood:
        flood.send(opening(), *(begin(channel) for channel in range(10)))
        for n in range(20_000):
            if not flood.send(attach(n, f"l{n}", "x", channel=n % 10)):
                break
        assert flood.closed.wait(60)
    canary.report.check()
    eventually(lambda: router.metric("links", 'type="endpoint"') == 0, "its links are gone")


def half_made(router: Router, port: int, sockets: list[socket.socket], count: int, hello: bytes) -> None:
    """Connections from 127.0.0.2 that send `hello` and no more."""
    for _ in range(count):
        sock = socket.create_connection(("localhost", port), 60, source_address=("127.0.0.2", 0))
        sockets.append(sock)
        sock.sendall(hello)
        sock.setblocking(False)


def test_half_made_tls_handshakes_are_bounded_and_their_memory_is_given_back(
    routers: Routers, clients: Clients, sockets: list[socket.socket], tmp_path: Path
) -> None:
    authority, port = Authority(tmp_path, "bank"), free_port()
    limits = {"maxHandshakes": 400, "maxHandshakesPerHost": 300}
    router = routers.start(
        "A",
        authority.issue("localhost").profile(),
        listener(port, name="secure", sslProfile="tls", requireSsl=True, **limits),
    )
    before = memory(router.pid)
    with Canary(router) as canary:
        half_made(router, port, sockets, 900, client_hello())
        eventually(lambda: still_open(sockets) <= 300, "the oldest ones are dropped")
        assert memory(router.pid) < before + 60 * MEBIBYTE
        # Another host is not affected.
        clients.connect(port, tls=authority.issue("client").client_domain(present=False))
        assert still_open(sockets) == 300
        for sock in sockets:
            sock.close()
        eventually(lambda: memory(router.pid) < before + 12 * MEBIBYTE, "their memory is given back")
    canary.report.check()


def test_half_open_connections_in_clear_are_dropped_oldest_first(
    routers: Routers, clients: Clients, sockets: list[socket.socket]
) -> None:
    router = routers.start("A", maxHandshakes=50, maxHandshakesPerHost=40)
    kept = clients.connect(router.port)
    half_made(router, router.port, sockets, 100, b"")
    eventually(lambda: still_open(sockets) == 40, "the oldest ones are dropped")
    assert still_open(sockets[:60]) == 0
    assert kept.sender("nobody").link
    router.await_log("more connections than allowed are in their handshake", "127.0.0.2")


@pytest.mark.parametrize("role", ["edge", "inter-router"])
def test_routers_beyond_the_limit_of_the_listener_are_refused(routers: Routers, role: str) -> None:
    """A certificate for one router opens any number of connections, each with another id."""
    port = free_port()
    router = routers.start("A", listener(port, role, name="routers", maxConnections=5), mode="interior")
    with Canary(router) as canary:
        held = [RawConnection(port) for _ in range(5)]
        for number, peer in enumerate(held):
            peer.send(AMQP_HEADER, open_frame(f"id-{number}"))
            peer.expect(OPEN)
        for number in range(15):
            with RawConnection(port) as peer:
                peer.send(AMQP_HEADER, open_frame(f"further-{number}"))
                (closed,) = peer.expect(CLOSE)
                assert closed.field(0).value[0] == LIMIT.decode()
                assert "maxConnections" in closed.field(0).value[1]
        eventually(lambda: router.metric("excess_connections_total") == 15, "all are counted")
        router.await_log("connection.excess", "routers")
        assert router.metric("connections", f'role="{role}"') == 5
        held.pop().socket.close()
        eventually(lambda: router.metric("connections", f'role="{role}"') == 4, "one is gone")
        with RawConnection(port) as peer:
            peer.send(AMQP_HEADER, open_frame("another"))
            peer.expect(OPEN)
            eventually(lambda: router.metric("connections", f'role="{role}"') == 5, "another one is open")
        for peer in held:
            peer.socket.close()
    canary.report.check()


def test_connections_of_one_router_leave_places_for_others(routers: Routers) -> None:
    """Those for data, and those that wait to take over, are no ways to neighbors that would be counted."""
    port, places = free_port(), 200
    a = routers.start(
        "A", listener(port, "inter-router", name="routers", maxConnections=places), mode="interior"
    )
    with Canary(a) as canary:
        held, refused = [], []
        for number in range(places):
            peer = RawConnection(port, address="127.0.0.2")
            held.append(peer)
            data = {"qd.inter-router-role": 4} if number % 2 else {}
            peer.send(AMQP_HEADER, group_frame("greedy", number, data))
            peer.expect(OPEN)
            if number >= places // 2:
                (closed,) = peer.expect(CLOSE)
                refused.append(closed.field(0).value)
        assert {name for name, *_ in refused} == {LIMIT.decode()}
        assert "this user or host has 100 of the 200 connections" in refused[0][1]
        assert a.metric("excess_connections_total") == places // 2
        b = routers.start("B", connector(port, name="to-A"), mode="interior")
        eventually(lambda: b.metric("routers") == 1, "another router joins")
        for peer in held:
            peer.socket.close()
        eventually(lambda: a.metric("connections", 'role="inter-router-data"') == 2, "they are gone")
        with RawConnection(port, address="127.0.0.2") as peer:
            peer.send(AMQP_HEADER, group_frame("greedy", places, {}))
            peer.expect(OPEN)
            eventually(lambda: a.metric("connections", 'role="inter-router"') == 2, "places are free again")
    canary.report.check()


def group_frame(name: str, ordinal: int, properties: dict[str, int]) -> bytes:
    """The open frame of a router with a group of connections."""
    group: dict[Symbol, object] = {
        Symbol("qd.group-correlator"): "g",
        Symbol("qd.group-ordinal"): ULong(ordinal),
    }
    group |= {Symbol(key): value for key, value in properties.items()}
    return frame(OPEN, [name, "localhost", UInt(65536), UShort(100), None, None, None, None, None, group])
