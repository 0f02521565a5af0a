"""Messages that are passed on while they arrive, and their links, are freed with their end."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Delivery
from tests.unit.amqp.garbage import nothing_left_to_collect
from tests.unit.amqp.rig import Peer, Rig
from tests.unit.amqp.routed_ends import LINK_ROUTE, OwnEnd

from isthmus_router.amqp.kernel import parking
from isthmus_router.amqp.kernel.delivery import Branch, Stream, Waiting
from isthmus_router.amqp.kernel.delivery import Delivery as Record
from isthmus_router.config import parse
from isthmus_router.core.address import SettlingConsumer
from isthmus_router.core.roles import Role
from isthmus_router.linkroute.routing import LinkRouting
from isthmus_router.policy.enforcer import PolicyEnforcer

POLICY = [
    ["policy", {"enableVhostPolicy": True, "defaultVhost": "$default"}],
    [
        "vhost",
        {
            "hostname": "$default",
            "allowUnknownUser": True,
            "groups": {"$default": {"remoteHosts": "*", "sources": "*", "targets": "*"}},
        },
    ],
]
TRUNCATED_USER_ID = bytes.fromhex("005373 c01002 40 a0ff")

WHOLE = b"\x00\x53\x77\xa1\x01x"
HEAD, REST = b"\x00\x53\x75\xb0" + (140_000).to_bytes(4) + bytes(100_000), bytes(40_000)


@pytest.fixture(params=[True, False], ids=["compiled", "python"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """At the end everybody leaves, and nothing of them is left."""
    with nothing_left_to_collect():
        rig = Rig(compiled=request.param)
        yield rig
        for peer in rig.peers:
            peer.drop()
        rig.peers.clear()
        rig.work_off()
        assert not rig.driver.connections
        rig.close()


def attached(rig: Rig, address: str | None, *, receives: bool = False, credit: int = 10) -> tuple[Peer, Any]:
    peer = rig.connect(Role.NORMAL)
    link = peer.session.receiver("in") if receives else peer.session.sender("out")
    (link.source if receives else link.target).address = address
    link.open()
    if receives:
        link.flow(credit)
    rig.settle_down()
    return peer, link


def say(rig: Rig, link: Any, *pieces: bytes) -> None:
    for piece in pieces:
        if not link.current:
            link.delivery("one")
        link.send(piece)
        if piece is REST:
            link.advance()
        rig.settle_down()


@pytest.mark.parametrize("receivers", [1, 2, 70])
@pytest.mark.parametrize("address", ["balanced", "multicast/many"])
def test_one_that_has_waited_for_another(rig: Rig, address: str, receivers: int) -> None:
    taking = [attached(rig, address, receives=True) for _ in range(receivers)]
    (_, first), (_, second) = (attached(rig, address) for _ in range(2))
    say(rig, first, HEAD)
    say(rig, second, HEAD, REST)
    say(rig, first, REST)
    rig.work_off()
    copies = receivers if address == "multicast/many" else 1
    assert sum(len(peer.deliveries.get("in", ())) for peer, _ in taking) == 2 * copies


@pytest.mark.parametrize("leaves", ["first", "second", "receiver"])
def test_one_that_is_broken_off(rig: Rig, leaves: str) -> None:
    receiver, _ = attached(rig, "balanced", receives=True)
    (first, begun), (second, waiting) = (attached(rig, "balanced") for _ in range(2))
    say(rig, begun, HEAD)
    say(rig, waiting, HEAD)
    links = [
        link for connection in rig.core.connections.values() for link in connection.links if link.incoming
    ]
    assert [link.stream is not None for link in links] == [True, True]
    {"first": first, "second": second, "receiver": receiver}[leaves].drop()
    rig.settle_down()


def there(*classes: type) -> int:
    """How many objects of these classes there are."""
    return sum(isinstance(one, classes) for one in gc.get_objects())


@pytest.mark.parametrize("ends", ["detach", "abort", "drop"])
@pytest.mark.parametrize(
    ("address", "receivers"), [("balanced", 1), ("multicast/many", 2), ("multicast/many", 70)]
)
def test_those_broken_off_behind_a_message_that_waits(
    rig: Rig, address: str, receivers: int, ends: str
) -> None:
    for _ in range(receivers):
        attached(rig, address, receives=True, credit=0)
    _, waits = attached(rig, address)
    say(rig, waits, WHOLE)
    waits.advance()
    rig.settle_down()
    for _ in range(parking.DROPPED_PLACES + 4):
        peer, link = attached(rig, address)
        say(rig, link, HEAD)
        rig.work_off()
        assert there(Stream) == 1
        {"detach": link.close, "abort": lambda link=link: link.current.abort(), "drop": peer.drop}[ends]()
        rig.settle_down()
        peer.drop()
        rig.driver.work(rig.driver.forwarder.slow.examine())
        rig.work_off()
        assert there(Stream, Branch) == 0
    assert there(Waiting) <= receivers * (parking.DROPPED_PLACES + 1)


def test_messages_of_senders_that_leave_behind_one_that_waits(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    attached(rig, "balanced", receives=True, credit=0)
    _, waits = attached(rig, "balanced")
    say(rig, waits, WHOLE)
    waits.advance()
    rig.settle_down()
    monkeypatch.setattr(parking, "PARKED_BYTES_HIGH", 0)
    for _ in range(3):
        peer, link = attached(rig, "balanced")
        say(rig, link, WHOLE)
        link.advance()
        rig.settle_down()
        assert there(Record) == 2
        peer.drop()
        rig.work_off()
        assert there(Record) == 1


@pytest.mark.parametrize("pieces", [(HEAD, REST), (HEAD,)], ids=["whole", "broken off"])
def test_one_for_the_router_itself(rig: Rig, pieces: tuple[bytes, ...]) -> None:
    taken: list[bytes] = []

    def take(payload: bytes, *_: object) -> bool:
        taken.append(payload)
        return True

    rig.core.addresses.obtain("Minside").handler = SettlingConsumer(take, 0)
    _, link = attached(rig, "inside")
    say(rig, link, *pieces)
    assert [len(payload) for payload in taken] == [sum(map(len, pieces))] * (len(pieces) - 1)


def test_a_malformed_one(rig: Rig) -> None:
    """The sender names the address in each message, and this one has none where it is to be."""
    _, link = attached(rig, None)
    say(rig, link, b"\x00\x53\x73\x40" + HEAD)


def test_a_malformed_one_of_a_routed_link(rig: Rig) -> None:
    """Its `user-id`, which the policy compares, ends too early."""
    rig.driver.policy = PolicyEnforcer(rig.core, parse(json.dumps(POLICY), "a policy"))
    routing = LinkRouting(rig.core, lambda: 0.0, lambda *_: None)
    routing.configure([LINK_ROUTE])
    container = OwnEnd(rig, "shelf", Role.ROUTE_CONTAINER)
    rig.peers.append(container)
    rig.settle_down()
    peer, link = attached(rig, "b2.x")
    (inner,) = container.attached
    inner.flow(10)
    rig.settle_down()
    delivery = link.delivery("one")
    link.send(TRUNCATED_USER_ID)
    link.advance()
    rig.settle_down()
    assert delivery.remote_state == Delivery.REJECTED
    assert "truncated" in delivery.remote.condition.description
    peer.drop()
