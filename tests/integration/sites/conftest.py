"""Two sites of three routers each, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.sites.support.netns import Network
from tests.integration.sites.support.stand import SiteRouter, TwoSites


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoSites]:
    with Network() as network:
        stand = TwoSites(network, tmp_path_factory.mktemp("sites"))
        yield stand
        stand.stop()


@pytest.fixture
def roles(stand: TwoSites) -> dict[str, SiteRouter]:
    """a, b and c of NYC, d, e and f of SFO, in the order of their views; all of them run."""
    stand.start()
    return dict(zip("abcdef", stand.nyc.order() + stand.sfo.order(), strict=True))
