"""Receivers that take their time after an outage: what was kept for their site waits in the other one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.relay.node import Node
from tests.unit.relay.world import World, load

from isthmus_router.relay.backpressure import CATCH_UP
from isthmus_router.relay.settings import Window

MANY = 50
WINDOW = 2_000
"""Bytes; some 30 messages."""


class Receiver:
    """Of a member: takes one message each so often. It is behind when many wait, until half of them do."""

    def __init__(self, world: World, node: Node, origin: Node, every: float) -> None:
        self.most = self.taken = 0
        self._behind = False
        self._waiting: Callable[[], int] = lambda: len(node.deliveries[origin.id]) - self.taken
        node.is_behind = self.behind

        def take() -> None:
            self.most = max(self.most, self._waiting())
            self.taken += self._waiting() > 0
            world.at(world.now + every, take)

        world.at(world.now, take)

    def behind(self) -> bool:
        self._behind = self._waiting() > (MANY // 2 if self._behind else MANY)
        return self._behind


def outage(world: World, origin: Node, messages: int) -> None:
    """So many are kept for the other site."""
    world.run(1.0)
    load(world, [origin], 1)
    world.run(0.5)
    world.cut("nyc", "sfo")
    load(world, [origin], messages)
    world.heal("nyc", "sfo")


@pytest.mark.parametrize("crash", ["", "sfo0", "nyc0"])
@pytest.mark.parametrize("name", ["sfo0", "sfo2"])
def test_what_was_kept_comes_as_fast_as_receivers_take_it(name: str, crash: str) -> None:
    world = World(1, {"nyc": 3, "sfo": 4}, window=Window(WINDOW))
    origin, node = world.node("nyc2"), world.node(name)
    outage(world, origin, 1_000)
    receiver = Receiver(world, node, origin, 0.005)
    world.run(3.0)
    if crash and crash != name:
        world.crash(world.node(crash))
    world.run(9.0)
    assert receiver.taken >= 1_000 or crash == name
    assert receiver.most < MANY + 4 * WINDOW // 60
    world.check_complete([origin])


def test_a_receiver_that_takes_nothing_holds_up_its_site_for_a_minute_only() -> None:
    world = World(2, {"nyc": 3, "sfo": 3}, window=Window(WINDOW))
    origin = world.node("nyc2")
    outage(world, origin, 500)
    Receiver(world, world.node("sfo2"), origin, 1e6)
    other = world.node("sfo1")
    world.run(CATCH_UP / 2)
    assert 50 < len(other.deliveries[origin.id]) < 200
    world.run(CATCH_UP / 2 + 6.0)
    world.check_complete([origin])


def test_a_receiver_that_is_too_slow_for_what_is_sent_holds_nobody_up() -> None:
    world = World(3, {"nyc": 3, "sfo": 3}, window=Window(WINDOW))
    origin = world.node("nyc2")
    world.run(CATCH_UP + 2.0)
    receiver = Receiver(world, world.node("sfo2"), origin, 0.1)
    load(world, [origin], 400)
    world.run(0.1)
    assert receiver.behind()
    assert len(world.node("sfo1").deliveries[origin.id]) == 400
