"""An edge whose clients use very many addresses loses its uplink, or gets it back: links go and come in steps.

The interior router, or anybody between the two, decides when and how often that happens. `most_cpu_seconds` of the
canary is the CPU time that the edge spent on anything while one message was on its way.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, connector, eventually, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, opening

pytestmark = pytest.mark.timeout(600)

RECEIVERS, SENDERS, OF_A_SESSION = 6_000, 3_000, 200
MOST_CPU_SECONDS = 0.05
PATIENCE = 120


def links(router: Router, name: str, count: int, *, receiver: bool) -> Flood:
    """A client with a link for each of as many addresses."""
    client = Flood(router.port)
    client.send(opening())
    for first in range(0, count, OF_A_SESSION):
        channel = first // OF_A_SESSION
        numbers = range(min(OF_A_SESSION, count - first))
        frames = (
            attach(
                number, f"{first + number}", f"{name}/{first + number}", receiver=receiver, channel=channel
            )
            for number in numbers
        )
        client.send(begin(channel), *frames)
    return client


def reaches(router: Router, metric: str, least: float) -> None:
    """Wait for a number; a router that is busy may answer late."""

    def there() -> bool:
        try:
            return router.metric(metric) >= least
        except OSError:
            return False

    eventually(there, f"{least} {metric}", PATIENCE)


def test_uplink_that_comes_and_goes(compiled_kernel: Callable[[], Routers]) -> None:
    routers, port = compiled_kernel(), free_port()
    interior = routers.start("A", listener(port, "edge", name="edges"), mode="interior", idleTimeoutSeconds=0)
    edge = routers.start("E", connector(port, "edge", name="up"), mode="edge", idleTimeoutSeconds=0)
    with (
        links(edge, "received", RECEIVERS, receiver=True),
        links(edge, "sent", SENDERS, receiver=False),
    ):
        reaches(edge, "edge_proxied_addresses", RECEIVERS + SENDERS)
        with Canary(edge) as lost:
            interior.kill()
            eventually(
                lambda: edge.metric("links") < RECEIVERS + SENDERS + 100, "links are removed", PATIENCE
            )
        with Canary(edge) as back:
            interior.start()
            reaches(edge, "edge_proxied_addresses", RECEIVERS + SENDERS)
    for report in (lost.report, back.report):
        report.check()
        assert report.most_cpu_seconds < MOST_CPU_SECONDS, report
