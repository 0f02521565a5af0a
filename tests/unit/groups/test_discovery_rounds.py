"""Discovery: whoever is there is found, by every kind, and nobody else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.groups.address_network import PORT, Member, Network

from isthmus_router.groups.discovery.host_list import Host
from isthmus_router.groups.identity import PhysicalAddress, tunnel_address
from isthmus_router.groups.views import View, ViewId

KINDS = ("multicast", "host-list", "dns", "gossip", "tunnel")


def at(number: int) -> PhysicalAddress:
    return PhysicalAddress(f"10.0.0.{number}", PORT)


def hosts(*numbers: int) -> tuple[Host, ...]:
    return tuple(Host(at(number).host, PORT) for number in numbers)


def start(network: Network, kind: str, number: int, listed: Sequence[Host]) -> Member:
    member = Member(network, f"m{number}", at(number), kinds=[kind], hosts=listed)
    if kind == "tunnel":
        member.resolver.readdressed((tunnel_address(member.id),))
    return member


def view_of(number: int, *members: Member) -> View:
    return View(ViewId(number, members[0].id), tuple(member.info for member in members))


@pytest.mark.parametrize("kind", KINDS)
def test_everybody_finds_everybody_else(kind: str) -> None:
    network = Network()
    members = [start(network, kind, number, hosts(1, 2, 3)) for number in (1, 2, 3)]
    for member in members:
        member.find()
    network.run(0.1)
    for member in members:
        others = {other.id for other in members if other is not member}
        assert {answer.info.id for answer in member.heard.answers} == others
        assert not any(answer.is_member for answer in member.heard.answers)
        assert set(member.resolver.cache) == others
