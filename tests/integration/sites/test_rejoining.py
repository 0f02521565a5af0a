"""A router whose member leaves while it runs, as its configuration has changed: no sender waits for that member."""

from __future__ import annotations

from pathlib import Path

from tests.integration.sites.support.relay_sites import RelaySites
from tests.integration.support.client import Clients
from tests.integration.support.routers import Routers


def test_senders_to_a_member_that_is_no_more(tmp_path: Path) -> None:
    """It was alone, so nothing was protected; the next one does not know of it."""
    routers, clients, sites = Routers(tmp_path), Clients(), RelaySites()
    router = routers.add("nyc-0", mode="interior")
    sites.site("nyc", router)
    routers.start_all()
    try:
        sender = clients.connect(router.port).sender("relay/trades").await_credit()
        sent = [sender.send(f"{number}") for number in range(sender.credit)]
        clients.round_trip()
        assert sender.credit == 0
        router.sections[-1][1]["memberName"] = "another"
        router.configure()
        clients.until(lambda: all(each.settled for each in sent), "all are told")
        assert {each.outcome for each in sent} == {"modified"}
        sender.await_credit()
    finally:
        clients.close()
        routers.stop()
