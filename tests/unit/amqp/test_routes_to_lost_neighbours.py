"""Routes may lead to a neighbour for a little longer than its connection lasts: nothing is sent there any more."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Delivery, symbol
from tests.unit.amqp.rig import Peer, Rig

from isthmus_router.core.nodes import Hop
from isthmus_router.core.roles import Role
from isthmus_router.core.treatment import Treatment
from isthmus_router.interior.connections import NeighbourConnections
from isthmus_router.message.control import Message, Properties, encode_message

SMALL, LARGE = 10, 300_000


class SlowRouting:
    """Finds out about the loss of a neighbour later than the test ends."""

    def link_up(self, hop: Hop, cost: int, least: int | None) -> None: ...

    def link_cost(self, hop: Hop, cost: int) -> None: ...

    def link_lost(self, hop: Hop) -> None: ...

    def control_message(self, hop: Hop, link: object, payload: bytes) -> None: ...


def data_link(peer: Peer) -> Any:
    """What the router sends to its neighbour on."""
    link = peer.session.receiver("data")
    for terminus in (link.source, link.target):
        terminus.capabilities.put_symbol(symbol("qd.router-data"))
    link.open()
    link.flow(100)
    return link


def neighbour(rig: Rig) -> tuple[Peer, Hop]:
    connections = NeighbourConnections(rig.core, SlowRouting(), lambda delay, call: None, lambda one: None)
    peer = rig.connect(Role.INTER_ROUTER)
    rig.settle_down()
    data_link(peer)
    rig.settle_down()
    (hop,) = connections.hops.values()
    node = rig.core.remotes.node("X")
    node.hop, node.cost = hop, 1
    return peer, hop


@pytest.mark.parametrize("treatment", [Treatment.CLOSEST, Treatment.BALANCED, Treatment.MULTICAST])
@pytest.mark.parametrize("target", ["orders", None])
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_messages_are_released(rig: Rig, treatment: Treatment, target: str | None, size: int) -> None:
    router, hop = neighbour(rig)
    rig.core.remotes.add(rig.core.nodes["X"], "Morders", treatment)
    client = rig.connect(Role.NORMAL)
    link = client.session.sender("to orders")
    link.target.address = target
    link.open()
    rig.settle_down()
    data = encode_message(
        Message(properties=Properties(to="orders"), application_properties={}, body=b"x" * size)
    )

    def send(tag: str) -> Delivery:
        delivery: Delivery = link.delivery(tag)
        link.send(data)
        link.advance()
        rig.settle_down()
        return delivery

    before = send("there")
    assert size == LARGE or router.deliveries["data"]
    router.drop()
    rig.work_off()
    connections = list(rig.core.connections)
    after = send("gone")
    rig.work_off()
    assert hop.ended
    assert after.remote_state == Delivery.RELEASED
    assert before.remote_state in (Delivery.MODIFIED, Delivery.RELEASED, Delivery.ACCEPTED)
    assert list(rig.core.connections) == connections
