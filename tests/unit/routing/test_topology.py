"""When paths are computed, after however many computations."""

from __future__ import annotations

import pytest

from isthmus_router.routing.linkstate import LinkState
from isthmus_router.routing.nodes import RouterTable
from isthmus_router.routing.timers import Timers
from isthmus_router.routing.topology import Topology


@pytest.mark.parametrize("computations", [17, 100, 20_000])
def test_any_number_of_computations_makes_the_next_one_late_by_seconds_at_most(computations: int) -> None:
    timers = Timers()
    topology = Topology("ME", timers)
    nodes = RouterTable(timers.request_retry, timers.ra_interval)
    for _ in range(computations):
        topology.begin(LinkState("ME"), nodes, 100.0)
        assert topology.go_on()
    topology.changed_elsewhere(100.0, 1)
    assert 100.0 < topology.due <= 102.0
    topology.changed_here(100.0)
    assert 100.0 < topology.due <= 100.5
