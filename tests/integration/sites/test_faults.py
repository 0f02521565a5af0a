"""Routers of two sites end, by crash or in good order, while messages and requests pass between the sites.

Everything that was accepted arrives everywhere, once and in order, and requests across sites are answered. How long
the longest message took is printed: it was due when the fault was there, so that is the gap too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.integration.sites.support.netns import Network
from tests.integration.sites.support.stand import Flow, Requests, SiteRouter, TwoSites
from tests.integration.support.routers import Router

CRASH_SECONDS, HANDOVER_SECONDS = 3.0, 1.0
"""A message takes no longer, on a machine with much else to do. Alone: 0.06 s."""
ROLES = {
    "sending relay": ("a",),
    "receiving relay": ("d",),
    "second in line of the sending site": ("b",),
    "second in line of the receiving site": ("e",),
    "plain member": ("f",),
    "both relays": ("a", "d"),
    "sending relay and the second in line": ("a", "b"),
}


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


@pytest.mark.parametrize("end", [Router.kill, Router.stop], ids=["killed", "stopped"])
@pytest.mark.parametrize("who", ROLES)
def test_routers_that_end(
    roles: dict[str, SiteRouter], who: str, end: Callable[[Router], None], request: pytest.FixtureRequest
) -> None:
    ending = [roles[role] for role in ROLES[who]]
    staying = [router for router in roles.values() if router not in ending]
    source = roles["c"]
    answering = roles["e"] if roles["e"] in staying else roles["f"]
    requests = Requests(source, answering)
    to_one = Flow(source, [answering], messages=500, rate=200, address=answering.own_address)
    multicast = Flow(source, staying, messages=2_500)
    try:
        multicast.after(0.8)
        for router in ending:
            end(router)
        delays = multicast.end(request.node.name)
        to_one.end("to one member")
        requests.end()
    finally:
        multicast.stop()
        to_one.stop()
        requests.stop()
    limit = CRASH_SECONDS if end is Router.kill else HANDOVER_SECONDS
    assert max(delays.values()) < limit


