"""A container has answered an attach, and the router has not dealt with the answer: the client goes on meanwhile.

The engine has the credit of the container already, and the client ends what it has begun.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest
from proton import Link
from tests.unit.amqp.raw_peer import RawPeer
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import LINK_ROUTE, OwnEnd

from isthmus_router.amqp import connection as connections
from isthmus_router.core.roles import Role
from isthmus_router.linkroute.routing import LinkRouting

CREDIT = 10


class Container(OwnEnd):
    """Gives credit with its answer."""

    def accept(self, link: Link) -> None:
        super().accept(link)
        if link.is_receiver:
            link.flow(CREDIT)


@pytest.mark.parametrize("flow", [True, False])
@pytest.mark.parametrize("transfer", [True, False])
@pytest.mark.parametrize("receiver", [True, False])
def test_a_client_ends_its_link_before_the_answer_is_dealt_with(
    rig: Rig, receiver: bool, transfer: bool, flow: bool
) -> None:
    """The connection of the container and the routed links of others go on."""
    LinkRouting(rig.core, lambda: 0.0, lambda *_: None).configure([LINK_ROUTE])
    container = Container(rig, "shelf", Role.ROUTE_CONTAINER)
    other, client = OwnEnd(rig, "other", Role.NORMAL), RawPeer(rig, "client", Role.NORMAL)
    rig.peers += [container, other, client]
    sender = other.session.sender("other")
    sender.target.address = "b2.other"
    sender.open()
    rig.settle_down()
    assert sender.credit == CREDIT
    client.attach(0, 0, receiver, "b2.client", None)
    client.turn()
    container.turn()
    assert len(container.attached) == 2
    deal_with_events = connections.deal_with_events

    def hold_back(connection: connections.AmqpConnection, found: int | None = None) -> bool:
        return connection is not container.router_side and deal_with_events(connection, found)

    with patch.object(connections, "deal_with_events", hold_back):
        container.turn()
        assert container.router_side.unfinished
        if flow:
            client.flow(0, 0, CREDIT, drain=False, skew=0)
        if transfer and not receiver:
            client.transfer(0, 0, "b2.client", 100, settled=False, more=True, aborted=False, skew=0)
        client.detach(0, 0, closed=True)
        client.turn()
    rig.settle_down()
    assert not container.router_side.closed
    assert not container.router_side.close_reason
    assert not other.over
    sender.delivery("1")
    sender.send(b"message")
    sender.advance()
    rig.settle_down()
    (link,) = (each for each in container.attached if each.name.startswith("other"))
    assert link.current.pending == len(b"message")
