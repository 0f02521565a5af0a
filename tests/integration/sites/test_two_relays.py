"""Sites with two relays each: every message is carried by one of them, and by the other one when that is killed."""

from __future__ import annotations

from collections import defaultdict

from tests.integration.sites.support.relay_sites import RelaySites, Stream
from tests.integration.support.client import Clients, Receiver
from tests.integration.support.routers import Router, Routers, eventually

ORIGIN = "x-opt-isthmus.origin"


def test_senders_keep_their_order_when_relays_are_killed(routers: Routers, clients: Clients) -> None:
    sites = RelaySites()
    for site in ("nyc", "sfo"):
        members = [routers.add(f"{site}-{number}", mode="interior") for number in range(4)]
        sites.site(site, *members, relays=2)
    sites.direct("nyc", "sfo")
    routers.start_all()
    sites.formed()
    relays = {site: relays_of(sites.members[site]) for site in sites.members}
    rest = {site: [each for each in sites.members[site] if each not in relays[site]] for site in relays}
    receivers = [
        clients.connect(router.port).receiver("relay/trades", credit=20_000, accept=True)
        for router in rest["sfo"]
    ]
    sending = [*rest["nyc"], relays["nyc"][1]]
    streams = {
        f"nyc/{router.id}": Stream(
            clients, clients.connect(router.port).sender("relay/trades").await_credit()
        )
        for router in sending
    }

    def send(rounds: int) -> None:
        for _ in range(rounds):
            for stream in streams.values():
                stream.send(10)

    send(50)
    for stream in streams.values():
        stream.accepted()
    sent = sum(stream.count for stream in streams.values())
    eventually(lambda: sum(map(carried, relays["nyc"])) == sent, "each message is carried by one of them")
    relays["nyc"][0].kill()
    send(50)
    relays["sfo"][0].kill()
    send(50)
    for stream in streams.values():
        stream.accepted()
    total = sum(stream.count for stream in streams.values())
    for receiver in receivers:
        clients.until(lambda r=receiver: len(r.arrived()) >= total, "all messages", timeout=60)  # type: ignore[misc]
        assert numbers_of(receiver) == {name: list(range(stream.count)) for name, stream in streams.items()}


def carried(relay: Router) -> float:
    return relay.metric("relay_sent_messages_total", 'remote_site="sfo"')


def relays_of(members: list[Router]) -> list[Router]:
    """Both of them."""
    names = [member["name"] for member in members[0].status()["relay"]["members"] if member["relay"]]
    assert len(names) == 2
    return [next(router for router in members if router.id == name) for name in names]


def numbers_of(receiver: Receiver) -> dict[str, list[int]]:
    """Of each member where messages entered the group."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for item in receiver.arrived():
        found[item.message.annotations[ORIGIN]].append(int(item.body))
    return dict(found)
