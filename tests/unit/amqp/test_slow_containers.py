"""Routed links to a container that has not answered yet."""

from __future__ import annotations

from tests.integration.support.raw import FLOW
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import LINK_ROUTE, OwnEnd, performatives

from isthmus_router.core.roles import Role
from isthmus_router.linkroute.routing import LinkRouting


def test_it_gets_one_flow_though_the_receiver_drains_and_detaches(rig: Rig) -> None:
    """After a second flow without `next-incoming-id`, the container would exceed the window of its session."""
    routing = LinkRouting(rig.core, lambda: 0.0, lambda *_: None)
    routing.configure([LINK_ROUTE])
    client, container = OwnEnd(rig, "client", Role.NORMAL), OwnEnd(rig, "shelf", Role.ROUTE_CONTAINER)
    rig.peers += [client, container]
    rig.settle_down()
    rig.peers.remove(container)
    receiver = client.session.receiver("drained")
    receiver.source.address = "b2.x"
    receiver.open()
    receiver.drain(10)
    rig.settle_down()
    receiver.detach()
    rig.settle_down()
    rig.peers.append(container)
    rig.settle_down()
    flows = [fields for fields in performatives(bytes(container.heard), FLOW) if len(fields) > 4]
    assert [(fields[6], fields[8]) for fields in flows] == [(10, True)]
