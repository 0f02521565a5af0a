"""Outages: what is kept, what is dropped, and that what is dropped is told exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.relay.world import World, load

from isthmus_router.groups.streams.user import StreamsSettings
from isthmus_router.relay.messages import BridgeKind
from isthmus_router.relay.settings import Endpoint, RemoteSite, Window
from isthmus_router.relay.sites import SiteState


def test_an_outage_within_the_bounds_loses_nothing() -> None:
    world = World(1, {"nyc": 3, "sfo": 3})
    world.run(1.0)
    origin = world.node("nyc2")
    load(world, [origin], 20)
    world.cut("nyc", "sfo")
    load(world, [origin], 100, every=0.1)
    assert world.node("nyc0").relay.snapshot(world.now).sites[0].lag_messages >= 100
    assert world.node("nyc0").relay.snapshot(world.now).sites[0].state is SiteState.UNREACHABLE
    world.heal("nyc", "sfo")
    world.run(8.0)
    world.check_complete([origin])
    for node in world.sites["nyc"].nodes:
        assert node.relay.snapshot(world.now).buffered_bytes == 0
        assert not node.kept(origin)  # R13: nobody keeps what all have


def test_as_many_keep_what_is_for_other_sites_as_copies_says() -> None:
    world = World(1, {"nyc": 5, "sfo": 3}, copies=3)
    for node in world.sites["nyc"].nodes:
        node.streams.configure(world.now, StreamsSettings(copies=3))
    world.run(1.0)
    origin = world.node("nyc4")
    world.cut("nyc", "sfo")
    load(world, [origin], 20)
    world.run(1.0)
    for node in (origin, world.node("nyc0"), world.node("nyc1")):
        world.crash(node)
    world.run(1.0)
    world.heal("nyc", "sfo")
    world.run(8.0)
    world.check_complete([origin])


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("bound", [{"buffer_messages": 50}, {"buffer_bytes": 2_500}, {"buffer_seconds": 3.0}])
def test_what_falls_out_of_the_bounds_is_told_exactly(bound: dict[str, float], crash: bool) -> None:
    world = World(2, {"nyc": 3, "sfo": 3, "lon": 2}, **bound)
    world.run(1.0)
    origin = world.node("nyc2")
    load(world, [origin], 20)
    world.run(0.2)
    world.cut("nyc", "sfo")
    load(world, [origin], 100, every=0.1)
    if crash:
        world.crash(world.node("nyc0"))
        world.run(1.0)
    assert 5 < origin.kept(origin) < 60
    world.heal("nyc", "sfo")
    world.run(8.0)
    world.check_complete([origin], world.sites["lon"].nodes)
    world.check_complete([origin], world.sites["sfo"].nodes, gaps=True)
    for node in world.sites["sfo"].nodes:
        assert 40 <= sum(lost for _, _, lost in node.gaps[origin.id]) <= 95
    assert world.node("sfo0").relay.snapshot(world.now).sites[0].gap_messages_received >= 40


def test_what_is_not_for_a_site_does_not_go_there_and_is_not_missed() -> None:
    world = World(3, {"nyc": 3, "sfo": 2, "lon": 2})
    world.run(1.0)
    origin = world.node("nyc2")
    sites: list[tuple[str, ...] | None] = [None, ("sfo",), ("lon",), ()]
    for index in range(80):
        origin.publish(targets=sites[index % 4])
        world.run(0.005)
        if index == 40:
            world.crash(world.node("nyc0"))
    world.run(3.0)
    world.check_safety()
    for site, wanted in (("nyc", {0, 1, 2, 3}), ("sfo", {0, 1}), ("lon", {0, 2})):
        for node in world.sites[site].live():
            assert node.deliveries[origin.id] == [n for n in range(80) if n % 4 in wanted], world.story(
                node.name
            )
            assert not any(lost for _, _, lost in node.gaps[origin.id])
    assert not any(node.kept(origin) for node in world.sites["nyc"].live())


def test_of_what_is_dropped_only_what_was_for_the_site_is_told_as_lost() -> None:
    world = World(8, {"nyc": 3, "sfo": 2, "lon": 2}, buffer_messages=20)
    world.run(1.0)
    origin = world.node("nyc2")
    load(world, [origin], 1)
    world.run(0.2)
    world.cut("nyc", "sfo")
    for index in range(100):
        origin.publish(targets=("lon",) if index % 2 else None)
        world.run(0.02)
    world.heal("nyc", "sfo")
    world.run(8.0)
    numbers = world.node("sfo1").deliveries[origin.id]
    lost = sum(lost for _, _, lost in world.node("sfo1").gaps[origin.id])
    assert len(numbers) + lost == 51
    assert lost >= 35


def test_a_window_holds_back_a_slow_site_only() -> None:
    world = World(4, {"nyc": 2, "sfo": 2, "lon": 2}, window=Window(4_000))
    world.run(1.0)
    origin = world.node("nyc1")
    world.cut("nyc", "sfo", silent=True)
    sent = len(world.node("nyc0").sent_frames)
    for _ in range(100):
        origin.publish(size=100)
        world.run(0.02)
    world.run(0.1)
    assert all(len(node.deliveries[origin.id]) == 100 for node in world.sites["lon"].nodes)
    batches = world.node("nyc0").sent_frames[sent:].count(BridgeKind.BATCH)
    assert batches < 100 + 30
    world.heal("nyc", "sfo")
    world.run(8.0)
    world.check_complete([origin])


def test_a_replay_keeps_to_the_window() -> None:
    world = World(9, {"nyc": 2, "sfo": 2}, window=Window(4_000))
    world.run(1.0)
    origin, relay = world.node("nyc1"), world.node("nyc0")
    world.cut("nyc", "sfo")
    for _ in range(100):
        origin.publish(size=100)
        world.run(0.01)
    world.heal("nyc", "sfo")
    before = relay.sent_frames.count(BridgeKind.BATCH)
    while relay.sent_frames.count(BridgeKind.BATCH) == before:
        world.run(0.001)
    assert relay.sent_frames.count(BridgeKind.BATCH) - before < 30
    world.run(3.0)
    world.check_complete([origin])


def test_in_the_network_of_routers_few_batches_are_under_way() -> None:
    world = World(9, {"nyc": 2, "sfo": 2}, network_window=Window(4_000, 1_000))
    for node in world.sites["nyc"].nodes:
        settings = world.settings("nyc", node.name)
        remote = RemoteSite((Endpoint("any.sfo", 0),), ("sfo",))
        node.relay.configure(world.now, replace(settings, sites={"sfo": remote}))
    world.run(1.0)
    origin, relay = world.node("nyc1"), world.node("nyc0")
    load(world, [origin], 1)
    world.run(0.5)
    world.cut("nyc", "sfo")
    for _ in range(100):
        origin.publish()
        world.run(0.01)
    world.heal("nyc", "sfo")
    before = relay.sent_frames.count(BridgeKind.BATCH)
    while relay.sent_frames.count(BridgeKind.BATCH) == before:
        world.run(0.001)
    assert relay.sent_frames.count(BridgeKind.BATCH) - before == 4
    world.run(3.0)
    world.check_complete([origin])


def test_a_site_that_comes_late_starts_with_what_is_kept_without_a_gap() -> None:
    world = World(5, {"nyc": 2, "sfo": 0}, buffer_messages=100)
    origin = world.node("nyc1")
    load(world, [origin], 300)
    late = world.join("sfo", "late")
    world.run(3.0)
    load(world, [origin], 10)
    world.run(1.0)
    numbers = late.deliveries[origin.id]
    assert numbers == list(range(310))[-len(numbers) :]
    assert 100 <= len(numbers) <= 120
    assert not late.gaps


def test_a_site_that_starts_anew_gets_what_its_former_members_had_not_acknowledged() -> None:
    world = World(6, {"nyc": 3, "sfo": 1})
    world.run(1.0)
    origin = world.node("nyc2")
    load(world, [origin], 20)
    world.run(0.2)
    world.crash(world.node("sfo0"))
    load(world, [origin], 20)
    again = world.join("sfo", "again")
    world.run(6.0)
    load(world, [origin], 10)
    world.run(3.0)
    assert again.deliveries[origin.id] == list(range(20, 50))
    world.check_views()


def test_a_site_that_starts_anew_is_told_what_was_dropped_whichever_session_begins_first() -> None:
    world = World(11, {"nyc": 2, "sfo": 1}, buffer_messages=20)
    world.run(1.0)
    origin = world.node("nyc1")
    load(world, [origin], 10)
    world.run(0.2)
    world.crash(world.node("sfo0"))
    load(world, [origin], 100)
    again = world.join("sfo", "again")
    world.run(6.0)
    lost = sum(lost for _, _, lost in again.gaps[origin.id])
    assert again.deliveries[origin.id] == list(range(10 + lost, 110))
    assert lost >= 80


@pytest.mark.parametrize("seed", range(6))
def test_a_bridge_that_loses_frames_loses_no_message(seed: int) -> None:
    world = World(seed, {"nyc": 3, "sfo": 3}, loss=0.15)
    world.run(5.0)
    origins = [world.node("nyc2"), world.node("sfo2")]
    load(world, origins, 100)
    if seed % 2:
        world.crash(world.node("nyc0"))
        load(world, origins, 50)
    world.run(15.0)
    world.check_complete(origins)
    world.check_views()


def test_an_idle_bridge_says_little() -> None:
    world = World(7, {"nyc": 3, "sfo": 3})
    world.run(2.0)
    before = sum(len(node.sent_frames) for node in world.live())
    world.run(10.0)
    assert sum(len(node.sent_frames) for node in world.live()) - before <= 10 * 2 * 4 + 8


def test_what_was_lost_on_its_way_and_dropped_before_it_was_asked_for_is_told() -> None:
    world = World(10, {"nyc": 2, "sfo": 2}, buffer_messages=20)
    world.run(1.0)
    origin = world.node("nyc1")
    load(world, [origin], 10)
    world.run(0.5)
    world.cut("nyc", "sfo", silent=True)
    load(world, [origin], 100)
    world.heal("nyc", "sfo")
    world.run(4.0)
    world.check_complete([origin], world.sites["sfo"].nodes, gaps=True)
    assert world.node("sfo1").deliveries[origin.id][-20:] == list(range(90, 110))
