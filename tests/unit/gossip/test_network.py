"""Members and routers together, with faults at random: who is registered, suspected, and reached at the end."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.gossip.network import GROUP, LONGEST_DELAY, Network

from isthmus_router.gossip.client import ClientSettings
from isthmus_router.gossip.table import Limits

SETTLED = Limits().expiry + 4 * ClientSettings().heartbeat + 2 * ClientSettings().most_pause + 1
"""Seconds after which every fault has been noticed and got over."""


def disturb(network: Network, random: Random, routers: slice) -> None:
    """One fault that only concerns these routers, or their connections."""
    endpoint = random.choice(network.endpoints[routers])
    wires = [wire for member in network.living if (wire := member.wires.get(endpoint))]
    match random.choice(["cut", "silent", "half", "stop", "start"]):
        case "cut":
            for wire in random.sample(wires, random.randint(0, len(wires))):
                wire.cut()
        case "silent" if wires:
            random.choice(wires).silent = True
        case "half" if wires:
            random.choice(wires).closed_to_member()
        case "stop":
            network.stop_router(endpoint)
        case "start" if endpoint not in network.tables:
            network.start_router(endpoint)
        case _:
            pass


@pytest.mark.parametrize("seed", range(60))
def test_tables_hold_the_living_in_the_end(seed: int) -> None:
    random = Random(seed)
    network = Network(seed, routers=random.randint(1, 3))
    for number in range(random.randint(1, 5)):
        network.add(f"m{number}")
    for _ in range(random.randint(1, 25)):
        network.run(random.expovariate(1))
        match random.randrange(6):
            case 0:
                network.add("late")
            case 1 if len(network.living) > 1:
                random.choice(network.living).crash()
            case 2 if len(network.living) > 1:
                random.choice(network.living).leave()
            case _:
                disturb(network, random, slice(None))
    for endpoint in network.endpoints:
        if endpoint not in network.tables:
            network.start_router(endpoint)
    network.run(SETTLED)
    living = {member.info for member in network.living}
    for table in network.tables.values():
        assert set(table.members_of(GROUP)) == living
        assert table.members == len(living)
        assert table.connections == len(living)
    for member in network.living:
        assert len(member.client.registered) == len(network.endpoints)
        member.client.ask(network.now)
    network.run(1)
    for member in network.living:
        assert member.seen == {info.id for info in living} - {member.info.id}


@pytest.mark.parametrize("seed", range(60))
def test_what_befalls_one_router_is_not_noticed(seed: int) -> None:
    random = Random(seed)
    network = Network(seed, routers=2)
    members = [network.add(name) for name in "abcd"]
    network.run(1)
    for member in members:
        member.client.ask(network.now)
    for _ in range(20):
        network.run(random.expovariate(0.5))
        disturb(network, random, slice(0, 1))
    assert [member.suspected for member in members] == [[]] * 4

    # What waited on a connection that had fallen silent is lost; nothing is once that is known.
    network.run(SETTLED)
    network.stop_router(network.endpoints[0])
    network.run(1)
    for member in members:
        member.frames.clear()
    for number in range(20):
        for member in members:
            for other in members:
                if other is not member:
                    assert member.client.send(network.now, other.info.id, member.info.id + bytes([number]))
    network.run(1)
    for member in members:
        for other in members:
            numbers = [frame[-1] for frame in member.frames if frame.startswith(other.info.id)]
            assert numbers == ([] if other is member else list(range(20)))


@pytest.mark.parametrize("seed", range(30))
def test_restarted_router_has_everybody_within_the_longest_pause(seed: int) -> None:
    random = Random(seed)
    network = Network(seed, routers=1)
    members = [network.add(name) for name in "abc"]
    network.run(1)
    network.stop_router(network.endpoints[0])
    network.run(random.uniform(0, 20))
    network.start_router(network.endpoints[0])
    network.run(ClientSettings().most_pause + 6 * LONGEST_DELAY)
    (table,) = network.tables.values()
    assert set(table.members_of(GROUP)) == {member.info for member in members}
    assert [member.suspected for member in members] == [[], [], []]


@pytest.mark.parametrize("seed", range(30))
def test_a_crash_is_told_once_all_routers_have_noticed(seed: int) -> None:
    random = Random(seed)
    network = Network(seed, routers=random.randint(1, 3))
    members = [network.add(name) for name in "abc"]
    network.run(1)
    for member in members:
        member.client.ask(network.now)
    network.run(1)
    members[0].crash()
    network.run(0.2)
    assert [member.suspected for member in members[1:]] == [[members[0].info.id]] * 2


@pytest.mark.parametrize("seed", range(30))
def test_who_leaves_is_not_suspected(seed: int) -> None:
    network = Network(seed, routers=2)
    members = [network.add(name) for name in "abc"]
    network.run(1)
    members[0].leave()
    network.run(SETTLED)
    assert [member.suspected for member in members] == [[], [], []]
    for table in network.tables.values():
        assert table.members == 2
