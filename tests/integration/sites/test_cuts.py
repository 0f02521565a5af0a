"""Networks of two sites are cut while messages and requests pass between the sites.

As in `test_faults.py`: everything that was accepted arrives everywhere, once and in order.
"""

from __future__ import annotations

import pytest
from proton import Message
from tests.integration.sites.support.stand import (
    EVERYBODY,
    Flow,
    Listener,
    Requests,
    SiteRouter,
    TwoSites,
    await_mutual,
)
from tests.integration.support.client import Clients

MOST_SECONDS = 5.0
"""That a message may take where nothing is cut, on a machine with much else to do."""


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
        assert delay < (MOST_SECONDS if router.startswith("nyc") else seconds + 8)
    await_mutual(stand.nyc, stand.sfo)


@pytest.mark.parametrize("who", ["a", "d", "f"], ids=["sending relay", "receiving relay", "plain member"])
def test_member_that_is_cut_off(
    stand: TwoSites, roles: dict[str, SiteRouter], who: str, clients: Clients
) -> None:
    """Its site goes on without it; it comes back by a merge, and says how much it has missed."""
    cut_off = roles[who]
    (link,) = cut_off.host.links.values()
    listener = Listener(clients, cut_off)
    flow = Flow(roles["c"], [router for router in roles.values() if router is not cut_off], messages=6_000)
    try:
        flow.after(0.5)
        link.cut()
        flow.after(4.5)
        link.heal()
        delays = flow.end(f"{cut_off.id} cut off")
    finally:
        flow.stop()
    await_mutual(stand.nyc, stand.sfo)
    clients.until(lambda: listener.heard() >= 6_000, f"all messages: {listener.heard()}")
    assert listener.numbers == sorted(set(listener.numbers))
    assert len(listener.numbers) + listener.lost == 6_000
    print(f"{cut_off.id} has missed {listener.lost} messages")
    assert max(delays.values()) < 12


@pytest.mark.parametrize("where", ["between the sites", "at a member"])
def test_message_that_takes_longer_than_silence_does(
    stand: TwoSites, roles: dict[str, SiteRouter], where: str, clients: Clients
) -> None:
    """Nobody who is in the middle of a long message is taken for gone."""
    sender = roles["c"]
    host = sender.host if where == "at a member" else stand.gateway
    receivers = []
    for router in roles.values():
        with router.host.inside():
            receivers.append(clients.connect(router.port).receiver(EVERYBODY, credit=10, accept=True))
    with sender.host.inside():
        link = clients.connect(sender.port).sender(EVERYBODY).await_credit()
    views = [router.relay["view"] for router in roles.values()]
    for line in host.links.values():
        line.limit(1_000_000)
    try:
        sent = link.send(Message(body=bytes(700_000)))
        clients.until(lambda: sent.outcome == "accepted", "it is accepted")
        clients.until(lambda: all(each.arrived() for each in receivers), "it is received everywhere")
    finally:
        for line in host.links.values():
            line.limit(None)
    assert [router.relay["view"] for router in roles.values()] == views
    assert all(remote["state"] == "up" for router in roles.values() for remote in router.relay["remotes"])


def test_direction_that_is_cut(stand: TwoSites, roles: dict[str, SiteRouter]) -> None:
    """A relay takes nothing of what the other one sends: the way is by another member of its site."""
    flow = Flow(roles["c"], roles.values(), messages=10_000)
    requests = Requests(roles["c"], roles["f"])
    try:
        flow.after(0.5)
        roles["d"].host.refuse(roles["a"].host)
        delays = flow.end("one direction between the relays")
        requests.end(refused=True)
    finally:
        roles["d"].host.accept_all()
        flow.stop()
        requests.stop()
    assert max(delays.values()) < 20


def test_site_that_ends_and_comes_again(stand: TwoSites, roles: dict[str, SiteRouter]) -> None:
    """The other one goes on; new members get what is sent from then on."""
    flow = Flow(roles["c"], stand.nyc.routers, messages=4_000)
    try:
        flow.after(0.5)
        stand.sfo.kill()
        stand.start()
        delays = flow.end("a site is killed")
    finally:
        flow.stop()
    assert max(delays.values()) < MOST_SECONDS
    Flow(roles["b"], roles.values(), messages=500).end("it is there again")


def test_site_that_comes_late(stand: TwoSites, roles: dict[str, SiteRouter]) -> None:
    stand.stop()
    stand.nyc.start()
    source = stand.nyc.order()[-1]
    flow = Flow(source, stand.nyc.routers, messages=3_000)
    flow.after(0.5)
    stand.start()
    flow.end("a site comes late")
    Flow(source, roles.values(), messages=500).end("it is there")
