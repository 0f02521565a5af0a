"""An edge with an uplink to an interior, in memory."""

from __future__ import annotations

import pytest
from tests.unit.edge.network import End, Network, Router


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def interior(network: Network) -> Router:
    return network.add("A", edge=False)


@pytest.fixture
def edge(network: Network, interior: Router) -> Router:
    return network.add("E", edge=True)


@pytest.fixture
def uplink(network: Network, interior: Router, edge: Router) -> End:
    end = network.connect(edge, interior)
    network.settle()
    return end
