"""Sites of whole members in one world: messages, views, and what survives whom."""

from __future__ import annotations

import pytest
from tests.unit.sites import properties
from tests.unit.sites.sites import Net
from tests.unit.sites.world import World


@pytest.fixture
def net() -> Net:
    """Two sites of three."""
    net = Net(World(1), {"nyc": 3, "sfo": 3})
    net.start_all()
    return net


def test_a_message_reaches_every_member_of_every_site_once(net: Net) -> None:
    sender = net.named("nyc2")
    sender.publish(100)
    net.world.run(5.0)
    for node in net.nodes:
        assert [number for _, number, _ in node.deliveries] == list(range(100)), node
    properties.everything(net)
