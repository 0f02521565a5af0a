"""Networks of two sites are cut while messages and requests pass between the sites.

As in `test_faults.py`: everything that was accepted arrives everywhere, once and in order.
"""

from __future__ import annotations

import pytest
from tests.integration.sites.support.stand import Flow, Requests, SiteRouter, TwoSites, await_mutual


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
        assert delay < (2 if router.startswith("nyc") else seconds + 8)
    await_mutual(stand.nyc, stand.sfo)
