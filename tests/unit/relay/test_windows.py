"""A relay crashes exactly there: every window in which a message could be lost or doubled, on either side."""

from __future__ import annotations

import pytest
from tests.unit.relay.node import Node
from tests.unit.relay.world import World, load

SENDER_POINTS = ["before_relay", "after_local_deliver", "before_bridge_send", "after_bridge_send"]
RECEIVER_POINTS = ["after_bridge_recv", "before_local_dissem", "after_local_dissem", "after_ack"]


@pytest.mark.parametrize("occurrence", [1, 2, 7])
@pytest.mark.parametrize("point", SENDER_POINTS)
def test_the_sending_relay_crashes(point: str, occurrence: int) -> None:
    world = World(occurrence, {"nyc": 3, "sfo": 3})
    world.run(1.0)
    relay, origin = world.node("nyc0"), world.node("nyc2")
    world.hooks.append((point, relay, "nyc" if "relay" in point or "local" in point else "", occurrence))
    load(world, [origin], 60)
    world.run(5.0)
    assert not relay.alive, world.story("no crash")
    world.check_complete([origin])
    world.check_views()


@pytest.mark.parametrize("occurrence", [1, 2, 7])
@pytest.mark.parametrize("point", RECEIVER_POINTS)
def test_the_receiving_relay_crashes(point: str, occurrence: int) -> None:
    world = World(occurrence, {"nyc": 3, "sfo": 3})
    world.run(1.0)
    relay, origin = world.node("sfo0"), world.node("nyc2")
    world.hooks.append((point, relay, "nyc" if "local" in point else "", occurrence))
    load(world, [origin], 60)
    world.run(5.0)
    assert not relay.alive, world.story("no crash")
    world.check_complete([origin])
    world.check_views()


def test_what_only_the_receiving_relay_has_is_not_acknowledged() -> None:
    world = World(8, {"nyc": 3, "sfo": 3})
    world.run(1.0)
    relay, origin = world.node("sfo0"), world.node("nyc2")
    world.halves[id(relay)] = 1  # nobody knows yet
    load(world, [origin], 20)
    world.run(0.5)
    assert len(relay.deliveries[origin.id]) == 20
    assert origin.kept(origin) == 20
    world.crash(relay)
    world.run(5.0)
    world.check_complete([origin])
    assert origin.kept(origin) == 0


def test_what_a_crashed_relay_had_not_acknowledged_its_successor_does() -> None:
    world = World(11, {"nyc": 3, "sfo": 3})
    world.run(1.0)
    relay, origin = world.node("sfo0"), world.node("nyc2")
    world.hooks.append(("after_local_dissem", relay, "nyc", 1))
    origin.publish()
    world.run(5.0)
    assert not relay.alive
    world.check_complete([origin])
    assert not any(node.kept(origin) for node in world.sites["nyc"].nodes)


@pytest.mark.parametrize("crashes", [True, False])
def test_the_acknowledgements_of_a_relay_with_a_newer_one_beside_it_do_not_count(crashes: bool) -> None:
    world = World(12, {"nyc": 3, "sfo": 3})
    world.run(1.0)
    origin = world.node("nyc2")
    load(world, [origin], 5)
    world.run(0.2)
    for name in ("sfo1", "sfo2"):
        world.halves[id(world.node(name))] = 1
    world.install(world.sites["sfo"], 0.01)  # the half of the old relay is the older view
    world.run(0.2)
    load(world, [origin], 200)
    if crashes:
        world.crash(world.node("sfo0"))
    world.run(5.0)
    world.check_complete([origin], [world.node("sfo1"), world.node("sfo2")])


def behind() -> tuple[World, Node]:
    """sfo1, the next relay, lacks what the other two of its site have and have acknowledged; sfo0 crashes."""
    world = World(9, {"nyc": 3, "sfo": 3})
    world.run(1.0)
    origin, lagging = world.node("nyc2"), world.node("sfo1")
    load(world, [origin], 1)
    world.run(0.2)
    world.halves[id(lagging)] = 1
    load(world, [origin], 20)
    world.run(0.5)
    assert len(world.node("sfo2").deliveries[origin.id]) == 21
    assert lagging.deliveries[origin.id] == [0]
    assert all(node.relay.relayed(origin.id) == 21 for node in world.sites["nyc"].nodes[:2])
    world.crash(world.node("sfo0"))
    return world, origin


def test_a_relay_that_lacks_what_its_site_has_acknowledged_gets_it_there() -> None:
    world, origin = behind()
    world.halves.clear()
    load(world, [origin], 60)
    world.run(5.0)
    world.check_complete([origin])


def test_what_all_that_had_acknowledged_it_took_with_them_is_told_as_lost() -> None:
    world, origin = behind()
    world.crash(world.node("sfo2"))
    world.halves.clear()
    load(world, [origin], 60)
    world.run(8.0)
    world.check_complete([origin], gaps=True)
    assert world.node("sfo1").gaps[origin.id] == [(2, 21, 20)]


def test_the_next_in_line_has_what_two_relays_and_the_origin_had() -> None:
    world = World(10, {"nyc": 4, "sfo": 2})
    world.run(1.0)
    origin = world.node("nyc3")
    world.cut("nyc", "sfo")
    load(world, [origin], 20)
    world.run(1.0)
    world.crash(world.node("nyc0"))
    world.run(1.0)
    world.crash(world.node("nyc1"))
    world.crash(origin)
    world.run(1.0)
    world.heal("nyc", "sfo")
    world.run(8.0)
    world.check_complete([origin])


@pytest.mark.parametrize("side", ["nyc", "sfo"])
def test_the_next_relay_crashes_in_the_handshake(side: str) -> None:
    world = World(3, {"nyc": 4, "sfo": 4})
    world.run(1.0)
    origin = world.node("nyc3")
    load(world, [origin], 20)
    world.hooks.append(("in_handshake", world.node(f"{side}1"), "", 1))
    world.crash(world.node(f"{side}0"))
    load(world, [origin], 100)
    world.run(6.0)
    assert not world.node(f"{side}1").alive, world.story("no crash")
    world.check_complete([origin])
    world.check_views()


def test_the_next_relay_crashes_during_the_replay() -> None:
    world = World(4, {"nyc": 4, "sfo": 3})
    world.run(1.0)
    origin = world.node("nyc3")
    load(world, [origin], 20)
    world.crash(world.node("nyc0"))
    world.hooks.append(("after_bridge_send", world.node("nyc1"), "", 5))
    load(world, [origin], 100)
    world.run(6.0)
    assert not world.node("nyc1").alive, world.story("no crash")
    world.check_complete([origin])


@pytest.mark.parametrize("apart", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("names", [("nyc0", "sfo0"), ("sfo0", "nyc0"), ("nyc0", "nyc1"), ("sfo0", "sfo1")])
def test_two_relays_crash(names: tuple[str, str], apart: float) -> None:
    world = World(5, {"nyc": 4, "sfo": 4})
    world.run(1.0)
    origin = world.node("nyc3")
    load(world, [origin], 20)
    for name in names:
        world.crash(world.node(name))
        load(world, [origin], int(apart / 0.005))
    load(world, [origin], 100)
    world.run(6.0)
    world.check_complete([origin])
    world.check_views()


def test_the_relay_and_the_origin_crash_together() -> None:
    world = World(6, {"nyc": 3, "sfo": 3})
    world.run(1.0)
    relay, standby, origin = (world.node(f"nyc{index}") for index in range(3))
    world.hooks.append(("before_bridge_send", relay, "", 1))
    origin.publish()
    world.run(0.05)
    world.crash(origin)
    world.run(5.0)
    assert standby.deliveries[origin.id] == [0]
    world.check_complete([origin])


def test_a_relay_that_is_wrongly_suspected_becomes_an_ordinary_member_of_its_half() -> None:
    world = World(7, {"nyc": 3, "sfo": 3})
    world.run(1.0)
    stale, origin = world.node("nyc0"), world.node("nyc2")
    world.halves[id(stale)] = 1
    world.install(world.sites["nyc"], 0.1)
    load(world, [origin, stale], 50)
    world.run(1.0)
    united = world.node("sfo2").relay.global_view
    assert united is not None
    assert len(united.members) == 6
    world.check_safety()
    world.halves.clear()
    site = world.sites["nyc"]
    site.nodes.sort(key=lambda node: node is stale)  # the half without it leads the merge
    world.install(site, 0.01)
    load(world, [origin], 20)
    world.run(4.0)
    assert not stale.relay.is_relay
    world.check_complete([origin], world.sites["sfo"].nodes)
    world.check_views()
