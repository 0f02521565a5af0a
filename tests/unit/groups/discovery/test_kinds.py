"""Kinds of discovery: where each asks, and that each address is asked once for each question."""

from __future__ import annotations

import pytest

from isthmus_router.groups.discovery.dns import Dns
from isthmus_router.groups.discovery.gossip import ROTATED_BY, Gossip
from isthmus_router.groups.discovery.host_list import MOST_LEARNED, Host, HostList
from isthmus_router.groups.discovery.kinds import DiscoveryKind
from isthmus_router.groups.discovery.multicast import Multicast
from isthmus_router.groups.discovery.tunnel import Tunnel
from isthmus_router.groups.discovery.ways import MOST_ASKED, MOST_QUESTIONS, Ways
from isthmus_router.groups.identity import MemberId, MemberInfo, PhysicalAddress, member_id, tunnel_address

A, B = PhysicalAddress("10.0.0.1", 7_800), PhysicalAddress("10.0.0.2", 7_800)
ADA, BOB = member_id(b"a" * 16), member_id(b"b" * 16)
INFOS = [MemberInfo(ADA, "ada", (A,)), MemberInfo(BOB, "bob", (B, tunnel_address(BOB)))]


class Port:
    """What was asked of the driver."""

    def __init__(self) -> None:
        self.sent: list[tuple[PhysicalAddress, bytes]] = []
        self.datagrams: list[bytes] = []
        self.names: list[str] = []
        self.asked_routers = 0

    def send(self, to: PhysicalAddress, frame: bytes) -> None:
        self.sent.append((to, frame))

    def backlog(self, to: PhysicalAddress, member: MemberId) -> int:
        raise AssertionError(to)

    def multicast(self, frame: bytes) -> None:
        self.datagrams.append(frame)

    def resolve(self, host: str) -> None:
        self.names.append(host)

    def ask_gossip_routers(self) -> None:
        self.asked_routers += 1

    def drop(self, to: PhysicalAddress, member: MemberId) -> None:
        raise AssertionError(to)

    def asked(self) -> list[PhysicalAddress]:
        """Whom since the last time."""
        asked = [to for to, _ in self.sent]
        self.sent.clear()
        return asked


class Listed(DiscoveryKind):
    """Some addresses."""

    def __init__(self, *addresses: PhysicalAddress) -> None:
        self.addresses = addresses

    def ask(self, frame: bytes) -> tuple[PhysicalAddress, ...]:
        return self.addresses


def test_multicast_sends_one_datagram() -> None:
    port = Port()
    Ways([Multicast(port)], port).ask(0.0, b"?", worth=2.0)
    assert port.datagrams == [b"?"]
    assert port.sent == []


def test_host_list_asks_every_port_and_looks_names_up_each_time() -> None:
    port = Port()
    hosts = [
        Host("10.0.0.1", 7_800, 2),
        Host("fd00::1", 7_800),
        Host("shelf", 7_900, 2),
        Host("shelf", 7_950),
    ]
    ways = Ways([HostList(hosts, port)], port)
    ways.ask(0.0, b"?", worth=2.0)
    assert port.asked() == [A, A._replace(port=7_801), PhysicalAddress("fd00::1", 7_800)]
    assert port.names == ["shelf"]
    ways.on_resolved(0.1, "shelf", ["10.0.0.8", "10.0.0.9"])
    assert sorted(port.asked()) == [
        PhysicalAddress(f"10.0.0.{number}", each) for number in (8, 9) for each in (7_900, 7_901, 7_950)
    ]
    ways.on_resolved(0.1, "another", ["10.0.0.7"])
    ways.on_resolved(0.1, "shelf", [])
    assert port.asked() == []
    ways.ask(5.0, b"!", worth=2.0)
    assert port.names == ["shelf", "shelf"]


def test_host_list_remembers_who_was_met() -> None:
    port = Port()
    ways = Ways([HostList([Host("10.0.0.1", 7_800)], port)], port)
    ways.learned([B, A, B])
    ways.ask(0.0, b"?", worth=2.0)
    assert port.asked() == [A, B]
    met = [PhysicalAddress("10.1.0.1", number) for number in range(MOST_LEARNED)]
    kind = HostList([], port)
    for address in (B, *met, met[5]):
        kind.learned(address)
    assert list(kind.ask(b"?")) == [*met[:5], *met[6:], met[5]]


def test_dns_asks_every_pod() -> None:
    port = Port()
    ways = Ways([Dns("members.svc", 7_800, port)], port)
    ways.ask(0.0, b"?", worth=2.0)
    assert (port.names, port.sent) == (["members.svc"], [])
    ways.on_resolved(0.0, "elsewhere.svc", ["10.0.0.9"])
    ways.on_resolved(0.0, "members.svc", ["10.0.0.1", "10.0.0.2"])
    assert port.sent == [(A, b"?"), (B, b"?")]


def test_gossip_asks_whom_routers_know() -> None:
    port = Port()
    ways = Ways([Gossip(port)], port)
    ways.ask(0.0, b"?", worth=2.0)
    assert (port.asked_routers, port.sent) == (1, [])
    ways.on_gossip_members(0.0, INFOS)
    assert port.asked() == [A, B, tunnel_address(BOB)]


def test_tunnel_asks_through_the_routers() -> None:
    port = Port()
    ways = Ways([Tunnel(port)], port)
    ways.readdressed([tunnel_address(BOB)])
    ways.ask(0.0, b"?", worth=2.0)
    ways.on_gossip_members(0.0, INFOS)
    assert port.asked() == [PhysicalAddress(ADA.hex(), 0, tunnelled=True)]


def test_all_kinds_are_asked_and_each_address_once() -> None:
    port = Port()
    ways = Ways([Listed(A, A), Listed(A, B), Multicast(port), Dns("members.svc", 7_800, port)], port)
    ways.ask(0.0, b"?", worth=2.0)
    ways.on_resolved(0.1, "members.svc", [A.host, "10.0.0.3"])
    assert port.asked() == [A, B, PhysicalAddress("10.0.0.3", 7_800)]
    ways.ask(0.2, b"!", worth=2.0)
    assert port.asked() == [A, B]
    assert len(port.datagrams) == 2


def test_nobody_is_asked_at_an_own_address() -> None:
    port = Port()
    ways = Ways([Listed(A, B)], port)
    ways.readdressed([A])
    ways.ask(0.0, b"?", worth=2.0)
    assert port.asked() == [B]
    ways.readdressed([B])
    ways.ask(0.0, b"?", worth=2.0)
    assert port.asked() == [A]


def invented(count: int) -> list[MemberInfo]:
    """Members that an intruder has registered, with as many addresses as there can be."""
    return [
        MemberInfo(
            member_id(number.to_bytes(16)),
            f"m{number}",
            tuple(PhysicalAddress(f"10.{number // 250}.{number % 250}.1", port) for port in range(1, 17)),
        )
        for number in range(count)
    ]


def test_first_address_of_each_member_is_asked_before_second_ones() -> None:
    port = Port()
    ways = Ways([Gossip(port)], port)
    ways.ask(0.0, b"?", worth=2.0)
    ways.on_gossip_members(0.0, [*invented(300), *INFOS])
    asked = port.asked()
    assert {A, B} <= set(asked[:302])
    assert len(asked) == MOST_ASKED


@pytest.mark.parametrize("kind", [Gossip, Tunnel])
def test_no_member_is_always_behind_those_that_are_asked(kind: type[Gossip]) -> None:
    port = Port()
    ways = Ways([kind(port)], port)
    infos = [*invented(MOST_ASKED), *INFOS]
    asked = set[PhysicalAddress]()
    for number in range(1 + len(infos) // ROTATED_BY):
        ways.ask(10.0 * number, b"?", worth=2.0)
        ways.on_gossip_members(10.0 * number, infos)
        asked |= set(port.asked()[:ROTATED_BY])
    assert asked >= ({tunnel_address(ADA), tunnel_address(BOB)} if kind is Tunnel else {A, B})


def test_several_routers_answer_and_late_ones_do_not_count() -> None:
    port = Port()
    ways = Ways([Gossip(port)], port)
    ways.ask(0.0, b"1", worth=2.0)
    ways.ask(1.0, b"2", worth=2.0)
    ways.on_gossip_members(1.5, INFOS[:1])
    ways.on_gossip_members(1.6, INFOS[:1])
    assert port.sent == [(A, b"1"), (A, b"2")]
    port.sent.clear()
    ways.on_gossip_members(2.0, [MemberInfo(BOB, "bob", (B,))])
    assert port.sent == [(B, b"2")]
    port.sent.clear()
    ways.on_gossip_members(3.0, [MemberInfo(BOB, "bob", (B._replace(port=1),))])
    assert port.sent == []


def test_a_question_that_is_repeated_is_asked_once() -> None:
    port = Port()
    ways = Ways([Gossip(port)], port)
    for now in (0.0, 0.25, 0.5):
        ways.ask(now, b"?", worth=2.0)
    ways.on_gossip_members(1.0, INFOS[:1])
    assert port.sent == [(A, b"?")]


def test_questions_and_whom_they_go_to_are_bounded() -> None:
    port = Port()
    ways = Ways([Dns("members.svc", 7_800, port)], port)
    for number in range(MOST_QUESTIONS + 3):
        ways.ask(0.0, b"%d" % number, worth=2.0)
    ways.on_resolved(0.0, "members.svc", ["10.0.0.1"])
    assert [frame for _, frame in port.sent] == [b"%d" % number for number in range(3, MOST_QUESTIONS + 3)]
    port.sent.clear()
    ways.ask(5.0, b"?", worth=2.0)
    for first in (0, MOST_ASKED - 10):
        ways.on_resolved(5.0, "members.svc", [f"host{first + step}" for step in range(MOST_ASKED - 10)])
    assert len(port.asked()) == MOST_ASKED
