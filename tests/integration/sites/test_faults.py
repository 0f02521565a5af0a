"""Routers of two sites end, by crash or in good order, while messages and requests pass between the sites.

Everything that was accepted arrives everywhere, once and in order, and requests across sites are answered. How long
the longest message took is printed: it was due when the fault was there, so that is the gap too.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.sites.support.stand import Flow, Requests, SiteRouter
from tests.integration.support.routers import Router

MOST_SECONDS = 5.0
"""That a message may take on a machine with much else to do; alone it takes 0.1 s after a crash, and 0.03 s else."""
ROLES = {
    "sending relay": ("a",),
    "receiving relay": ("d",),
    "second in line of the sending site": ("b",),
    "second in line of the receiving site": ("e",),
    "plain member": ("f",),
    "both relays": ("a", "d"),
    "sending relay and the second in line": ("a", "b"),
}


@pytest.mark.parametrize("end", [Router.kill, Router.stop], ids=["killed", "stopped"])
@pytest.mark.parametrize("who", ROLES)
def test_routers_that_end(
    roles: dict[str, SiteRouter], who: str, end: Callable[[Router], None], request: pytest.FixtureRequest
) -> None:
    ending = [roles[role] for role in ROLES[who]]
    staying = [router for router in roles.values() if router not in ending]
    source = roles["c"]
    one, answering = [roles[role] for role in "def" if roles[role] in staying][-2:]
    requests = Requests(source, answering)
    to_one = Flow(source, [one], messages=500, rate=200, address=one.own_address)
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
    assert max(delays.values()) < MOST_SECONDS
