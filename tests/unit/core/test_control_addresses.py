"""Addresses for routers, flow records and management are closed to clients in every spelling."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.access import UNAUTHORIZED, Access, ManagementLevel
from isthmus_router.core.address import Purpose, address_key, normalise, purpose
from isthmus_router.core.model import Connection
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Direction, Terminus
from isthmus_router.message.sections import SectionError

OF_ROUTERS = (
    "_local/qdhello",
    "_local/temp.x",
    "_local/sfe.abcde:0",
    "_local/$relay-bridge",
    "_topo/0/ME/qdrouter",
    "_topo/0/ME/qdrouter.ma",
    "_topo/0/all/qdrouter",
    "_topo/0/all/$management",
    "_topo/0/all/temp.x",
    "_topo/0/OTHER/$relay-bridge",
    "_topo/0/OTHER",
    "_edge/E/anything",
    "_edge/E",
    "_$qd.edge_addr_tracking",
    "_$qd.link_routes",
    "_anything",
    "$anything",
    "$relay-bridge",
    "_$phase.0/_local/qdhello",
    "_$phase.0//mc/sfe.all",
    "_$phase.0/_$phase.0/mc/sfe.all",
    "_$phase.1/$management",
)
OF_FLOW_RECORDS = (
    "mc/sfe.all",
    "mc/sfe.abcde:0",
    "mc/sfe.abcde:0.flows",
    "sfe.abcde:0",
    "_$phase.3/mc/sfe.all",
)
OF_MANAGEMENT = ("$management", "_local/$management", "_topo/0/ME/$management", "_edge/E/$management")
OF_CLIENTS = ("orders", "mc/orders", "sfe", "a.sfe.b", "_$temp.abc", "_topo/0/OTHER/temp.a", "_edge/E/temp.a")


def spellings(name: str) -> Iterator[str]:
    """Other texts for the address `name`."""
    yield name
    for prefix in ("/", "//", "amqp:", "amqp:/", "amqp://host/", "amqp://host:5672/", "amqp:/amqp:/"):
        yield prefix + name
    yield f"amqp://a/amqp://b//{name}"
    yield name + "/"
    yield name + ".//"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (OF_ROUTERS, Purpose.ROUTERS),
        (OF_FLOW_RECORDS, Purpose.FLOW_RECORDS),
        (OF_MANAGEMENT, Purpose.MANAGEMENT),
        (OF_CLIENTS, Purpose.CLIENTS),
    ],
)
def test_every_spelling_has_one_purpose(names: tuple[str, ...], expected: Purpose) -> None:
    for name in names:
        for text in spellings(name):
            assert purpose(text) is expected, text


def test_an_address_means_the_same_at_the_next_router() -> None:
    for name in (*OF_ROUTERS, *OF_FLOW_RECORDS, *OF_CLIENTS):
        for text in spellings(name):
            assert normalise(normalise(text)) == normalise(text)
            if purpose(text) is not Purpose.ROUTERS:
                key = address_key(text, "ME", edge=True)
                # An edge sends the name in the key of a mobile address to the interior.
                assert key[0] != "M" or address_key(key[1:], "ME", edge=False) == key, text


@pytest.mark.parametrize("role", [Role.NORMAL, Role.ROUTE_CONTAINER])
@pytest.mark.parametrize("name", [*OF_ROUTERS, *OF_FLOW_RECORDS])
def test_clients_attach_to_no_control_address(name: str, role: Role) -> None:
    router = RouterInMemory()
    client = router.connection(role)
    for text in spellings(name):
        for link in (router.sender(text, client), router.receiver(text, client)):
            assert router.port.refused[link].name == UNAUTHORIZED, text
            assert link.address is None
    assert not any(address.consumers or address.inlinks for address in router.core.addresses.values())


@pytest.mark.parametrize("name", [*OF_ROUTERS, *OF_FLOW_RECORDS])
def test_an_anonymous_sender_sends_to_no_control_address(name: str) -> None:
    router = RouterInMemory()
    sender = router.sender(None)
    for text in spellings(name):
        with pytest.raises(SectionError) as raised:
            router.core.check_destination(sender, text)
        assert raised.value.condition == UNAUTHORIZED
        assert repr(text)[:90] in str(raised.value)


def test_routers_use_control_addresses() -> None:
    router = RouterInMemory()
    for role in (Role.EDGE, Role.INTER_ROUTER_DATA):
        peer = router.connection(role)
        for name in (*OF_FLOW_RECORDS, "_topo/0/ME/qdrouter"):
            assert router.sender(name, peer) in router.port.accepted
            router.core.check_destination(router.sender(None, peer), name)


def test_a_dynamic_node_has_an_address_that_its_client_may_use() -> None:
    router = RouterInMemory()
    for direction in Direction:
        for name in ("mc/sfe.all", "_local/qdhello"):
            dynamic = Terminus(address=name, dynamic=True)
            source, target = (Terminus(), dynamic) if direction is Direction.IN else (dynamic, Terminus())
            link = router.attach(None, direction, source, target)
            made = (link.target if direction is Direction.IN else link.source).address or ""
            assert purpose(made) is Purpose.CLIENTS


def client_with(router: RouterInMemory, access: Access) -> Connection:
    """A client with these rights."""
    client = router.connection()
    client.access = access
    return client


def test_a_listener_gives_its_clients_flow_records_and_nothing_else() -> None:
    router = RouterInMemory()
    collector = client_with(router, Access(flow_records=True))
    for name in OF_FLOW_RECORDS:
        assert router.receiver(name, collector) in router.port.accepted
        router.core.check_destination(router.sender(None, collector), name)
    for name in OF_ROUTERS:
        assert router.receiver(name, collector) in router.port.refused


@pytest.mark.parametrize(
    ("level", "own", "other"),
    [
        (ManagementLevel.NONE, False, False),
        (ManagementLevel.BASIC, True, False),
        (ManagementLevel.READ, True, True),
        (ManagementLevel.WRITE, True, True),
    ],
)
def test_the_level_of_management_decides_which_routers_are_asked(
    level: ManagementLevel, own: bool, other: bool
) -> None:
    access = Access(management=level)
    for name in ("$management", "amqp:/_local/$management", "_topo/0/ME/$management"):
        assert (access.refusal(name, "ME") is None) is own, name
    for name in ("_topo/0/OTHER/$management", "_edge/E/$management"):
        assert (access.refusal(name, "ME") is None) is other, name
