"""Any order of faults: whatever happens, nothing twice and nothing out of order; what must not be lost is not."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.relay.world import World

from isthmus_router.relay.settings import Window

SITES = ["nyc", "sfo", "lon"]


def play(seed: int) -> World:
    """At most one crash per site and failover period; outages within the bounds."""
    random = Random(seed)
    names = SITES[: random.choice((2, 2, 3))]
    world = World(
        seed,
        {name: random.randint(2, 4) for name in names},
        relays=random.choice((1, 1, 1, 2)),
        window=Window(random.choice((4 << 20, 2_000))),
        loss=random.choice((0.0, 0.0, 0.05)),
    )
    world.run(2.0)
    crashed = dict.fromkeys(names, 0.0)
    cuts: list[tuple[str, str]] = []
    joined = 0
    for _ in range(random.randint(10, 40)):
        world.run(random.choice((0.001, 0.01, 0.1, 0.5)))
        action = random.random()
        site = random.choice(names)
        live = world.sites[site].live()
        if action < 0.7:
            node = random.choice(live)
            for _ in range(random.randint(1, 20)):
                world.do(
                    node, lambda node=node: node.publish(random.randint(1, 3), size=random.choice((0, 500)))
                )
        elif action < 0.82 and len(live) > 2 and world.now - crashed[site] > 3.0:
            crashed[site] = world.now
            if random.random() < 0.7:
                world.crash(live[random.choice((0, 0, 1))], silent=random.random() < 0.3)
            else:
                world.leave(live[0])
        elif action < 0.9 and len(world.sites[site].nodes) < 7:
            joined += 1
            world.join(site, f"{site}-late{joined}")
        elif action < 0.95 and not cuts:
            cuts.append((names[0], random.choice(names[1:])))
            world.cut(*cuts[0], silent=random.random() < 0.5)
        elif cuts:
            world.heal(*cuts.pop())
    for cut in cuts:
        world.heal(*cut)
    world.run(20.0)
    return world


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_lost_or_doubled(seed: int) -> None:
    world = play(seed)
    world.check_safety()
    first = [node for node in world.live() if "late" not in node.name]
    world.check_complete([node for node in world.nodes() if node.alive], first)
    world.check_views()
    for node in world.live():
        assert node.relay.snapshot(world.now).buffered_bytes == 0, world.story(f"{node.name} keeps something")
