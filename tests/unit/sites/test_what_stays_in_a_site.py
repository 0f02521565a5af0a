"""Some addresses stay in their site: the others go on without those messages, whatever frames they lose."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.sites import properties
from tests.unit.sites.sites import Net
from tests.unit.sites.world import World

from isthmus_router.sites.filters import Filter, Filters
from isthmus_router.sites.settings import MemberSettings

STAYS = Filters([Filter("local/#", ())])


def stays(settings: MemberSettings) -> MemberSettings:
    """The settings with the filter."""
    return replace(settings, filters=STAYS)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_else_is_missing_and_no_gap_is_told(seed: int) -> None:
    net = Net(World(seed), {"nyc": 3, "sfo": 3}, change=stays)
    net.start_all()
    sites = net.world.between("sfo", "sfo")
    sites.loss, sites.duplicates = 0.1, 0.05
    sender = net.named("nyc2")
    for _ in range(100):
        sender.publish(1, address="local/x")
        net.world.run(0.001)
        sender.publish(1)
        net.world.run(0.004)
    net.world.heal()
    net.world.run(3.0)
    for node in net.nodes:
        wanted = range(200) if node.site == "nyc" else range(1, 200, 2)
        assert [number for _, number, _ in node.deliveries] == list(wanted), node
        assert not any(node.gaps.values()), node
    assert all(sent.accepted is not None for sent in sender.sent)
    properties.ordered_once(net)
    longest = max(at for node in net.of("sfo") for _, _, at in node.deliveries) - sender.sent[-1].at
    assert longest < 0.3, "what a site lacks is asked for, not given up"
