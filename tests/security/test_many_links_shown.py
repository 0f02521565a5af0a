"""One peer has tens of thousands of links to one address: others who ask what there is delay no client."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.management import Manager
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, eventually, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, opening

LINKS = 120_000
PER_SESSION = 1000
TIMES = 5
PATIENCE = 120
MOST_CPU_SECONDS = 0.035
"""While a message is on its way. In one piece, `/status` takes 0.05 s, a row of `router.address` 0.1 s, and the order
of the links 0.07 s."""


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    """One with a container that has these links."""
    routers, port = Routers(tmp_path_factory.mktemp("routers")), free_port()
    router = routers.start("A", listener(port, "route-container", name="containers"))
    with Flood(port) as flood:
        flood.send(opening())
        for first in range(0, LINKS, PER_SESSION):
            flood.send(*session(first // PER_SESSION))
        eventually(lambda: router.metric("links", 'type="endpoint"') >= LINKS, "the links", PATIENCE)
        yield router
    routers.stop()


def session(channel: int) -> Iterator[bytes]:
    yield begin(channel)
    for number in range(PER_SESSION):
        yield attach(number, f"l{channel}-{number}", "many", receiver=True, channel=channel)


def status(router: Router, _: Manager) -> bool:
    (row,) = (row for row in router.status()["addresses"] if row["name"] == "many")
    return bool(row["local"] == LINKS)


def addresses(_: Router, manager: Manager) -> bool:
    rows = manager.query("router.address", "key", "subscriberCount")
    return {"key": "Mmany", "subscriberCount": LINKS} in rows


def links(_: Router, manager: Manager) -> bool:
    rows = manager.query("router.link", "owningAddr", offset=LINKS - 10, count=5)
    return rows == [{"owningAddr": "Mmany"}] * 5


@pytest.mark.parametrize("ask", [status, addresses, links])
def test_who_asks_delays_no_client(
    router: Router, clients: Clients, ask: Callable[[Router, Manager], bool]
) -> None:
    manager = Manager(clients.connect(router.port))
    assert ask(router, manager)
    with Canary(router) as canary:
        for _ in range(TIMES):
            assert ask(router, manager)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
