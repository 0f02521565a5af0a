"""What collectors hear of relay sites: what went from one to the other, what is behind, what has happened."""

from __future__ import annotations

import os
import signal

from tests.integration.sites.support.relay_sites import RelaySites
from tests.integration.support.client import Clients
from tests.integration.support.collector import Collector
from tests.integration.support.routers import Router, Routers, eventually

from isthmus_router.flows.records import Attr, RecordType

KEPT = 20
FIRST, MEANWHILE = 30, 100


def a_second_intervals(router: Router) -> Router:
    router.sections[0][1]["flowIntervalSeconds"] = 1
    return router


def events(collector: Collector, subject: str | None = None) -> list[str]:
    found = sorted(collector.of(RecordType.RELAY_EVENT), key=lambda event: event[Attr.START_TIME])
    return [event[Attr.EVENT] for event in found if subject in (None, event.get(Attr.SUBJECT))]


def summed(collector: Collector, attribute: Attr, subject: str) -> int:
    return sum(each[attribute] for each in collector.of(RecordType.RELAY_SUMMARY, subject=subject))


def test_what_goes_between_sites_and_what_keeps_it(routers: Routers, clients: Clients) -> None:
    sites = RelaySites()
    nyc = [a_second_intervals(routers.add(f"nyc-{number}", mode="interior")) for number in range(2)]
    sfo = a_second_intervals(routers.add("sfo-0", mode="interior"))
    sites.site("nyc", *nyc, bufferMessages=KEPT)
    sites.site("sfo", sfo)
    sites.direct("nyc", "sfo")
    routers.start_all()
    sites.formed()
    relay, other = sites.relay("nyc"), sites.other("nyc")
    there = clients.connect(sfo.port).receiver("relay/trades", credit=1_000, accept=True)
    sender = clients.connect(other.port).sender("relay/trades")
    at = {router.id: Collector(clients, router.port) for router in (relay, other, sfo)}

    members = {
        name: collector.until(lambda c=collector: c.of(RecordType.RELAY_MEMBER), "the membership")
        for name, collector in at.items()
    }
    assert {name: (each[0][Attr.NAME], each[0][Attr.RELAY_SITE]) for name, each in members.items()} == {
        relay.id: (relay.id, "nyc"),
        other.id: (other.id, "nyc"),
        sfo.id: (sfo.id, "sfo"),
    }
    for name, relays in ((relay.id, 1), (other.id, 0)):
        at[name].until(
            lambda n=name, r=relays: at[n].of(RecordType.RELAY_MEMBER, relays=r, link_count=2), "its part"
        )
    assert "relaying-begins" in events(at[relay.id])
    assert "relaying-begins" not in events(at[other.id])

    for number in range(FIRST):
        assert sender.deliver(f"{number}") == "accepted"
    there.expect(FIRST)
    at[relay.id].until(lambda: summed(at[relay.id], Attr.SENT, "sfo") == FIRST, "what was sent")
    at[sfo.id].until(lambda: summed(at[sfo.id], Attr.RECEIVED, "nyc") == FIRST, "what was received")
    assert summed(at[other.id], Attr.SENT, "sfo") == 0, "the relay has sent it"

    os.kill(sfo.pid, signal.SIGSTOP)
    try:
        eventually(
            lambda: other.status()["relay"]["remotes"][0]["state"] == "unreachable",
            "the site is out of reach",
        )
        for number in range(MEANWHILE):
            assert sender.deliver(f"{number}") == "accepted"
        at[relay.id].until(
            lambda: any(
                each[Attr.LAG_MESSAGES] == KEPT
                and each[Attr.OPER_STATUS] == "unreachable"
                and each[Attr.LAG] > 0
                for each in at[relay.id].of(RecordType.RELAY_SUMMARY)
            ),
            "how far it is behind",
        )
        at[relay.id].until(
            lambda: summed(at[relay.id], Attr.DROPPED, "sfo") == MEANWHILE - KEPT, "what was dropped"
        )
    finally:
        os.kill(sfo.pid, signal.SIGCONT)

    def is_back() -> bool:
        heard = events(at[relay.id], "sfo")
        return "site-up" in heard[heard.index("site-unreachable") :]

    at[relay.id].until(is_back, "that it is back")
    assert "messages-dropped" in events(at[relay.id], "sfo")
    at[sfo.id].until(lambda: "messages-lost" in events(at[sfo.id], "nyc"), "what never came")
    at[sfo.id].until(lambda: summed(at[sfo.id], Attr.GAPS, "nyc") == MEANWHILE - KEPT, "how many never came")


def test_a_router_that_is_a_member_no_more_says_so(routers: Routers, clients: Clients) -> None:
    sites = RelaySites()
    router = a_second_intervals(routers.add("nyc-0", mode="interior"))
    sites.site("nyc", router)
    routers.start_all()
    sites.formed()
    collector = Collector(clients, router.port)
    (member,) = collector.until(lambda: collector.of(RecordType.RELAY_MEMBER, relays=1), "the membership")
    router.sections = [section for section in router.sections if section[0] != "relaySite"]
    router.configure()
    collector.until(lambda: Attr.END_TIME in member, "its end")
