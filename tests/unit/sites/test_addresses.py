"""Whom an address of a group means, and which addresses replies from elsewhere may go to."""

from __future__ import annotations

import pytest
from tests.unit.sites.loopback import EVERYBODY, A, B, D

from isthmus_router.groups.identity import MemberId
from isthmus_router.sites.addresses import (
    GroupAddresses,
    ManyMembersError,
    NoSuchMemberError,
    may_be_answered,
)
from isthmus_router.sites.port import SiteMember

B_IN_SFO = SiteMember(MemberId(b"b" * 16), "sfo", "B")
D_TOO = SiteMember(MemberId(b"d" * 16), "sfo", "D")


@pytest.fixture
def addresses() -> GroupAddresses:
    found = GroupAddresses("trades", A)
    found.members_changed(EVERYBODY)
    return found


@pytest.mark.parametrize(
    ("address", "member"),
    [
        ("relay/trades/A", A),
        ("relay/trades/nyc/B", B),
        ("relay/trades/D", D),
        ("relay/trades/sfo/D", D),
        (f"relay/trades/~/{D.id.hex()}", D),
    ],
)
def test_a_member_by_its_address(addresses: GroupAddresses, address: str, member: SiteMember) -> None:
    assert addresses.is_of_one(address)
    assert addresses.member(address) == (member, "")


def test_the_own_site_comes_first(addresses: GroupAddresses) -> None:
    addresses.members_changed((*EVERYBODY, B_IN_SFO))
    assert addresses.member("relay/trades/B") == (B, "")
    assert addresses.member("relay/trades/sfo/B") == (B_IN_SFO, "")


@pytest.mark.parametrize("address", ["relay/trades/D", "relay/trades/sfo/D"])
def test_two_of_a_name_are_told_apart_by_their_identity(addresses: GroupAddresses, address: str) -> None:
    addresses.members_changed((*EVERYBODY, D_TOO))
    with pytest.raises(ManyMembersError) as caught:
        addresses.member(address)
    for member in (D, D_TOO):
        assert f"relay/trades/~/{member.id.hex()} (sfo/D)" in str(caught.value)
        assert addresses.member(f"relay/trades/~/{member.id.hex()}") == (member, "")


@pytest.mark.parametrize(
    "address",
    [
        "relay/trades/X",
        "relay/trades/lon/A",
        "relay/trades/",
        "relay/trades/~/",
        "relay/trades/~/zz/x",
        "relay/trades/~/4141/x",
        f"relay/trades/~/{b'X'.hex() * 16}/x",
    ],
)
def test_nobody(addresses: GroupAddresses, address: str) -> None:
    with pytest.raises(NoSuchMemberError, match="trades"):
        addresses.member(address)


def test_an_error_names_no_more_than_a_few(addresses: GroupAddresses) -> None:
    addresses.members_changed([SiteMember(MemberId(bytes([n]) * 16), "nyc", f"m{n}") for n in range(100)])
    with pytest.raises(NoSuchMemberError, match="and 95 more"):
        addresses.member("relay/trades/X")


@pytest.mark.parametrize("reply_to", ["temp.1", "_topo/0/R1/temp.x", "replies//to/~/x"])
def test_replies_go_to_the_member_of_the_origin(addresses: GroupAddresses, reply_to: str) -> None:
    assert addresses.member(addresses.reply_prefix(D) + reply_to) == (D, reply_to)


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("replies", False),
        ("amqp:/orders", False),
        ("temp.1", False),
        ("_topo/0/R1/temp.abc", True),
        ("_edge/E1/temp.abc", True),
        ("_$temp.abc", True),
        ("$management", False),
        ("_local/$management", False),
        ("_local/temp.x", False),
        ("_topo/0/R1/$management", False),
        ("_topo/0/all/temp.x", False),
        ("_topo/0/all/qdrouter", False),
        ("_edge/E1/$management", False),
        ("_$qd.edge_addr_tracking", False),
        ("", False),
    ],
)
def test_temporary_addresses_alone_are_for_other_members(address: str, may: bool) -> None:
    assert may_be_answered(address) is may
