"""What does not belong to a site, or makes no sense: told in words, and nothing is lost for others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.gossip.support import GossipRouter
from tests.integration.sites.support.relay_sites import GROUP, RelaySites, Stream, Tail
from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers

from isthmus_router.groups.identity import GroupName, MemberInfo, PhysicalAddress, member_id
from isthmus_router.groups.views import View, ViewId
from isthmus_router.relay.messages import BridgeKind, pack_hello
from isthmus_router.relay.messages import Hello as BridgeHello
from isthmus_router.transport.framing import PREFIX
from isthmus_router.transport.hello import Hello, encode_hello

STRANGER = MemberInfo(member_id(b"s" * 16), "stranger", (PhysicalAddress("127.0.0.1", 1),))
HALF_OPEN = 320
"""More than a relay takes."""
MEGA = 1_000_000


class Stand:
    """nyc of two members and sfo of one, and a stream from one to the other."""

    def __init__(self, routers: Routers, clients: Clients) -> None:
        self.sites = RelaySites()
        self.sites.site("nyc", routers.add("nyc-0"), routers.add("nyc-1"))
        self.sites.site("sfo", routers.add("sfo-0"))
        self.sites.direct("nyc", "sfo")
        routers.start_all()
        self.sites.formed()
        self.relay = self.sites.relay("nyc")
        self.clients = clients
        far = clients.connect(routers.all["sfo-0"].port)
        self._tail = Tail(far.receiver(f"relay/{GROUP}", credit=10_000, accept=True))
        near = clients.connect(self.sites.other("nyc").port)
        self._stream = Stream(clients, near.sender(f"relay/{GROUP}").await_credit())

    def port(self, attribute: str) -> int:
        """Of the relay of nyc."""
        return attribute_of(self.relay, attribute)

    def goes_on(self) -> None:
        """All that was ever sent has arrived, once and in order."""
        self._stream.send(200)
        self._stream.accepted()
        self.clients.until(lambda: len(self._tail.read()) >= self._stream.count, "all messages")
        assert self._tail.numbers == list(range(self._stream.count))
        self.sites.formed()


def attribute_of(router: Router, name: str) -> Any:
    """Of its relaySite."""
    return next(values[name] for kind, values in router.sections if kind == "relaySite")


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    routers, clients = Routers(tmp_path_factory.mktemp("stand")), Clients()
    try:
        yield Stand(routers, clients)
    finally:
        clients.close()
        routers.stop()


def alone(routers: Routers, site: str, number: int = 0, **attributes: Any) -> Router:
    """A site of one router that is not started yet."""
    router = routers.add(f"{site}-other-{number}")
    values = {
        "group": GROUP,
        "site": site,
        "plainText": True,
        "domain": "elsewhere",
        "memberHost": "127.0.0.1",
        "memberPort": free_port(),
        "bridgeHost": "127.0.0.1",
        "bridgePort": free_port(),
        **attributes,
    }
    router.sections.append(("relaySite", values))
    return router


def problem(router: Router, *texts: str) -> str:
    """Wait for a problem that says so."""

    def found(status: dict[str, Any]) -> str | None:
        remotes = (remote["problem"] for remote in status["relay"]["remotes"])
        every = (*status["relay"]["problems"], *remotes)
        return next((each for each in every if all(text in each for text in texts)), None)

    return found(router.await_status(found, f"a problem with {texts}")) or ""


def lonely(router: Router) -> None:
    """Wait until it is the only member of its site."""
    router.await_status(lambda status: len(status["relay"]["members"]) == 1, "a member")


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 10)


def ended(sock: socket.socket) -> bool:
    """Whether the peer ends the connection, sooner or later."""
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(65_536):
            pass
    return True


def framed(frame: bytes) -> bytes:
    return PREFIX.pack(len(frame)) + frame


def bridge_hello(version: int = 1, site: str = "lon") -> bytes:
    """What a relay of a site says first."""
    view = View(ViewId(1, STRANGER.id), (STRANGER,))
    hello = BridgeHello(version, GROUP, site, f"{GROUP}/{site}", "nyc", STRANGER.id, (), view, ())
    return framed(pack_hello(BridgeKind.HELLO, hello))


def member_hello(version: int = 1) -> bytes:
    """What a member says first."""
    return framed(encode_hello(Hello(GroupName(GROUP, "nyc", f"{GROUP}/nyc"), STRANGER, version=version)))


@pytest.mark.parametrize(
    ("site", "told"),
    [("nyc", "both sites are named nyc"), ("sfo", "another site is named sfo as well")],
)
def test_a_second_site_of_a_name(stand: Stand, routers: Routers, site: str, told: str) -> None:
    """Of the own one, or of another one that is up."""
    other = alone(routers, site)
    remote = {"site": "sfo" if site == "nyc" else "nyc", "endpoints": f"127.0.0.1:{stand.port('bridgePort')}"}
    other.sections.append(("relayRemote", remote))
    other.start()
    problem(stand.relay, told)
    problem(other, "refused there", told)
    stand.goes_on()


def test_a_second_site_where_members_are_looked_for(stand: Stand, routers: Routers) -> None:
    """The same group and site, but another RelaySite: neither takes the other's members for its own."""
    other = alone(routers, "nyc", discoveryHosts=f"127.0.0.1:{stand.port('memberPort')}").start()
    problem(stand.relay, "nyc-other-0", "domain 'elsewhere'", "this member is of")
    problem(other, "this member is of 'elsewhere'")
    lonely(other)
    stand.goes_on()


@pytest.fixture
def gossip(tmp_path: Any) -> Iterator[GossipRouter]:
    router = GossipRouter(tmp_path)
    asyncio.run(router.start())
    yield router
    router.kill()


@pytest.mark.parametrize("discovery", ["gossipRouter", "tunnel"])
def test_a_second_site_by_gossip_routers(routers: Routers, gossip: GossipRouter, discovery: str) -> None:
    hosts = f"127.0.0.1:{gossip.port}"
    one, two = (
        alone(
            routers,
            "nyc",
            number,
            discovery=discovery,
            discoveryHosts=hosts,
            domain=domain,
            memberName=domain,
        )
        for number, domain in enumerate(("here", "there"))
    )
    one.start()
    two.start()
    problem(one, "member there", "domain 'there'; this member is of 'here'")
    problem(two, "member here", "domain 'here'; this member is of 'there'")
    lonely(one)
    lonely(two)


@pytest.mark.parametrize(
    ("port", "said", "told"),
    [
        ("bridgePort", b"GET / HTTP/1.1\r\n\r\n", "bridge from 127.0.0.1: frame of 1195725856 bytes"),
        ("bridgePort", bridge_hello(2), "bridge from an unknown site: protocol version 2; 1 is spoken here"),
        ("bridgePort", bridge_hello(), "bridge from lon: site lon is not known to nyc"),
        ("memberPort", b"GET / HTTP/1.1\r\n\r\n", "member 127.0.0.1: frame of 1195725856 bytes"),
        ("memberPort", member_hello(2), "protocol version 2; this member speaks 1"),
        ("memberPort", framed(b"nonsense"), "the peer does not begin with HELLO"),
        (
            "memberPort",
            member_hello() + framed(b"\x19" + b"x" * 32),
            "member stranger: a frame in the name of another member",
        ),
    ],
)
def test_who_makes_no_sense_is_told_of(stand: Stand, port: str, said: bytes, told: str) -> None:
    with connect(stand.port(port)) as sock:
        sock.sendall(said)
        assert ended(sock)
    problem(stand.relay, told)
    stand.goes_on()


def test_garbage_at_a_gossip_router(gossip: GossipRouter) -> None:
    with connect(gossip.port) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert ended(sock)
    assert "connection ended" in gossip.log
    assert gossip.ready()


@pytest.mark.parametrize("port", ["bridgePort", "memberPort"])
def test_hundreds_that_say_nothing(stand: Stand, port: str) -> None:
    """Those who do say something get their place."""
    with contextlib.ExitStack() as ends:
        for _ in range(HALF_OPEN):
            ends.enter_context(connect(stand.port(port)))
        said = bridge_hello() if port == "bridgePort" else member_hello()
        sock = ends.enter_context(connect(stand.port(port)))
        sock.sendall(said)
        assert sock.recv(1) != b""
        stand.goes_on()


def test_a_message_of_50_megabytes(stand: Stand) -> None:
    """It is rejected with the bound; the session goes on."""
    client = stand.clients.connect(stand.relay.port)
    others = client.sender(f"relay/{GROUP}/nyc/{stand.relay.id}").await_credit()
    stand.clients.round_trip()
    large = client.sender(f"relay/{GROUP}").await_credit()
    before = stand.relay.memory()
    sent = large.send(bytes(50 * MEGA))
    stand.clients.until(lambda: sent.outcome or large.link.remote_condition, "an answer")
    condition = sent.condition or large.link.remote_condition
    assert condition.name == "amqp:link:message-size-exceeded"
    assert "1048576" in condition.description
    assert stand.relay.memory() < before + 20 * MEGA
    assert others.link.session.state
    stand.goes_on()


def test_ports_in_use(routers: Routers) -> None:
    """The router goes on without; it becomes a member when they are free."""
    for attribute in ("memberPort", "bridgePort"):
        router = alone(routers, f"at-{attribute.lower()}")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            next(values for kind, values in router.sections if kind == "relaySite")[attribute] = port
            router.start()
            assert "in use" in problem(router, str(port))
            router.await_log("cannot be a member of the site", str(port))
        lonely(router)
        assert router.status()["relay"]["problems"] == []


def test_senders_that_wait_for_a_member_learn_that_there_will_be_none(
    routers: Routers, clients: Clients
) -> None:
    router = alone(routers, "never")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        next(values for kind, values in router.sections if kind == "relaySite")["memberPort"] = port
        router.start()
        assert "in use" in problem(router, str(port))
        sender = clients.connect(router.port).sender(f"relay/{GROUP}").await_credit()
        waits = sender.send("anybody?")
        router.sections = [section for section in router.sections if not section[0].startswith("relay")]
        router.configure()
        gone = sender.client.refusal(sender.link)
    assert gone.name == "amqp:resource-deleted"
    assert waits.outcome != "accepted"


def test_members_of_one_name(routers: Routers) -> None:
    sites = RelaySites()
    sites.site("nyc", routers.add("nyc-0"), routers.add("nyc-1"), memberName="twin")
    routers.start_all()
    for router in routers.all.values():
        router.await_status(lambda status: len(status["relay"]["members"]) == 2, "both")
        problem(router, "member twin: 2 members have this name")
        router.await_log("relay site problem", '"event":"relay.problem"', "member twin")


def test_wall_clocks_do_not_matter(routers: Routers, clients: Clients) -> None:
    """Members whose clocks are years apart and jump: nobody is taken for dead, nothing is lost."""
    sites = RelaySites()
    members = [routers.add("nyc-0"), routers.add("nyc-1")]
    for router, years in zip(members, (-20, 10), strict=True):
        router.module = "tests.integration.sites.skewed"
        router.environment["SKEW_YEARS"] = str(years)
    sites.site("nyc", *members)
    sites.site("sfo", routers.add("sfo-0"))
    sites.direct("nyc", "sfo")
    routers.start_all()
    sites.formed()
    near = sites.other("nyc")
    tail = Tail(
        clients.connect(routers.all["sfo-0"].port).receiver(f"relay/{GROUP}", credit=10_000, accept=True)
    )
    stream = Stream(clients, clients.connect(near.port).sender(f"relay/{GROUP}").await_credit())
    stream.send(1_000)
    sites.relay("nyc").kill()
    stream.send(1_000)
    stream.accepted()
    clients.until(lambda: len(tail.read()) >= stream.count, "all messages")
    assert tail.numbers == list(range(stream.count))
    lag = near.status()["relay"]["remotes"][0]["lagSeconds"]
    assert 0 <= lag < 60
