"""Networks of two sites are cut while messages and requests pass between the sites.

As in `test_faults.py`: everything that was accepted arrives everywhere, once and in order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.sites.support.netns import Network
from tests.integration.sites.support.stand import Flow, Requests, SiteRouter, TwoSites, await_mutual


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


@pytest.mark.parametrize("seconds", [3, 30])
def test_bridge_that_is_cut(stand: TwoSites, roles: dict[str, SiteRouter], seconds: int) -> None:
    """NYC goes on alone; SFO gets what it missed when the bridge is back."""
    flow = Flow(roles["c"], roles.values(), messages=1_000 * (seconds + 3), patience=seconds + 20)
    requests = Requests(roles["c"], roles["f"])
    try:
        flow.after(1)
        stand.cut()
        flow.after(1 + seconds)
        stand.heal()
        delays = flow.end(f"bridge cut for {seconds} s")
        requests.end(refused=True)
    finally:
        flow.stop()
        requests.stop()
    for router, delay in delays.items():
        assert delay < (2 if router in roles_of(stand.nyc.routers) else seconds + 8)
    await_mutual(stand.nyc, stand.sfo)


def roles_of(routers: list[SiteRouter]) -> list[str]:
    return [router.id for router in routers]
