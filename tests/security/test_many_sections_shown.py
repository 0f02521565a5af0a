"""A router has tens of thousands of configured entities: others who ask what there is delay no client."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.management import Manager
from tests.integration.support.routers import Router, Routers
from tests.security.support.canary import Canary

SECTIONS = 20_000
"""Of each kind."""
TIMES = 5
MOST_CPU_SECONDS = 0.035
"""While a message is on its way. In one piece, the rows of 20,000 link routes, or of as many
auto-links, take 0.1 s."""


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    """One with link routes and auto-links to a container that is away."""
    routers = Routers(tmp_path_factory.mktemp("routers"))
    sections = [
        (kind, {"name": f"{kind}{number}", place: f"a{number}", "direction": "in", "containerId": "broker"})
        for kind, place in (("linkRoute", "prefix"), ("autoLink", "address"))
        for number in range(SECTIONS)
    ]
    yield routers.start("A", *sections)
    routers.stop()


def status(router: Router, _: Manager) -> bool:
    document = router.status()
    return bool(document["linkRoutesTotal"] == len(document["autoLinks"]) == SECTIONS)


def metrics(router: Router, _: Manager) -> bool:
    return router.metric("link_routes", 'state="inactive"') == SECTIONS


def last_link_routes(_: Router, manager: Manager) -> bool:
    rows = manager.query("router.config.linkRoute", "prefix", offset=SECTIONS - 2)
    return rows == [{"prefix": f"a{number}"} for number in range(SECTIONS - 2, SECTIONS)]


def last_auto_links(_: Router, manager: Manager) -> bool:
    rows = manager.query("router.config.autoLink", "address", offset=SECTIONS - 2)
    return rows == [{"address": f"a{number}"} for number in range(SECTIONS - 2, SECTIONS)]


def one_link_route(_: Router, manager: Manager) -> bool:
    name = f"linkRoute{SECTIONS - 1}"
    row = manager.request("READ", type="io.skupper.router.router.config.linkRoute", name=name).body
    return bool(row["prefix"] == f"a{SECTIONS - 1}")


@pytest.mark.parametrize("ask", [status, metrics, last_link_routes, last_auto_links, one_link_route])
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
