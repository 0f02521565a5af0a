"""Senders without end: no faster than the other sites that get on, and never held back by those that do not."""

from __future__ import annotations

import pytest
from tests.unit.relay.node import Node
from tests.unit.relay.world import World, load

from isthmus_router.relay.pacing import STALLED_AFTER
from isthmus_router.relay.settings import Window
from isthmus_router.relay.sites import SiteState

EVERY = 0.002
AT_ONCE = 40


def flood(world: World, origins: list[Node], seconds: float) -> dict[str, float]:
    """They publish whenever there is room; by origin the longest time without."""
    published = {origin.name: world.now for origin in origins}
    longest = dict.fromkeys(published, 0.0)
    end = world.now + seconds
    while world.now < end:
        for origin in origins:
            if origin.alive and origin.relay.room > 0:
                longest[origin.name] = max(longest[origin.name], world.now - published[origin.name])
                published[origin.name] = world.now
                world.do(origin, lambda origin=origin: origin.publish(AT_ONCE))  # type: ignore[misc]
        world.run(EVERY)
    return {name: max(longest[name], world.now - at) for name, at in published.items()}


def dropped(world: World) -> int:
    """Messages, by all members."""
    return sum(
        site.dropped_messages for node in world.live() for site in node.relay.snapshot(world.now).sites
    )


def held_back(world: World, node: Node) -> dict[str, float]:
    """Seconds, by site."""
    return {site.site: site.held_back_seconds for site in node.relay.snapshot(world.now).sites}


@pytest.mark.parametrize("options", [{"buffer_messages": 600}, {"buffer_bytes": 30_000}])
@pytest.mark.parametrize("relays", [1, 2])
@pytest.mark.parametrize("senders", [1, 3])
def test_nothing_is_dropped_for_sites_that_get_on(options: dict[str, int], relays: int, senders: int) -> None:
    world = World(1, {"nyc": 3, "sfo": 3, "lon": 2}, relays=relays, **options)
    world.run(1.0)
    origins = world.sites["nyc"].nodes[-senders:]
    longest = flood(world, origins, 1.0)
    world.run(2.0)
    assert dropped(world) == 0
    world.check_complete(origins)
    for origin in origins:
        assert origin.published > 1_000
        assert longest[origin.name] < 0.1


def test_senders_of_the_same_site_do_not_wait_for_each_other() -> None:
    world = World(2, {"nyc": 3, "sfo": 3}, buffer_messages=600)
    world.run(1.0)
    greedy, modest = world.node("nyc1"), world.node("nyc2")
    for _ in range(200):
        flood(world, [greedy], 0.01)
        assert modest.relay.room > 0
        world.do(modest, modest.publish)
    world.run(2.0)
    world.check_complete([greedy, modest])
    assert dropped(world) == 0


@pytest.mark.parametrize("silent", [False, True])
def test_a_site_that_is_cut_off_holds_nobody_up_for_longer_than_a_moment(*, silent: bool) -> None:
    world = World(3, {"nyc": 3, "sfo": 3, "lon": 3}, buffer_messages=600)
    world.run(1.0)
    origin = world.node("nyc2")
    flood(world, [origin], 0.5)
    world.cut("nyc", "sfo", silent=silent)
    assert flood(world, [origin], 2.5)[origin.name] < STALLED_AFTER + 0.1
    before, until_then = origin.published, held_back(world, origin)
    assert until_then["sfo"] > STALLED_AFTER / 2
    assert flood(world, [origin], 0.5)[origin.name] < 0.1
    assert origin.published - before > 500
    assert held_back(world, origin)["sfo"] == until_then["sfo"]
    world.heal("nyc", "sfo")
    flood(world, [origin], 4.0)
    already = dropped(world)
    assert already
    before = origin.published
    flood(world, [origin], 1.0)
    assert origin.published - before > 1_000
    assert dropped(world) == already
    world.run(3.0)
    world.check_complete([origin], world.sites["lon"].nodes)
    world.check_complete([origin], world.sites["sfo"].nodes, gaps=True)


def test_what_was_kept_in_an_outage_does_not_stop_who_sends_less_than_the_bridge_takes() -> None:
    world = World(4, {"nyc": 3, "sfo": 3}, buffer_messages=600, window=Window(300))
    world.run(1.0)
    origin = world.node("nyc2")
    world.cut("nyc", "sfo")
    load(world, [origin], 300)
    world.heal("nyc", "sfo")
    waits: list[float] = []
    assert origin.relay.snapshot(world.now).buffered_messages == 300
    while origin.relay.snapshot(world.now).buffered_messages > 20:
        since = world.now
        while origin.relay.room <= 0:
            assert world.now - since < 0.15
            world.run(EVERY)
        waits.append(world.now - since)
        world.do(origin, origin.publish)
        world.run(0.01)
    assert max(waits)
    assert sum(waits) < 0.3
    assert held_back(world, origin) == {"sfo": pytest.approx(sum(waits), abs=EVERY * len(waits))}
    world.run(1.0)
    world.check_complete([origin])


@pytest.mark.parametrize("name", ["nyc0", "nyc1", "sfo0", "sfo1"])
@pytest.mark.parametrize("relays", [1, 2])
def test_a_relay_that_crashes_while_senders_wait_for_it(name: str, relays: int) -> None:
    world = World(5, {"nyc": 4, "sfo": 3}, buffer_messages=600, relays=relays)
    world.run(1.0)
    origins = [world.node("nyc2"), world.node("nyc3")]
    flood(world, origins, 0.5)
    world.crash(world.node(name))
    longest = flood(world, origins, 1.0)
    assert max(longest.values()) < STALLED_AFTER
    world.run(3.0)
    world.check_complete(origins)
    assert dropped(world) == 0


def test_a_member_that_joins_has_a_share_of_its_own() -> None:
    world = World(6, {"nyc": 2, "sfo": 2}, buffer_messages=600)
    world.run(1.0)
    origins = [world.node("nyc1")]
    flood(world, origins, 0.5)
    for number in range(2, 5):
        origins.append(world.join("nyc", f"nyc{number}"))
        world.run(0.05)
        flood(world, origins, 0.5)
    world.run(2.0)
    assert dropped(world) == 0
    assert min(origin.published for origin in origins) > 300


def test_a_site_that_leaves_holds_nobody_up() -> None:
    world = World(7, {"nyc": 2, "sfo": 1}, buffer_messages=600)
    world.run(1.0)
    origin = world.node("nyc1")
    flood(world, [origin], 0.5)
    world.leave(world.node("sfo0"))
    longest = flood(world, [origin], 3.0)
    assert longest[origin.name] < STALLED_AFTER + 0.1
    assert origin.relay.snapshot(world.now).sites[0].state is SiteState.LEFT
    assert flood(world, [origin], 0.3)[origin.name] < 0.01
