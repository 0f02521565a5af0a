"""Fixtures: a network with link routes, and one link through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.link_routes import Chain, Shore
from tests.integration.support.routers import Routers


@pytest.fixture(scope="module")
def shore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shore]:
    """The network of most tests."""
    routers = Routers(tmp_path_factory.mktemp("link-routes"))
    yield Shore(routers)
    routers.stop()


@pytest.fixture(scope="module")
def either_shore(either_kernel: Callable[[], Routers]) -> Shore:
    """The network, with either kernel."""
    return Shore(either_kernel())


@pytest.fixture(params=["here", "far"])
def chain(request: pytest.FixtureRequest, clients: Clients, either_shore: Shore) -> Chain:
    """A client, and a container at the same router or behind two others."""
    return Chain(clients, either_shore, "A" if request.param == "here" else "C")
