"""Whole networks under simulated time: whatever happened, soon every router knows all paths and addresses.

"Converged" is judged by `Network.problems`: routes cost what Floyd-Warshall over the live cables says,
unicast arrives, multicast arrives exactly once, and every router knows exactly the addresses of those it can
reach.
"""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.routing.simulator import Network

from isthmus_router.core.treatment import Treatment
from isthmus_router.routing import actions as act

COLD_START = 5.0
"""Seconds in which a network of twelve routers that start together settles."""
ONE_FAULT = 4.0
"""Seconds in which it settles after one fault that is noticed at once."""
SILENT_FAULT = 6.0
"""The same, if only missing HELLOs tell of the fault."""
HEALED = 40.0
"""Seconds after the end of any faults, lost messages included: a little more than between advertisements."""


def line(size):
    return [(at, at + 1) for at in range(size - 1)]


def ring(size):
    return [*line(size), (size - 1, 0)]


def star(size):
    return [(0, at) for at in range(1, size)]


def mesh(size):
    return [(one, other) for one in range(size) for other in range(one)]


def some_graph(size, extra=6, seed=3):
    chosen = random.Random(seed)
    pairs = {(at, chosen.randrange(at)) for at in range(1, size)}
    pairs |= {tuple(sorted(chosen.sample(range(size), 2), reverse=True)) for _ in range(extra)}
    return sorted(pairs)


SHAPES = {
    "line": (12, line(12)),
    "ring": (12, ring(12)),
    "star": (12, star(12)),
    "mesh": (7, mesh(7)),
    "graph": (12, some_graph(12)),
}


def build(size, pairs, costs=(1,), seed=1):
    network = Network(seed)
    ids = [f"R{at:02d}" for at in range(size)]
    for router in ids:
        network.add_router(router)
        network.add_address(router, f"M{router}", Treatment.CLOSEST)
        network.add_address(router, "Mcommon")
    for at, (one, other) in enumerate(pairs):
        network.connect(ids[one], ids[other], cost=costs[at % len(costs)])
    return network


def recomputations(network):
    return {router.id: router.engine.recomputations for router in network.routers.values()}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_network_settles_and_then_rests(shape):
    network = build(*SHAPES[shape], costs=(1, 2, 1, 5))
    network.run_until_converged(COLD_START)
    network.run(60)
    before, sent = recomputations(network), network.sent
    network.run(120)
    assert recomputations(network) == before
    # Two HELLOs per cable and second; an advertisement to everyone else per router and 30 s.
    size = len(network.routers)
    assert network.sent - sent <= 121 * 2 * len(network.cables) + 5 * size * (size - 1)
    assert next(network.problems(), None) is None


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cut_cable_is_routed_around_and_comes_back(shape):
    network = build(*SHAPES[shape])
    network.run_until_converged(COLD_START)
    network.run(30)
    cable = network.cables[len(network.cables) // 2]
    network.cut(cable)
    network.run_until_converged(ONE_FAULT)
    network.run(30)
    network.restore(cable)
    network.run_until_converged(ONE_FAULT)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cable_that_falls_silent_is_routed_around(shape):
    network = build(*SHAPES[shape])
    network.run_until_converged(COLD_START)
    network.run(30)
    network.cables[0].silent = True
    network.run_until_converged(SILENT_FAULT)
    reasons = {
        event.reason
        for router in network.routers.values()
        for event in router.events
        if isinstance(event, act.NeighbourLost)
    }
    assert reasons == {"no HELLO"}


@pytest.mark.parametrize("shape", ["line", "ring", "graph"])
@pytest.mark.parametrize("pause", [0.0, 0.7, 100.0])
def test_a_crashed_router_is_left_out_and_taken_back(shape, pause):
    network = build(*SHAPES[shape])
    network.run_until_converged(COLD_START)
    network.run(20)
    network.crash("R02")
    if pause > 1:
        network.run_until_converged(ONE_FAULT)
    network.run(pause)
    network.remove_address("R02", "Mcommon")
    network.restart("R02")
    network.run_until_converged(ONE_FAULT)
    restarts = [
        event
        for router in network.routers.values()
        for event in router.events
        if isinstance(event, act.RouterRestarted)
    ]
    assert {event.router for event in restarts} <= {"R02"}
    # After a long absence the router has been forgotten where it is cut off from everyone who remembers it.
    assert pause > 60 or len(restarts) == len(network.routers) - 1


def test_two_halves_live_on_alone_and_join_again():
    network = build(12, ring(12))
    network.run_until_converged(COLD_START)
    network.run(30)
    for at in (2, 8):
        network.cut(network.cables[at])
    network.run_until_converged(ONE_FAULT)
    network.add_address("R00", "Mnew")
    network.remove_address("R05", "MR05")
    network.run(100)
    assert next(network.problems(), None) is None
    network.heal()
    network.run_until_converged(ONE_FAULT)


def test_a_changed_cost_moves_the_paths_and_nothing_else():
    network = build(8, ring(8))
    network.run_until_converged(COLD_START)
    network.run(30)
    network.set_cost(network.cables[0], 50)
    network.run_until_converged(ONE_FAULT)
    assert not [
        event
        for router in network.routers.values()
        for event in router.events
        if isinstance(event, act.NeighbourLost | act.RouterRestarted)
    ]


def test_addresses_come_and_go_without_touching_the_paths():
    network = build(*SHAPES["graph"])
    network.run_until_converged(COLD_START)
    network.run(10)
    before = recomputations(network)
    for number in range(30):
        network.add_address(f"R{number % 12:02d}", f"Mq{number}")
        network.run(0.3)
        if number >= 5:
            network.remove_address(f"R{(number - 5) % 12:02d}", f"Mq{number - 5}")
    network.run_until_converged(3)
    assert recomputations(network) == before


def test_a_second_cable_takes_over_without_a_trace_elsewhere():
    network = build(4, line(4))
    network.run_until_converged(COLD_START)
    second = network.connect("R01", "R02")
    network.run(30)
    before = recomputations(network)
    network.cut(second)
    network.restore(second)
    network.run(0.5)
    network.cut(network.cables[1])
    network.run_until_converged(1)
    assert recomputations(network) == before


# --- fault schedules ----------------------------------------------------------------------------------------

index = st.integers(0, 99)
pauses = st.sampled_from([0.0, 0.01, 0.3, 1.0, 3.0, 9.0, 35.0, 65.0])
faults = st.one_of(
    st.tuples(st.sampled_from(["cut", "restore", "silent", "crash", "restart"]), index),
    st.tuples(st.just("loss"), index, st.sampled_from([0.1, 0.3, 0.6])),
    st.tuples(st.just("duplicates"), index, st.just(0.5)),
    st.tuples(st.just("cost"), index, st.integers(1, 4)),
    st.tuples(st.sampled_from(["add", "remove"]), index, st.sampled_from(["Mp", "Mq", "HE"])),
)


def inflict(network, fault):
    kind, at, *detail = fault
    cable = network.cables[at % len(network.cables)]
    router = sorted(network.routers)[at % len(network.routers)]
    match kind:
        case "cut":
            network.cut(cable)
        case "restore":
            network.restore(cable)
        case "silent":
            cable.silent = cable.up
        case "crash":
            network.crash(router)
        case "restart":
            network.restart(router)
        case "loss":
            cable.loss = detail[0]
        case "duplicates":
            cable.duplicates = detail[0]
        case "cost":
            network.set_cost(cable, detail[0])
        case "add":
            network.add_address(router, detail[0])
        case "remove":
            network.remove_address(router, detail[0])


@st.composite
def topologies(draw):
    size = draw(st.integers(2, 8))
    pairs = [(at, draw(st.integers(0, at - 1))) for at in range(1, size)]
    pairs += draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=5))
    return size, [(one, other) for one, other in pairs if one != other]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(topologies(), st.lists(st.tuples(pauses, faults), max_size=10), st.integers(0, 1000))
def test_any_fault_schedule_heals(topology, schedule, seed):
    network = build(*topology, costs=(1, 1, 2), seed=seed)
    for pause, fault in schedule:
        network.run(pause)
        inflict(network, fault)
    network.heal()
    network.run_until_converged(HEALED, step=0.5)
