"""Many members in a site, and many sites: all agree soon, and what that costs does not grow faster than is known.

The bounds are those of `bench/site_scale.py`, doubled.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.sites import properties
from tests.unit.sites.sites import Net
from tests.unit.sites.world import World


def costs(net: Net, seconds: float, act: Callable[[], object]) -> int:
    """Frames until all agree, which takes no longer than so many seconds."""
    before = net.world.frames
    act()
    assert net.settled(seconds), net.describe()
    return net.world.frames - before


def start(net: Net) -> None:
    for site, size in net.sizes.items():
        for number in range(size):
            net.start(f"{site}{number}")


def test_a_hundred_members() -> None:
    net = Net(World(1), {"one": 100})
    assert costs(net, 3.0, lambda: start(net)) < 20 * 100**2
    assert costs(net, 1.0, lambda: net.crash(net.of("one")[0])) < 3 * 100**2
    net.world.run(5.0)
    assert costs(net, 1.0, lambda: [net.crash(node) for node in net.of("one")[::10]]) < 3 * 100**2
    net.world.run(5.0)
    hosts = [node.process.host.name for node in net.of("one")]
    net.world.cut(hosts[:45], hosts[45:])
    net.world.run(15.0)
    sizes = {len(node.views[-1].ids) for node in net.alive}
    assert sizes == {45, len(hosts) - 45}, sizes
    before = net.world.frames
    net.world.run(10.0)
    assert net.world.frames - before < 200 * 100
    assert costs(net, 10.0, net.world.heal) < 100**2
    properties.views_agree(net)
    properties.caches_converge(net)


def test_ten_sites() -> None:
    net = Net(World(1), dict.fromkeys("abcdefghij", 3))
    assert costs(net, 5.0, lambda: start(net)) < 5_000
    assert costs(net, 2.0, lambda: [net.crash(net.of(site)[0]) for site in net.sizes]) < 1_500
    for node in net.alive:
        node.publish()
    net.world.run(3.0)
    for node in net.alive:
        assert len(node.deliveries) == 20
    properties.everything(net)
